"""What happened to a document: one append-only file of JSON lines per writer, merged when read.

    .queuedriver/journal/<writer>.jsonl              what this writer notes now
    .queuedriver/journal/<writer>.<14 hex>.jsonl     rotated away then (microseconds, epoch)

A writer is a driver id, or `put-<host>` for the submitters of one host: no file is written by two
hosts, because network file systems lose lines when two append. Lines are kept in memory for 0.1 s
and leave in one write(2) with O_APPEND, so a crash costs the last 0.1 s and at most cuts the last
line; the next writer starts on a line of its own, and a reader skips what does not parse.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from queuedriver.filesystem import Directory
from queuedriver.units import format_count, format_duration

# Seconds between two writes: a write per event would cost a twentieth of the work.
INTERVAL = 0.1
# After trouble, seconds until the next attempt.
_RETRY = 1.0
MAX_BYTES = 64 << 20
KEEP = 8
# A few MB; at a thousand documents a second, ten seconds of a full disk.
_MAX_PENDING = 10_000
# Longer lines are not ours, or no use: skipped when read, shortened when written.
_MAX_LINE = 1 << 20
_MAX_MESSAGE = 4096
_MAX_OUTPUTS = 100
_CHUNK = 1 << 20
# A file rotated away before this many seconds before an instant has nothing from after it: the
# slack is for a clock that was set back.
_CLOCK_SLACK = 3600.0

# Listings of one reading. Two are enough but for files that rotate meanwhile; a network file system
# may go on listing a name that is gone for a minute.
_PASSES = 20

_WRITER = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FILE = re.compile(rf"({_WRITER.pattern})(?:\.([0-9a-f]{{14}}))?\.jsonl")
# What every JSON writer leaves as it is.
_PLAIN = re.compile(r"[A-Za-z0-9 ._-]+")
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: what happened (submitted, published, failed, …) to which document, when."""

    at: float
    event: str
    docid: str = ""
    token: str | None = None
    host: str = ""
    driver: str = ""
    queue: str | None = None
    attempt: int | None = None
    # What the work took.
    seconds: float | None = None
    cause: str | None = None
    message: str | None = None
    # Final names.
    outputs: tuple[str, ...] | None = None
    # The docid under which it goes on, when its own was taken.
    renamed: str | None = None


class Reading(NamedTuple):
    """Events in the order of their times; lines that did not parse; files that did not open."""

    events: list[Event]
    skipped: int
    unreadable: list[str]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)
_journals: "weakref.WeakSet[Journal]" = weakref.WeakSet()


def submitter(host: str) -> str:
    """The writer that all submitters of one host are."""
    return "put-" + re.sub(r"[^A-Za-z0-9_-]", "_", host)[:64]


def operator(host: str) -> str:
    """The writer that all operators of one host are."""
    return "operator-" + re.sub(r"[^A-Za-z0-9_-]", "_", host)[:64]


