"""Number the drivers of each stage on this host, within what the host has. Pure.

`sizes` is asked each turn, from facts alone: what the file says, what operators say instead, what
runs, what not even SIGKILL ends, the room there is, and the split that the balancer has arrived at
(balance.py), which alone is kept. Room limits growth and nothing else: what runs stays, so that
memory that is measured and wavers ends nobody. A smaller number is said by the file, by an operator
or by the split.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from queuedriver.format.units import format_size
from watchdogd.pipeline.model import Pipeline, Stage

# What each driver of a preloaded stage adds, as a share of what is loaded once: what it writes to
# is no longer shared.
_ADDED = 0.1
# Of a driver that has none declared and is not there to be measured: a process of Python has more.
_LEAST_MEMORY = 20_000_000
# By how much sums of CPUs like 0.1 may be off.
_INEXACT = 1e-9


class Need(NamedTuple):
    """The memory or the CPUs that drivers of one stage take: the first, with all that is loaded
    once, and each further one."""

    first: float = 0
    further: float = 0

    def of(self, drivers: int) -> float:
        """Return what so many drivers take."""
        return self.first + (drivers - 1) * self.further if drivers else 0

    def fitting(self, left: float, have: int) -> float:
        """Return how many drivers more fit into what is left beside those that there are."""
        left -= self.further if have else self.first
        if left < 0:
            return 0
        return 1 + left // self.further if self.further else math.inf


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one stage: its work, its drivers, and what a driver takes."""

    stage: str
    # All its input queues were seen: else nobody knows that it has nothing to do.
    known: bool = True
    # Documents in its input queues, those at hand included; and those that are still upstream.
    backlog: int = 0
    coming: int = 0
    # Seconds one document takes one driver; None: not yet known.
    service: float | None = None
    # Seconds until a driver that was started is ready.
    startup: float = 0.0
    # Between what the file lets the balancer choose, and the number that an operator asks for.
    min: int
    max: int
    asked: int | None = None
    # Why it is to have no drivers at all: "stop", "parting"; empty while it is to have some.
    unwanted: str = ""
    # Processes that are there, those that are leaving too; the highest number of a slot with a
    # driver that stays; and the numbers of those that not even SIGKILL ends.
    alive: int = 0
    last: int = 0
    stuck: tuple[int, ...] = ()
    # In bytes.
    memory: Need = Need()
    cpus: float = 0.0

    @property
    def documents(self) -> int:
        return self.backlog + self.coming

    def slots(self, drivers: int) -> int:
        """Return how many slots so many drivers take: those that are stuck do nothing any more, and
        others stand in for them. Not more than there are to be: what one waits for, the next may
        wait for, and they must not pile up."""
        slots = drivers
        for number in sorted(self.stuck):
            slots += number <= slots < 2 * drivers
        return slots

    def needs(self, processes: int, working: int) -> tuple[float, float]:
        """Return the memory of so many processes, and the CPUs of those that work."""
        return self.memory.of(processes), max(0, working) * self.cpus


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Memory, in bytes, and CPUs for all drivers of the host. None: no limit."""

    memory: int | None = None
    cpus: float | None = None


class Size(msgspec.Struct, frozen=True):
    """The number of drivers that a stage is to have, and why."""

    drivers: int = 0
    # The slots that are to have one: as many, and those that stand in for stuck ones.
    slots: int = 0
    # Why those above leave: scale, stop, parting.
    why: str = "scale"
    # Why these are fewer than an operator asked for; empty while they are not.
    scarce: str = ""


def needs(loads: Sequence[Load], split: Mapping[str, int]) -> tuple[float, float]:
    """Return the memory and the CPUs of so many drivers."""
    memory, cpus = 0.0, 0.0
    for load in loads:
        drivers = split[load.stage]
        more_memory, more_cpus = load.needs(load.slots(drivers), drivers)
        memory, cpus = memory + more_memory, cpus + more_cpus
    return memory, cpus


def fits(loads: Sequence[Load], room: Room, split: Mapping[str, int]) -> bool:
    """Return whether there is room for so many drivers."""
    memory, cpus = needs(loads, split)
    return (room.memory is None or memory <= room.memory) and (
        room.cpus is None or cpus <= room.cpus + _INEXACT
    )


def sizes(loads: Sequence[Load], room: Room, split: Mapping[str, int]) -> dict[str, Size]:
    """Return the size of each stage. One of which the split knows nothing yet keeps what it has."""
    goals = {load.stage: goal(load, split) for load in loads}
    wanted = {load.stage: load.slots(goals[load.stage]) for load in loads}
    found: dict[str, int] = {}
    memory, cpus = 0.0, 0.0
    for load in loads:
        # The least of the file was admitted, and one of each stage that may have any.
        least = load.min if load.asked is None else max(load.min, min(1, load.max))
        found[load.stage] = min(wanted[load.stage], max(load.last, least))
        # Who leaves takes its room until it has left.
        processes = max(load.alive, found[load.stage])
        more_memory, more_cpus = load.needs(processes, processes - len(load.stuck))
        memory, cpus = memory + more_memory, cpus + more_cpus
    # Then operators get what is left, who ask for least first.
    for load in sorted(loads, key=lambda load: (load.asked is not None, load.asked)):
        have = found[load.stage]
        more = int(min(wanted[load.stage] - have, _fitting(load, have, room, memory, cpus)))
        if more > 0:
            found[load.stage] += more
            memory += load.memory.of(have + more) - load.memory.of(have)
            cpus += more * load.cpus
    return {load.stage: _size(load, goals[load.stage], found[load.stage], room) for load in loads}


def goal(load: Load, split: Mapping[str, int]) -> int:
    """Return how many drivers a stage is to have, whether there is room for them or not."""
    if load.unwanted:
        return 0
    if load.asked is not None:
        return load.asked
    return min(max(split[load.stage], load.min), load.max) if load.stage in split else load.last


def _fitting(load: Load, have: int, room: Room, memory: float, cpus: float) -> float:
    """Return how many further drivers there is room for beside so much that is taken."""
    most = math.inf
    if room.memory is not None:
        most = min(most, load.memory.fitting(room.memory - memory, have))
    if room.cpus is not None and load.cpus:
        # Sums of CPUs like 0.1 are not exact.
        each = Need(load.cpus, load.cpus)
        most = min(most, each.fitting(room.cpus - cpus + _INEXACT, have))
    return most


def _size(load: Load, wanted: int, slots: int, room: Room) -> Size:
    drivers, scarce = min(wanted, slots), ""
    if load.asked is not None and drivers < wanted:
        takes, has = format_size(round(load.memory.first)), format_size(room.memory or 0)
        if room.cpus is not None:
            takes += f" and {load.cpus:g} CPUs"
            has += f" and {room.cpus:g} CPUs"
        scarce = f"there is no room for {wanted:,}: one takes {takes}, of {has} for all"
    return Size(drivers, slots, load.unwanted or "scale", scarce)


# Whether a pipeline fits at all


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to whether a pipeline fits on a host."""

    # Why the pipeline cannot run here; each says what to do. None: it can.
    refusals: tuple[str, ...] = ()
    # What people should know all the same.
    words: tuple[str, ...] = ()


