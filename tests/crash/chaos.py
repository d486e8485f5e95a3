"""Chaos: a pipeline of real processes, killed at random for as long as one likes, then counted.

    python -m tests.crash.chaos --documents 20000 --drivers 8 --minutes 10 --seed 7

Two hosts, each with a watchdog and half of the drivers, take documents through three stages: a call
with preload, a command, a server. Meanwhile documents are submitted, and processes are killed,
paused and asked to leave; one host loses its power for good and is replaced, the other one stands
still for longer than a lease; and an impatient operator on a third host takes back whatever shows
no life for 3 s, which is less than living drivers need to show any. Then the faults stop, the first
queue is closed, and everything has to drain by itself.

Zero lost, zero twice, none half-written, nothing left over, no process left, and no innocent
document discarded: each may fail so often (--retries) that kills alone are not enough for that. If
it is not so, the exit code is 1, the directory stays, and the history of each bad document is
printed.
"""

import argparse
import contextlib
import glob
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from queuedriver.format.units import format_duration
from tests.crash.chaos_count import at_once, history
from tests.crash.chaos_faults import KINDS, VICTIMS
from tests.crash.chaos_layout import Orders
from tests.crash.chaos_run import Chaos, Outcome

# Documents whose history is printed.
_SHOWN = 10
_COMPLAINTS = ("lost", "twice", "wrong", "innocent", "left", "broken", "stuck", "process")


def main(arguments: Sequence[str] | None = None) -> int:
    orders, kept_at = _read(arguments)
    place = kept_at or Path(tempfile.mkdtemp(prefix="chaos-"))
    outcome = Chaos(orders, place).run()
    for line in figures(outcome, place):
        print(line)
    for line in post_mortem(outcome, place) if outcome.complaints else ():
        print(line)
    if not (outcome.complaints or kept_at):
        shutil.rmtree(place)
    return 1 if outcome.complaints else 0


def _read(arguments: Sequence[str] | None) -> tuple[Orders, Path | None]:
    usual = Orders()
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--documents", type=int, default=usual.documents)
    add("--drivers", type=int, default=usual.drivers, help="of both hosts together; 6 at least")
    add("--minutes", type=float, default=usual.seconds / 60, help="how long there are faults")
    add("--kills", type=int, default=usual.kills, help="how many there are at the least")
    add("--every", type=float, default=usual.every, help="seconds from fault to fault, on average")
    add("--seed", type=int, default=usual.seed)
    add("--retries", type=int, default=usual.retries)
    add("--adopt", action="store_true", help="drivers outlive their watchdog")
    add("--together", action="store_true", help="both hosts in one pid namespace")
    add("--durable", action="store_true", help="fsync everything, as a watchdog does by default")
    add("--batch", type=int, default=usual.batch, help="of the last stage")
    add("--place", type=Path, help="an empty or new directory, which is kept")
    given = parser.parse_args(arguments)
    wanted = {**vars(given), "seconds": given.minutes * 60}
    orders = Orders(**{key: wanted[key] for key in Orders._fields})
    return orders, None if given.place is None else given.place.absolute()


def figures(outcome: Outcome, place: Path) -> Iterator[str]:
    """What was done, and what came of it."""
    orders, found = outcome.orders, outcome.found
    hosts = "2 hosts in pid namespaces" if outcome.apart else "2 hosts in one pid namespace"
    yield f"seed {orders.seed}: {orders.documents:,} documents, {orders.drivers} drivers, {hosts}"
    yield from _faults(outcome)
    events = _events(place)
    watchdogs = sum(text.read_text().count("watchdog ") for text in place.glob("*.log"))
    yield (
        f"drivers started {events['started'] + events['restarted']:,} times, "
        f"adopted {events['adopted']:,} times; watchdogs ended {watchdogs:,} times"
    )
    begun, unfinished = (
        len(found.processings),
        sum(one.ended_at is None for one in found.processings),
    )
    yield (
        f"documents taken into hand {begun:,} times, {unfinished:,} of them not to the end; "
        f"{at_once(found.processings):,} by two at once"
    )
    words = ("published", "finished", "recovered", "revoked", "released", "failed", "discarded")
    yield "journals: " + ", ".join(f"{word} {found.events[word]:,}" for word in words)
    yield (
        f"faults for {format_duration(outcome.faulty)}, then drained in "
        f"{format_duration(outcome.draining)}; "
        f"{orders.documents / (outcome.faulty + outcome.draining):.1f} documents/s"
    )
    causes = Counter(
        one.report.failure.cause if one.report else "no report" for one in found.discards
    )
    why = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
    yield f"published {len(found.results):,}; discarded {len(found.discards):,}: {why}"
    kept = ", ".join(f"{word} {count:,}" for word, count in found.litter.items())
    yield f"kept for a while: {kept}"
    complaints = Counter(one.kind for one in outcome.complaints)
    yield ", ".join(f"{kind} {complaints[kind]}" for kind in _COMPLAINTS)


def _faults(outcome: Outcome) -> Iterator[str]:
    """A table of who was struck how often."""
    counts = outcome.faults.counts
    roles = [*VICTIMS, "all"]
    yield f"{'':8}" + "".join(f"{role:>10}" for role in roles)
    for kind in KINDS:
        row = [counts[kind, role] for role in VICTIMS]
        yield f"{kind:8}" + "".join(f"{count:>10,}" for count in (*row, sum(row)))
    yield f"faults: {counts.total():,}; hosts that lost their power: {outcome.power_cuts}"


def _events(place: Path) -> Counter[str]:
    """What the watchdogs told."""
    counts: Counter[str] = Counter()
    for path in glob.glob(f"{place}/state/*/*/events*.jsonl*"):
        for line in Path(path).read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                counts[msgspec.json.decode(line)["event"]] += 1
    return counts


def post_mortem(outcome: Outcome, place: Path) -> Iterator[str]:
    """What is wrong, and what happened to each document it is wrong with."""
    for one in outcome.complaints:
        yield f"{one.kind}: {one.words}"
    docids = dict.fromkeys(one.docid for one in outcome.complaints if one.docid)
    for docid in [*docids][:_SHOWN]:
        yield f"\nhistory of {docid}:"
        yield from (f"  {line}" for line in history(place / "queues", docid))
    yield f"\neverything is kept in {place}"


if __name__ == "__main__":
    sys.exit(main())
