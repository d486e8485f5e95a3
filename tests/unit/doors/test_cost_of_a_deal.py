"""A document costs so many Python calls in a broker, and no more.

Counts, not timings: they are the same on a machine that is busy with others. Session, dealing, disk
and transport together, over ZeroMQ's own code but for its sockets, which are lists here.
"""

import sys
from collections import deque
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from queuedriver.doors.broker import Broker
from queuedriver.doors.pingpong.broker import Broker as Pingpong
from queuedriver.doors.settings import Service
from queuedriver.doors.transports.zmq import Hub
from queuedriver.options import Options

DOCUMENTS, FIRST, LAST = 600, 100, 500
WORKERS = [b"w%d" % number for number in range(4)]
# Python calls for each document: the gate is 85.
CALLS = 60

zmq = pytest.importorskip("zmq")
MORE = int(zmq.SNDMORE)


class Frame:
    """A frame as ZeroMQ gives it."""

    def __init__(self, data: bytes, more: bool) -> None:
        self.bytes, self.more = data, more


class Socket:
    """A ROUTER whose peers answer each document at once."""

    def __init__(self) -> None:
        self.coming: deque[Frame] = deque()
        self.sending: list[bytes] = []
        self.done = 0

    def getsockopt(self, option: int) -> int:
        return int(bool(self.coming))

    def recv(self, flags: int, copy: bool = True) -> Frame:
        return self.coming.popleft()

    def send(self, frame: bytes, flags: int) -> None:
        self.sending.append(frame)
        if flags & MORE:
            return
        (peer, *said), self.sending = self.sending, []
        if said != [b"", b"PONG"]:
            self.done += 1
            self.say(peer, b"", b"result")

    def say(self, peer: bytes, *frames: bytes) -> None:
        last = len(frames)
        self.coming += [Frame(one, at < last) for at, one in enumerate((peer, *frames))]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted on Python 3.11")
def test_document_of_pingpong_costs_no_more_calls_than_were_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(DOCUMENTS):
        (tmp_path / "in" / f"doc{number:07}.ready").write_bytes(b"x" * 1024)
    socket = Socket()
    calls = {"all": 0}
    seen: dict[str, int] = {}

    def count(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and FIRST <= socket.done < LAST and code.co_filename != __file__:
            calls["all"] += 1
            key = f"{code.co_filename.rpartition('/')[2]}:{code.co_qualname}"
            seen[key] = seen.get(key, 0) + 1

    hub = Hub(["tcp://127.0.0.1:*"])

    def transport() -> Hub:
        monkeypatch.setattr(hub, "_socket", socket)
        monkeypatch.setattr(hub, "fds", list)
        monkeypatch.setattr(hub, "close", int)
        for worker in WORKERS:
            socket.say(worker, b"", b"READY")
        return hub

    broker = Broker(
        "pingpong",
        [Service("", tmp_path / "in", (tmp_path / "out",))],
        lambda id: Pingpong(),
        transport,
        options=Options(drain=True, poll=True),
    )
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert broker.run().word == "drained"
    finally:
        sys.setprofile(before)
        monkeypatch.undo()
        hub.close()
    assert len(list((tmp_path / "out").glob("*.ready"))) == DOCUMENTS
    each = {name: round(number / (LAST - FIRST), 2) for name, number in seen.items()}
    assert calls["all"] / (LAST - FIRST) <= CALLS, sorted(each.items(), key=lambda one: -one[1])
