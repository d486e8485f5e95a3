"""`run`: one driver, from its arguments to its exit code."""

import faulthandler
import signal
import sys
from contextlib import nullcontext, suppress
from typing import Annotated, Any

from queuedriver.cli import program, say
from queuedriver.cli.arguments import AS_JSON, CALL, COMMAND, QUIET, SERVER, warn_of
from queuedriver.cli.settings import checked, option_rows
from queuedriver.cli.words import argument, option
from queuedriver.driving.driver import Driver
from queuedriver.driving.loop import Left
from queuedriver.errors import BadArgument
from queuedriver.format.names import check_driver_id
from queuedriver.format.units import format_count
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from queuedriver.processors.base import Processor, make


def run(
    inputs: list[str] = argument("INPUT...", "Queues to take from, the first first."),
    to: list[str] | None = option("OUTPUT", "Queue or directory for what comes out; repeatable."),
    id: str | None = option("ID", "This driver's id; else <host>-<number>."),
    call: str | None = CALL,
    command: str | None = COMMAND,
    server: str | None = SERVER,
    quiet: bool = QUIET,
    as_json: bool = AS_JSON,
    **driving: Annotated[Any, *option_rows(Options)],
) -> int:
    """Drive a processor over queues: claim, process, publish, until there is a reason to leave.

    One of --call, --command and --server says what is done to a document, and --to where
    the result goes; a document whose result is published is removed from INPUT.
    WHEN is as in 2031-05-01T14:00, or in seconds since 1970, as $SLURM_JOB_END_TIME.

    \b
    Signals:
      TERM, INT   finish the document at hand, for at most --grace, and leave;
                  a second one: give it back uncounted, at once
      HUP         the same, to be started anew
      USR1        nothing
      USR2        write the stacks of all threads to stderr

    \b
    Exit codes:
      0   it was asked to leave, its time is up, or all there was is done
      1   --drain: finished, but documents were discarded
      2   wrong usage
      66  no such queue          69  another driver has the id
      73  an output is a file    74  the file system fails
      75  --drain: what is left is not due yet, needs more time than is left, or is
          for people to move; the stage has stopped itself; or the outputs are full
          and nobody empties them
      77  not permitted          78  this can never work: see the message
    """
    options = checked(Options(**driving))
    processor = processor_of(call, command, server)
    driver = Driver(inputs, processor, to or [], id=id and check_driver_id(id), options=options)
    # What stands in for stderr has no descriptor, or nothing does.
    with suppress(ValueError, RuntimeError):
        faulthandler.register(signal.SIGUSR2, all_threads=True)
    left = drive(driver, inputs, quiet)
    if not quiet:
        say(summary(left))
    if as_json:
        from queuedriver.cli.render import write_json

        write_json({"id": driver.id, **left._asdict()})
    return left.exit_code


def drive(driver: Driver, inputs: list[str], quiet: bool) -> Left:
    """Run a driver, and tell a terminal how it goes."""
    if not quiet:
        for path in inputs:
            with Queue.open(path) as queue:
                warn_of(queue)
    narrator: Any = nullcontext()
    if not quiet and sys.stderr is not None and sys.stderr.isatty():
        from queuedriver.cli.progress import Narrator

        what = f"{driver.processor.name} over {', '.join(inputs)}"
        say(f"{what}; Ctrl-C to finish the document at hand and leave")
        narrator = Narrator(driver, inputs)
    try:
        with narrator:
            return driver.run(last=program.ends_process)
    finally:
        for words in driver.unnoted:
            say(words)


def summary(left: Left) -> str:
    """Return what a driver did, in one line."""
    done = format_count(left.counters.documents, "document")
    words = [f"{left.word}: {left.why}; {done} done"]
    if left.counters.failed:
        words.append(f"{format_count(left.counters.failed, 'attempt')} failed")
    if left.counters.discarded:
        words.append(f"{left.counters.discarded:,} discarded")
    return ", ".join(words)


def processor_of(call: str | None, command: str | None, server: str | None) -> Processor:
    """Return the one processor that was named."""
    named = {"call": call, "command": command, "server": server}
    given = [(kind, work) for kind, work in named.items() if work is not None]
    if len(given) != 1:
        raise BadArgument("say what is to be done: one of --call, --command and --server")
    return make(*given[0])
