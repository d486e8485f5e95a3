"""What happens to drivers and stages: `events.jsonl` in the watchdog's local directory.

A line for each event, for people and programs; nothing is decided by it. It is local, so that it
goes on while the queues' file system does not answer; the helper copies it to where all hosts see
it.
A full disk stops nobody: a bounded number of lines waits, the oldest are dropped, and a line
says how many.
"""

import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from queuedriver.format.records import decode
from queuedriver.format.units import format_count
from watchdogd.logs import open_log

FILE = "events.jsonl"
_MAX_BYTES = 10_000_000
_KEEP = 5
_MOST_PENDING = 1000
_MOST_MESSAGE = 4096

Kind = Literal[
    "watchdog-started",
    "watchdog-stopped",
    "adopted",
    "started",
    "ready",
    "exited",
    "restarted",
    "recycled",
    "crash-looped",
    "trial",
    "hung",
    "killed",
    "unkillable",
    "scaled",
    "moved",
    "paused",
    "stage-tripped",
    "resumed",
    "reloaded",
    "reload-refused",
    "waiting-fs",
    "fs-well",
    "recovered",
    "discarded",
    "drained",
    "closed-queue",
    "degraded",
    "note",
]


class Say(Protocol):
    """Tells of an event. `more` are its other fields."""

    def __call__(
        self, kind: Kind, message: str = "", *, stage: str = "", driver: str = "", **more: object
    ) -> None: ...


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line; `at` in seconds since the epoch. What an event is not about is left out."""

    at: float
    host: str
    event: Kind
    stage: str = ""
    # What people call it: parse-2.
    driver: str = ""
    # For people: what, and why.
    message: str = ""
    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    queue: str | None = None
    docid: str | None = None
    # How many, of events that are noted together.
    count: int | None = None


class EventLog:
    """Where a watchdog notes what happens; `tell` gets each event too."""

    def __init__(
        self,
        directory: str,
        host: str,
        tell: Callable[[Event], None] = lambda _: None,
        max_bytes: int = _MAX_BYTES,
        keep: int = _KEEP,
    ) -> None:
        self.path = os.path.join(directory, FILE)
        self.host = host
        # Why lines wait; empty while they are written.
        self.trouble = ""
        self._tell = tell
        self._max_bytes = max_bytes
        self._keep = keep
        self._pending: deque[bytes] = deque()
        self._dropped = 0

    def note(
        self,
        event: Kind,
        message: str = "",
        *,
        stage: str = "",
        driver: str = "",
        pid: int | None = None,
        exit_code: int | None = None,
        signal: str | None = None,
        queue: str | None = None,
        docid: str | None = None,
        count: int | None = None,
        at: float | None = None,
    ) -> Event:
        """Write an event down, and pass it on."""
        noted = Event(
            at=time.time() if at is None else at,
            host=self.host,
            event=event,
            stage=stage,
            driver=driver,
            message=message[:_MOST_MESSAGE],
            pid=pid,
            exit_code=exit_code,
            signal=signal,
            queue=queue,
            docid=docid,
            count=count,
        )
        self._append(noted)
        self._tell(noted)
        return noted

    def flush(self) -> None:
        """Write what waits, if it can be written now."""
        if not self._pending and not self._dropped:
            return
        try:
            fd = open_log(self.path, self._max_bytes, self._keep)
            try:
                self._write(fd)
            finally:
                os.close(fd)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"{self.path}: {os.strerror(error.errno or 0)}"

    def _append(self, event: Event) -> None:
        if len(self._pending) >= _MOST_PENDING:
            self._pending.popleft()
            self._dropped += 1
        self._pending.append(_line(event))
        self.flush()

    def _write(self, fd: int) -> None:
        if self._dropped:
            lost = f"{format_count(self._dropped, 'event')} before this could not be written"
            notice = Event(at=time.time(), host=self.host, event="note", message=lost)
            self._pending.appendleft(_line(notice))
            self._dropped = 0
        while self._pending:
            line = self._pending[0]
            written = os.write(fd, line)
            if written < len(line):
                # The disk is full. What was written of the line is not understood by itself, and
                # the rest not without it: it is written whole, on a line of its own, later.
                os.ftruncate(fd, os.fstat(fd).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            self._pending.popleft()


def _line(event: Event) -> bytes:
    try:
        return msgspec.json.encode(event) + b"\n"
    except UnicodeEncodeError:
        # Bytes of a file's name that are no text.
        plain = {
            key: value.encode("utf-8", "backslashreplace").decode()
            for key, value in msgspec.structs.asdict(event).items()
            if isinstance(value, str)
        }
        return msgspec.json.encode(msgspec.structs.replace(event, **plain)) + b"\n"


def read_events(path: str) -> list[Event]:
    """The events of one file; lines that are not understood are left out."""
    found = []
    with open(path, "rb") as file:
        for line in file:
            with contextlib.suppress(msgspec.DecodeError):
                found.append(decode(line, Event))
    return found


def describe(event: Event) -> str:
    """One line for a person; nothing in it can steer a terminal."""
    who = event.driver or event.stage
    end = []
    if event.exit_code is not None:
        end.append(f"exit code {event.exit_code}")
    if event.signal is not None:
        end.append(f"ended by {event.signal}")
    # Most messages say it already.
    how = [event.message] if event.message else []
    how += [one for one in end if one not in event.message]
    words = " ".join(filter(None, (who, event.event)))
    line = f"{words}: {', '.join(how)}" if how else words
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
    )
