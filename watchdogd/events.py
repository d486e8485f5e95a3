"""What happens to drivers and stages: written down, and told by a command.

A line for each event in `events.jsonl` of the watchdog's local directory, for people and programs;
nothing is decided by it. It is local, so that it goes on while the queues' file system does not
answer; the helper copies it to where all hosts see it. What a full disk has no room for is lost,
and the next line says how much that was.

The command is that of the pipeline's file, `on_event = ["notify", "{event}"]`. Nobody waits for it.
Four run at once, in the pipeline's directory and for a minute each, and one a second starts after
the first twenty; what has no room is dropped, and the log of the commands says how much. The words
are given to the program as they are: no shell sees them. No command outlives the watchdog.
"""

import errno
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Literal, Protocol

import msgspec

from queuedriver.disk.filesystem import open_fd
from queuedriver.format.records import encode
from queuedriver.format.units import format_count, format_instant, visible
from watchdogd.children import Child, Children
from watchdogd.logs import open_log
from watchdogd.pipeline.model import EVENT_FIELDS

FILE = "events.jsonl"
COMMAND_LOG = "on_event.log"
_LOG_SIZE = 10_000_000
_LOG_KEEP = 5
_COMMAND_LOG_SIZE = 1_000_000
# Of a message, in characters.
_MOST_MESSAGE = 4096
# Commands that run at once, and the seconds that one may take.
_AT_ONCE = 4
_LONGEST = 60.0
# So many are started at once, and then one in so many seconds; more than so many do not wait.
_BURST = 20.0
_EVERY = 1.0
_MOST_WAITING = 100
# How soon a command that has ended is seen at the end, in seconds.
_LOOK = 0.02
_FIELD = re.compile(rf"\{{({'|'.join(EVENT_FIELDS)})\}}")

_OfWatchdog = Literal["watchdog-started", "watchdog-stopped"]
_OfDriver = Literal["adopted", "started", "ready", "exited", "restarted", "recycled"]
_OfItsTrouble = Literal["crash-looped", "trial", "hung", "killed", "unkillable"]
_OfStage = Literal["scaled", "moved", "paused", "stage-tripped", "resumed"]
_OfFiles = Literal["reloaded", "reload-refused", "waiting-fs", "fs-well"]
_OfQueue = Literal["recovered", "discarded", "drained", "closed-queue", "degraded"]
# In the order of docs/pipeline-file.rst.
Kind = Literal[_OfWatchdog, _OfDriver, _OfItsTrouble, _OfStage, _OfFiles, _OfQueue, "asked", "note"]


class Say(Protocol):
    """Write an event down and tell of it. `more` are its other fields."""

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
    # The operator who asked for it, and the batch of documents that it was about.
    who: str = ""
    batch: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    queue: str | None = None
    # How many, of events that are noted together.
    count: int | None = None


class Events:
    """Writes down what happens, and runs a command for it. Nobody waits for either."""

    def __init__(
        self,
        local: str,
        host: str,
        directory: str,
        children: Children,
        tell: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self.host = host
        # What an operator wants run for each event; empty: nothing.
        self.command: Sequence[str] = ()
        self._local = local
        # Where the command runs.
        self._directory = directory
        self._children = children
        self._tell = tell
        # Events that could not be written since one was.
        self._lost = 0
        # Commands that run, those that are to be run, and how many there was no room for.
        self._running: list[Child] = []
        self._waiting: deque[list[str]] = deque(maxlen=_MOST_WAITING)
        self._dropped = 0
        # How many may be started at once, and when that was so.
        self._tokens, self._counted_at = _BURST, 0.0

    def say(
        self, kind: Kind, message: str = "", *, stage: str = "", driver: str = "", **more: object
    ) -> None:
        """Write an event down and tell of it. `more` are its other fields."""
        given = {"at": time.time(), "stage": stage, "driver": driver, **more}
        event = Event(host=self.host, event=kind, message=message[:_MOST_MESSAGE], **given)  # type: ignore[arg-type]
        self._write(event)
        self._tell(event)
        if self.command:
            self._dropped += len(self._waiting) == _MOST_WAITING
            self._waiting.append(words(self.command, event))
            self.tend(time.monotonic())

    def tend(self, now: float) -> float:
        """Start commands that wait, in measure; return when there is something to do again."""
        self._running = [one for one in self._running if one.exit is None]
        self._tokens = min(_BURST, self._tokens + max(0.0, now - self._counted_at) / _EVERY)
        self._counted_at = now
        while self._waiting and self._tokens >= 1.0 and len(self._running) < _AT_ONCE:
            self._tokens -= 1.0
            self._start(self._waiting.popleft(), now)
        if not self._waiting or len(self._running) >= _AT_ONCE:
            return math.inf
        return now + (1.0 - self._tokens) * _EVERY

    def close(self, patience: float) -> None:
        """Tell what is still to be told, and let commands end; for so many seconds at most."""
        ends_at = time.monotonic() + patience
        while (self._waiting or self._running) and (now := time.monotonic()) < ends_at:
            time.sleep(_LOOK)
            self._children.reap(now)
            self.tend(now)

    def _write(self, event: Event) -> None:
        try:
            with open_fd(open_log(os.path.join(self._local, FILE), _LOG_SIZE, _LOG_KEEP)) as fd:
                if self._lost:
                    what = f"{format_count(self._lost, 'event')} before this could not be written"
                    _append(fd, Event(at=event.at, host=self.host, event="note", message=what))
                    self._lost = 0
                _append(fd, event)
        except OSError:
            self._lost += 1

    def _start(self, argv: list[str], now: float) -> None:
        with ExitStack() as at_end:
            log = None
            # Where its log cannot be written, what a command says is lost, but it still runs.
            with suppress(OSError):
                path = os.path.join(self._local, COMMAND_LOG)
                log = at_end.enter_context(open_fd(open_log(path, _COMMAND_LOG_SIZE, 1)))
                if self._dropped:
                    lost = f"{format_count(self._dropped, 'event')} had no room, and were not told"
                    os.write(log, f"{format_instant(time.time())} {lost}\n".encode())
                    self._dropped = 0
            try:
                child = self._children.start(
                    argv, os.environ, output=log, directory=self._directory, tied=True
                )
            except OSError:
                self._dropped += 1
                return
        child.ask("run", "it takes too long", now, takes=_LONGEST)
        self._running.append(child)


def words(command: Sequence[str], event: Event) -> list[str]:
    """Fill the fields of an event into a command, each once: what an event says is not looked
    through for more of them."""
    # No argument of a program can hold a NUL.
    return [
        _FIELD.sub(lambda field: getattr(event, field[1]).replace("\0", ""), word)
        for word in command
    ]


def _append(fd: int, event: Event) -> None:
    """Write an event as one line, whole or not at all."""
    line = encode(event) + b"\n"
    written = os.write(fd, line)
    if written < len(line):
        # The disk is full, and a part of a line would spoil the next one.
        os.ftruncate(fd, os.fstat(fd).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def describe(event: Event) -> str:
    """Return one line for a person, in which nothing can steer a terminal."""
    code = "" if event.exit_code is None else f"exit code {event.exit_code}"
    signal = f"ended by {event.signal}" if event.signal else ""
    # Most messages say it already.
    how = [event.message] if event.message else []
    how += [one for one in (code, signal) if one not in event.message]
    words = " ".join(filter(None, (event.driver or event.stage, event.event)))
    return visible(f"{words}: {', '.join(how)}" if how else words)
