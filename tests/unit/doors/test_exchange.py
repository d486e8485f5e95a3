"""The exchange against a model that looks at everybody each time, and what a loss costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from queuedriver.claims.outcomes import Doubted, Failed, Released
from queuedriver.doors.exchange import LEFT, UNROUTABLE, Exchange, Worker
from queuedriver.doors.words import Close, Effects, End, Request, Say, Send, Work
from queuedriver.errors import RemoteProtocolError

NAMES = st.sampled_from([b"a", b"b", b"c", b"d"])
SERVICES = st.sampled_from([frozenset({""}), frozenset({"x"}), frozenset({"x", "y"}), frozenset()])
LIFETIMES = st.sampled_from([math.inf, 2.0, 5.0])
ASKED = Request(b"client/1", (b"do",), answered=False)


class Any(Exchange[Worker]):
    """A protocol without words."""

    worker = Worker
    max_workers = 3

    def __init__(self, silent_after: float = math.inf, job_timeout: float | None = None) -> None:
        super().__init__(silent_after=silent_after, job_timeout=job_timeout)
        self.forgotten: list[tuple[bytes, str]] = []
        self.has_farewell = True

    def frames_of(self, worker: Worker, work: Work) -> tuple[bytes, ...]:
        if work.payload == b"nonsense":
            raise RemoteProtocolError("that is nothing")
        return (b"do", work.payload)

    def probe(self, worker: Worker) -> tuple[bytes, ...]:
        return (b"there?",)

    def farewell(self, worker: Worker) -> tuple[bytes, ...] | None:
        return (b"go",) if self.has_farewell else None

    def forget(self, worker: Worker, why: str) -> None:
        self.forgotten.append((worker.name, why))


class Apart(Any):
    """Each work is a process of its own, and says itself what is free again."""

    one_process = False
    settling_frees = False


def work(claim: str, **facts: object) -> Work:
    return Work(claim, f"doc-{claim}", 0, b"", **facts)  # type: ignore[arg-type]


def ends(effects: Sequence[object]) -> dict[str, type]:
    return {one.claim: type(one.how) for one in effects if isinstance(one, End)}


@dataclass
class Model:
    """What an exchange knows of one worker."""

    slots: int
    free: int
    services: frozenset[str]
    silent_after: float
    heard_at: float
    turn: int
    besides: int = 0
    in_hand: dict[str, Work] = field(default_factory=dict)
    since: dict[str, float | None] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        return any(one.alone for one in self.in_hand.values())


class Machine(RuleBasedStateMachine):
    """Everything that may be done to an exchange, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.workers: dict[bytes, Model] = {}
        self.now = 0.0
        self.turn = 0
        self.claim = 0
        self.reserved: set[bytes] = set()

    @initialize(silent_after=LIFETIMES, job_timeout=LIFETIMES, apart=st.booleans())
    def start(self, silent_after: float, job_timeout: float, apart: bool) -> None:
        self.silent_after, self.job_timeout = silent_after, job_timeout
        self.exchange = (Apart if apart else Any)(silent_after, job_timeout)
        self.apart = apart

    def to_the_end(self, worker: Model) -> None:
        self.turn += 1
        worker.turn = self.turn

    def costs(self, worker: Model) -> dict[str, type]:
        alone = len(worker.in_hand) == 1 and not worker.besides
        return dict.fromkeys(worker.in_hand, Failed if alone or self.apart else Doubted)

    def expected(self, service: str, need: int, alone: bool) -> bytes | None:
        may = [
            (worker.turn, name)
            for name, worker in self.workers.items()
            if service in worker.services
            and worker.free >= need
            and not worker.alone
            and not (alone and worker.in_hand)
            and self.now - worker.heard_at < worker.silent_after
            and (alone or name not in self.reserved)
        ]
        return min(may, default=(0, None))[1]

    @rule(name=NAMES, slots=st.integers(0, 3), services=SERVICES, silent_after=LIFETIMES)
    def join(self, name: bytes, slots: int, services: frozenset[str], silent_after: float) -> None:
        known = self.exchange.workers.get(name)
        if known is None:
            known = self.exchange.join(name, self.now)
            assert (known is None) == (len(self.workers) == 3)
            if known is None:
                return
            self.workers[name] = Model(0, 0, frozenset(), 0.0, 0.0, 0)
            self.to_the_end(self.workers[name])
        worker = self.workers[name]
        taken = sum(one.need for one in worker.in_hand.values())
        known.slots, known.services, known.silent_after = slots, services, silent_after
        worker.slots, worker.services, worker.silent_after = slots, services, silent_after
        self.offer(name, slots - taken)

    @rule(name=NAMES, free=st.integers(-1, 3))
    def offer(self, name: bytes, free: int) -> None:
        known, worker = self.exchange.workers.get(name), self.workers.get(name)
        assert (known is None) == (worker is None)
        if known is not None and worker is not None:
            self.exchange.offer(known, free, self.now)
            worker.free, worker.heard_at = free, self.now
            taken = sum(one.need for one in worker.in_hand.values())
            worker.besides = min(worker.besides, max(0, worker.slots - free - taken))

    @rule(name=NAMES)
    def last(self, name: bytes) -> None:
        if name in self.workers:
            self.exchange.to_the_end(self.exchange.workers[name])
            self.to_the_end(self.workers[name])

    @rule(name=NAMES, released=st.booleans())
    def lose(self, name: bytes, released: bool) -> None:
        if (known := self.exchange.workers.get(name)) is None:
            assert self.exchange.gone(name, self.now) == []
            return
        expected = self.costs(self.workers.pop(name))
        if released:
            effects = self.exchange.lose(known, LEFT, Released("it left"))
            expected = dict.fromkeys(expected, Released)
        else:
            effects = self.exchange.gone(name, self.now)
        assert ends(effects) == expected
        self.reserved.discard(name)

    @rule(name=NAMES, data=st.data())
    def keep_only(self, name: bytes, data: st.DataObject) -> None:
        if (known := self.exchange.workers.get(name)) is None:
            return
        worker = self.workers[name]
        kept = data.draw(st.sets(st.sampled_from([*worker.in_hand, "other"])))
        assert ends(self.exchange.keep_only(known, kept)) == {
            claim: Doubted for claim in worker.in_hand if claim not in kept
        }
        for claim in [one for one in worker.in_hand if one not in kept]:
            self.put_down(worker, claim)

    def put_down(self, worker: Model, claim: str) -> None:
        del worker.since[claim]
        need = worker.in_hand.pop(claim).need
        if not self.apart:
            worker.free += need

    @rule()
    def new_round(self) -> None:
        self.exchange.reserved.clear()
        self.reserved.clear()

    @rule(
        service=st.sampled_from(["", "x", "y", "z"]),
        need=st.integers(1, 2),
        answered=st.booleans(),
        alone=st.booleans(),
        arrives=st.booleans(),
    )
    def pick_and_deal(
        self, service: str, need: int, answered: bool, alone: bool, arrives: bool
    ) -> None:
        name = self.expected(service, need, alone)
        picked = self.pick(service, need, alone)
        assert (picked and picked.name) == name
        if picked is None or name is None:
            return
        self.claim += 1
        request = None if answered else ASKED
        one = work(f"c{self.claim}", need=need, alone=alone, request=request)
        assert self.exchange.deal(picked, one, self.now) == Send(name, (b"do", b""))
        worker = self.workers[name]
        if not arrives:
            expected = self.costs(worker)
            if len(worker.in_hand) == 1 and request is not None and not self.apart:
                # What nobody waits for was sent before, for all that is known.
                expected = dict.fromkeys(expected, Doubted)
            if request is None:
                expected[one.claim] = Released
            effects = self.exchange.undelivered(name, one.claim, self.now)
            assert ends(effects) == expected
            del self.workers[name]
            self.reserved.discard(name)
            return
        worker.free -= need
        self.to_the_end(worker)
        if request is None:
            # What is behind others in one process has not begun.
            worker.since[one.claim] = self.now if self.apart or not worker.in_hand else None
            worker.in_hand[one.claim] = one
        else:
            worker.besides += need

    def pick(self, service: str, need: int, alone: bool) -> Worker | None:
        picked = self.exchange.pick(service, self.now, need, alone=alone)
        if picked is None and alone:
            self.exchange.keep_one(service)
            # Somebody is kept for it: who has the least in hand, or is next.
            able = [
                (len(worker.in_hand), worker.turn, name)
                for name, worker in self.workers.items()
                if service in worker.services
                and worker.slots > 0
                and not worker.alone
                and (worker.in_hand or worker.free > 0)
            ]
            self.reserved |= {min(able)[2]} if able else set()
            kept = self.exchange.reserved.intersection(self.exchange.workers.values())
            assert self.reserved == {one.name for one in kept}
        return picked

    @rule(name=NAMES, data=st.data())
    def settle(self, name: bytes, data: st.DataObject) -> None:
        if (known := self.exchange.workers.get(name)) is None:
            return
        worker = self.workers[name]
        claim = data.draw(st.sampled_from([*worker.in_hand, "other"]))
        settled = self.exchange.settle(known, claim)
        assert settled == worker.in_hand.get(claim)
        if settled is not None:
            self.put_down(worker, claim)

    def begun(self, worker: Model) -> list[float]:
        """Since when a worker is at work on what it has, as it is looked at."""
        if not self.apart and worker.in_hand:
            first = next(iter(worker.in_hand))
            if worker.since[first] is None:
                worker.since[first] = self.now
        return [since for since in worker.since.values() if since is not None]

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        at = self.exchange.next_tick_at()
        assert (at is None) == (not self.workers)
        if at is None or at > self.now:
            assert self.exchange.tick(self.now, 0.0) == []
            return
        expected: dict[str, type] = {}
        probed = set()
        for name, worker in list(self.workers.items()):
            if any(self.now - since >= self.job_timeout for since in self.begun(worker)):
                expected |= self.costs(self.workers.pop(name))
                self.reserved.discard(name)
            elif worker.in_hand or worker.besides:
                probed.add(name)
            elif self.now - worker.heard_at >= worker.silent_after:
                del self.workers[name]
                self.reserved.discard(name)
        effects = self.exchange.tick(self.now, 0.0)
        assert ends(effects) == expected
        assert {one.peer for one in effects if isinstance(one, Send)} == probed

    @invariant()
    def agree(self) -> None:
        known = self.exchange.workers
        assert set(known) == set(self.workers)
        turns = [self.workers[name].turn for name in known]
        assert turns == sorted(turns)
        for name, worker in self.workers.items():
            assert known[name].free == worker.free
            assert known[name].besides == worker.besides
            assert known[name].alone == worker.alone
            assert {one: it for one, (it, _) in known[name].in_hand.items()} == worker.in_hand
        for service in ("", "x", "y", "z"):
            for need in (1, 2):
                picked = self.exchange.pick(service, self.now, need)
                assert (picked and picked.name) == self.expected(service, need, alone=False)


