"""A thread that writes to stderr what the watchdog tells.

A terminal may stand still (Ctrl-S, a pager, a connection that hangs): then it takes nothing, and
only the thread waits for it. What is too much by then is left out, and counted; events are in
`events.jsonl` in any case.
"""

import os
import queue
import sys
import threading
from contextlib import suppress

from queuedriver.cli.program import line_of
from queuedriver.format.units import format_count

_STDERR = 2
# Messages that wait for a terminal: more than a person reads, and less than a megabyte.
_MOST = 1000


class StderrThread:
    """Texts on their way to stderr. Nobody waits for them, but for a moment at the end."""

    def __init__(self, fd: int = _STDERR) -> None:
        self._fd = fd
        self._texts: queue.Queue[str] = queue.Queue(_MOST)
        # How many were left out, and of how many of these that was said: each is counted by one
        # thread alone.
        self._left_out = self._confessed = 0
        self._is_begun = False

    @property
    def is_through(self) -> bool:
        """Return whether everything is written."""
        return not self._texts.unfinished_tasks

    def put(self, text: str, *, counts: bool = True) -> None:
        """Have a text written, or leave it out; it is counted then, if it is worth that."""
        if not self._is_begun:
            # Late: a watchdog that says nothing has none.
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
            _write_all(self._fd, self._texts.get())
            if self._texts.empty() and (more := self._left_out - self._confessed):
                self._confessed += more
                what = format_count(more, "message")
                words = f"{what} left out, as nobody took them; see events.jsonl"
                _write_all(self._fd, line_of(words))
            self._texts.task_done()


def _write_all(fd: int, text: str) -> None:
    """Write a text past Python's buffer: whose lock is held while the terminal stands still cannot
    be flushed at the end of the process."""
    data = text.encode(sys.stderr.encoding, "backslashreplace")
    # A terminal that was closed is no reason to end.
    with suppress(OSError):
        while data:
            data = data[os.write(fd, data) :]
