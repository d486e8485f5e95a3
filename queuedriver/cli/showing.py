"""How `show` looks: all that is known of one document, its report included."""

from collections.abc import Iterator

import msgspec

from queuedriver.cli.render import Paint, escape, escape_name
from queuedriver.format.records import Attempt, Failure
from queuedriver.format.units import format_duration, format_instant, format_size
from queuedriver.operating.document_view import DocumentView, Place

_INDENT = "    "


def as_json(seen: DocumentView, sentence: str) -> dict[str, object]:
    """Return one document for programs."""
    report = seen.report
    return {
        "docid": seen.docid,
        "queue": seen.queue,
        "at": seen.at,
        "why": sentence,
        "places": [place_as_json(place) for place in seen.places],
        "found": list(seen.found),
        "attempts": msgspec.to_builtins(_attempts(seen)),
        "report": None if report is None else msgspec.to_builtins(report),
    }


def place_as_json(place: Place) -> dict[str, object]:
    """Return a file of a document for programs, without its report."""
    plain: dict[str, object] = msgspec.to_builtins(place)
    del plain["report"]
    return plain


def lines(seen: DocumentView, sentence: str, paint: Paint) -> Iterator[str]:
    """Yield one document for people."""
    yield paint.head(escape_name(seen.docid))
    yield f"  {escape_name(sentence)}"
    for place in seen.places:
        yield f"  {_place(place)}"
    yield from (f"  {escape_name(path)}" for path in seen.found)
    report = seen.report
    attempts = _attempts(seen)
    for number, attempt in enumerate(attempts, 1):
        yield ""
        yield paint.head(f"Attempt {number} of {len(attempts)}")
        yield from _attempt(attempt)
        # The last one's failure is the report's.
        if report is None or attempt != report.attempts[-1]:
            yield from _failure(attempt.failure, paint)
    if report is not None:
        yield ""
        when = format_instant(report.discarded_at)
        where = f"by {report.driver} on {report.host}"
        yield paint.head("Report") + f"  discarded at {when} {escape_name(where)}"
        yield from _failure(report.failure, paint)


def _attempts(seen: DocumentView) -> tuple[Attempt, ...]:
    """Return those of the report, and those that came after it if it was tried again."""
    reported = seen.report.attempts if seen.report is not None else ()
    return (*reported, *(one for one in seen.attempts if one not in reported))


def _place(place: Place) -> str:
    parts = [escape_name(place.name), place.kind or format_size(place.size or 0)]
    if place.modified_at:
        parts.append(f"written at {format_instant(place.modified_at)}")
    if (claim := place.claim) is not None and claim.serial:
        parts.append(f"claimed by {claim.driver} at {format_instant(claim.claimed_at)}")
    if place.written is not None:
        parts.append(f"{format_size(place.written)} of its output so far")
    return "  ".join(parts)


def _attempt(attempt: Attempt) -> Iterator[str]:
    took = format_duration(attempt.ended_at - attempt.claimed_at)
    yield (
        f"  {format_instant(attempt.claimed_at)} to {format_instant(attempt.ended_at)} ({took}) "
        + escape_name(f"by {attempt.driver} on {attempt.host}")
        + ("" if attempt.counted else ", not counted")
    )


def _failure(failure: Failure, paint: Paint) -> Iterator[str]:
    cause = failure.cause + (", never to be tried again" if failure.permanent else "")
    yield f"  {paint.bad(escape_name(cause))}: {_indented(failure.message).strip()}"
    if failure.exit_code is not None:
        yield f"  exit code {failure.exit_code}"
    if failure.signal is not None:
        yield f"  signal {escape_name(failure.signal)}"
    if failure.peak_memory is not None:
        yield f"  peak memory {format_size(failure.peak_memory)}"
    for title, text in (
        ("traceback", failure.traceback),
        ("end of stderr", failure.stderr_tail),
        ("stacks", failure.stacks),
    ):
        if text:
            yield f"  {title}:"
            yield _indented(text)


def _indented(text: str) -> str:
    return "\n".join(f"{_INDENT}{line}" for line in escape(text).rstrip("\n").split("\n"))