Machine.TestCase.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
TestExchangeAndItsModelAgree = Machine.TestCase


def listed(exchange: Exchange[Worker], name: bytes, free: int = 1, now: float = 0.0) -> Worker:
    worker = exchange.workers.get(name) or exchange.join(name, now)
    assert worker is not None
    worker.slots = max(worker.slots, free)
    exchange.offer(worker, free, now)
    return worker


def dealt(exchange: Exchange[Worker], one: Work, now: float = 0.0) -> bytes | None:
    worker = exchange.pick(one.service, now, one.need, alone=one.alone)
    if worker is None:
        if one.alone:
            exchange.keep_one(one.service)
        return None
    exchange.deal(worker, one, now)
    return worker.name


def levels(effects: Effects) -> list[int]:
    return [one.level for one in effects if isinstance(one, Say)]


def test_worker_that_had_something_is_not_lost_without_a_word() -> None:
    exchange = Any()
    listed(exchange, b"idle")
    assert levels(exchange.gone(b"idle", 0.0)) == [1]
    listed(exchange, b"busy")
    dealt(exchange, work("c1"))
    effects = exchange.gone(b"busy", 0.0)
    assert levels(effects) == [0]
    assert "doc-c1" in str(effects)
    leaving = listed(exchange, b"leaving")
    dealt(exchange, work("c2"))
    assert levels(exchange.lose(leaving, LEFT, Released("it left"))) == [1]
    assert exchange.forgotten == [(b"idle", UNROUTABLE), (b"busy", UNROUTABLE), (b"leaving", LEFT)]


