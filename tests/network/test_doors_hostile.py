"""Peers that send what nobody may send: a broker drops it, and goes on dealing to honest workers.

`python -m tests.fuzz frames --runs 5000` says more to sessions.
"""

import contextlib
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from queuedriver.doors.conversation import Conversation
from queuedriver.doors.roundrobin.broker import RoundRobinBroker
from queuedriver.doors.roundrobin.worker import Worker
from queuedriver.doors.transports.base import AROUND, MAX_FRAMES, Gone, Message
from queuedriver.doors.transports.zmq import Hub, Spoke
from queuedriver.doors.words import Effect, Process, Result, Work
from queuedriver.doors.workspace import Workspace
from queuedriver.errors import RemoteProtocolError
from queuedriver.format import names
from tests.drivers import PATIENCE
from tests.fuzz import frames
from tests.network.doors import WITH_ZEROMQ, Doors, open_doors
from tests.waiting import until

# Frames that sessions are given here; the command gives them millions.
FRAMES = 300_000

# Names that lead elsewhere, or that nothing can have.
EVIL = ("../../x", "/tmp/queuedriver-evil", "a\0b", "n" * 300, "..", ".", "a/b", ".hidden")


def test_many_frames_end_in_effects_or_the_one_error() -> None:
    said, seed = frames.COUNTED["frames"], 0
    while frames.COUNTED["frames"] < said + FRAMES:
        seed += 1
        for script in frames.scripts(10, seed):
            frames.play(script)
    assert frames.COUNTED["refused"] > FRAMES // 100


# A real broker


@pytest.fixture(params=WITH_ZEROMQ)
def doors(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Doors]:
    with Doors(tmp_path, str(request.param)) as doors:
        yield doors


@contextlib.contextmanager
def dealer(endpoint: str, identity: bytes = b"") -> Iterator["zmq.Socket[bytes]"]:
    """Somebody's socket."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        # It sends no more than the other side takes in.
        dealer.setsockopt(zmq.SNDHWM, 10)
        dealer.setsockopt(zmq.SNDTIMEO, int(PATIENCE * 1000))
        if identity:
            dealer.setsockopt(zmq.IDENTITY, identity)
        dealer.connect(endpoint)
        yield dealer


def _say_nonsense(endpoint: str) -> None:
    with dealer(endpoint) as peer:
        for message in ([b"x"], [b"x", b""], [b"\xff"] * 7, [b"\0" * 10_000], [b"x"] * 65):
            for _ in range(20):
                peer.send_multipart(message)


def _send_200_001_frames(endpoint: str) -> None:
    with dealer(endpoint) as peer:
        peer.send_multipart([b"x"] * 200_001)
        # It has been read once this fits, too.
        for _ in range(30):
            peer.send(b"x")


def _send_a_frame_of_65_mb(endpoint: str) -> None:
    with dealer(endpoint) as peer, peer.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
        peer.send(bytes(65 << 20))
        assert monitor.poll(int(PATIENCE * 1000)), "whoever sends that is cut off"
        peer.disable_monitor()


def _go_by_others_names(endpoint: str) -> None:
    with dealer(endpoint, b"twin") as one, dealer(endpoint, b"twin") as other:
        for name in (endpoint.encode(), b"\x01" * 255, b"broker", b"../../x"):
            with dealer(endpoint, name) as peer:
                peer.send(b"x")
                one.send(b"x")
                other.send(b"x")


_GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL".ljust(64, b"\0")
_NO_ZMTP = (
    b"",
    b"\0",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    os.urandom(10_000),
    b"\xff" * 10_000,
    _GREETING[:20],
    _GREETING,
    _GREETING + b"\xff" * 1000,
    # A command, and a frame, of 2^63 bytes.
    _GREETING + b"\x06" + b"\x7f" + b"\xff" * 7,
    _GREETING + b"\x04\x19\5READY\x0bSocket-Type\0\0\0\x06DEALER" + b"\x02\x7f" + b"\xff" * 7,
)


def _speak_no_zmtp(endpoint: str) -> None:
    with contextlib.ExitStack() as at_end:
        for data in _NO_ZMTP * 5:
            _connect_and_say(at_end, endpoint, data)


def _connect_and_say(at_end: contextlib.ExitStack, endpoint: str, data: bytes) -> None:
    """Once, and then nothing any more."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    peer = at_end.enter_context(socket.create_connection((host, int(port))))
    with contextlib.suppress(ConnectionError):
        peer.sendall(data)


