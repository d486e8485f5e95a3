"""How long a driver goes on: until it has done enough, or until the end of its time.

One that has done enough is started anew, so that leaks do not add up. Where somebody has said when
its time ends, a document is claimed if it is expected to be done by then: if all but one in twenty
of the latest took no longer. Who has done none yet is content with half of them: by the longest
alone it might do nothing for its whole life, and so might all that follow it. Of a stage of which
nothing is known documents are taken as long as more than the grace is left. What is not done in
time all the same is given back, and charged to nobody.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Self

from queuedriver.format.units import format_duration, format_instant
from queuedriver.options import Options

# Recycling is spread, so that drivers started together do not all load their models at once.
_JITTER = 0.1
# How often memory is looked at, in seconds; and at least so many times as long as that keeps a
# processor busy: whose child is whose is seen by going through all processes of the host.
_MEMORY_EVERY = 1.0
_MEMORY_WORTH = 100
# The last word of a driver that nothing fits any more into the time it has.
OUT_OF_TIME = "out-of-time"
# So long before its end a driver gives back what it has at hand, in seconds: a program that is told
# to end has half of it, and then the claim is given back and the last word said.
LEAVING_TAKES = 10.0
# What share of the documents that are known took no longer than is expected; and at first.
_SHARE = 0.95
_SHARE_AT_FIRST = 0.5
# How many documents are known: older ones say little of those to come.
REMEMBERED = 200


class Recycling:
    """The limits of one life."""

    def __init__(self, options: Options, now: float) -> None:
        import random

        spread = random.uniform(1 - _JITTER, 1 + _JITTER)
        # How many documents are enough.
        self.documents = (
            max(1, round(options.max_documents * spread)) if options.max_documents else math.inf
        )
        self._ends_at = options.max_age and now + options.max_age * spread
        self._memory = options.max_memory
        self._memory_at = 0.0

    def due(self, now: float, documents: int) -> str:
        """Return why it is enough; "" while it is not."""
        if documents >= self.documents:
            return f"it has done {documents} documents"
        if self._ends_at and now >= self._ends_at:
            return "it has reached its age"
        if self._memory and now >= self._memory_at:
            # Late: whatever else is here is pure.
            from queuedriver.disk.processes import tree_memory

            # Not how long it waited for a processor: on a busy machine a leak is no less urgent.
            before = time.thread_time()
            memory = tree_memory()
            took = time.thread_time() - before
            self._memory_at = now + max(_MEMORY_EVERY, _MEMORY_WORTH * took)
            if memory > self._memory:
                return f"it uses {memory >> 20} MiB of memory"
        return ""


def time_left(until: float, now: float) -> float:
    """Return for how many seconds who is to be gone by then may work. Both are in seconds since the
    epoch."""
    return until - now - LEAVING_TAKES


def end_of(until: float) -> str:
    """Return the words for the end of somebody's time."""
    return f"its time ends at {format_instant(until)}"


def expected(took: Sequence[float], timeout: float | None, grace: float, *, first: bool) -> float:
    """Return the seconds that the next document is expected to take at most, by what earlier ones
    took. `first`: whoever is to take it has done none yet."""
    if not took:
        return grace if timeout is None else min(grace, timeout)
    share = _SHARE_AT_FIRST if first else _SHARE
    usual = sorted(took)[math.ceil(share * len(took)) - 1]
    return usual if timeout is None else min(usual, timeout)


class TimeLeft:
    """What a driver knows of its documents, and when its time ends; instants are in seconds since
    the epoch, and arguments."""

    def __init__(
        self, until: float, timeout: float | None, grace: float, took: Iterable[float] = ()
    ) -> None:
        self.until = until
        self._timeout, self._grace = timeout, grace
        # Seconds, of the latest document last; and whether none of them is our own.
        self._took = deque(took, REMEMBERED)
        self._first = True

    @classmethod
    def of(cls, options: Options, took: Iterable[float] = ()) -> Self | None:
        """Return that of a driver with these options; None of one whose time does not end."""
        if options.until is None:
            return None
        return cls(options.until, options.timeout, options.grace, took)

    def learn(self, took: Iterable[float]) -> None:
        """Take note of the seconds that documents took which were done."""
        for seconds in took:
            self._took.append(seconds)
            self._first = False

    def documents(self, now: float, starting: float = 0.0) -> int:
        """Return how many documents may be claimed at once; by whoever starts for so long first."""
        left, each = time_left(self.until, now) - starting, self._each
        if left <= 0:
            return 0
        return int(min(left / each, REMEMBERED)) if each else REMEMBERED

    def over(self, now: float, starting: float = 0.0) -> str:
        """Return why not even one may be claimed any more; "" while one may."""
        if self.documents(now, starting):
            return ""
        takes = format_duration(self._each + starting)
        more = f", and a document may take {takes}" if time_left(self.until, now) > 0 else ""
        return f"{end_of(self.until)}{more}"

    @property
    def _each(self) -> float:
        return expected(self._took, self._timeout, self._grace, first=self._first)
