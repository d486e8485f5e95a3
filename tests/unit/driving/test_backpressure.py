"""How often outputs are counted, and what that lets through."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.claims.document import Target
from queuedriver.claims.liveness import Observer
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.backpressure import BackPressure
from queuedriver.format.names import Mint
from queuedriver.format.settings import DEFAULT_PUBLISH, Publication
from queuedriver.options import Options


class Output:
    """An output queue, and what fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = Directory.open(str(path))
        self.target = Target("out", self.directory, Publication(DEFAULT_PUBLISH))

    def hold(self, *names: str) -> None:
        for path in self.path.iterdir():
            path.unlink()
        for name in names:
            (self.path / name).touch()

    def hold_ready(self, count: int) -> None:
        self.hold(*(f"d{number}.ready" for number in range(count)))

    def pressure(
        self, sharers: int = 1, *, items: int | None = None, size: int | None = None
    ) -> BackPressure:
        options = Options(max_output_items=items, max_output_bytes=size)
        return BackPressure(options, [self.target], Observer(), lambda: sharers)


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Output]:
    output = Output(tmp_path)
    yield output
    output.directory.close()


def test_without_a_limit_there_is_always_room(output: Output) -> None:
    assert output.pressure().room(10**9) == math.inf


@pytest.mark.parametrize(("sharers", "room"), [(1, 400), (2, 200), (8, 50)])
def test_each_of_several_drivers_takes_its_part_of_the_room_before_it_looks_again(
    output: Output, sharers: int, room: int
) -> None:
    output.hold_ready(100)
    pressure = output.pressure(sharers, items=500)
    assert not pressure.full(7)
    output.hold_ready(500)
    assert not pressure.full(7 + room - 1)
    assert pressure.full(7 + room)


def test_more_drivers_than_room_look_each_time(output: Output) -> None:
    output.hold_ready(100)
    pressure = output.pressure(401, items=500)
    assert not pressure.full(7)
    output.hold_ready(500)
    assert pressure.full(7)


@pytest.mark.parametrize(("items", "size"), [(63, None), (500, 10**6), (None, 10**6)])
def test_few_items_and_bytes_are_looked_at_each_time(
    output: Output, items: int | None, size: int | None
) -> None:
    pressure = output.pressure(items=items, size=size)
    assert not pressure.full(0)
    output.hold_ready(items or 1)
    (output.path / "d0.ready").write_bytes(bytes(size or 0))
    assert pressure.full(0)


@pytest.mark.parametrize("limit", [2, 100])
def test_there_is_room_again_as_soon_as_one_is_gone(output: Output, limit: int) -> None:
    pressure = output.pressure(items=limit)
    output.hold_ready(limit)
    assert pressure.full(0) == f"out holds {limit} items or more"
    output.hold_ready(limit - 1)
    assert not pressure.full(0)
    assert pressure.room(0) == 1


def test_who_has_just_worked_rests_before_it_takes_a_little_room_and_then_takes_it(
    output: Output,
) -> None:
    """Else hundreds would be counted for each few, where an output is emptied as it is filled."""
    pressure = output.pressure(items=500)
    output.hold_ready(490)
    assert pressure.room(0) == 10
    output.hold_ready(480)
    assert pressure.full(10) == "out holds 480 items or more"
    # Be there somebody who empties it or not.
    assert pressure.room(10) == 20
    output.hold_ready(400)
    assert pressure.room(30) == 100


def test_an_output_that_was_emptied_meanwhile_had_somebody_to_empty_it(output: Output) -> None:
    pressure = output.pressure(items=1)
    output.hold("a.ready")
    assert pressure.full(0)
    assert pressure.no_consumer_for() == 0.0
    assert pressure.no_consumer_for() > 0.0
    output.hold()
    assert not pressure.full(0)
    output.hold("b.ready")
    assert pressure.full(0)
    assert pressure.no_consumer_for() == 0.0


@pytest.mark.parametrize("limit", [10, 100])
def test_the_room_for_a_batch_is_what_the_limit_leaves(output: Output, limit: int) -> None:
    output.hold_ready(4)
    assert output.pressure(items=limit).room(7) == limit - 4
    assert output.pressure(size=10**6).room(7) == math.inf
    assert output.pressure().room(7) == math.inf


def test_what_counts_is_what_waits_and_what_is_being_written(output: Output) -> None:
    token = Mint("1", "beef").next(10**15)
    output.hold(
        "a.ready",
        "b.failed",
        f"c.{token}.writing.xml",
        f"d.{token}.working",
        "note.txt",
        ".aside.ready",
    )
    assert output.pressure(items=3).full(0)
    assert not output.pressure(items=4).full(0)
