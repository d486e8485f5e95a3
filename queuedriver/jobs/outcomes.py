"""How each task of a job ended: a line per task, or per range of tasks, in `outcomes.<salt>`.

Each life of a broker writes a file of its own. A task is open unless a line of any of them ends it.
Lines of several brokers may contradict each other where one was given up too early: what was done
stands over what was only dropped.
"""

import os
import re
from collections.abc import Iterator
from enum import IntEnum

from queuedriver.disk.filesystem import Directory, write_all

_PREFIX = "outcomes."
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# A line for each of a million tasks has 18 MB; in bytes.
_LONGEST = 64 << 20
_MOST_SHOWN = 1000


class Outcome(IntEnum):
    """The state of one task; of two that are said of one task, the higher."""

    # Never begun, and without a file.
    OPEN = 0
    # A client has it, or it waits again: it has a file.
    BEGUN = 1
    CANCELLED = 2
    LOST = 3
    ERROR = 4
    DONE = 5


_LINE = re.compile(rb"^(\d{1,8})(?:-(\d{1,8}))? (cancelled|lost|error|done)$", re.MULTILINE)
_FAILED = re.compile(b"[%c%c]" % (Outcome.LOST, Outcome.ERROR))
_RUN_OF_OPEN = re.compile(b"%c+" % Outcome.OPEN)


class Outcomes:
    """Those of one job: a byte per task, and how many there are of each."""

    def __init__(self, directory: Directory, tasks: int, salt: str, *, durable: bool) -> None:
        self._directory = directory
        self._file = _PREFIX + salt
        self._durable = durable
        # By task; there is no task 0, and it is not to be found.
        self._of = bytearray([Outcome.DONE]) + bytearray(tasks)
        # By outcome.
        self._counts = [tasks] + [0] * Outcome.DONE
        # Whether our file ends amid a line; and whether a power cut leaves its name.
        self._torn = False
        self._named = False

    def __getitem__(self, task: int) -> Outcome:
        return Outcome(self._of[task])

    @property
    def left(self) -> int:
        """Return how many tasks have not ended."""
        return self._counts[Outcome.OPEN] + self._counts[Outcome.BEGUN]

    def count(self, outcome: Outcome) -> int:
        return self._counts[outcome]

    def first(self, outcome: Outcome, at: int) -> int:
        """Return the first task of this outcome from `at` on; -1 when there is none."""
        return self._of.find(outcome, at)

    def failed(self) -> tuple[int, ...]:
        """Return which tasks failed or were lost, the first of them."""
        found = zip(range(_MOST_SHOWN), _FAILED.finditer(self._of), strict=False)
        return tuple(one.start() for _, one in found)

    def open_ranges(self) -> list[range]:
        """Return which tasks were never begun."""
        return [range(*one.span()) for one in _RUN_OF_OPEN.finditer(self._of)]

    # Change

    def mark(self, task: int, outcome: Outcome) -> None:
        """Know that a task was begun, or was not after all."""
        self._counts[self._of[task]] -= 1
        self._counts[outcome] += 1
        self._of[task] = outcome

    def load(self) -> None:
        """Read what has been written down, by whichever life of a broker. After the job's directory
        was listed: who ends a task adds the line before its file goes."""
        for name in [one for one in self._directory.names() if one.startswith(_PREFIX)]:
            for tasks, outcome in _lines(self._directory.read(name, _LONGEST)):
                self._set(tasks, outcome)

    def note(self, tasks: list[range], outcome: Outcome) -> None:
        """Write down how some ended. Repeated after an OSError it does no harm."""
        which = (f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in tasks)
        lines = "".join(f"{one} {outcome.name.lower()}\n" for one in which)
        data = b"\n" * self._torn + lines.encode()
        # Closed each time: only then others see it who come over a network.
        fd = os.open(self._file, _APPEND, 0o666, dir_fd=self._directory.fd)
        try:
            self._torn = True
            write_all(fd, data)
            if self._durable:
                os.fsync(fd)
                if not self._named:
                    self._directory.sync()
                    self._named = True
            self._torn = False
        finally:
            os.close(fd)
        for one in tasks:
            self._set(one, outcome)

    def _set(self, tasks: range, outcome: Outcome) -> None:
        """Know of an end, unless a higher one is known."""
        if self._of.count(Outcome.OPEN, tasks.start, tasks.stop) == len(tasks):
            # Of a job that was cancelled there may be a million.
            self._of[tasks.start : tasks.stop] = bytes([outcome]) * len(tasks)
            self._counts[Outcome.OPEN] -= len(tasks)
            self._counts[outcome] += len(tasks)
            return
        for task in range(tasks.start, min(tasks.stop, len(self._of))):
            if self._of[task] < outcome:
                self.mark(task, outcome)


def _lines(data: bytes) -> Iterator[tuple[range, Outcome]]:
    for found in _LINE.finditer(data):
        first = int(found[1])
        last = int(found[2] or first)
        if 1 <= first <= last:
            yield range(first, last + 1), Outcome[found[3].decode().upper()]
