"""What the last look saw of the input queues of one stage."""

from collections.abc import Mapping, Sequence

from watchdogd.messages import QueueSeen


class StageInputs:
    """The input queues of one stage, as they were seen. Instants are monotonic, and arguments."""

    def __init__(self) -> None:
        # In the order of the file; None: not seen yet, as after a reload.
        self.seen: list[QueueSeen | None] = []
        # The whole pipeline is paused.
        self.paused = False
        # A drain is over: nothing is to be done any more.
        self.finished = False
        # When the latest look was, and the latest that saw something to do or to come.
        self.looked_at = self._not_done_at = 0.0

    def learn(
        self, names: Sequence[str], queues: Mapping[str, QueueSeen], paused: bool, now: float
    ) -> None:
        """Take the latest look at these queues; `paused`: the whole pipeline is."""
        self.seen = [queues.get(name) for name in names]
        self.paused, self.looked_at = paused, now
        if not self.done:
            self._not_done_at = now

    @property
    def _known(self) -> list[QueueSeen]:
        """Those that were seen; nothing before all were."""
        seen = [one for one in self.seen if one is not None]
        return seen if len(seen) == len(self.seen) else []

    @property
    def empty(self) -> bool:
        """Whether the last look saw no item."""
        return bool(self._known) and not any(one.unfinished for one in self._known)

    @property
    def drained(self) -> bool:
        """Whether they were seen empty for the second time."""
        return bool(self._known) and all(one.drained for one in self._known)

    @property
    def done(self) -> bool:
        """Whether they are done and drained, or a drain is over."""
        return self.finished or (self.drained and all(one.done for one in self._known))

    @property
    def done_for(self) -> float:
        """Seconds for which no look has seen anything else."""
        return self.looked_at - self._not_done_at

    @property
    def backlog(self) -> int:
        """Documents that wait and may be claimed, and those at hand."""
        seen = [one for one in self.seen if one is not None]
        return sum(one.working + (0 if one.paused else one.waiting) for one in seen)
