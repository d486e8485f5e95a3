"""What signals ask of the watchdog. They only record; the loop acts.

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

from queuedriver.driving import signals

_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
# USR1 asks others to open their logs anew; ours are opened for each line.
_WAKING = (signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)


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
