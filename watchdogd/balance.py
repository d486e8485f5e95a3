"""How many drivers each stage should have: where the work is, within what the host has. Pure.

A stage is through when what waits in its queues, and what is still to come to it, has been dealt
with: that many documents, times what one takes a driver, over its drivers. The stage that takes
longest decides when the pipeline is through, so `share` gives one driver after the other to the
stage that takes longest then, until that one can get no more. No split is through earlier: each
driver was given to a stage that without it takes at least as long as the longest does at last.

`move` goes there a driver at a time. What the host has free is used at once; to take a driver from
another stage has to be worth it, and happens only now and then: the numbers it rests on waver.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from queuedriver.format.units import format_count, format_duration

# A driver more must be of use for longer than it takes to start, within this time; and what takes
# longer to start is looked at for longer, or it would never be moved to however much there is.
HORIZON = 300.0
# Between two moves, in times of what the stage that gets a driver takes to start one.
START_UPS = 3.0
# How much sooner the pipeline must be through for a driver to be moved: service times are measured,
# and what they say wavers by some percent.
WORTH = 0.9
# What a document is said to take a driver where nothing is known of any stage, in seconds: only the
# numbers of documents are compared then.
_UNKNOWN = 1.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to do in a stage, and what a driver of it takes."""

    stage: str
    # Documents in its input queues, those at hand included; and those that are still upstream.
    backlog: int
    coming: int = 0
    # Seconds one document takes one driver; None: not yet known.
    service: float | None = None
    # Seconds until a driver that was started is ready.
    startup: float = 0.0
    # How many drivers it is to have at present.
    now: int
    min: int
    max: int
    # Bytes for the first driver, with all that is loaded once; and for each further one.
    memory: int = 0
    memory_more: int = 0
    # Drivers that do nothing and cannot be ended: they take memory beside those that work.
    beside: int = 0
    cpus: float = 0.0

    @property
    def documents(self) -> int:
        return self.backlog + self.coming


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What there is for all drivers of the host. None: no limit."""

    memory: int | None = None
    cpus: float | None = None


class Move(msgspec.Struct, frozen=True):
    """One driver: started in free room (from None), moved, or given back (to None)."""

    to: str | None
    taken_from: str | None
    why: str


def needs(loads: Sequence[Load], split: Mapping[str, int]) -> tuple[int, float]:
    """The memory and the CPUs of so many drivers."""
    memory, cpus = 0, 0.0
    for load in loads:
        if drivers := split[load.stage]:
            memory += load.memory + (drivers - 1 + load.beside) * load.memory_more
            cpus += drivers * load.cpus
    return memory, cpus


def fits(loads: Sequence[Load], room: Room, split: Mapping[str, int]) -> bool:
    memory, cpus = needs(loads, split)
    # Sums of CPUs like 0.1 are not exact.
    return (room.memory is None or memory <= room.memory) and (
        room.cpus is None or cpus <= room.cpus + 1e-9
    )


def share(loads: Sequence[Load], room: Room) -> dict[str, int]:
    """The split that is through first."""
    return _share(loads, room, _work(loads))


def initial(loads: Sequence[Load], room: Room) -> dict[str, int]:
    """What to start with: a stage of which nothing is known gets what it must, and one to learn."""
    work = _work(loads)
    work.update({load.stage: 0.0 for load in loads if load.service is None})
    return _share(loads, room, work)


def move(
    loads: Sequence[Load], room: Room, last_moved_at: float, now: float, every: float = 30.0
) -> Move | None:
    """The next step to the split that is through first, if it is worth one now."""
    work = _work(loads)
    plan = _Plan(loads, room, work, _share(loads, room, work), now - last_moved_at, every)
    if plan.then < plan.longest:
        # The one that takes longest first.
        for load in sorted(loads, key=lambda load: -_left(load, work, load.now)):
            if _gains(load, plan) and (found := _give(load, plan)):
                return found
    if plan.waited >= every:
        for load in loads:
            if load.now > load.min and not load.documents:
                return Move(None, load.stage, "it has nothing to do")
    return None


class _Plan:
    """Where we are, and where to go."""

    def __init__(
        self,
        loads: Sequence[Load],
        room: Room,
        work: Mapping[str, float],
        target: Mapping[str, int],
        waited: float,
        every: float,
    ) -> None:
        self.loads, self.room, self.work, self.target = loads, room, work, target
        self.waited, self.every = waited, every
        self.present = {load.stage: load.now for load in loads}
        # Until the pipeline is through, with what there is and with what there should be; but for
        # stages that get no driver anyway.
        served = [load for load in loads if target[load.stage]]
        self.longest = _longest(served, work, self.present)
        self.then = _longest(served, work, target)

    def fits(self, split: Mapping[str, int]) -> bool:
        return fits(self.loads, self.room, split)


def _give(to: Load, plan: _Plan) -> Move | None:
    """One driver more for this stage, from what is free or from one that has too many."""
    paced = plan.waited >= max(plan.every, START_UPS * to.startup)
    more = {**plan.present, to.stage: to.now + 1}
    why = _why(to, plan.work)
    if plan.fits(more):
        # Of a stage of which nothing is known, one driver is enough to learn; further ones come
        # slowly, for they may have to be taken away again.
        hasty = to.service is None and to.now and not paced
        return None if hasty else Move(to.stage, None, why)
    if not paced or plan.then > WORTH * plan.longest:
        return None
    spare = [load for load in plan.loads if load.now > plan.target[load.stage]]
    # The one that is through first without it.
    spare.sort(key=lambda load: _left(load, plan.work, load.now - 1))
    for load in spare:
        if plan.fits({**more, load.stage: load.now - 1}):
            return Move(to.stage, load.stage, why)
    # One driver less is not room enough for one here; the others follow.
    return Move(None, spare[0].stage, f"to make room for {to.stage}: {why}") if spare else None


def _why(load: Load, work: Mapping[str, float]) -> str:
    if not load.now:
        return "it has documents and no driver"
    left = format_duration(_left(load, work, load.now))
    return f"it takes longest: {left} more with {format_count(load.now, 'driver')}"


def _gains(load: Load, plan: _Plan) -> bool:
    """Whether a driver more is to come, and is of use for longer than it takes to start."""
    if load.now >= plan.target[load.stage]:
        return False
    if not load.now:
        # Without any, what there is would wait for ever.
        return True
    horizon = max(HORIZON, START_UPS * load.startup)
    return min(horizon, _left(load, plan.work, load.now + 1)) > load.startup


def _work(loads: Sequence[Load]) -> dict[str, float]:
    """Seconds that what is left takes one driver of each stage. Where nothing is known, what waits
    is taken for as slow as the slowest we know of, and what is to come for nothing."""
    slowest = max((load.service for load in loads if load.service is not None), default=_UNKNOWN)
    return {
        load.stage: load.backlog * slowest
        if load.service is None
        else load.documents * load.service
        for load in loads
    }


def _left(load: Load, work: Mapping[str, float], drivers: int) -> float:
    """Seconds until a stage is through with so many drivers."""
    if not drivers:
        return math.inf if load.documents else 0.0
    return work[load.stage] / drivers


def _longest(loads: Sequence[Load], work: Mapping[str, float], split: Mapping[str, int]) -> float:
    return max((_left(load, work, split[load.stage]) for load in loads), default=0.0)


def _share(loads: Sequence[Load], room: Room, work: Mapping[str, float]) -> dict[str, int]:
    split = {load.stage: load.min for load in loads}
    # A stage that might have none gets its first before any other gets one more; and may have to do
    # without one, should there be no room.
    for load in loads:
        if load.documents and load.max and not split[load.stage]:
            more = {**split, load.stage: 1}
            if fits(loads, room, more):
                split = more
    while True:
        started = [load for load in loads if split[load.stage]]
        slowest = max(started, key=lambda load: _left(load, work, split[load.stage]), default=None)
        # No more drivers than documents, either.
        if slowest is None or split[slowest.stage] >= min(slowest.max, slowest.documents):
            return split
        more = {**split, slowest.stage: split[slowest.stage] + 1}
        if not work[slowest.stage] or not fits(loads, room, more):
            return split
        split = more
