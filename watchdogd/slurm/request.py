"""What is asked of Slurm for each element of a pipeline. Pure.

The stages that share a node are one group, with an empty name; each stage whose drivers are
elements of their own is another, with the stage's name.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from watchdogd.pipeline.model import Drivers, Pipeline, Slurm, Stage
from watchdogd.pipeline.slurms import leaves_before
from watchdogd.sizes import memory_of

# What a watchdog with its helper takes, and each driver beside its documents: bytes. It need not be
# exact: where memory is a limit, one that is too tight ends all of an element at once.
_WATCHDOG_TAKES = 100 << 20
_MIB = 1 << 20


class Request(NamedTuple):
    """One group of elements: what each runs, and what it asks for."""

    # The stage; empty: all stages that share a node.
    name: str
    slurm: Slurm
    # How many drivers of each stage an element has.
    drivers: Mapping[str, Drivers]
    # In MiB; None: whatever the cluster gives.
    memory: int | None
    # Stages that do not say what a driver takes: because of them no memory is asked for.
    unbounded: tuple[str, ...]
    cpus: int
    # Seconds before its end at which it is told to leave.
    leaves_before: int

    @property
    def shown(self) -> str:
        """Return what people call it."""
        return self.name or "nodes"


def requests(pipeline: Pipeline) -> list[Request]:
    """Return all groups of a pipeline: those that share a node first."""
    if pipeline.slurm is None:
        return []
    shared = [stage for stage in pipeline.stages if stage.slurm is None and stage.drivers.max]
    found = [_request(pipeline, "", pipeline.slurm, shared)] if shared else []
    for stage in pipeline.stages:
        if stage.slurm is not None:
            found.append(_request(pipeline, stage.name, stage.slurm, [stage]))
    return found


def _request(pipeline: Pipeline, name: str, slurm: Slurm, stages: list[Stage]) -> Request:
    one = Drivers(1, 1)
    bounds = {stage.name: one if name else stage.drivers for stage in stages}
    memory, cpus = float(_WATCHDOG_TAKES), 0.0
    for stage in stages:
        first, further = memory_of(stage)
        count = bounds[stage.name].max
        memory += first + (count - 1) * further
        cpus += count * stage.cpus
    unbounded = tuple(stage.name for stage in stages if stage.memory is None)
    room = pipeline.host
    if not name:
        cpus = min(cpus, room.cpus or cpus)
        if room.memory is not None:
            # Then it is what all drivers together may take, whatever they say.
            most = room.memory + _WATCHDOG_TAKES
            memory, unbounded = (most if unbounded else min(memory, most)), ()
    none = Drivers(0, 0)
    return Request(
        name=name,
        slurm=slurm,
        drivers={stage.name: bounds.get(stage.name, none) for stage in pipeline.stages},
        memory=None if unbounded else math.ceil(memory / _MIB),
        unbounded=unbounded,
        cpus=max(1, math.ceil(cpus)),
        leaves_before=leaves_before(stages),
    )
