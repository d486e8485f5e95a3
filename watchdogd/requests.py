"""What is asked of a watchdog: by signals, and by files, of which each request is met once.

Signals only record; the loop acts:

TERM, INT    leave: every driver finishes the document at hand; again: at once
QUIT         leave at once
HUP          read the pipeline's file again
CHLD         a child has ended
USR1         nothing; it would end a process that does not expect it
USR2         write the stacks of the watchdog itself to stderr
"""

import faulthandler
import signal
import time
from types import FrameType
from typing import Literal

from queuedriver.driving import signals
from watchdogd.helper_messages import Controls, Read, Request

_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
# USR1 asks others to open their logs anew; ours are opened for each line.
_WAKING = (signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)
# How many served requests are told of at least, each to whoever waits for it.
_MOST_SERVED = 10


class Signals(signals.Signals):
    """The signals of this process, between `install` and `restore`."""

    def __init__(self) -> None:
        super().__init__()
        self.reload = False

    def install(self) -> None:
        self.take(dict.fromkeys((*_ASKING, *_WAKING), self._record))
        # Of the watchdog itself, for whoever wants to know what it waits for.
        faulthandler.register(signal.SIGUSR2, all_threads=True)

    def restore(self, *, last: bool = False) -> None:
        faulthandler.unregister(signal.SIGUSR2)
        super().restore(last=last)
        self.close()

    def _record(self, number: int, frame: FrameType | None) -> None:
        """Record what this signal asks for; that it came wakes the loop."""
        if number in _ASKING:
            self.ask(time.monotonic())
        self.hurried |= number == signal.SIGQUIT
        self.reload |= number == signal.SIGHUP


class Requests:
    """Tells which requests are new from look to look at the control files."""

    def __init__(self) -> None:
        # How to leave; empty while nothing asks for that.
        self.quit: Literal["", "drain", "now"] = ""
        # When the QUIT was written that the first look found: our start is the later wish.
        self._outdated: int | None = None
        # None before the first look.
        self._known: set[Request] | None = None

    def news(self, controls: Controls) -> list[Request]:
        """Return the requests that the look before did not find, the oldest first; of the first
        look all.

        Its file was read before that look, and may have changed since; somebody who saw that it is
        alive may wait for the answer. Of its drivers only those are there that it has adopted, and
        what they were told says which restart they know of.
        """
        before, self._known = self._known, set(controls.requests)
        if before is None and controls.quit:
            self._outdated = controls.quit_at
        self.quit = "" if controls.quit_at == self._outdated else controls.quit
        # Those that have been removed are forgotten.
        return sorted(self._known - (before or set()), key=lambda one: one.serial)


class Reload:
    """The pipeline's file, read again: what came of it, and who waits for that."""

    def __init__(self) -> None:
        # Why it was not taken when it was last read; empty when it was.
        self.error = ""
        # What people should know of it on this host.
        self.notes: tuple[str, ...] = ()
        # The serials of the latest requests that were answered, and of those that are not yet.
        self.served: tuple[str, ...] = ()
        self._waiting: list[str] = []

    def ask(self, *serials: str) -> None:
        """Take note of requests that one reading answers; one that a signal made has no serial."""
        self._waiting += serials

    def answer(self, read: Read) -> None:
        """Take note of what came of the last reading."""
        self.error = read.error
        if read.pipeline is not None:
            self.notes = read.notes
        # However many are answered together: each of them may be waited for.
        most = max(_MOST_SERVED, len(self._waiting))
        self.served = (*self.served, *self._waiting)[-most:]
        self._waiting.clear()
