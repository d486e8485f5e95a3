"""Control files; that a stage has stopped itself, as all read it (`breaker.py` has why); and when a
queue is done: nothing more comes in, and nothing is left to do.

A queue that others feed is closed by whoever sees first that all of them are closed and drained.
"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from queuedriver.claims.picking import count
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.neighbours import read_feeds
from queuedriver.driving.plan import DRAINED_AFTER
from queuedriver.errors import BadArgument, CannotUse, leads_nowhere
from queuedriver.format import names
from queuedriver.format.records import read_record
from queuedriver.format.units import format_count, format_instant

# What `done` says that nobody asked for, in a queue whose feeds are done.
FED = b"queuedriver: its feeds are done\n"
# In bytes.
_LONGEST_MARK = 64
_LONGEST_TRIP = 1 << 16


class Controls(NamedTuple):
    """Which control files are there."""

    done: bool = False
    paused: bool = False
    quit: bool = False

    def meanings(self, queue: str) -> list[tuple[str, str]]:
        """Return a word for each that is there, and what it means and what undoes it."""
        found = []
        if self.paused:
            found.append(("PAUSED", f"nothing is claimed before queuedriver resume {queue}"))
        if self.quit:
            found.append(("QUIT", f"no driver stays before queuedriver resume {queue}"))
        if self.done:
            found.append(("closed", f"drivers leave when it is empty; queuedriver reopen {queue}"))
        return found


def read_controls(queue: Directory) -> Controls:
    """Look which control files are there."""
    return Controls(*map(queue.present, (names.DONE, names.PAUSE, names.QUIT)))


def set_control(queue: Directory, name: str, *, wanted: bool) -> None:
    """Create or remove `done`, `PAUSE` or `QUIT`; drivers see it within a moment. One that is there
    and says something may be a program's, which would undo it: it says nothing from now on."""
    if name not in names.CONTROLS:
        raise BadArgument(f"{name!r} is not a control file")
    if wanted:
        queue.mark(name)
        if queue.is_regular(name) and queue.status(name).st_size:
            queue.write_aside(name, b"")
    else:
        try:
            queue.remove(name)
        except IsADirectoryError:
            path = os.path.join(queue.path, name)
            raise CannotUse(f"{path!r} is a directory; remove it by hand") from None
    queue.sync()


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


def read_trip(private: Directory) -> Trip | None:
    """Read whether a stage has stopped itself, from `.queuedriver/` of an input."""
    return read_record(private, names.BREAKER, Trip, _LONGEST_TRIP)


def is_drained(queue: Directory, pause: Callable[[float], None] = time.sleep) -> bool:
    """Tell whether a queue is closed and without any item: by two listings, for one alone may miss
    what is renamed."""
    if not queue.present(names.DONE):
        return False
    before = queue.status().st_mtime_ns
    if count(queue, 0).unfinished:
        return False
    pause(DRAINED_AFTER)
    unfinished = count(queue, 0).unfinished
    return not unfinished and queue.status().st_mtime_ns == before


def close_if_fed(queue: Directory) -> bool:
    """Create `done` here when every feed is done and drained; return whether it is there now."""
    # A feed we cannot see, or not even read of, may still bring something.
    for path in read_feeds(queue):
        if path is None:
            return False
        try:
            feed = Directory.open(path)
        except OSError as error:
            if leads_nowhere(error) or isinstance(error, PermissionError):
                return False
            raise
        with feed:
            if not is_drained(feed):
                return False
    # Nothing is written aside: who looks whether this queue is drained would see it change.
    queue.mark(names.DONE, FED)
    queue.sync()
    return True


def reopen_if_fed(queue: Directory) -> bool:
    """Remove `done` where it is there only because the feeds of the queue were done; return whether
    it was. The caller knows that one of them is not done any more."""
    try:
        if queue.read(names.DONE, _LONGEST_MARK) != FED:
            return False
    except OSError:
        # A symlink, or one that we may not read: somebody's; or it is gone.
        return False
    reopened = queue.remove(names.DONE)
    queue.sync()
    return reopened
