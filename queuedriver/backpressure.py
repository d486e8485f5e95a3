"""Whether the output queues take more, and whether anybody empties them."""

import time
from collections.abc import Sequence

from queuedriver import names
from queuedriver.liveness import DRIVERS, Observer, read_registrations
from queuedriver.options import Options
from queuedriver.outputs import Target
from queuedriver.units import format_size

_COUNTED = frozenset({names.READY, names.FAILED, names.WRITING})
# How often to ask who drives an output that is full.
_ASK_EVERY = 1.0


class BackPressure:
    """Looked at before each claim: N drivers overshoot a limit by N - 1 at most."""

    def __init__(self, options: Options, targets: Sequence[Target], observer: Observer) -> None:
        self._items = options.max_output_items
        self._bytes = options.max_output_bytes
        self.limited = self._items is not None or self._bytes is not None
        self._targets = targets
        self._observer = observer
        # Those that take no more.
        self._filled: list[Target] = []
        self._alone_since: float | None = None
        self._asked_at = 0.0

    def full(self) -> str:
        """Why nothing more should be claimed; empty while there is room."""
        found = [(target, words) for target in self._targets if (words := self._full(target))]
        self._filled = [target for target, _ in found]
        if found:
            return found[0][1]
        self._alone_since = None
        return ""

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

    def _full(self, target: Target) -> str:
        items = size = 0
        for name in target.directory.names():
            item = names.parse(name)
            if item is None or item.state not in _COUNTED:
                continue
            items += 1
            if self._items is not None and items >= self._items:
                return f"{target.name} holds {self._items} items or more"
            if self._bytes is not None:
                try:
                    size += target.directory.status(name).size
                except FileNotFoundError:
                    continue
                if size >= self._bytes:
                    return f"{target.name} holds {format_size(self._bytes)} or more"
        return ""

    def _consumed(self, target: Target) -> bool:
        try:
            private = target.directory.subdirectory(names.PRIVATE)
            drivers = private.subdirectory(DRIVERS)
        except FileNotFoundError:
            return False
        try:
            found = read_registrations(drivers)
        finally:
            drivers.close()
            private.close()
        return any(self._observer.judge(one) == "alive" for one in found)
