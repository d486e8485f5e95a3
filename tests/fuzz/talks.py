"""Who talks at the front doors: for each protocol a broker's session and those of its peers, each
with a loop around it that does what the session asks for and never errs."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from queuedriver.claims.outcomes import Failed, Postponed, Released
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.fuq import wire as fuq_wire
from queuedriver.doors.fuq.broker import Broker as FuqBroker
from queuedriver.doors.fuq.client import Client, Start
from queuedriver.doors.fuq.wire import JobDescription, JobStatusUpdate, Task
from queuedriver.doors.pingpong.protocol import Broker as PingpongBroker
from queuedriver.doors.pingpong.protocol import Worker as PingpongWorker
from queuedriver.doors.roundrobin.broker import RoundRobinBroker
from queuedriver.doors.roundrobin.client import Client as RoundRobinClient
from queuedriver.doors.roundrobin.worker import Worker as RoundRobinWorker
from queuedriver.doors.scale0 import broker as scale0_broker
from queuedriver.doors.scale0 import worker as scale0_worker
from queuedriver.doors.scale0.client import Client as Scale0Client
from queuedriver.doors.words import (
    Close,
    Effect,
    Leave,
    Process,
    Reconnect,
    Result,
    Say,
    Send,
    Work,
    WorkerSession,
)
from queuedriver.format.records import Failure

# What payloads, names and reasons may be; some of it a protocol's own words.
PIECES = (
    b"",
    b"x",
    b"PONG",
    b"READY",
    b"LMQv100",
    b"0",
    b"65",
    b"-1",
    b"9" * 30,
    b"../../x",
    b"/etc/passwd",
    b"a\0b",
    b"n" * 300,
    b"\xff\xfe",
    b"\x1b[2J",
    b"\x01",
    b"\x02",
    b"\x0b",
    b"{}",
    b'{"services":["",{}],"identity":' + b"[" * 3000,
    b"CHECKCONFIG",
    b"WORKREPLY",
    b'{"status_code":"\xff"}',
    b'{"heartbeat_interval":1e999}',
    b"\x81\xa1x\xc0",
    b"\xdd\xff\xff\xff\xff",
    b"\x91" * 3000,
)
# One choice of so many: the script's.
Choose = Callable[[int], int]


class End(Protocol):
    """One peer of the broker. Returns the messages that it sends."""

    # What a RemoteProtocolError or a `Say` said.
    words: list[str]

    def start(self, now: float) -> list[Sequence[bytes]]:
        """It is connected, for the first time or again."""

    def receive(self, frames: Sequence[bytes], now: float) -> list[Sequence[bytes]]:
        """One message of the broker."""

    def tick(self, now: float) -> list[Sequence[bytes]]:
        """Time has passed."""

    def act(self, choose: Choose, now: float) -> list[Sequence[bytes]]:
        """Something of its own accord."""


class WorkerEnd:
    """A worker, as `doors/worker.py` drives it."""

    def __init__(self, make: Callable[[], WorkerSession]) -> None:
        self._make = make
        self._session = make()
        self._in_hand: list[Work] = []
        self.words: list[str] = []

    def start(self, now: float) -> list[Sequence[bytes]]:
        return self._carry_out(self._session.start(now, now), now)

    def receive(self, frames: Sequence[bytes], now: float) -> list[Sequence[bytes]]:
        return self._carry_out(self._session.hear(b"", frames, now, now), now)

    def tick(self, now: float) -> list[Sequence[bytes]]:
        at = self._session.next_tick_at()
        if at is None or at > now:
            return []
        return self._carry_out(self._session.tick(now, now), now)

    def act(self, choose: Choose, now: float) -> list[Sequence[bytes]]:
        if not choose(16):
            return self._carry_out(self._session.joined(b"", now), now)
        if not self._in_hand:
            return self._carry_out(self._session.leave(now), now) if not choose(20) else []
        claim = self._in_hand.pop(choose(len(self._in_hand))).claim
        text = PIECES[choose(len(PIECES))].decode(errors="replace")
        results = [Result(PIECES[choose(len(PIECES))], text or None) for _ in range(choose(3))]
        failure = Failure(cause="exit", message=text, permanent=bool(choose(2)))
        way = choose(5)
        if way < 2:
            effects = self._session.finished(claim, tuple(results), now)
        else:
            how = (Failed(failure), Postponed(1e9, text), Released(text))[way - 2]
            effects = self._session.failed(claim, how, now)
        return self._carry_out(effects, now)

    def _carry_out(self, effects: Sequence[Effect], now: float) -> list[Sequence[bytes]]:
        sent: list[Sequence[bytes]] = []
        for effect in effects:
            match effect:
                case Send():
                    sent.append(effect.frames)
                case Process():
                    self._in_hand.append(effect.work)
                case Reconnect():
                    # What is not begun is the broker's again, and nothing is heard amid a document.
                    self._in_hand.clear()
                    return sent + self.start(now)
                case Leave():
                    # Another in its place, by the same name.
                    self._in_hand.clear()
                    self._session = self._make()
                    return sent + self.start(now)
                case Say():
                    self.words.append(effect.words)
        return sent


class RoundRobinClientEnd:
    """A client that asks for everything there is."""

    def __init__(self) -> None:
        self._session = RoundRobinClient()
        self.words: list[str] = []

    def start(self, now: float) -> list[Sequence[bytes]]:
        return []

    def receive(self, frames: Sequence[bytes], now: float) -> list[Sequence[bytes]]:
        return _sent(self._session.hear(b"", frames, now, now))

    def tick(self, now: float) -> list[Sequence[bytes]]:
        at = self._session.next_tick_at()
        return _sent(self._session.tick(now, now)) if at is not None and at <= now else []

    def act(self, choose: Choose, now: float) -> list[Sequence[bytes]]:
        session, tracked = self._session, bool(choose(2))
        match choose(3):
            case 0:
                return _sent(session.ping(now, tracked)[1])
            case 1:
                return _sent(session.stream(now)[1])
        return _sent(session.ask("doc", PIECES[choose(len(PIECES))], now)[1])


class Scale0ClientEnd:
    """A frontend."""

    def __init__(self) -> None:
        self._session = Scale0Client("")
        self.words: list[str] = []

    def start(self, now: float) -> list[Sequence[bytes]]:
        return []

    def receive(self, frames: Sequence[bytes], now: float) -> list[Sequence[bytes]]:
        return _sent(self._session.hear(b"", frames, now, now))

    def tick(self, now: float) -> list[Sequence[bytes]]:
        at = self._session.next_tick_at()
        return _sent(self._session.tick(now, now)) if at is not None and at <= now else []

    def act(self, choose: Choose, now: float) -> list[Sequence[bytes]]:
        return _sent(self._session.ask("doc", PIECES[choose(len(PIECES))], now)[1])


class FuqEnd:
    """A client of fuq whose tasks end as the script wants."""

    def __init__(self) -> None:
        self._session = Client(2)
        self._running: list[Task] = []
        self.words: list[str] = []

    def start(self, now: float) -> list[Sequence[bytes]]:
        return self._carry_out(self._session.joined(b"", now), now)

    def receive(self, frames: Sequence[bytes], now: float) -> list[Sequence[bytes]]:
        return self._carry_out(self._session.hear(b"", frames, now, now), now)

    def tick(self, now: float) -> list[Sequence[bytes]]:
        at = self._session.next_tick_at()
        if at is None or at > now:
            return []
        return self._carry_out(self._session.tick(now, now), now)

    def act(self, choose: Choose, now: float) -> list[Sequence[bytes]]:
        if not self._running:
            return []
        task = self._running.pop(choose(len(self._running)))
        if not choose(4):
            return self._carry_out(self._session.refused(task, "not allowed"), now)
        text = PIECES[choose(len(PIECES))].decode(errors="replace")
        update = JobStatusUpdate(task.description.job_id, task.task, bool(choose(2)), text)
        return self._carry_out(self._session.ended(update), now)

    def _carry_out(self, effects: Sequence[object], now: float) -> list[Sequence[bytes]]:
        sent: list[Sequence[bytes]] = []
        for effect in effects:
            match effect:
                case Send():
                    sent.append(effect.frames)
                case Start():
                    self._running.append(effect.task)
                case Close():
                    return sent + self.start(now)
                case Leave():
                    self._running.clear()
                    self._session = Client(2)
                    return sent + self.start(now)
                case Say():
                    self.words.append(effect.words)
        return sent


def _sent(effects: Sequence[object]) -> list[Sequence[bytes]]:
    return [one.frames for one in effects if isinstance(one, Send)]


# A task's number and a piece: what is dealt.
Payload = Callable[[int, bytes], bytes]


def _task(number: int, piece: bytes) -> bytes:
    text = piece.decode(errors="replace")
    job = JobDescription(number // 3, text, 3, text, text, text, 1, 1 + number % 2)
    return fuq_wire.encode_task(Task(1 + number % 3, job))


class Talk(NamedTuple):
    """A broker, its peers, and what is dealt to them."""

    broker: Callable[[], Exchange[Any]]
    ends: Sequence[Callable[[], End]]
    payload: Payload = lambda number, piece: piece
    # For which service it is, and how much of a worker's room it takes.
    asks: Callable[[int], tuple[str, int]] = lambda number: ("", 1)
    # A stream has no frames: what comes may be cut anywhere.
    is_stream: bool = False


def _worker(make: Callable[[], WorkerSession]) -> Callable[[], End]:
    return lambda: WorkerEnd(make)


_SCALE0 = "tcp://127.0.0.1:8081"


def _scale0_worker() -> WorkerSession:
    return scale0_worker.Worker("w", _SCALE0)


TALKS = {
    "pingpong": Talk(lambda: PingpongBroker(job_timeout=30.0), [_worker(PingpongWorker)] * 3),
    "roundrobin": Talk(
        lambda: RoundRobinBroker(job_timeout=30.0),
        [*[_worker(lambda: RoundRobinWorker(2))] * 2, *[RoundRobinClientEnd] * 2],
    ),
    "scale0": Talk(
        lambda: scale0_broker.Broker("b", address=_SCALE0, job_timeout=30.0),
        [*[_worker(_scale0_worker)] * 2, *[Scale0ClientEnd] * 2],
    ),
    "fuq": Talk(
        lambda: FuqBroker(job_timeout=30.0),
        [FuqEnd] * 3,
        _task,
        lambda number: (str(number // 3), 1 + number % 2),
        is_stream=True,
    ),
}
