"""The pace of a stage is what was done of late."""

import pytest

from watchdogd.pace import Pace


def test_nothing_is_known_of_a_stage_that_has_done_nothing() -> None:
    pace = Pace()
    pace.count(0.0, 0, 0.0)
    pace.count(30.0, 0, 0.0)
    assert (pace.rate, pace.service, pace.startup) == (0.0, None, None)


def test_rate_is_that_of_the_last_minute_and_service_that_of_the_last_five() -> None:
    pace = Pace()
    for second in range(600):
        # Ten a second at first, and one a second in the last minute, which take ten times as long.
        done = second * 10 if second < 540 else 5400 + second - 540
        spent = second * 2.0
        pace.count(float(second), done, spent)
    assert pace.rate == pytest.approx(1.0, rel=0.2)
    assert pace.service == pytest.approx(600 / 2460, rel=0.1)


def test_service_of_documents_that_take_longer_than_one_looks_back_is_not_forgotten() -> None:
    pace = Pace()
    pace.count(0.0, 0, 0.0)
    pace.count(500.0, 1, 490.0)
    pace.count(502.0, 2, 990.0)
    for second in range(503, 1200):
        pace.count(float(second), 2, 990.0)
    assert pace.rate == 0.0
    assert pace.service == pytest.approx(500.0)


def test_start_takes_as_long_as_it_usually_does() -> None:
    pace = Pace()
    for seconds in (1.0, 1.2, 60.0):
        pace.started(seconds)
    assert pace.startup == 1.2


def test_counts_that_come_too_often_cost_nothing() -> None:
    pace = Pace()
    for tick in range(1000):
        pace.count(tick / 1000, tick, 0.0)
    assert len(pace._samples) == 1
