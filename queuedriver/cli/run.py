"""`run`: one driver, from its arguments to its exit code."""

import faulthandler
import signal
import sys
from contextlib import nullcontext, suppress
from typing import Annotated, Any, Literal

import msgspec
import typer

from queuedriver.cli import say
from queuedriver.cli.arguments import duration, size
from queuedriver.driver import Driver, Left
from queuedriver.errors import BadArgument, ConfigError
from queuedriver.names import check_driver_id
from queuedriver.options import Options
from queuedriver.processors.base import Processor
from queuedriver.settings import check_publish
from queuedriver.units import format_count

# Options that are written as durations and as sizes.
_DURATIONS = ("retry_delay", "timeout", "hard_after", "grace", "max_age")
_SIZES = ("max_output_bytes", "max_memory")

_Inputs = Annotated[
    list[str], typer.Argument(metavar="INPUT...", help="Queues to take from, the first first.")
]
_To = Annotated[
    list[str] | None,
    typer.Option(
        "--to", metavar="OUTPUT", help="Queue or directory for what comes out; repeatable."
    ),
]
_NoOutput = Annotated[
    bool, typer.Option("--no-output", help="There is none: what is written is not wanted.")
]
_Id = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="This driver's id; else <host>-<number>.")
]
_Call = Annotated[
    str | None,
    typer.Option(metavar="PKG.MOD:FUNCTION", help="Call a Python function, or a plug-in by name."),
]
_Command = Annotated[
    str | None,
    typer.Option(metavar="WORDS", help="Run a program per document: 'tool {input} {output}'."),
]
_Server = Annotated[
    str | None, typer.Option(metavar="WORDS", help="Keep a program running: JSON lines in and out.")
]
_Drain = Annotated[bool, typer.Option("--drain", help="Leave when the queue is empty.")]
_Retries = Annotated[
    int, typer.Option(metavar="N", help="How often a document is tried again after it failed.")
]
_RetryDelay = Annotated[str, typer.Option(metavar="TIME", help="How long to wait before that.")]
_Timeout = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long a document may take, as in 10min.")
]
_HardAfter = Annotated[
    str, typer.Option(metavar="TIME", help="How much later the driver is ended if it hangs.")
]
_Grace = Annotated[
    str, typer.Option(metavar="TIME", help="How long it may take once asked to leave.")
]
_Order = Annotated[
    Literal["fair", "age", "name"],
    typer.Option(help="In which order; age and name cost a full listing each time."),
]
_Batch = Annotated[
    int, typer.Option(metavar="N", help="How many documents a call gets, as a list.")
]
_Publish = Annotated[
    str, typer.Option(metavar="NAME", help="Names of outputs; {docid} and {stem} may be used.")
]
_Existing = Annotated[
    Literal["keep", "replace"], typer.Option(help="What becomes of an output of the same name.")
]
_MaxOutputItems = Annotated[
    int | None, typer.Option(metavar="N", help="Claim nothing while so much waits in an output.")
]
_MaxOutputBytes = Annotated[
    str | None, typer.Option(metavar="SIZE", help="The same in bytes, as in 1GB.")
]
_MaxDocuments = Annotated[
    int | None, typer.Option(metavar="N", help="Leave, to be started anew, after about N.")
]
_MaxAge = Annotated[str | None, typer.Option(metavar="TIME", help="The same after a while.")]
_MaxMemory = Annotated[
    str | None, typer.Option(metavar="SIZE", help="The same when it uses more memory.")
]
_Durable = Annotated[bool, typer.Option(help="Make every promise hold over a power cut.")]
_Archive = Annotated[
    str | None, typer.Option(metavar="DIR", help="Keep finished inputs there; else they go.")
]
_Poll = Annotated[bool, typer.Option("--poll", help="Never rely on inotify.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
_Json = Annotated[bool, typer.Option("--json", help="Print what happened at the end.")]


def run(
    inputs: _Inputs,
    to: _To = None,
    no_output: _NoOutput = False,
    id: _Id = None,
    call: _Call = None,
    command: _Command = None,
    server: _Server = None,
    drain: _Drain = False,
    retries: _Retries = 1,
    retry_delay: _RetryDelay = "0s",
    timeout: _Timeout = None,
    hard_after: _HardAfter = "30s",
    grace: _Grace = "60s",
    order: _Order = "fair",
    batch: _Batch = 1,
    publish: _Publish = "{docid}.ready",
    existing: _Existing = "keep",
    max_output_items: _MaxOutputItems = None,
    max_output_bytes: _MaxOutputBytes = None,
    max_documents: _MaxDocuments = None,
    max_age: _MaxAge = None,
    max_memory: _MaxMemory = None,
    durable: _Durable = False,
    archive: _Archive = None,
    poll: _Poll = False,
    quiet: _Quiet = False,
    as_json: _Json = False,
) -> int:
    """Drive a processor over queues: claim, process, publish, until there is a reason to leave.

    One of --call, --command and --server says what is done to a document, and --to where
    the result goes; a document whose result is published is removed from INPUT.

    \b
    Signals:
      TERM, INT   finish the document at hand, for at most --grace, and leave;
                  a second one: give it back uncounted, at once
      HUP         the same, to be started anew
      USR2        write the stacks of all threads to stderr

    \b
    Exit codes:
      0   it was asked to leave, or all there was is done
      1   --drain: finished, but documents were discarded
      2   the arguments cannot be meant
      66  no such queue          69  another driver has the id
      73  an output is a file    74  the file system fails
      75  --drain: only documents that are not due yet are left, or
          the outputs are full and nobody empties them
      77  not permitted          78  this can never work: see the message
    """
    given = {name: value for name, value in locals().items() if name in Options.__struct_fields__}
    options = _options(given)
    processor = processor_of(call, command, server)
    if to and no_output:
        raise BadArgument("--to and --no-output: there is an output, or there is none")
    outputs = () if no_output else to
    driver = Driver(inputs, processor, outputs, id=id and check_driver_id(id), options=options)
    _show_stacks_when_asked()
    left = drive(driver, inputs, quiet)
    if not quiet:
        say(summary(left))
    if as_json:
        _print_json(driver, left)
    return left.exit_code


def _show_stacks_when_asked() -> None:
    if sys.stderr is not None:
        # ValueError: what stands in for stderr has no descriptor.
        with suppress(ValueError):
            faulthandler.register(signal.SIGUSR2, all_threads=True)


def _print_json(driver: Driver, left: Left) -> None:
    from queuedriver.cli.render import write_json

    counters = msgspec.to_builtins(left.counters)
    write_json({"id": driver.id, **left._asdict(), "counters": counters})


def drive(driver: Driver, inputs: list[str], quiet: bool) -> Left:
    """Run a driver, and tell a terminal how it goes."""
    narrator: Any = nullcontext()
    if not quiet and sys.stderr is not None and sys.stderr.isatty():
        from queuedriver.cli.progress import Narrator

        what = f"{driver.processor.name} over {', '.join(inputs)}"
        say(f"{what}; Ctrl-C to finish the document at hand and leave")
        narrator = Narrator(driver, inputs, driver.options.drain)
    try:
        with narrator:
            return driver.run()
    finally:
        for words in driver.unnoted:
            say(words)


def summary(left: Left) -> str:
    """What a driver did, in one line."""
    done = format_count(left.counters.documents, "document")
    words = [f"{left.word}: {left.why}; {done} done"]
    if left.counters.failed:
        words.append(f"{format_count(left.counters.failed, 'attempt')} failed")
    if left.counters.discarded:
        words.append(f"{left.counters.discarded:,} discarded")
    return ", ".join(words)


def _options(given: dict[str, Any]) -> Options:
    """What the driver is told, or BadArgument."""
    for names, parse in ((_DURATIONS, duration), (_SIZES, size)):
        for name in names:
            if given[name] is not None:
                given[name] = parse(f"--{name.replace('_', '-')}", given[name])
    try:
        check_publish(given["publish"])
        return Options(**given).check()
    except ConfigError as error:
        raise BadArgument(str(error)) from None


def processor_of(call: str | None, command: str | None, server: str | None) -> Processor:
    """The one processor that was named. Only its module is imported."""
    if sum(one is not None for one in (call, command, server)) != 1:
        raise BadArgument("say what is to be done: one of --call, --command and --server")
    if call is not None:
        from queuedriver.processors.call import load

        return load(call)
    if command is not None:
        from queuedriver.processors.command import CommandProcessor

        return CommandProcessor(command)
    from queuedriver.processors.server import ServerProcessor

    return ServerProcessor(server or "")
