"""What is known of the queues from one look to the next, and what was discarded since. Pure.

Eyes that were started amid trouble have seen nothing yet: what those before them saw stands until
they have. Nothing counts as known before a look that met no trouble.
"""

from collections.abc import Mapping

import msgspec

from watchdogd.messages import Controls, QueueSeen, Snapshot


class Sight:
    """The latest look, completed by those before it."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        # Whether anything was heard of the queues at all, and whether they were ever seen well.
        self.heard = False
        self.known = False
        # As they were at first.
        self.queues_at_first: Mapping[str, QueueSeen] = {}
        self._discarded_at_first: dict[str, int] = {}

    @property
    def queues(self) -> Mapping[str, QueueSeen]:
        return self.snapshot.queues

    @property
    def controls(self) -> Controls:
        return self.snapshot.controls

    @property
    def trouble(self) -> str:
        """What the file system says; empty while all is well."""
        return self.snapshot.trouble

    def take(self, snapshot: Snapshot) -> dict[str, int]:
        """The latest look; how many documents each queue has more in `discarded/` since then."""
        self.heard = True
        before, self.snapshot = self.snapshot, _completed(snapshot, self.snapshot)
        if not (snapshot.trouble or self.known):
            self.known, self.queues_at_first = True, snapshot.queues
        for name, queue in snapshot.queues.items():
            at_first = self._discarded_at_first.get(name, queue.discarded)
            # What an operator takes out again was not discarded by this run either.
            self._discarded_at_first[name] = min(at_first, queue.discarded)
        more = {
            name: queue.discarded - before.queues[name].discarded
            for name, queue in snapshot.queues.items()
            if name in before.queues
        }
        return {name: count for name, count in more.items() if count > 0}

    @property
    def discarded(self) -> dict[str, int]:
        """How many documents were discarded since the first look, by queue; only where any were."""
        more = {
            name: one.discarded - self._discarded_at_first.get(name, one.discarded)
            for name, one in self.queues.items()
        }
        return {name: count for name, count in more.items() if count > 0}


def _completed(now: Snapshot, before: Snapshot) -> Snapshot:
    if not now.trouble:
        return now
    read = now.queues or now.controls != Controls()
    return msgspec.structs.replace(
        now,
        queues={**before.queues, **now.queues},
        controls=now.controls if read else before.controls,
        timeouts={**before.timeouts, **now.timeouts},
    )
