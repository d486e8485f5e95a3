"""What signals ask of the watchdog. They only record; the loop acts.

TERM, INT    leave: every driver finishes the document at hand; again: at once
QUIT         leave at once
HUP          read the pipeline's file again
CHLD         a child has ended
USR1         nothing; it would end a process that does not expect it
USR2         write the stacks of the watchdog itself to stderr
"""

import faulthandler
import os
import signal
import time
from types import FrameType

# A terminal and a parent may both pass one Ctrl-C on; that is one wish, not two.
_SAME_WISH = 0.1


class Signals:
    """The signals of this process, between `install` and `restore`."""

    def __init__(self) -> None:
        # When it was first asked to leave, on the monotonic clock; 0: never.
        self.leaving_at = 0.0
        self.hurried = False
        self.reload = False
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[int, object] = {}
        self._wakeup_before = -1

    @property
    def fd(self) -> int:
        """Readable when one came; `clear` empties it."""
        return self._read_fd

    def install(self) -> None:
        self._wakeup_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number, handler in (
            (signal.SIGTERM, self._leave),
            (signal.SIGINT, self._leave),
            (signal.SIGQUIT, self._hurry),
            (signal.SIGHUP, self._read_again),
            (signal.SIGCHLD, self._wake),
            # Asks others to open their logs anew; ours are opened for each line.
            (signal.SIGUSR1, self._wake),
        ):
            self._before[number] = signal.signal(number, handler)
        # Of the watchdog itself, for whoever wants to know what it waits for.
        faulthandler.register(signal.SIGUSR2, all_threads=True)

    def restore(self) -> None:
        faulthandler.unregister(signal.SIGUSR2)
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
        self._before.clear()
        os.close(self._read_fd)
        os.close(self._write_fd)

    def clear(self) -> None:
        try:
            while os.read(self._read_fd, 512):
                pass
        except BlockingIOError:
            pass

    def _leave(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.leaving_at:
            self.leaving_at = now
        elif now - self.leaving_at >= _SAME_WISH:
            self.hurried = True

    def _hurry(self, number: int, frame: FrameType | None) -> None:
        self.leaving_at = self.leaving_at or time.monotonic()
        self.hurried = True

    def _read_again(self, number: int, frame: FrameType | None) -> None:
        self.reload = True

    def _wake(self, number: int, frame: FrameType | None) -> None:
        """That it came is all there is to it."""
