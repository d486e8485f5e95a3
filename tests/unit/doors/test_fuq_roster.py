"""The roster against a model that looks at everybody each time."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from queuedriver.doors.fuq.roster import Order, Policy, Roster
from queuedriver.doors.words import Lost

NAMES = st.sampled_from([b"a", b"b", b"c", b"d"])
SERVICES = st.sampled_from([("",), ("x",), ("x", "y"), ("", "y")])
LIFETIMES = st.sampled_from([None, 2.0, 5.0])


@dataclass
class Model:
    """What a roster knows of one worker."""

    slots: int
    services: tuple[str, ...]
    silent_after: float | None
    heard_at: float
    turn: int
    taken: int = 0
    turns: int = 0
    alone: str = ""
    claims: dict[str, tuple[int, float | None]] = field(default_factory=dict)


class Machine(RuleBasedStateMachine):
    """Everything that may be done to a roster, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.workers: dict[bytes, Model] = {}
        self.now = 0.0
        self.turn = 0
        self.claim = 0
        self.sparing: set[str] = set()

    @initialize(
        order=st.sampled_from(Order),
        silent_after=LIFETIMES,
        busy_silent=st.booleans(),
        one_process=st.booleans(),
    )
    def start(
        self, order: Order, silent_after: float | None, busy_silent: bool, one_process: bool
    ) -> None:
        self.policy = Policy(order, silent_after, busy_silent, one_process, max_workers=3)
        self.roster = Roster(self.policy)

    def to_the_end(self, worker: Model) -> None:
        self.turn += 1
        worker.turn = self.turn

    def hear(self, worker: Model) -> None:
        worker.heard_at = self.now
        if self.policy.order is Order.HEARD:
            self.to_the_end(worker)

    def reason(self, worker: Model) -> str:
        if any(at is not None and at <= self.now for _, at in worker.claims.values()):
            return "overdue"
        if worker.taken and not self.policy.busy_silent:
            return ""
        after = worker.silent_after
        return "silent" if after is not None and worker.heard_at + after <= self.now else ""

    def lost(self, name: bytes, why: str) -> Lost:
        worker = self.workers[name]
        needs = [need for need, _ in worker.claims.values()]
        several = len(needs) > 1 or (len(needs) == 1 and worker.taken > needs[0])
        return Lost(name, tuple(worker.claims), why, several and self.policy.one_process)

    def expected(self, service: str, need: int, alone: bool) -> bytes | None:
        listed = self.policy.order is Order.LISTED
        offer = {
            name: worker
            for name, worker in self.workers.items()
            if (worker.turns or not listed) and not worker.alone
        }
        may = [
            (worker.turn, name)
            for name, worker in offer.items()
            if service in worker.services
            and worker.slots - worker.taken >= need
            and not (alone and worker.claims)
        ]
        spared = set()
        for wanted in self.sparing if not alone else ():
            able = [
                (len(worker.claims), worker.turn, name)
                for name, worker in offer.items()
                if wanted in worker.services
                and worker.slots > 0
                and (worker.claims or worker.slots > worker.taken)
            ]
            spared |= {name for _, _, name in sorted(able)[:1]}
        return min((one for one in may if one[1] not in spared), default=(0, None))[1]

    @rule(service=st.sampled_from(["", "x", "y"]), wanted=st.booleans())
    def spare(self, service: str, wanted: bool) -> None:
        self.roster.spare(service, wanted)
        self.sparing = self.sparing | {service} if wanted else self.sparing - {service}

    @rule(name=NAMES, slots=st.integers(0, 3), services=SERVICES, silent_after=LIFETIMES)
    def join(
        self, name: bytes, slots: int, services: tuple[str, ...], silent_after: float | None
    ) -> None:
        worker = self.workers.get(name)
        room = worker is not None or len(self.workers) < self.policy.max_workers
        assert self.roster.join(name, self.now, slots, services, silent_after) == room
        if not room:
            return
        if worker is None:
            wait = silent_after or self.policy.silent_after
            worker = self.workers[name] = Model(slots, services, wait, self.now, 0)
            self.to_the_end(worker)
        worker.slots, worker.services = slots, services
        worker.silent_after = silent_after or worker.silent_after
        self.hear(worker)

    @rule(name=NAMES, turns=st.integers(1, 2))
    def offer(self, name: bytes, turns: int) -> None:
        worker = self.workers.get(name)
        assert self.roster.offer(name, self.now, turns) == (worker is not None)
        if worker is not None:
            if not worker.turns:
                self.to_the_end(worker)
            worker.turns = min(worker.turns + turns, worker.slots)
            self.hear(worker)

    @rule(name=NAMES)
    def withdraw(self, name: bytes) -> None:
        assert self.roster.withdraw(name) == (name in self.workers)
        if name in self.workers:
            self.workers[name].turns = 0

    @rule(name=NAMES, slots=st.integers(0, 3))
    def limit(self, name: bytes, slots: int) -> None:
        assert self.roster.limit(name, slots) == (name in self.workers)
        if name in self.workers:
            self.workers[name].slots = slots

    @rule(name=NAMES)
    def heard(self, name: bytes) -> None:
        assert self.roster.heard(name, self.now) == (name in self.workers)
        if name in self.workers:
            self.hear(self.workers[name])

    @rule(name=NAMES)
    def leave(self, name: bytes) -> None:
        expected = self.lost(name, "left") if name in self.workers else None
        assert self.roster.leave(name, "left") == expected
        self.workers.pop(name, None)

    @rule(
        service=st.sampled_from(["", "x", "y", "z"]),
        need=st.integers(1, 2),
        claimed=st.booleans(),
        lifetime=LIFETIMES,
        alone=st.booleans(),
    )
    def pick_and_assign(
        self, service: str, need: int, claimed: bool, lifetime: float | None, alone: bool
    ) -> None:
        name = self.expected(service, need, alone)
        assert self.roster.pick(service, need, alone) == name
        if name is None:
            return
        self.claim += 1
        claim = f"c{self.claim}" if claimed else None
        deadline = None if lifetime is None else self.now + lifetime
        self.roster.assign(name, claim, self.now, need, deadline, alone)
        worker = self.workers[name]
        if alone and claim:
            worker.alone = claim
        worker.taken += need
        worker.turns = max(0, worker.turns - 1)
        if claim is not None:
            worker.claims[claim] = (need, deadline)
        if self.policy.order is not Order.HEARD:
            self.to_the_end(worker)

    @precondition(lambda self: self.claim)
    @rule(name=NAMES, data=st.data(), free_slot=st.booleans())
    def settle(self, name: bytes, data: st.DataObject, free_slot: bool) -> None:
        claim = f"c{data.draw(st.integers(max(1, self.claim - 4), self.claim))}"
        worker = self.workers.get(name)
        known = worker is not None and claim in worker.claims
        assert self.roster.settle(name, claim, free_slot) == known
        if worker is not None and known:
            need, _ = worker.claims.pop(claim)
            if worker.alone == claim:
                worker.alone = ""
            if free_slot:
                worker.taken = max(0, worker.taken - need)

    @rule(name=NAMES)
    def increment(self, name: bytes) -> None:
        worker = self.workers.get(name)
        assert self.roster.increment(name) == (worker is not None)
        if worker is not None:
            worker.taken = max(0, worker.taken - 1)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = {name: self.reason(worker) for name, worker in self.workers.items()}
        at = self.roster.next_tick_at()
        if any(due.values()):
            # A loop that sleeps until then would not have slept too long.
            assert at is not None
            assert at <= self.now
        lost = self.roster.expire(self.now)
        assert sorted(lost, key=lambda one: one.worker) == [
            self.lost(name, why) for name, why in sorted(due.items()) if why
        ]
        for one in lost:
            del self.workers[one.worker]
        assert self.roster.expire(self.now) == ()

    @invariant()
    def agree(self) -> None:
        assert set(self.roster.names()) == set(self.workers)
        assert len(self.roster) == len(self.workers)
        turns = [self.workers[name].turn for name in self.roster.names()]
        assert turns == sorted(turns)
        busy = [name for name, worker in self.workers.items() if worker.taken]
        assert sorted(self.roster.who_is_busy()) == sorted(busy)
        for name, worker in self.workers.items():
            assert name in self.roster
            assert self.roster.free(name) == worker.slots - worker.taken
            assert self.roster.claims(name) == tuple(worker.claims)
            assert self.roster.busy(name) == bool(worker.taken)
            assert self.roster.turns(name) == worker.turns
        for service in ("", "x", "y", "z"):
            for need in (1, 2):
                for alone in (False, True):
                    expected = self.expected(service, need, alone)
                    assert self.roster.pick(service, need, alone) == expected