class Journal:
    """What one writer notes. For one thread; a forked child starts with nothing noted."""

    def __init__(
        self,
        directory: str,
        writer: str,
        host: str,
        interval: float = INTERVAL,
        max_bytes: int = MAX_BYTES,
        keep: int = KEEP,
    ) -> None:
        if not _WRITER.fullmatch(writer):
            raise ValueError(f"{writer!r} cannot name a journal: letters, digits, '_' and '-' can")
        self.directory = directory
        self.writer = writer
        self.host = host
        self.interval = interval
        self.max_bytes = max_bytes
        self.keep = keep
        self.path = os.path.join(directory, f"{writer}.jsonl")
        # Why the last write failed; None while all is well.
        self.trouble: OSError | None = None
        self._pending: list[Event] = []
        self._dropped = 0
        self._due = 0.0
        self._fd = -1
        # The file ends within a line: a crash or a full disk cut it.
        self._torn = False
        _journals.add(self)

    def note(
        self,
        event: str,
        docid: str = "",
        *,
        at: float | None = None,
        token: str | None = None,
        queue: str | None = None,
        attempt: int | None = None,
        seconds: float | None = None,
        cause: str | None = None,
        message: str | None = None,
        outputs: tuple[str, ...] | None = None,
        renamed: str | None = None,
    ) -> None:
        """Remember an event. Costs a fraction of a microsecond, touches nothing, cannot fail."""
        pending = self._pending
        if len(pending) >= _MAX_PENDING:
            self._drop()
        pending.append(
            Event(
                at=time.time() if at is None else at,
                event=event,
                docid=docid,
                token=token,
                host=self.host,
                driver=self.writer,
                queue=queue,
                attempt=attempt,
                seconds=seconds,
                cause=cause,
                message=message,
                outputs=outputs,
                renamed=renamed,
            )
        )

    @property
    def pending(self) -> Sequence[Event]:
        """What was noted and is not written yet, the latest last."""
        return self._pending

    def flush_if_due(self, now: float) -> None:
        """Write what was noted, if the last write is `interval` ago. `now` is monotonic."""
        if self._pending and now >= self._due:
            self.flush()
            self._due = now + (_RETRY if self.trouble else self.interval)

    def flush(self) -> None:
        """Write what was noted; what cannot be written stays noted."""
        if not self._pending:
            return
        batch = [*self._notice(), *self._pending]
        try:
            fd = self._writable()
            lead = b"\n" if self._torn else b""
            data = lead + _encode(batch)
            written = os.write(fd, data)
        except OSError as error:
            self.trouble = error
            self._release()
            return
        self.trouble = None
        self._torn = data[written - 1 : written] != b"\n"
        # Short on a full disk: the next attempt will say why. Lines that went whole are done with,
        # also one that lacks only its end: it parses, and the next write begins with that end.
        done = data.count(b"\n", len(lead), written)
        if written > len(lead) and data[written : written + 1] == b"\n":
            done += 1
        if done:
            self._pending = batch[done:]
            self._dropped = 0

    def close(self) -> None:
        """Write what was noted and give the descriptor back."""
        self.flush()
        self._release()

    def _drop(self) -> None:
        # A tenth at once: dropping one from the head of a list moves all the others.
        count = _MAX_PENDING // 10
        del self._pending[:count]
        self._dropped += count

    def _notice(self) -> list[Event]:
        if not self._dropped:
            return []
        lost = format_count(self._dropped, "line")
        why = f": {self.trouble.strerror}" if self.trouble else ""
        return [
            Event(
                at=self._pending[0].at,
                event="dropped",
                host=self.host,
                driver=self.writer,
                message=f"the journal could not be written, and {lost} before this were lost{why}",
            )
        ]

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
        try:
            fd = os.open(self.path, _APPEND, 0o666)
        except FileNotFoundError:
            # Only this one level: where there is no queue, a journal must not make one.
            with suppress(FileExistsError):
                os.mkdir(self.directory)
            fd = os.open(self.path, _APPEND, 0o666)
        self._fd = fd
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
        directory = Directory.open(self.directory)
        try:
            # It may be faster even now, and in the same microsecond: never replace what it rotated.
            directory.rename_new(name, rotated)
        finally:
            directory.close()
        old = sorted(
            name
            for name in os.listdir(self.directory)
            if (found := _FILE.fullmatch(name)) and found[1] == self.writer and found[2]
        )
        for name in old[: max(0, len(old) - self.keep)]:
            os.unlink(os.path.join(self.directory, name))

    def _forget(self) -> None:
        self._pending = []
        self._dropped = 0
        self._release()


def _forget_in_child() -> None:
    # What the parent noted is the parent's to write.
    for journal in list(_journals):
        journal._forget()


os.register_at_fork(after_in_child=_forget_in_child)


def _encode(events: Sequence[Event]) -> bytes:
    """One line for each event, none longer than a reader takes."""
    with suppress(UnicodeEncodeError):
        data = _encoder.encode_lines(events)
        if len(data) <= _MAX_LINE:
            return data
    return b"".join(_line(event) for event in events)


def _line(event: Event) -> bytes:
    try:
        line = _encoder.encode(event)
    except UnicodeEncodeError:
        event = msgspec.convert(_encodable(msgspec.to_builtins(event)), Event)
        line = _encoder.encode(event)
    if len(line) >= _MAX_LINE:
        event = msgspec.structs.replace(
            event,
            message=event.message and event.message[:_MAX_MESSAGE],
            outputs=event.outputs and event.outputs[:_MAX_OUTPUTS],
        )
        line = _encoder.encode(event)
    return line + b"\n"


