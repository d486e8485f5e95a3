"""The names of a queue that are to be tried next: listed a few at a time, pass after pass.

A queue is drained when two whole passes showed nothing, and the directory did not change from
before the first to after the second: one listing alone may miss what is renamed meanwhile.
"""

from collections.abc import Callable, Collection

from queuedriver.claims.attempts import Attempts
from queuedriver.claims.picking import Order, Picker
from queuedriver.disk.filesystem import Directory
from queuedriver.format.names import is_plain

# An empty queue is not listed again sooner, but by who has paused; in seconds.
_REST = 0.05
# So many names are taken at most from what was listed, and again so many when those before them
# were used up within so many seconds.
_MOST_AHEAD = 64
_AT_ONCE = 0.1


class Lookahead:
    """The names that wait in one queue, as far as it was listed, and whether there are any."""

    def __init__(
        self,
        directory: Directory,
        attempts: Attempts,
        me: str,
        order: Order = "fair",
        alive: Callable[[bool], Collection[str]] = lambda anew: (),
        *,
        await_writing: bool = True,
    ) -> None:
        # The next one last.
        self.names: list[str] = []
        # Whether all of them need no closer look: these never failed, nor were they troubled.
        self.usual = False
        # Documents of which something is remembered: these are never as usual.
        self.troubled: Collection[str] = ()
        # Names that are left alone, and until when.
        self.left_alone: dict[str, float] = {}
        self.picker = Picker(directory, order, me, alive)
        self._directory = directory
        self._attempts = attempts
        self._await_writing = await_writing
        # How many names are taken at a time, and when that was done last. An exact order is one of
        # names that were just listed.
        self._ahead, self._ahead_at = 1, 0.0
        self._most_ahead = _MOST_AHEAD if order == "fair" else 1
        # The directory's mtime before the pass at hand; None between passes.
        self._mtime: int | None = None
        self._rest_until = 0.0
        # The mtime at which it was seen empty, and since when, while it is that.
        self._empty: tuple[int, float] | None = None

    def needs_care(self, docid: str, attempt: int) -> bool:
        """Tell whether a document failed before, or has been troubled."""
        return attempt > 0 or docid in self.troubled

    def list_more(self, now: float) -> bool:
        """List some names to try, when none is left. False after a pass that had none, and for a
        moment thereafter, unless `wake` was called: its driver may have other queues."""
        while True:
            if self._mtime is None:
                if now < self._rest_until:
                    return False
                self._mtime = self._directory.status().st_mtime_ns
                self.troubled = self._attempts.docids()
            if given := self.picker.names(self._next_ahead(now), now):
                given.reverse()
                self.names += given
                self.usual = not self.troubled and all(map(is_plain, given))
                if self.left_alone:
                    self._leave_alone(now)
                if self.names:
                    return True
                continue
            self._end_pass(now, self._mtime)
            # After a pass that gave work there may be more; after one whose every item was somebody
            # else's (or a ghost of a stale listing) only waiting helps.
            if self.picker.counts.got <= 0:
                self._rest_until = now + _REST
                return False

    def restart(self) -> None:
        """Forget what was listed: it is out of date."""
        self.picker.restart()
        self.names.clear()
        self._mtime = None
        self.wake()

    def wake(self) -> None:
        """Rest no longer: there may be something new."""
        self._rest_until = 0.0

    def empty_for(self, now: float) -> float:
        """Return for how long whole listings have shown the queue empty; negative if not at all."""
        return now - self._empty[1] if self._empty is not None else -1.0

    def _next_ahead(self, now: float) -> int:
        """Return how many names to take: more while they are used up at once, and one while a
        document takes long, or others would lose races for what has long been done."""
        soon = now - self._ahead_at < _AT_ONCE
        self._ahead = min(2 * self._ahead, self._most_ahead) if soon else 1
        self._ahead_at = now
        return self._ahead

    def _leave_alone(self, now: float) -> None:
        for name in [one for one in self.names if self.left_alone.get(one, 0.0) > now]:
            self.names.remove(name)
            self.picker.refused()

    def _end_pass(self, now: float, before: int) -> None:
        """Note whether the queue was empty."""
        self._mtime = None
        counts = self.picker.counts
        if not self._await_writing:
            counts.writing = 0
        if counts.left:
            # What nobody has tried may be no item at all; the next pass tries everything.
            return
        if counts.unfinished:
            self._empty = None
            return
        after = self._directory.status().st_mtime_ns
        if self._empty is None or self._empty[0] != after:
            self._empty = (after, now) if before == after else None
