"""Many drivers of one watchdog: the small edition of `python -m tests.crash.crowd`."""

from pathlib import Path

from tests.crash.crowd import Crowd, Orders, figures

ORDERS = Orders(stages=6, each=8, seconds=2.0, slack=30.0)


def test_every_one_of_many_drivers_gets_work_and_none_is_started_twice(tmp_path: Path) -> None:
    with Crowd(ORDERS, tmp_path) as crowd:
        outcome = crowd.watch()
    assert not outcome.complaints, "\n".join(figures(ORDERS, outcome))
