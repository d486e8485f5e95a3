"""Finished documents of a durable queue that wait for company: one sync serves them all.

A driver goes on with the next document while those that are finished wait, at most `MOST` of them,
all of one queue, for a few milliseconds or as long as handing over takes. That pays while documents
are shorter than a sync; of longer ones each is handed over at once.

While the driver's loop works on its queues, it holds a lock, and lets go of it only for as long as
its processor runs. A thread that gets the lock then hands the group over when its time has come:
else the group would wait for as long as the next document takes. The loop hands it over itself when
it is full or old, before a document that failed before, before it rests, and before it leaves.

A crash leaves `.working` with whole outputs: whoever recovers gives these documents back, and only
the newest claim, which alone was being processed, is charged.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from queuedriver.claims.charging import abandon
from queuedriver.claims.document import Document, Outputs
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.driving.limits import Limits

# How many documents wait at most: what a crash makes a driver do again.
MOST = 32
# How long the first of them waits, in seconds: as long as the latest hand-over took, within these
# bounds. So a slow disk gets larger groups, and has fewer syncs to make.
LONGEST = 0.005
LONGEST_OF_ALL = 0.05
# How many documents in a row have to be shorter than a sync; that is the slowest of so many
# hand-overs: on a busy machine either may seem long, as another process has the processor.
SHORT = 8
_LATEST = 8

Process = Callable[[Document, Outputs, Limits], None]


class Group:
    """The documents that wait, and the thread that sees to it that they do not wait for long."""

    def __init__(
        self, hand_over: Callable[[Sequence[Claim], float], None], clock: Callable[[], float]
    ) -> None:
        # By their N, for whoever asks which claims are at hand; the first one has waited longest.
        self.claims: dict[str, Claim] = {}
        self._hand_over = hand_over
        self._clock = clock
        self._seconds = 0.0
        # When they are handed over at the latest.
        self._ends_at = 0.0
        # What the latest documents took, and what handing over took; in seconds.
        self._latest: deque[float] = deque(maxlen=SHORT)
        self._syncs: deque[float] = deque((0.0,), maxlen=_LATEST)
        # What the thread was told that the loop is still to hear.
        self._error: OSError | None = None
        self._closing = False
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin to hold the lock; before the first document."""
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        """Hand over what waits, end the thread, and let go of the lock."""
        try:
            self.flush()
        except OSError as error:
            self.give_back(error)
        finally:
            self._closing = True
            self._begun.set()
            self._lock.release()
            if self._thread is not None:
                self._thread.join()

    def around(self, process: Process) -> Process:
        """Return the call of a processor as one during which the thread may hand over."""

        def unlocked(document: Document, outputs: Outputs, limits: Limits) -> None:
            self._lock.release()
            try:
                process(document, outputs, limits)
            finally:
                self._lock.acquire()

        return unlocked

    def is_of(self, queue: InputQueue) -> bool:
        """Tell whether a document of this queue may join those that wait."""
        return not self.claims or next(iter(self.claims.values())).of is queue

    def before(self, claim: Claim) -> None:
        """Hand over what waits where the next document is of another queue, or may end us."""
        if not self.is_of(claim.of) or claim.of.waiting.needs_care(claim.docid, claim.attempt):
            self.flush()

    def add(self, claim: Claim, seconds: float) -> None:
        """Hand a finished document over: now, or together with those that come next."""
        latest = self._latest
        latest.append(seconds)
        now = self._clock()
        is_short = len(latest) == SHORT and max(latest, default=0.0) <= max(self._syncs)
        if is_short and not self.claims:
            self._ends_at = now + min(max(LONGEST, self._syncs[-1]), LONGEST_OF_ALL)
            is_short = self._has_thread()
        self.claims[claim.token] = claim
        self._seconds += seconds
        if not is_short or len(self.claims) >= MOST or now >= self._ends_at or self._error:
            self.flush()
        elif len(self.claims) == 1:
            # Not before it is there: the thread would wait for the next group.
            self._begun.set()

    def flush(self) -> None:
        """Hand over what waits. OSError: what is not committed has been given back, or is to be."""
        if self._error is not None:
            # A file system says once of all that it could not write, which may be of what waits.
            error, self._error = self._error, None
            raise error
        self._hand_over_all()

    def _hand_over_all(self) -> None:
        if self.claims:
            began = self._clock()
            self._hand_over(*self._take())
            self._syncs.append(self._clock() - began)

    def give_back(self, error: OSError) -> None:
        """Give back what waits: the file system is not well."""
        for claim in self._take()[0]:
            abandon(claim, error)

    def _take(self) -> tuple[list[Claim], float]:
        claims, seconds = list(self.claims.values()), self._seconds
        self.claims.clear()
        self._seconds = 0.0
        return claims, seconds

    # The thread

    def _has_thread(self) -> bool:
        """Tell whether there is the thread; where the machine has none left, nobody has to wait."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="group", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            self._begun.wait()
            if self._closing:
                return
            self._begun.clear()
            while self.claims and not self._closing:
                time.sleep(max(self._ends_at - self._clock(), LONGEST / 10))
                with self._lock:
                    if self._clock() >= self._ends_at:
                        try:
                            self._hand_over_all()
                        except OSError as error:
                            self._error = error
