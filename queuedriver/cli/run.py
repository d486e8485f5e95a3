"""`run`: one driver, from its arguments to its exit code; and `get`: one that changes nothing, and
whose output directory is an ordinary one."""

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Annotated, Any

from queuedriver.claims.document import Document, Outputs
from queuedriver.claims.liveness import Observer
from queuedriver.cli import program, say, say_some
from queuedriver.cli.arguments import AS_JSON, CALL, COMMAND, QUIET, SERVER, warn_of
from queuedriver.cli.settings import checked, option_rows
from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.journal import journal_path, read_events
from queuedriver.driving.driver import Driver, Progress
from queuedriver.driving.limits import QUIT_FILE, Limits
from queuedriver.driving.loop import Left
from queuedriver.errors import BadArgument, PermanentError, QueueError
from queuedriver.format.names import check_driver_id
from queuedriver.format.units import format_count, format_duration, format_rate, visible
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from queuedriver.processors.base import Processor, make

# One sync of the file system serves so many documents.
_BATCH = 32
# To be killed while it is copied is no fault of a document's.
_RETRIES = 10
# What its journal says of a document that became a file.
_ARRIVED = ("published", "recovered")
# How soon a Ctrl-C is answered.
_TURN = 0.2
# How often what is left is counted: at most so many seconds apart, and a twentieth of the time.
_COUNT_EVERY = 1.0
_COUNT_SHARE = 20


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
    telling: Any = nullcontext()
    if not quiet and sys.stderr is not None and sys.stderr.isatty():
        what = f"{driver.processor.name} over {', '.join(inputs)}"
        say(f"{what}; Ctrl-C to finish the document at hand and leave")
        telling = _telling(driver, inputs)
    try:
        with telling:
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


# How far it is


@contextmanager
def _telling(driver: Driver, inputs: Sequence[str]) -> Iterator[None]:
    """Tell a terminal of a driver, from a thread of its own."""
    # Late, as in the other two places: what nobody sees is not drawn, and the driver starts sooner.
    from queuedriver.cli.render import redraw

    stop = threading.Event()
    told = driver, inputs, stop, redraw
    thread = threading.Thread(target=_tell, args=told, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        # It may be counting a million names, for which nobody waits any more.
        thread.join(_TURN)
        redraw()


def _tell(
    driver: Driver, inputs: Sequence[str], stop: threading.Event, redraw: Callable[..., None]
) -> None:
    observer, count_at, answered = Observer(), 0.0, False
    while not stop.wait(_TURN):
        progress, now = driver.progress(), time.monotonic()
        if progress.leaving:
            if progress.at_hand and not answered:
                what = format_count(progress.at_hand, "document")
                which = "it" if progress.at_hand == 1 else "them"
                again = "twice" if progress.leaving == QUIT_FILE else "again"
                redraw()
                say(f"finishing {what}; Ctrl-C {again} to release {which} now")
            answered = True
        elif driver.options.drain and now >= count_at:
            redraw(_line(progress, _left(inputs, observer)))
            took = time.monotonic() - now
            count_at = now + took + max(_COUNT_EVERY, took * _COUNT_SHARE)


def _line(progress: Progress, left: Sequence[str]) -> str:
    words = [f"{progress.counters.documents:,} done"]
    if progress.counters.discarded:
        words.append(f"{progress.counters.discarded:,} discarded")
    words += left
    if progress.why and progress.state != "busy":
        words.append(visible(progress.why))
    return ", ".join(words)


def _left(inputs: Sequence[str], observer: Observer) -> list[str]:
    """Return how many documents are left in the inputs, whoever takes them, and when they will be
    done at the pace of all drivers, as `status` knows it."""
    from queuedriver.operating.queue_view import overview

    left, rates = 0, dict[str, float]()
    try:
        for path in inputs:
            with Queue.open(path) as queue:
                seen = overview(queue, observer)
            left += seen.counts.unfinished
            # Who takes from several of them is one.
            rates |= {one.id: one.rate for one in seen.living}
    except (OSError, QueueError):
        # The driver says what is wrong with its queues.
        return []
    pace = sum(rates.values())
    eta = [f"{format_rate(pace)}, ETA {format_duration(left / pace)}"] if pace else []
    return [f"{left:,} left", *eta]


# Get


class Collect(Processor):
    """Copies documents to the output directory; there is nothing to start or stop."""

    name = "get"

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        # Late: `run` can do without, and starts sooner.
        from pathlib import Path

        try:
            outputs.take(Path(document.path), limits)
        except PermissionError as error:
            raise PermanentError(f"it cannot be copied: {error.strerror}") from error


def get(
    queue: str = argument("QUEUE", "The queue to empty."),
    dest: str = argument("DEST", "The directory for the files; made if missing."),
    follow: bool = flag("Wait for more, until the queue is closed."),
    durable: bool = flag(
        "Make files survive a power cut before they leave the queue.", default=True
    ),
    quiet: bool = QUIET,
    as_json: bool = AS_JSON,
) -> int:
    """Collect what a queue holds as plain files, each exactly once.

    Each document that waits in QUEUE becomes a file in DEST, named by its docid, and leaves the
    queue. While it is copied its name ends in .writing. A file of the same name is never
    overwritten: the second gets a name of its own, <stem>~<serial>.<ext>, and is named at the end.
    Any number may collect at once, and one that is killed is finished by the next.
    """
    options = Options(
        drain=not follow,
        await_writing=follow,
        retries=_RETRIES,
        batch=_BATCH,
        publish="{docid}",
        durable=durable,
    )
    driver = Driver(queue, Collect(), dest, options=options)
    left = drive(driver, [queue], quiet)
    collected = _collected(queue, driver.id, driver.since)
    if not quiet:
        _summarize(left, collected, dest)
    if as_json:
        from queuedriver.cli.render import write_json

        files = [{"docid": docid, "file": name} for docid, name in collected]
        write_json({"word": left.word, "why": left.why, "files": files})
    return left.exit_code


def _collected(queue: str, driver: str, since: float) -> list[tuple[str, str]]:
    """Return the docids that a driver published, and as which files: its journal alone knows."""
    events = read_events(journal_path(queue), since).events
    ours = (one for one in events if one.driver == driver and one.event in _ARRIVED)
    return [(one.docid, name) for one in ours for name in one.outputs or ()]


def _summarize(left: Left, collected: Sequence[tuple[str, str]], dest: str) -> None:
    second = [(docid, name) for docid, name in collected if name != docid]
    there = f"in {dest} already; this one is"
    say_some([f"there was a {docid!r} {there} {name!r}" for docid, name in second], "file")
    words = f"{format_count(len(collected), 'file')} collected in {dest}"
    if left.counters.discarded:
        words += f", {left.counters.discarded:,} discarded: they were not files"
    # What ends well needs no reason.
    say(words if left.word in ("drained", "done") else f"{words}; {left.word}: {left.why}")
