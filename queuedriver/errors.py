"""The errors that leave a package, and what each one tells its reader to do.

Exception
├── QueueError                   what was asked cannot be done; carries an exit code
│   ├── BadDocid                 a name that may not be a docid                        65
│   ├── BadArgument              a value that makes no sense                            2
│   ├── NotFound                 no such queue, no such document                       66
│   ├── AlreadyThere             a waiting item would have been clobbered              73
│   ├── QueueClosed              submitting into a queue that is `done`                73
│   ├── CannotUse                an output that is a file, input and output the same   73
│   ├── IdHeld                   another living driver has this id                     69
│   ├── NotPermitted             the operating system says no                          77
│   ├── LocalProtocolError       we were about to send what our peer may not get       70
│   ├── Unreachable              no broker answers                                     69
│   ├── ImportFailed             what a processor's module raised while it loaded      70
│   └── ConfigError              drivers, settings or processors that cannot work      78
│       ├── BadPipeline          a pipeline file with mistakes (watchdogd.pipeline)  78
│       └── Disagreement         not set up as others of the queue, which will leave     78
├── FileSystemTrouble (OSError)  full, stale, read-only or failing: wait, charge none  74
├── TakenBack (OSError)          a claimed document is not there any more
├── OutputMissing (OSError)      an output that was written is not where it was to be
├── NotRegular (OSError)         what should be a small file of ours is none
├── PermanentError               raised by a processor: this document will never do    65
├── TryLater                     raised by a processor: not now                        75
├── RemoteProtocolError          a peer sent what it may not: its mistake, and our session goes on
└── ProcessorFailed              a document failed, for a cause that has a name
BaseException
└── Interrupted                  raised into a running processor: time-out, or leaving
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuedriver.format.records import Failure

# What a full disk says; one that fails, or is gone, or was remounted for reading; and a server that
# went away, or a mount of it that is stale. None of it is a document's fault.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FAILING = frozenset({errno.EIO, errno.EREMOTEIO, errno.EROFS, errno.ENODEV, errno.ENXIO})
_AWAY = frozenset({errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN})
_TROUBLE = _FULL | _FAILING | _AWAY | {errno.ESTALE}
# What a host has too little of just now.
_SCARCE = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
# The exit codes of what may go well later, and of what nobody foresaw.
LATER = 75
BUG = 70
# How much later, in seconds, where nobody says it.
LATER_AFTER = 60.0


class QueueError(Exception):
    """What was asked cannot be done. The message says what, where, and what to do."""

    exit_code = 1


class BadDocid(QueueError):
    """A name that may not be a docid."""

    exit_code = 65

    def __init__(self, docid: str, reason: str) -> None:
        super().__init__(f"{docid!r} cannot be a docid: {reason}; choose another with --docid")
        self.docid = docid
        self.reason = reason


class BadArgument(QueueError):
    """A value that makes no sense."""

    exit_code = 2


class NotFound(QueueError):
    """There is no such queue, or no such document in it."""

    exit_code = 66


class AlreadyThere(QueueError):
    """Submitting would have clobbered an item that waits."""

    exit_code = 73

    def __init__(self, message: str, docids: Sequence[str]) -> None:
        super().__init__(message)
        self.docids = tuple(docids)


class QueueClosed(QueueError):
    """The queue is `done`: nothing more was to be submitted."""

    exit_code = 73


class CannotUse(QueueError):
    """A path that cannot serve as what it was named for."""

    exit_code = 73


class IdHeld(QueueError):
    """Another living driver goes by this id."""

    exit_code = 69


class NotPermitted(QueueError):
    """The operating system refused; trying again will not help."""

    exit_code = 77


class LocalProtocolError(QueueError):
    """We were about to send what the protocol does not allow here: a mistake of ours."""

    exit_code = 70


class Unreachable(QueueError):
    """Nobody is there to answer: no broker, or no watchdog."""

    exit_code = 69


class ImportFailed(QueueError):
    """A processor's module raised something while it was imported; another try may help."""

    exit_code = 70


class ConfigError(QueueError):
    """Something about how a driver was set up can never work."""

    exit_code = 78


