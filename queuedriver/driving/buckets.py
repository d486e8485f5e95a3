"""Durations counted in buckets: how many took how long, in so few numbers that they can be counted
for ever and summed over drivers and hosts. Pure."""

import bisect
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# The longest duration of each bucket in seconds; one more has all that is longer.
BOUNDS = (
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0),
)
BUCKETS = len(BOUNDS) + 1


class Durations(NamedTuple):
    """How many durations each bucket has, and how long all were together, in nanoseconds."""

    counts: tuple[int, ...] = (0,) * BUCKETS
    total: int = 0

    def plus(self, other: "Durations") -> "Durations":
        counts = tuple(map(operator.add, self.counts, other.counts))
        return Durations(counts, self.total + other.total)

    def minus(self, other: "Durations") -> "Durations":
        counts = tuple(map(operator.sub, self.counts, other.counts))
        return Durations(counts, self.total - other.total)


class Counting:
    """Counts durations."""

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        # Nanoseconds.
        self.total = 0

    def add(self, seconds: Iterable[float], weight: int = 1) -> None:
        """Count durations, each as so many."""
        for one in seconds:
            self.counts[bisect.bisect_left(BOUNDS, one)] += weight
            self.total += int(one * 1e9) * weight


def quantile(counts: Sequence[float], share: float) -> float | None:
    """Return the seconds within which this share of durations is, as far as the buckets tell; None
    when there are none. What is longer than all bounds passes for the last of them."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    below, lower = 0.0, 0.0
    for count, upper in zip(counts, BOUNDS, strict=False):
        if count and below + count >= wanted:
            return lower + (upper - lower) * (wanted - below) / count
        below, lower = below + count, upper
    return BOUNDS[-1]
