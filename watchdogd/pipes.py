"""The eyes' side of the two pipes to their watchdog. Without a watchdog there is nothing to do, so
whoever finds its end of a pipe closed ends the process, at once and wherever it is: each step of
the queues' protocol may be cut short by the death of whoever takes it."""

import os
import select
import time
from typing import NoReturn

from watchdogd.messages import MAX_LINE, Message, to_line

_STDIN, _STDOUT = 0, 1
# Seconds of silence after which it is time to say that we live.
ALIVE_EVERY = 0.5
_CHUNK = 1 << 16


class Pipes:
    """Lines in, messages out."""

    def __init__(self, stdin: int = _STDIN, stdout: int = _STDOUT) -> None:
        self.said_at = 0.0
        self._stdin = stdin
        self._stdout = stdout
        self._read = b""
        self._lines: list[bytes] = []
        self._saying = False
        self._poll = select.poll()
        self._poll.register(stdin, select.POLLIN)

    def say(self, message: Message) -> None:
        """Blocks while the watchdog does not read: then nobody needs us to go on."""
        data = memoryview(to_line(message))
        # A timer that interrupts this must not say its own in the middle of it.
        self._saying = True
        try:
            while data:
                data = data[os.write(self._stdout, data) :]
        except BrokenPipeError:
            _leave()
        finally:
            self._saying = False
        self.said_at = time.monotonic()

    def say_alive(self) -> None:
        """Amid work: if nothing was said for a while, and unless nobody is there to listen."""
        if self._saying or time.monotonic() - self.said_at < ALIVE_EVERY:
            return
        if any(seen & select.POLLHUP for _, seen in self._poll.poll(0)):
            _leave()
        self.say(Message(alive=True))

    def hear(self, timeout: float) -> list[bytes]:
        """The lines that have come, or that come within so many seconds."""
        if self._poll.poll(max(0.0, timeout) * 1000):
            chunk = os.read(self._stdin, _CHUNK)
            if not chunk:
                _leave()
            self._read += chunk
            if len(self._read) > MAX_LINE and b"\n" not in self._read:
                self._read = b""
        *lines, self._read = self._read.split(b"\n")
        return lines

    def hear_first(self) -> bytes:
        """The first line, however long it takes; what comes with it is heard next."""
        while True:
            lines = self.hear(ALIVE_EVERY)
            if lines:
                self._read = b"\n".join([*lines[1:], self._read])
                return lines[0]


def _leave() -> NoReturn:
    os._exit(0)
