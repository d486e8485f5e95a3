"""What waits in one queue, in the order in which a broker first saw it.

Clients' requests join the end as they come. Documents are listed a few at a time, when none of
those that were listed before is left; so neither can starve the other, and memory does not depend
on how much waits.

What has failed, and what was in the hands of a worker that was lost, is suspect: it goes alone, and
waits apart, so that the others go on meanwhile.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice

from queuedriver.claims.lane import Lane
from queuedriver.claims.picking import Candidate
from queuedriver.format.names import waiting_name

# How many documents are listed ahead; and how many suspects besides.
_AHEAD = 64
# How many documents that never were charged are remembered as suspects.
_MOST_SUSPECTS = 10_000
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
        self._waiting_suspects: deque[Candidate] = deque()
        self._names: set[str] = set()
        # Those of the others that came from a listing.
        self._listed: set[str] = set()
        # Documents that were taken back from a lost worker: their names do not say so.
        self._suspects: dict[str, None] = {}
        self._rest_until = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._waiting_suspects)

    @property
    def suspects_wait(self) -> bool:
        """Whether something waits that goes alone."""
        return bool(self._waiting_suspects)

    @property
    def others_wait(self) -> bool:
        """Whether something waits that may go beside others."""
        return bool(self._waiting)

    def load(self) -> None:
        """What was taken back in an earlier life, or by others, is suspect."""
        found = self._lane.handoff.attempts.docids()
        self._suspects.update(dict.fromkeys(islice(found, _MOST_SUSPECTS)))

    def suspect(self, docid: str) -> None:
        """It was with others in the hands of a worker that was lost."""
        self._suspects[docid] = None
        if len(self._suspects) > _MOST_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]

    def clear(self, docid: str) -> bool:
        """It is done: the next document of this name is another. Whether it had been suspected."""
        return self._suspects.pop(docid, self) is None

    def is_suspect(self, candidate: Candidate) -> bool:
        """Whether it goes alone."""
        return candidate.attempt > 0 or candidate.docid in self._suspects

    def join(self, docid: str) -> None:
        """A request that has just been written down."""
        self._add(Candidate(waiting_name(docid, 0), docid, 0))

    def wake(self) -> None:
        """There may be something new."""
        self._rest_until = 0.0

    def restart(self) -> None:
        """After trouble: what was seen may be no more."""
        self._waiting.clear()
        self._waiting_suspects.clear()
        self._names.clear()
        self._listed.clear()
        self.wake()

    def fill(self, now: float) -> bool:
        """List some documents, if none is left of those that were; whether anything waits."""
        if not self._listed and now >= self._rest_until:
            self._list(now)
        return bool(self)

    def _list(self, now: float) -> None:
        seen: set[str] = set()
        # However many suspects there are, what is behind them is listed when some have gone.
        while len(self._listed) < _AHEAD and len(self._waiting_suspects) < _AHEAD:
            candidate = self._lane.next(now, alone=True)
            if candidate is None or candidate.name in seen:
                # The queue has been gone through; of what waits here already it never ends.
                break
            seen.add(candidate.name)
            if candidate.name not in self._names and not self._is_elsewhere(candidate.docid):
                if not self.is_suspect(candidate):
                    self._listed.add(candidate.name)
                self._add(candidate)
        if not (self._listed or self._lane.picker.counts.left):
            self._rest_until = now + _REST

    def next(self) -> Candidate | None:
        """Who is first of those that may go beside others; it does not wait here any more."""
        if not self._waiting:
            return None
        candidate = self._waiting.popleft()
        self._names.discard(candidate.name)
        self._listed.discard(candidate.name)
        return candidate

    def next_suspect(self) -> Candidate | None:
        """Who is first of those that go alone; it does not wait here any more."""
        if not self._waiting_suspects:
            return None
        candidate = self._waiting_suspects.popleft()
        self._names.discard(candidate.name)
        if not self._waiting_suspects:
            # They may have been in the way of a listing.
            self.wake()
        return candidate

    def put_back(self, candidate: Candidate) -> None:
        """It was not its turn after all."""
        self._kind(candidate).appendleft(candidate)
        self._names.add(candidate.name)

    def _add(self, candidate: Candidate) -> None:
        self._kind(candidate).append(candidate)
        self._names.add(candidate.name)

    def _kind(self, candidate: Candidate) -> deque[Candidate]:
        return self._waiting_suspects if self.is_suspect(candidate) else self._waiting