Machine.TestCase.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
TestRosterAndItsModelAgree = Machine.TestCase


def sizes(roster: Roster) -> int:
    """Entries in all that a roster keeps in order."""
    return len(roster._alarms) + sum(1 + len(queue) for queue in roster._queues.values())


@pytest.mark.parametrize("order", Order)
def test_memory_does_not_grow_with_what_is_over(order: Order) -> None:
    roster = Roster(Policy(order, silent_after=3600.0))
    for at in range(3000):
        for name in (b"a", b"b"):
            roster.join(name, float(at), 2, ("", "x"))
            roster.offer(name, float(at))
            roster.heard(name, float(at))
        if (worker := roster.pick("")) is not None:
            roster.assign(worker, f"c{at}", float(at), deadline=at + 1e6)
            roster.settle(worker, f"c{at}")
        if not at % 7:
            roster.leave(b"a", "left")
    assert sizes(roster) < 200


def test_services_that_nobody_offers_any_more_are_forgotten() -> None:
    roster = Roster(Policy(Order.LISTED, silent_after=10.0))
    for at in range(1000):
        roster.join(b"w", float(at), 1, (f"service-{at}", "same"))
        roster.offer(b"w", float(at))
    roster.leave(b"w", "left")
    for at in range(1000):
        roster.join(b"%d" % at, 0.0, 1, (f"other-{at}",))
        roster.offer(b"%d" % at, 0.0)
    assert roster.pick("other-7") == b"7"
    assert len(roster.expire(1e6)) == 1000
    assert sizes(roster) < 10


