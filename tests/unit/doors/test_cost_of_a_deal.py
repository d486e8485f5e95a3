"""A document costs so many Python calls and bytecodes in a broker, and in a worker, and no more.

Counts, not timings: they are the same on a machine that is busy with others. Session, dealing, disk
and transport together, over ZeroMQ's own code but for its sockets, which are lists here. Whoever is
at the other end is the protocol's own session, which is not counted.
"""

import gc
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from queuedriver.claims.document import Document
from queuedriver.doors.broker import Broker
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.settings import ZmqBroker, ZmqWorker, settings_of
from queuedriver.doors.words import Effects, Process, Result, Send, Work, WorkerSession
from queuedriver.doors.worker import work
from queuedriver.options import Options
from queuedriver.processors.call import CallProcessor

zmq = pytest.importorskip("zmq")
transports = pytest.importorskip("queuedriver.doors.transports.zmq")
pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted on Python 3.11")

DOCUMENTS, FIRST, LAST = 600, 100, 500
WORKERS = [b"w%d" % number for number in range(4)]
ADDRESS = "tcp://127.0.0.1:6715"
MORE = int(zmq.SNDMORE)
DATA = b"x" * 1024
# Python calls and bytecodes of a document; a few more than were counted.
BROKER = {"pingpong": (50, 1880), "roundrobin": (61, 2560), "scale0": (73, 2640)}
WORKER = {"pingpong": (70, 1830), "roundrobin": (81, 2280), "scale0": (82, 2450)}


class Count:
    """Bytecodes executed, and Python functions called, while it counts."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.bytecodes: Counter[str] = Counter()
        self.counting = False
        # Documents whose results the broker has put away; and so many before it counted, and after.
        self.handed_over = 0
        self.first, self.last = 0, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code.co_filename == __file__:
            return None
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self.handed_over += code.co_name == "hand_over"
        if self.counting and event in ("call", "opcode"):
            kind = self.calls if event == "call" else self.bytecodes
            kind[f"{code.co_filename.rpartition('/')[2]}:{code.co_qualname}"] += 1
        return self

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Trace, and collect no garbage: when that is due depends on what ran before, and whoever
        is told of it is Python."""
        before = sys.gettrace()
        gc.disable()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)
            gc.enable()

    def count_from(self, done: int) -> None:
        """Count from now on, or no more, if so many documents have been done."""
        self.counting = FIRST <= done < LAST
        if self.counting:
            self.first = self.first or done
        elif self.first:
            self.last = self.last or done

    def check(self, most: tuple[int, int]) -> None:
        """Assert that a document had no more calls and bytecodes; show where they were."""
        each = self.last - self.first
        found = [
            (number / each, self.calls[name] / each, name)
            for name, number in self.bytecodes.most_common()
        ]
        calls, bytecodes = self.calls.total() / each, self.bytecodes.total() / each
        assert calls <= most[0], found
        assert bytecodes <= most[1], found


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    """What is counted. No time passes before all of it is: what is looked at ten times a second
    would be looked at more often for each document where others are at work."""
    found, monotonic = Count(), time.monotonic
    began_at = monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() if found.last else began_at)
    return found


class Frame:
    """A frame as ZeroMQ gives it."""

    def __init__(self, data: bytes, more: bool) -> None:
        self.bytes, self.more = data, more


class Socket:
    """A ZeroMQ socket whose other end hears each message at once. What that says is there at once,
    too; or, where whoever hears it would `sleep`, when all that was there before has been taken."""

    def __init__(
        self, count: Count, hear: Callable[[list[bytes]], int], *, sleeps: bool = False
    ) -> None:
        self._count = count
        # Hears a message, and returns how many documents have been done by then.
        self._hear = hear
        self._came: deque[Frame] = deque()
        self._coming: list[Frame] = []
        self._sleeps = sleeps
        self._sending: list[bytes] = []

    def getsockopt(self, option: int) -> int:
        if not self._came:
            self._came += self._coming
            self._coming.clear()
            return 0
        return 1

    def recv(self, flags: int, copy: bool = True) -> Frame:
        return self._came.popleft()

    def send(self, frame: bytes, flags: int) -> None:
        self._sending.append(frame)
        if flags & MORE:
            return
        said, self._sending = self._sending, []
        trace, self._count.counting = sys.gettrace(), False
        sys.settrace(None)
        done = self._hear(said)
        sys.settrace(trace)
        self._count.count_from(done)

    def say(self, *frames: bytes) -> None:
        last = len(frames) - 1
        come = self._coming if self._sleeps else self._came
        come.extend(Frame(one, at < last) for at, one in enumerate(frames))

    def instead_of(self, transport: Any, monkeypatch: pytest.MonkeyPatch, fd: int) -> Any:
        """Return a transport with this socket, whose descriptor is always readable."""
        monkeypatch.setattr(transport, "_socket", self)
        monkeypatch.setattr(transport, "fds", lambda: [fd])
        monkeypatch.setattr(transport, "close", int)
        return transport


