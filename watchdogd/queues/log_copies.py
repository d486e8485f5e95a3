"""Copies a watchdog's events and its drivers' logs to where all hosts can see them.

Each log here is a row of files, the oldest rotated away first. Its copy follows file by file: the
rest of the one at hand is appended, then the copy is rotated too and the next is begun. So a copy
is always the beginning of its file, and where it ends is its size; its last bytes only verify that.

    <local>/copying/<log>    the file at hand, by a second name: a hard link

Which file that is no crash forgets: its inode is no other's while the link is there, and it can be
read to its end even when it was rotated out of existence. The link leads to the next file before
the copy is rotated: a crash in between leaves a copy that is not the beginning of its file, which
is rotated then. A turn copies a bounded number of bytes.
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd, write_all
from queuedriver.errors import is_trouble
from watchdogd import control
from watchdogd.driver_ids import LOGS
from watchdogd.events import FILE
from watchdogd.logs import open_log, rotate

_COPYING = "copying"
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


class _Log(NamedTuple):
    """One log: its file that is written now, the link to the one at hand, and the copy of that."""

    source: str
    link: str
    copy: str

    def follow(self, budget: int) -> int:
        """Bring the copy further, by so many bytes at most; return by how many it was."""
        while True:
            copied = self._append(min(_PIECE, budget))
            # Whoever writes it may go on for a moment after it was rotated: the next is begun when
            # this one has had nothing new for a whole turn.
            if copied or not self._begin_next():
                return copied

    def _append(self, most: int) -> int:
        """Append what is next of the file at hand; return how much."""
        try:
            opened = os.open(self.link, _READ)
        except FileNotFoundError:
            return 0
        with open_fd(opened) as file, open_fd(self._open_copy(file)) as copy:
            data = os.pread(file, most, os.fstat(copy).st_size)
            write_all(copy, data)
        return len(data)

    def _open_copy(self, file: int) -> int:
        """Open the copy of a file. What is there and is not the beginning of that file is of
        another, or somebody emptied the file: then it is rotated."""
        copy = open_log(self.copy, _UNLIMITED, _KEEP)
        done, size = os.fstat(copy).st_size, os.fstat(file).st_size
        if done == size or (done < size and _agree(self.copy, file, done)):
            return copy
        os.close(copy)
        rotate(self.copy, _KEEP)
        return open_log(self.copy, _UNLIMITED, _KEEP)

    def _begin_next(self) -> bool:
        """Go on with the file after the one at hand; return whether there is one."""
        parts, at_hand = self.parts(), _inode_and_size(self.link)
        inodes = list(parts)
        # One that is not there any more was older than all that are.
        after = inodes.index(at_hand[0]) + 1 if at_hand and at_hand[0] in parts else 0
        if after == len(parts):
            return False
        aside = f"{self.link}.next"
        os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        try:
            os.link(parts[inodes[after]], aside, follow_symlinks=False)
        except FileNotFoundError:
            # Rotated just now: the next turn finds it.
            return False
        os.replace(aside, self.link)
        if os.path.lexists(self.copy):
            rotate(self.copy, max(_KEEP, len(parts) - 1))
        return True

    def parts(self) -> dict[int, str]:
        """List the files of the log by their inodes, the oldest first. One that is renamed
        meanwhile is seen once."""
        parts: dict[int, str] = {}
        for number in range(_MOST_ROTATED):
            path = f"{self.source}.{number}" if number else self.source
            if (found := _inode_and_size(path)) is not None:
                parts.setdefault(found[0], path)
            elif number:
                break
        return dict(reversed(parts.items()))


class Copies:
    """All that one watchdog has to be copied."""

    def __init__(self, local: str, host: str) -> None:
        # Copies that could not be made, and why; for people.
        self.amiss: dict[str, str] = {}
        self._local = local
        self._name = control.host_file(host)
        # Inodes and sizes of the logs that were copied to their end.
        self._copied: dict[str, tuple[int, int] | None] = {}

    def turn(self, directory: Directory) -> None:
        """Copy what is new into a control directory, within bounds."""
        left, sources = _TURN, list(self._sources())
        for source, place, name in sources:
            found = _inode_and_size(source)
            if left <= 0 or (found is not None and found == self._copied.get(source)):
                continue
            copied = self._follow(directory, source, place, name, left)
            if not copied and source not in self.amiss:
                # It has nothing that is newer than our look at it.
                self._copied[source] = found
            left -= copied
        self._forget({os.path.basename(source) for source, _, _ in sources})

    def _sources(self) -> Iterator[tuple[str, str, str]]:
        """Yield each log, and in which directory its copy is, under which name."""
        events = os.path.join(self._local, FILE)
        if os.path.exists(events):
            yield events, control.EVENTS, f"{self._name}.jsonl"
        logs = os.path.join(self._local, LOGS)
        for name in _names(logs):
            if name.endswith(".log"):
                yield os.path.join(logs, name), os.path.join(control.LOGS, self._name), name

    def _follow(self, directory: Directory, source: str, place: str, name: str, left: int) -> int:
        link = os.path.join(self._local, _COPYING, os.path.basename(source))
        try:
            with directory.subdirectory(place, create=True) as copies:
                # Not by its path, in which a directory may become a symlink meanwhile.
                copied = _Log(source, link, f"/proc/self/fd/{copies.fd}/{name}").follow(left)
        except OSError as error:
            if is_trouble(error):
                raise
            self.amiss[source] = f"{place}/{name} cannot be written: {error.strerror}"
            return 0
        self.amiss.pop(source, None)
        return copied

    def _forget(self, there: Collection[str]) -> None:
        """Let go of the files of logs that are gone; not of those that are `there`."""
        for name in {*_names(os.path.join(self._local, _COPYING))}.difference(there):
            link = os.path.join(self._local, _COPYING, name)
            source = os.path.join(self._local, "" if name == FILE else LOGS, name)
            if not _Log(source, link, "").parts():
                os.unlink(link)


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def _inode_and_size(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size


def _agree(copy: str, file: int, size: int) -> bool:
    """Tell whether the last of so many bytes of a copy are those of the file at that place."""
    start = max(0, size - _TELLING)
    with open_fd(os.open(copy, _READ)) as ours:
        return os.pread(ours, size - start, start) == os.pread(file, size - start, start)