class _Bound(NamedTuple):
    """Memory or CPUs, of which there is only so much."""

    name: Literal["memory", "cpus"]
    limit: float
    # What has so much, "this host has 4 GB"; and the key that may be raised, if there is one.
    has: str
    key: str
    # Of each stage.
    needs: Mapping[str, Need]

    def words(self, amount: float) -> str:
        return format_size(round(amount)) if self.name == "memory" else f"{amount:g} CPUs"

    def bill(self, stage: str, drivers: int) -> str:
        first, further = self.needs[stage]
        once = "" if first == further else f"{self.words(first - further)} + "
        return f"{stage} {once}{drivers} × {self.words(further)}"

    def refusal(self, least: Mapping[str, int]) -> str:
        """Return why so many drivers do not fit, and what to do; empty when they do."""
        taken = {stage: self.needs[stage].of(drivers) for stage, drivers in least.items()}
        amount = sum(taken.values())
        if amount <= self.limit * (1 + _INEXACT):
            return ""
        bills = ", ".join(self.bill(stage, least[stage]) for stage in least if taken[stage])
        also = f", or raise {self.key}" if self.key else ""
        return f"the drivers need {self.words(amount)}: {bills}; {self.has}; lower drivers{also}"

    def most(self, least: Mapping[str, int], stage: Stage) -> int:
        """Return how many drivers of one stage fit beside the fewest of the others."""
        others = sum(self.needs[name].of(least[name]) for name in least if name != stage.name)
        left = self.limit * (1 + _INEXACT) - others
        return int(min(stage.drivers.max, self.needs[stage.name].fitting(left, 0)))


