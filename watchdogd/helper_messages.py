"""What the watchdog and its helper tell each other, one JSON object a line, both ways; and the
socket between them: a `Line` at either end.

    watchdog → helper    first a Brief, then Errands
    helper → watchdog    Messages; an empty one: that it lives

Either side leaves out what it has nothing to say about, and ignores what it does not know.
"""

import os
import select
import time
from typing import Literal, TypeVar

import msgspec

from queuedriver.claims.counts import Counts
from queuedriver.format.records import decode
from watchdogd.pipeline.model import Pipeline

# Seconds of silence after which it is time to say that we live, amid work.
ALIVE_EVERY = 0.5
# A line may be as long as a large pipeline; more than this is not ours.
MAX_LINE = 4 << 20
# What was noted once is not noted again, unless it is forgotten among so many.
_MOST_NOTED = 100
# More than a socket has at a time, in bytes.
_CHUNK = 1 << 18


class QueueSeen(Counts, kw_only=True, omit_defaults=True):
    """One queue at the last look: how many items are in each state, and its control files."""

    done: bool = False
    paused: bool = False
    quit: bool = False
    # Why its stage has stopped itself; empty while it has not.
    tripped: str = ""
    # Seen twice without any item, and unchanged between; says nothing of `done`.
    drained: bool = False
    # Closed, and with items though it had been drained: somebody copied them in.
    late: bool = False


class Request(msgspec.Struct, frozen=True):
    """A file that asks for something once. `target`: a stage or a driver's short name, or empty."""

    kind: Literal["restart", "reload"]
    target: str
    serial: str


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """The control files in `.watchdogd/`, as far as they are meant for this host."""

    paused: bool = False
    quit: Literal["", "drain", "now"] = ""
    # When that QUIT was written, by the clock of its file system, in nanoseconds. Not its inode:
    # some file systems give another one while the file is as it was.
    quit_at: int = 0
    # Drivers that a stage is to have; None: as the pipeline file says.
    scale: dict[str, int | None] = {}
    # Each until it expires. Whoever serves them remembers which it has served: whole, for two may
    # have one serial.
    requests: tuple[Request, ...] = ()
    # What could not be understood, in words for people.
    notes: tuple[str, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and processor time of a driver with all that it has started."""

    # Of what it has started; its own its watchdog sees by itself. In bytes.
    memory: int = 0
    # Processor time of all together since they began, in seconds.
    cpu: float = 0.0


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One look at the queues; amid trouble it may have seen a part of them."""

    queues: dict[str, QueueSeen] = {}
    # None where they could not be read.
    controls: Controls | None = None
    # What the file system said; empty while all is well.
    trouble: str = ""
    # Of the drivers' processes, measured now and then.
    usage: dict[int, Usage] = {}


class Recovered(msgspec.Struct, frozen=True):
    """Leftovers of a queue that were recovered where there was no driver to do it."""

    queue: str
    # Claims that were finished or taken back.
    claims: int
    # The documents that were discarded by it.
    discarded: tuple[str, ...] = ()
    # Attempts that were charged: for which cause, and whether the document was discarded.
    failed: tuple[tuple[str, bool], ...] = ()


class Read(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pipeline as its file has it now, with what people should know of it on this host, or why
    it cannot be taken."""

    # As in the errand that asked for it.
    number: int = 0
    pipeline: Pipeline | None = None
    notes: tuple[str, ...] = ()
    error: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From the helper: any one of these, or none."""

    look: Look | None = None
    recovered: Recovered | None = None
    read: Read | None = None
    # Something odd that is nobody's fault, in words for people.
    note: str = ""
    # All that came before the farewell has been done, and seen.
    farewell: bool = False


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """To the helper, first: where to look, for whom."""

    pipeline: Pipeline
    host: str
    # The watchdog's own directory on this host: never below the root.
    local: str
    # Drivers that a stage has on this host, whatever the file says.
    drivers: dict[str, int] = {}
    # Queues that have been made or found: of these, what is missing may be a file system that went
    # away, and is not made again.
    made: tuple[str, ...] = ()
    # The watchdog's pid, without which the helper is not to live; 0: it need not care.
    parent: int = 0


class Errands(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To the helper: what else to do, all of it once."""

    # Queues that have claims, and no driver that would recover what dead ones left.
    recover: tuple[str, ...] = ()
    # Copy this host's report now, rather than with one of the next looks.
    report: bool = False
    # The processes of the drivers that there are now; None: those that there were.
    drivers: tuple[int, ...] | None = None
    # Read the pipeline's file again; answered with this number.
    read: int = 0
    # After a reload.
    pipeline: Pipeline | None = None
    # Look now, rather than at the next regular moment.
    look: bool = False
    # The last that is asked: to be answered with a farewell, after whatever is still on its way.
    farewell: bool = False


_Kind = TypeVar("_Kind")


def to_line(said: Message | Errands | Brief) -> bytes:
    """Encode what is said as one line."""
    return msgspec.json.encode(said) + b"\n"


def understood(line: bytes, kind: type[_Kind]) -> _Kind | None:
    """Decode what the other side says; return None when that is nothing of this kind."""
    try:
        return decode(line, kind)
    except msgspec.DecodeError:
        return None


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
    """The helper's side: lines in, messages out.

    Without a watchdog there is nothing to do, so a helper that finds that it has hung up ends, at
    once and wherever it is: each step of the queues' protocol may be cut short by the death of
    whoever takes it.
    """

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
