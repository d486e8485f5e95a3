"""What is known of the queues from one look to the next, of all and of those of one stage; and what
was discarded since. Pure.

Stages and the supervisor ask it. A helper that was started amid trouble has seen nothing yet: what
those before it saw stands until it has. Nothing counts before a look that met no trouble.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from queuedriver.driving.live_status import Counting
from watchdogd.helper_messages import Controls, Look, QueueSeen, Usage


class StageInputs:
    """The input queues of one stage at one look. None counts as empty before all were seen."""

    def __init__(self, names: Sequence[str], queues: Mapping[str, QueueSeen]) -> None:
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


class QueueView:
    """The latest look, completed by those before it."""

    def __init__(self) -> None:
        self.queues: Mapping[str, QueueSeen] = {}
        self.controls = Controls()
        # What the file system says; empty while all is well.
        self.trouble = ""
        # What drivers take, by their pids.
        self.usage: Mapping[int, Usage] = {}
        # Whether anything was heard of the queues at all, and whether they were ever seen well; and
        # when the latest look was heard of since, on the monotonic clock.
        self.heard = self.known = False
        self.looked_at = 0.0
        # What was charged by whoever recovered where no driver was, by queue.
        self.failed = defaultdict[str, Counting](Counting)
        # The queues as they were at first.
        self.at_first: Mapping[str, QueueSeen] = {}
        self._discarded_at_first: dict[str, int] = {}
        # What was asked of the latest look, by the names of the queues.
        self._inputs: dict[tuple[str, ...], StageInputs] = {}

    def inputs(self, names: tuple[str, ...]) -> StageInputs:
        """Return what is known of these queues, from which one stage takes."""
        if names not in self._inputs:
            self._inputs[names] = StageInputs(names, self.queues)
        return self._inputs[names]

    def take(self, look: Look, now: float) -> dict[str, int]:
        """Take the latest look; return how many documents each queue has more in `discarded/`."""
        self.heard = True
        before, self.trouble, self.usage = self.queues, look.trouble, look.usage
        if look.trouble and not self.known:
            return {}
        self.looked_at = now
        self._inputs.clear()
        # Without trouble all was seen: what is missing then is not of the pipeline any more.
        self.queues = {**before, **look.queues} if look.trouble else look.queues
        self.controls = self.controls if look.controls is None else look.controls
        if not self.known:
            self.known, self.at_first = True, look.queues
        for name, queue in look.queues.items():
            at_first = self._discarded_at_first.get(name, queue.discarded)
            # What an operator takes out again was not discarded by this run either.
            self._discarded_at_first[name] = min(at_first, queue.discarded)
        return _grown(look.queues, {name: one.discarded for name, one in before.items()})

    @property
    def discarded(self) -> dict[str, int]:
        """Count the documents discarded since the first look, by queue; only where any were."""
        return _grown(self.queues, self._discarded_at_first)


def _grown(queues: Mapping[str, QueueSeen], before: Mapping[str, int]) -> dict[str, int]:
    more = {name: one.discarded - before.get(name, one.discarded) for name, one in queues.items()}
    return {name: count for name, count in more.items() if count > 0}
