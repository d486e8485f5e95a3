"""A client brings all that it was given, whatever room its socket has."""

import resource
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.cli.client import bring, collect
from queuedriver.doors.roundrobin import client as roundrobin
from queuedriver.doors.roundrobin.wire import EXEC, PING, PONG, decode, encode
from queuedriver.doors.roundrobin.wire import Message as Wire
from queuedriver.doors.transports.base import Arrival, Message
from queuedriver.doors.words import Ended, Result
from queuedriver.errors import Unreachable
from tests.waiting import contents

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
    documents = ((f"d{number:02}", b"%d" % number) for number in range(40))
    return list(bring(documents, session, transport, 10, print))


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


class Dies(Narrow):
    """Its other end answers the first ping, and is gone with that; all other time is up then."""

    def __init__(self, session: roundrobin.Client) -> None:
        super().__init__()
        self._session = session

    def arrivals(self) -> Iterator[Arrival]:
        for answer in super().arrivals():
            self._missing = "nobody answers at tcp://h:1"
            for one in self._session.under_way.values():
                one.give_up_at = 0.0
            yield answer

    def next_tick_at(self) -> float | None:
        return None if self._missing else super().next_tick_at()


def test_what_was_answered_is_told_though_the_broker_is_gone_by_then() -> None:
    session = roundrobin.Client(60.0, tracked=False)
    documents = [("a", b""), ("b", b"")]
    told: list[tuple[str, Ended]] = []
    with pytest.raises(Unreachable, match="nobody answers"):
        told.extend(bring(documents, session, Dies(session), 2, print))
    assert [name for name, ended in told if not ended.why] == ["a"]


def answer(*results: Result) -> Ended:
    return Ended(b"id", results)


def test_answer_that_cannot_be_written_leaves_nothing_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [(name, answer(Result(data))) for name, data in (("a", b"x" * 5000), ("b", b"y"))]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        assert collect(iter(ends), str(tmp_path / "to")) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    path = str(tmp_path / "to/a")
    assert f"'a': not all of its answer is kept: {path!r} cannot be written: File too large" in (
        capsys.readouterr().err
    )
    assert contents(tmp_path / "to") == {"b": b"y"}
    assert len(list((tmp_path / "to").iterdir())) == 1


@pytest.mark.parametrize("name", ["../other", ".hidden", "a/b"])
def test_answer_whose_name_is_none_of_a_file_is_told_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    ends = [("a", answer(Result(b"evil", name))), ("b", answer(Result(b"y")))]
    assert collect(iter(ends), str(tmp_path / "to")) == 1
    assert f"'a': not all of its answer is kept: it names a file {name!r}" in (
        capsys.readouterr().err
    )
    assert contents(tmp_path / "to") == {"b": b"y"}
