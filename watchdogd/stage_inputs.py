"""What the last look saw of the input queues of one stage."""

from collections.abc import Sequence

from watchdogd.messages import QueueSeen
from watchdogd.queue_view import QueueView


class StageInputs:
    """The input queues of one stage, as the helper has seen them. Instants are monotonic."""

    def __init__(self, view: QueueView, names: Sequence[str]) -> None:
        self.view = view
        self.names = names
        # A drain is over: nothing is to be done any more.
        self.finished = False
        # When there last was something to do or to come.
        self._not_done_at = 0.0

    @property
    def seen(self) -> list[QueueSeen | None]:
        """Return the latest look at each; None: not seen yet, as after a reload."""
        return [self.view.queues.get(name) for name in self.names]

    @property
    def _known(self) -> list[QueueSeen]:
        """Return those that were seen; nothing before all were."""
        seen = [one for one in self.seen if one is not None]
        return seen if len(seen) == len(self.names) else []

    @property
    def empty(self) -> bool:
        """Return whether the last look saw no item."""
        known = self._known
        return bool(known) and not any(one.unfinished for one in known)

    @property
    def drained(self) -> bool:
        """Return whether they were seen empty for the second time."""
        known = self._known
        return bool(known) and all(one.drained for one in known)

    @property
    def done(self) -> bool:
        """Return whether they are done and drained, or a drain is over."""
        return self.finished or (self.drained and all(one.done for one in self._known))

    @property
    def backlog(self) -> int:
        """Count the documents that wait and may be claimed, and those at hand."""
        seen = [one for one in self.seen if one is not None]
        return sum(one.working + (0 if one.paused else one.waiting) for one in seen)

    def note(self, now: float) -> None:
        """Note the moment while they are not done."""
        if not self.done:
            self._not_done_at = now

    @property
    def done_for(self) -> float:
        """Return for how many seconds they are done."""
        return self.view.looked_at - self._not_done_at
