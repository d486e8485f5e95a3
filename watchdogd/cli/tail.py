"""The end of a log, and what is appended to it, across rotations."""

import os
from collections.abc import Iterator
from contextlib import suppress

from queuedriver.disk.filesystem import regular_size
from queuedriver.errors import NotRegular

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK = 64 * 1024
# A line longer than this is shown in parts: a log may be one binary line.
_MAX_LINE = 1 << 20
# The end of a log that lines are looked for in, in bytes: more than a terminal is good for.
_MOST = 16 << 20
# No log is kept in more files.
_MAX_KEPT = 1000


class Tail:
    """One log: `<path>`, and before it `<path>.1`, `<path>.2`, …"""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._offset = 0
        # The beginning of a line whose end is not written yet.
        self._rest = b""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def last(self, count: int) -> list[bytes]:
        """The last lines, of earlier files too when the latest has not as many; `more` goes on
        after them."""
        if self._fd < 0 and not self._open():
            return []
        self._offset = os.fstat(self._fd).st_size
        lines = _last_lines(self._fd, self._offset, count)
        seen = {_inode(self._fd)}
        for number in range(1, _MAX_KEPT):
            if len(lines) >= count:
                break
            try:
                fd = _open(f"{self.path}.{number}")
            except OSError:
                break
            try:
                # One that was rotated meanwhile is the one that was read already.
                if _inode(fd) not in seen:
                    seen.add(_inode(fd))
                    size = os.fstat(fd).st_size
                    lines = _last_lines(fd, size, count - len(lines)) + lines
            finally:
                os.close(fd)
        return lines

    def more(self) -> Iterator[bytes]:
        """The lines that were completed since."""
        if self._fd < 0 and not self._open():
            return
        yield from self._read()
        successors = self._successors()
        if not successors:
            return
        # What was written between the last read and the rotation.
        yield from self._read()
        for fd in successors:
            if self._rest:
                yield self._rest
            os.close(self._fd)
            self._fd, self._offset, self._rest = fd, 0, b""
            yield from self._read()

    def _open(self) -> bool:
        try:
            self._fd = _open(self.path)
        except OSError:
            # It comes with its driver.
            return False
        self._offset, self._rest = 0, b""
        return True

    def _read(self) -> Iterator[bytes]:
        if os.fstat(self._fd).st_size < self._offset:
            # Somebody emptied it.
            self._offset, self._rest = 0, b""
        while data := os.pread(self._fd, _BLOCK, self._offset):
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from lines
            if len(self._rest) > _MAX_LINE:
                yield self._rest
                self._rest = b""

    def _successors(self) -> list[int]:
        """The files that came after the open one, the oldest first, open."""
        ours = _inode(self._fd)
        seen = set()
        found: list[int] = []
        for number in range(_MAX_KEPT):
            try:
                fd = _open(f"{self.path}.{number}" if number else self.path)
            except OSError:
                if number:
                    break
                # In the middle of a rotation, or taken away: look again later.
                return []
            inode = _inode(fd)
            if inode == ours:
                os.close(fd)
                return found[::-1]
            if inode in seen:
                # Rotated while we looked.
                os.close(fd)
                continue
            seen.add(inode)
            found.append(fd)
        # Ours was deleted meanwhile: the others' age is unknown, but the newest goes on.
        for fd in found[1:]:
            os.close(fd)
        return found[:1]


def _open(path: str) -> int:
    """A log for reading. Where its copies are others may write, too."""
    fd = os.open(path, _READ)
    if regular_size(fd) is None:
        os.close(fd)
        raise NotRegular(path)
    return fd


def _inode(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _last_lines(fd: int, size: int, count: int) -> list[bytes]:
    """The last lines before an offset, without their ends, read from the end."""
    if count <= 0:
        return []
    data = b""
    start = size
    with suppress(OSError):
        while start and data.count(b"\n") <= count and len(data) < _MOST:
            start = max(0, start - max(_BLOCK, len(data)))
            data = os.pread(fd, size - start - len(data), start) + data
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return lines[-count:]
