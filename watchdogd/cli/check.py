"""`check`: whether a pipeline's file, and this host, are fit to run it; and what it looks like."""

import os
import socket
import sys

import msgspec

from queuedriver.cli.program import say
from queuedriver.cli.render import columns_of, escape, escape_name, table, write_json
from queuedriver.cli.words import flag, option
from queuedriver.format.units import format_count
from watchdogd.check import Findings, examine, this_host
from watchdogd.cli.pipeline_argument import PIPELINE, pipeline_file
from watchdogd.pipeline.complaints import BadPipeline, Complaint, exit_code_of
from watchdogd.pipeline.drawing import draw
from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.reading import study

_COLUMNS = ("", "NAME", "DRIVERS", "MEMORY", "~")


def check(
    file: str | None = PIPELINE,
    host: str | None = option("NAME", "This host's name; else what it is called."),
    as_json: bool = flag("Print for programs.", "--json"),
) -> int:
    """Name every mistake of a pipeline's file at once, and draw its stages when there is none.

    Also what keeps it from running on this host: programs that are not there, modules that cannot
    be imported, directories that may not be written, file systems that cannot hold queues, too
    little memory. Modules are imported, each in a process of its own; nothing else is run, and
    nothing is changed.

    \b
    Exit codes:
      0   it can run here        66  there is no such file
      77  not permitted          78  mistakes, each on a line of its own
    """
    named = pipeline_file(file)
    pipeline = None
    try:
        studied = study(named, host or socket.gethostname())
        pipeline, found = studied.pipeline, examine(studied, this_host())
    except BadPipeline as error:
        found = Findings(error.complaints, (), {})
    code = exit_code_of(found.complaints) if found.complaints else 0
    if as_json:
        _print_json(named, pipeline, found, code)
    elif found.complaints:
        _complain(named, found.complaints)
    elif pipeline is not None:
        _draw(pipeline, found)
    return code


def _complain(named: str, complaints: tuple[Complaint, ...]) -> None:
    for one in complaints:
        # Without our name before it: what begins with file and line, editors can jump to.
        print(escape(str(one)), file=sys.stderr)
    say(f"{format_count(len(complaints), 'mistake')} in {escape_name(named)}; nothing can run")


def _draw(pipeline: Pipeline, found: Findings) -> None:
    rows = draw(pipeline, ascii_only=not _has_lines(sys.stdout.encoding))
    cells = [(row.rails, *map(escape_name, row[1:])) for row in rows]
    for line in table(_COLUMNS, cells, columns_of(sys.stdout)):
        print(line)
    for note in found.notes:
        say(note)


def _has_lines(encoding: str) -> bool:
    """Whether an encoding has what rails are drawn with."""
    try:
        "○■│─╮╯┬┴".encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _print_json(named: str, pipeline: Pipeline | None, found: Findings, code: int) -> None:
    write_json(
        {
            "file": os.path.abspath(named),
            "ok": not code,
            "exit_code": code,
            "complaints": msgspec.to_builtins(found.complaints),
            "notes": list(found.notes),
            "caps": dict(found.caps),
            "pipeline": msgspec.to_builtins(pipeline),
        }
    )
