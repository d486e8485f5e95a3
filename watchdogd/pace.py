"""How fast a stage is, from what its drivers count: documents per second, and seconds for each."""

import statistics
from collections import deque
from typing import NamedTuple

# Documents per second are those of the last minute, seconds per document those of the last five.
RATE_OVER = 60.0
SERVICE_OVER = 300.0
_SAMPLE_EVERY = 1.0
# Of how many starts the time that a start takes is the median.
_STARTS = 9


class _Sample(NamedTuple):
    at: float
    documents: int
    # Seconds of all drivers together.
    spent: float


class Pace:
    """The pace of one stage on this host. Instants are monotonic, and arguments."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._startups: deque[float] = deque(maxlen=_STARTS)
        # As it was when last something was done: documents may take longer than we look back.
        self._service: float | None = None

    def count(self, now: float, documents: int, spent: float) -> None:
        """So many documents have been dealt with by now, in so many seconds of drivers' time."""
        if self._samples and now - self._samples[-1].at < _SAMPLE_EVERY:
            return
        self._samples.append(_Sample(now, documents, spent))
        while self._samples[0].at < now - SERVICE_OVER:
            self._samples.popleft()
        done, took, _ = self._over(SERVICE_OVER)
        if done:
            self._service = took / done

    def started(self, seconds: float) -> None:
        """A driver was ready so long after its start."""
        self._startups.append(seconds)

    @property
    def startup(self) -> float | None:
        """Seconds until a driver is ready; None while none was."""
        return statistics.median(self._startups) if self._startups else None

    @property
    def rate(self) -> float:
        """Documents per second."""
        documents, _, seconds = self._over(RATE_OVER)
        return documents / seconds if seconds else 0.0

    @property
    def service(self) -> float | None:
        """Seconds of a driver for a document; None while none was done."""
        return self._service

    def _over(self, seconds: float) -> tuple[int, float, float]:
        if not self._samples:
            return 0, 0.0, 0.0
        last = self._samples[-1]
        first = next(one for one in self._samples if one.at >= last.at - seconds)
        return last.documents - first.documents, last.spent - first.spent, last.at - first.at