@pytest.mark.parametrize(
    "misdeed",
    [
        _say_nonsense,
        _send_200_001_frames,
        _send_a_frame_of_65_mb,
        _go_by_others_names,
        _speak_no_zmtp,
    ],
)
def test_broker_that_hears_nonsense_goes_on_dealing_to_honest_workers(
    doors: Doors, misdeed: Callable[[str], None]
) -> None:
    broker = doors.broker(retries=0)
    worker = doors.worker()
    doors.bring_many(20)
    doors.wait_for_outputs(1)
    misdeed(doors.endpoint)
    doors.bring_many(20)
    doors.wait_until_empty()
    assert worker.alive
    broker.signal()
    assert broker.ended() == 0
    assert doors.account() == []
    assert doors.discarded() == []


# For fuq: no magic, no type, a body of 4 GB, one that does not come, one that nests, half a header.
_NO_FUQ = (
    b"",
    b"\0" * 12,
    os.urandom(10_000),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    struct.pack("<HHII", 0xC047, 99, 0, 0),
    struct.pack("<HHII", 0xC047, 3, 0, 0xFFFFFFFF),
    struct.pack("<HHII", 0xC047, 1, 0, 0xFFFFFFFF),
    struct.pack("<HHII", 0xC047, 3, 0, 1 << 20) + b"x" * 1000,
    struct.pack("<HHII", 0xC047, 3, 0, 2000) + b"\x91" * 2000,
    b"\x47",
)


def test_broker_of_fuq_that_reads_nonsense_goes_on_dealing_to_honest_clients(
    tmp_path: Path,
) -> None:
    with open_doors(tmp_path, "fuq") as doors, contextlib.ExitStack() as at_end:
        broker = doors.broker(retries=0)
        doors.worker()
        doors.bring("first")
        doors.wait_for_outputs(1)
        for data in _NO_FUQ * 5:
            _connect_and_say(at_end, doors.endpoint, data)
        doors.bring("second", "third")
        doors.wait_until_empty()
        broker.signal()
        assert broker.ended() == 0
        assert doors.account() == []


def test_peers_that_never_stop_talking_and_leave_amid_it_keep_no_document_from_honest_workers(
    doors: Doors,
) -> None:
    """As long as ZeroMQ was told to stop reading at some point, this aborted the broker."""
    broker = doors.broker(retries=0)
    doors.worker()
    for _ in range(2):
        doors.bring_many(10)
        with dealer(doors.endpoint) as peer:
            for _ in range(20_000):
                peer.send(b"x")
        # One that stays within what a peer may send, and one that does not.
        with dealer(doors.endpoint) as peer:
            for _ in range(60_000):
                peer.send(b"x")
    doors.wait_until_empty()
    broker.signal()
    assert broker.ended() == 0
    assert doors.account() == []
    assert doors.discarded() == []


# Limits


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(("tcp://127.0.0.1:*",), b"hub", max_message=10_000)
    yield hub
    hub.close()


def _next(transport: Hub | Spoke) -> Message | Gone:
    """What comes next."""
    came: list[object] = []

    def something() -> bool:
        came.extend(transport.arrivals())
        return bool(came)

    until(something, "something arrives")
    (only,) = came
    assert isinstance(only, Message | Gone)
    return only


