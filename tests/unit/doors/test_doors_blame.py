"""What the loss of a worker costs what it had, at every door: nobody pays for what others did."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from queuedriver.doors.broker import BrokerLoop
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.pingpong import protocol as pingpong
from queuedriver.doors.requests import Requests
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin.broker import RoundRobinBroker
from queuedriver.doors.roundrobin.wire import Message as Said
from queuedriver.doors.roundrobin.wire import decode, encode
from queuedriver.doors.scale0.broker import Broker as Scale0
from queuedriver.doors.service_queue import ServiceQueue
from queuedriver.doors.transports.base import Gone, Message
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.openings import opened_with
from tests.unit.doors.test_broker_loop import Wires

if TYPE_CHECKING:
    from tests.conftest import Bench

Frames = list[bytes]
REGISTER = encode(Said(wire.TRACKEXEC, b"reg1", (wire.REGISTER, b"10")))


def scale0_of(command: str, **header: object) -> Frames:
    return [command.encode(), msgspec.json.encode(header)]


# How a worker of each protocol says that it is there.
DOORS: dict[str, tuple[Callable[[], Exchange[Any]], list[Frames]]] = {
    "pingpong": (pingpong.Broker, [[b"", b"READY"]]),
    "roundrobin": (RoundRobinBroker, [list(REGISTER)]),
    "scale0": (
        lambda: Scale0("b"),
        [scale0_of("CHECKCONFIG"), scale0_of("READY", services=[""])],
    ),
}


class Office:
    """A broker of one protocol at one queue, and its workers."""

    def __init__(self, bench: "Bench", door: str) -> None:
        self.bench = bench
        session, self._hello = DOORS[door]
        self.wires = Wires()
        # No time passes: nobody is silent for too long, however busy the machine is.
        self.now = time.monotonic()
        # By which id each document was dealt last.
        self._ids: dict[str, bytes] = {}
        self.limits = Limits()
        self.queue = bench.open(settings=Settings(retries=1), driver="b")
        self.requests = Requests(
            Queue(self.queue.directory), self.queue.mint, self.wires.send, durable=False
        )
        self.exchange, tally = session(), Tally()
        self.said: list[str] = []
        found = opened_with(self.queue)
        self.loop = BrokerLoop(
            found, self.exchange, self.wires, self.limits, tally, Options(), 0, self.said.append
        )
        self.source = ServiceQueue(
            "", self.queue, self.requests, self.exchange, tally, self.limits, 1000
        )
        self.loop.sources.append(self.source)

    def close(self) -> None:
        self.loop.waker.close()
        self.requests.close()
        self.limits.close()

    def join(self, worker: bytes) -> None:
        self.hear(worker, *self._hello)

    def hear(self, worker: bytes, *said: Frames) -> None:
        self.wires.coming += [Message(worker, list(frames)) for frames in said]
        self.loop.talk.turn(self.now, time.time())
        assert not self.said

    def settle(self) -> None:
        self.loop._settle(self.now)
        self.queue.note_handed_over()

    def lose(self, worker: bytes) -> None:
        """It is found gone."""
        self.wires.coming.append(Gone(worker, "it ended"))
        self.loop.talk.turn(self.now, time.time())
        self.said.clear()
        self.settle()

    def is_ready(self) -> bool:
        return self.exchange.pick("", self.now) is not None

    def deal(self) -> None:
        """All that can be dealt."""
        self.source.wake()
        while self.loop._deal(self.now):
            self.settle()

    def dealt(self) -> dict[str, bytes]:
        """What roundrobin deals now: each document, and to whom."""
        before = len(self.wires.sent)
        self.deal()
        found = [(peer, decode(frames)) for peer, frames in self.wires.sent[before:]]
        documents = [(peer, said) for peer, said in found if said.key == wire.DOCUMENT]
        self._ids.update((said.args[1].decode(), said.id) for _, said in documents)
        return {said.args[1].decode(): peer for peer, said in documents}

    def answer(self, worker: bytes, docid: str, *args: bytes) -> None:
        """It is done (or what else is said), and its slot is free."""
        response = Said(wire.RESPONSE, self._ids[docid], args or (b"0", b"", b"out"))
        self.hear(worker, list(encode(response)))
        self.hear(worker, list(encode(Said(wire.EXEC, b"i", (wire.INCREMENT,)))))
        self.settle()

    @property
    def items(self) -> list[str]:
        return [name for name in self.listed("in") if name != "discarded"]

    def listed(self, directory: str) -> list[str]:
        found = (path.name for path in (self.bench.root / directory).iterdir())
        return sorted(name for name in found if name[0] != ".")


@pytest.fixture
def open_office(bench: "Bench") -> Iterator[Callable[[str], Office]]:
    opened: list[Office] = []

    def open_one(door: str) -> Office:
        opened.append(office := Office(bench, door))
        return office

    yield open_one
    for office in opened:
        office.close()


@pytest.mark.parametrize("door", DOORS)
def test_documents_that_were_dealt_to_workers_who_were_gone_are_not_charged(
    bench: "Bench", open_office: Callable[[str], Office], door: str
) -> None:
    office = open_office(door)
    workers = [b"worker-%d" % number for number in range(100)]
    for worker in workers:
        office.join(worker)
    assert office.is_ready()
    office.wires.away.update(workers)
    docids = sorted(f"d{number:02}" for number in range(50))
    for docid in docids:
        bench.put(f"in/{docid}.ready")
    office.deal()
    assert not office.is_ready()
    assert office.loop.at_hand == 0
    assert office.items == [f"{docid}.ready" for docid in docids]


# Beside a poison document


def test_document_that_has_failed_goes_alone_and_nothing_goes_behind_it(
    bench: "Bench", open_office: Callable[[str], Office]
) -> None:
    office = open_office("roundrobin")
    office.join(b"w")
    bench.put("in/bad.ready")
    assert office.dealt() == {"bad": b"w"}
    bench.put("in/slow.ready")
    assert office.dealt() == {"slow": b"w"}
    office.answer(b"w", "bad", b"1", b"it broke")
    assert "bad.failed" in office.items
    # The only worker has something in hand, and gets nothing new before it has nothing.
    bench.put("in/next.ready")
    assert office.dealt() == {}
    office.answer(b"w", "slow")
    assert office.dealt() == {"bad": b"w"}
    office.answer(b"w", "bad")
    assert office.dealt() == {"next": b"w"}


def test_others_go_on_while_a_document_waits_to_go_alone(
    bench: "Bench", open_office: Callable[[str], Office]
) -> None:
    office = open_office("roundrobin")
    for worker in (b"v", b"w"):
        office.join(worker)
    for docid in ("a", "b", "c", "d"):
        bench.put(f"in/{docid}.ready")
    holds = office.dealt()
    assert sorted(holds.values()) == [b"v", b"v", b"w", b"w"]
    office.answer(holds.pop("a"), "a", b"1", b"it broke")
    for docid in ("e", "f", "g"):
        bench.put(f"in/{docid}.ready")
    (busy,) = set(office.dealt().values())
    ((last, spared),) = [(docid, worker) for docid, worker in holds.items() if worker != busy]
    office.answer(spared, last)
    assert office.dealt() == {"a": spared}


def test_innocents_beside_a_poison_document_are_never_charged(
    bench: "Bench", open_office: Callable[[str], Office]
) -> None:
    """It ends each worker that it is given to; what was done beside it dies in the socket."""
    office = open_office("roundrobin")
    innocents = sorted(f"d{number}" for number in range(9))
    for docid in ("poison", *innocents):
        bench.put(f"in/{docid}.ready")
    lives = 0
    while office.items:
        lives += 1
        assert lives < 50
        worker = b"w%d" % lives
        office.join(worker)
        while "poison" not in (dealt := office.dealt()) and dealt:
            for docid in dealt:
                office.answer(worker, docid)
        office.lose(worker)
        assert not [name for name in office.items if name[0] == "d" and "failed" in name]
    assert office.listed("in/discarded") == ["poison", "poison.report.json"]
    assert office.listed("out") == [f"{docid}.ready" for docid in innocents]
    assert office.listed("in/.queuedriver/attempts") == []
