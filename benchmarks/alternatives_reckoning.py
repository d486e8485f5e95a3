"""What came of the documents: what was lost, what was done twice, what is left over."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.alternatives_work import BEGUN, ENDED

# What a queue keeps besides its documents, for a week where it is an output that a kill has cut
# off; and what watchdogd keeps beside the queues.
WATCHDOGD = ".watchdogd"
_KEPT = re.compile(
    r"\.queuedriver/(settings\.json|landmarks?(\.json)?|start\.lock|(drivers|feeds|journal)/.*"
    r"|orphans/[^/]+\.writing)"
)


@dataclass
class Course:
    """What has happened to the documents so far, taken in line by line."""

    # How often each stage of each document was begun, and how often it ran to its end.
    begun: Counter[tuple[int, str]] = field(default_factory=Counter)
    ended: Counter[tuple[int, str]] = field(default_factory=Counter)
    # What each process has at hand.
    at_hand: dict[int, tuple[int, str]] = field(default_factory=dict)

    def take(self, line: str) -> None:
        word, stage, docid, pid = line.split()
        which = (int(stage), docid)
        if word == BEGUN:
            self.begun[which] += 1
            self.at_hand[int(pid)] = which
        elif word == ENDED:
            self.ended[which] += 1
            self.at_hand.pop(int(pid), None)

    def ended_twice(self) -> int:
        """How many stages of documents ran to their end more than once."""
        return sum(times > 1 for times in self.ended.values())

    def begun_by(self, docid: str) -> int:
        """How often the stage was begun that this document was begun in most often."""
        return max((times for (_, one), times in self.begun.items() if one == docid), default=0)


class Log:
    """The file of these lines, read as it grows."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.course = Course()
        self._read = 0

    def look(self) -> bool:
        """Take in what was added; return whether anything was."""
        try:
            with self.file.open("rb") as file:
                file.seek(self._read)
                added = file.read()
        except FileNotFoundError:
            return False
        # A line is written by one call, but a look may come in the midst of it.
        whole = added.rpartition(b"\n")[0]
        for line in whole.decode().splitlines():
            self.course.take(line)
        self._read += len(whole) + 1 if whole else 0
        return bool(whole)


def spread(total: int, draws: Iterable[float]) -> list[int]:
    """Return after how many ended stages each kill comes, one for each draw between 0 and 1.

    None is near the beginning or the end: a worker without work proves nothing.
    """
    first, last = total // 20, total - total // 5
    return sorted(first + int((last - first) * draw) for draw in draws)


def rates(times: list[float], first: list[float], documents: int) -> list[float]:
    """Documents a second in each round, without what passes until the first is through."""
    spans = [whole - one for whole, one in zip(times, first, strict=True)]
    return [(documents - 1) / span for span in spans if span > 0]


def failed_jobs(joblog: str) -> set[str]:
    """Which documents' last line in GNU parallel's log of jobs says that the job has failed."""
    failed: dict[str, bool] = {}
    for line in joblog.splitlines()[1:]:
        *_, code, killed_by, command = line.split("\t")
        failed[command.split()[-1]] = (code, killed_by) != ("0", "0")
    return {docid for docid, it_has in failed.items() if it_has}


def left_over(queues: Path, last: str) -> list[str]:
    """What is in the queues of a pipeline of ours besides its results, when all is through."""
    found = []
    for path in sorted(path for path in queues.rglob("*") if path.is_file()):
        queue, *inside = path.relative_to(queues).parts
        results = queue == last and len(inside) == 1 and path.suffix == ".ready"
        if not (results or queue == WATCHDOGD or (inside and _KEPT.fullmatch("/".join(inside)))):
            found.append("/".join((queue, *inside)))
    return found
