"""Drivers that do not fill what nobody empties."""

import os
from typing import Any

import pytest

from tests.drivers import Site
from tests.processors import doze, judge_all, shout, sort
from tests.waiting import until

LIMIT = 5
DRIVERS = 3


@pytest.mark.parametrize(
    ("limit", "value"), [("max_output_items", LIMIT), ("max_output_bytes", LIMIT * 100)]
)
def test_drivers_overshoot_by_one_less_than_they_are_and_give_up_if_nobody_comes(
    site: Site, limit: str, value: int
) -> None:
    site.submit(*(f"doc-{number}" for number in range(40)), content=b"x" * 100)
    options: dict[str, Any] = {limit: value}
    drivers = [site.start(shout, drain=True, **options) for _ in range(DRIVERS)]
    for driver in drivers:
        ended = driver.ended()
        assert ended[:2] == (75, "blocked")
        assert "no driver empties it" in ended.why
        assert ended.counters.block >= 4000
    assert LIMIT <= len(site.files()) <= LIMIT + DRIVERS - 1
    assert {item.state for item in site.items()} == {"ready"}


@pytest.mark.parametrize("limit", [10, 100])
def test_a_batch_claims_no_more_than_there_is_room_for(site: Site, limit: int) -> None:
    site.submit(*(f"doc-{number}" for number in range(2 * limit)))
    ended = site.drive(judge_all, batch=limit - 3, max_output_items=limit)
    assert ended[:2] == (75, "blocked")
    assert len(site.files()) == limit


def test_drivers_go_on_when_somebody_makes_room(site: Site) -> None:
    docids = {f"doc-{number}.ready" for number in range(40)}
    site.submit(*(docid.removesuffix(".ready") for docid in docids))
    drivers = [site.start(doze, drain=True, max_output_items=LIMIT) for _ in range(DRIVERS)]
    taken: set[str] = set()
    until((site.root / "out").is_dir, "the output is made")

    def take() -> bool:
        # By name alone: what is being written may go at any moment.
        found = [name for name in os.listdir(site.root / "out") if name in docids]
        assert len(found) <= LIMIT + DRIVERS - 1
        for name in found:
            (site.root / "out" / name).unlink()
        taken.update(found)
        return taken == docids

    until(take, "everything comes out")
    assert [driver.ended().exit_code for driver in drivers] == [0] * DRIVERS


def test_somebody_at_another_output_is_no_consumer_of_the_full_one(site: Site) -> None:
    site.submit(*(f"{number}-left" for number in range(5)))
    site.start(shout, inputs="right", outputs="end")
    until(lambda: site.queue("right") and site.drivers("right"), "it waits for what never comes")
    ended = site.drive(sort, outputs="left right", max_output_items=2)
    assert ended[:2] == (75, "blocked")
    assert ended.why.startswith("left holds 2 items or more")


def test_a_consumer_that_is_slow_is_waited_for(site: Site) -> None:
    site.submit(*(f"doc-{number}" for number in range(30)))
    second = site.start(doze, inputs="out", outputs="end", drain=False)
    until(lambda: site.queue("out") and site.drivers("out"), "it is there")
    first = site.start(shout, drain=True, max_output_items=2)
    assert first.ended()[:2] == (0, "drained")
    until(lambda: len(site.files("end")) == 30, "everything comes out")
    second.signal()
    assert second.ended().exit_code == 0
