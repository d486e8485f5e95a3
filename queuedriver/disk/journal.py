"""Notes what happens to documents, one append-only file of JSON lines per writer; and reads it, all
at once, in the order of time.

    .queuedriver/journal/<writer>.jsonl              what this writer notes now
    .queuedriver/journal/<writer>.<14 hex>.jsonl     rotated away then (microseconds, epoch)

A writer is a driver id, or `put-<host>` for the submitters of one host: no file is written by two
hosts, because network file systems lose lines when two append. Lines are kept in memory until the
driver's next look, 0.1 s (0.5 s where each write is a request to a server), or until they are many,
and leave in one write(2) with O_APPEND, so a crash costs as much and at most cuts the last line;
the next writer starts on a line of its own. A reader skips and counts what does not parse;
meanwhile files may be appended to, rotated and removed, by any number of writers.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd, regular_size
from queuedriver.format.names import JOURNAL, PRIVATE
from queuedriver.format.records import MAX_LINE, Event, decode_line, encode_lines
from queuedriver.format.units import format_count

# After trouble, seconds until the next attempt.
_RETRY = 1.0
# A few MB; at a thousand documents a second, ten seconds of a full disk.
_MAX_PENDING = 10_000
# `.queuedriver/journal`: where others may write, these two are to be no symlinks.
_INSIDE = 2

# So many lines are written at once: more would be kept in memory that is new to the process, which
# costs a driver of short documents more than the write.
_MOST_TOGETHER = 256

# How many journals `lately` reads, and how much of the end of each, in bytes: a few requests to the
# server of a network file system, for some hundred documents.
_DRAWN = 8
_END = 32 << 10
# Events of documents that took as long as documents do.
_DONE = ("published", "finished")

# A file rotated away before this many seconds before an instant has nothing from after it: the
# slack is for a clock that was set back.
_CLOCK_SLACK = 3600.0
# Listings of one reading. Two are enough but for files that rotate meanwhile; a network file system
# may go on listing a name that is gone for a minute.
_PASSES = 20
# Of one file no more is read than this, its end: several times what a writer lets it grow to; in
# bytes. What is longer is another program's, or nobody's.
_MOST = 256 << 20
# Bytes that are read at once.
_BLOCK = 1 << 20
# What every JSON writer leaves as it is.
_PLAIN = re.compile(r"[A-Za-z0-9 ._-]+")

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
        """Remember an event, with what else is known of it (fields of `Event`); write what is
        remembered, where that is much. Cannot fail."""
        at = time.time() if at is None else at
        self.add(
            [Event(at=at, event=event, docid=docid, host=self.host, driver=self.writer, **facts)]
        )

    def add(self, events: list[Event]) -> None:
        """Remember events that are made already, as those of many documents at once; and write what
        is remembered, where that is much."""
        if len(self.pending) >= _MAX_PENDING:
            # A tenth at once: dropping one from the head of a list moves all the others.
            count = _MAX_PENDING // 10
            del self.pending[:count]
            self._dropped += count
        self.pending += events
        if len(self.pending) >= _MOST_TOGETHER and self.trouble is None:
            self.flush()

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
            data = lead + encode_lines(batch)
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

        with suppress(OSError), Directory.open(self.directory, inside=_INSIDE) as journals:
            found = [one for one in map(FILE.fullmatch, journals.names()) if one and not one[2]]
            others = [one[0] for one in found if one[1] != self.writer]
            for name in (*random.sample(others, min(_DRAWN, len(others))), f"{self.writer}.jsonl"):
                with suppress(OSError), open_fd(journals.open_read(name)) as fd:
                    size = regular_size(fd) or 0
                    lines = os.pread(fd, _END, max(0, size - _END)).split(b"\n")
                    for event in filter(None, map(decode_line, lines)):
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
            Directory.open(above, inside=_INSIDE - 1) as private,
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
        with Directory.open(self.directory, inside=_INSIDE) as directory:
            # It may be faster even now, and in the same microsecond: never replace what it rotated.
            directory.rename_new(name, rotated)
            old = sorted(
                name
                for name in directory.names()
                if (found := FILE.fullmatch(name)) and found[1] == self.writer and found[2]
            )
            for name in old[: max(0, len(old) - self.keep)]:
                directory.remove(name)


def _forget_in_child() -> None:
    # What the parent noted is the parent's to write.
    for journal in list(_journals):
        journal.pending, journal._dropped = [], 0
        journal._release()


os.register_at_fork(after_in_child=_forget_in_child)


# Read


class Reading(NamedTuple):
    """Events in the order of their times; lines that did not parse; files that did not open."""

    events: list[Event]
    skipped: int
    unreadable: list[str]


def read_history(directory: str, docid: str) -> Reading:
    """Read all that happened to one document, also under a docid it was given on the way."""
    return _read(directory, lambda event: docid in (event.docid, event.renamed), docid)


def read_extended(directory: str, stem: str) -> Reading:
    """Read all that happened to documents whose docids are this stem and an extension."""
    return _read(directory, lambda event: event.docid.startswith(f"{stem}."), stem)


def read_origins(directory: str, name: str) -> Reading:
    """Read how a file of this name came to be published from here."""
    return _read(directory, lambda event: name in (event.outputs or ()), name)


def read_events(directory: str, since: float = 0.0) -> Reading:
    """Read all that happened at or after an instant (seconds since the epoch)."""
    return _read(directory, lambda event: event.at >= since, since=since)


def _read(
    directory: str, wanted: Callable[[Event], bool], text: str = "", since: float = 0.0
) -> Reading:
    """Read the events that are wanted. To decode a line takes far longer than to read it, so only
    those are that have the longest plain part of the text."""
    needle = max(_PLAIN.findall(text), key=len, default="").encode()
    found = Reading([], 0, [])
    skipped = 0
    for path, file in _files(directory, since, found.unreadable):
        try:
            for line in _lines(file, needle):
                event = decode_line(line)
                if event is None:
                    skipped += 1
                elif wanted(event):
                    found.events.append(event)
        except OSError:
            found.unreadable.append(path)
    # Hosts' clocks differ; within one writer's file the order stands, because the sort is stable.
    found.events.sort(key=lambda event: event.at)
    return found._replace(skipped=skipped)


def _lines(file: BinaryIO, needle: bytes) -> Iterator[bytes]:
    """Yield the lines that have the needle; of one too long its beginning."""
    while block := file.read(_BLOCK) + file.readline(MAX_LINE):
        if needle in block:
            yield from (line for line in block.split(b"\n") if needle in line and line)
        while not block.endswith(b"\n") and (block := file.readline(MAX_LINE)):
            pass


def _files(path: str, since: float, unreadable: list[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Yield each journal file once, open. What is not named like ours is not ours."""
    try:
        directory = Directory.open(path, inside=_INSIDE)
    except FileNotFoundError:
        return
    except (NotADirectoryError, PermissionError):
        unreadable.append(path)
        return
    seen: set[tuple[int, int]] = set()
    with directory:
        # A file that is rotated after the listing has another name then: list until nothing is new.
        for _ in range(_PASSES):
            fresh = False
            for name in sorted(directory.names()):
                found = FILE.fullmatch(name)
                if not found or (found[2] and int(found[2], 16) / 1e6 < since - _CLOCK_SLACK):
                    continue
                path = os.path.join(directory.path, name)
                try:
                    fd = directory.open_read(name)
                except FileNotFoundError:
                    fresh = True
                    continue
                except OSError:
                    if path not in unreadable:
                        unreadable.append(path)
                    continue
                with open_fd(fd):
                    status = os.fstat(fd)
                    identity = (status.st_dev, status.st_ino)
                    if not stat.S_ISREG(status.st_mode) or identity in seen:
                        continue
                    seen.add(identity)
                    fresh = True
                    if status.st_size > _MOST:
                        # Whoever reads is told that this is not all of it.
                        os.lseek(fd, status.st_size - _MOST, os.SEEK_SET)
                        unreadable.append(path)
                    with open(fd, "rb", closefd=False) as file:
                        yield path, file
            if not fresh:
                return
