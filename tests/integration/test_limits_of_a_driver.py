"""How long a document may take, and how long a driver may live."""

import functools
import os
import time

import pytest
from msgspec.structs import replace

from queuedriver.driving.lifetime import LEAVING_TAKES
from queuedriver.format.records import encode_lines
from tests.drivers import Site
from tests.processors import count, doze, dribble, gate, judge, judge_all, leak, shout, stall
from tests.waiting import until


@pytest.mark.parametrize("docid", ["hang", "stubborn"])
def test_a_document_that_takes_too_long_is_charged_and_its_driver_goes_on(
    site: Site, docid: str
) -> None:
    site.submit(docid, "good")
    # As long as nothing that is to be done in time takes on a busy machine.
    ended = site.drive(judge, timeout=1.0)
    assert (ended.exit_code, ended.counters.documents, ended.counters.failed) == (1, 1, 2)
    assert site.files() == {"good.ready": b"attempt 0"}
    report = site.report(docid)
    assert [one.failure.cause for one in report.attempts] == ["timeout", "timeout"]
    assert report.failure.stacks is not None
    assert "time.sleep(_AGES)" in report.failure.stacks


def test_an_answer_that_takes_too_long_is_charged_and_leaves_no_part_of_it(site: Site) -> None:
    site.submit("one")
    assert site.drive(dribble, timeout=0.2).exit_code == 1
    assert site.files() == {}
    assert [one.failure.cause for one in site.report("one").attempts] == ["timeout", "timeout"]


def _leave_stacks_in(directory: str) -> None:
    os.environ["XDG_RUNTIME_DIR"] = directory


@pytest.mark.parametrize(("docid", "culprit"), [("gil", "_hold_gil"), ("immortal", "judge")])
def test_a_document_that_nothing_stops_ends_its_driver_and_is_charged(
    site: Site, tmp_path_factory: pytest.TempPathFactory, docid: str, culprit: str
) -> None:
    # Of this test alone: other drivers of this host leave theirs elsewhere.
    runtime = tmp_path_factory.mktemp("runtime")
    alone = functools.partial(_leave_stacks_in, str(runtime))
    site.submit(docid)
    # Twice by its hard limit, which no code can hold off; then nothing is left.
    for driver in ("first", "second"):
        ended = site.drive(judge, driver=driver, timeout=0.5, hard_after=0.2, prepare=alone)
        assert ended.exit_code == 1
    assert list(runtime.rglob("*.stacks"))
    # With more time than anything takes on a busy machine.
    site.submit("good")
    assert site.drive(judge, driver="first", prepare=alone).exit_code == 0
    assert site.files() == {"good.ready": b"attempt 0"}
    report = site.report(docid)
    assert [one.failure.cause for one in report.attempts] == ["hung", "hung"]
    assert report.failure.stacks is not None
    assert culprit in report.failure.stacks
    assert {one.driver for one in report.attempts} == {"first", "second"}
    assert not list(runtime.rglob("*.stacks"))


def test_a_document_whose_driver_was_ended_amid_a_call_to_its_file_system_is_not_charged(
    site: Site,
) -> None:
    site.submit("one")
    assert site.drive(stall, driver="first", timeout=0.5, hard_after=0.2).exit_code == 1
    assert site.drive(count, driver="second").exit_code == 0
    assert site.files() == {"one.ready": b"attempt 0"}


def test_a_driver_that_is_idle_for_longer_than_its_limits_is_not_a_hung_one(site: Site) -> None:
    site.submit("good")
    driver = site.start(judge, timeout=0.8, hard_after=0.1)
    until(site.files, "it is done")
    # It may live for a quarter longer than both.
    with pytest.raises(AssertionError, match="has not ended"):
        driver.ended(timeout=1.5)
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")


def test_a_driver_leaves_after_so_many_documents_to_be_started_anew(site: Site) -> None:
    site.submit(*(f"doc-{number}" for number in range(100)))
    ended = site.drive(doze, max_documents=20)
    assert ended[:2] == (0, "recycled")
    # Spread by a tenth, so that drivers started together do not all leave together.
    assert 18 <= ended.counters.documents <= 22
    assert len(site.items()) == 100 - ended.counters.documents


