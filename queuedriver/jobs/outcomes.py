"""How each task of a job ended: a line for each in `outcomes.<salt>`.

Each life of a broker writes a file of its own. A task is open unless a line of any of them ends it.
Lines of several brokers may contradict each other where one was given up too early: what was done
stands over what was lost.
"""

import os
import re
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
    LOST = 2
    ERROR = 3
    DONE = 4


_LINE = re.compile(rb"^(\d{1,8}) (lost|error|done)$", re.MULTILINE)
_FAILED = re.compile(b"[%c%c]" % (Outcome.LOST, Outcome.ERROR))


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
            for task, outcome in _LINE.findall(self._directory.read(name, _LONGEST)):
                self._end(int(task), Outcome[outcome.decode().upper()])

    def note(self, task: int, outcome: Outcome) -> None:
        """Write down how one ended. Repeated after an OSError it does no harm."""
        data = b"\n" * self._torn + f"{task} {outcome.name.lower()}\n".encode()
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
        self._end(task, outcome)

    def _end(self, task: int, outcome: Outcome) -> None:
        """Know how one ended, unless a higher outcome is known."""
        if 0 < task < len(self._of) and self._of[task] < outcome:
            self.mark(task, outcome)
