"""What is known of the input queues of one stage. Pure."""

from collections.abc import Mapping, Sequence

from watchdogd.helper_messages import QueueSeen


class StageInputs:
    """The input queues of one stage at one look. None counts as empty before all were seen."""

    def __init__(self, names: Sequence[str], queues: Mapping[str, QueueSeen]) -> None:
        self.names = names
        self.queues = queues
        # In the order of the file; None: not seen yet, as after a reload.
        self.seen = [queues.get(name) for name in names]
        known = [one for one in self.seen if one is not None]
        all_known = 0 < len(known) == len(names)
        # Without any item; the same for the second time; and closed besides.
        self.empty = all_known and not any(one.unfinished for one in known)
        self.drained = all_known and all(one.drained for one in known)
        self.done = self.drained and all(one.done for one in known)
        # The first that documents came into after it was closed; empty: none.
        late = (name for name, one in zip(names, self.seen, strict=True) if one and one.late)
        self.late = next(late, "")
        # Documents that wait and may be claimed, and those at hand.
        self.backlog = sum(one.working + (0 if one.paused else one.waiting) for one in known)
