"""A stage that has stopped itself: `.queuedriver/breaker.json`, as all read it.

Who makes it, and what happens then, is in `driving/breaker.py`.
"""

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.records import read_record
from queuedriver.format.units import format_count, format_instant

_MOST_BYTES = 1 << 16


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """That a stage has stopped itself, and why."""

    # What the failures have in common.
    key: str
    cause: str
    # The first line.
    message: str
    # Seconds since the epoch.
    since: float
    failures: int
    driver: str

    def words(self, queue: str, next_trial: float = 0.0) -> str:
        """Say what has happened and what to do. `next_trial` is in seconds since the epoch."""
        documents = format_count(self.failures, "document")
        then = f"at {format_instant(next_trial)}" if next_trial else "now and then"
        return (
            f"stopped by itself: {documents} in a row failed for one cause ({self.message}); "
            f"tries one {then}; queuedriver resume {queue} goes on at once"
        )


def load(private: Directory) -> Trip | None:
    """Read whether a stage has stopped itself, from `.queuedriver/` of an input."""
    return read_record(private, names.BREAKER, Trip, _MOST_BYTES)
