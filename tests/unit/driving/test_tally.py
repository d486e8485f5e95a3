"""What a driver says it spent its time on, and when it has done enough."""

import threading
import time

import pytest

from queuedriver.driving.tally import Recycling, Tally, resident_memory
from queuedriver.options import Options


def test_every_moment_is_booked_once() -> None:
    began_at = time.perf_counter_ns()
    tally = Tally()
    tally.worked(0, 1)
    tally.paused(blocked=False)
    tally.paused(blocked=True)
    tally.worked(0, 2)
    passed = time.perf_counter_ns() - began_at
    work, wait, block, overhead, documents = tally._sums
    assert work + wait + block + overhead <= passed
    assert min(work, wait, block, overhead) >= 0
    assert documents == tally.documents == 3


def test_what_was_not_work_in_a_turn_is_overhead() -> None:
    tally = Tally()
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        pass
    tally.worked(15_000_000, 1)
    counters = tally.counters()
    assert counters.work == 15
    assert counters.overhead >= 5
    assert (counters.wait, counters.block) == (0, 0)


def test_loading_is_no_overhead() -> None:
    tally = Tally()
    time.sleep(0.02)
    started_at = time.perf_counter_ns()
    tally.start()
    tally.worked(0, 0)
    assert sum(tally._sums) <= time.perf_counter_ns() - started_at


def test_counters_are_never_read_in_the_middle_of_a_turn() -> None:
    tally = Tally()
    stop = threading.Event()
    torn = []

    def read() -> None:
        while not stop.is_set():
            counters = tally.counters()
            # Each turn books a second of work and one document.
            if counters.work != counters.documents * 1000:
                torn.append(counters)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(20_000):
            tally.worked(1_000_000_000, 1)
    finally:
        stop.set()
        reader.join()
    assert torn == []


def test_what_went_wrong_is_counted_beside() -> None:
    tally = Tally()
    tally.failed, tally.discarded, tally.lost_races = 3, 1, 7
    counters = tally.counters()
    assert (counters.failed, counters.discarded, counters.lost_races) == (3, 1, 7)


# Recycling


def test_a_driver_without_limits_goes_on_for_ever() -> None:
    recycling = Recycling(Options(), now=0.0)
    assert recycling.due(1e9, 10**9) == ""


@pytest.mark.parametrize("wanted", [1, 2, 100])
def test_recycling_after_so_many_documents_is_spread_by_a_tenth(wanted: int) -> None:
    for _ in range(50):
        recycling = Recycling(Options(max_documents=wanted), now=0.0)
        few, many = int(wanted * 0.9) - 1, int(wanted * 1.1) + 1
        assert recycling.due(0.0, max(few, 0)) == ""
        assert recycling.due(0.0, many) == f"it has done {many} documents"


def test_drivers_that_started_together_do_not_end_together() -> None:
    ends = set()
    for _ in range(20):
        recycling = Recycling(Options(max_documents=10_000), now=0.0)
        ends.add(next(done for done in range(8000, 12_000, 10) if recycling.due(0.0, done)))
    assert len(ends) > 5


def test_recycling_at_an_age_is_spread_by_a_tenth() -> None:
    for _ in range(50):
        recycling = Recycling(Options(max_age=1000.0), now=50.0)
        assert recycling.due(50.0 + 899.0, 0) == ""
        assert recycling.due(50.0 + 1101.0, 0) == "it has reached its age"


def test_recycling_by_memory_goes_by_what_is_in_use() -> None:
    assert Recycling(Options(max_memory=resident_memory() * 4), now=0.0).due(0.0, 0) == ""
    recycling = Recycling(Options(max_memory=1 << 20), now=0.0)
    assert recycling.due(0.0, 0).endswith("MiB of memory")
    # Looked at but once a second: it costs more than a short document.
    assert recycling.due(0.5, 0) == ""
    assert recycling.due(1.5, 0) != ""
