"""What a pipeline's file says of its intakes, and what of it does not go together. Pure.

An intake is kept as a stage is that has one driver, no queues and no work of its own.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from queuedriver.intake.options import IntakeOptions
from watchdogd.pipeline.model import Drivers, Intake, Pipeline, Stage
from watchdogd.pipeline.problems import Table

_OWN = ("name", "from", "into")


def intakes_of(
    tables: Sequence[Table], pipeline: Pipeline, drivers: Mapping[str, Drivers]
) -> tuple[Stage, ...]:
    """Return the intakes; add what does not go together to their tables. `drivers`: how many this
    host has, if it says so."""
    intakes = []
    taken = {stage.name for stage in pipeline.stages}
    for table, name in zip(tables, _names(tables), strict=True):
        if name in taken:
            problem = "is what a stage, or another intake, is called"
            table.add("name", problem, 'right would be as in name = "scanner"', name)
        taken.add(name)
        stage = Stage(
            name=name,
            inputs=(),
            outputs=(),
            kind="intake",
            work="",
            cpus=0.0,
            drivers=drivers.get(name, Drivers(1, 1)),
            intake=_intake(table, pipeline),
        )
        intakes.append(stage)
    return tuple(intakes)


def _names(tables: Sequence[Table]) -> Iterator[str]:
    """Yield what each is called: unless it says so, after its place."""
    for number, table in enumerate(tables, 1):
        yield table.values.get("name", "intake" if number == 1 else f"intake_{number}")


def _intake(table: Table, pipeline: Pipeline) -> Intake:
    values = table.values
    if "from" not in values and "from" not in table.bad:
        table.add("", "does not say from where", 'right would be to add from = "drops"')
    folder, refused = (
        said and os.path.normpath(os.path.join(pipeline.directory, os.path.expanduser(said)))
        for said in (values.get("from", ""), values.get("refused"))
    )
    if folder and os.path.commonpath((folder, pipeline.root)) == pipeline.root:
        right = "right would be a folder of its own, outside of the root"
        table.add("from", "is among the queues", right, values["from"])
    inputs = pipeline.inputs
    queue = values.get("into", inputs[0] if inputs else "")
    if "into" in values and queue not in inputs:
        known = f"they take from {', '.join(inputs)}"
        table.add("into", "is a queue that no stage takes from", known, queue)
    said = {key: value for key, value in values.items() if key not in _OWN}
    options = IntakeOptions(**{**said, "refused": refused})
    if options.is_empty_range and "max_size" not in table.bad:
        table.add("max_size", "is less than min_size", "right would be more", values["max_size"])
    return Intake(folder=folder or "", queue=queue, options=options)
