"""What waits in one queue, in the order in which a broker first saw it.

Clients' requests join the end as they come. Documents are listed a few at a time, when none of
those that were listed before is left; so neither can starve the other, and memory does not depend
on how much waits.
"""

from collections import deque
from collections.abc import Callable

from queuedriver.claims.lane import Lane
from queuedriver.claims.picking import Candidate
from queuedriver.format.names import waiting_name

# How many documents are listed ahead.
_AHEAD = 64
# How long an empty queue is not listed again, in seconds: what wakes the broker meanwhile is nearly
# always a frame. A hint, and the end of a nap, end it.
_REST = 1.0


class Line:
    """The items of one lane that wait, first come first served."""

    def __init__(
        self, lane: Lane, is_elsewhere: Callable[[str], bool] = lambda docid: False
    ) -> None:
        self._lane = lane
        # Whether a request's client is connected to another broker, which alone can answer it.
        self._is_elsewhere = is_elsewhere
        self._waiting: deque[Candidate] = deque()
        self._names: set[str] = set()
        # Those of them that came from a listing.
        self._listed: set[str] = set()
        self._rest_until = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, docid: str) -> None:
        """A request that has just been written down."""
        self._add(Candidate(waiting_name(docid, 0), docid, 0))

    def wake(self) -> None:
        """There may be something new."""
        self._rest_until = 0.0

    def restart(self) -> None:
        """After trouble: what was seen may be no more."""
        self._waiting.clear()
        self._names.clear()
        self._listed.clear()
        self.wake()

    def fill(self, now: float) -> bool:
        """List some documents, if none is left of those that were; whether anything waits."""
        if not self._listed and now >= self._rest_until:
            self._list(now)
        return bool(self._waiting)

    def _list(self, now: float) -> None:
        seen: set[str] = set()
        while len(self._listed) < _AHEAD:
            candidate = self._lane.next(now, alone=True)
            if candidate is None or candidate.name in seen:
                # The queue has been gone through; of what waits here already it never ends.
                break
            seen.add(candidate.name)
            if candidate.name not in self._names and not self._is_elsewhere(candidate.docid):
                self._listed.add(candidate.name)
                self._add(candidate)
        if not (self._listed or self._lane.picker.counts.left):
            self._rest_until = now + _REST

    def next(self) -> Candidate | None:
        """Who is first; it does not wait here any more."""
        if not self._waiting:
            return None
        candidate = self._waiting.popleft()
        self._names.discard(candidate.name)
        self._listed.discard(candidate.name)
        return candidate

    def put_back(self, candidate: Candidate) -> None:
        """It was not its turn after all."""
        self._waiting.appendleft(candidate)
        self._names.add(candidate.name)

    def _add(self, candidate: Candidate) -> None:
        self._waiting.append(candidate)
        self._names.add(candidate.name)