def test_documents_are_counted_however_short_they_are(site: Site) -> None:
    site.submit(*(f"doc-{number}" for number in range(200)))
    ended = site.drive(shout, max_documents=10)
    assert ended.counters.documents <= 11


def test_a_driver_leaves_at_its_age(site: Site) -> None:
    site.submit("one", "two")
    driver = site.start(gate, max_age=2.0, drain=True)
    until(lambda: list(site.root.glob("at-*")), "it has begun")
    # Its age is spread by a tenth.
    time.sleep(2.3)
    site.open_gate()
    ended = driver.ended()
    assert ended[:3] == (0, "recycled", "it has reached its age")
    assert ended.counters.documents == len(site.items()) == 1


# A driver that is to be gone by some instant


def took(site: Site, *seconds: float) -> None:
    """Have a journal say what documents took so far."""
    site.submit("before")
    site.drive(shout, driver="before")
    (journal,) = site.root.glob("in/.queuedriver/journal/before.jsonl")
    event = site.events("before")[-1]
    journal.write_bytes(encode_lines([replace(event, seconds=one) for one in seconds]))


def by(left: float) -> float:
    """Return an instant before which a driver may work for so long."""
    return time.time() + LEAVING_TAKES + left


@pytest.mark.parametrize("batch", [1, 4])
def test_nothing_is_claimed_that_would_not_be_done_in_time(site: Site, batch: int) -> None:
    took(site, *[100.0] * 10)
    site.submit("one")
    ended = site.start(shout, batch=batch, until=by(90.0)).ended()
    assert ended[:2] == (0, "out-of-time")
    assert ended.why.endswith(", and a document may take 1 min 40 s")
    assert site.states() == {"one": "ready"}
    assert site.events("one") == []
    # Who waits for the end of the queue is told that there is more.
    assert site.drive(shout, batch=batch, until=by(90.0))[:2] == (75, "out-of-time")


def test_what_fits_is_done_and_a_few_giants_keep_nothing_from_it(site: Site) -> None:
    took(site, *[1.0] * 95, *[7200.0] * 5)
    site.submit("one", "two")
    assert site.drive(shout, until=by(600.0))[:2] == (0, "drained")


def test_first_documents_are_claimed_as_long_as_more_than_the_grace_is_left(site: Site) -> None:
    site.submit("one")
    ended = site.drive(shout, until=by(100.0), grace=300.0, timeout=150.0)
    assert ended[:2] == (75, "out-of-time")
    assert site.drive(shout, until=by(100.0), grace=10.0, timeout=7200.0)[:2] == (0, "drained")


def test_no_more_is_claimed_at_once_than_is_done_in_time_one_after_the_other(site: Site) -> None:
    took(site, *[100.0] * 10)
    site.submit(*(f"doc-{number}" for number in range(8)))
    site.drive(judge_all, batch=8, until=by(350.0))
    called = [len(one.read_text().split()) for one in site.root.glob("called-*")]
    assert sorted(called) == [2, 3, 3]


def test_an_idle_driver_leaves_before_its_time_ends(site: Site) -> None:
    site.queue()
    assert site.start(shout, until=by(0.3), grace=0.0).ended()[:2] == (0, "out-of-time")


def test_a_driver_whose_time_is_up_claims_nothing(site: Site) -> None:
    site.submit("one")
    ended = site.start(shout, until=time.time() - 1.0).ended()
    assert ended[:2] == (0, "out-of-time")
    assert site.states() == {"one": "ready"}


def test_a_driver_that_uses_too_much_memory_leaves_between_two_documents(site: Site) -> None:
    # So many because the longer a look takes, the more seldom it is taken.
    site.submit(*(f"doc-{number}" for number in range(1000)))
    ended = site.drive(leak, outputs="", max_memory=300 << 20)
    assert ended[:2] == (0, "recycled")
    assert ended.why.endswith("MiB of memory")
    assert 0 < ended.counters.documents < 1000
    assert {item.state for item in site.items()} == {"ready"}
