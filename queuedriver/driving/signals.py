"""What signals ask of a process. They only record, and wake whoever polls `wake_fd`.

A signal that comes twice asks for it at once. A terminal and a parent may both pass one Ctrl-C on,
though, and that is one wish.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType

# Within so many seconds a second signal is the same wish.
_SAME_WISH = 0.1
# What a terminal sends to a process in its background that reads or writes it: it would stand still
# for ever, and with it what it has in hand. Ignored, a read fails and a write gets through.
_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
# Which signals ask a process to leave.
ASKING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP))

Handler = Callable[[int, FrameType | None], object]


class Signals:
    """The signals that one process takes over, between `take` and `restore`."""

    def __init__(self) -> None:
        # Since when it is to leave, on the monotonic clock; None while nobody wishes that. A signal
        # may say so (then `asked_at` says when), or something else.
        self.leaving_at: float | None = None
        self.asked_at: float | None = None
        # Whether at once.
        self.hurried = False
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[int, object] = {}
        self._wakeup_before = -1
        # Held while the handlers change hands, by threads that wish something: never by a handler.
        self._changing = threading.Lock()

    @property
    def wake_fd(self) -> int:
        """Return what is readable when something was recorded; `clear` empties it."""
        return self._read_fd

    def take(self, handlers: Mapping[int, Handler]) -> None:
        """Take the signals over; main thread only."""
        self._wakeup_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number, handler in handlers.items():
            self._before[number] = signal.signal(number, handler)
        for number in _TERMINAL:
            self._before[number] = signal.signal(number, signal.SIG_IGN)

    def restore(self, *, last: bool = False) -> None:
        """Give the signals back. `last`: the process is about to end; those that ask it to leave
        are ignored from now on, and change no exit code."""
        if last:
            asking = dict.fromkeys(self._before.keys() & ASKING, signal.SIG_IGN)
            self._before |= asking
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
        self._before.clear()

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)
        # Whoever wakes us yet must not write into what has got that number meanwhile.
        self._read_fd = self._write_fd = -1

    def clear(self) -> None:
        try:
            while os.read(self._read_fd, 512):
                pass
        except BlockingIOError:
            pass

    def wake(self) -> None:
        """Wake whoever polls, as a signal does."""
        try:
            os.write(self._write_fd, b"\0")
        except BlockingIOError:
            # Full: it is readable.
            pass

    def ask(self, now: float) -> bool:
        """Record that a signal asks to leave; return whether it is the second: at once, then."""
        if self.leaving_at is None:
            self.leaving_at = now
        if self.asked_at is None:
            self.asked_at = now
            return False
        if now - self.asked_at < _SAME_WISH:
            return False
        self.hurried = True
        return True
