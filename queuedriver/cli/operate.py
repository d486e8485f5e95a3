"""`retry`, `discard`, `pause`, `resume`, `quit`, `close`, `recover`: what an operator does."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from queuedriver.claims.liveness import Observer
from queuedriver.cli import say, say_some
from queuedriver.cli.arguments import AS_JSON, QUEUE, QUEUES, YES, confirm, warn_of
from queuedriver.cli.docids import by_glob, matching, meant
from queuedriver.cli.render import escape_name, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.journal import Journal
from queuedriver.errors import LATER, BadArgument, NotFound
from queuedriver.format import names
from queuedriver.format.event import Event
from queuedriver.format.units import format_count
from queuedriver.operating import operations
from queuedriver.operating.operations import Result, Unjudged
from queuedriver.operating.queue import Queue, opened

_FAILED = 1

_DOCIDS = argument(
    "(DOCID... | -)",
    "The documents, or globs; names of files will do. -: those on stdin, one a line.",
)


def retry(
    queue: str = QUEUE,
    docid: list[str] | None = _DOCIDS,
    everything: bool = flag("All that were discarded or have failed; needs --yes.", "--all"),
    yes: bool = YES,
    as_json: bool = AS_JSON,
) -> int:
    """Let documents be tried again, as if they never had been.

    A discarded document goes back into the queue, and its report away; one that has failed, or is
    not due yet, waits as if it were new.
    """
    if everything and docid:
        raise BadArgument("--all, or DOCIDs, but not both")
    with opened(queue) as found, noting(found) as journal:
        waiting = {item.docid: item.state for _, item in found.items()}
        discarded = found.discarded()
        if everything:
            failed = [one for one, state in waiting.items() if state == "failed"]
            wanted = list(dict.fromkeys((*discarded, *failed)))
        else:
            wanted = matching(meant(docid), dict.fromkeys((*discarded, *waiting)))
        if wanted and (everything or by_glob(docid, wanted)):
            confirm(f"retry {format_count(len(wanted), 'document')} of {found.path}", yes)
        results = operations.retry(found, wanted, journal)
        if any(one.came == "done" for one in results):
            warn_of(found)
        return _told(found, results, as_json)


def discard(
    queue: str = QUEUE,
    docid: list[str] | None = _DOCIDS,
    state: Literal["ready", "failed", "later"] | None = option(
        "", "All that wait in this state; needs --yes."
    ),
    everything: bool = flag("All that wait; needs --yes.", "--all"),
    reason: str = option(
        "TEXT", "What their reports are to say.", default="discarded by an operator"
    ),
    yes: bool = YES,
    as_json: bool = AS_JSON,
) -> int:
    """Discard waiting documents.

    Each goes to discarded/ in the queue, untouched, with a report beside it that says why. What
    is being processed cannot be discarded: pause the queue, or wait. `retry` takes it back.
    """
    states = names.WAITING if everything else (state,) if state else ()
    if states and docid:
        raise BadArgument("--all, --state, or DOCIDs, but only one of them")
    with opened(queue) as found, noting(found) as journal:
        if states:
            wanted: list[str] = []
            listing = found.listing(time.time())
            count = sum(getattr(listing, one) for one in states)
            if not count:
                return 0
        else:
            known = {item.docid: None for _, item in found.items() if item.state in names.WAITING}
            wanted = matching(meant(docid), known)
            count = len(wanted)
        if count and (states or by_glob(docid, wanted)):
            confirm(f"discard {format_count(count, 'document')} of {found.path}", yes)
        return _told(found, operations.discard(found, wanted, states, reason, journal), as_json)


@contextlib.contextmanager
def noting(queue: Queue) -> Iterator[Journal]:
    """Open the journal in which what is done is noted; say so when it could not be."""
    with operations.journal_of(queue) as journal:
        yield journal
    if journal.unnoted:
        say(journal.unnoted)


def _told(queue: Queue, results: Sequence[Result], as_json: bool) -> int:
    code = report_refusals(results)
    if as_json:
        write_json({"queue": queue.path, "documents": [one._asdict() for one in results]})
    return code


def report_refusals(results: Sequence[Result]) -> int:
    """Say why documents were not changed; return the exit code."""
    say_some([one.why for one in results if one.why], "document")
    came = Counter(one.came for one in results)
    if came["missing"]:
        return NotFound.exit_code
    return _FAILED if came["refused"] else 0


# Control files


def pause(queue: list[str] = QUEUES) -> None:
    """Let the drivers of a queue claim nothing new.

    They finish the documents at hand, and wait until `resume`.
    """
    _control(queue, {names.PAUSE: True})


def resume(queue: list[str] = QUEUES) -> None:
    """Undo `pause` and `quit`, and let a stage go on that has stopped itself."""
    _control(queue, {names.PAUSE: False, names.QUIT: False})
    for path in queue:
        with opened(path) as one:
            operations.resume(one)


def quit(queue: list[str] = QUEUES) -> None:
    """Let the drivers of a queue leave, after the documents at hand.

    Until `resume`, drivers that are started leave at once.
    """
    _control(queue, {names.QUIT: True})


def close(queue: list[str] = QUEUES) -> None:
    """Say that nothing more will be submitted to a queue.

    Its drivers leave when it is empty, and close the queues that it feeds. `reopen` undoes it. To
    end for today alone, `run --drain` is enough: it closes nothing.
    """
    _control(queue, {names.DONE: True})


def reopen(queue: list[str] = QUEUES) -> None:
    """Undo `close`."""
    _control(queue, {names.DONE: False})


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
    queue: str = QUEUE,
    lease: float | None = option("TIME", "How long a driver elsewhere may be silent, and live."),
    output: list[str] | None = option("DIR", "Where an output is by now; each in its order."),
    as_json: bool = AS_JSON,
) -> int:
    """Finish or take back what dead drivers left.

    Any driver of the queue does so by itself; this is for a queue without one. That a process of
    this host is gone is certain at once. Whether a driver of another host, or one that never
    registered, is dead, only a driver that runs for its lease can see; --lease 0 says that they
    are all gone. A wrong guess costs the time spent on a document, never the document.

    What was committed is finished only in the directories that its driver had opened. Where the
    path of an output leads elsewhere by now, as a link that was turned, --output names that one.

    Exit code 75: there are claims of which nobody can say yet, or that cannot be recovered.
    """
    with opened(queue) as found, noting(found) as journal:
        recovered = operations.recover(found, journal, Observer(lease=lease), output or ())
    events, unjudged = recovered.events, recovered.unjudged
    if as_json:
        unknown = [one._asdict() for one in unjudged]
        write_json({"queue": found.path, "recovered": events, "unjudged": unknown})
    else:
        for event in events:
            print(_line(event))
    _say_unknown_drivers(unjudged)
    if stuck := sum(event.event == "stuck" for event in events):
        say(
            f"{format_count(stuck, 'claim')} cannot be recovered; if its outputs are in another "
            "directory by now, as where a link was turned, name that: --output DIR"
        )
    return LATER if unjudged or stuck else 0


def _say_unknown_drivers(unjudged: Sequence[Unjudged]) -> None:
    """Say which drivers may be dead, a line for each, and what to do about it."""
    counts = Counter((one.driver, one.host) for one in unjudged)
    for (driver, host), count in sorted(counts.items()):
        there = f"on {escape_name(host)}, which cannot be seen from here"
        where = there if host else "which never registered"
        say(f"{format_count(count, 'claim')} of driver {driver} {where}")
    if counts:
        say("start a driver, which sees whether they live; if they are gone, use --lease 0")


def _line(event: Event) -> str:
    words = f"{event.docid}: {event.event}"
    if event.message:
        words += f", {event.message}"
    if event.renamed:
        words += f"; it goes on as {event.renamed}"
    return escape_name(words)
