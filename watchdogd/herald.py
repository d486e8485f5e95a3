"""Tells of what happens: in `events.jsonl`, by the command of `on_event`, to whoever listens."""

import select
import time
from collections.abc import Sequence

from watchdogd.events import EventLog, Kind
from watchdogd.hooks import Hooks, Spawn


class Herald:
    """The watchdog's voice."""

    def __init__(self, log: EventLog, spawn: Spawn, directory: str, command: Sequence[str]) -> None:
        self._log = log
        self._spawn = spawn
        self._directory = directory
        self._hooks = Hooks(command, spawn, directory)
        # Commands of an earlier pipeline file that still run.
        self._former: list[Hooks] = []

    def say(
        self, kind: Kind, message: str = "", *, stage: str = "", driver: str = "", **more: object
    ) -> None:
        """Something happened. `more` are the other fields of an event."""
        event = self._log.note(kind, message, stage=stage, driver=driver, **more)  # type: ignore[arg-type]
        self._hooks.tell(event, time.monotonic())

    def configure(self, command: Sequence[str]) -> None:
        """From now on this is the command."""
        if self._hooks.command != tuple(command):
            self._former.append(self._hooks)
            self._hooks = Hooks(command, self._spawn, self._directory)

    @property
    def fds(self) -> list[int]:
        """To be polled, so that commands that have ended are seen to."""
        return [fd for hooks in (self._hooks, *self._former) for fd in hooks.fds]

    @property
    def pids(self) -> set[int]:
        return {pid for hooks in (self._hooks, *self._former) for pid in hooks.pids}

    def tend(self, now: float) -> float:
        """See to the commands, and to lines that could not be written; when to come back."""
        self._log.flush()
        for hooks in (self._hooks, *self._former):
            hooks.tend(now)
        self._former = [hooks for hooks in self._former if hooks.fds]
        return min(hooks.due_at for hooks in (self._hooks, *self._former))

    def close(self, patience: float = 0.0) -> None:
        """The end: what is still to be told is told, if that does not take too long."""
        ends_at = time.monotonic() + patience
        while self._hooks.waiting and (now := time.monotonic()) < ends_at:
            poll = select.poll()
            for fd in self.fds:
                poll.register(fd, select.POLLIN)
            poll.poll(max(0.0, min(ends_at, self._hooks.due_at) - now) * 1000)
            self.tend(time.monotonic())
        self._log.flush()
        for hooks in (self._hooks, *self._former):
            hooks.close()
