"""How an attempt ends: done, failed, later or released. Pure.

A processor answers with its outputs, or raises; what it raised becomes one of these values.
`InputQueue.end` applies them. And what of a failure speaks of the disk, rather than the document.
"""

import errno
import re
import traceback as tb
from signal import SIGHUP, SIGINT, SIGQUIT, SIGTERM

import msgspec

from queuedriver.errors import Interrupted, PermanentError, ProcessorFailed, TakenBack, TryLater
from queuedriver.format.records import Failure

# The whole traceback of a deep recursion is nobody's reading; both its ends are.
_MAX_TRACEBACK = 32 * 1024
# A message with the whole document in it would make the report unreadable.
_MAX_MESSAGE = 8 * 1024
# What the operating system says of one item, where the directory can be written: another user's in
# a sticky directory, a mount point, a directory, a name too long for a state.
OF_THE_ITEM = frozenset(
    {errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV, errno.ENAMETOOLONG}
    | {errno.ENOTEMPTY, errno.EISDIR}
)
# As strerror(3) says it in English, and what programs make of it.
_FULL = re.compile(r"(?i)no space left on device|disk quota exceeded|ENOSPC|EDQUOT")
_PARTICULARS = re.compile(r"""'[^']*'|"[^"]*"|/[^\s:,;]+|0x[0-9a-fA-F]+|[0-9]+""")
# A frame of a traceback; and whose file is none of the user's.
_FRAME = re.compile(r"(?m)^  File \"(.*)\", line \d+, in (.*)$")
_NOT_THE_USERS = re.compile(r"/(site|dist)-packages/|/lib/python3|/queuedriver/[a-z]+/|^<frozen")
# What a document is to blame for, whatever else is wrong.
_OWN_FAULT = frozenset({"permanent", "not-a-file", "too-large", "operator"})
# How what a stop has ended may have failed: a program, or a function that had started one.
_BY_A_STOP = frozenset({"exit", "signal", "server", "exception"})
# What asks programs to end; and how shells, and what runs in them, say that it did.
_STOPS = {one.name: 128 + one for one in (SIGHUP, SIGINT, SIGQUIT, SIGTERM)}
# What code of the user's may raise: all there is. What ends a program, a task (CancelledError of
# asyncio) or a wait (Timeout of gevent) is no Exception.
ANYTHING = BaseException
# The longest "later", in seconds. Longer is taken for a slip: milliseconds, or an instant.
MAX_LATER = 366 * 24 * 3600.0


class Done(msgspec.Struct, frozen=True):
    """Its outputs are written: to be handed over."""


DONE = Done()


class Failed(msgspec.Struct, frozen=True):
    """The attempt is charged, unless the file system turns out to be at fault."""

    failure: Failure
    # What was raised, where that may speak of the file system.
    error: OSError | None = None


class Doubted(Failed, frozen=True):
    """Given back, as something else may be at fault: uncharged twice, and charged from then on."""


class Postponed(msgspec.Struct, frozen=True):
    """Given back uncharged, not to be tried for a while."""

    after: float
    reason: str


class Released(msgspec.Struct, frozen=True):
    """Given back uncharged: it was interrupted, or the file system had trouble."""

    reason: str


Setback = Failed | Postponed | Released
Ending = Done | Setback


def from_exception(error: BaseException) -> Setback:
    """Return the ending that a processor meant by raising this."""
    match error:
        case TryLater():
            return _postponed(error)
        case ProcessorFailed():
            return Failed(error.failure)
        case TakenBack():
            return Released("its file was not there")
        case PermanentError():
            return Failed(_failure("permanent", error, permanent=True))
        case Interrupted(reason="leaving"):
            return Released("the driver was asked to leave")
        case Interrupted():
            message = "the document took longer than its time-out"
            return Failed(Failure(cause="timeout", message=message, stacks=_traceback(error)))
    return Failed(_failure("exception", error), error if isinstance(error, OSError) else None)


def says_full(failure: Failure, error: OSError | None = None) -> bool:
    """Tell whether a failure speaks of a disk, or a quota, that is full."""
    if error is not None and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return any(
        text is not None and _FULL.search(text)
        for text in (failure.message, failure.stderr_tail, failure.traceback)
    )


def is_own_fault(failure: Failure) -> bool:
    """Tell whether a failure is the document's own, as it says itself: it does not count as one of
    a cause that others have, too."""
    return failure.permanent or failure.cause in _OWN_FAULT


def may_be_a_stop(ending: Setback) -> bool:
    """Tell whether this may be no fault of the document, if its driver was stopped meanwhile."""
    return isinstance(ending, Failed) and ending.failure.cause in _BY_A_STOP


def says_stopped(ending: Setback) -> bool:
    """Tell whether a program ended as one does that is asked to."""
    if not isinstance(ending, Failed):
        return False
    failure = ending.failure
    return failure.signal in _STOPS or failure.exit_code in _STOPS.values()


def first_line(failure: Failure) -> str:
    """Return the first line of a failure's message; its cause where it has none."""
    return failure.message.strip().partition("\n")[0] or failure.cause


def cause_key(failure: Failure) -> str:
    """Return what failures of one cause have in common: the first line of the message, without
    the numbers, quoted names and paths that differ from document to document; how a program ended;
    and the function of the user's code in which it went wrong."""
    how = "".join(
        f" {word} {code}"
        for word, code in (("exit", failure.exit_code), ("signal", failure.signal))
        if code is not None
    )
    where = [
        function
        for path, function in _FRAME.findall(failure.traceback or "")
        if not _NOT_THE_USERS.search(path)
    ]
    at = f" in {where[-1]}" if where else ""
    return f"{failure.cause}{how}: {_PARTICULARS.sub('…', first_line(failure))}{at}"


def _postponed(error: TryLater) -> Setback:
    after: object = error.after
    reason: object = error.reason
    # NaN is neither.
    if not isinstance(after, int | float) or not (after < 0 or after <= MAX_LATER):
        message = f"TryLater(after={after!r}): not a number of seconds to wait"
        return Failed(Failure(cause="bad-answer", message=message))
    return Postponed(max(after, 0.0), "" if reason is None else _words(reason))


def _failure(cause: str, error: BaseException, permanent: bool = False) -> Failure:
    trace = _traceback(error)
    return Failure(cause=cause, message=_words(error), permanent=permanent, traceback=trace)


def _words(said: object) -> str:
    """Return what somebody raised, or gave as a reason, as text that is not too long."""
    kind = type(said).__name__
    try:
        words = str(said)
    except Exception as broken:  # noqa: BLE001 - what is the user's includes how it is shown
        return f"{kind}, which cannot be shown ({type(broken).__name__})"
    if isinstance(said, BaseException):
        words = f"{kind}: {words}" if words else kind
    return _cut(words, _MAX_MESSAGE)


def _traceback(error: BaseException) -> str:
    return _cut("".join(tb.format_exception(error)), _MAX_TRACEBACK)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
