"""Queues joined: what comes out of one goes into the next, and so does the news that it is done."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.driving.closing import FED
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from tests.drivers import Running, Site
from tests.processors import append, doze, gate, judge, shout
from tests.waiting import until

DOCUMENTS = 90


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        for name in ("in", "first", "second", "end", "left", "right"):
            site.queue(name)
        yield site


def close(site: Site, name: str = "in") -> None:
    with Queue.open(site.queue(name)) as queue:
        queue.set_control(names.DONE, wanted=True)


def is_done(site: Site, name: str) -> bool:
    return (site.queue(name) / names.DONE).exists()


def feeds(site: Site, name: str) -> int:
    with Queue.open(site.queue(name)) as queue:
        return len(queue.feeds())


def chain(site: Site, drivers: int) -> list[Running]:
    stages = [("in", "first"), ("first", "second"), ("second", "end")]
    return [
        site.start(append, inputs=source, outputs=target, driver=f"{source}-{number}")
        for source, target in stages
        for number in range(drivers)
    ]


@pytest.mark.quick
def test_documents_go_through_three_stages_and_done_follows_the_last(site: Site) -> None:
    drivers = chain(site, drivers=2)
    until(lambda: feeds(site, "end"), "all stages are joined")
    docids = [f"doc-{number}" for number in range(DOCUMENTS)]
    site.submit(*docids, content=b"")
    assert not is_done(site, "first")
    close(site)
    ends = [driver.ended() for driver in drivers]
    assert {(ended.exit_code, ended.word) for ended in ends} == {(0, "done")}
    assert sum(ended.counters.documents for ended in ends) == 3 * DOCUMENTS
    wanted = {f"{docid}.ready": b"in first second " for docid in docids}
    assert site.files("end") == {**wanted, "done": FED}
    assert [site.items(name) for name in ("in", "first", "second")] == [[], [], []]


def test_a_stage_is_not_done_while_a_document_is_at_hand_before_it(site: Site) -> None:
    site.submit("one")
    slow = site.start(gate, outputs="first")
    site.wait_at("one")
    close(site)
    # Another driver of the stage sees nothing left to claim, and waits for the one that has it.
    other = site.start(shout, outputs="first")
    last = site.start(shout, inputs="first", outputs="end")
    until(lambda: feeds(site, "end"), "the last stage runs")
    assert not is_done(site, "first")
    site.open_gate()
    assert [one.ended().word for one in (slow, other, last)] == ["done"] * 3
    assert site.files("end") == {"one.ready": b"SOME TEXT", "done": FED}


def test_a_driver_that_dies_in_the_middle_holds_the_end_up_and_loses_nothing(site: Site) -> None:
    site.submit("one", "two")
    first = site.start(gate, driver="a", outputs="first")
    last = site.start(shout, inputs="first", outputs="end")
    until(lambda: site.states().values() and "working" in site.states().values(), "it is claimed")
    close(site)
    first.kill()
    site.open_gate()
    second = site.start(gate, driver="b", outputs="first")
    assert [one.ended().word for one in (second, last)] == ["done"] * 2
    assert site.files("end") == {
        "one.ready": b"SOME TEXT",
        "two.ready": b"SOME TEXT",
        "done": FED,
    }


def test_a_queue_of_two_feeds_is_done_when_both_are(site: Site) -> None:
    site.submit("one", queue="left")
    site.submit("two", queue="right")
    left = site.start(shout, inputs="left", outputs="end")
    right = site.start(gate, inputs="right", outputs="end")
    site.wait_at("two")
    until(lambda: feeds(site, "end") == 2, "both are known to feed it")
    close(site, "left")
    assert left.ended().word == "done"
    assert not is_done(site, "end")
    close(site, "right")
    site.open_gate()
    assert right.ended().word == "done"
    assert is_done(site, "end")
    assert len(site.files("end")) == 3


def test_a_document_given_up_before_the_end_holds_nothing_up(site: Site) -> None:
    site.submit("bad", "good")
    first = site.start(judge, outputs="first")
    last = site.start(doze, inputs="first", outputs="end")
    until(lambda: feeds(site, "end"), "both run")
    close(site)
    assert [one.ended().word for one in (first, last)] == ["done"] * 2
    assert site.discarded() == ["bad"]
    assert site.files("end") == {"good.ready": b"attempt 0: attempt 0", "done": FED}
