"""A driver shows that it lives: its registration, kept fresh by a small thread.

The thread runs beside a document however long that takes, so what else must not wait for its end is
looked at there, too (`look`). It is silent while C code holds the interpreter's lock.
"""

import contextlib
import threading
import time
from collections.abc import Callable

import msgspec

from queuedriver.claims.liveness import NETWORK_BEAT, registration_name
from queuedriver.disk.filesystem import Directory
from queuedriver.format.records import Counters, Registration, encodable

# From beat to beat of a driver that has nothing new to tell, in seconds.
BEAT = 5.0
# What is new is told so soon, in seconds: `status` reads it, and a beat is one small file. Some
# hundred drivers of a network file system would keep it busy with that.
NEWS = 1.0
NETWORK_NEWS = 5.0
# So much later for each driver of the same queue, but with the next beat at the latest.
_NEWS_FOR_EACH = 1 / 16
# Self-fencing: with no beat written for this part of the lease, write one or do not commit.
FENCE = 2 / 3
_RATE_WINDOW = 60.0


class Heartbeat:
    """One driver's registration in its input queues, kept fresh by a small daemon thread."""

    def __init__(
        self,
        registration: Registration,
        directories: list[Directory],
        report: Callable[[], tuple[str, str, Counters]],
        look: Callable[[], object] = lambda: None,
        durable: bool = False,
    ) -> None:
        registration.processor = encodable(registration.processor)
        self.registration = registration
        self.last_at = time.monotonic()
        self._directories = directories
        self._report = report
        # From beat to beat, and from look to look whether there is news; in seconds.
        self.interval = NETWORK_BEAT if registration.network else BEAT
        self.news = NETWORK_NEWS if registration.network else NEWS
        # How long after the last beat news is told at the earliest.
        self._patience = 0.0
        # What else is to be seen to as often, also while a document is at hand.
        self._look = look
        # After a power cut, too, somebody must know whose unfinished outputs those are.
        self._durable = durable
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._history: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def start(self) -> None:
        self.write()
        self._thread.start()

    def write(self) -> None:
        """Beat once, now. Raises OSError when that could not be written."""
        with self._writing:
            registration = self.registration
            registration.state, why, registration.counters = self._report()
            registration.why = encodable(why)
            registration.rate = self._rate(registration.counters.documents)
            registration.beat += 1
            registration.beat_at = time.time()
            data = msgspec.json.encode(registration)
            for directory in self._directories:
                directory.write_aside(registration_name(registration.id), data, self._durable)
            self.last_at = time.monotonic()

    def heed(self, crowd: int) -> None:
        """Tell news the later, the more drivers tell theirs to one server."""
        if self.registration.network:
            self._patience = min(crowd * _NEWS_FOR_EACH, self.interval)

    @property
    def tells_within(self) -> float:
        """Return after how many seconds news is told at the latest."""
        return max(self.news, self._patience)

    def fresh(self) -> None:
        """Beat before a commit, if that is long ago: others may have declared us dead."""
        if time.monotonic() - self.last_at > self.registration.lease * FENCE:
            self.write()

    def leave(self, word: str, why: str) -> None:
        """Say the last word, so that nobody takes our absence for a crash."""
        self.stop()
        self.registration.last_word = word
        self.registration.last_why = encodable(why)
        self.write()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self.news):
            silent = time.monotonic() - self.last_at
            if self.is_due(silent, self._has_news()):
                # The loop finds out by itself when it next commits (`fresh`); a beat only shows.
                with contextlib.suppress(OSError):
                    self.write()
            with contextlib.suppress(OSError):
                self._look()

    def is_due(self, silent: float, has_news: bool) -> bool:
        """Tell whether to beat, so many seconds after the last time."""
        if has_news and silent > self._patience - self.news / 2:
            return True
        return silent > self.interval - self.news

    def _has_news(self) -> bool:
        state, _, now = self._report()
        told = self.registration.counters
        was = self.registration.state, told.documents, told.failed, told.discarded
        return (state, now.documents, now.failed, now.discarded) != was

    def _rate(self, documents: int) -> float:
        now = time.monotonic()
        self._history = [one for one in self._history if one[0] > now - _RATE_WINDOW]
        self._history.append((now, documents))
        first_at, first = self._history[0]
        return (documents - first) / (now - first_at) if now > first_at else 0.0