def _encodable(value: Any) -> Any:
    """The same without lone surrogates, which stand for bytes that were no text."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {key: _encodable(part) for key, part in value.items()}
        case list() | tuple():
            return [_encodable(part) for part in value]
    return value


def read_history(directory: str, docid: str) -> Reading:
    """All that happened to one document, also under a docid it was given on the way.

    Lines are decoded only when they hold the longest plain part of the docid.
    """
    needle = max(_PLAIN.findall(docid), key=len, default="").encode()
    return _read(directory, 0.0, needle, lambda event: docid in (event.docid, event.renamed))


def read_origins(directory: str, name: str) -> Reading:
    """How a file of this name came to be published from here."""
    needle = max(_PLAIN.findall(name), key=len, default="").encode()
    return _read(directory, 0.0, needle, lambda event: name in (event.outputs or ()))


def read_events(directory: str, since: float = 0.0) -> Reading:
    """All that happened at or after an instant (seconds since the epoch)."""
    return _read(directory, since, b"", lambda event: event.at >= since)


def _read(directory: str, since: float, needle: bytes, wanted: Callable[[Event], bool]) -> Reading:
    events: list[Event] = []
    skipped = 0
    unreadable: list[str] = []
    for path, fd in _files(directory, since, unreadable):
        try:
            for line in _lines(fd, needle):
                event = _decode(line)
                if event is None:
                    skipped += 1
                elif wanted(event):
                    events.append(event)
        except OSError:
            unreadable.append(path)
    # Hosts' clocks differ; within one writer's file the order stands, because the sort is stable.
    events.sort(key=lambda event: event.at)
    return Reading(events, skipped, unreadable)


def _decode(line: bytes) -> Event | None:
    if len(line) > _MAX_LINE:
        return None
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _files(directory: str, since: float, unreadable: list[str]) -> Iterator[tuple[str, int]]:
    """Each journal file once, open. What is not named like ours is not ours."""
    seen = set()
    # A file that is rotated after the listing has another name then: list until nothing is new.
    for _ in range(_PASSES):
        fresh = False
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            return
        for name in names:
            found = _FILE.fullmatch(name)
            if not found or (found[2] and int(found[2], 16) / 1e6 < since - _CLOCK_SLACK):
                continue
            path = os.path.join(directory, name)
            try:
                fd = os.open(path, _READ)
            except FileNotFoundError:
                fresh = True
                continue
            except OSError:
                if path not in unreadable:
                    unreadable.append(path)
                continue
            try:
                status = os.fstat(fd)
                identity = (status.st_dev, status.st_ino)
                if stat.S_ISREG(status.st_mode) and identity not in seen:
                    seen.add(identity)
                    fresh = True
                    yield path, fd
            finally:
                os.close(fd)
        if not fresh:
            return


def _lines(fd: int, needle: bytes) -> Iterator[bytes]:
    """The lines that hold the needle, without their ends."""
    for block in _blocks(fd):
        at = block.find(needle)
        while 0 <= at < len(block):
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            end = end if end >= 0 else len(block)
            if end > start:
                yield block[start:end]
            at = block.find(needle, end + 1)


def _blocks(fd: int) -> Iterator[bytes]:
    """Whole lines, many at once, in bounded memory."""
    rest = b""
    while chunk := os.read(fd, _CHUNK):
        block = rest + chunk
        end = block.rfind(b"\n") + 1
        if end:
            yield block[:end]
        # Of a line that is too long, enough is kept for it to be found too long.
        rest = block[end : end + _MAX_LINE + 1]
    if rest:
        yield rest


def describe(event: Event) -> str:
    """One line for a person, in local time; nothing in it can steer a terminal."""
    try:
        seconds, millis = divmod(int(event.at * 1000), 1000)
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) + f".{millis:03d}"
    except (OverflowError, ValueError, OSError):
        clock = f"at {event.at}"
    parts = [event.event]
    if event.attempt is not None:
        parts.append(f"attempt {event.attempt}")
    if event.seconds is not None:
        parts.append(f"took {format_duration(event.seconds)}")
    if event.outputs:
        parts.append(f"as {' '.join(event.outputs)}")
    if event.renamed:
        parts.append(f"goes on as {event.renamed}")
    by = f"by {event.driver}" if event.driver else ""
    on = f"on {event.host}" if event.host else ""
    words = " ".join(filter(None, (clock, event.docid, ", ".join(parts), by, on)))
    why = ": ".join(filter(None, (event.cause, event.message)))
    return _printable(f"{words}: {why}" if why else words)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
