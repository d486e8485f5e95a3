"""How long a document may take, and how long a driver may live."""

import os

import pytest

from queuedriver.disk.runtime import runtime_directory
from tests.drivers import Site
from tests.processors import count, doze, dribble, judge, leak, shout, stall


@pytest.mark.parametrize("docid", ["hang", "stubborn"])
def test_a_document_that_takes_too_long_is_charged_and_its_driver_goes_on(
    site: Site, docid: str
) -> None:
    site.submit(docid, "good")
    ended = site.drive(judge, timeout=0.2)
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


@pytest.mark.parametrize(("docid", "culprit"), [("gil", "_hold_gil"), ("immortal", "judge")])
def test_a_document_that_nothing_stops_ends_its_driver_and_is_charged(
    site: Site, monkeypatch: pytest.MonkeyPatch, docid: str, culprit: str
) -> None:
    # Of this test alone: other drivers of this host leave theirs elsewhere.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(site.root))
    before = os.listdir(runtime_directory())
    site.submit(docid)
    # Twice by its hard limit, which no code can hold off; then nothing is left.
    for driver in ("first", "second"):
        ended = site.drive(judge, driver=driver, timeout=0.2, hard_after=0.2)
        assert ended.exit_code == 1
    # With more time than anything takes on a busy machine.
    site.submit("good")
    assert site.drive(judge, driver="first").exit_code == 0
    assert site.files() == {"good.ready": b"attempt 0"}
    report = site.report(docid)
    assert [one.failure.cause for one in report.attempts] == ["hung", "hung"]
    assert report.failure.stacks is not None
    assert culprit in report.failure.stacks
    assert {one.driver for one in report.attempts} == {"first", "second"}
    assert os.listdir(runtime_directory()) == before


def test_a_document_whose_driver_was_ended_amid_a_call_to_its_file_system_is_not_charged(
    site: Site,
) -> None:
    site.submit("one")
    assert site.drive(stall, driver="first", timeout=0.2, hard_after=0.2).exit_code == 1
    assert site.drive(count, driver="second").exit_code == 0
    assert site.files() == {"one.ready": b"attempt 0"}


def test_a_driver_that_is_idle_for_longer_than_its_limits_is_not_a_hung_one(site: Site) -> None:
    site.submit("good")
    driver = site.start(judge, timeout=0.05, hard_after=0.05)
    with pytest.raises(AssertionError, match="has not ended"):
        driver.ended(timeout=0.5)
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
    site.submit(*(f"doc-{number}" for number in range(200)))
    ended = site.drive(doze, max_age=0.3)
    assert ended[:3] == (0, "recycled", "it has reached its age")
    assert 0 < ended.counters.documents < 200


def test_a_driver_that_uses_too_much_memory_leaves_between_two_documents(site: Site) -> None:
    site.submit(*(f"doc-{number}" for number in range(60)))
    ended = site.drive(leak, outputs="", max_memory=300 << 20)
    assert ended[:2] == (0, "recycled")
    assert ended.why.endswith("MiB of memory")
    assert 0 < ended.counters.documents < 60
    assert {item.state for item in site.items()} == {"ready"}
