"""Of several services of one broker none holds the others."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from queuedriver.doors.broker import BrokerLoop
from queuedriver.doors.exchange import Exchange, Worker
from queuedriver.doors.requests import Requests
from queuedriver.doors.service_queue import ServiceQueue
from queuedriver.doors.words import Work
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.driving.plan import NAPS_BEFORE_LOADING
from queuedriver.driving.wake import Woken
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.openings import opened_with
from tests.unit.doors.test_broker_loop import Wires

if TYPE_CHECKING:
    from tests.conftest import Bench

SERVICES = ("full", "other")
SLOTS = 3
# Waits of a loop by which it has long been seen whether it is woken.
MANY = 200


class Plain(Exchange[Worker]):
    """A protocol without words."""

    worker = Worker

    def frames_of(self, worker: Worker, work: Work) -> tuple[bytes, ...]:
        return (work.payload,)


class House:
    """A broker's loop over two services, and one worker of both. Each output may hold one item."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.limits, self.exchange, tally = Limits(), Plain(), Tally()
        queues = [
            bench.open(f"{name}-out", queue=name, driver="b", salt=f"5a1{number}")
            for number, name in enumerate(SERVICES)
        ]
        found = opened_with(queues[0])
        found = found._replace(
            queues=queues, targets=tuple(target for one in queues for target in one.targets)
        )
        told = Options(max_output_items=1), 0, print
        self.loop = BrokerLoop(found, self.exchange, Wires(), self.limits, tally, *told)
        for name, queue in zip(SERVICES, queues, strict=True):
            whole = Queue(queue.directory)
            requests = Requests(whole, queue.mint, self.loop.talk.transport.send, durable=False)
            asked = name, queue, requests, self.exchange, tally, self.limits, 1000
            self.loop.sources.append(ServiceQueue(*asked))
        worker = self.exchange.join(b"worker", time.monotonic())
        assert worker is not None
        self.worker = worker
        worker.services, worker.slots = frozenset(SERVICES), SLOTS
        self.exchange.offer(worker, SLOTS, time.monotonic())

    def deal(self) -> list[str]:
        """Deal as long as somebody takes something; return what the worker has."""
        self.loop.look()
        while self.loop._deal(time.monotonic()):
            pass
        return [work.docid for work, _ in self.worker.in_hand.values()]

    def close(self) -> None:
        self.loop.waker.close()
        for source in self.loop.sources:
            source.close()
        self.limits.close()


@pytest.fixture
def house(bench: "Bench") -> Iterator[House]:
    house = House(bench)
    yield house
    house.close()


def test_what_goes_alone_and_has_no_room_keeps_no_worker_from_the_other_services(
    house: House,
) -> None:
    house.bench.put("full-out/old.ready")
    house.bench.put(f"full/{names.waiting_name('suspect', 1)}")
    for docid in ("a", "b", "c"):
        house.bench.put(f"other/{docid}.ready")
    assert sorted(house.deal()) == ["a", "b", "c"]


def test_what_goes_alone_and_has_room_has_a_worker_kept_for_it(house: House) -> None:
    house.bench.put("other/a.ready")
    assert house.deal() == ["a"]
    house.bench.put(f"full/{names.waiting_name('suspect', 1)}")
    house.bench.put("other/b.ready")
    for source in house.loop.sources:
        source.wake()
    assert house.deal() == ["a"]
    house.exchange.settle(house.worker, *house.worker.in_hand)
    assert house.deal() == ["suspect"]


def test_broker_of_which_one_output_is_full_is_not_woken_by_each_document_of_it(
    house: House,
) -> None:
    house.bench.put("full-out/old.ready")
    sleep, woken = house.loop.waker.wait, list[Woken]()

    def wait(seconds: float) -> Woken:
        house.bench.put(f"full/doc{len(woken)}.ready")
        woken.append(sleep(min(seconds, 0.01)))
        # By then it would watch its inputs, if it ever did.
        if house.loop._idle_turns > NAPS_BEFORE_LOADING or len(woken) == MANY:
            house.limits.leave("quit", "enough was seen")
        return woken[-1]

    house.loop.waker.wait = wait  # type: ignore[method-assign]
    house.loop.begin()
    assert house.loop.run().why == "enough was seen"
    assert {*woken} <= {"timeout", "signal"}
    assert house.loop._idle_turns > NAPS_BEFORE_LOADING
