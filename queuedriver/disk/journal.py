"""Notes what happens to documents: one append-only file of JSON lines per writer.

    .queuedriver/journal/<writer>.jsonl              what this writer notes now
    .queuedriver/journal/<writer>.<14 hex>.jsonl     rotated away then (microseconds, epoch)

A writer is a driver id, or `put-<host>` for the submitters of one host: no file is written by two
hosts, because network file systems lose lines when two append. Lines are kept in memory until the
driver's next look, 0.1 s (0.5 s where each write is a request to a server), and leave in one
write(2) with O_APPEND, so a crash costs as much and at most cuts the last line; the next writer
starts on a line of its own, and a reader (`operating/history`) skips what does not parse.

The journal is for people. Nothing is decided by it, so its troubles (a full disk, a read-only
file system) stop no work and charge no document: a bounded number of lines waits for better times,
the oldest are dropped, and the journal says later how many.
"""

import errno
import os
import re
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from queuedriver.disk.filesystem import Directory, open_fd, regular_size
from queuedriver.format.event import Event, decode, encode
from queuedriver.format.names import JOURNAL, PRIVATE
from queuedriver.format.units import format_count

# After trouble, seconds until the next attempt.
_RETRY = 1.0
# A few MB; at a thousand documents a second, ten seconds of a full disk.
_MAX_PENDING = 10_000
# `.queuedriver/journal`: where others may write, these two are to be no symlinks.
INSIDE = 2

# How many journals `lately` reads, and how much of the end of each, in bytes: a few requests to the
# server of a network file system, for some hundred documents.
_DRAWN = 8
_END = 32 << 10
# Events of documents that took as long as documents do.
_DONE = ("published", "finished")

_WRITER = re.compile(r"[A-Za-z0-9_-]{1,80}")
FILE = re.compile(rf"({_WRITER.pattern})(?:\.([0-9a-f]{{14}}))?\.jsonl")
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_journals: "weakref.WeakSet[Journal]" = weakref.WeakSet()


def journal_path(queue: str) -> str:
    """Return the path of a queue's journal."""
    return os.path.join(queue, PRIVATE, JOURNAL)


def submitter(host: str, who: str = "put") -> str:
    """Return the writer that all submitters of one host are, or all its operators."""
    return f"{who}-" + re.sub(r"[^A-Za-z0-9_-]", "_", host)[:64]