def admit(pipeline: Pipeline, memory: int) -> Admission:
    """Return whether the pipeline fits on a host that has so much memory.

    What a stage declares is believed; one that declares nothing counts for nothing. There must be
    room for the least number of drivers of all stages at once, and for one each where that is none:
    a stage that waits for the room of another, which waits for it to take its documents, would wait
    for ever.
    """
    least = {
        stage.name: min(max(stage.drivers.min, 1), stage.drivers.max) for stage in pipeline.stages
    }
    bounds, words = _bounds(pipeline, memory), []
    if refusals := [why for bound in bounds if (why := bound.refusal(least))]:
        return Admission(refusals=tuple(refusals))
    for stage in pipeline.stages:
        narrowest = min(bounds, key=lambda bound: bound.most(least, stage))
        cap, most = narrowest.most(least, stage), stage.drivers.max
        if cap < most:
            why = f"{narrowest.name}; {narrowest.has}"
            words.append(f"{stage.name} gets at most {cap} of {most} drivers: {why}")
    return Admission(words=tuple(words))


def _bounds(pipeline: Pipeline, memory: int) -> list[_Bound]:
    """Return what bounds the drivers of a host with so much memory. More CPUs than there are may be
    meant: what waits for disks and networks needs none."""
    host, key = pipeline.host, ""
    limit, has = memory, f"this host has {format_size(memory)}"
    if host.memory is not None and host.memory <= memory:
        key, limit = "[host] memory", host.memory
        has = f"{key} allows {format_size(limit)}"
    taken = {stage.name: memory_of(stage) for stage in pipeline.stages}
    bounds = [_Bound("memory", limit, has, key, taken)]
    if host.cpus is not None:
        key = "[host] cpus"
        each = {stage.name: Need(stage.cpus, stage.cpus) for stage in pipeline.stages}
        bounds.append(_Bound("cpus", host.cpus, f"{key} allows {host.cpus:g}", key, each))
    return bounds


# What the file says


def memory_of(stage: Stage, measured: int | None = None) -> Need:
    """Return the memory that drivers of a stage take, in bytes.

    The file need not say what a driver takes; but whoever asks for more of them than it says is
    bound by what was `measured` of those that are there.
    """
    if measured is not None and stage.memory is None:
        memory = max(_LEAST_MEMORY, measured)
        return Need(memory, memory)
    memory = stage.memory or 0
    if not stage.preload:
        return Need(memory, memory)
    added = stage.memory_per_driver
    further = round(_ADDED * memory) if added is None else added
    return Need(memory + further, further)


def coming(pipeline: Pipeline, unfinished: Mapping[str, int]) -> dict[str, int]:
    """Return how many documents are upstream of each stage, as far as can be counted: those of each
    queue once, however many ways lead from it."""
    feeds, found = pipeline.feeds, {}
    for stage in pipeline.stages:
        seen = set(stage.inputs)
        to_see = list(stage.inputs)
        while to_see:
            more = feeds.get(to_see.pop(), set()) - seen
            seen |= more
            to_see += more
        upstream = seen.difference(stage.inputs)
        found[stage.name] = sum(unfinished.get(name, 0) for name in upstream)
    return found
