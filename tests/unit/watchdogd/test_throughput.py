"""The pace of a stage is what was done of late, and says when a document counts as hung."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.driving.live_status import Glimpse, Totals
from watchdogd.slot import BLANK
from watchdogd.throughput import ENOUGH, LEAST, REMEMBERED, Throughput, hard_limit


def test_nothing_is_known_of_a_stage_that_has_done_nothing() -> None:
    pace = Throughput()
    pace.count(0.0, 0, 0.0)
    pace.count(30.0, 0, 0.0)
    assert (pace.rate, pace.service, pace.startup) == (0.0, None, None)


def test_rate_is_that_of_the_last_minute_and_service_that_of_the_last_five() -> None:
    pace = Throughput()
    for second in range(600):
        # Ten a second at first, and one a second in the last minute, which take ten times as long.
        done = second * 10 if second < 540 else 5400 + second - 540
        spent = second * 2.0
        pace.count(float(second), done, spent)
    assert pace.rate == pytest.approx(1.0, rel=0.2)
    assert pace.service == pytest.approx(600 / 2460, rel=0.1)


def test_service_of_documents_that_take_longer_than_one_looks_back_is_not_forgotten() -> None:
    pace = Throughput()
    pace.count(0.0, 0, 0.0)
    pace.count(500.0, 1, 490.0)
    pace.count(502.0, 2, 990.0)
    for second in range(503, 1200):
        pace.count(float(second), 2, 990.0)
    assert pace.rate == 0.0
    assert pace.service == pytest.approx(500.0)


def test_start_takes_as_long_as_it_usually_does() -> None:
    pace = Throughput()
    for seconds in (1.0, 1.2, 60.0):
        pace.started(seconds)
    assert pace.startup == 1.2


def test_counts_that_come_too_often_cost_nothing() -> None:
    pace = Throughput()
    for tick in range(1000):
        if pace.is_due(tick / 1000):
            pace.count(tick / 1000, tick, 0.0)
    assert len(pace._samples) == 1


@pytest.mark.parametrize(
    ("durations", "limit"),
    [
        # Too few to tell.
        ([], None),
        ([3.0] * 19, None),
        # Ten times what all but one in twenty take, and ten minutes at least.
        ([3.0] * 20, 600.0),
        ([90.0] * 20, 900.0),
        ([90.0] * 19 + [10_000.0], 900.0),
        ([90.0] * 18 + [10_000.0] * 2, 100_000.0),
        ([float(took) for took in range(1, 201)], 1900.0),
        # The last two hundred count.
        ([5000.0] * 1000 + [90.0] * 200, 900.0),
        ([5000.0] * 1000 + [90.0] * 180, 50_000.0),
        ([5.0] * 1000 + [90.0] * 20, 900.0),
    ],
)
def test_the_hard_limit_that_is_learned(durations: list[float], limit: float | None) -> None:
    assert hard_limit(durations) == limit


@given(st.lists(st.floats(0, 1e6), min_size=ENOUGH, max_size=2 * REMEMBERED))
def test_hardly_any_document_of_the_history_would_have_been_ended(durations: list[float]) -> None:
    limit = hard_limit(durations)
    assert limit is not None
    assert limit >= LEAST
    latest = durations[-REMEMBERED:]
    assert sum(took > limit for took in latest) <= 0.05 * len(latest)


def glimpse(documents: int, began_at: float = 0.0) -> Glimpse:
    return BLANK._replace(totals=Totals(documents=documents), began_at=began_at)


def test_documents_that_take_long_are_seen_by_two_looks_and_the_others_counted() -> None:
    pace = Throughput()
    # One document after the other, of a hundred seconds each, as a look every five seconds sees it.
    for number in range(ENOUGH):
        for second in range(0, 100, 5):
            at = number * 100.0 + second
            pace.learn(glimpse(number, number * 100.0), glimpse(number, number * 100.0), at)
        pace.learn(glimpse(number, number * 100.0), glimpse(number + 1, at + 5.0), at + 5.0)
        assert (pace.hard_limit is not None) == (number == ENOUGH - 1)
    assert pace.hard_limit == 1000.0
    # Then so many short ones that they are all that counts.
    pace.learn(glimpse(0, 5.0), glimpse(100_000, 7.0), 10_000.0)
    pace.learn(glimpse(0), glimpse(1), 10_000.0)
    assert pace.hard_limit == LEAST


def test_what_failed_or_goes_on_teaches_nothing_of_how_long_documents_take() -> None:
    pace = Throughput()
    for _ in range(2 * ENOUGH):
        pace.learn(glimpse(7, 100.0), glimpse(7, 500.0), 500.0)
        pace.learn(glimpse(7, 100.0), glimpse(8, 100.0), 500.0)
    assert pace.hard_limit == LEAST


def test_what_was_learned_earlier_holds_until_there_is_enough_to_learn_from() -> None:
    pace = Throughput(hard_limit=7000.0)
    pace.learn(glimpse(0), glimpse(ENOUGH - 1), 1.0)
    assert pace.hard_limit == 7000.0
    pace.learn(glimpse(ENOUGH - 1), glimpse(ENOUGH), 2.0)
    assert pace.hard_limit == LEAST
