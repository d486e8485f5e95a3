"""`status`: how a pipeline is going."""

import sys
from threading import Timer

from queuedriver.cli.arguments import AS_JSON
from queuedriver.cli.program import say
from queuedriver.cli.render import columns_of, paint_for, write_json
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, either
from watchdogd.cli.pipeline_argument import choose
from watchdogd.cli.screen import lines
from watchdogd.operators.sentences import as_json
from watchdogd.operators.view import View, look

_CODES = {"running": 0, "not running": 3, "unknown": 4}
# A file system that has not answered by then may not do so for long.
_PATIENCE = 3.0


def status(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    as_json: bool = AS_JSON,
) -> int:
    """Show how a pipeline is going: its stages, its drivers, what somebody must look after.

    FAILED are those of the waiting that failed before. DRIVERS are those alive, of those wanted.
    TIME is what one document takes. WORK, WAIT, BLOCK and OVERHEAD are the shares of the drivers'
    time: in the processor, without documents, with full outputs, and all the rest.

    \b
    Exit codes:
      0   a watchdog runs
      1   one runs, but a stage with documents to do has crash-looped drivers only
      3   none runs: everything is shown all the same
      4   that cannot be known from here, or it is there and does not turn
      66  no such file              78  the file has mistakes, and no watchdog runs
    """
    # For whoever does not know what is waited for.
    slow = Timer(_PATIENCE, say, ["the file system is slow to answer, or does not; still waiting"])
    slow.daemon = True
    slow.start()
    try:
        view = look(choose(either(pipeline, option), hung_too=True))
    finally:
        slow.cancel()
    if as_json:
        print_json(view)
    else:
        for line in lines(view, columns_of(sys.stdout), paint_for(sys.stdout)):
            print(line)
    return exit_code(view)


def exit_code(view: View) -> int:
    """Return the exit code that says how a pipeline is."""
    return _CODES[view.chosen.hosts.state] or bool(view.stuck)


def print_json(view: View, indent: int | None = 2) -> None:
    """Print one look for programs."""
    write_json(as_json(view), indent)
