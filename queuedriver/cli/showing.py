"""How documents look: in a line of `list`, all of one in `show`, and for programs."""

from collections.abc import Iterator
from typing import Any

from queuedriver.cli.render import Paint, escape, escape_name
from queuedriver.format import names
from queuedriver.format.records import Attempt, Failure
from queuedriver.format.units import first_line, format_duration, format_instant, format_size
from queuedriver.operating.document_view import DocumentView, Place

DISCARDED = "discarded"
STATES = (*names.STATES, DISCARDED)

# Wide enough for the usual; what is longer pushes the rest of its line aside. The docid comes
# last, because nothing bounds it and nobody wants it cut.
_FORM = "{:<9}  {:>3}  {:>12}  {:<16}  {}"
HEAD = _FORM.format("STATE", "TRY", "AGE", "DRIVER", "DOCUMENT")
_INDENT = "    "


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


def as_json(seen: DocumentView, sentence: str) -> dict[str, object]:
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


def lines(seen: DocumentView, sentence: str, paint: Paint) -> Iterator[str]:
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
    yield f"  {paint.bad(escape_name(cause))}: {_indented(failure.message).strip()}"
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
            yield _indented(text)


def _indented(text: str) -> str:
    return "\n".join(f"{_INDENT}{line}" for line in escape(text).rstrip("\n").split("\n"))
