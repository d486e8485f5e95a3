"""What holds one service of a broker, while the others go on: that it has stopped itself, as its
documents failed one after the other, and that its output is full.

To the loop the breakers of all are as one, which stops when all have; and so is the back-pressure.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import Heartbeat
from queuedriver.driving.backpressure import BackPressure
from queuedriver.driving.breaker import Breaker
from queuedriver.driving.closing import Trip
from queuedriver.driving.live_status import Tally
from queuedriver.driving.plan import Seen


class Breakers(msgspec.Struct, eq=False):
    """The breaker of each queue."""

    of: Mapping[InputQueue, Breaker]
    _tally: Tally

    def __post_init__(self) -> None:
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
    def next(self) -> Breaker | None:
        """Return that of the service that has stopped, and is tried first; None where none has."""
        stopped = [one for one in self.of.values() if one.trip is not None]
        return min(stopped, key=lambda one: one.trial_at, default=None)

    @property
    def trip(self) -> Trip | None:
        """Return why nothing is claimed but for trials; None while any service goes on."""
        return self.next.trip if self.stops and self.next is not None else None

    @property
    def path(self) -> str:
        """Return the queue that people are to resume."""
        return self.next.path if self.next is not None else ""

    @property
    def trial_at(self) -> float:
        """Return when to try a document."""
        return self.next.trial_at if self.next is not None else 0.0

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
        first = self.next
        if first is None or first.trip is None:
            return seen
        words = first.trip.words(first.path, first.trial_at + clocks)
        left = first.trial_at - now
        return msgspec.structs.replace(seen, tripped=words, trial_in=left, candidate=waits)


class Pressures(msgspec.Struct, eq=False):
    """The back-pressure of each queue."""

    _of: Mapping[InputQueue, BackPressure]
    # Tells of which there is something that could be dealt.
    _served: Callable[[float], Sequence[InputQueue]]
    # That of the queue that was found full last.
    _full: BackPressure | None = None
    _why: str = ""

    def is_full(self, queue: InputQueue) -> bool:
        """Tell whether nothing of a queue is to be dealt, as its outputs take no more."""
        why = self._of[queue].full(queue.published + len(queue.handed_over))
        if why:
            self._full, self._why = self._of[queue], why
        return bool(why)

    def full(self, published: int) -> str:
        """Return why nothing of all that waits is to be dealt; "" while something is."""
        served = self._served(time.monotonic())
        return self._why if served and all(map(self.is_full, served)) else ""

    def no_consumer_for(self) -> float:
        """Return for how many seconds a full output was seen without a living driver."""
        return self._full.no_consumer_for() if self._full is not None else 0.0
