"""What is counted of documents: how long they waited and took, in buckets, and for which causes
they failed. So few numbers that they can be counted for ever, and summed over drivers and hosts.
Pure."""

import operator
from collections.abc import Sequence
from typing import NamedTuple, Self

# The longest duration of each bucket in seconds; one more has all that is longer.
BOUNDS = (
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0),
)
BUCKETS = len(BOUNDS) + 1
# Causes of failures (claims/outcomes.py, claims/recovery.py) that are counted by themselves.
OTHER = "other"
CAUSES = (
    *("exception", "exit", "signal", "server", "timeout", "permanent", "bad-answer", "not-a-file"),
    *("too-large", "output-missing", "crashed", "hung", "memory", "lost", "worker-lost", OTHER),
)

# What becomes of the files in a folder that an intake has not taken (intake/watcher.py): they wait
# for anything but a marker, or for their marker or list; are never taken under their name; or have
# waited for so long that people were told.
FILTERED = "filtered"
FILES = ("settling", "waiting_marker", FILTERED, "stuck")


class Durations(NamedTuple):
    """How many durations each bucket has, and how long all were together, in nanoseconds."""

    counts: tuple[int, ...] = (0,) * BUCKETS
    total: int = 0


class Counted(NamedTuple):
    """What was counted until some moment, each in a tuple of numbers."""

    # Of documents when they were claimed, whatever came of that; of those that were done.
    waits: Durations = Durations()
    services: Durations = Durations()
    # Attempts that failed, and documents that were discarded, by CAUSES.
    failed: tuple[int, ...] = (0,) * len(CAUSES)
    discarded: tuple[int, ...] = (0,) * len(CAUSES)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return how many numbers each has: who counts otherwise has others."""
        return tuple(map(len, (self.waits.counts, self.services.counts, *self[2:])))

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return all of it in one row."""
        waits, services = self.waits, self.services
        return (
            *(*waits.counts, waits.total, *services.counts, services.total),
            *(*self.failed, *self.discarded),
        )

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Self:
        """Return what is in such a row."""
        durations, causes = BUCKETS + 1, len(CAUSES)
        row = tuple(numbers)
        waits, services, rest = row[:durations], row[durations : 2 * durations], row[-2 * causes :]
        return cls(
            Durations(waits[:-1], waits[-1]),
            Durations(services[:-1], services[-1]),
            rest[:causes],
            rest[causes:],
        )

    def plus(self, other: "Counted") -> "Counted":
        return Counted.of(tuple(map(operator.add, self.numbers, other.numbers)))

    def minus(self, other: "Counted") -> "Counted":
        return Counted.of(tuple(map(operator.sub, self.numbers, other.numbers)))


NUMBERS = len(Counted().numbers)


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