class Peer:
    """A worker of a broker that is counted: its session, which answers each document at once."""

    def __init__(self, session: WorkerSession, say: Callable[..., None]) -> None:
        self._session = session
        self._say = say
        self.done = 0
        self._do(self._session.start(time.monotonic(), time.time()))

    def hear(self, frames: list[bytes]) -> None:
        self._do(self._session.hear(b"", frames, time.monotonic(), time.time()))

    def _do(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._say(*effect.frames)
            elif isinstance(effect, Process):
                self.done += 1
                claim, results = effect.work.claim, (Result(DATA),)
                self._do(self._session.finished(claim, results, time.monotonic()))


@pytest.fixture
def readable() -> Iterator[int]:
    fd = os.eventfd(1)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("protocol", BROKER)
def test_document_costs_a_broker_no_more_than_was_counted(
    protocol: str, count: Count, readable: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(DOCUMENTS):
        (tmp_path / "in" / f"doc{number:07}.ready").write_bytes(DATA)
    settings = settings_of(protocol)
    told: ZmqBroker = settings.BrokerSettings(
        input=str(tmp_path / "in"),
        outputs=(str(tmp_path / "out"),),
        listen=(ADDRESS,),
        options=Options(drain=True, poll=True),
    )
    peers: dict[bytes, Peer] = {}

    def hear(frames: list[bytes]) -> int:
        name, *said = frames
        peers[name].hear(said)
        # Many are put away at a time: it is counted from one such time to another.
        return count.handed_over

    socket = Socket(count, hear)
    hub = transports.Hub(["tcp://127.0.0.1:*"])

    def transport(*_: object) -> Any:
        for name in WORKERS:
            session = settings.WorkerSettings(broker=ADDRESS).session(name.decode())
            peers[name] = Peer(session, lambda *frames, name=name: socket.say(name, *frames))
        return socket.instead_of(hub, monkeypatch, readable)

    monkeypatch.setattr(transports, "Hub", transport)
    with count.traced():
        assert Broker(told).run().word == "drained"
    monkeypatch.undo()
    hub.close()
    assert len(list((tmp_path / "out").glob("*.ready"))) == DOCUMENTS
    count.check(BROKER[protocol])


@pytest.mark.parametrize("protocol", WORKER)
def test_document_costs_a_worker_no_more_than_was_counted(
    protocol: str, count: Count, readable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(protocol)
    told: ZmqWorker = settings.WorkerSettings(broker=ADDRESS)
    front = (told.where.encode(),) if told.names_hub else ()
    exchange: Exchange[Any] = settings.BrokerSettings(input="in", outputs=("out",)).session("b")
    dealt = 0

    def carry_out(effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                socket.say(*front, *effect.frames)

    def hear(frames: list[bytes]) -> int:
        nonlocal dealt
        now = time.monotonic()
        carry_out(exchange.hear(b"w", frames[len(front) :], now, time.time()))
        while dealt < DOCUMENTS and (worker := exchange.pick("", now)) is not None:
            dealt += 1
            found = Work(f"1-{dealt:018x}", f"doc{dealt}", 0, DATA)
            carry_out([exchange.deal(worker, found, now)])
        if dealt == DOCUMENTS and not any(one.in_hand for one in exchange.workers.values()):
            os.kill(os.getpid(), signal.SIGTERM)
        return dealt

    socket = Socket(count, hear, sleeps=True)
    spokes = []
    make = transports.Spoke

    def spoke(*arguments: Any) -> Any:
        spokes.append(make(*arguments))
        # Its connection is there.
        monkeypatch.setattr(spokes[-1], "_missing", "")
        return socket.instead_of(spokes[-1], monkeypatch, readable)

    def process(document: Document) -> bytes:
        return document.read()

    monkeypatch.setattr(transports, "Spoke", spoke)
    with count.traced():
        work(told, CallProcessor(process), print)
    monkeypatch.undo()
    for one in spokes:
        one.close()
    assert dealt == DOCUMENTS
    count.check(WORKER[protocol])
