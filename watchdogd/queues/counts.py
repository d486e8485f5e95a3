"""Counts what is in each queue, by name, as cheaply as it can be known.

A directory whose mtime has not moved since it was listed twice has not changed: then it is not
listed again. That is trusted only once the mtime has stood still for longer than the coarsest of
clocks that file systems stamp with, and not for ever: some file systems hardly stamp at all.

To list a hundred thousand names takes a tenth of a second, and nobody needs to know each second how
much so much has changed. Whoever waits for something to be empty asks for a look anew.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping

from msgspec.structs import asdict, replace

from queuedriver.claims.picking import count
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.plan import DRAINED_AFTER
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from watchdogd.helper_messages import QueueSeen

# FAT stamps every two seconds, others each second or oftener.
_COARSEST = 3.0
_RECOUNT_EVERY = 30.0
# What was listed is listed again after so many times as long as that took: one percent of a
# processor.
_LISTING_PAUSE = 100

# Which directory, and when it last changed.
_Mark = tuple[int, int, int]


class _Listing:
    """The moments at which a directory is listed. `now` is monotonic."""

    def __init__(self) -> None:
        # None before the first look.
        self.mark: _Mark | None = None
        # When that mark was first seen, when the latest listing was, and how long it took.
        self._marked_at = 0.0
        self._listed_at = -math.inf
        self._took = 0.0

    def is_due(self, mark: _Mark, now: float, *, anew: bool = False, stale: bool = False) -> bool:
        """Tell whether to list the directory now; `stale`: what was listed says something else by
        now, though nothing has changed."""
        if mark != self.mark:
            self.mark, self._marked_at = mark, now
        if self.settled and not stale:
            return now - self._listed_at >= _RECOUNT_EVERY
        return anew or now - self._listed_at >= min(_RECOUNT_EVERY, _LISTING_PAUSE * self._took)

    @property
    def settled(self) -> bool:
        """Tell whether nothing can have changed since the latest listing."""
        return self._listed_at - self._marked_at > _COARSEST

    def listed(self, now: float, took: float) -> None:
        """Note that the directory was listed."""
        self._listed_at, self._took = now, took


class View:
    """One queue, and what is remembered of it from look to look. `now` is monotonic."""

    def __init__(self, path: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        # None before the first look.
        self.seen: QueueSeen | None = None
        self._monotonic = monotonic
        self._items, self._discarded = _Listing(), _Listing()
        # The mark of the directory when it was seen empty, and since when.
        self._empty: _Mark | None = None
        self._empty_at = 0.0
        # Whether it was drained since it was closed.
        self._ended = False

    def look(self, now: float, clock: float, *, anew: bool = False) -> QueueSeen:
        """Look at the queue once; `clock` is in seconds since the epoch."""
        before, mark, ended = self.seen, self._items.mark, self._ended
        with Queue(Directory.open(self.path)) as queue:
            seen = self._look(queue, now, clock, anew=anew)
            trip = queue.stopped()
        self._ended = seen.done and (ended or seen.drained)
        # A driver that is there may be faster than a look.
        came = ended and mark != self._items.mark and _standing(seen) == _standing(before)
        late = self._ended and (seen.unfinished > 0 or came)
        tripped = trip.words(self.path) if trip is not None else ""
        self.seen = replace(seen, tripped=tripped, late=late)
        return self.seen

    def _look(self, queue: Queue, now: float, clock: float, *, anew: bool) -> QueueSeen:
        """Count, unless that would show nothing new or was done lately."""
        directory, seen = queue.directory, self.seen
        before = _mark(directory)
        stale = seen is not None and 0 < seen.next_due <= clock
        if not self._items.is_due(before, now, anew=anew, stale=stale) and seen is not None:
            if self._items.settled:
                return seen
            # That it was drained says nothing of now.
            return replace(seen, drained=False, **queue.controls()._asdict())
        began_at = self._monotonic()
        counts = count(directory, clock)
        self._items.listed(now, self._monotonic() - began_at)
        after = _mark(directory)
        # One listing may miss what is being renamed: it takes two, with no change from before the
        # first to after the second.
        if counts.unfinished or before != after:
            self._empty = None
        elif self._empty != after:
            self._empty, self._empty_at = after, now
        drained = self._empty == after and now - self._empty_at >= DRAINED_AFTER
        counts.discarded = self._count_discarded(queue, now, anew=anew)
        return QueueSeen(**asdict(counts), **queue.controls()._asdict(), drained=drained)

    def _count_discarded(self, queue: Queue, now: float, *, anew: bool) -> int:
        try:
            directory = queue.directory.subdirectory(names.DISCARDED)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        with contextlib.closing(directory):
            is_due = self._discarded.is_due(_mark(directory), now, anew=anew)
        if not is_due and self.seen is not None:
            return self.seen.discarded
        began_at = self._monotonic()
        count = sum(1 for _ in queue.each_discarded())
        self._discarded.listed(now, self._monotonic() - began_at)
        return count

    @property
    def almost_drained(self) -> bool:
        """Tell whether it is closed and was seen empty, but only once yet."""
        seen = self.seen
        return seen is not None and seen.done and self._empty is not None and not seen.drained


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


def _standing(seen: QueueSeen | None) -> tuple[object, ...]:
    """Return all that a change of the directory's time may be about, but for documents that came
    and went."""
    if seen is None:
        return ()
    return seen.unfinished, seen.foreign, seen.done, seen.paused, seen.quit


def _mark(directory: Directory) -> _Mark:
    found = os.fstat(directory.fd)
    return found.st_dev, found.st_ino, found.st_mtime_ns
