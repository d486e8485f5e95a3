"""Draw a pipeline as text: a row for each stage, and where its documents come from and go. Pure."""

import shlex

from queuedriver.format.units import format_count, format_size
from watchdogd.pipeline.model import Pipeline, Stage

# The work, which gives way on a narrow terminal, needs no title.
COLUMNS = ("STAGE", "INPUT", "OUTPUT", "DRIVERS", "MEMORY", "~")


def draw(pipeline: Pipeline) -> list[tuple[str, ...]]:
    """Return the cells of each stage, in the order of the file."""
    return [
        (
            stage.name,
            ", ".join(stage.inputs),
            ", ".join(stage.outputs),
            _drivers(stage),
            _memory(stage),
            f"{stage.kind} {_work(stage)}".strip(),
        )
        for stage in pipeline.stages
    ]


def ends(pipeline: Pipeline) -> str:
    """Return what people do with the queues at both ends."""
    results = []
    for queue in pipeline.results:
        names = {stage.publish for stage in pipeline.stages if queue in stage.outputs}
        results.append(f"{queue} ({', '.join(sorted(names))})")
    said = f"documents are submitted into {', '.join(pipeline.sources)}"
    return f"{said}; results are in {', '.join(results)}" if results else said


def _drivers(stage: Stage) -> str:
    least, most = stage.drivers.min, stage.drivers.max
    return format_count(most, "driver") if stage.drivers.fixed else f"{least} to {most}"


def _memory(stage: Stage) -> str:
    if stage.memory is None:
        return ""
    size = format_size(stage.memory)
    if not stage.preload:
        return f"{size} each"
    # Loaded once; what each driver adds is its own.
    more = stage.memory_per_driver
    return size if more is None else f"{size} + {format_size(more)} each"


def _work(stage: Stage) -> str:
    if stage.intake is not None:
        return f"{stage.intake.folder} into {stage.intake.queue}"
    return stage.work if isinstance(stage.work, str) else shlex.join(stage.work)
