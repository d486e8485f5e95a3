"""Whether the output queues take more, and whether anybody empties them."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from queuedriver.claims.document import Target
from queuedriver.claims.liveness import Observer, any_alive
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.units import format_size
from queuedriver.options import Options

_COUNTED = frozenset({names.READY, names.FAILED, names.WRITING})
# Below this a limit of items is kept to exactly. To count 400 takes 0.1 ms, which is more than an
# ordinary document does.
_EXACT = 64
# Above it, a driver that has just worked rests before it takes less room than this part of its
# limit: else who fills an output as fast as it is emptied would count hundreds for each few.
_WORTH = 1 / 8
# Names that are listed at a time.
_SOME = 500
# How often to ask who drives an output that is full, in seconds.
_ASK_EVERY = 1.0


class BackPressure:
    """Counts the outputs, so that drivers overshoot a limit by at most what they have at hand.

    Before each claim; where many items alone are the limit, each takes its part of the room first.
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
        # The least room that is worth while, and how many outputs there were when there was less.
        self._least, self._full_at = 1.0, 0
        # Those that take no more, and why.
        self._filled: list[tuple[Target, str]] = []
        self._alone_since: float | None = None
        self._asked_at = 0.0

    def room(self, published: int) -> float:
        """Return how many more documents may be claimed, if each has one output; `published` counts
        this driver's outputs."""
        if published >= self._look_at:
            self._filled = []
            exact = self._items < _EXACT or self._bytes < math.inf
            has_worked = published > self._full_at and not exact
            self._least = self._items * _WORTH if has_worked else 1.0
            room = min(map(self._room_in, self._targets), default=math.inf)
            if self._filled:
                self._full_at = published
            else:
                self._alone_since = None
            self._most = published + room
            self._look_at = published + (0 if exact else room // self._sharers())
        return self._most - published

    def until_look(self, published: int) -> float:
        """Return how many documents may be claimed before `room` is asked again; at least one."""
        return max(1.0, self._look_at - published)

    def full(self, published: int) -> str:
        """Return why nothing more should be claimed; "" while there is room."""
        return "" if self.room(published) > 0 else self._filled[0][1]

    def no_consumer_for(self) -> float:
        """Return for how many seconds a full output was seen without a living driver."""
        now = time.monotonic()
        if now - self._asked_at >= _ASK_EVERY:
            self._asked_at = now
            if all(any_alive(target.directory, self._observer) for target, _ in self._filled):
                self._alone_since = None
            elif self._alone_since is None:
                self._alone_since = now
        return 0.0 if self._alone_since is None else now - self._alone_since

    def _room_in(self, target: Target) -> float:
        """Return how many more items an output takes, noting why when it takes none."""
        items = size = 0
        listed = target.directory.names()
        # No more than it takes to know, be there a million.
        while some := list(itertools.islice(listed, int(min(self._items, _SOME)))):
            # Nearly all end so: to call a function for each of hundreds takes as long as to list.
            counted = [
                name
                for name in some
                if (name.endswith(".ready") and name[0] != ".") or _is_counted(name)
            ]
            items += len(counted)
            if self._bytes < math.inf:
                size += sum(_size(target.directory, name) for name in counted)
            many = items > self._items - self._least
            if many or size >= self._bytes:
                held = f"{min(items, self._items)} items" if many else format_size(int(self._bytes))
                self._filled.append((target, f"{target.name} holds {held} or more"))
                return 0.0
        return self._items - items


def _size(directory: Directory, name: str) -> int:
    with suppress(FileNotFoundError):
        return directory.status(name).st_size
    return 0


def _is_counted(name: str) -> bool:
    item = names.parse(name)
    return item is not None and item.state in _COUNTED
