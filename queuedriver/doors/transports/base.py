"""What a transport is to a loop: frames come, frames go, and peers come and go. None blocks."""

import math
from collections.abc import Iterator
from typing import Protocol

import msgspec

from queuedriver.doors.words import Recent

# Frames of one message: no protocol here needs more, and ZeroMQ itself has no limit.
MAX_FRAMES = 64
# Bytes of one message, unless --max-message says otherwise.
MAX_MESSAGE = 64_000_000
# Bytes more, for what names, lengths and hops add to a payload.
AROUND = 4096
# Seconds for which nobody is told again who was refused: whoever is comes again at once.
_TOLD_EVERY = 60.0
_MOST_TOLD = 100


class Joined(msgspec.Struct, frozen=True):
    """A connection was made."""

    peer: bytes


class Message(msgspec.Struct, frozen=True, gc=False):
    """The frames of one message; of a stream, one chunk of bytes."""

    peer: bytes
    frames: list[bytes]


class Gone(msgspec.Struct, frozen=True):
    """A connection ended."""

    peer: bytes
    why: str


class Refused(msgspec.Struct, frozen=True):
    """Somebody who wanted to connect was not let in."""

    why: str
    peer: bytes = b""


Arrival = Joined | Message | Gone | Refused


class Refusals:
    """Tells whom a transport did not let in, for people: each reason once in a while."""

    def __init__(self) -> None:
        self._told: Recent[str, float] = Recent(_MOST_TOLD)

    def news(self, why: str, now: float) -> Iterator[Refused]:
        """Yield a refusal, unless it was told just now."""
        if now - self._told.get(why, -math.inf) >= _TOLD_EVERY:
            self._told[why] = now
            yield Refused(why)


class Transport(Protocol):
    """Sockets, as a loop sees them. What a kind of them has no need of does nothing."""

    def arrivals(self) -> Iterator[Arrival]:
        """Yield what has come since the last time: a bounded part, so that others get a turn."""

    def pending(self) -> bool:
        """Tell whether there is more to be had at once: a descriptor may not say so again."""

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        """Hand a message over; return False where nobody goes by this name any more."""

    def drop(self, peer: bytes) -> None:
        """End a connection, where the transport has them, once what was sent has left."""
        return

    def fds(self) -> list[int]:
        """Return the descriptors that become readable when something comes."""

    def missing(self) -> str:
        """Return why nobody is at the other end, for people, of a transport that has only one
        peer; empty when it is there."""
        return ""

    def next_tick_at(self) -> float | None:
        """Return when `tick` is worth calling."""
        return None

    def tick(self, now: float) -> None:
        """Do what is due, as to try again what could not be sent."""
        return

    def close(self) -> None:
        """End all connections; what was sent has a moment to leave."""


class Listening(Transport, Protocol):
    """A transport that peers connect to."""

    # Where, with the ports that were chosen for it.
    endpoints: list[str]
