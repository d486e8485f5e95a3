"""A client brings all that it was given, whatever room its socket has."""

from collections import deque
from collections.abc import Iterator

import pytest

from queuedriver.doors.client import Client
from queuedriver.doors.roundrobin import client as roundrobin
from queuedriver.doors.roundrobin.frames import EXEC, PING, PONG, decode, encode
from queuedriver.doors.roundrobin.frames import Message as Wire
from queuedriver.doors.transports.base import Arrival, Message
from queuedriver.doors.words import Ended
from queuedriver.errors import Unreachable

Frames = tuple[bytes, ...]


class Narrow:
    """A transport whose socket takes one message at each tick, and that keeps but a few. Whoever is
    at its other end answers pings."""

    def __init__(self, missing: str = "") -> None:
        self.sent: list[Wire] = []
        self._missing = missing
        self._kept: deque[Frames] = deque()
        self._answers: list[Arrival] = []

    def arrivals(self) -> Iterator[Arrival]:
        answers, self._answers = self._answers, []
        return iter(answers)

    def pending(self) -> bool:
        return bool(self._answers)

    def send(self, peer: bytes, frames: Frames) -> bool:
        if len(self._kept) == 25:
            return False
        self._kept.append(frames)
        return True

    def drop(self, peer: bytes) -> None:
        self._kept.clear()

    def fds(self) -> list[int]:
        return []

    def missing(self) -> str:
        return self._missing

    def next_tick_at(self) -> float | None:
        return 0.0 if self._kept and not self._missing else None

    def tick(self, now: float) -> None:
        message = decode(self._kept.popleft())
        self.sent.append(message)
        if message.command == PING:
            pong = encode(Wire(PONG, message.id))
            self._answers.append(Message(b"", [*pong]))

    def close(self) -> None:
        self._kept.clear()


def brought(transport: Narrow, timeout: float = 60.0) -> list[tuple[str, Ended]]:
    session = roundrobin.Client(timeout, tracked=False)
    client = Client(session, transport, 10, print)
    return list(client.run((f"d{number:02}", b"%d" % number) for number in range(40)))


def test_what_nobody_waits_for_has_all_arrived_before_the_client_ends() -> None:
    transport = Narrow()
    ended = brought(transport)
    assert sorted(name for name, _ in ended) == [f"d{number:02}" for number in range(40)]
    assert not any(one.why for _, one in ended)
    arrived = [message.args[-1] for message in transport.sent if message.command == EXEC]
    assert arrived == [b"%d" % number for number in range(40)]


def test_broker_that_is_not_there_is_said() -> None:
    with pytest.raises(Unreachable, match="nobody answers"):
        brought(Narrow("nobody answers at tcp://h:1"), 0.05)
