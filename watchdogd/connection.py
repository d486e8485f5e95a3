"""The helper's end of the socket to its watchdog. Without a watchdog there is nothing to do, so
whoever finds that it has hung up ends the process, at once and wherever it is: each step of the
queues' protocol may be cut short by the death of whoever takes it."""

import os
import select
import time

from watchdogd.messages import Lines, Message, to_line

# Seconds of silence after which it is time to say that we live, amid work.
ALIVE_EVERY = 0.5
# What was noted once is not noted again, unless it is forgotten among so many.
_MOST_NOTED = 100
_CHUNK = 1 << 16


class Connection:
    """Lines in, messages out."""

    def __init__(self, fd: int) -> None:
        self.said_at = 0.0
        self._fd = fd
        self._lines = Lines()
        self._heard: list[bytes] = []
        self._noted: set[str] = set()
        self._saying = False
        self._poll = _poll(fd)

    def say(self, message: Message) -> None:
        """Say something; wait while the watchdog does not read: then nobody needs us to go on."""
        data = memoryview(to_line(message))
        # A signal that interrupts this must not say its own in the middle of it.
        self._saying = True
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except ConnectionError:
            os._exit(0)
        finally:
            self._saying = False
        self.said_at = time.monotonic()

    def note(self, why: str) -> None:
        """Say something odd, once."""
        if why not in self._noted:
            if len(self._noted) >= _MOST_NOTED:
                self._noted.clear()
            self._noted.add(why)
            self.say(Message(note=why))

    def interrupt(self, silence: float = ALIVE_EVERY) -> None:
        """Say, amid work, that we live, if nothing was said for so long; or end, if nobody is there
        to listen."""
        # Another than the one that may be interrupted.
        if any(seen & select.POLLHUP for _, seen in _poll(self._fd).poll(0)):
            os._exit(0)
        if not self._saying and time.monotonic() - self.said_at >= silence:
            self.say(Message())

    def hear(self, timeout: float) -> list[bytes]:
        """Return the lines that have come, or that come within so many seconds."""
        heard, self._heard = self._heard, []
        if not heard and self._poll.poll(max(0.0, timeout) * 1000):
            try:
                piece = os.read(self._fd, _CHUNK)
            except ConnectionError:
                piece = b""
            if not piece:
                os._exit(0)
            heard = self._lines.split(piece)
        return heard

    def hear_first(self) -> bytes:
        """Return the first line, however long it takes; what comes with it is heard next."""
        while not (heard := self.hear(ALIVE_EVERY)):
            pass
        first, *self._heard = heard
        return first


def _poll(fd: int) -> select.poll:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return poll
