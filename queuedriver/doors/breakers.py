"""The breakers of a broker's services: each service stops by itself, and the others go on.

To the loop they are as one, which stops when all have.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from queuedriver.claims.heartbeat import Heartbeat
from queuedriver.claims.input_queue import InputQueue
from queuedriver.driving.breaker import Breaker
from queuedriver.driving.closing import Trip
from queuedriver.driving.live_status import Tally
from queuedriver.driving.plan import Seen


class Breakers:
    """The breaker of each queue."""

    def __init__(
        self,
        queues: Sequence[InputQueue],
        after: int,
        clock: Callable[[], float],
        look_soon: Callable[[], None],
        tally: Tally,
    ) -> None:
        self.of = {queue: Breaker((queue,), after, clock, look_soon) for queue in queues}
        self._tally = tally
        for queue, breaker in self.of.items():
            queue.worked = partial(self._worked, breaker)

    def _worked(self, breaker: Breaker, seconds: float, documents: int) -> None:
        # Of what workers do none is our work.
        self._tally.worked(0.0, documents)
        breaker.worked()

    @property
    def beats(self) -> list[Heartbeat]:
        """Return who says to other drivers what failed in a row."""
        return [beats for one in self.of.values() for beats in one.beats]

    @property
    def stops(self) -> bool:
        """Return whether nothing is to be claimed."""
        return all(one.stops for one in self.of.values())

    @property
    def holds(self) -> bool:
        """Return whether nothing is claimed, and of some service while we make sure."""
        return self.stops and any(one.holds for one in self.of.values())

    @property
    def next(self) -> tuple[InputQueue, Breaker] | None:
        """Return of which service that has stopped a document is tried first; None: of none."""
        stopped = [(queue, one) for queue, one in self.of.items() if one.trip is not None]
        return min(stopped, key=lambda pair: pair[1].trial_at, default=None)

    @property
    def trip(self) -> Trip | None:
        """Return why nothing is claimed but for trials; None while any service goes on."""
        return self.next[1].trip if self.stops and self.next is not None else None

    @property
    def trial_at(self) -> float:
        """Return when to try a document."""
        return self.next[1].trial_at if self.next is not None else 0.0

    def look(self, now: float) -> None:
        """See which services are to stop, or are stopped."""
        for one in self.of.values():
            one.look(now)

    def due(self, now: float) -> bool:
        """Tell whether it is time to try a document."""
        return any(one.due(now) for one in self.of.values())

    def facts(self, seen: Seen, now: float, clocks: float, *, waits: bool) -> Seen:
        """Return the facts with that a service has stopped itself, for a broker of which no other
        has anything to do; `waits`: the documents of one that has stopped do."""
        if self.next is None:
            return seen
        queue, breaker = self.next
        trial_at, words = breaker.trial_at, ""
        if breaker.trip is not None:
            words = breaker.trip.words(queue.path, trial_at + clocks)
        left = trial_at - now
        return msgspec.structs.replace(seen, tripped=words, trial_in=left, candidate=waits)
