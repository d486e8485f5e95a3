"""Each row of each table is stepped by a conversation: none is mere words.

A protocol joins by a *play*: what is to happen so that every row of its table is stepped.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from queuedriver.claims.outcomes import Released
from queuedriver.doors.pingpong import broker as pingpong
from queuedriver.doors.pingpong import wire
from queuedriver.doors.pingpong import worker as pingpong_worker
from queuedriver.doors.pingpong.broker import Broker
from queuedriver.doors.table import Table
from queuedriver.doors.words import Result, Work

Play = Callable[[], None]
ERROR = wire.error(1, "no")
RESULT = wire.payload(b"result")
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
    every = (wire.READY, RESULT, ERROR)
    for said in every:
        hear(said, wire.BACK, wire.DISCONNECT)
        hear(wire.PING, wire.BACK, said, wire.DISCONNECT)
        hear(wire.READY, said, wire.DISCONNECT)
        hear(wire.READY)
        deal()
        hear(said, wire.DISCONNECT)
    hear(wire.DISCONNECT, wire.BACK, wire.PING, wire.DISCONNECT, wire.PING, wire.PING, wire.PING)
    deal()
    hear(wire.PING, wire.BACK, wire.PING, wire.PING, wire.PING)
    # Of one that owes: its document was given up.
    hear(wire.PING, wire.BACK, wire.DISCONNECT)
    for said in every:
        hear(wire.READY)
        deal()
        broker.gone(b"w", 0.0)
        hear(said, wire.DISCONNECT)
    hear(wire.READY)
    deal()
    hear(wire.DISCONNECT, wire.READY)
    broker.gone(b"w", 0.0)
    hear(wire.READY)
    deal()
    broker.undelivered(b"w", "c", 0.0)
    hear(wire.READY, now=0.0)
    broker.tick(EXPIRED, EXPIRED)
    hear(wire.READY, now=EXPIRED)
    deal(EXPIRED)
    broker.tick(EXPIRED + 1, EXPIRED)
    broker.tick(2 * EXPIRED, EXPIRED)
    hear(wire.READY, now=2 * EXPIRED)
    broker.leave(2 * EXPIRED)


def pingpong_s_worker() -> None:
    def begin(*said: tuple[bytes, ...]) -> pingpong_worker.Worker:
        worker = pingpong_worker.Worker()
        worker.start(0.0, 0.0)
        for frames in said:
            worker.hear(b"", frames, 0.0, 0.0)
        return worker

    document = wire.payload(b"document")
    idle, busy = (wire.PONG, wire.PONG), (wire.PONG, document)
    for said in ((), idle, busy):
        begin(*said).joined(b"", 0.0)
        begin(*said).leave(0.0)
        begin(*said, wire.EXIT)
        begin(*said).start(1.0, 0.0)
        waiting = begin(*said)
        waiting.tick(1.5, 0.0)
        waiting.tick(EXPIRED, 0.0)
    begin(document)
    pingpong_worker.Worker().leave(0.0)
    worker = begin(*busy, wire.PONG)
    worker.finished("1", (Result(b""),), 0.0)
    worker.hear(b"", document, 0.0, 0.0)
    worker.leave(0.0)
    worker.finished("2", (Result(b""),), 0.0)
    worker = begin(*busy)
    worker.leave(0.0)
    worker.failed("1", Released("interrupted"), 0.0)


PLAYS: dict[str, tuple[Table, Play]] = {
    "pingpong's broker": (pingpong.BROKER, pingpong_broker),
    "pingpong's worker": (pingpong_worker.WORKER, pingpong_s_worker),
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
