"""The pace of a stage, from what its drivers count: documents per second, seconds for each, and
after how many a document counts as hung (`timeout = "auto"`).

That limit is generous on purpose: one that ends a healthy document does more harm than one that
comes late. How large documents are is not known here, and what is large and what hangs look the
same for a while. So a document that this limit has ended is given ten times as long the next time:
what only is large gets through, and what hangs costs one longer wait before it is discarded.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from queuedriver.driving.live_status import Glimpse
from watchdogd.driver_ids import digits_of
from watchdogd.pipeline.model import Stage

# Documents per second are those of the last minute, seconds per document those of the last five.
RATE_OVER = 60.0
SERVICE_OVER = 300.0
_SAMPLE_EVERY = 1.0
# Of how many starts the time that a start takes is the median.
_STARTS = 9
# From so many successes on there is something to learn from, and older ones than so many do not
# count: models and documents change.
ENOUGH = 20
REMEMBERED = 200
# So many times what all but one in twenty documents take, and never less than ten minutes.
FACTOR = 10.0
SHARE = 0.95
LEAST = 600.0
# For a document that the limit has ended once; and of how many that is remembered: more than a
# stage ever has at a time.
SECOND_CHANCE = 10.0
_MOST_LATE = 1000
_DIGITS = 16


class _Sample(NamedTuple):
    at: float
    documents: int
    # Seconds of all drivers together.
    spent: float


class Throughput:
    """The pace of one stage on this host. Instants are monotonic, and arguments."""

    def __init__(self, processing: str = "", hard_limit: float | None = None) -> None:
        # What is done to documents, in digits; empty: not known yet.
        self.processing = processing
        # Seconds after which a document counts as hung, as earlier watchdogs have learned until
        # there is enough to learn from; None: not known yet.
        self.hard_limit = hard_limit
        # The documents that it has ended.
        self._late: deque[str] = deque(maxlen=_MOST_LATE)
        # The seconds that the latest documents took; 0 for what took less than a look.
        self.durations: deque[float] = deque(maxlen=REMEMBERED)
        self._samples: deque[_Sample] = deque()
        self._startups: deque[float] = deque(maxlen=_STARTS)
        # Seconds of a driver for a document, as it was when last something was done, for documents
        # may take longer than we look back; None while none was.
        self.service: float | None = None

    def is_due(self, now: float) -> bool:
        """Return whether it is time to count again."""
        return not self._samples or now - self._samples[-1].at >= _SAMPLE_EVERY

    def count(self, now: float, documents: int, spent: float) -> None:
        """Take note that so many documents were dealt with, in so many seconds of drivers' time; to
        be called when that is due."""
        self._samples.append(_Sample(now, documents, spent))
        while self._samples[0].at < now - SERVICE_OVER:
            self._samples.popleft()
        done, took, _ = self._over(SERVICE_OVER)
        if done:
            self.service = took / done

    def started(self, seconds: float) -> None:
        """Take note that a driver was ready so long after its start."""
        self._startups.append(seconds)

    def learn(self, before: Glimpse, after: Glimpse, now: float) -> None:
        """Learn from two looks at a driver what its documents take that it has done between. Of
        the one that was at hand at the first look no more is known than that it took until now at
        most, and of the others less than between the looks: nothing that would count."""
        done = min(after.totals.documents - before.totals.documents, REMEMBERED)
        if done <= 0:
            return
        went_on = before.began_at and before.began_at != after.began_at
        self.durations.extend([0.0] * (done - 1))
        self.durations.append(now - before.began_at if went_on else 0.0)
        if (learned := hard_limit(self.durations)) is not None:
            self.hard_limit = learned

    def follow(self, stage: Stage) -> None:
        """Forget how long a document takes if something else is done to them from now on."""
        work = msgspec.json.encode((stage.kind, stage.work, stage.batch)).decode()
        if (processing := digits_of(work, _DIGITS)) != self.processing:
            self.processing, self.hard_limit = processing, None
            self.durations.clear()

    def was_late(self, docid: str) -> None:
        """Take note that the limit has ended a document, which may be large rather than hang."""
        self._late.append(docid)

    def limit_of(self, docid: str) -> float | None:
        """Return the seconds after which this document counts as hung; None: not known yet."""
        if self.hard_limit is None or docid not in self._late:
            return self.hard_limit
        return self.hard_limit * SECOND_CHANCE

    @property
    def startup(self) -> float | None:
        """Return the seconds until a driver is ready; None while none was."""
        latest = sorted(self._startups)
        return latest[len(latest) // 2] if latest else None

    @property
    def rate(self) -> float:
        """Return the documents per second."""
        documents, _, seconds = self._over(RATE_OVER)
        return documents / seconds if seconds else 0.0

    def _over(self, seconds: float) -> tuple[int, float, float]:
        if not self._samples:
            return 0, 0.0, 0.0
        last = self._samples[-1]
        first = next(one for one in self._samples if one.at >= last.at - seconds)
        return last.documents - first.documents, last.spent - first.spent, last.at - first.at


def hard_limit(durations: Sequence[float]) -> float | None:
    """Return the seconds after which a document counts as hung, from what documents took that
    succeeded, the latest last; None: too few to tell."""
    latest = sorted(list(durations)[-REMEMBERED:])
    if len(latest) < ENOUGH:
        return None
    usual = latest[math.ceil(SHARE * len(latest)) - 1]
    return max(LEAST, FACTOR * usual)
