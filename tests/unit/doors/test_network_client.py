"""A client brings all that it was given, whatever room its socket has."""

from collections import deque
from collections.abc import Iterator, Sequence

import pytest

from queuedriver.doors.client import Client, Reply
from queuedriver.doors.transports.base import Arrival
from queuedriver.doors.words import Send
from queuedriver.errors import Unreachable

Frames = tuple[bytes, ...]


class Exec:
    """A session of requests that nobody waits for."""

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Sequence[Send | Reply]]:
        id = docid.encode()
        return id, [Send(b"", (payload,)), Reply(id, ())]

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Sequence[Send | Reply]:
        return []

    def tick(self, now: float, wall: float) -> Sequence[Send | Reply]:
        return []

    def next_tick_at(self) -> float | None:
        return None


class Narrow:
    """A transport whose socket takes one message at each tick, and that keeps but a few."""

    def __init__(self, stuck: bool = False) -> None:
        self.sent: list[Frames] = []
        self._kept: deque[Frames] = deque()
        self._stuck = stuck

    def arrivals(self) -> Iterator[Arrival]:
        return iter(())

    def pending(self) -> bool:
        return False

    def send(self, peer: bytes, frames: Frames) -> bool:
        self._kept.append(frames)
        if len(self._kept) > 5:
            self._kept.clear()
        return bool(self._kept)

    def drop(self, peer: bytes) -> None:
        self._kept.clear()

    def fds(self) -> list[int]:
        return []

    def next_tick_at(self) -> float | None:
        return 0.0 if self._kept else None

    def tick(self, now: float) -> None:
        if not self._stuck:
            self.sent.append(self._kept.popleft())

    def close(self) -> None:
        self._kept.clear()


def brought(transport: Narrow, timeout: float) -> list[str]:
    client = Client(Exec(), transport, 10, timeout, print)
    documents = [(f"d{number:02}", b"%d" % number) for number in range(40)]
    return [name for name, _ in client.run(documents)]


def test_what_a_full_socket_did_not_take_is_sent_before_the_client_ends() -> None:
    transport = Narrow()
    assert brought(transport, 60.0) == [f"d{number:02}" for number in range(40)]
    assert transport.sent == [(b"%d" % number,) for number in range(40)]


def test_socket_that_takes_nothing_for_too_long_is_said() -> None:
    with pytest.raises(Unreachable):
        brought(Narrow(stuck=True), 0.05)