def test_message_has_64_frames_at_most_and_whoever_sends_more_is_gone(hub: Hub) -> None:
    with dealer(hub.endpoints[0], b"peer") as peer:
        peer.send_multipart([b"x"] * MAX_FRAMES)
        assert _next(hub) == Message(b"peer", [b"x"] * MAX_FRAMES)
        peer.send_multipart([b"x"] * (MAX_FRAMES + 1))
        assert isinstance(_next(hub), Gone)
        peer.send(b"x")
        assert _next(hub) == Message(b"peer", [b"x"])


def test_frames_of_a_message_are_together_no_longer_than_one_may_be(hub: Hub) -> None:
    with dealer(hub.endpoints[0], b"peer") as peer:
        most = [bytes(10_000), bytes(AROUND)]
        peer.send_multipart(most)
        assert _next(hub) == Message(b"peer", most)
        peer.send_multipart([*most, b"x"])
        assert isinstance(_next(hub), Gone)


def test_frame_that_is_too_long_ends_its_connection(hub: Hub) -> None:
    with (
        dealer(hub.endpoints[0], b"peer") as peer,
        peer.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor,
    ):
        peer.send(bytes(10_000 + AROUND + 1))
        assert monitor.poll(int(PATIENCE * 1000))
        peer.disable_monitor()
    assert [*hub.arrivals()] == []


def test_whatever_a_client_may_send_fits_to_its_worker_with_the_way_home_added(hub: Hub) -> None:
    """It would stay in the worker's hands for ever, if only its broker had heard of it."""
    spoke = Spoke(hub.endpoints[0], b"worker", b"hub", max_message=10_000)
    client = b"c" * 255

    def has_sent() -> bool:
        assert [*spoke.arrivals()] == []
        spoke.tick(time.monotonic())
        return not spoke.missing() and spoke.next_tick_at() is None

    try:
        assert spoke.send(b"", (b"hello",))
        until(has_sent, "it is connected")
        assert _next(hub) == Message(b"worker", [b"hello"])
        for request in (
            [b"x"] * (MAX_FRAMES - 1),
            [bytes(10_000), bytes(AROUND)],
        ):
            assert hub.send(b"worker", (*request, client))
            assert _next(spoke) == Message(b"", [*request, client])
    finally:
        spoke.close()


def test_worker_that_does_not_read_for_hours_is_not_lost_and_misses_nothing(hub: Hub) -> None:
    """It has one document all the time, and is probed each second."""
    spoke = Spoke(hub.endpoints[0], b"worker", max_message=10_000)
    probe = b"", bytes(1000)
    try:
        assert spoke.send(b"", (b"hello",))
        assert _next(hub) == Message(b"worker", [b"hello"])
        # More than queues and the kernel have room for, so that they leave only if they are read.
        for _ in range(45_000):
            if not hub.send(b"worker", probe):
                # Hours have passed before there were so many.
                until(lambda: hub.send(b"worker", probe), "probes have left")
        heard = 0
        while heard < 45_000:
            heard += len([*spoke.arrivals()])
    finally:
        spoke.close()


