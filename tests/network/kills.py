"""A broker that is killed all the time, and workers too if wanted; then the account.

    python -m tests.network.kills pingpong --kills 100 --seed 7 [--workers-too]

The queue never runs dry while there are kills; each new broker has the id and the address of the
one before. Then everything must drain by itself. Where only brokers are killed a document has no
attempt to lose (--retries 0): one that was charged is discarded, and that is counted. Exit code 1,
and the directory stays, if anything is lost, twice, wrong, charged or left, or was there for longer
than DRAINS after the last kill.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from queuedriver.format.units import format_duration
from tests.network.doors import NO_BROKER, PROTOCOLS, Running, open_doors
from tests.waiting import until

WORKERS = 4
# What one document takes, in seconds, and how many wait at the least while there are kills.
WORK = 0.004
WAITING = 300
# So many outputs more, and a broker is under load; one in five dies long before that.
LOAD = 10
EARLY = 0.2
# How long a broker lives beyond either, at most; and after a worker was killed, since it sees each
# second whether those that have documents are there.
LIFE = 0.1
LIFE_TO_NOTICE = 2.0
# Seconds after the last kill until nothing of WAITING is left. Tests, which run beside others, give
# it longer.
DRAINS = 5.0


class Orders(NamedTuple):
    """What is to be done."""

    protocol: str
    kills: int
    seed: int = 1
    workers_too: bool = False


class Outcome(NamedTuple):
    """What came of it."""

    documents: int
    published: int
    # Each document that was given up: the causes of its attempts.
    discarded: dict[str, list[str]]
    # Documents that brokers released, charged, … as far as the journals know.
    events: dict[str, int]
    workers_killed: int
    # Seconds with kills, and until the queue was empty after them.
    killing: float
    draining: float
    complaints: list[str]


class Kills:
    """One campaign."""

    def __init__(self, orders: Orders, place: Path) -> None:
        self._orders = orders
        self._chance = random.Random(orders.seed)
        self._doors = open_doors(place, orders.protocol)
        self._workers: list[Running] = []
        self._workers_killed = 0

    def run(self) -> Outcome:
        with self._doors as doors:
            began_at = time.monotonic()
            self._workers = [self._worker() for _ in range(WORKERS)]
            for to_come in reversed(range(self._orders.kills)):
                self._feed()
                broker = self._broker()
                self._replace_who_left()
                # The journal of its successor lives to tell what the last one had.
                self._let_live(early=bool(to_come) and self._chance.random() < EARLY)
                if self._orders.workers_too:
                    self._kill_a_worker()
                    self._let_notice()
                assert broker.alive, f"a broker ended by itself:\n{doors.said()}"
                broker.kill()
            killed_at = time.monotonic()
            broker = self._broker()
            self._until(doors.is_empty, "the queue is empty")
            drained_at = time.monotonic()
            broker.signal()
            assert broker.ended() == 0, doors.said()
            # One that was started while there was no broker may have given up since.
            ends = {one.exit_code for one in self._workers if not one.alive}
            assert ends <= {NO_BROKER}, doors.said()
            discarded = {
                docid: [attempt.failure.cause for attempt in doors.report(docid).attempts]
                for docid in doors.discarded()
            }
            events = dict(doors.noted())
            return Outcome(
                len(doors.submitted),
                len(doors.outputs()),
                discarded,
                events,
                self._workers_killed,
                killed_at - began_at,
                drained_at - killed_at,
                [*doors.account(), *judge(self._orders, discarded, events)],
            )

    def _broker(self) -> Running:
        return self._doors.broker(wait=False, retries=1 if self._orders.workers_too else 0)

    def _worker(self) -> Running:
        return self._doors.worker(WORK)

    def _replace_who_left(self) -> None:
        """Do as a watchdog does with who left since it found no broker when it started."""
        for at, one in enumerate(self._workers):
            if one.exit_code == NO_BROKER:
                self._workers[at] = self._worker()

    def _until(self, fact: Callable[[], bool], words: str) -> None:
        """Wait for a fact, and have workers that bring it about."""

        def is_so() -> bool:
            self._replace_who_left()
            return fact()

        until(is_so, words)

    def _feed(self) -> None:
        self._doors.bring_many(max(0, WAITING - self._doors.to_come()))

    def _let_live(self, *, early: bool) -> None:
        doors = self._doors
        if not early:
            wanted = len(doors.outputs()) + LOAD
            self._until(lambda: doors.has_outputs(wanted), f"{wanted} outputs")
        time.sleep(self._chance.uniform(0, LIFE))
        while not early and doors.to_come() < WAITING // 2:
            # They were faster than we had our turn: it is to have documents when it is killed.
            self._feed()
            wanted = len(doors.outputs()) + 1
            self._until(partial(doors.has_outputs, wanted), f"{wanted} outputs")

    def _let_notice(self) -> None:
        until_at = time.monotonic() + self._chance.uniform(0, LIFE_TO_NOTICE)
        while time.monotonic() < until_at:
            self._feed()
            time.sleep(LIFE)

    def _kill_a_worker(self) -> None:
        """Another comes in its place."""
        self._workers.pop(self._chance.randrange(WORKERS)).kill()
        self._workers.append(self._worker())
        self._workers_killed += 1


def figures(orders: Orders, outcome: Outcome) -> Iterator[str]:
    """What was done, and what came of it."""
    yield (
        f"{orders.protocol}, seed {orders.seed}: {orders.kills} brokers and "
        f"{outcome.workers_killed} workers killed in {format_duration(outcome.killing)}, "
        f"drained in {format_duration(outcome.draining)}"
    )
    yield (
        f"documents {outcome.documents:,}, published {outcome.published:,}, "
        f"discarded {len(outcome.discarded):,}"
    )
    counts = (f"{word} {count:,}" for word, count in sorted(outcome.events.items()))
    yield f"journals: {', '.join(counts)}"
    yield from outcome.complaints
    yield f"{len(outcome.complaints)} complaints"


def judge(
    orders: Orders, discarded: Mapping[str, list[str]], events: Mapping[str, int]
) -> Iterator[str]:
    """What may not have happened, besides what the account says."""
    for docid, causes in discarded.items():
        if not (orders.workers_too and causes == ["worker-lost"] * 2):
            yield f"{docid} was discarded: {', '.join(causes)}"
    if not orders.workers_too:
        for word in {"failed", "discarded"} & events.keys():
            yield f"{events[word]} times {word}, though no worker was lost"
    elif events.get("failed", 0) > orders.kills:
        yield f"{events['failed']} attempts were charged for {orders.kills} killed workers"


def main() -> int:
    parser = argparse.ArgumentParser(prog="kills", description=__doc__.partition("\n")[0])
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers-too", action="store_true")
    orders = Orders(**vars(parser.parse_args()))
    place = Path(tempfile.mkdtemp(prefix="kills-"))
    outcome = Kills(orders, place).run()
    for line in figures(orders, outcome):
        print(line)
    slow = outcome.draining > DRAINS
    if slow:
        print(f"the backlog was not gone {DRAINS:g} s after the last kill")
    if outcome.complaints or slow:
        print(f"everything is kept in {place}")
        return 1
    shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
