"""Brokers and workers that are killed, or stand still: nothing lost, nothing twice.

`python -m tests.network.kills PROTOCOL --kills 100` kills more.
"""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.network.doors import WITH_ZEROMQ, Doors, answer, open_doors
from tests.network.kills import Kills, Orders, figures
from tests.waiting import until

# Brokers that are killed: most of the time workers wait to notice. A campaign kills a hundred each.
KILLS = {"pingpong": 2, "roundrobin": 2, "scale0": 2, "fuq": 2}
# With workers, over each of the transports.
WITH_WORKERS = {"pingpong": 1, "fuq": 1}


@pytest.fixture(params=WITH_ZEROMQ)
def doors(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Doors]:
    with open_doors(tmp_path, str(request.param)) as doors:
        yield doors


@pytest.mark.parametrize("protocol", KILLS)
def test_broker_that_is_killed_again_and_again_loses_doubles_and_charges_nothing(
    tmp_path: Path, protocol: str
) -> None:
    orders = Orders(protocol, kills=KILLS[protocol])
    outcome = Kills(orders, tmp_path).run()
    assert not outcome.complaints, "\n".join(figures(orders, outcome))
    assert not outcome.discarded
    # It was killed while it had dealt, and those were given back.
    assert outcome.events["released"]


@pytest.mark.parametrize("protocol", WITH_WORKERS)
def test_document_is_once_in_the_output_or_lost_two_workers_when_both_sides_are_killed(
    tmp_path: Path, protocol: str
) -> None:
    orders = Orders(protocol, kills=WITH_WORKERS[protocol], workers_too=True)
    outcome = Kills(orders, tmp_path).run()
    assert not outcome.complaints, "\n".join(figures(orders, outcome))
    assert outcome.workers_killed == WITH_WORKERS[protocol]


# One document


def test_worker_that_disappears_costs_its_document_one_attempt_and_the_next_one_discards_it(
    doors: Doors,
) -> None:
    doors.bring("doc")
    broker = doors.broker()
    for attempt in (0, 1):
        worker = doors.worker_that_holds()
        until(partial(_holds, doors, worker.pid), "it has the document")
        assert doors.states() == {"doc": "working 1" if attempt else "working"}
        worker.kill()
    # The report appears a moment later than the document in discarded/.
    until((doors.root / "in/discarded/doc.report.json").exists, "the document is discarded")
    attempts = doors.report("doc").attempts
    assert [one.failure.cause for one in attempts] == ["worker-lost"] * 2
    assert [one.attempt for one in attempts if one.counted] == [0, 1]
    # Nobody else is blamed: the next document is done by the next worker.
    doors.bring("next")
    doors.open_gate()
    doors.worker()
    doors.wait_for_outputs(1)
    broker.signal()
    assert broker.ended() == 0
    assert doors.account() == []
    assert doors.files() == {"next.ready": answer(b"next")}


def test_broker_that_dies_charges_nobody_and_the_late_result_of_its_document_is_dropped(
    doors: Doors,
) -> None:
    doors.bring("doc")
    first = doors.broker(retries=0)
    slow = doors.worker_that_holds()
    until(lambda: doors.who_holds("doc"), "a worker has the document")
    first.kill()
    broker = doors.broker(retries=0)
    # The next broker deals it to somebody else; only then the first result comes.
    doors.worker()
    doors.wait_for_outputs(1)
    doors.bring("go-on")
    doors.open_gate()
    doors.wait_until_empty()
    _is_listed_again(doors, slow.pid)
    broker.signal()
    assert broker.ended() == 0
    assert doors.account() == []
    assert doors.discarded() == []


def test_worker_that_stood_still_beyond_the_time_out_brings_a_result_that_is_dropped(
    doors: Doors,
) -> None:
    doors.bring("doc")
    broker = doors.broker(job_timeout=0.5, retries=20)
    slow = doors.worker_that_holds()
    until(lambda: doors.who_holds("doc"), "a worker has the document")
    slow.signal(signal.SIGSTOP)
    other = doors.worker()
    doors.wait_for_outputs(1)
    other.kill()
    doors.open_gate()
    slow.signal(signal.SIGCONT)
    _is_listed_again(doors, slow.pid)
    broker.signal()
    assert broker.ended() == 0
    assert doors.account() == []
    assert doors.discarded() == []
    said = [one.message or "" for one in doors.events("doc") if one.event == "failed"]
    assert "overdue" in said[0]


def _holds(doors: Doors, pid: int) -> bool:
    return pid in doors.who_holds("doc")


def _is_listed_again(doors: Doors, pid: int) -> None:
    """A worker that was given up is dealt to, once its old result has come."""
    number = 0

    def took_one() -> bool:
        nonlocal number
        if not doors.items():
            number += 1
            doors.bring(f"again-{number}")
        return any(pid in doors.who_holds(f"again-{one}") for one in range(1, number + 1))

    until(took_one, "it is dealt to again")
    doors.wait_until_empty()
