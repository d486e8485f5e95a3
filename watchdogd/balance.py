"""Balance the work: the split of a host's drivers among the stages, and the way there. Pure.

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
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from queuedriver.format.units import format_count, format_duration
from watchdogd.sizes import Load, Room, fits, goal, sizes

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


class Move(msgspec.Struct, frozen=True):
    """One driver: started in free room (from None), moved, or given back (to None)."""

    to: str | None
    taken_from: str | None
    why: str


def complete(split: Mapping[str, int], loads: Sequence[Load], room: Room) -> dict[str, int]:
    """Return the split with a number for each stage: what it had, within what the file says; for a
    new one, what it starts with: the least, and one where something is to be learned."""
    known = [load for load in loads if not load.unwanted]
    new = [load for load in known if load.stage not in split]
    first = initial(_bounded(known, room, split), room) if new else {}
    found = {**split, **{load.stage: max(first[load.stage], load.last) for load in new}}
    return {
        load.stage: min(max(_said(load, found), load.min), load.max)
        for load in loads
        if load.stage in found
    }


def _said(load: Load, split: Mapping[str, int]) -> int:
    """Return the number from which the balancer goes on once no operator asks for another."""
    return split[load.stage] if load.asked is None else load.asked


def moved(split: Mapping[str, int], one: Move) -> dict[str, int]:
    """Return the split after a move."""
    by = {one.to: 1, one.taken_from: -1}
    return {stage: number + by.get(stage, 0) for stage, number in split.items()}


def _bounded(loads: Sequence[Load], room: Room, split: Mapping[str, int]) -> list[Load]:
    """Return the loads as the balancer may move them: an operator's number is none of its."""
    found = sizes(loads, room, split)
    numbers = {load.stage: found[load.stage].drivers for load in loads}
    return [
        load
        if load.asked is None and not load.unwanted
        else replace(load, asked=None, min=numbers[load.stage], max=numbers[load.stage])
        for load in loads
    ]


def initial(loads: Sequence[Load], room: Room) -> dict[str, int]:
    """Return what to start with: where nothing is known, what must be, and one to learn from."""
    work = _work(loads)
    work.update({load.stage: 0.0 for load in loads if load.service is None})
    return share(loads, room, work)


def move(
    loads: Sequence[Load], room: Room, split: Mapping[str, int], waited: float, every: float
) -> Move | None:
    """Return the next step to the split that is through first, if it is worth one so many seconds
    after the last."""
    loads = _bounded(loads, room, split)
    present, work = {load.stage: goal(load, split) for load in loads}, _work(loads)
    plan = _Plan(loads, room, present, share(loads, room, work), work, waited, every)
    if plan.takes(plan.target) < plan.takes(present):
        # The one that takes longest first.
        for load in sorted(loads, key=lambda load: -plan.left(load)):
            if _gains(load, plan) and (found := _give(load, plan)):
                return found
    if waited >= every:
        for load in loads:
            if load.known and present[load.stage] > load.min and not load.documents:
                return Move(None, load.stage, "it has nothing to do")
    return None


class _Plan(NamedTuple):
    """The present split, the best one, and the seconds that work takes one driver of each stage."""

    loads: Sequence[Load]
    room: Room
    present: Mapping[str, int]
    target: Mapping[str, int]
    work: Mapping[str, float]
    # Since the last move, and between two, in seconds.
    waited: float
    every: float

    def takes(self, split: Mapping[str, int]) -> float:
        """Return the seconds until the pipeline is through with this split, but for stages that get
        no driver anyway."""
        served = [load for load in self.loads if self.target[load.stage]]
        return max((_left(load, self.work, split[load.stage]) for load in served), default=0.0)

    def fits(self, split: Mapping[str, int]) -> bool:
        return fits(self.loads, self.room, split)

    def left(self, load: Load, more: int = 0) -> float:
        """Return the seconds until a stage is through, with so many drivers more than it has."""
        return _left(load, self.work, self.present[load.stage] + more)


def _give(to: Load, plan: _Plan) -> Move | None:
    """Return one driver more for this stage, from what is free or from one with too many."""
    paced = plan.waited >= max(plan.every, START_UPS * to.startup)
    have = plan.present
    more = {**have, to.stage: have[to.stage] + 1}
    why = _why(to, plan)
    if plan.fits(more):
        # Of a stage of which nothing is known, one driver is enough to learn; further ones come
        # slowly, for they may have to be taken away again.
        hasty = to.service is None and have[to.stage] and not paced
        return None if hasty else Move(to.stage, None, why)
    if not paced or plan.takes(plan.target) > WORTH * plan.takes(have):
        return None
    spare = [
        load for load in plan.loads if load.known and have[load.stage] > plan.target[load.stage]
    ]
    # The one that is through first without it.
    spare.sort(key=lambda load: plan.left(load, -1))
    for load in spare:
        if plan.fits({**more, load.stage: have[load.stage] - 1}):
            return Move(to.stage, load.stage, why)
    # One driver less is not room enough for one here; the others follow.
    return Move(None, spare[0].stage, f"to make room for {to.stage}: {why}") if spare else None


def _why(load: Load, plan: _Plan) -> str:
    if not (have := plan.present[load.stage]):
        return "it has documents and no driver"
    left = format_duration(plan.left(load))
    return f"it takes longest: {left} more with {format_count(have, 'driver')}"


def _gains(load: Load, plan: _Plan) -> bool:
    """Return whether a driver more is to come, and is of use for longer than it takes to start."""
    if plan.present[load.stage] >= plan.target[load.stage]:
        return False
    if not plan.present[load.stage]:
        # Without any, what there is would wait for ever.
        return True
    horizon = max(HORIZON, START_UPS * load.startup)
    return min(horizon, plan.left(load, 1)) > load.startup


def _work(loads: Sequence[Load]) -> dict[str, float]:
    """Return the seconds that what is left takes one driver of each stage. Where nothing is known,
    what waits is taken for as slow as the slowest we know of, and what is to come for nothing."""
    slowest = max((load.service for load in loads if load.service is not None), default=_UNKNOWN)
    return {
        load.stage: load.backlog * slowest
        if load.service is None
        else load.documents * load.service
        for load in loads
    }


def _left(load: Load, work: Mapping[str, float], drivers: int) -> float:
    """Return the seconds until a stage is through with so many drivers."""
    if not drivers:
        return math.inf if load.documents else 0.0
    return work[load.stage] / drivers


def share(
    loads: Sequence[Load], room: Room, work: Mapping[str, float] | None = None
) -> dict[str, int]:
    """Return the split that is through first with this work, or with what the loads tell of it."""
    work = _work(loads) if work is None else work
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