def test_work_that_cannot_be_said_fails_for_good_and_takes_nothing() -> None:
    exchange = Any()
    worker = listed(exchange, b"w")
    end = exchange.deal(worker, Work("c1", "doc", 0, b"nonsense"), 0.0)
    assert isinstance(end, End)
    assert isinstance(end.how, Failed)
    assert end.how.failure.permanent
    assert (worker.free, worker.in_hand) == (1, {})
    assert dealt(exchange, work("c2")) == b"w"


def test_worker_with_the_least_in_hand_is_kept_for_what_goes_alone() -> None:
    exchange = Any()
    for name in (b"v", b"w"):
        listed(exchange, name, 3)
    assert [dealt(exchange, work(claim)) for claim in "abc"] == [b"v", b"w", b"v"]
    exchange.reserved.clear()
    assert dealt(exchange, work("alone", alone=True)) is None
    assert [dealt(exchange, work(claim)) for claim in "de"] == [b"v", None]
    exchange.settle(exchange.workers[b"w"], "b")
    exchange.reserved.clear()
    assert dealt(exchange, work("alone", alone=True)) == b"w"
    # And nothing goes behind it.
    assert dealt(exchange, work("f")) is None
    exchange.settle(exchange.workers[b"w"], "alone")
    assert dealt(exchange, work("f")) == b"w"