def test_worker_that_shortens_its_patience_is_lost_when_that_is_over() -> None:
    roster = Roster(Policy(Order.HEARD, silent_after=100.0))
    roster.join(b"w", 0.0, 1)
    roster.join(b"w", 1.0, 1, silent_after=2.0)
    assert roster.expire(2.9) == ()
    assert roster.expire(3.0) == (Lost(b"w", (), "silent"),)


def test_deadline_outlives_any_number_of_others() -> None:
    roster = Roster(Policy(Order.ASSIGNED, silent_after=1e6))
    roster.join(b"w", 0.0, 1)
    roster.assign(b"w", "long", 0.0, deadline=5000.0)
    for at in range(1000):
        roster.join(b"other", float(at), 1)
        roster.assign(b"other", f"c{at}", float(at), deadline=at + 2.0)
        roster.leave(b"other", "left")
    assert roster.expire(4999.0) == ()
    assert roster.expire(5000.0) == (Lost(b"w", ("long",), "overdue"),)


def test_thousand_heartbeats_set_no_alarm_each() -> None:
    roster = Roster(Policy(Order.HEARD, silent_after=3.0))
    roster.join(b"w", 0.0, 1)
    for at in range(1000):
        roster.heard(b"w", at / 1000)
    assert len(roster._alarms) == 1
