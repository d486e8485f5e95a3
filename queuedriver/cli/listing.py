"""What `list` prints: one line for each document, as the directory has them, in constant memory."""

from queuedriver.cli.render import escape_name
from queuedriver.format import names
from queuedriver.format.units import first_line, format_duration
from queuedriver.operating.document_view import Place

DISCARDED = "discarded"
STATES = (*names.STATES, DISCARDED)

# Wide enough for the usual; what is longer pushes the rest of its line aside. The docid comes
# last, because nothing bounds it and nobody wants it cut.
_FORM = "{:<9}  {:>3}  {:>12}  {:<16}  {}"
HEAD = _FORM.format("STATE", "TRY", "AGE", "DRIVER", "DOCUMENT")


def as_json(place: Place) -> dict[str, object]:
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
        "discarded_at": report.discarded_at if report else None,
        "cause": report.failure.cause if report else None,
        "message": report.failure.message if report else None,
    }
    return {key: value for key, value in known.items() if value is not None}


def line(place: Place, now: float) -> str:
    """Return one line for people. The age is since it was claimed, discarded or written; or until
    due."""
    claim, report = place.claim, place.report
    since = place.modified_at
    if report is not None:
        since = report.discarded_at
    elif claim is not None and claim.claimed_at:
        since = claim.claimed_at
    age = format_duration(now - since) if since else ""
    if place.due:
        left = place.due - now
        age = f"in {format_duration(left)}" if left > 0 else "due"
    name = escape_name(place.docid)
    if place.state == DISCARDED:
        cause, message = ("no report", "")
        if report is not None:
            cause, message = report.failure.cause, report.failure.message
        name += f"  {escape_name(cause)}: {escape_name(first_line(message))}".rstrip(": ")
    return _FORM.format(place.state, place.attempt, age, escape_name(_driver(place)), name)


def _driver(place: Place) -> str:
    if place.report is not None:
        return place.report.driver
    return place.claim.driver if place.claim else ""
