"""What a pipeline's file says of Slurm, of all stages and of those whose drivers are elements of
their own; and what of it does not go together. Pure.

An element is one task of a job array. It runs one node's share of the stages, `watchdogd run`; or,
where a stage says `per = "driver"`, one driver of that stage.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from watchdogd.pipeline.model import Drivers, Pipeline, Slurm, Stage
from watchdogd.pipeline.problems import Path, Table

# Seconds before the end of its time at which an element is told to leave: the grace of the longest
# document, and what drivers and their watchdog take to end. Never less than the first.
LEAVES_BEFORE = 90
_ENDING_TAKES = 30
# What says how many elements there are from time to time.
_OF_BOUNDS = ("target", "idle")


def leaves_before(stages: Sequence[Stage]) -> int:
    """Return how many seconds before its end an element with these stages is told to leave."""
    graces = [stage.grace for stage in stages if stage.drivers.max]
    return max(LEAVES_BEFORE, int(max(graces, default=0.0)) + _ENDING_TAKES)


def with_elements(pipeline: Pipeline, tables: Sequence[Table], slurm: Table | None) -> Pipeline:
    """Return a pipeline with what is asked of Slurm; add what does not go together to the tables of
    the stages, and to that of [slurm]."""
    stages = (
        replace(stage, slurm=_of_stage(stage, table, slurm))
        for stage, table in zip(pipeline.stages, tables, strict=True)
    )
    said = None if slurm is None else Slurm(**slurm.values)
    pipeline = replace(pipeline, stages=tuple(stages), slurm=said)
    _check(pipeline, tables, slurm)
    return pipeline


def _of_stage(stage: Stage, table: Table, pipeline: Table | None) -> Slurm | None:
    """Return what is asked for each driver of a stage, or None where they share a node: what the
    stage does not say, [slurm] does."""
    said = dict(table.values.get("slurm", {}))
    if said.pop("per", "node") == "node":
        return None
    shared = {} if pipeline is None else {**pipeline.values}
    shared["nodes"] = stage.drivers
    return Slurm(**(shared | said))


def _check(pipeline: Pipeline, tables: Sequence[Table], slurm: Table | None) -> None:
    for stage, table in zip(pipeline.stages, tables, strict=True):
        if "slurm" in table.values:
            _check_stage(stage, table, slurm)
    if slurm is None or pipeline.slurm is None:
        return
    if pipeline.adopt:
        problem = "cannot go with adopt = true: what outlives its watchdog, Slurm ends"
        slurm.add("", problem, "leave adopt out")
    shared = [stage for stage in pipeline.stages if stage.slurm is None]
    if not shared and pipeline.stages and "nodes" in slurm.values:
        problem = "is for stages that share a node, and each here has elements of its own"
        slurm.add("nodes", problem, "say it below [stage.slurm]")
    _check_bounds(pipeline.slurm.nodes, slurm.values.keys(), (), slurm)
    _check_time(pipeline.slurm, shared, (), slurm)


def _check_stage(stage: Stage, table: Table, slurm: Table | None) -> None:
    said = table.values["slurm"]
    if slurm is None:
        table.add("slurm", "needs what is asked for all", "add a [slurm], which may be empty")
    if stage.slurm is None:
        for key in (key for key in said if key != "per"):
            problem = "is for a stage whose drivers are elements of their own"
            table.add(("slurm", key), problem, 'add per = "driver", or say it below [slurm]')
        return
    if stage.kind == "broker":
        problem = "cannot be: the one driver of a broker is where its workers look for it"
        table.add(("slurm", "per"), problem, 'right would be per = "node"')
    _check_bounds(stage.slurm.nodes, said.keys(), ("slurm",), table)
    _check_time(stage.slurm, [stage], ("slurm",), table)


def _check_bounds(nodes: Drivers, said: Collection[str], before: Path, table: Table) -> None:
    for key in _OF_BOUNDS:
        if key in said and nodes.fixed:
            problem = f"says when there are more or fewer, and there are always {nodes.max}"
            table.add((*before, key), problem, "right would be nodes = { min = 0, max = 8 }")


def _check_time(slurm: Slurm, stages: Sequence[Stage], before: Path, table: Table) -> None:
    least = leaves_before(stages)
    if slurm.time is not None and slurm.time <= least:
        problem = f"is over before anything is done: an element leaves {least} s before its end"
        table.add((*before, "time"), problem, "right would be more, or a shorter grace")
