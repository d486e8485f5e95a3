"""Logs of bounded size: `<name>.log`, and before it `.1` (the latest) to `.keep`.

A driver writes its log by its own stdout and stderr, whatever the program in it prints, so nobody
stands between that could be slow or die. It is rotated by the driver itself: a rename moves the
file away while everything goes on being written into it, then a new one is put under the same two
descriptors. What a command still writes to its old copy of them goes into the old file.
"""

import contextlib
import errno
import io
import os
import sys
from typing import TextIO

from queuedriver.disk.filesystem import regular_size
from queuedriver.errors import is_trouble

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_STDOUT, _STDERR = 1, 2


def open_log(path: str, size: int, keep: int) -> int:
    """Open a log to append to; one that has grown to its size is rotated first. Its directory is
    made, as somebody may have removed it."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = _open_file(path)
    if os.fstat(fd).st_size < size or not rotate(path, keep):
        return fd
    os.close(fd)
    return _open_file(path)


def _open_file(path: str) -> int:
    try:
        fd = os.open(path, _APPEND, 0o644)
        if regular_size(fd) is not None:
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    # Nor is a FIFO that nobody reads a sign of a file system in trouble.
    raise OSError(errno.EINVAL, "not a regular file", path)


def rotate(path: str, keep: int) -> bool:
    """Move a log out of the way, and those before it one further; return whether that could be
    done. A log that cannot be rotated grows."""
    with contextlib.suppress(OSError):
        if keep < 1:
            os.unlink(path)
            return True
        for number in range(keep, 1, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}.{number - 1}", f"{path}.{number}")
        os.replace(path, f"{path}.1")
        return True
    return False


class _Lossy(io.FileIO):
    """A file that loses what a full disk has no room for."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if not is_trouble(error):
                raise
            return memoryview(data).nbytes  # type: ignore[arg-type]


def _lossy_text(fd: int) -> TextIO:
    writer = io.BufferedWriter(_Lossy(fd, "w", closefd=False))
    return io.TextIOWrapper(writer, errors="backslashreplace", line_buffering=True)


class Rotator:
    """The log of the process that this runs in."""

    def __init__(self, path: str, size: int, keep: int) -> None:
        self.path = path
        self.size = size
        self.keep = keep

    def take_over(self) -> None:
        """Let stdout and stderr be the log. No document is to fail by a line that a processor
        prints while the log's disk is full; and no line is to be lost when a driver is killed."""
        with contextlib.suppress(OSError):
            self._put(open_log(self.path, self.size, self.keep))
        # The file that we put there.
        self._ours = os.fstat(_STDERR)
        sys.stdout, sys.stderr = _lossy_text(_STDOUT), _lossy_text(_STDERR)

    def rotate_if_large(self) -> bool:
        """Go on in a new file if the old one has grown too large, or was deleted or moved away."""
        ours = os.fstat(_STDERR)
        if not os.path.samestat(ours, self._ours):
            # A processor closed it, and it is another file's number now: perhaps a document's.
            return False
        try:
            same = os.path.samestat(os.stat(self.path, follow_symlinks=False), ours)
        except FileNotFoundError:
            same = False
        if same and ours.st_size < self.size:
            return False
        # By its own size another file at our path is rotated too, or not: it may be of our next
        # life, which must not lose what it has written.
        self._put(open_log(self.path, self.size, self.keep))
        return True

    def _put(self, fd: int) -> None:
        """Put a file under both numbers; for whoever writes meanwhile dup2 leaves no gap."""
        for number in (_STDOUT, _STDERR):
            os.dup2(fd, number)
        os.close(fd)
        self._ours = os.fstat(_STDERR)
