"""The socket between a watchdog and its helper: a `Line` at either end, and the helper's side.

Without a watchdog there is nothing to do, so a helper that finds that it has hung up ends, at once
and wherever it is: each step of the queues' protocol may be cut short by the death of whoever takes
it.
"""

import os
import select
import time

from watchdogd.helper_messages import Brief, Errands, Message, to_line

# Seconds of silence after which it is time to say that we live, amid work.
ALIVE_EVERY = 0.5
# A line may be as long as a large pipeline; more than this is not ours.
MAX_LINE = 4 << 20
# What was noted once is not noted again, unless it is forgotten among so many.
_MOST_NOTED = 100
# More than a socket has at a time, in bytes.
_CHUNK = 1 << 18


class Line:
    """One end of the socket. It never waits."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._unsent = b""
        # The beginning of a line that is still to come whole.
        self._begun = b""
        os.set_blocking(fd, False)

    def send(self, said: Message | Brief | Errands) -> bool:
        """Send what the socket has room for, and the rest with a later `flush`."""
        self._unsent += to_line(said)
        return self.flush()

    def flush(self) -> bool:
        """Send what is left; return whether that is all."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self.fd, self._unsent) :]
        except BlockingIOError:
            return False
        except ConnectionError:
            # The other side has ended, which is heard.
            self._unsent = b""
        return True

    def receive(self) -> list[bytes] | None:
        """Return the lines that have come whole; None when the other side has hung up. One that is
        too long is no line of ours, and forgotten."""
        try:
            piece = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not piece:
            return None
        *lines, self._begun = (self._begun + piece).split(b"\n")
        if len(self._begun) > MAX_LINE:
            self._begun = b""
        return lines

    def ready(self, patience: float = 0.0, events: int = select.POLLIN) -> int:
        """Wait for any of these events for so many seconds; return those that there are."""
        poll = select.poll()
        poll.register(self.fd, events)
        return sum(seen for _, seen in poll.poll(patience * 1000))

    def close(self) -> None:
        """Hang up."""
        os.close(self.fd)


class Connection:
    """The helper's side: lines in, messages out."""

    def __init__(self, fd: int) -> None:
        self.said_at = 0.0
        self._line = Line(fd)
        self._heard: list[bytes] = []
        self._noted: set[str] = set()
        self._saying = False

    def say(self, message: Message) -> None:
        """Say something; wait while the watchdog does not read: then nobody needs us to go on."""
        # A signal that interrupts this must not say its own in the middle of it.
        self._saying = True
        is_sent = self._line.send(message)
        while not is_sent:
            self._line.ready(ALIVE_EVERY, select.POLLOUT)
            is_sent = self._line.flush()
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
        if self._line.ready() & select.POLLHUP:
            os._exit(0)
        if not self._saying and time.monotonic() - self.said_at >= silence:
            self.say(Message())

    def hear(self, timeout: float) -> list[bytes]:
        """Return the lines that have come, or that come within so many seconds."""
        heard: list[bytes] | None
        heard, self._heard = self._heard, []
        if not heard and self._line.ready(max(0.0, timeout)):
            heard = self._line.receive()
            if heard is None:
                os._exit(0)
        return heard

    def hear_first(self) -> bytes:
        """Return the first line, however long it takes; what comes with it is heard next."""
        while not (heard := self.hear(ALIVE_EVERY)):
            pass
        first, *self._heard = heard
        return first