class Disagreement(ConfigError):
    """A driver is not set up as others of its queue are, or as claims in it were made: it can work
    once those are gone."""

    # That of a driver which ends for it; there is one exit code for all that cannot work now.
    last_word = "disagrees"


class FileSystemTrouble(OSError):
    """The file system is full, stale, read-only or failing: pause, and charge no document."""

    exit_code = 74


class TakenBack(FileNotFoundError):
    """A claimed document is not there: its driver was given up by mistake, or, on a network file
    system, it cannot be seen yet. Neither is its fault."""


class OutputMissing(FileNotFoundError):
    """An output is not in its directory: somebody moved or removed the one or the other."""

    def __init__(self, directory: str, name: str) -> None:
        what = "what was written is not there, or it is not the directory that it was"
        super().__init__(errno.ENOENT, what, f"{directory}/{name}")


class NotRegular(OSError):
    """A symlink, a FIFO, a socket, a device or a directory where a file of ours should be."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", path)


class PermanentError(Exception):
    """For processors: this document can never be processed; discard it at once."""


class TryLater(Exception):
    """For processors: give the document back uncharged, and not before `after` seconds."""

    # A class derived from this one may not call what follows.
    after: float = LATER_AFTER
    reason: str = ""

    def __init__(self, after: float = LATER_AFTER, reason: str = "") -> None:
        super().__init__(reason or f"try again in {after} s")
        self.after = after
        self.reason = reason


class ProcessorFailed(Exception):
    """The document failed, for a cause that has a name; `failure` has the particulars."""

    def __init__(self, failure: "Failure") -> None:
        super().__init__(failure.message)
        self.failure = failure


class RemoteProtocolError(Exception):
    """A peer sent what it may not send. `code` is what the protocol says of that, if anything."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Interrupted(BaseException):
    """Raised into a running processor. A BaseException, so that `except Exception` lets it by."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def is_trouble(error: OSError) -> bool:
    """Return whether an OSError speaks of the file system rather than of one file."""
    return isinstance(error, FileSystemTrouble) or error.errno in _TROUBLE


def leads_nowhere(error: OSError) -> bool:
    """Return whether a path that somebody wrote down is to nothing, for whatever reason."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def exit_code_of(error: BaseException) -> int | None:
    """Return the exit code that says whether another try is of use; None when nobody knows."""
    if isinstance(error, QueueError | FileSystemTrouble):
        return error.exit_code
    if not isinstance(error, OSError):
        return None
    if is_trouble(error):
        return FileSystemTrouble.exit_code
    if isinstance(error, PermissionError):
        return NotPermitted.exit_code
    return LATER if error.errno in _SCARCE else None


def trouble(error: OSError, doing: str) -> FileSystemTrouble:
    """Return the same error, with what we were doing when it struck."""
    where = os.fsdecode(error.filename) if error.filename else None
    reason = os.strerror(error.errno) if error.errno else str(error)
    return FileSystemTrouble(error.errno, f"{doing}: {reason}", where)


@contextlib.contextmanager
def explained(path: str, role: str = "a queue") -> Iterator[None]:
    """Raise what the operating system says of a directory, or of what is in it, in words of ours;
    `role` is what the directory was named for."""
    _, _, what = role.partition(" ")
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"no {what} {path!r}; mkdir it, or name another") from None
    except (NotADirectoryError, FileExistsError) as error:
        where = os.fsdecode(error.filename or path)
        if where.startswith(f"{os.path.abspath(path)}/"):
            raise CannotUse(
                f"{where!r} is not a directory, but a file or a link; queuedriver check --repair "
                "moves it aside"
            ) from None
        raise CannotUse(f"{path!r} is not a directory, so not {role}") from None
    except NotRegular as error:
        raise CannotUse(f"{error.filename!r} is not a regular file; remove it") from None
    except PermissionError as error:
        raise NotPermitted(
            f"{error.filename or path!r} may not be used: permission denied; a queue must be "
            "readable for whoever looks at it, and writable for whoever drives it"
        ) from None
    except OSError as error:
        if is_trouble(error) and not isinstance(error, FileSystemTrouble):
            raise trouble(error, f"cannot use {path!r}") from None
        if leads_nowhere(error):
            raise NotFound(f"no {what} {path!r}: {error.strerror}; name another") from None
        raise
