"""Whether the drivers of a pipeline fit on this host, and how many of a stage may. Pure.

What a stage declares is believed; one that declares nothing counts for nothing. There must be room
for the least number of drivers of all stages at once, and for one each where that is none: a stage
that waits for the room of another, which waits for it to take its documents, would wait for ever.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from queuedriver.format.units import format_size
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.sizes import memory_of


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What there is room for."""

    # Why the pipeline cannot run here; each says what to do. None: it can.
    refusals: tuple[str, ...] = ()
    # How many drivers a stage may have at most, where that is less than its maximum.
    caps: Mapping[str, int] = {}
    # What people should know all the same.
    words: tuple[str, ...] = ()


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Something that there is only so much of."""

    # Of the stages that are to have drivers: for the first, for each further one.
    of: Mapping[str, tuple[float, float]]
    limit: float
    name: Literal["memory", "cpus"]
    # What has so much, "this host has 4 GB"; and the key that may be raised, if there is one.
    limit_words: str
    key: str = ""

    def taken(self, stage: str, drivers: int) -> float:
        first, further = self.of[stage]
        return first + (drivers - 1) * further if drivers else 0.0

    def exceeded(self, amount: float) -> bool:
        # Sums of CPUs like 0.1 are not exact.
        return amount > self.limit * (1 + 1e-9)

    def words(self, amount: float) -> str:
        return format_size(round(amount)) if self.name == "memory" else f"{amount:g} CPUs"

    def bill(self, stage: str, drivers: int) -> str:
        first, further = self.of[stage]
        if first == further:
            return f"{stage} {drivers} × {self.words(further)}"
        once = self.words(first - further)
        return f"{stage} {once} + {drivers} × {self.words(further)}"

    def refusal(self, of: str, remedy: str) -> str:
        also = f", or raise {self.key}" if self.key else ""
        return f"{of}; {self.limit_words}; {remedy}{also}"


def admit(pipeline: Pipeline, memory: int, cpus: float) -> Admission:
    """Whether the pipeline fits on a host that has so much memory and so many CPUs."""
    least = {
        stage.name: min(max(stage.drivers.min, 1), stage.drivers.max) for stage in pipeline.stages
    }
    kinds, words = _kinds(pipeline, memory, cpus)
    refusals = [refusal for kind in kinds for refusal in _refusals(kind, least)]
    if refusals:
        return Admission(refusals=tuple(refusals), words=tuple(words))
    caps = {}
    for stage in pipeline.stages:
        cap, why = stage.drivers.max, ""
        for kind in kinds:
            if (most := _most(kind, least, stage)) < cap:
                cap, why = most, f"{kind.name}; {kind.limit_words}"
        if why:
            caps[stage.name] = cap
            words.append(f"{stage.name} gets at most {cap} of {stage.drivers.max} drivers: {why}")
    return Admission(caps=caps, words=tuple(words))


def _kinds(pipeline: Pipeline, memory: int, cpus: float) -> tuple[list[_Kind], list[str]]:
    host, words = pipeline.host, []
    declared = host.memory
    if declared is not None and declared > memory:
        words.append(
            f"[host] memory {format_size(declared)} is more than this host has: "
            f"{format_size(memory)} are used"
        )
        declared = None
    has = "this host has" if declared is None else "[host] memory allows"
    limit = memory if declared is None else declared
    kinds = [
        _Kind(
            of={stage.name: memory_of(stage) for stage in pipeline.stages},
            limit=limit,
            limit_words=f"{has} {format_size(limit)}",
            key="" if declared is None else "[host] memory",
            name="memory",
        )
    ]
    if host.cpus is not None:
        # More than there are may be meant: what waits for disks and networks needs none.
        if host.cpus > cpus:
            words.append(f"[host] cpus {host.cpus:g} is more than this host has: {cpus:g}")
        kinds.append(
            _Kind(
                of={stage.name: (stage.cpus, stage.cpus) for stage in pipeline.stages},
                limit=host.cpus,
                limit_words=f"[host] cpus allows {host.cpus:g}",
                key="[host] cpus",
                name="cpus",
            )
        )
    return kinds, words


def _refusals(kind: _Kind, least: Mapping[str, int]) -> list[str]:
    taken = {stage: kind.taken(stage, drivers) for stage, drivers in least.items()}
    found = []
    for stage, amount in taken.items():
        if not kind.exceeded(amount):
            continue
        if least[stage] == 1:
            of = f"one driver of stage {stage} needs {kind.words(amount)}"
            found.append(kind.refusal(of, "give it no drivers on this host"))
        else:
            bill = kind.bill(stage, least[stage])
            of = f"the drivers of stage {stage} need {kind.words(amount)}: {bill}"
            found.append(kind.refusal(of, "lower its drivers"))
    amount = sum(taken.values())
    if not found and kind.exceeded(amount):
        bills = ", ".join(kind.bill(stage, least[stage]) for stage in least if taken[stage])
        of = f"the drivers need {kind.words(amount)}: {bills}"
        found.append(kind.refusal(of, "lower drivers"))
    return found


def _most(kind: _Kind, least: Mapping[str, int], stage: Stage) -> int:
    """How many drivers of one stage fit beside the fewest of the others."""
    first, further = kind.of[stage.name]
    others = sum(kind.taken(name, least[name]) for name in least if name != stage.name)
    left = kind.limit * (1 + 1e-9) - others
    if not further or left < first:
        return stage.drivers.max
    return min(stage.drivers.max, 1 + int((left - first) / further))
