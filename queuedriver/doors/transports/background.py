"""A call that may take long, as to look a name up, in a thread of its own."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """One call. Once it has ended `fd`, an eventfd of its owner's, is readable."""

    def __init__(
        self, call: Callable[[], T], fd: int, discard: Callable[[T], None] = lambda found: None
    ) -> None:
        self._call = call
        self._fd = fd
        # What becomes of what nobody waits for any more.
        self._discard = discard
        self._lock = threading.Lock()
        self._abandoned = False
        self._found: list[T] = []
        self._error: OSError | None = None
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def ended(self) -> bool:
        """Return whether it has ended."""
        return bool(self._found) or self._error is not None

    def take(self) -> T:
        """Return what it has found; OSError where it has failed."""
        os.eventfd_read(self._fd)
        if self._error is not None:
            raise self._error
        return self._found.pop()

    def abandon(self) -> None:
        """Want its result no more. Its descriptor may be closed then."""
        with self._lock:
            self._abandoned = True
            while self._found:
                self._discard(self._found.pop())

    def _run(self) -> None:
        # Signals are for the main thread, which they wake.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        found, error = [], None
        try:
            found.append(self._call())
        except OSError as failed:
            error = failed
        except UnicodeError as failed:
            # A name of which no question can be made.
            error = OSError(str(failed))
        with self._lock:
            if self._abandoned:
                for one in found:
                    self._discard(one)
                return
            # Announced first: who sees that it has ended takes it, and may close the descriptor.
            os.eventfd_write(self._fd, 1)
            self._found, self._error = found, error
