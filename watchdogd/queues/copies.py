"""Copies a watchdog's events and its drivers' logs to where all hosts can see them.

Each log here is a row of files, the oldest rotated away first. Its copy follows file by file: the
rest of the one at hand is appended, then the copy is rotated too and the next is begun. So a copy
is always the beginning of its file. The file at hand is kept open: it can be read to its end even
when it is rotated out of existence, and no other gets its inode meanwhile. A turn copies a bounded
number of bytes.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from queuedriver.disk.filesystem import Directory, write_all
from queuedriver.errors import is_trouble
from queuedriver.format.records import decode
from watchdogd import control
from watchdogd.events import FILE
from watchdogd.logs import open_log, rotate

_MEMORY = "mirror.json"
_LOGS = "logs"
# Bytes that one turn copies of all logs together, and of one log at once.
_TURN = 4 << 20
_PIECE = 256 << 10
# Rotated copies that are kept, unless more are kept here.
_KEEP = 5
_MOST_ROTATED = 100
# By this many bytes at its end a copy is known to be of a file.
_TELLING = 512
_UNLIMITED = 1 << 62
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Part(NamedTuple):
    """One file of a log."""

    inode: int
    size: int
    path: str


class _Log:
    """One log, and how far it has been copied."""

    def __init__(self, source: str, inode: int | None) -> None:
        self.source = source
        # The file that was being copied, by an earlier process; or is.
        self.inode = inode
        self._fd = -1
        self._copied = 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def is_copied(self) -> bool:
        """Whether there is nothing new, as far as one look at it tells."""
        found = _part(self.source)
        return (
            found is not None
            and self._fd >= 0
            and (found.inode, found.size) == (self.inode, self._copied)
        )

    def follow(self, target: str, budget: int) -> int:
        """Bring the copy further, by so many bytes at most; by how many it was."""
        if self._fd < 0 and not self._resume(target):
            return 0
        copied = 0
        while True:
            more = self._append(target, min(_PIECE, budget - copied))
            copied += more
            # Whoever writes it may go on for a moment after it was rotated: the next is begun when
            # this one has had nothing new for a whole turn.
            if copied or not self._next(target):
                return copied

    def _resume(self, target: str) -> bool:
        """Find the file that an earlier process was at, or begin with the oldest."""
        parts = _parts(self.source)
        for part in parts:
            if part.inode == self.inode and self._open(part.path):
                if _is_beginning(target, self._fd):
                    return True
                self.close()
        return bool(parts) and self._begin(parts[0], target, len(parts))

    def _next(self, target: str) -> bool:
        """Go on with the file after the one at hand; whether there is one."""
        parts = _parts(self.source)
        inodes = [part.inode for part in parts]
        # One that is not there any more was older than all that are.
        after = inodes.index(self.inode) + 1 if self.inode in inodes else 0
        return after < len(parts) and self._begin(parts[after], target, len(parts))

    def _begin(self, part: _Part, target: str, count: int) -> bool:
        if _is_in_the_way(target):
            rotate(target, max(_KEEP, count - 1))
        return self._open(part.path)

    def _open(self, path: str) -> bool:
        try:
            fd = os.open(path, _READ)
        except FileNotFoundError:
            # Renamed just now: the next turn finds it.
            return False
        self.close()
        self._fd = fd
        self.inode = os.fstat(fd).st_ino
        self._copied = -1
        return True

    def _append(self, target: str, most: int) -> int:
        copy = open_log(target, _UNLIMITED, _KEEP)
        try:
            done = os.fstat(copy).st_size
            if done > os.fstat(self._fd).st_size:
                # Somebody emptied the log, and it begins anew.
                rotate(target, _KEEP)
                return 1
            data = os.pread(self._fd, most, done)
            write_all(copy, data)
        finally:
            os.close(copy)
        self._copied = done + len(data)
        return len(data)


class Copies:
    """All that one watchdog has, and how far it has been copied."""

    def __init__(self, local: str, host: str) -> None:
        # Copies that could not be made, and why; for people.
        self.amiss: dict[str, str] = {}
        self._local = local
        self._name = control.host_file(host)
        self._remembered = _remembered(os.path.join(local, _MEMORY))
        self._logs: dict[str, _Log] = {}

    def turn(self, directory: Directory) -> None:
        """Copy what is new into a control directory, within bounds."""
        copies = dict(self._each())
        for gone in self._logs.keys() - copies.keys():
            self._logs.pop(gone).close()
        left = _TURN
        for source, (place, name) in copies.items():
            log = self._logs.get(source)
            if log is None:
                log = self._logs[source] = _Log(source, self._remembered.get(source))
            if left > 0 and not log.is_copied():
                left -= self._follow(directory, log, place, name, left)
        self._remember()

    def _each(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Each log, and in which directory its copy is, under which name."""
        events = os.path.join(self._local, FILE)
        if os.path.exists(events):
            yield events, (control.EVENTS, f"{self._name}.jsonl")
        logs = os.path.join(self._local, _LOGS)
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(logs)):
                if name.endswith(".log"):
                    yield os.path.join(logs, name), (os.path.join(control.LOGS, self._name), name)

    def _follow(self, directory: Directory, log: _Log, place: str, name: str, left: int) -> int:
        try:
            copies = directory.subdirectory(place, create=True)
            try:
                # Not by its path, in which a directory may become a symlink meanwhile.
                copied = log.follow(f"/proc/self/fd/{copies.fd}/{name}", left)
            finally:
                copies.close()
        except OSError as error:
            if is_trouble(error):
                raise
            self.amiss[log.source] = f"{place}/{name} cannot be written: {error.strerror}"
            return 0
        self.amiss.pop(log.source, None)
        return copied

    def _remember(self) -> None:
        """For the next process."""
        inodes = {log.source: log.inode for log in self._logs.values() if log.inode is not None}
        if inodes == self._remembered:
            return
        # Where this cannot be written, the next process begins copies of its own.
        with contextlib.suppress(OSError), contextlib.closing(Directory.open(self._local)) as here:
            here.write_aside(_MEMORY, msgspec.json.encode(inodes))
        self._remembered = inodes


def _parts(source: str) -> list[_Part]:
    """The files of a log, the oldest first. One that is renamed meanwhile is seen once."""
    parts: dict[int, _Part] = {}
    for number in range(_MOST_ROTATED):
        part = _part(f"{source}.{number}" if number else source)
        if part is not None:
            parts.setdefault(part.inode, part)
        elif number:
            break
    return list(reversed(parts.values()))


def _part(path: str) -> _Part | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return _Part(found.st_ino, found.st_size, path)


def _is_in_the_way(target: str) -> bool:
    """Whether something is there that is not an empty file."""
    try:
        found = os.stat(target, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return found.st_size > 0 or not stat.S_ISREG(found.st_mode)


def _is_beginning(copy: str, fd: int) -> bool:
    """Whether a copy is of this file: an inode may be another's by now."""
    try:
        ours = os.open(copy, _READ)
    except OSError:
        return False
    try:
        size = os.fstat(ours).st_size
        start = max(0, size - _TELLING)
        if size > os.fstat(fd).st_size:
            return False
        return os.pread(ours, size - start, start) == os.pread(fd, size - start, start)
    finally:
        os.close(ours)


def _remembered(path: str) -> dict[str, int]:
    try:
        with open(path, "rb") as file:
            return decode(file.read(), dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}
