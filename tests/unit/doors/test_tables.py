"""Each row of each table is stepped by a conversation: none is mere words.

A protocol joins by a *play*: what is to happen so that every row of its table is stepped.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from queuedriver.claims.outcomes import Released
from queuedriver.doors.fuq import broker as fuq
from queuedriver.doors.fuq import client as fuq_client
from queuedriver.doors.fuq import wire as fuq_wire
from queuedriver.doors.fuq.wire import JobDescription, JobStatusUpdate, Task, Type
from queuedriver.doors.pingpong import protocol as pingpong
from queuedriver.doors.pingpong.protocol import Broker
from queuedriver.doors.table import Table
from queuedriver.doors.words import Result, Work

Play = Callable[[], None]
ERROR = pingpong.error(1, "no")
RESULT = pingpong.payload(b"result")
EXPIRED = 100.0


def pingpong_broker() -> None:
    def hear(*said: tuple[bytes, ...], now: float = 0.0) -> None:
        for frames in said:
            broker.hear(b"w", frames, now, now)

    def deal(now: float = 0.0) -> None:
        worker = broker.pick("", now)
        assert worker is not None
        broker.deal(worker, Work("c", "doc", 0, b""), now)

    broker = Broker(job_timeout=10.0)
    # Of a stranger; of one of whom a PING was heard; of one that is listed; of a busy one.
    every = (pingpong.READY, RESULT, ERROR)
    for said in every:
        hear(said, pingpong.BACK, pingpong.DISCONNECT)
        hear(pingpong.PING, pingpong.BACK, said, pingpong.DISCONNECT)
        hear(pingpong.READY, said, pingpong.DISCONNECT)
        hear(pingpong.READY)
        deal()
        hear(said, pingpong.DISCONNECT)
    hear(
        pingpong.DISCONNECT,
        pingpong.BACK,
        pingpong.PING,
        pingpong.DISCONNECT,
        pingpong.PING,
        pingpong.PING,
        pingpong.PING,
    )
    deal()
    hear(pingpong.PING, pingpong.BACK, pingpong.PING, pingpong.PING, pingpong.PING)
    # Of one that owes: its document was given up.
    hear(pingpong.PING, pingpong.BACK, pingpong.DISCONNECT)
    for said in every:
        hear(pingpong.READY)
        deal()
        broker.gone(b"w", 0.0)
        hear(said, pingpong.DISCONNECT)
    hear(pingpong.READY)
    deal()
    hear(pingpong.DISCONNECT, pingpong.READY)
    broker.gone(b"w", 0.0)
    hear(pingpong.READY)
    deal()
    broker.undelivered(b"w", "c", 0.0)
    hear(pingpong.READY, now=0.0)
    broker.tick(EXPIRED, EXPIRED)
    hear(pingpong.READY, now=EXPIRED)
    deal(EXPIRED)
    broker.tick(EXPIRED + 1, EXPIRED)
    broker.tick(2 * EXPIRED, EXPIRED)
    hear(pingpong.READY, now=2 * EXPIRED)
    broker.leave(2 * EXPIRED)


def pingpong_s_worker() -> None:
    def begin(*said: tuple[bytes, ...]) -> pingpong.Worker:
        worker = pingpong.Worker()
        worker.start(0.0, 0.0)
        for frames in said:
            worker.hear(b"", frames, 0.0, 0.0)
        return worker

    document = pingpong.payload(b"document")
    idle, busy = (pingpong.PONG, pingpong.PONG), (pingpong.PONG, document)
    for said in ((), idle, busy):
        begin(*said).joined(b"", 0.0)
        begin(*said).leave(0.0)
        begin(*said, pingpong.EXIT)
        begin(*said).start(1.0, 0.0)
        waiting = begin(*said)
        waiting.tick(1.5, 0.0)
        waiting.tick(EXPIRED, 0.0)
    begin(document)
    pingpong.Worker().leave(0.0)
    worker = begin(*busy, pingpong.PONG)
    worker.finished("1", (Result(b""),), 0.0)
    worker.hear(b"", document, 0.0, 0.0)
    worker.leave(0.0)
    worker.finished("2", (Result(b""),), 0.0)
    worker = begin(*busy)
    worker.leave(0.0)
    worker.failed("1", Released("interrupted"), 0.0)


FUQ_JOB = JobDescription(7, "job", 9, "", "", "sim")
FUQ_NONCE = b"n" * fuq_wire.NONCE
FUQ_ERROR = fuq_wire.encode(Type.ERROR, 2)
FUQ_OK = fuq_wire.encode(Type.OK, 2)
FUQ_STOP_NOW = fuq_wire.encode(Type.STOP, fuq_wire.STOP_NOW)


def fuq_broker() -> None:
    broker = fuq.Broker(job_timeout=10.0)
    secured = fuq.Broker(b"secret", lambda: FUQ_NONCE)

    def greet(name: bytes) -> None:
        broker.joined(name, 0.0)
        broker.hear(name, [FUQ_OK], 0.0, 0.0)

    def deal() -> None:
        worker = broker.pick("7", 0.0)
        assert worker is not None
        body = fuq_wire.encode_task(Task(1, FUQ_JOB))
        broker.deal(worker, Work("c", "doc", 0, body, "7"), 0.0)

    greet(b"a")
    deal()
    update = JobStatusUpdate(7, 1, success=True, status="done")
    report = fuq_wire.encode_body(Type.UPDATE, fuq_wire.encode_update(update))
    broker.hear(b"a", [report, FUQ_OK, FUQ_ERROR], 0.0, 0.0)
    broker.stop(1, 0.0)
    broker.stop(fuq_wire.STOP_NOW, 0.0)
    broker.gone(b"a", 0.0)
    greet(b"b")
    deal()
    broker.joined(b"silent", 0.0)
    broker.tick(EXPIRED, 0.0)
    broker.joined(b"leaves", 0.0)
    broker.gone(b"leaves", 0.0)
    for secret in (b"secret", b"another"):
        secured.joined(secret, 0.0)
        proof = FUQ_NONCE + fuq_wire.client_proof(secret, FUQ_NONCE, FUQ_NONCE)
        secured.hear(secret, [fuq_wire.encode_body(Type.AUTH, proof)], 0.0, 0.0)
    secured.joined(b"leaves", 0.0)
    secured.gone(b"leaves", 0.0)
    secured.joined(b"silent", 0.0)
    secured.tick(EXPIRED, 0.0)


def fuq_s_client() -> None:
    def begin(*said: bytes, secret: bytes | None = None) -> fuq_client.Client:
        client = fuq_client.Client(2, secret, lambda: FUQ_NONCE)
        client.joined(b"", 0.0)
        client.hear(b"", said, 0.0, 0.0)
        return client

    def job(number: int) -> bytes:
        return fuq_wire.encode_body(Type.JOB, fuq_wire.encode_task(Task(number, FUQ_JOB)))

    def done(client: fuq_client.Client, number: int) -> None:
        client.ended(JobStatusUpdate(7, number, success=True, status="done"))

    stop, stop_one = fuq_wire.encode(Type.STOP, 0), fuq_wire.encode(Type.STOP, 1)
    nonce = fuq_wire.encode_body(Type.AUTH, FUQ_NONCE)
    for proof in (fuq_wire.broker_proof(b"secret", FUQ_NONCE, FUQ_NONCE), bytes(32)):
        answer = fuq_wire.encode_body(Type.AUTH, proof)
        begin(FUQ_ERROR, nonce, FUQ_ERROR, answer, secret=b"secret")
    begin(FUQ_OK, secret=b"secret")
    begin(nonce)
    # Asked to leave at each step of the greeting.
    for said in ((), (nonce,)):
        begin(*said, secret=b"secret").lower(0)
    for count in range(3):
        begin(*[FUQ_OK] * count).lower(0)
    busy = begin(FUQ_ERROR, FUQ_OK, FUQ_ERROR, FUQ_OK, FUQ_ERROR, FUQ_OK, job(1), job(2), job(2))
    # One that does not fit is reported at once: what comes then waits for the answer.
    busy.hear(b"", [job(3), FUQ_ERROR, job(4), job(5), job(6), stop_one], 0.0, 0.0)
    done(busy, 1)
    busy.hear(b"", [FUQ_OK] * 9, 0.0, 0.0)
    done(busy, 2)
    busy.hear(b"", [FUQ_OK, stop_one, FUQ_OK], 0.0, 0.0)
    begin(FUQ_OK, FUQ_OK, stop_one, FUQ_STOP_NOW)
    last = begin(FUQ_OK, FUQ_OK, job(1), stop)
    done(last, 1)
    last.hear(b"", [FUQ_OK], 0.0, 0.0)
    hasty = begin(FUQ_OK, FUQ_OK, job(1))
    done(hasty, 1)
    hasty.hear(b"", [FUQ_STOP_NOW], 0.0, 0.0)


PLAYS: dict[str, tuple[Table, Play]] = {
    "pingpong's broker": (pingpong.BROKER, pingpong_broker),
    "pingpong's worker": (pingpong.WORKER, pingpong_s_worker),
    "fuq's broker": (fuq.SERVER, fuq_broker),
    "fuq's client": (fuq_client.CLIENT, fuq_s_client),
}


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Iterator[tuple[Table, Play]]:
    table, play = PLAYS[request.param]
    table.stepped = Counter()
    yield table, play
    table.stepped = None


@pytest.mark.parametrize("counted", PLAYS, indirect=True)
def test_every_row_of_a_table_is_stepped(counted: tuple[Table, Play]) -> None:
    table, play = counted
    play()
    assert table.stepped is not None
    assert [cell for cell in table.cells if cell not in table.stepped] == []
