"""The command that a pipeline's file names for events: `on_event = ["notify", "{event}"]`.

Nobody waits for it. Four run at once, a minute each, and one a second starts after the first
twenty; what has no room is dropped, and the log of the hooks says how much. The words are given to
the program as they are: no shell sees them.
"""

import contextlib
import math
import os
import re
import time
from collections import deque
from collections.abc import Sequence

from watchdogd.children import Child, Children
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
_FIELD = re.compile(r"\{(event|stage|driver|message|host)\}")


class Hooks:
    """The running commands, and the events that wait for one. Instants are monotonic."""

    def __init__(self, command: Sequence[str], children: Children, directory: str) -> None:
        self.command = tuple(command)
        self.children = children
        self._log = os.path.join(directory, LOG)
        self._running: list[Child] = []
        self._waiting: deque[Event] = deque()
        self._dropped = 0
        self._tokens = _BURST
        self._filled_at = 0.0

    @property
    def running(self) -> bool:
        """Whether there are commands that have not ended."""
        return bool(self._running)

    @property
    def waiting(self) -> bool:
        """Whether there are events that nobody has been told of."""
        return bool(self._waiting)

    @property
    def due_at(self) -> float:
        """When to tend at the latest, unless a command ends before; or infinite."""
        if self._waiting and len(self._running) < _AT_ONCE:
            return self._filled_at + (1.0 - self._tokens) * _EVERY
        return math.inf

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
        """Forget what has ended, start what waits."""
        self._running = [one for one in self._running if one.exit is None]
        self._tokens = min(_BURST, self._tokens + max(0.0, now - self._filled_at) / _EVERY)
        self._filled_at = now
        while self._waiting and self._tokens >= 1.0 and len(self._running) < _AT_ONCE:
            self._tokens -= 1.0
            self._start(self._waiting.popleft(), now)

    def _start(self, event: Event, now: float) -> None:
        argv = words(self.command, event)
        try:
            log = open_log(self._log, _LOG_SIZE, _LOG_KEEP)
        except OSError:
            # Where this cannot be written, what the command says is lost, but it still runs.
            log = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if self._dropped:
                _say(log, f"{self._dropped} events had no room, and were not told")
                self._dropped = 0
            try:
                child = self.children.start(argv, os.environ, stdout=log, stderr=log)
            except OSError as error:
                _say(log, f"{argv[0]!r} cannot be run for {event.event}: {error.strerror}")
                return
        finally:
            os.close(log)
        child.ask("run", "it takes too long", now, takes=_LONGEST)
        self._running.append(child)


def words(command: Sequence[str], event: Event) -> list[str]:
    """The command for one event. Each field is filled in once: what an event says is not looked
    through for more of them."""
    return [_FIELD.sub(lambda field: _plain(getattr(event, field[1])), word) for word in command]


def _plain(text: str) -> str:
    # No argument of a program can hold a NUL.
    return text.replace("\0", "")


def _say(log: int, what: str) -> None:
    with contextlib.suppress(OSError):
        os.write(log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {what}\n".encode(errors="replace"))
