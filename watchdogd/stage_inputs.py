"""What is known of the input queues of one stage, asked of the view. Pure."""

from collections.abc import Sequence

from watchdogd.messages import QueueSeen
from watchdogd.queue_view import QueueView


class StageInputs:
    """The input queues of one stage, as they were seen. Instants are monotonic, and arguments."""

    def __init__(self, names: Sequence[str], view: QueueView) -> None:
        self.names = names
        # A drain is over: nothing is to be done any more.
        self.finished = False
        self._view = view
        # When there last was something to do or to come.
        self._not_done_at = 0.0

    def note(self, now: float) -> None:
        """Note whether there is something to do or to come now."""
        if not self.done:
            self._not_done_at = now

    @property
    def seen(self) -> list[QueueSeen | None]:
        """Return them in the order of the file; None: not seen yet, as after a reload."""
        return [self._view.queues.get(name) for name in self.names]

    @property
    def _known(self) -> list[QueueSeen]:
        """Return those that were seen; nothing before all were."""
        seen = [one for one in self.seen if one is not None]
        return seen if len(seen) == len(self.names) else []

    @property
    def empty(self) -> bool:
        """Return whether the last look saw no item."""
        return bool(self._known) and not any(one.unfinished for one in self._known)

    @property
    def drained(self) -> bool:
        """Return whether they were seen empty for the second time."""
        return bool(self._known) and all(one.drained for one in self._known)

    @property
    def done(self) -> bool:
        """Return whether they are done and drained, or a drain is over."""
        return self.finished or (self.drained and all(one.done for one in self._known))

    @property
    def done_for(self) -> float:
        """Return the seconds for which no look has seen anything else."""
        return self._view.looked_at - self._not_done_at

    @property
    def backlog(self) -> int:
        """Count the documents that wait and may be claimed, and those at hand."""
        seen = [one for one in self.seen if one is not None]
        return sum(one.working + (0 if one.paused else one.waiting) for one in seen)
