"""A driver that is killed, or stands still, at a chosen step.

What a driver leaves to others is on disk, and everything it does there goes through `Directory`. So
a step is a call of that port, and the middle of each write; between two steps nothing happens that
another process could see.
"""

import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from queuedriver.disk import filesystem
from queuedriver.disk.filesystem import Directory

CHANGES = (
    "rename",
    "rename_new",
    "rename_over",
    "unlink",
    "remove",
    "open_new",
    "write_aside",
    "write_first",
    "sync",
    "sync_file",
    "sync_all",
    "probe",
)
LOOKS = (
    "open",
    "reopen",
    "subdirectory",
    "names",
    "present",
    "status",
    "open_read",
    "read",
    "read_regular",
)

Step = Callable[[], None]


# Seconds: two signals this far apart are two wishes.
_APART = 0.11


class Steps:
    """Counts steps, and sends this process one signal or more at one of them."""

    def __init__(self, at: int, *numbers: signal.Signals) -> None:
        self.taken = 0
        self._at = at
        self._numbers = numbers

    @property
    def reached(self) -> bool:
        return self.taken >= self._at

    def __call__(self) -> None:
        self.taken += 1
        if self.taken == self._at:
            for count, number in enumerate(self._numbers):
                time.sleep(_APART if count else 0)
                os.kill(os.getpid(), number)


def install(step: Step, thorough: bool) -> None:
    """Count from here on, in this process. Thorough: looks too, and both sides of each call."""
    write_all = filesystem.write_all
    for name in (*CHANGES, *LOOKS) if thorough else CHANGES:
        method = Directory.__dict__[name]
        if isinstance(method, classmethod):
            setattr(Directory, name, classmethod(_around(method.__func__, step, thorough)))
        else:
            setattr(Directory, name, _around(method, step, thorough))

    def write_in_halves(fd: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        write_all(fd, view[: len(view) // 2])
        step()
        write_all(fd, view[len(view) // 2 :])
        step()

    def write_new(self: Directory, name: str, data: bytes) -> None:
        fd = self.open_new(name)
        try:
            write_in_halves(fd, data)
        finally:
            os.close(fd)

    setattr(filesystem, "write_all", write_in_halves)  # noqa: B010 - a module has no such word
    setattr(Directory, "write_new", write_new)  # noqa: B010 - nor has a class


def _around(function: Callable[..., Any], step: Step, thorough: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def stepped(*args: Any, **named: Any) -> Any:
        step()
        answer = function(*args, **named)
        if thorough:
            step()
        return answer

    return stepped