def test_worker_whose_connection_takes_nothing_is_gone_after_so_many_messages(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dealer(hub.endpoints[0], b"worker") as worker:
        # It reads nothing; it and the kernel take some more.
        worker.send(b"hello")
        assert _next(hub) == Message(b"worker", [b"hello"])
        sent = 0
        while sent < 30_000 and hub.send(b"worker", (b"", bytes(9_000))):
            sent += 1
        assert 10_000 <= sent < 30_000
        assert not hub.send(b"worker", (b"",))
        assert hub.next_tick_at() is None


def test_request_that_has_no_frame_left_for_the_way_home_is_an_error_of_its_client() -> None:
    most = [b"", b"LMQv100", b"\x04", b"id", *[b"x"] * (MAX_FRAMES - 5), b""]
    with pytest.raises(RemoteProtocolError, match="frames"):
        RoundRobinBroker().hear(b"client", most, 0.0, 0.0)
    assert RoundRobinBroker().hear(b"client", most[:4] + most[5:], 0.0, 0.0)


def test_peer_that_sends_without_end_keeps_nobody_else_from_being_heard() -> None:
    hub = Hub(["tcp://127.0.0.1:*"])
    flood, honest = (Spoke(hub.endpoints[0], name) for name in (b"flood", b"honest"))
    heard: Counter[bytes] = Counter()
    try:
        for spoke in (flood, honest):
            spoke.send(b"", (b"begin",))
        until(lambda: _hears(hub, heard) and len(heard) == 2, "both are there")
        heard.clear()
        for _ in range(8_000):
            flood.send(b"", (b"more",))
        honest.send(b"", (b"one",))
        until(lambda: _hears(hub, heard) and heard[b"honest"] == 1, "the other one is heard")
        # Nothing of either is dropped: what is not said again may be a result.
        until(lambda: _hears(hub, heard) and heard[b"flood"] == 8_000, "all is heard")
    finally:
        for end in (hub, flood, honest):
            end.close()


def _hears(hub: Hub, heard: "Counter[bytes]") -> bool:
    heard.update(arrival.peer for arrival in hub.arrivals())
    return True


# Names


@pytest.mark.parametrize("docid", EVIL)
def test_no_name_that_a_broker_sends_forms_a_path_of_a_worker(docid: str) -> None:
    workspace = Workspace(1000)
    try:
        document, _ = workspace.lay_out(Work("claim", docid, 0, b"payload"))
        assert Path(document.path).read_bytes() == b"payload"
        assert Path(document.path).name == "document"
        assert names.objection(document.docid) is None
    finally:
        workspace.close()


class Rogue:
    """A worker of roundrobin that calls its results what it likes."""

    def __init__(self, endpoint: str) -> None:
        hub = endpoint.encode()
        self._session = Worker(1)
        spoke = Spoke(endpoint, hub + b":rogue", hub)
        self._talk = Conversation(self._session, spoke, self._act, print)
        self._work: list[Work] = []
        now = time.monotonic()
        self._talk.carry_out(self._session.start(now, time.time()), now)

    def close(self) -> None:
        self._talk.close()

    def answer(self, name: str) -> str:
        """Take the next document, and call what comes of it so; return whose it is."""
        until(self._has_work, "it is dealt to")
        work, now = self._work.pop(), time.monotonic()
        result = Result(b"evil", name)
        self._talk.carry_out(self._session.finished(work.claim, (result,), now), now)
        return work.docid

    def _has_work(self) -> bool:
        self._talk.turn(time.monotonic(), time.time())
        return bool(self._work)

    def _act(self, effect: Effect) -> None:
        if isinstance(effect, Process):
            self._work.append(effect.work)


def test_no_name_that_a_worker_sends_forms_a_path_of_the_broker(tmp_path: Path) -> None:
    place = tmp_path / "one" / "two"
    place.mkdir(parents=True)
    with Doors(place, "roundrobin") as doors:
        broker = doors.broker(retries=0)
        doors.bring_many(len(EVIL))
        rogue = Rogue(doors.endpoint)
        try:
            called = {rogue.answer(name): name for name in EVIL}
        finally:
            rogue.close()
        doors.wait_until_empty()
        broker.signal()
        assert broker.ended() == 0
        # Each has failed for it, and nothing has appeared anywhere.
        assert {*doors.discarded()} == {*called}
        causes = {doors.report(docid).failure.cause for docid in called}
        assert len(causes) == 1, causes
        assert doors.files() == {}
        assert {one.name for one in place.iterdir()} == {"in", "out", "words"}
        assert [*tmp_path.iterdir()] == [tmp_path / "one"]
        assert not Path("/tmp/queuedriver-evil").exists()
