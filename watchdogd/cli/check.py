"""`check`: whether a pipeline's file, and this host, are fit to run it; and what it looks like."""

import os
import shlex
import socket
import sys

from queuedriver.cli.program import say
from queuedriver.cli.render import columns_of, escape, escape_name, table, write_json
from queuedriver.cli.words import flag, option
from queuedriver.format.units import format_count, format_size
from watchdogd.check import Findings, check_imports, examine
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, checked_host, either
from watchdogd.cli.pipeline_argument import answering_file
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.pipeline.problems import BadPipeline

# The work, which gives way on a narrow terminal, needs no title.
COLUMNS = ("STAGE", "INPUT", "OUTPUT", "DRIVERS", "MEMORY", "~")


def check(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    host: str | None = option("NAME", "This host's name; else what it is called."),
    as_json: bool = flag("Print for programs.", "--json"),
) -> int:
    """Name every mistake of a pipeline's file at once, and list its stages when there is none.

    Also what keeps it from running on this host: programs that are not there, modules that cannot
    be imported, directories that may not be written, file systems that cannot hold queues, too
    little memory. Modules are imported, each in a process of its own; nothing else is run, and
    nothing is changed.

    \b
    Exit codes:
      0   it can run here        66  there is no such file
      77  not permitted          78  mistakes, each on a line of its own
    """
    named = answering_file(either(pipeline, option))
    found = None
    try:
        found = examine(named, checked_host(host) or socket.gethostname(), check_imports)
        error = BadPipeline(found.problems)
    except BadPipeline as bad:
        error = bad
    code = error.exit_code if error.problems else 0
    if as_json:
        write_json(
            {
                "file": os.path.abspath(named),
                "ok": not code,
                "exit_code": code,
                "complaints": error.problems,
                "notes": list(found.notes) if found else [],
                "pipeline": found.pipeline if found else None,
            }
        )
    elif error.problems:
        for one in error.problems:
            # Without our name before it: what begins with file and line, editors can jump to.
            print(escape(str(one)), file=sys.stderr)
        mistakes = format_count(len(error.problems), "mistake")
        say(f"{mistakes} in {escape_name(named)}; nothing can run")
    elif found is not None:
        _draw(found)
    return code


def _draw(found: Findings) -> None:
    cells = [[escape_name(cell) for cell in row] for row in draw(found.pipeline)]
    for line in table(COLUMNS, cells, columns_of(sys.stdout)):
        print(line)
    print(escape_name(ends(found.pipeline)))
    for note in found.notes:
        say(note)


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
