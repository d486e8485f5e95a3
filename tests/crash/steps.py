"""A driver that is killed, or stands still, at a chosen step.

What a driver leaves to others is on disk. So a step is a system call by which a claim, an output or
a record changes there, and the middle of each write; between two steps nothing happens that another
process could see.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from queuedriver.disk import filesystem

# What changes something; what looks.
CHANGES = frozenset({"rename", "unlink", "link", "mkdir", "rmdir", "fsync"})
LIBC_CHANGES = frozenset({"renameat2", "syncfs", "sync_file_range"})
LOOKS = frozenset({"stat", "fstat", "scandir", "read"})
# Where these calls are made; the journal and what is told of a driver decide nothing.
_MODULES = ("queuedriver.claims.", "queuedriver.disk.filesystem")

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
    system = System(step, thorough)
    for name, module in [*sys.modules.items()]:
        if name.startswith(_MODULES) and vars(module).get("os") is os:
            setattr(module, "os", system)  # noqa: B010 - a module has no such word
    libc = Library(filesystem.libc(), step, thorough)
    setattr(filesystem, "libc", lambda: libc)  # noqa: B010 - nor has it this one


class System:
    """What a module of the queue says `os` to."""

    def __init__(self, step: Step, thorough: bool) -> None:
        self._step = step
        self._thorough = thorough

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name in CHANGES or (self._thorough and name in LOOKS):
            found = _around(found, self._step, self._thorough)
        # Once for all.
        self.__dict__[name] = found
        return found

    def open(self, path: str, flags: int, *given: Any, **named: Any) -> int:
        if flags & os.O_CREAT or self._thorough:
            self._step()
        return os.open(path, flags, *given, **named)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """In two halves, with a step after each."""
        view = memoryview(data)
        written = os.write(fd, view[: len(view) // 2])
        self._step()
        written += os.write(fd, view[written:])
        self._step()
        return written


class Library:
    """The C library, whose calls are steps, too."""

    def __init__(self, library: Any, step: Step, thorough: bool) -> None:
        self._library = library
        self._step = step
        self._thorough = thorough

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)
        if name not in LIBC_CHANGES:
            return function
        return _around(function, self._step, self._thorough)


def _around(function: Callable[..., Any], step: Step, thorough: bool) -> Callable[..., Any]:
    def stepped(*args: Any, **named: Any) -> Any:
        step()
        answer = function(*args, **named)
        if thorough:
            step()
        return answer

    return stepped
