"""A directory on this host, for what must be written even when the queues' disk is not well.

`queuedriver-<uid>` in the temporary directory, or in $XDG_RUNTIME_DIR where that is not of a login:
it goes at the logout, and drivers stay. A hung driver's stacks go there:
`<random>-<thread>.stacks`, written by faulthandler as it ends the process; the thread is the
driver's own, as faulthandler names it. A supervisor that ends a driver says there for which reason,
in a line of its own, before it does; and of one that has ended by itself, how.

The file is named by its whole path, in the registration and on the board: whoever reads it may have
another environment, and so another directory of its own, than the driver had.
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from typing import Literal

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import ConfigError
from queuedriver.format.records import Failure

# Where a login gets its directory, which is removed when its user logs out.
_OF_A_LOGIN = "/run/user/"
# The stacks of a driver with many threads.
_MAX_STACKS = 1 << 20
# What begins a line of `note_ending`.
_ENDED = "ended from outside, "
# What begins a line of `note_crash`, and what follows in it but for the name of a signal.
_CRASHED = "ended by itself, "
_EXIT = "exit code "
# What heads the stacks that a driver's own hard limit wrote. Others were asked for, by somebody who
# wanted to know, and the driver went on.
_LATE = "Timeout ("
# How faulthandler names a call of ours to the file system, wherever the package is installed; and
# who waits for the thread of a group, which then is in one.
_FILES = tuple(f'/queuedriver/{name}.py"' for name in ("disk/filesystem", "driving/group"))


def runtime_directory() -> str:
    """Return the directory; it is made if it is not there. What cannot be used is done without."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base and not base.startswith(_OF_A_LOGIN):
        with suppress(OSError, ConfigError):
            return _directory_in(base)
    return _directory_in(_temporary())


def _directory_in(base: str) -> str:
    path = os.path.join(base, _own_name())
    os.makedirs(path, mode=0o700, exist_ok=True)
    if os.stat(path, follow_symlinks=False).st_uid != os.getuid():
        raise ConfigError(
            f"{path} belongs to another user; set XDG_RUNTIME_DIR to a directory of yours"
        )
    return path


def _only_for_us(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)


def _temporary() -> str:
    # Late: it takes a driver's start as long as several modules of ours.
    import tempfile

    return tempfile.gettempdir()


EndedFor = Literal["hung", "memory", "ended"]


@contextmanager
def stacks_file() -> Iterator[FileIO]:
    """Open the file that faulthandler is to write to of a driver that runs in this thread; gone
    with a driver that leaves by itself."""
    name = f"{os.urandom(8).hex()}-{threading.get_ident():x}.stacks"
    path = os.path.join(runtime_directory(), name)
    with FileIO(path, "a", opener=_only_for_us) as file:
        try:
            yield file
        finally:
            # The directory is cleaned by others, too: at a logout, or of what is old.
            with suppress(FileNotFoundError):
                os.unlink(path)


def note_ending(path: str, cause: EndedFor, message: str) -> None:
    """Say why a driver is about to be ended; whoever recovers what it leaves will want to know."""
    _note(path, f"{_ENDED}{cause}: {' '.join(message.split())}")


def note_crash(path: str, exit_code: int | None, signal: str) -> None:
    """Say how a driver has ended by itself."""
    _note(path, f"{_CRASHED}{signal or f'{_EXIT}{exit_code}'}")


def _note(path: str, line: str) -> None:
    with suppress(FileNotFoundError):
        fd = os.open(_checked(path), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "wb", buffering=0) as file:
            file.write(f"{line}\n".encode())


def unnote_ending(path: str) -> None:
    """Forget it: a driver has gone on, and nothing of it will be held against it."""
    with suppress(FileNotFoundError):
        os.truncate(_checked(path), 0)


def forget_stacks(path: str) -> None:
    """Remove the stacks of a driver: they are in the reports now."""
    with suppress(FileNotFoundError):
        os.unlink(_checked(path))


def read_stacks(path: str) -> str | None:
    """Return what was written for a driver of this host so far; None when there is nothing."""
    try:
        with Directory.open(os.path.dirname(_checked(path))) as directory:
            return directory.read(os.path.basename(path), _MAX_STACKS).decode(errors="replace")
    except FileNotFoundError:
        return None


def read_ending(path: str) -> Failure | None:
    """Return what ended a driver of this host, or how it ended by itself where that was noted: it
    hung, took too much memory, crashed, or for no fault of its document; None when nobody knows."""
    text = read_stacks(path)
    if text is None:
        return None
    lines = text.splitlines()
    said = [line.removeprefix(_ENDED) for line in lines if line.startswith(_ENDED)]
    crashes = [line.removeprefix(_CRASHED) for line in lines if line.startswith(_CRASHED)]
    stacks = "\n".join(line for line in lines if not line.startswith((_ENDED, _CRASHED))).strip()
    if not (said or any(line.startswith(_LATE) for line in lines)):
        return _crash(crashes[0]) if crashes else None
    # The first reason stands: what came later only saw to it.
    cause, _, message = said[0].partition(": ") if said else ("hung", "", "")
    if cause not in ("hung", "memory", "ended"):
        cause, message = "hung", ""
    return Failure(cause=cause, message=message, stacks=stacks or None)


def _crash(how: str) -> Failure:
    code = how.removeprefix(_EXIT)
    if code != how and code.isdecimal():
        words = f"the driver's process ended with {how} while it had the document"
        return Failure(cause="crashed", message=words, exit_code=int(code))
    words = f"the driver's process was ended by {how} while it had the document"
    return Failure(cause="crashed", message=words, signal=how)


def waited_for_files(path: str, stacks: str) -> bool:
    """Return whether a hung driver was in a call of ours to the file system, not in its processor.

    Told by the thread that the name of its stacks says: beats, too, wait for files.
    """
    thread = path.removesuffix(".stacks").rpartition("-")[2]
    # There may be earlier ones, that somebody asked for.
    _, found, ours = stacks.rpartition(f"hread 0x{thread:0>16} ")
    innermost = ours.partition("\n")[2].partition("\n")[0]
    return bool(found) and any(one in innermost for one in _FILES)


def _own_name() -> str:
    return f"queuedriver-{os.getuid()}"


def _checked(path: str) -> str:
    """Return the path of a driver's stacks; FileNotFoundError for what cannot be theirs: a
    registration is a file that others may have written."""
    directory, name = os.path.split(path)
    # Of a path that is none, such as one with a zero byte, there is no status.
    with suppress(OSError, ValueError):
        if (
            name.endswith(".stacks")
            and "\0" not in name
            and os.path.basename(directory) == _own_name()
            and os.lstat(directory).st_uid == os.getuid()
        ):
            return path
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
