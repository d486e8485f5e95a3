"""What waits for a broker: requests and documents as they came, whatever their number."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from queuedriver.claims.liveness import Observer
from queuedriver.claims.outcomes import Failed, Released
from queuedriver.doors.exchange import Exchange, Worker
from queuedriver.doors.requests import Requests
from queuedriver.doors.service_queue import ServiceQueue
from queuedriver.doors.words import Answer, Request
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.format.records import Failure, Registration
from queuedriver.operating.queue import Queue
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.conftest import Bench

ASKED = Request(b"client/1", (b"ask",))


class Refusing(Exchange[Worker]):
    """It tells clients what is not done, and why."""

    worker = Worker

    def refusal(self, request: Request, why: str, *, late: bool = False) -> Answer:
        return Answer(b"client", (b"late" if late else b"discarded", why.encode()))


class Counter:
    """A service's queue, and what its clients are sent."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.queue = bench.open(driver="b")
        self.limits, self.exchange = Limits(), Refusing()
        self.sent: list[tuple[bytes, tuple[bytes, ...]]] = []
        requests = Requests(Queue(self.queue.directory), self.queue.mint, self.send, durable=False)
        requests.load(0.0)
        self.source = ServiceQueue(
            "", self.queue, requests, self.exchange, Tally(), self.limits, 1000
        )

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        self.sent.append((peer, frames))
        return True

    def close(self) -> None:
        self.source.close()
        self.limits.close()

    def drain(self, most: int = 1000, now: float | None = None) -> list[str]:
        """Take what is given, up to so many, and finish it."""
        found: list[str] = []
        now = time.monotonic() if now is None else now
        while len(found) < most and (heads := self.source.heads(now)):
            work = self.source.take(heads[0], now)
            if work is not None:
                found.append(work.docid)
                (self.bench.root / "in" / self.source.dealt.pop(work.claim).claim.name).unlink()
        return found


@pytest.fixture
def counter(bench: "Bench") -> Iterator[Counter]:
    counter = Counter(bench)
    yield counter
    counter.close()


def submit(bench: "Bench", *docids: str) -> None:
    for docid in docids:
        bench.put(f"in/{docid}.ready")


def test_each_document_is_given_once_however_many_wait(bench: "Bench", counter: Counter) -> None:
    docids = [f"d{number:03}" for number in range(300)]
    submit(bench, *docids)
    assert sorted(counter.drain()) == docids
    assert counter.source.heads(time.monotonic()) == ()


def test_wait_of_what_is_dealt_is_counted_where_anybody_reads_it(
    bench: "Bench", counter: Counter, tmp_path: Path
) -> None:
    submit(bench, "a", "b", "c")
    with closing(Board.create(str(tmp_path / "board"))) as board:
        tally = counter.source._tally = Tally(board)
        counter.drain()
        tally.ended()
        waits = board.read().counted.waits
    assert sum(waits.counts) == 3
    assert 0 < waits.total < PATIENCE * 1e9


def test_only_a_few_are_listed_ahead(bench: "Bench", counter: Counter) -> None:
    submit(bench, *(f"d{number:03}" for number in range(300)))
    now = time.monotonic()
    # As fast as they come, they are taken many at a time.
    counter.drain(100, now)
    counter.source.heads(now)
    assert counter.source._listed < 200


def test_requests_are_behind_what_was_there_before_them_and_in_their_order(
    bench: "Bench", counter: Counter
) -> None:
    submit(bench, "before")
    now = time.monotonic()
    counter.source.heads(now)
    for number in (1, 2):
        assert counter.source.ask(Request(b"client/%d" % number, ()), now) == ""
    submit(bench, "after")
    before, *asked, after = counter.drain()
    assert (before, after) == ("before", "after")
    assert len(asked) == 2
    assert asked == sorted(asked)


def test_queue_of_nothing_but_requests_that_wait_is_gone_through_once(counter: Counter) -> None:
    now = time.monotonic()
    for number in range(100):
        counter.source.ask(Request(b"client/%d" % number, ()), now)
    assert counter.source.heads(now)
    found = counter.drain()
    assert found == sorted(found)
    assert len(found) == 100


def test_documents_are_listed_though_requests_never_cease(bench: "Bench", counter: Counter) -> None:
    submit(bench, "doc")
    seen: list[str] = []
    for number in range(20):
        counter.source.ask(Request(b"client/%d" % number, ()), 0.0)
        seen += counter.drain(1)
    assert "doc" in seen


