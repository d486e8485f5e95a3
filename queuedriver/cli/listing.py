"""What `list` prints: one line for each document, as the directory has them, in constant memory."""

from collections.abc import Collection, Iterator

import msgspec

from queuedriver.cli.render import escape_name
from queuedriver.format import names
from queuedriver.format.units import format_duration
from queuedriver.operating.queue import Queue

DISCARDED = "discarded"
STATES = (*names.STATES, DISCARDED)

# Wide enough for the usual; what is longer pushes the rest of its line aside. The docid comes
# last, because nothing bounds it and nobody wants it cut.
_FORM = "{:<9}  {:>3}  {:>12}  {:<16}  {}"
HEAD = _FORM.format("STATE", "TRY", "AGE", "DRIVER", "DOCUMENT")


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A document in a state. Instants are seconds since the epoch; `name` is its file's."""

    docid: str
    state: str
    attempt: int = 0
    name: str
    size: int | None = None
    modified_at: float | None = None
    claimed_at: float | None = None
    due: int | None = None
    driver: str | None = None
    discarded_at: float | None = None
    cause: str | None = None
    message: str | None = None


def entries(queue: Queue, states: Collection[str]) -> Iterator[Entry]:
    """Yield every document in one of the states; those in the queue, then those in `discarded/`."""
    if any(state != DISCARDED for state in states):
        for name, item in queue.items():
            if item.state in states:
                yield _entry(queue, name, item)
    if DISCARDED in states:
        for docid in queue.each_discarded():
            yield _discarded(queue, docid)


def _entry(queue: Queue, name: str, item: names.Item) -> Entry:
    size = modified_at = None
    try:
        found = queue.directory.status(name)
        size, modified_at = found.size, found.mtime_ns / 1e9
    except FileNotFoundError:
        # It has moved on since; what its name said is still what was seen.
        pass
    token = names.parse_token(item.token) if item.token else None
    return Entry(
        docid=item.docid,
        state=item.state,
        attempt=item.attempt,
        name=name,
        size=size,
        modified_at=modified_at,
        claimed_at=(token.claimed_at or None) if token else None,
        due=item.due or None,
        driver=token.driver if token else None,
    )


def _discarded(queue: Queue, docid: str) -> Entry:
    report = queue.report(docid)
    return Entry(
        docid=docid,
        state=DISCARDED,
        attempt=len(report.attempts) if report else 0,
        name=f"{names.DISCARDED}/{docid}",
        driver=report.driver if report else None,
        discarded_at=report.discarded_at if report else None,
        cause=report.failure.cause if report else None,
        message=report.failure.message if report else None,
    )


def line(entry: Entry, now: float) -> str:
    """Return one line for people. The age is since claimed, discarded or written, or until due."""
    since = entry.claimed_at or entry.discarded_at or entry.modified_at
    age = "" if since is None else format_duration(now - since)
    if entry.due:
        left = entry.due - now
        age = f"in {format_duration(left)}" if left > 0 else "due"
    name = escape_name(entry.docid)
    if entry.state == DISCARDED:
        first = (entry.message or "").strip().split("\n")[0]
        name += f"  {escape_name(entry.cause or 'no report')}: {escape_name(first)}".rstrip(": ")
    return _FORM.format(entry.state, entry.attempt, age, escape_name(entry.driver or ""), name)
