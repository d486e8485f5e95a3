"""What may come of processing a document. Pure.

A processor answers with its outputs, or raises. What it raised becomes one of these values, and
the driver's table of what to do with each is `Driver._settle`.
"""

import traceback as tb

import msgspec

from queuedriver.errors import Interrupted, PermanentError, ProcessorFailed, TryLater

# The whole traceback of a deep recursion is nobody's reading; both its ends are.
_MAX_TRACEBACK = 32 * 1024


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt did not work: what a discarded document's report says of it."""

    # exception, permanent, exit, signal, timeout, hung, crashed, bad-answer, not-a-file, server
    cause: str
    message: str
    permanent: bool = False
    traceback: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    stderr_tail: str | None = None
    stacks: str | None = None
    peak_memory: int | None = None


class Failed(msgspec.Struct, frozen=True):
    """The attempt is charged."""

    failure: Failure


class Postponed(msgspec.Struct, frozen=True):
    """Given back uncharged, not to be tried for a while."""

    after: float
    reason: str


class Released(msgspec.Struct, frozen=True):
    """Given back uncharged: it was interrupted, or the file system had trouble."""

    reason: str


Setback = Failed | Postponed | Released


def from_exception(error: BaseException) -> Setback:
    """What a processor meant by raising this."""
    match error:
        case TryLater():
            return Postponed(error.after, error.reason)
        case ProcessorFailed():
            return Failed(error.failure)
        case PermanentError():
            return Failed(_failure("permanent", error, permanent=True))
        case Interrupted(reason="leaving"):
            return Released("the driver was asked to leave")
        case Interrupted():
            message = "the document took longer than its time-out"
            return Failed(Failure(cause="timeout", message=message, stacks=_traceback(error)))
    return Failed(_failure("exception", error))


def _failure(cause: str, error: BaseException, permanent: bool = False) -> Failure:
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failure(cause=cause, message=words, permanent=permanent, traceback=_traceback(error))


def _traceback(error: BaseException) -> str:
    text = "".join(tb.format_exception(error))
    if len(text) <= _MAX_TRACEBACK:
        return text
    half = _MAX_TRACEBACK // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
