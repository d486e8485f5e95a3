"""What a driver says to a terminal while it runs: how far it is, and that it was asked to leave."""

import threading
import time
from collections.abc import Sequence
from typing import Self

from queuedriver.claims.liveness import Observer
from queuedriver.cli import say
from queuedriver.cli.render import escape_name, redraw
from queuedriver.driving.driver import Driver, Progress
from queuedriver.driving.limits import QUIT_FILE
from queuedriver.errors import QueueError
from queuedriver.format.units import format_count, format_duration, format_rate
from queuedriver.operating.queue import Queue
from queuedriver.operating.queue_view import overview

# How soon a Ctrl-C is answered.
_TURN = 0.2
# How often what is left is counted: at most so many seconds apart, and a twentieth of the time.
_COUNT_EVERY = 1.0
_COUNT_SHARE = 20


class Narrator:
    """Tells of a driver on stderr, from a thread of its own. Only for a terminal."""

    def __init__(self, driver: Driver, inputs: Sequence[str]) -> None:
        self._driver = driver
        self._inputs = inputs
        self._observer = Observer()
        self._count_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="narrator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        # It may be counting a million names, for which nobody waits any more.
        self._thread.join(_TURN)
        redraw()

    def _run(self) -> None:
        answered = False
        while not self._stop.wait(_TURN):
            progress = self._driver.progress()
            if progress.leaving:
                if progress.at_hand and not answered:
                    what = format_count(progress.at_hand, "document")
                    which = "it" if progress.at_hand == 1 else "them"
                    again = "twice" if progress.leaving == QUIT_FILE else "again"
                    redraw()
                    say(f"finishing {what}; Ctrl-C {again} to release {which} now")
                answered = True
            elif self._driver.options.drain and time.monotonic() >= self._count_at:
                redraw(self._line(progress))

    def _line(self, progress: Progress) -> str:
        words = [f"{progress.counters.documents:,} done"]
        if progress.counters.discarded:
            words.append(f"{progress.counters.discarded:,} discarded")
        words += self._left()
        if progress.why and progress.state != "busy":
            words.append(escape_name(progress.why))
        return ", ".join(words)

    def _left(self) -> list[str]:
        """Return how many documents are left in the inputs, whoever takes them, and when they will
        be done at the pace of all drivers, as `status` knows it."""
        started = time.monotonic()
        left, rates = 0, dict[str, float]()
        try:
            for path in self._inputs:
                with Queue.open(path) as queue:
                    seen = overview(queue, self._observer)
                left += seen.counts.unfinished
                # Who takes from several of them is one.
                rates |= {one.id: one.rate for one in seen.living}
        except (OSError, QueueError):
            # The driver says what is wrong with its queues.
            return []
        now = time.monotonic()
        self._count_at = now + max(_COUNT_EVERY, (now - started) * _COUNT_SHARE)
        words = [f"{left:,} left"]
        if pace := sum(rates.values()):
            words.append(f"{format_rate(pace)}, ETA {format_duration(left / pace)}")
        return words
