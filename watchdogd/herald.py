"""Tells of what happens: in `events.jsonl`, by the command of `on_event`, to whoever listens."""

import time
from collections.abc import Sequence

from watchdogd.children import Children
from watchdogd.events import EventLog, Kind
from watchdogd.hooks import Hooks

# How soon a command that has ended is seen at the end, in seconds.
_LOOK = 0.02


class Herald:
    """The watchdog's voice."""

    def __init__(
        self, log: EventLog, children: Children, directory: str, command: Sequence[str]
    ) -> None:
        self._log = log
        self._children = children
        self._directory = directory
        self._hooks = Hooks(command, children, directory)
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
            self._hooks = Hooks(command, self._children, self._directory)

    def tend(self, now: float) -> float:
        """See to the commands, and to lines that could not be written; when to come back."""
        self._log.flush()
        for hooks in (self._hooks, *self._former):
            hooks.tend(now)
        self._former = [hooks for hooks in self._former if hooks.running or hooks.waiting]
        return min(hooks.due_at for hooks in (self._hooks, *self._former))

    def close(self, patience: float = 0.0) -> None:
        """The end: what is still to be told is told, if that does not take too long."""
        ends_at = time.monotonic() + patience
        while self._hooks.waiting and (now := time.monotonic()) < ends_at:
            time.sleep(_LOOK)
            self._children.reap(now)
            self.tend(now)
        self._log.flush()
