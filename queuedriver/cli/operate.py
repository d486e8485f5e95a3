"""`retry`, `discard`, `pause`, `resume`, `quit`, `close`, `recover`: what an operator does."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
import typer

from queuedriver.cli import say
from queuedriver.cli.arguments import confirm, docids, duration, opened
from queuedriver.cli.render import escape_name, write, write_json
from queuedriver.disk.journal import Journal
from queuedriver.errors import BadArgument
from queuedriver.format import names
from queuedriver.format.event import Event
from queuedriver.format.units import format_count, format_duration
from queuedriver.operating import operations
from queuedriver.operating.document_view import docid_of
from queuedriver.operating.operations import Result, Unjudged
from queuedriver.operating.queue import Queue

# More messages of one kind than this tell nobody more.
_SHOWN = 20
_FAILED = 1
_MISSING = 66
_LATER = 75

_Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's directory.")]
_Queues = Annotated[list[str], typer.Argument(metavar="QUEUE...", help="The queues' directories.")]
_Docids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="(DOCID... | -)",
        help="The documents; the names of their files will do. -: those on stdin, one a line.",
    ),
]
_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_Json = Annotated[bool, typer.Option("--json", help="Print what came of each.")]


def retry(
    queue: _Queue,
    docid: _Docids = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that were discarded or have failed; needs --yes.")
    ] = False,
    yes: _Yes = False,
    as_json: _Json = False,
) -> int:
    """Let documents be tried again, as if they never had been.

    A discarded document goes back into the queue, and its report away; one that has failed, or is
    not due yet, waits as if it were new.
    """
    with opened(queue) as found, noting(found) as journal:
        if everything:
            if docid:
                raise BadArgument("--all, or DOCIDs, but not both")
            chosen = dict.fromkeys(found.discarded())
            chosen |= {item.docid: None for _, item in found.items() if item.state == "failed"}
            if chosen:
                what = format_count(len(chosen), "document")
                confirm(f"retry {what} of {found.path}", yes)
            wanted = list(chosen)
        else:
            wanted = meant(docid)
        return _told(found, operations.retry(found, wanted, journal), as_json)


def discard(
    queue: _Queue,
    docid: _Docids = None,
    state: Annotated[
        Literal["ready", "failed", "later"] | None,
        typer.Option(help="All that wait in this state; needs --yes."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that wait; needs --yes.")] = False,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="What their reports are to say.")
    ] = "discarded by an operator",
    yes: _Yes = False,
    as_json: _Json = False,
) -> int:
    """Discard waiting documents.

    Each goes to discarded/ in the queue, untouched, with a report beside it that says why. What
    is being processed cannot be discarded: pause the queue, or wait. `retry` takes it back.
    """
    states = ("ready", "failed", "later") if everything else (state,) if state else ()
    if states and docid:
        raise BadArgument("--all, --state, or DOCIDs, but only one of them")
    wanted = [] if states else meant(docid)
    with opened(queue) as found, noting(found) as journal:
        if states:
            listing = found.listing(time.time())
            count = sum(getattr(listing, one) for one in states)
            if not count:
                return 0
            confirm(f"discard {format_count(count, 'document')} of {found.path}", yes)
        return _told(found, operations.discard(found, wanted, states, reason, journal), as_json)


@contextlib.contextmanager
def noting(queue: Queue) -> Iterator[Journal]:
    """Where what is done is noted; if it cannot be, that is said."""
    with operations.journal_of(queue) as journal:
        yield journal
    if journal.unnoted:
        say(journal.unnoted)


def meant(given: Sequence[str] | None) -> list[str]:
    """The docids that a command line names, by whatever name of their files."""
    if not given:
        raise BadArgument("which documents? name DOCIDs, or - to read them from stdin")
    # What a shell makes of `discarded/*` will do: docids have no path, and no such ending.
    found = [docid_of(one).removesuffix(names.REPORT) for one in docids(given)]
    return list(dict.fromkeys(found))


def _told(queue: Queue, results: Sequence[Result], as_json: bool) -> int:
    code = answer(results)
    if as_json:
        documents = [one._asdict() for one in results]
        write_json({"queue": queue.path, "documents": documents})
    return code


def answer(results: Sequence[Result]) -> int:
    """Say what is not as it was wanted; the exit code that says so."""
    amiss = [one for one in results if one.came != "done"]
    for one in amiss[:_SHOWN]:
        say(one.why)
    if len(amiss) > _SHOWN:
        say(f"and {format_count(len(amiss) - _SHOWN, 'more document')} likewise")
    came = Counter(one.came for one in results)
    if came["missing"]:
        return _MISSING
    return _FAILED if came["refused"] else 0


# Control files


def pause(queue: _Queues) -> None:
    """Let the drivers of a queue claim nothing new.

    They finish the documents at hand, and wait until `resume`.
    """
    _control(queue, {names.PAUSE: True})


def resume(queue: _Queues) -> None:
    """Undo `pause` and `quit`."""
    _control(queue, {names.PAUSE: False, names.QUIT: False})


def quit(queue: _Queues) -> None:
    """Let the drivers of a queue leave, after the documents at hand.

    Until `resume`, drivers that are started leave at once.
    """
    _control(queue, {names.QUIT: True})


def close(queue: _Queues) -> None:
    """Say that nothing more will be submitted to a queue.

    Its drivers leave when it is empty, and close the queues that it feeds. `put --reopen` goes on.
    """
    _control(queue, {names.DONE: True})


def _control(paths: Sequence[str], wanted: dict[str, bool]) -> None:
    # All are opened first: a slip in the last name changes none of them.
    for path in paths:
        with opened(path):
            pass
    for path in paths:
        with opened(path) as queue:
            for name, there in wanted.items():
                queue.set_control(name, wanted=there)


# Recover


def recover(
    queue: _Queue,
    lease: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long a driver elsewhere may be silent, and live."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was recovered.")] = False,
) -> int:
    """Finish or take back what dead drivers left.

    Any driver of the queue does so by itself; this is for a queue without one. That a process of
    this host is gone is certain at once. A driver of another host, or one that never registered,
    is dead when it has been silent for the lease (3 min, or what it says itself); a driver of the
    queue sees that. --lease 0 says that they are all gone. A wrong guess costs the time spent on a
    document, never the document.

    Exit code 75: there are claims of which nobody can say yet.
    """
    seconds = None if lease is None else duration("--lease", lease)
    with opened(queue) as found, noting(found) as journal:
        events, unjudged, seconds = operations.recover(found, journal, seconds)
    if as_json:
        _print_recovered(found, events, unjudged)
    else:
        for event in events:
            write(_line(event))
    for words in _unknown_drivers(found, unjudged, seconds):
        say(words)
    return _LATER if unjudged else 0


def _unknown_drivers(queue: Queue, unjudged: Sequence[Unjudged], lease: float) -> Iterator[str]:
    """Yield a line for each driver that may be dead, and what to do about it."""
    counts = Counter((one.driver, one.host) for one in unjudged)
    for (driver, host), count in sorted(counts.items()):
        there = f"on {escape_name(host)}, which cannot be seen from here"
        where = there if host else "which never registered"
        yield f"{format_count(count, 'claim')} of driver {driver} {where}"
    if counts:
        yield (
            f"queuedriver run {escape_name(queue.path)} sees within {format_duration(lease)} "
            "whether they live; if they are gone for certain, use --lease 0"
        )


def _line(event: Event) -> str:
    words = f"{event.docid}: {event.event}"
    if event.message:
        words += f", {event.message}"
    if event.renamed:
        words += f"; it goes on as {event.renamed}"
    return escape_name(words)


def _print_recovered(queue: Queue, events: Sequence[Event], unjudged: Sequence[Unjudged]) -> None:
    write_json(
        {
            "queue": queue.path,
            "recovered": [msgspec.to_builtins(event) for event in events],
            "unjudged": [one._asdict() for one in unjudged],
        }
    )
