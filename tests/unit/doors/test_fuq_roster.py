"""The roster against a model that looks at everybody each time."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queuedriver.doors.fuq.roster import Roster

NAMES = st.sampled_from([b"a", b"b", b"c", b"d"])
MOST = 3


class Machine(RuleBasedStateMachine):
    """Everything that may be done to a roster, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.roster = Roster(MOST)
        self.now = 0.0
        self.serial = 0
        self.slots: dict[bytes, int] = {}
        # In the order in which they would be picked.
        self.order: list[bytes] = []
        self.claims: dict[bytes, dict[str, tuple[int, float | None]]] = {}

    def free(self, name: bytes) -> int:
        return self.slots[name] - sum(need for need, _ in self.claims[name].values())

    def expected(self, need: int) -> bytes | None:
        return next((one for one in self.order if self.free(one) >= need), None)

    def forget(self, name: bytes) -> tuple[str, ...]:
        self.order.remove(name)
        del self.slots[name]
        return tuple(self.claims.pop(name))

    @rule(name=NAMES, slots=st.integers(1, 4))
    def join(self, name: bytes, slots: int) -> None:
        room = name in self.slots or len(self.slots) < MOST
        assert self.roster.join(name, slots) == room
        if room:
            if name not in self.slots:
                self.order.append(name)
                self.claims[name] = {}
            self.slots[name] = slots

    @rule(name=NAMES, slots=st.integers(0, 4))
    def limit(self, name: bytes, slots: int) -> None:
        assert self.roster.limit(name, slots) == (name in self.slots)
        if name in self.slots:
            self.slots[name] = slots

    @rule(name=NAMES)
    def leave(self, name: bytes) -> None:
        lost = self.roster.leave(name, "left")
        if name not in self.slots:
            assert lost is None
        else:
            assert lost is not None
            assert (lost.worker, lost.claims, lost.doubted) == (name, self.forget(name), False)

    @rule(need=st.integers(1, 4), takes=st.sampled_from([None, 1.0, 3.0]))
    def deal(self, need: int, takes: float | None) -> None:
        picked = self.expected(need)
        assert self.roster.pick(need) == picked
        if picked is not None:
            self.serial += 1
            until = None if takes is None else self.now + takes
            self.roster.assign(picked, str(self.serial), need, until)
            self.claims[picked][str(self.serial)] = need, until
            self.order.remove(picked)
            self.order.append(picked)

    @rule(name=NAMES, first=st.booleans())
    def settle(self, name: bytes, first: bool) -> None:
        had = list(self.claims.get(name, {}))
        claim = had[0 if first else -1] if had else "unknown"
        assert self.roster.settle(name, claim) == bool(had)
        self.claims.get(name, {}).pop(claim, None)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        late = {
            name
            for name, claims in self.claims.items()
            if any(until is not None and until <= self.now for _, until in claims.values())
        }
        lost = self.roster.expire(self.now)
        assert {one.worker for one in lost} == late
        for one in lost:
            assert (one.why, one.claims) == ("overdue", self.forget(one.worker))

    @invariant()
    def agrees(self) -> None:
        assert list(self.roster.names()) == self.order
        for name in self.slots:
            assert self.roster.free(name) == self.free(name)
            assert self.roster.claims(name) == tuple(self.claims[name])
        for need in (1, 2, 4):
            assert self.roster.pick(need) == self.expected(need)
        limits = [
            until
            for claims in self.claims.values()
            for _, until in claims.values()
            if until is not None
        ]
        due = self.roster.next_tick_at()
        # Of what is over by now an alarm may be left, which costs a look; none is missing.
        assert not limits or (due is not None and due <= min(limits))


TestRoster = Machine.TestCase


def test_memory_does_not_grow_with_what_is_over() -> None:
    roster = Roster()
    roster.join(b"a", 2)
    for number in range(10_000):
        roster.assign(b"a", str(number), 1, 1e9)
        roster.settle(b"a", str(number))
    assert len(roster._queue) < 100
    assert len(roster._alarms) < 100
