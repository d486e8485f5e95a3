"""`list`, `show`, `why` and `history`: commands that look and change nothing; and how a document
looks: in a line of `list`, all of it in `show`, and for programs."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from queuedriver.cli import say
from queuedriver.cli.arguments import AS_JSON, QUEUE, warn_of_trip
from queuedriver.cli.render import Paint, escape, escape_name, paint_for, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Reading
from queuedriver.errors import BadArgument, NotFound, explained
from queuedriver.format import names
from queuedriver.format.records import Attempt, Failure, describe_event
from queuedriver.format.units import (
    first_line,
    format_count,
    format_duration,
    format_instant,
    format_size,
)
from queuedriver.operating import document_view
from queuedriver.operating.document_view import (
    DocumentView,
    Place,
    docid_of,
    explain,
    extended,
    gather,
    list_places,
)
from queuedriver.operating.queue import Queue

DISCARDED = "discarded"
STATES = (*names.STATES, DISCARDED)

# Wide enough for the usual; what is longer pushes the rest of its line aside. The docid comes
# last, because nothing bounds it and nobody wants it cut.
_FORM = "{:<9}  {:>3}  {:>12}  {:<16}  {}"
HEAD = _FORM.format("STATE", "TRY", "AGE", "DRIVER", "DOCUMENT")
_INDENT = "    "

DOCID = argument("DOCID", "The document; the name of its file will do.")


def list_items(
    queue: str = QUEUE,
    state: list[str] | None = option("STATE", "Only these; may be given more than once."),
    as_json: bool = flag("Print JSON, one a line.", "--json"),
) -> None:
    """List the documents of a queue, one a line, in the order of the directory.

    States: ready, failed, later, working, written, writing, failed_twice, discarded.
    """
    for one in state or ():
        if one not in STATES:
            raise BadArgument(f"no state {one!r}; there are: {', '.join(STATES)}")
    with Queue.open(queue) as opened:
        found = list_places(opened, state or STATES)
        if as_json:
            for place in found:
                write_json(line_as_json(place), indent=None)
            return
        warn_of_trip(opened)
        now = time.time()
        for index, place in enumerate(found):
            if not index:
                print(paint_for(sys.stdout).head(HEAD))
            print(line(place, now))


def show(queue: str = QUEUE, docid: str = DOCID, as_json: bool = AS_JSON) -> None:
    """Show all that is known of a document.

    Its files, its attempts, and of one that was discarded the whole report: the cause, the
    traceback or exit code, the end of stderr, the stacks.
    """
    with _document(queue, docid) as seen:
        sentence = explain(seen)
        if as_json:
            write_json(_document_as_json(seen, sentence))
            return
        print(*_document_lines(seen, sentence, paint_for(sys.stdout)), sep="\n")


def why(queue: str = QUEUE, docid: str = DOCID) -> None:
    """Say in a sentence why a document is where it is; or, of a folder that an intake takes from,
    what a file in it waits for."""
    if sentence := _of_folder(queue, docid):
        print(escape_name(f"{docid}: {sentence}"))
        return
    with _document(queue, docid) as seen:
        print(escape_name(f"{seen.docid}: {explain(seen)}"))


def history(queue: str = QUEUE, docid: str = DOCID, as_json: bool = AS_JSON) -> None:
    """Tell what happened to a document: when, by which driver, on which host, how long it took."""
    with _document(queue, docid) as seen:
        events = document_view.history(seen)
        if as_json:
            found = {"queue": seen.around.queue, "docid": seen.docid}
            write_json({**found, "events": events})
        else:
            for event in events:
                print(describe_event(event))
    warn_of_gaps([seen.journal])


def warn_of_gaps(readings: Sequence[Reading]) -> None:
    """Say what could not be read of journals, so that nobody takes silence for a fact."""
    for path in sorted({path for one in readings for path in one.unreadable}):
        say(f"{path} could not be read")
    if skipped := max((one.skipped for one in readings), default=0):
        journal = "journal" if len(readings) == 1 else "journals"
        say(f"damaged and left out: {format_count(skipped, 'line')} of the {journal}")


def _of_folder(folder: str, path: str) -> str:
    """Return what a file of a folder waits for; "" where no intake takes from it."""
    # Late: few ask for that.
    from queuedriver.intake import examining

    with explained(folder), Directory.open(folder) as opened:
        return examining.why(opened, path)


@contextmanager
def _document(queue: str, text: str) -> Iterator[DocumentView]:
    """Gather what is known of the document that was meant; NotFound when that is nothing."""
    with Queue.open(queue) as opened:
        seen = gather(opened, docid_of(text))
        if seen.unknown and (docid := extended(opened, seen.docid)):
            seen = gather(opened, docid)
        if seen.unknown:
            raise NotFound(
                f"no document {seen.docid!r} is or was in {seen.around.queue}; "
                f"queuedriver list {seen.around.queue} shows what is there"
            )
        yield seen


# One line each


def line_as_json(place: Place) -> dict[str, object]:
    """Return what is known of one for programs. Instants are seconds since the epoch."""
    claim, report = place.claim, place.report
    known = {
        "docid": place.docid,
        "state": place.state,
        "attempt": place.attempt or None,
        "name": place.name,
        "size": place.size,
        "modified_at": place.modified_at or None,
        "claimed_at": (claim.claimed_at or None) if claim else None,
        "due": place.due or None,
        "driver": _driver(place) or None,
        "discarded_at": report and report.discarded_at,
        "cause": report and report.failure.cause,
        "message": report and report.failure.message,
    }
    return {key: value for key, value in known.items() if value is not None}


def line(place: Place, now: float) -> str:
    """Return one line for people. The age is since it was claimed, discarded or written; or until
    due."""
    claim, report = place.claim, place.report
    since = place.modified_at
    name = escape_name(place.docid)
    if report is not None:
        since = report.discarded_at
        message = first_line(report.failure.message)
        name += escape_name(f"  {report.failure.cause}: {message}").rstrip(": ")
    elif place.state == DISCARDED:
        name += "  no report"
    elif claim is not None and claim.claimed_at:
        since = claim.claimed_at
    age = format_duration(now - since) if since else ""
    if place.due:
        age = f"in {format_duration(place.due - now)}" if place.due > now else "due"
    return _FORM.format(place.state, place.attempt, age, escape_name(_driver(place)), name)


def _driver(place: Place) -> str:
    known = place.report or place.claim
    return known.driver if known else ""


# All of one


def _document_as_json(seen: DocumentView, sentence: str) -> dict[str, object]:
    """Return one document for programs."""
    return {
        "docid": seen.docid,
        "queue": seen.around.queue,
        "at": seen.around.at,
        "why": sentence,
        "places": [place.as_json() for place in seen.places],
        "found": list(seen.found),
        "attempts": _attempts(seen),
        "report": seen.report,
    }


def _document_lines(seen: DocumentView, sentence: str, paint: Paint) -> Iterator[str]:
    """Yield one document for people."""
    yield paint.head(escape_name(seen.docid))
    for words in (sentence, *map(_place, seen.places), *seen.found):
        yield f"  {escape_name(words)}"
    report = seen.report
    attempts = _attempts(seen)
    for number, attempt in enumerate(attempts, 1):
        yield ""
        yield paint.head(f"Attempt {number} of {len(attempts)}")
        yield f"  {escape_name(_attempt(attempt))}"
        # The last one's failure is the report's.
        if report is None or attempt != report.attempts[-1]:
            yield from _failure(attempt.failure, paint)
    if report is not None:
        yield ""
        where = escape_name(f"by {report.driver} on {report.host}")
        yield f"{paint.head('Report')}  discarded at {format_instant(report.discarded_at)} {where}"
        yield from _failure(report.failure, paint)


def _attempts(seen: DocumentView) -> tuple[Attempt, ...]:
    """Return those of the report, and those that came after it if it was tried again."""
    reported = seen.report.attempts if seen.report is not None else ()
    return (*reported, *(one for one in seen.attempts if one not in reported))


def _place(place: Place) -> str:
    parts = [place.name, place.kind or format_size(place.size or 0)]
    if place.modified_at:
        parts.append(f"written at {format_instant(place.modified_at)}")
    if (claim := place.claim) is not None and claim.serial:
        parts.append(f"claimed by {claim.driver} at {format_instant(claim.claimed_at)}")
    if place.written is not None:
        parts.append(f"{format_size(place.written)} of its output so far")
    return "  ".join(parts)


def _attempt(attempt: Attempt) -> str:
    took = format_duration(attempt.ended_at - attempt.claimed_at)
    when = f"{format_instant(attempt.claimed_at)} to {format_instant(attempt.ended_at)} ({took})"
    counted = "" if attempt.counted else ", not counted"
    return f"{when} by {attempt.driver} on {attempt.host}{counted}"


def _failure(failure: Failure, paint: Paint) -> Iterator[str]:
    cause = failure.cause + (", never to be tried again" if failure.permanent else "")
    yield f"  {paint.bad(escape_name(cause))}: {_indent(failure.message).strip()}"
    memory = failure.peak_memory
    facts: dict[str, Any] = {
        "exit code": failure.exit_code,
        "signal": failure.signal,
        "peak memory": None if memory is None else format_size(memory),
    }
    for title, fact in facts.items():
        if fact is not None:
            yield f"  {title} {escape_name(str(fact))}"
    texts = {
        "traceback": failure.traceback,
        "end of stderr": failure.stderr_tail,
        "stacks": failure.stacks,
    }
    for title, text in texts.items():
        if text:
            yield f"  {title}:"
            yield _indent(text)


def _indent(text: str) -> str:
    return "\n".join(f"{_INDENT}{line}" for line in escape(text).rstrip("\n").split("\n"))
