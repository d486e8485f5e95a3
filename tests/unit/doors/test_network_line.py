"""What waits for a broker: requests and documents as they came, whatever their number."""

import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import Observer
from queuedriver.doors.broker import OtherBrokers
from queuedriver.doors.line import Line
from queuedriver.format import names
from queuedriver.format.records import Registration

if TYPE_CHECKING:
    from tests.conftest import Bench


@pytest.fixture
def queue(bench: "Bench") -> InputQueue:
    return bench.open(driver="b")


def drain(bench: "Bench", line: Line, most: int = 1000) -> list[str]:
    """Claim whatever is given, up to so many; an old listing may have what is no more."""
    found: list[str] = []
    while len(found) < most and line.fill(time.monotonic()):
        name = line.next()
        item = names.parse(name or "")
        assert name is not None
        assert item is not None
        path = bench.root / "in" / name
        if path.exists():
            path.unlink()
            found.append(item.docid)
    return found


def submit(bench: "Bench", *docids: str) -> None:
    for docid in docids:
        bench.put(f"in/{docid}.ready")


def test_each_document_is_given_once_however_many_wait(bench: "Bench", queue: InputQueue) -> None:
    docids = [f"d{number:03}" for number in range(300)]
    submit(bench, *docids)
    line = Line(queue)
    assert sorted(drain(bench, line)) == docids
    assert line.next() is None


def test_only_a_few_are_listed_ahead(bench: "Bench", queue: InputQueue) -> None:
    submit(bench, *(f"d{number:03}" for number in range(300)))
    line = Line(queue)
    line.fill(time.monotonic())
    assert len(line) < 100


def test_requests_are_behind_what_was_there_before_them_and_in_their_order(
    bench: "Bench", queue: InputQueue
) -> None:
    submit(bench, "before")
    line = Line(queue)
    line.fill(time.monotonic())
    for docid in ("request-1", "request-2"):
        submit(bench, docid)
        line.join(docid)
    submit(bench, "after")
    assert drain(bench, line) == ["before", "request-1", "request-2", "after"]


def test_queue_of_nothing_but_requests_that_wait_is_gone_through_once(
    bench: "Bench", queue: InputQueue
) -> None:
    line = Line(queue)
    for number in range(100):
        submit(bench, f"request-{number:03}")
        line.join(f"request-{number:03}")
    assert line.fill(time.monotonic())
    assert len(line) == 100
    assert drain(bench, line) == [f"request-{number:03}" for number in range(100)]


def test_documents_are_listed_though_requests_never_cease(
    bench: "Bench", queue: InputQueue
) -> None:
    line = Line(queue)
    submit(bench, "doc")
    seen: list[str] = []
    for number in range(20):
        submit(bench, f"request-{number}")
        line.join(f"request-{number}")
        seen += drain(bench, line, most=1)
    assert "doc" in seen


def test_item_that_is_put_back_is_first_again_and_not_listed_twice(
    bench: "Bench", queue: InputQueue
) -> None:
    submit(bench, "one", "two")
    line = Line(queue)
    line.fill(time.monotonic())
    first = line.next()
    assert first is not None
    line.put_back(first)
    assert sorted(drain(bench, line)) == ["one", "two"]
    line.restart()
    submit(bench, "one")
    line.fill(time.monotonic())
    again = line.next()
    assert again is not None
    line.put_back(again)
    line.wake()
    assert line.fill(time.monotonic())
    assert drain(bench, line) == ["one"]


def test_empty_queue_is_not_listed_again_at_once_unless_something_may_have_come(
    bench: "Bench", queue: InputQueue
) -> None:
    line = Line(queue)
    now = time.monotonic()
    assert not line.fill(now)
    submit(bench, "doc")
    assert not line.fill(now)
    line.wake()
    assert line.fill(now)
    line.restart()
    assert len(line) == 0
    # And in any case after a while.
    take_none = Line(queue)
    (bench.root / "in/doc.ready").unlink()
    assert not take_none.fill(now)
    submit(bench, "doc")
    assert take_none.fill(now + 2)


def test_request_is_left_to_the_broker_its_client_is_with_while_that_lives(
    bench: "Bench", queue: InputQueue
) -> None:
    other = Registration(
        id="other", salt="1111", identity=Observer().me, started_at=0.0, beat=1, broker=True
    )
    queue.drivers.write_aside("other.json", msgspec.json.encode(other))
    theirs = "request-other-00066093b041f96b61"
    ours = "request-b-00066093b041f96b61"
    of_one_that_died = "request-gone-00066093b041f96b61"
    submit(bench, theirs, ours, of_one_that_died, "doc")
    line = Line(queue, OtherBrokers(queue, "b").have)
    assert sorted(drain(bench, line)) == sorted([ours, of_one_that_died, "doc"])
    queue.drivers.remove("other.json")
    assert drain(bench, Line(queue, OtherBrokers(queue, "b").have)) == [theirs]
