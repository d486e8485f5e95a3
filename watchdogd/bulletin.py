"""When a watchdog tells others how it is: its status document, and the service manager. Pure but
for the latter's socket, which never waits."""

from collections.abc import Sequence

from watchdogd.notify import Notifier

# How often this host's status is published while nothing changes, and while something does.
_PUBLISH_EVERY = 2.0
_PUBLISH_CHANGES_EVERY = 0.2
# How often the service manager is told the status that does not want to hear of our health.
_TELL_EVERY = 5.0


class Bulletin:
    """Keeps the times. Instants are monotonic, and arguments."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._publish_at = self._published_at = self._service_at = 0.0
        self._published: Sequence[object] = ()

    @property
    def due_at(self) -> float:
        """When there is something to tell at the latest."""
        return min(self._publish_at, self._service_at)

    def hasten(self, now: float) -> None:
        """Somebody waits to hear of it."""
        self._publish_at = now

    def is_due(self, state: Sequence[object], now: float) -> bool:
        """Whether to publish now. A change is to be seen soon, though not each by itself."""
        if state != self._published:
            self._publish_at = min(self._publish_at, self._published_at + _PUBLISH_CHANGES_EVERY)
        if now < self._publish_at:
            return False
        self._published, self._published_at = state, now
        self._publish_at = now + _PUBLISH_EVERY
        return True

    def beat(self, words: str, now: float) -> None:
        """A whole turn of the loop was done: the service manager wants to know."""
        if now >= self._service_at:
            interval = self._notifier.interval
            self._service_at = now + (interval / 3 if interval else _TELL_EVERY)
            self._notifier.beat()
            self._notifier.status(words)
