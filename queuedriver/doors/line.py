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

from queuedriver.claims.input_queue import InputQueue
from queuedriver.format import names

# How many documents are listed ahead; and how many suspects besides.
_AHEAD = 64
# How many documents that never were charged are remembered as suspects.
_MOST_SUSPECTS = 10_000
# How long an empty queue is not listed again, in seconds: what wakes the broker meanwhile is nearly
# always a frame. A hint, and the end of a nap, end it.
_REST = 1.0


class Line:
    """The names of one queue that wait, first come first served."""

    def __init__(
        self, queue: InputQueue, is_elsewhere: Callable[[str], bool] = lambda docid: False
    ) -> None:
        self._queue = queue
        # Whether a request's client is connected to another broker, which alone can answer it.
        self._is_elsewhere = is_elsewhere
        self._waiting: deque[str] = deque()
        self._waiting_suspects: deque[str] = deque()
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
        found = self._queue.attempts.docids()
        self._suspects.update(dict.fromkeys(islice(found, _MOST_SUSPECTS)))

    def suspect(self, docid: str) -> None:
        """It was with others in the hands of a worker that was lost."""
        self._suspects[docid] = None
        if len(self._suspects) > _MOST_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]

    def clear(self, docid: str) -> bool:
        """It is done: the next document of this name is another. Whether it had been suspected."""
        return self._suspects.pop(docid, self) is None

    def is_suspect(self, name: str) -> bool:
        """Whether it goes alone."""
        item = names.parse(name)
        return item is not None and (item.attempt > 0 or item.docid in self._suspects)

    def join(self, docid: str) -> None:
        """A request that has just been written down."""
        self._add(names.waiting_name(docid, 0))

    def wake(self) -> None:
        """There may be something new."""
        self._rest_until = 0.0
        self._queue.waiting.wake()

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
        waiting = self._queue.waiting
        # However many suspects there are, what is behind them is listed when some have gone.
        while len(self._listed) < _AHEAD and len(self._waiting_suspects) < _AHEAD:
            if not waiting.names and not waiting.list_more(now):
                break
            name = waiting.names.pop()
            if name in seen:
                # The queue has been gone through; of what waits here already it never ends.
                break
            seen.add(name)
            item = names.parse(name)
            if item and name not in self._names and not self._is_elsewhere(item.docid):
                if not self.is_suspect(name):
                    self._listed.add(name)
                self._add(name)
        if not (self._listed or waiting.picker.counts.left):
            self._rest_until = now + _REST

    def next(self) -> str | None:
        """Who is first of those that may go beside others; it does not wait here any more."""
        if not self._waiting:
            return None
        name = self._waiting.popleft()
        self._names.discard(name)
        self._listed.discard(name)
        return name

    def next_suspect(self) -> str | None:
        """Who is first of those that go alone; it does not wait here any more."""
        if not self._waiting_suspects:
            return None
        name = self._waiting_suspects.popleft()
        self._names.discard(name)
        if not self._waiting_suspects:
            # They may have been in the way of a listing.
            self.wake()
        return name

    def put_back(self, name: str) -> None:
        """It was not its turn after all."""
        self._kind(name).appendleft(name)
        self._names.add(name)

    def _add(self, name: str) -> None:
        self._kind(name).append(name)
        self._names.add(name)

    def _kind(self, name: str) -> deque[str]:
        return self._waiting_suspects if self.is_suspect(name) else self._waiting
