"""Whether the output queues take more, and whether anybody empties them."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from queuedriver.claims.liveness import DRIVERS, Observer, Roster
from queuedriver.claims.outputs import Target
from queuedriver.format import names
from queuedriver.format.units import format_size
from queuedriver.options import Options

_COUNTED = frozenset({names.READY, names.FAILED, names.WRITING})
# How often to ask who drives an output that is full, in seconds.
_ASK_EVERY = 1.0
# Below this a limit of items is kept to exactly. To count 400 takes 0.1 ms, which is more than an
# ordinary document does.
_EXACT = 64


class BackPressure:
    """Looked at before each claim: N drivers overshoot a limit by N - 1 at most.

    With a limit of many items each takes its part of the room that it saw before it looks again.
    Only drivers that do not know of each other yet, or are of different stages, overshoot it then.
    """

    def __init__(
        self,
        options: Options,
        targets: Sequence[Target],
        observer: Observer,
        sharers: Callable[[], int],
    ) -> None:
        self._items = math.inf if options.max_output_items is None else options.max_output_items
        self._bytes = math.inf if options.max_output_bytes is None else options.max_output_bytes
        self._targets = targets
        self._observer = observer
        # How many drivers fill the same outputs, as far as we know.
        self._sharers = sharers
        # How many outputs of this driver there may be, as of the last look; and until it looks
        # again.
        self._most = self._look_at = math.inf if self._items == self._bytes == math.inf else 0.0
        # Those that take no more, and why the first does not.
        self._filled: list[Target] = []
        self._why = ""
        self._alone_since: float | None = None
        self._asked_at = 0.0

    def has_room(self, published: int) -> bool:
        """Return whether there is known to be room; `published` counts this driver's outputs."""
        return published < self._look_at

    def room(self, published: int) -> float:
        """Return how many more documents may be claimed, if each has one output."""
        if published >= self._look_at:
            self._look(published)
        return self._most - published

    def full(self, published: int) -> str:
        """Return why nothing more should be claimed; "" while there is room."""
        return "" if self.room(published) > 0 else self._why

    def no_consumer_for(self) -> float:
        """Return for how many seconds a full output was seen without a living driver."""
        now = time.monotonic()
        if now - self._asked_at >= _ASK_EVERY:
            self._asked_at = now
            if all(self._consumed(target) for target in self._filled):
                self._alone_since = None
            elif self._alone_since is None:
                self._alone_since = now
        return 0.0 if self._alone_since is None else now - self._alone_since

    def _look(self, published: int) -> None:
        room = math.inf
        self._filled, self._why = [], ""
        for target in self._targets:
            items, why = self._count(target)
            room = min(room, 0 if why else self._items - items)
            if why:
                self._filled.append(target)
                self._why = self._why or why
        if not self._filled:
            self._alone_since = None
        self._most = published + room
        exact = self._items < _EXACT or self._bytes < math.inf
        self._look_at = published + (0 if exact else room // self._sharers())

    def _count(self, target: Target) -> tuple[int, str]:
        """Count the items; return besides why there should not be more."""
        items = size = 0
        for name in target.directory.names():
            if not _is_counted(name):
                continue
            items += 1
            if items >= self._items:
                return items, f"{target.name} holds {self._items} items or more"
            if self._bytes < math.inf:
                try:
                    size += target.directory.status(name).st_size
                except FileNotFoundError:
                    continue
                if size >= self._bytes:
                    return items, f"{target.name} holds {format_size(int(self._bytes))} or more"
        return items, ""

    def _consumed(self, target: Target) -> bool:
        try:
            drivers = target.directory.subdirectory(os.path.join(names.PRIVATE, DRIVERS))
        except FileNotFoundError:
            return False
        with closing(drivers):
            roster = Roster(drivers, self._observer)
            roster.refresh()
            return bool(roster.alive)


def _is_counted(name: str) -> bool:
    # Nearly all are of this kind, and parsing is what would take longest.
    if name.endswith(".ready"):
        return name[0] != "."
    item = names.parse(name)
    return item is not None and item.state in _COUNTED
