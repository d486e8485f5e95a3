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


class Signals(signals.Signals):
    """The signals of this process, between `install` and `restore`."""

    def __init__(self) -> None:
        super().__init__()
        self.reload = False

    def install(self) -> None:
        self.take(
            {
                signal.SIGTERM: self._leave,
                signal.SIGINT: self._leave,
                signal.SIGQUIT: self._hurry,
                signal.SIGHUP: self._read_again,
                signal.SIGCHLD: self._note,
                # Asks others to open their logs anew; ours are opened for each line.
                signal.SIGUSR1: self._note,
            }
        )
        # Of the watchdog itself, for whoever wants to know what it waits for.
        faulthandler.register(signal.SIGUSR2, all_threads=True)

    def restore(self, *, last: bool = False) -> None:
        faulthandler.unregister(signal.SIGUSR2)
        super().restore(last=last)
        self.close()

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self.ask(time.monotonic())

    def _hurry(self, number: int, frame: FrameType | None) -> None:
        self.ask(time.monotonic())
        self.hurried = True

    def _read_again(self, number: int, frame: FrameType | None) -> None:
        self.reload = True

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Do nothing: that it came wakes the loop."""