def test_overdue_worker_is_cut_off() -> None:
    exchange = Any(job_timeout=5.0)
    listed(exchange, b"w")
    dealt(exchange, work("c1"))
    assert exchange.tick(4.9, 0.0) == [Send(b"w", (b"there?",))]
    effects = exchange.tick(5.9, 0.0)
    assert ends(effects) == {"c1": Failed}
    assert [one.peer for one in effects if isinstance(one, Close)] == [b"w"]


def test_what_waits_for_others_in_its_worker_has_its_whole_time_from_when_it_comes_up() -> None:
    exchange = Any(job_timeout=5.0)
    worker = listed(exchange, b"w", 3)
    for claim in ("c1", "c2", "c3"):
        dealt(exchange, work(claim))
    assert ends(exchange.tick(4.0, 0.0)) == {}
    exchange.settle(worker, "c1")
    # Which of the others it has begun with shows when one of them comes back.
    exchange.settle(worker, "c3")
    assert ends(exchange.tick(5.0, 0.0)) == {}
    assert ends(exchange.tick(9.0, 0.0)) == {}
    assert ends(exchange.tick(10.0, 0.0)) == {"c2": Failed}


def test_each_work_that_is_a_process_of_its_own_has_its_time_from_the_start() -> None:
    exchange = Apart(job_timeout=5.0)
    listed(exchange, b"w", 3)
    dealt(exchange, work("c1"))
    exchange.tick(1.0, 0.0)
    exchange.deal(exchange.workers[b"w"], work("c2"), 2.0)
    exchange.settle(exchange.workers[b"w"], "c1")
    assert ends(exchange.tick(6.5, 0.0)) == {}
    assert ends(exchange.tick(7.5, 0.0)) == {"c2": Failed}


def test_broker_that_leaves_sends_the_idle_away_at_once_and_the_others_when_they_have_settled() -> (
    None
):
    exchange = Any()
    busy = listed(exchange, b"busy")
    dealt(exchange, work("c1"))
    listed(exchange, b"idle")
    assert exchange.leave(0.0) == [Send(b"idle", (b"go",))]
    assert exchange.pick("", 0.0) is None
    assert exchange.rest(busy) == []
    exchange.settle(busy, "c1")
    assert exchange.rest(busy) == [Send(b"busy", (b"go",))]
    assert exchange.workers == {}


def test_protocol_without_a_farewell_keeps_its_workers() -> None:
    exchange = Any()
    exchange.has_farewell = False
    listed(exchange, b"w")
    assert exchange.leave(0.0) == []
    assert list(exchange.workers) == [b"w"]
    assert exchange.pick("", 0.0) is None


# Memory


@pytest.mark.parametrize("kind", [Any, Apart])
def test_memory_does_not_grow_with_what_is_over(kind: type[Any]) -> None:
    exchange = kind(silent_after=3600.0)
    for at in range(3000):
        # Nothing is dealt in most of this: nobody comes up and is taken out.
        worker = listed(exchange, b"%d" % (at % 7), 1, float(at)) if at % 3 else None
        if worker is not None and not at % 100:
            dealt(exchange, work(f"c{at}"), float(at))
        for name in list(exchange.workers)[:1] if len(exchange.workers) > 2 else ():
            exchange.gone(name, float(at))
    assert exchange._free <= {*exchange.workers.values()}


def test_worker_that_offers_a_service_again_is_dealt_to_again() -> None:
    exchange = Any()
    worker = listed(exchange, b"w")
    worker.services = frozenset()
    for number in range(200):
        exchange.lose(listed(exchange, b"%d" % number), LEFT)
    worker.services = frozenset({""})
    exchange.offer(worker, 1, 0.0)
    assert dealt(exchange, work("c1")) == b"w"


def test_worker_of_a_thousand_heartbeats_is_still_dealt_to() -> None:
    exchange = Any(silent_after=3.0)
    worker = listed(exchange, b"w")
    for at in range(1000):
        worker.heard_at = at / 1000
        exchange.to_the_end(worker)
    assert exchange.pick("", 1.0) is worker
