"""How many drivers each stage has; no facts, in whatever order they come, are too odd."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdogd.balance import complete, move, moved
from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.sizes import Load, Need, Room, Size, coming, fits, needs, sizes

MB = 10**6
ANY = Room()


def load(stage: str, drivers: int | tuple[int, int] = 1, **facts: Any) -> Load:
    least, most = (drivers, drivers) if isinstance(drivers, int) else drivers
    return Load(stage=stage, min=least, max=most, **facts)


def heavy(stage: str, drivers: int | tuple[int, int] = 1, memory: int = 100, **facts: Any) -> Load:
    return load(stage, drivers, memory=Need(memory, memory), **facts)


def running(one: Load, *numbers: int, stuck: tuple[int, ...] = ()) -> Load:
    """The same with drivers in these slots."""
    return msgspec.structs.replace(
        one, alive=len(numbers), last=max(numbers, default=0), stuck=stuck
    )


def drivers(loads: list[Load], room: Room, split: dict[str, int]) -> list[int]:
    return [size.drivers for size in sizes(loads, room, split).values()]


# What says how many


@pytest.mark.parametrize(
    ("one", "split", "size"),
    [
        # The split, within what the file says.
        (load("a", (1, 4)), {"a": 2}, Size(2, 2)),
        (load("a", (1, 4)), {"a": 9}, Size(4, 4)),
        (load("a", (1, 4)), {"a": 0}, Size(1, 1)),
        (load("a", 0), {"a": 3}, Size(0, 0)),
        # Operators outdo both.
        (load("a", (1, 4), asked=9), {"a": 2}, Size(9, 9)),
        (load("a", (2, 4), asked=0), {"a": 2}, Size(0, 0)),
        # Whoever is told to leave outdoes operators.
        (load("a", 3, asked=9, unwanted="stop"), {"a": 2}, Size(0, 0, "stop")),
        (running(load("a", 3, unwanted="parting"), 1, 2), {}, Size(0, 0, "parting")),
        # Nothing is known yet: adopted drivers stay as they are, and there are no others.
        (running(load("a", (1, 8)), 2, 3), {}, Size(3, 3)),
        (load("a", (1, 8)), {}, Size(0, 0)),
    ],
)
def test_size_is_what_the_file_an_operator_or_the_split_says(
    one: Load, split: dict[str, int], size: Size
) -> None:
    assert sizes([one], ANY, split) == {"a": size}


# Room


def test_what_there_is_room_for_is_seen_anew_each_time() -> None:
    one = heavy("a", 1, asked=8)
    assert drivers([one], Room(memory=250), {"a": 1}) == [2]
    assert drivers([running(one, 1, 2)], Room(memory=500), {"a": 1}) == [5]


def test_what_runs_stays_when_there_is_less_room_than_there_was() -> None:
    one = running(heavy("a", 1, asked=8), 1, 2, 3, 4, 5)
    assert drivers([one], Room(memory=250), {"a": 1}) == [5]
    # One of them has crashed, and is started again.
    one = running(heavy("a", 1, asked=8), 1, 2, 4, 5)
    assert drivers([one], Room(memory=250), {"a": 1}) == [5]


def test_memory_as_it_is_measured_makes_no_stage_smaller() -> None:
    split = {"a": 1}
    have: list[int] = []
    for memory in (20, 100, 20, 300, 120):
        one = running(heavy("a", 1, memory, asked=9), *range(1, (have or [0])[-1] + 1))
        have += drivers([one], Room(memory=1000), split)
    assert have == sorted(have)


def test_driver_that_leaves_has_its_room_until_it_has_left() -> None:
    taker = running(heavy("b", (0, 4)), 1)
    room, split = Room(memory=400), {"a": 2, "b": 2}
    leaving = msgspec.structs.replace(running(heavy("a", (1, 4)), 1, 2), alive=3)
    assert drivers([leaving, taker], room, split) == [2, 1]
    assert drivers([running(heavy("a", (1, 4)), 1, 2), taker], room, split) == [2, 2]


def test_the_least_of_the_file_is_had_for_it_was_admitted() -> None:
    loads = [heavy("a", 3), heavy("b", (2, 4))]
    assert drivers(loads, Room(memory=100), {"a": 3, "b": 4}) == [3, 2]


def test_operators_share_what_the_others_leave_and_whoever_asks_for_less_comes_first() -> None:
    loads = [heavy("a", 1, asked=50), heavy("b", 2), heavy("c", 0, asked=3)]
    found = sizes(loads, Room(memory=1000), {"a": 1, "b": 2})
    assert {name: size.drivers for name, size in found.items()} == {"a": 5, "b": 2, "c": 3}
    assert found["a"].scarce == "there is no room for 50: one takes 100 B, of 1 kB for all"
    assert found["c"].scarce == ""
    # One at least of what was admitted so.
    assert drivers([heavy("a", (0, 2), asked=5)], Room(memory=10), {}) == [1]


def test_stage_without_drivers_in_the_file_gets_none_that_there_is_no_room_for() -> None:
    found = sizes([heavy("a", 0, asked=1)], Room(memory=10), {})["a"]
    assert (found.drivers, found.slots) == (0, 0)
    assert found.scarce == "there is no room for 1: one takes 100 B, of 10 B for all"


def test_what_is_loaded_once_is_counted_once() -> None:
    one = load("a", 1, asked=9, memory=Need(550, 50))
    assert drivers([one], Room(memory=700), {}) == [4]
    assert drivers([load("a", 1, asked=9, cpus=0.1)], Room(cpus=0.3), {}) == [3]


# Those that not even SIGKILL ends


@pytest.mark.parametrize(
    ("stuck", "slots"),
    [((), 2), ((1,), 3), ((1, 2), 4), ((2, 3), 4), ((3,), 2), ((1, 2, 3, 4), 4), ((4, 1), 3)],
)
def test_others_stand_in_for_the_stuck_ones_that_were_to_work_but_do_not_pile_up(
    stuck: tuple[int, ...], slots: int
) -> None:
    one = load("a", 2, alive=len(stuck), stuck=stuck)
    assert sizes([one], ANY, {"a": 2}) == {"a": Size(2, slots)}


def test_stuck_drivers_keep_their_memory_and_need_no_processor() -> None:
    one = running(heavy("a", 2, cpus=1.0), 1, 2, stuck=(1,))
    assert needs([one], {"a": 2}) == (300, 2.0)
    assert sizes([one], Room(memory=300, cpus=2), {"a": 2})["a"].slots == 3
    assert sizes([one], Room(memory=299, cpus=2), {"a": 2})["a"].slots == 2


def test_a_driver_that_never_leaves_keeps_nobody_from_being_moved() -> None:
    stuck = running(heavy("a", (1, 4), backlog=1, service=1.0), 1, stuck=(3,))
    stuck = msgspec.structs.replace(stuck, alive=2)
    busy = running(heavy("b", (1, 8), backlog=9000, service=1.0), 1)
    found = move([stuck, busy], Room(memory=1000), {"a": 1, "b": 1}, 30.0, 30.0)
    assert found is not None
    assert found.to == "b"


# The split


def test_new_stage_starts_with_the_least_or_with_what_was_adopted() -> None:
    loads = [load("a", (1, 4)), running(load("b", (1, 4)), 3), running(load("c", (1, 2)), 1, 2, 3)]
    assert complete({}, loads, ANY) == {"a": 1, "b": 3, "c": 2}
    # Those that are there already keep what they have, within what the file says now.
    assert complete({"a": 3, "b": 9, "gone": 2}, loads, ANY) == {"a": 3, "b": 4, "c": 2}


def test_once_no_operator_asks_the_balancer_goes_on_from_what_there_was() -> None:
    asked = load("a", (1, 4), asked=9)
    split = complete({"a": 2}, [asked], ANY)
    assert split == {"a": 4}
    assert complete(split, [load("a", (1, 4))], ANY) == {"a": 4}


# Whatever the facts


_NUMBERS = st.lists(st.integers(1, 12), unique=True, max_size=6)


@st.composite
def loads_of(draw: st.DrawFn) -> list[Load]:
    found = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        there = draw(_NUMBERS)
        least = draw(st.integers(0, 3))
        found.append(
            Load(
                stage=name,
                backlog=draw(st.integers(0, 100)),
                coming=draw(st.integers(0, 100)),
                service=draw(st.none() | st.sampled_from([0.1, 1.0, 30.0])),
                startup=draw(st.sampled_from([0.0, 60.0])),
                min=least,
                max=least + draw(st.integers(0, 5)),
                asked=draw(st.none() | st.integers(0, 20) | st.just(9999)),
                unwanted=draw(st.sampled_from(["", "", "", "stop", "parting"])),
                alive=len(there),
                last=max(there[: draw(st.integers(0, 6))], default=0),
                stuck=tuple(there[: draw(st.integers(0, 2))]),
                memory=Need(draw(st.integers(0, 10)), draw(st.integers(0, 5))),
                cpus=draw(st.sampled_from([0.0, 0.1, 1.0])),
            )
        )
    return found


_ROOMS = st.builds(
    Room, memory=st.none() | st.integers(0, 60), cpus=st.none() | st.sampled_from([0.3, 4.0])
)
_SPLITS = st.dictionaries(st.sampled_from("abcdx"), st.integers(0, 12))


@given(loads=loads_of(), room=_ROOMS, split=_SPLITS)
def test_no_facts_are_too_odd_and_none_gets_more_than_is_asked_for_or_grows_without_room(
    loads: list[Load], room: Room, split: dict[str, int]
) -> None:
    found = sizes(loads, room, split)
    assert list(found) == [one.stage for one in loads]
    free = sizes(loads, ANY, split)
    for one in loads:
        size, most = found[one.stage], free[one.stage]
        assert 0 <= size.drivers <= size.slots <= most.slots
        assert size.drivers <= most.drivers
        assert size.slots <= 2 * max(size.drivers, most.drivers)
        # Room makes nothing smaller than what runs.
        assert size.slots >= min(most.slots, one.last)
        if one.unwanted:
            assert (size.slots, size.why) == (0, one.unwanted)
    grown = any(
        found[one.stage].slots > max(one.last, one.min, one.asked is not None) for one in loads
    )
    if grown:
        memory = sum(one.needs(max(one.alive, found[one.stage].slots), 0)[0] for one in loads)
        assert room.memory is None or memory <= room.memory


@given(loads=loads_of(), room=_ROOMS, split=_SPLITS, waited=st.sampled_from([0.0, 30.0, 1e9]))
def test_split_is_complete_and_a_move_keeps_it_within_what_the_file_says(
    loads: list[Load], room: Room, split: dict[str, int], waited: float
) -> None:
    split = complete(split, loads, room)
    assert complete(split, loads, room) == split
    wanted = {one.stage for one in loads if not one.unwanted}
    assert wanted <= split.keys() <= {one.stage for one in loads}
    known = [one for one in loads if one.stage in split]
    found = move(known, room, split, waited, 30.0)
    if found is None:
        return
    after = moved(split, found)
    assert complete(after, loads, room) == after
    for one in known:
        if one.asked is not None or one.unwanted:
            assert after[one.stage] == split[one.stage]
    # What there is room for is had at once, or when somebody has left.
    if found.taken_from is None:
        bounded = sizes(known, room, split)
        as_is = {one.stage: bounded[one.stage].drivers for one in known}
        free = [one for one in known if one.asked is None and not one.unwanted]
        goals = as_is | {one.stage: after[one.stage] for one in free}
        assert fits(known, room, goals)


# How documents go through a pipeline


def pipeline(*stages: tuple[str, str, str]) -> Pipeline:
    """Stages by name, inputs and outputs."""
    made = tuple(
        Stage(
            name=name,
            inputs=tuple(inputs.split()),
            outputs=tuple(outputs.split()),
            drivers=Drivers(1, 1),
            kind="call",
            work="",
        )
        for name, inputs, outputs in stages
    )
    return Pipeline(name="yard", file="/yard/pipeline.toml", root="/yard/queues", stages=made)


CHAIN = pipeline(("one", "input", "one"), ("two", "one", "two"), ("three", "two", "three"))
DIAMOND = pipeline(
    ("both", "input", "left right"),
    ("a", "left", "met"),
    ("b", "right", "met"),
    ("last", "met urgent", "out"),
)


def test_everything_upstream_is_coming() -> None:
    assert coming(CHAIN, {"input": 5, "one": 3}) == {"one": 0, "two": 5, "three": 8}


def test_queue_from_which_two_ways_lead_counts_once() -> None:
    unfinished = {"input": 5, "left": 2, "urgent": 9}
    assert coming(DIAMOND, unfinished) == {"both": 0, "a": 5, "b": 5, "last": 7}
