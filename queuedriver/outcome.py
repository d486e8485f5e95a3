"""What may come of processing a document. Pure.

A processor answers with its outputs, or raises. What it raised becomes one of these values, and
the driver's table of what to do with each is `Driver._settle`.
"""

import traceback as tb

import msgspec

from queuedriver.errors import (
    Interrupted,
    OutputMissing,
    PermanentError,
    ProcessorFailed,
    TakenBack,
    TryLater,
)

# The whole traceback of a deep recursion is nobody's reading; both its ends are.
_MAX_TRACEBACK = 32 * 1024
# A message with the whole document in it would make the report unreadable.
_MAX_MESSAGE = 8 * 1024
# The longest "later", in seconds. Longer is taken for a slip: milliseconds, or an instant.
MAX_LATER = 366 * 24 * 3600.0


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt did not work: what a discarded document's report says of it."""

    # exception, permanent, exit, signal, timeout, hung, crashed, bad-answer, not-a-file, server,
    # output-missing;
    # rebooted, lost: its host went down, it showed no life; operator: somebody wished it
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
    """The attempt is charged; or, if it is not `counted`, the third such, since it may have been
    the document that did it."""

    failure: Failure
    counted: bool = True


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
            return _postponed(error)
        case ProcessorFailed():
            return Failed(error.failure)
        case OutputMissing():
            return Failed(Failure(cause="output-missing", message=f"{error}"), counted=False)
        case TakenBack():
            return Released("its file was not there")
        case PermanentError():
            return Failed(_failure("permanent", error, permanent=True))
        case Interrupted(reason="leaving"):
            return Released("the driver was asked to leave")
        case Interrupted():
            message = "the document took longer than its time-out"
            return Failed(Failure(cause="timeout", message=message, stacks=_traceback(error)))
    return Failed(_failure("exception", error))


def _postponed(error: TryLater) -> Setback:
    after: object = error.after
    # NaN is neither.
    if not isinstance(after, int | float) or not (after < 0 or after <= MAX_LATER):
        message = f"TryLater(after={after!r}): not a number of seconds to wait"
        return Failed(Failure(cause="bad-answer", message=message))
    return Postponed(max(after, 0.0), error.reason)


def _failure(cause: str, error: BaseException, permanent: bool = False) -> Failure:
    kind = type(error).__name__
    try:
        words = f"{kind}: {error}" if str(error) else kind
    except Exception as broken:  # noqa: BLE001 - what is the user's includes how an error is shown
        words = f"{kind}, which cannot be shown ({type(broken).__name__})"
    message = _cut(words, _MAX_MESSAGE)
    return Failure(cause=cause, message=message, permanent=permanent, traceback=_traceback(error))


def _traceback(error: BaseException) -> str:
    return _cut("".join(tb.format_exception(error)), _MAX_TRACEBACK)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
