"""A document of a queue as a TRACKEXEC, and what became of it as its RESPONSE. Pure.

    DOCUMENT / docid / attempt / payload
    0 / name / bytes / name / bytes …          its outputs; without a name, the document's
    1 or 65 / text [/ cause / traceback]       it failed; 65: it always would
    75 / text [/ seconds]                      later: in so many seconds; 0: at once

The id is the claim's: no broker ever uses it again, whatever comes late.
"""

import math
import re
from collections.abc import Sequence

from queuedriver import errors
from queuedriver.claims.outcomes import MAX_LATER, Failed, Postponed, Released, Setback
from queuedriver.doors import statuses
from queuedriver.doors.roundrobin.frames import DOCUMENT, TRACKEXEC, Message, count_of
from queuedriver.doors.statuses import MAX_TEXT, status
from queuedriver.doors.words import Processed, Result, Work
from queuedriver.errors import LATER_AFTER
from queuedriver.format.records import Failure

# What an answer begins with.
DONE, FAILED, PERMANENT, LATER = (
    b"%d" % code for code in (statuses.DONE, statuses.FAILED, statuses.PERMANENT, errors.LATER)
)
# Two frames each, and a message may have 64, eight hops included.
MAX_RESULTS = 24
# Bytes of a traceback: a report is for reading.
_MAX_TRACEBACK = 32 * 1024
_CAUSE = re.compile(rb"[a-z][a-z-]{0,31}")
_SECONDS = re.compile(rb"[0-9]{1,9}(\.[0-9]{1,6})?")


def question(work: Work) -> Message:
    """Return what a worker is sent."""
    args = (DOCUMENT, _bytes(work.docid), b"%d" % work.attempt, work.payload)
    return Message(TRACKEXEC, work.claim.encode("ascii"), args)


def document_of(message: Message, claim: str) -> Work | None:
    """Return what a worker is to process; None: it is no DOCUMENT as it should be."""
    if len(message.args) != 4 or message.key != DOCUMENT:
        return None
    _, docid, attempt, payload = message.args
    number = count_of(attempt)
    name = _text(docid)
    if number is None or name is None:
        return None
    return Work(claim, name, number, payload)


def answer_of(results: Sequence[Result]) -> tuple[bytes, ...]:
    """Return what a worker says of a document that was processed."""
    if len(results) > MAX_RESULTS:
        message = f"{len(results)} outputs; one answer takes at most {MAX_RESULTS}"
        return refusal_of(Failed(Failure(cause="bad-answer", message=message, permanent=True)))
    frames = ((_bytes(one.name or ""), one.data) for one in results)
    return (DONE, *(frame for pair in frames for frame in pair))


def refusal_of(how: Setback) -> tuple[bytes, ...]:
    """Return what a worker says of a document that was not."""
    code, text = status(how)
    said = b"%d" % code, _bytes(text)[:MAX_TEXT]
    match how:
        case Postponed():
            # Rounded up: 0 has a meaning of its own.
            return *said, b"%d" % max(1, math.ceil(min(how.after, MAX_LATER)))
        case Released():
            return *said, b"0"
    traceback = _bytes(how.failure.traceback or "")[:_MAX_TRACEBACK]
    return *said, _bytes(how.failure.cause), traceback


def outcome_of(args: Sequence[bytes]) -> Processed | Setback:
    """Return how an answer ends its document. What is no answer fails it: it had its turn."""
    said, rest = (args[0], args[1:]) if args else (b"", ())
    if said == DONE and len(rest) == 2 and not rest[0]:
        # As most answers are.
        return Processed((Result(rest[1]),))
    if said == DONE and len(rest) % 2 == 0:
        names = [_text(name) for name in rest[::2]]
        if None in names:
            return _failed("an output's name that is not UTF-8")
        results = zip(names, rest[1::2], strict=True)
        return Processed(tuple(Result(data, name or None) for name, data in results))
    text = _readable(rest[0] if rest else b"", MAX_TEXT)
    if said == LATER:
        return _later(text, rest)
    if said in (FAILED, PERMANENT):
        cause = rest[1] if len(rest) > 1 and _CAUSE.fullmatch(rest[1]) else b"exception"
        traceback = _readable(rest[2], _MAX_TRACEBACK) if len(rest) > 2 else ""
        failure = Failure(
            cause=cause.decode("ascii"),
            message=text or "the worker did not say why",
            permanent=said == PERMANENT,
            traceback=traceback or None,
        )
        return Failed(failure)
    shown = said[:20].decode("ascii", "backslashreplace")
    return _failed(f"an answer of status {shown!r} and {len(rest)} frames")


def _later(text: str, rest: Sequence[bytes]) -> Setback:
    if len(rest) < 2 or not _SECONDS.fullmatch(rest[1]):
        return Postponed(LATER_AFTER, text)
    seconds = float(rest[1])
    return Postponed(min(seconds, MAX_LATER), text) if seconds else Released(text)


def _failed(message: str) -> Failed:
    return Failed(Failure(cause="bad-answer", message=message))


def _readable(data: bytes, most: int) -> str:
    return data[:most].decode("utf-8", "replace")


def _text(name: bytes) -> str | None:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # A file name that is not UTF-8 reached Python with surrogates in it.
        return text.encode("utf-8", "backslashreplace")
