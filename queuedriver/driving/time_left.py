"""What fits into the time that is left to a driver, where somebody has said when that ends. Pure.

A document is claimed if it is expected to be done in time: if all but one in twenty of the latest
took no longer. Who has done none yet is content with half of them: by the longest alone it might
do nothing for its whole life, and so might all that follow it. Of a stage of which nothing is known
documents are taken as long as more than the grace is left. What is not done in time all the same is
given back, and charged to nobody.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Self

from queuedriver.format.units import format_duration, format_instant
from queuedriver.options import Options

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


def documents_that_fit(left: float, each: float) -> int:
    """Return how many documents are expected to be done in so many seconds, one by one."""
    if left <= 0:
        return 0
    return int(min(left / each, REMEMBERED)) if each else REMEMBERED


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
        return documents_that_fit(time_left(self.until, now) - starting, self._each)

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
