"""A thread that writes to stderr what a loop tells that must not wait: a watchdog's, a broker's.

A terminal may stand still (Ctrl-S, a pager, a connection that hangs): then it takes nothing, and
only the thread waits for it. What is too much by then is left out, and counted.
"""

import io
import os
import queue
import sys
import threading
from contextlib import suppress
from typing import Self

from queuedriver.cli.program import line_of
from queuedriver.format.units import format_count

# Messages that wait for a terminal: more than a person reads, and less than a megabyte.
_MOST = 1000
# How long the last words wait for a terminal that stands still, in seconds.
_PATIENCE = 5.0


class StderrThread:
    """Texts on their way to stderr. Nobody waits for them, but for a moment at the end."""

    def __init__(self, fd: int | None = None, elsewhere: str = "") -> None:
        """`elsewhere` says where people find what was left out, if anywhere."""
        self._fd = fd
        if fd is None and sys.stderr is not None:
            # What stands in for stderr in a test has no descriptor, and takes everything.
            with suppress(io.UnsupportedOperation):
                self._fd = sys.stderr.fileno()
        self._elsewhere = elsewhere
        self._texts: queue.Queue[str] = queue.Queue(_MOST)
        # How many were left out, and of how many of these that was said: each is counted by one
        # thread alone.
        self._left_out = self._confessed = 0
        self._is_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish(_PATIENCE)

    @property
    def is_through(self) -> bool:
        """Return whether everything is written."""
        return not self._texts.unfinished_tasks

    def say(self, message: str) -> None:
        """Have one message written."""
        self.put(line_of(message))

    def put(self, text: str, *, counts: bool = True) -> None:
        """Have a text written, or leave it out; it is counted then, if it is worth that."""
        if not self._is_begun:
            # Late: who says nothing has none.
            self._is_begun = True
            threading.Thread(target=self._write, name="stderr", daemon=True).start()
        try:
            self._texts.put_nowait(text)
        except queue.Full:
            self._left_out += counts

    def finish(self, patience: float) -> bool:
        """Wait until everything is written, but for so many seconds at most; return whether it
        is."""
        with self._texts.all_tasks_done:
            return self._texts.all_tasks_done.wait_for(lambda: self.is_through, patience)

    def _write(self) -> None:
        while True:
            self._write_all(self._texts.get())
            if self._texts.empty() and (more := self._left_out - self._confessed):
                self._confessed += more
                words = f"{format_count(more, 'message')} left out, as nobody took them"
                self._write_all(line_of(words + self._elsewhere))
            self._texts.task_done()

    def _write_all(self, text: str) -> None:
        """Write a text past Python's buffer: whose lock is held while the terminal stands still
        cannot be flushed at the end of the process."""
        # A terminal that was closed is no reason to end.
        with suppress(OSError, ValueError):
            if self._fd is None:
                print(text, end="", file=sys.stderr, flush=True)
                return
            data = text.encode(sys.stderr.encoding, "backslashreplace")
            while data:
                data = data[os.write(self._fd, data) :]
