"""A directory on this host, for what must be written even when the queues' disk is not well.

`$XDG_RUNTIME_DIR/queuedriver-<uid>`, or the same in the temporary directory. A hung driver's stacks
go there: `<random>-<thread>.stacks`, written by faulthandler as it ends the process; the thread is
the driver's own, as faulthandler names it. A supervisor that ends a driver says there for which
reason, in a line of its own, before it does.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from typing import Literal, NamedTuple

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import ConfigError

# The stacks of a driver with many threads.
_MAX_STACKS = 1 << 20
# What begins a line of `note_ending`.
_ENDED = "ended from outside, "
# What heads the stacks that a driver's own hard limit wrote. Others were asked for, by somebody who
# wanted to know, and the driver went on.
_LATE = "Timeout ("
# How faulthandler names a call of ours to the file system, wherever the package is installed.
_FILES = "/".join(("", *Directory.__module__.split("."))) + '.py"'


def runtime_directory() -> str:
    """A directory on this host for what must be written even when the queues' disk is not well."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = os.path.join(base or tempfile.gettempdir(), f"queuedriver-{os.getuid()}")
    os.makedirs(path, mode=0o700, exist_ok=True)
    if os.stat(path, follow_symlinks=False).st_uid != os.getuid():
        raise ConfigError(
            f"{path} belongs to another user; set XDG_RUNTIME_DIR to a directory of yours"
        )
    return path


EndedFor = Literal["hung", "memory", "ended"]


class Ending(NamedTuple):
    """Why a driver was ended: it hung, it took too much memory, or for no fault of its document."""

    cause: EndedFor
    message: str
    stacks: str | None


@contextmanager
def stacks_file() -> Iterator[FileIO]:
    """Open the file that faulthandler is to write to of a driver that runs in this thread; gone
    with a driver that leaves by itself."""
    suffix = f"-{threading.get_ident():x}.stacks"
    number, path = tempfile.mkstemp(suffix, dir=runtime_directory())
    os.close(number)
    try:
        with FileIO(path, "a") as file:
            yield file
    finally:
        os.unlink(path)


def note_ending(name: str, cause: EndedFor, message: str) -> None:
    """Say why a driver is about to be ended; whoever recovers what it leaves will want to know."""
    if not _is_ours(name):
        return
    path = os.path.join(runtime_directory(), name)
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(fd, f"{_ENDED}{cause}: {' '.join(message.split())}\n".encode())
        finally:
            os.close(fd)


def unnote_ending(name: str) -> None:
    """A driver that was about to be ended has gone on: nothing of it will be held against it."""
    if _is_ours(name):
        with suppress(FileNotFoundError):
            os.truncate(os.path.join(runtime_directory(), name), 0)


def read_ending(name: str) -> Ending | None:
    """How a driver of this host was ended; None when it ended by itself."""
    text = read_stacks(name)
    if text is None:
        return None
    lines = text.splitlines()
    said = [line.removeprefix(_ENDED) for line in lines if line.startswith(_ENDED)]
    stacks = "\n".join(line for line in lines if not line.startswith(_ENDED)).strip() or None
    if not (said or any(line.startswith(_LATE) for line in lines)):
        return None
    # The first reason stands: what came later only saw to it.
    cause, _, message = said[0].partition(": ") if said else ("hung", "", "")
    if cause not in ("hung", "memory", "ended"):
        return Ending("hung", "", stacks)
    return Ending(cause, message, stacks)  # type: ignore[arg-type]


def read_stacks(name: str) -> str | None:
    """Read what a driver of this host left when it was ended; return None when it was not."""
    if not _is_ours(name):
        return None
    with suppress(FileNotFoundError):
        directory = Directory.open(runtime_directory())
        try:
            return directory.read(name, _MAX_STACKS).decode(errors="replace").strip() or None
        finally:
            directory.close()
    return None


def waited_for_files(name: str, stacks: str) -> bool:
    """Return whether a hung driver was in a call of ours to the file system, not in its processor.

    Told by the thread that the name of its stacks says: beats, too, wait for files.
    """
    thread = name.removesuffix(".stacks").rpartition("-")[2]
    # There may be earlier ones, that somebody asked for.
    _, found, ours = stacks.rpartition(f"hread 0x{thread:0>16} ")
    innermost = ours.partition("\n")[2].partition("\n")[0]
    return bool(found) and _FILES in innermost


def _is_ours(name: str) -> bool:
    # A registration is a file that others may have written.
    return name.endswith(".stacks") and "/" not in name


def forget_stacks(name: str) -> None:
    """They are in the reports now."""
    if _is_ours(name):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(runtime_directory(), name))