class Journal:
    """One writer's notes. For one thread; a forked child starts with nothing noted."""

    # Seconds between two writes: a write per event would cost a twentieth of the work.
    interval = 0.1
    # How long a file grows, in bytes, and how many that were rotated away are kept.
    max_bytes = 64 << 20
    keep = 8

    def __init__(self, directory: str, writer: str, host: str) -> None:
        if not _WRITER.fullmatch(writer):
            raise ValueError(f"{writer!r} cannot name a journal: letters, digits, '_' and '-' can")
        self.directory = directory
        self.writer = writer
        self.host = host
        self.path = os.path.join(directory, f"{writer}.jsonl")
        # Why the last write failed; None while all is well.
        self.trouble: OSError | None = None
        # Events that were noted and are not written yet, the latest last.
        self.pending: list[Event] = []
        self._dropped = 0
        self._due = 0.0
        self._fd = -1
        # The file ends within a line: a crash or a full disk cut it.
        self._torn = False
        _journals.add(self)

    def note(self, event: str, docid: str = "", *, at: float | None = None, **facts: Any) -> None:
        """Remember an event, with what else is known of it (fields of `Event`). Costs a fraction of
        a microsecond, touches nothing, cannot fail."""
        at = time.time() if at is None else at
        self.add(
            [Event(at=at, event=event, docid=docid, host=self.host, driver=self.writer, **facts)]
        )

    def add(self, events: list[Event]) -> None:
        """Remember events that are made already, as those of many documents at once."""
        if len(self.pending) >= _MAX_PENDING:
            # A tenth at once: dropping one from the head of a list moves all the others.
            count = _MAX_PENDING // 10
            del self.pending[:count]
            self._dropped += count
        self.pending += events

    @property
    def unnoted(self) -> str:
        """Return words for the lines that could not be written; none while all were."""
        if not (self.trouble and self.pending):
            return ""
        lost = format_count(len(self.pending) + self._dropped, "line")
        why = self.trouble.strerror or str(self.trouble)
        return f"{self.path} could not be written ({why}), so history lacks the last {lost}"

    def flush_if_due(self, now: float) -> None:
        """Write what was noted, if the last write is `interval` ago. `now` is monotonic."""
        if self.pending and now >= self._due:
            self.flush()
            self._due = now + (_RETRY if self.trouble else self.interval)

    def flush(self) -> None:
        """Write what was noted; what cannot be written stays noted."""
        if not self.pending:
            return
        batch = [*self._notice(), *self.pending]
        try:
            fd = self._writable()
            lead = b"\n" if self._torn else b""
            data = lead + encode(batch)
            written = os.write(fd, data)
        except OSError as error:
            self.trouble = error
            self._release()
            return
        self.trouble = None
        self._torn = data[written - 1 : written] != b"\n"
        # Short on a full disk: the next attempt will say why. Lines that went whole are done with,
        # also one that lacks only its end: it parses, and the next write begins with that end.
        if done := data.count(b"\n", len(lead), written + 1):
            self.pending = batch[done:]
            self._dropped = 0

    def close(self) -> None:
        """Write what was noted and give the descriptor back."""
        self.flush()
        self._release()

    def lately(self) -> Iterator[float]:
        """Yield the seconds that documents took which this writer did last, after those of a few
        others that are drawn by lot, as there may be thousands; none of what cannot be read."""
        # Late: submitting, too, comes by here, and needs no lot.
        import random

        with suppress(OSError), Directory.open(self.directory, inside=INSIDE) as journals:
            found = [one for one in map(FILE.fullmatch, journals.names()) if one and not one[2]]
            others = [one[0] for one in found if one[1] != self.writer]
            for name in (*random.sample(others, min(_DRAWN, len(others))), f"{self.writer}.jsonl"):
                with suppress(OSError), open_fd(journals.open_read(name)) as fd:
                    size = regular_size(fd) or 0
                    lines = os.pread(fd, _END, max(0, size - _END)).split(b"\n")
                    for event in filter(None, map(decode, lines)):
                        if event.event in _DONE and event.seconds is not None:
                            yield event.seconds

    def _notice(self) -> list[Event]:
        if not self._dropped:
            return []
        lost = format_count(self._dropped, "line")
        why = f": {self.trouble.strerror}" if self.trouble else ""
        message = f"the journal could not be written, and {lost} before this were lost{why}"
        at = self.pending[0].at
        return [Event(at=at, event="dropped", host=self.host, driver=self.writer, message=message)]

    def _writable(self) -> int:
        if self._fd < 0:
            self._open()
        found = os.fstat(self._fd)
        # Deleted by somebody who made room, or full.
        if not found.st_nlink or found.st_size >= self.max_bytes:
            self._release()
            if found.st_nlink:
                # A journal that cannot be rotated grows.
                with suppress(OSError):
                    self._rotate(found)
            self._open()
        return self._fd

    def _open(self) -> None:
        above, name = os.path.split(self.directory)
        # Only this one level is made: where there is no queue, a journal must not make one.
        with (
            Directory.open(above, inside=INSIDE - 1) as private,
            private.subdirectory(name, create=True) as directory,
        ):
            file = f"{self.writer}.jsonl"
            self._fd = fd = os.open(file, _APPEND, 0o666, dir_fd=directory.fd)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", self.path)
        self._torn = bool(found.st_size) and os.pread(fd, 1, found.st_size - 1) != b"\n"

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # A close may report what an earlier write could not do; there is no way back then.
            with suppress(OSError):
                os.close(fd)

    def _rotate(self, ours: os.stat_result) -> None:
        there = os.stat(self.path, follow_symlinks=False)
        # Another submitter of this host may have been faster, and the name is a new file's.
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            return
        name = f"{self.writer}.jsonl"
        rotated = f"{self.writer}.{time.time_ns() // 1000:014x}.jsonl"
        with Directory.open(self.directory, inside=INSIDE) as directory:
            # It may be faster even now, and in the same microsecond: never replace what it rotated.
            directory.rename_new(name, rotated)
            old = sorted(
                name
                for name in directory.names()
                if (found := FILE.fullmatch(name)) and found[1] == self.writer and found[2]
            )
            for name in old[: max(0, len(old) - self.keep)]:
                directory.unlink(name)

    def _forget(self) -> None:
        self.pending = []
        self._dropped = 0
        self._release()


def _forget_in_child() -> None:
    # What the parent noted is the parent's to write.
    for journal in list(_journals):
        journal._forget()


os.register_at_fork(after_in_child=_forget_in_child)