def test_empty_queue_is_not_listed_again_at_once_unless_something_may_have_come(
    bench: "Bench", counter: Counter
) -> None:
    now = time.monotonic()
    assert not counter.source.heads(now)
    submit(bench, "doc")
    assert not counter.source.heads(now)
    counter.source.wake()
    assert counter.source.heads(now)
    counter.source.clean()
    (bench.root / "in/doc.ready").unlink()
    assert not counter.source.heads(now)
    # And in any case after a while.
    submit(bench, "doc")
    assert not counter.source.heads(now)
    assert counter.source.heads(now + 2)


def test_request_is_left_to_the_broker_its_client_is_with_while_that_lives(
    bench: "Bench", counter: Counter
) -> None:
    other = Registration(
        id="other", salt="1111", identity=Observer().me, started_at=0.0, beat=1, broker=True
    )
    counter.queue.drivers.write_aside("other.json", msgspec.json.encode(other))
    theirs = "request-other-00066093b041f96b61"
    ours = "request-b-00066093b041f96b61"
    of_one_that_died = "request-gone-00066093b041f96b61"
    submit(bench, theirs, ours, of_one_that_died, "doc")
    assert sorted(counter.drain()) == sorted([ours, of_one_that_died, "doc"])
    counter.queue.drivers.remove("other.json")
    now = time.monotonic() + 10
    counter.source.turn(now)
    counter.source.wake()
    assert counter.drain(now=now) == [theirs]


# Clients that are not served


def test_request_that_no_worker_takes_in_time_is_finished_and_its_client_told(
    bench: "Bench", counter: Counter
) -> None:
    counter.exchange.request_patience = 5.0
    counter.source.ask(ASKED, 100.0)
    counter.source.turn(104.0)
    assert counter.sent == []
    assert counter.source.next_turn_at() == 105.0
    counter.source.turn(105.0)
    late = (b"client", (b"late", b"no worker came in time"))
    assert (counter.sent, bench.ls()) == ([late], [])
    assert counter.source.heads(105.0) == ()
    assert counter.source.next_turn_at() is None
    # Whoever asks again has it tried again.
    counter.source.ask(ASKED, 106.0)
    assert counter.sent == [late]
    assert len(counter.source.heads(106.0)) == 1


def test_request_that_a_worker_has_is_not_late_and_waits_anew_when_it_is_given_back(
    counter: Counter,
) -> None:
    counter.exchange.request_patience = 5.0
    counter.source.ask(ASKED, 100.0)
    (head,) = counter.source.heads(101.0)
    work = counter.source.take(head, 101.0)
    assert work is not None
    counter.source.turn(200.0)
    assert counter.sent == []
    counter.source.end(work.claim, Released("its worker left"), 200.0)
    counter.source.turn(204.0)
    counter.source.heads(204.0)
    assert counter.sent == []
    counter.source.turn(206.0)
    assert [peer for peer, _ in counter.sent] == [b"client"]


def test_client_whose_request_is_discarded_is_told_so(bench: "Bench", counter: Counter) -> None:
    counter.source.ask(ASKED, 0.0)
    failed = Failed(Failure(cause="exit", message="it is broken\nat length", permanent=True))
    (head,) = counter.source.heads(0.0)
    work = counter.source.take(head, 0.0)
    assert work is not None
    counter.source.end(work.claim, failed, 1.0)
    assert counter.sent == [(b"client", (b"discarded", b"it is broken"))]
    assert bench.ls() == []
    assert not counter.source.dealt


def test_request_that_failed_once_is_tried_again_before_its_client_is_told(
    counter: Counter,
) -> None:
    counter.source.ask(ASKED, 0.0)
    for attempt in (0, 1):
        assert counter.sent == []
        (head,) = counter.source.heads(float(attempt))
        work = counter.source.take(head, float(attempt))
        assert work is not None
        assert (work.attempt, work.alone) == (attempt, attempt > 0)
        counter.source.end(work.claim, Failed(Failure(cause="exit", message="no")), 1.0)
    assert counter.sent == [(b"client", (b"discarded", b"no"))]


def test_request_too_many_is_refused_and_one_that_is_repeated_is_not(
    bench: "Bench", counter: Counter
) -> None:
    counter.exchange.max_requests = 1
    assert counter.source.ask(ASKED, 0.0) == ""
    assert counter.source.ask(Request(b"client/2", ()), 0.0)
    assert counter.sent == [(b"client", (b"late", b"too many requests wait"))]
    # For this one nobody waits.
    assert counter.source.ask(Request(b"client/3", (), answered=False), 0.0)
    assert len(counter.sent) == 1
    assert counter.source.ask(ASKED, 0.0) == ""
    assert len(bench.ls()) == 1
    # There is room again.
    counter.exchange.max_requests = 2
    assert counter.source.ask(Request(b"client/2", ()), 0.0) == ""
    assert len(bench.ls()) == 2
