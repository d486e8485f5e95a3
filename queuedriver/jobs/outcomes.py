"""How each task of a job ended: one line per task, added before the task's claim is committed.

The items that are left are the truth: of a task that still waits, what a line says of it does not
count, as whoever wrote that died before the commit. Of several lines of one task the last counts.
"""

import os
from collections.abc import Iterator
from enum import IntEnum

from queuedriver.disk.filesystem import Directory, write_all

FILE = "outcomes"
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_SHOWN = 1000


class Outcome(IntEnum):
    """One task's end."""

    OPEN = 0
    DONE = 1
    ERROR = 2
    LOST = 3
    CANCELLED = 4


class Outcomes:
    """Those of one job: a byte per task."""

    def __init__(self, directory: Directory, tasks: int) -> None:
        self._directory = directory
        self.tasks = tasks
        self._of = bytearray(tasks + 1)
        self._torn = False
        self.load()

    def load(self) -> None:
        """What has been written down."""
        self._of = bytearray(self.tasks + 1)
        self._torn = False
        for line in self._lines():
            self._torn = not line.endswith(b"\n")
            number, _, word = line.rstrip(b"\n").partition(b" ")
            name = word.decode("ascii", "replace").upper()
            if number.isdigit() and name in Outcome.__members__ and not self._torn:
                self._set(int(number[:10]), Outcome[name])

    def reopen(self, task: int) -> None:
        """It is still there: whatever was said of it did not happen."""
        self._set(task, Outcome.OPEN)

    def note(self, tasks: list[int], outcome: Outcome) -> None:
        """Write down how some ended."""
        lines = "".join(f"{task} {outcome.name.lower()}\n" for task in tasks)
        data = lines.encode()
        if self._torn:
            data, self._torn = b"\n" + data, False
        fd = os.open(FILE, _APPEND, 0o666, dir_fd=self._directory.fd)
        try:
            write_all(fd, data)
        except OSError:
            self._torn = True
            raise
        finally:
            os.close(fd)
        for task in tasks:
            self._set(task, outcome)

    def count(self, outcome: Outcome) -> int:
        """How many ended so."""
        return self._of.count(outcome, 1)

    def failed(self) -> tuple[int, ...]:
        """Which failed or were lost; the first of them."""
        found = (
            task
            for task in range(1, self.tasks + 1)
            if self._of[task] in (Outcome.ERROR, Outcome.LOST)
        )
        return tuple(task for _, task in zip(range(_MOST_SHOWN), found, strict=False))

    def _set(self, task: int, outcome: Outcome) -> None:
        if 1 <= task <= self.tasks:
            self._of[task] = outcome

    def _lines(self) -> Iterator[bytes]:
        try:
            fd = self._directory.open_read(FILE)
        except FileNotFoundError:
            return
        with os.fdopen(fd, "rb") as file:
            yield from file
