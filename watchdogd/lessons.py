"""What a stage's own history says of how long its documents take.

Read from the ends of the journals, a bounded piece of what is new in each, now and then: a journal
may grow faster than it is worth reading, and a sample will do.
"""

import errno
import os
import re
import stat
from collections import deque
from collections.abc import Sequence

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import is_trouble
from queuedriver.format import names
from queuedriver.format.names import JOURNAL
from queuedriver.format.records import decode_by
from watchdogd.learned import REMEMBERED

# Bytes of one journal file that one reading takes.
_PIECE = 64 << 10
_MOST_FILES = 200
_CURRENT = re.compile(r"[^.]+\.jsonl")
# What the journal calls a document that was processed to its end.
_SUCCESSES = ("published", "finished")


class _Line(msgspec.Struct):
    """What is of interest here of an event."""

    event: str
    seconds: float | None = None


_decoder = msgspec.json.Decoder(_Line)


class Lessons:
    """The latest durations of the documents of one stage."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._journals = [os.path.join(path, names.PRIVATE, JOURNAL) for path in queues]
        self._latest: deque[float] = deque(maxlen=REMEMBERED)
        # How far each file has been read: its inode, and the offset.
        self._read: dict[str, tuple[int, int]] = {}

    @property
    def durations(self) -> list[float]:
        """In seconds, the latest last."""
        return list(self._latest)

    def learn(self) -> None:
        """Read what is new. An OSError is only of the file system."""
        for path in self._journals:
            try:
                journal = Directory.open(path, inside=2)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                # A rotated file has a second dot; it was read while it was current.
                current = [one for one in journal.names() if _CURRENT.fullmatch(one)]
                for name in sorted(current)[:_MOST_FILES]:
                    self._learn_from(journal, name)
            finally:
                journal.close()

    def _learn_from(self, journal: Directory, name: str) -> None:
        key = os.path.join(journal.path, name)
        try:
            status = journal.status(name)
            inode, offset = self._read.get(key, (0, 0))
            if inode != status.st_ino or offset > status.st_size:
                offset = 0
            if not stat.S_ISREG(status.st_mode) or offset == status.st_size:
                return
            start = max(offset, status.st_size - _PIECE)
            piece = _read_piece(journal, name, start)
        except OSError as error:
            if is_trouble(error) and error.errno != errno.ENXIO:
                raise
            return
        end = piece.rfind(b"\n") + 1
        first = 0 if start == offset else piece.find(b"\n") + 1
        self._read[key] = status.st_ino, start + max(end, first)
        self._latest.extend(_durations(piece[first:end]))


def _read_piece(journal: Directory, name: str, start: int) -> bytes:
    fd = journal.open_read(name)
    try:
        return os.pread(fd, _PIECE, start)
    finally:
        os.close(fd)


def _durations(lines: bytes) -> list[float]:
    found = []
    for line in lines.splitlines():
        try:
            event = decode_by(_decoder, line)
        except msgspec.DecodeError:
            continue
        if event.event in _SUCCESSES and event.seconds is not None:
            found.append(event.seconds)
    return found
