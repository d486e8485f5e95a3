"""What is in each queue, counted by name, as cheaply as it can be known.

A directory whose mtime has not moved since it was listed twice has not changed: then it is not
listed again. That is trusted only once the mtime has stood still for longer than the coarsest of
clocks that file systems stamp with, and not for ever: some file systems hardly stamp at all.

To list a hundred thousand names takes a tenth of a second, and nobody needs to know each second how
much so much has changed. Whoever waits for something to be empty asks for a look anew.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping

import msgspec

from queuedriver.claims.picking import Counts, count
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.closing import Controls
from queuedriver.driving.plan import DRAINED_AFTER
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from watchdogd.messages import QueueSeen

# FAT stamps every two seconds, others each second or oftener.
_COARSEST = 3.0
_RECOUNT_EVERY = 30.0
# What takes longer to list than this is listed again after so many times as long: one percent of a
# processor.
_CHEAP = 0.01
_LISTING_PAUSE = 100

# Which directory, and when it last changed.
_Mark = tuple[int, int, int]


class View:
    """One queue, and what is remembered of it from look to look. `now` is monotonic."""

    def __init__(self, path: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._monotonic = monotonic
        # How long the latest listing took.
        self._took = 0.0
        # None before the first look.
        self.seen: QueueSeen | None = None
        self._discarded = _Discarded()
        self._mark: _Mark | None = None
        self._marked_at = 0.0
        self._listed_at = float("-inf")
        self._next_due = 0
        # The mark of the directory when it was seen empty, and since when.
        self._empty: _Mark | None = None
        self._empty_at = 0.0
        # It was drained since it was closed.
        self._ended = False

    def look(self, now: float, clock: float, *, anew: bool = False) -> QueueSeen:
        """Look at the queue once."""
        with contextlib.closing(Directory.open(self.path)) as directory:
            seen = self._look(directory, now, clock, anew=anew)
            trip = Queue(directory).stopped()
        tripped = trip.words(self.path) if trip is not None else ""
        self._ended = seen.done and (self._ended or seen.drained)
        late = self._ended and seen.unfinished > 0
        self.seen = msgspec.structs.replace(seen, tripped=tripped, late=late)
        return self.seen

    def _look(self, directory: Directory, now: float, clock: float, *, anew: bool) -> QueueSeen:
        """Count, unless nothing can have changed or, but for `anew`, counting takes long and was
        done lately. `clock` is in seconds since the epoch."""
        mark = _mark(directory)
        if mark != self._mark:
            self._mark, self._marked_at = mark, now
        elif self.seen is not None and self._is_known(now, clock):
            return self.seen
        if self.seen is not None and not anew and self._is_dear(now):
            self.seen = _with_controls(self.seen, Queue(directory).controls())
            return self.seen
        began_at = self._monotonic()
        listing = count(directory, clock)
        self._took = self._monotonic() - began_at
        after = _mark(directory)
        self._see_empty(listing, mark, after, now)
        self._listed_at, self._next_due = now, listing.next_due
        controls = Queue(directory).controls()
        self.seen = _seen(
            listing, controls, self._discarded.count(directory, now), self._drained(after, now)
        )
        return self.seen

    @property
    def almost_drained(self) -> bool:
        """Closed and seen empty, but only once yet."""
        seen = self.seen
        return seen is not None and seen.done and self._empty is not None and not seen.drained

    def _is_known(self, now: float, clock: float) -> bool:
        return (
            self._listed_at - self._marked_at > _COARSEST
            and now - self._listed_at < _RECOUNT_EVERY
            and not 0 < self._next_due <= clock
        )

    def _is_dear(self, now: float) -> bool:
        pause = min(_RECOUNT_EVERY, _LISTING_PAUSE * self._took)
        return self._took > _CHEAP and now - self._listed_at < pause

    def _see_empty(self, listing: Counts, before: _Mark, after: _Mark, now: float) -> None:
        """One listing may miss what is being renamed: it takes two, with no change from before
        the first to after the second."""
        if listing.unfinished or before != after:
            self._empty = None
        elif self._empty != after:
            self._empty, self._empty_at = after, now

    def _drained(self, after: _Mark, now: float) -> bool:
        return self._empty == after and now - self._empty_at >= DRAINED_AFTER


class _Discarded:
    """How many documents were given up; they only pile up, so they are counted rarely."""

    def __init__(self) -> None:
        self._mark: _Mark | None = None
        self._marked_at = 0.0
        self._counted_at = float("-inf")
        self._number = 0

    def count(self, queue: Directory, now: float) -> int:
        try:
            directory = queue.subdirectory(names.DISCARDED)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        try:
            mark = _mark(directory)
            if mark != self._mark:
                self._mark, self._marked_at = mark, now
            elif (
                self._counted_at - self._marked_at > _COARSEST
                and now - self._counted_at < _RECOUNT_EVERY
            ):
                return self._number
            self._number = sum(
                1
                for name in directory.names()
                if name[0] != "." and not name.endswith(names.REPORT)
            )
            self._counted_at = now
        finally:
            directory.close()
        return self._number


def look_at_all(
    views: Mapping[str, View],
    monotonic: Callable[[], float] = time.monotonic,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
    *,
    anew: bool = False,
) -> dict[str, QueueSeen]:
    """Look at each; and once more, a moment later, where that may show that a queue is drained,
    because then somebody waits for it."""
    seen = {name: view.look(monotonic(), clock(), anew=anew) for name, view in views.items()}
    if again := [name for name, view in views.items() if view.almost_drained]:
        pause(DRAINED_AFTER)
        seen |= {name: views[name].look(monotonic(), clock(), anew=True) for name in again}
    return seen


def _mark(directory: Directory) -> _Mark:
    found = os.fstat(directory.fd)
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _with_controls(seen: QueueSeen, controls: Controls) -> QueueSeen:
    # That it was drained says nothing of now.
    return msgspec.structs.replace(
        seen, done=controls.done, paused=controls.paused, quit=controls.quit, drained=False
    )


def _seen(listing: Counts, controls: Controls, discarded: int, drained: bool) -> QueueSeen:
    return QueueSeen(
        ready=listing.ready,
        failed=listing.failed,
        later=listing.later,
        due=listing.due,
        working=listing.working,
        written=listing.written,
        writing=listing.writing,
        discarded=discarded,
        foreign=listing.foreign,
        done=controls.done,
        paused=controls.paused,
        quit=controls.quit,
        drained=drained,
    )
