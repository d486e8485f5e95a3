"""Whether the output queues take more, and whether anybody empties them."""

import math
import time
from collections.abc import Callable, Sequence

from queuedriver.claims.liveness import DRIVERS, Observer, read_registrations
from queuedriver.claims.outputs import Target
from queuedriver.format import names
from queuedriver.format.units import format_size
from queuedriver.options import Options

_COUNTED = frozenset({names.READY, names.FAILED, names.WRITING})
# How often to ask who drives an output that is full.
_ASK_EVERY = 1.0
# Below this a limit of items is kept to exactly. To count some hundred before each document would
# take longer than to hand it over.
_EXACT = 64
# What was full takes more again when this part of it is free: else each item that is taken away
# would cost a count.
_PART = 4


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
        self._items = options.max_output_items
        self._bytes = options.max_output_bytes
        self._targets = targets
        self._observer = observer
        # How many drivers fill the same outputs, as far as we know.
        self._sharers = sharers
        # How many outputs of this driver there will be when it has to look.
        limited = self._items is not None or self._bytes is not None
        self._look_at: float = 0 if limited else math.inf
        # Those that take no more.
        self._filled: list[Target] = []
        self._alone_since: float | None = None
        self._asked_at = 0.0

    def has_room(self, published: int) -> bool:
        """Whether that is known; `published` are the outputs of this driver so far."""
        return published < self._look_at

    def full(self, published: int) -> str:
        """Why nothing more should be claimed; empty while there is room."""
        if self.has_room(published):
            return ""
        found, most = [], 0
        for target in self._targets:
            items, words = self._look(target)
            most = max(most, items)
            if words:
                found.append((target, words))
        self._filled = [target for target, _ in found]
        if found:
            return found[0][1]
        self._alone_since = None
        self._look_at = published + self._allowance(most)
        return ""

    def _allowance(self, items: int) -> int:
        """How many outputs may be added before the next look: none, where that is to be exact."""
        if self._items is None or self._items < _EXACT or self._bytes is not None:
            return 0
        return (self._items - items) // self._sharers()

    def no_consumer_for(self) -> float:
        """For how long one of the full outputs has been seen without a living driver."""
        now = time.monotonic()
        if now - self._asked_at >= _ASK_EVERY:
            self._asked_at = now
            if all(self._consumed(target) for target in self._filled):
                self._alone_since = None
            elif self._alone_since is None:
                self._alone_since = now
        return 0.0 if self._alone_since is None else now - self._alone_since

    def _look(self, target: Target) -> tuple[int, str]:
        """How many items there are, and why there should not be more."""
        limit = self._items
        if limit is not None and limit >= _EXACT and target in self._filled:
            limit -= limit // _PART
        items = size = 0
        for name in target.directory.names():
            if not _is_counted(name):
                continue
            items += 1
            if limit is not None and items >= limit:
                return items, f"{target.name} holds {limit} items or more"
            if self._bytes is not None:
                try:
                    size += target.directory.status(name).size
                except FileNotFoundError:
                    continue
                if size >= self._bytes:
                    return items, f"{target.name} holds {format_size(self._bytes)} or more"
        return items, ""

    def _consumed(self, target: Target) -> bool:
        # The first that is alive will do: nobody reads the registrations of all others for it.
        try:
            private = target.directory.subdirectory(names.PRIVATE)
            drivers = private.subdirectory(DRIVERS)
        except FileNotFoundError:
            return False
        try:
            return any(self._observer.judge(one) == "alive" for one in read_registrations(drivers))
        finally:
            drivers.close()
            private.close()


def _is_counted(name: str) -> bool:
    # Nearly all are of this kind, and parsing is what would take longest.
    if name.endswith(".ready"):
        return name[0] != "."
    item = names.parse(name)
    return item is not None and item.state in _COUNTED
