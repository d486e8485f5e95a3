"""Several documents in one call, each with its own fate."""

import signal

import pytest

from tests.drivers import Site
from tests.processors import judge_all, judge_each

GOOD = [f"good-{number}" for number in range(7)]


def calls(site: Site) -> list[list[str]]:
    """Which documents the processor was called with."""
    return [one.read_text().split() for one in sorted(site.root.glob("called-*"))]


def all_good(site: Site, attempt: int = 0) -> bool:
    wanted = f"attempt {attempt}".encode()
    return site.files() == {f"{docid}.ready": wanted for docid in GOOD}


def test_a_batch_is_one_call(site: Site) -> None:
    site.submit(*GOOD)
    ended = site.drive(judge_all, batch=5)
    assert (ended.exit_code, ended.counters.documents) == (0, 7)
    assert [len(call) for call in calls(site)] == [5, 2]
    assert all_good(site)


def test_one_document_that_spoils_the_call_is_found_and_the_others_are_not_charged(
    site: Site,
) -> None:
    site.submit("bad", *GOOD)
    ended = site.drive(judge_all, batch=8)
    assert (ended.exit_code, ended.counters.failed, ended.counters.discarded) == (1, 2, 1)
    assert all_good(site)
    assert site.discarded() == ["bad"]
    # All, then each alone, then the one that failed: again alone, and again in a list.
    assert [len(call) for call in calls(site)] == [8, *[1] * 8, 1]
    assert calls(site)[-1] == ["bad"]


def test_an_answer_that_is_an_exception_is_of_one_document(site: Site) -> None:
    site.submit("bad", "hopeless", "later", *GOOD)
    ended = site.drive(judge_each, batch=16)
    assert ended.exit_code == 75
    assert all_good(site)
    assert site.states() == {"later": "later"}
    assert [one.failure.cause for one in site.report("bad").attempts] == ["exception"] * 2
    assert [one.failure.cause for one in site.report("hopeless").attempts] == ["permanent"]


def test_a_batch_that_ends_its_driver_is_tried_again_one_by_one(site: Site) -> None:
    site.submit("poison", *GOOD)
    ends = [site.drive(judge_each, batch=8, driver="d").exit_code for _ in range(3)]
    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert all_good(site, attempt=1)
    assert site.discarded() == ["poison"]


@pytest.mark.quick
def test_a_durable_batch_is_handed_over_together(site: Site) -> None:
    site.submit("bad", *GOOD)
    assert site.drive(judge_each, batch=8, durable=True).exit_code == 1
    assert all_good(site)


def test_a_batch_past_its_time_out_is_tried_one_by_one(site: Site) -> None:
    site.submit("hang", *GOOD)
    ended = site.drive(judge_all, batch=8, timeout=1.0)
    assert (ended.exit_code, ended.counters.discarded) == (1, 1)
    assert all_good(site)
    assert [one.failure.cause for one in site.report("hang").attempts] == ["timeout"] * 2


@pytest.mark.parametrize("hurried", [False, True])
def test_a_batch_that_is_interrupted_is_given_back_uncounted(site: Site, hurried: bool) -> None:
    site.submit("hang", *GOOD)
    driver = site.start(judge_all, batch=8, grace=600.0 if hurried else 0.1)
    site.wait_for_files("called-*")
    driver.hurry() if hurried else driver.signal()
    assert driver.ended().exit_code == 0
    assert set(site.states().values()) == {"ready"}
    assert len(site.states()) == 8


def test_documents_of_a_batch_are_given_one_by_one_to_who_takes_one_at_a_time(site: Site) -> None:
    for code in (0, 65, 75, 3):
        site.submit(f"exit-{code}", content=str(code).encode())
    ended = site.drive(["sh", "-c", "exit $(cat)"], batch=8)
    assert (ended.exit_code, ended.counters.documents) == (75, 1)
    assert site.files() == {"exit-0.ready": b""}
    assert site.states() == {"exit-75": "later"}
    assert [one.failure.cause for one in site.report("exit-65").attempts] == ["permanent"]
    assert [one.failure.cause for one in site.report("exit-3").attempts] == ["exit"] * 2
