"""The command that a pipeline's file names for events: `on_event = ["notify", "{event}"]`.

Nobody waits for it. Four run at once, a minute each, and one a second starts after the first
twenty; what has no room is dropped, and the log of the hooks says how much. The words are given to
the program as they are: no shell sees them.
"""

import contextlib
import os
import re
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from watchdogd.events import Event
from watchdogd.logs import open_log

LOG = "hooks.log"
_LOG_SIZE = 1_000_000
_LOG_KEEP = 1
_AT_ONCE = 4
_LONGEST = 60.0
# So many at once, and then one in so many seconds.
_BURST = 20.0
_EVERY = 1.0
_MOST_WAITING = 100
# argv, the descriptors for stdin and stdout, the file that stderr is appended to → pid, pidfd.
Spawn = Callable[[Sequence[str], int, int, str], tuple[int, int]]
_FIELD = re.compile(r"\{(event|stage|driver|message|host)\}")


class _Running(NamedTuple):
    pid: int
    pidfd: int
    until: float
    event: str


class Hooks:
    """The running commands, and the events that wait for one. Instants are monotonic."""

    def __init__(self, command: Sequence[str], spawn: Spawn, directory: str) -> None:
        self.command = tuple(command)
        self._spawn = spawn
        self._log = os.path.join(directory, LOG)
        self._running: list[_Running] = []
        self._waiting: deque[Event] = deque()
        self._dropped = 0
        self._tokens = _BURST
        self._filled_at = 0.0

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when a command has ended."""
        return [one.pidfd for one in self._running]

    @property
    def pids(self) -> list[int]:
        """Children that are reaped here, and nowhere else."""
        return [one.pid for one in self._running]

    @property
    def waiting(self) -> bool:
        """Whether there are events that nobody has been told of."""
        return bool(self._waiting)

    @property
    def due_at(self) -> float:
        """When to tend at the latest, unless one of `fds` is readable before; or infinite."""
        due = [one.until for one in self._running]
        if self._waiting and len(self._running) < _AT_ONCE:
            due.append(self._filled_at + (1.0 - self._tokens) * _EVERY)
        return min(due, default=float("inf"))

    def tell(self, event: Event, now: float) -> None:
        """Run the command for an event, now or soon."""
        if not self.command:
            return
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(event)
        self.tend(now)

    def tend(self, now: float) -> None:
        """Reap what has ended, kill what takes too long, start what waits."""
        self._running = [left for one in self._running if (left := _left(one, now))]
        self._tokens = min(_BURST, self._tokens + max(0.0, now - self._filled_at) / _EVERY)
        self._filled_at = now
        while self._waiting and self._tokens >= 1.0 and len(self._running) < _AT_ONCE:
            self._tokens -= 1.0
            self._start(self._waiting.popleft(), now)

    def close(self) -> None:
        """At the end of the watchdog: what runs still may go on, within its own time."""
        for one in self._running:
            os.close(one.pidfd)
        self._running = []

    def _start(self, event: Event, now: float) -> None:
        argv = words(self.command, event)
        try:
            log = open_log(self._log, _LOG_SIZE, _LOG_KEEP)
        except OSError:
            # Where this cannot be written, what the command says is lost, but it still runs.
            log = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self._dropped:
                _say(log, f"{self._dropped} events had no room, and were not told")
                self._dropped = 0
            try:
                pid, pidfd = self._spawn(argv, nothing, log, self._log)
            except OSError as error:
                _say(log, f"{argv[0]!r} cannot be run for {event.event}: {error.strerror}")
                return
        finally:
            os.close(nothing)
            os.close(log)
        self._running.append(_Running(pid, pidfd, now + _LONGEST, event.event))


def words(command: Sequence[str], event: Event) -> list[str]:
    """The command for one event. Each field is filled in once: what an event says is not looked
    through for more of them."""
    return [_FIELD.sub(lambda field: _plain(getattr(event, field[1])), word) for word in command]


def _plain(text: str) -> str:
    # No argument of a program can hold a NUL.
    return text.replace("\0", "")


def _left(one: _Running, now: float) -> _Running | None:
    """What there is to remember of a command: nothing, once it has ended."""
    if _readable(one.pidfd):
        # Somebody who reaps all children may be faster.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, one.pidfd, os.WEXITED | os.WNOHANG)
        os.close(one.pidfd)
        return None
    if now < one.until:
        return one
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(one.pidfd, signal.SIGKILL)
        if os.getpgid(one.pid) == one.pid:
            os.killpg(one.pid, signal.SIGKILL)
    return one._replace(until=now + _LONGEST)


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _say(log: int, what: str) -> None:
    with contextlib.suppress(OSError):
        os.write(log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {what}\n".encode(errors="replace"))
