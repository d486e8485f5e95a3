"""A plan that cannot fit on a host is refused or scaled, with a clear word."""

import math
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdogd.pipeline.model import Drivers, Host, Pipeline, Stage
from watchdogd.sizes import Admission, admit, memory_of

MB = 10**6
GB = 10**9


def stage(name: str, drivers: int | tuple[int, int] = 1, **facts: Any) -> Stage:
    least, most = (drivers, drivers) if isinstance(drivers, int) else drivers
    return Stage(
        name=name,
        inputs=(f"to-{name}",),
        outputs=(f"from-{name}",),
        drivers=Drivers(least, most),
        kind="call",
        work=f"{name}:process",
        **facts,
    )


def pipeline(*stages: Stage, **host: Any) -> Pipeline:
    return Pipeline(name="p", file="/p/p.toml", root="/p/q", stages=stages, host=Host(**host))


SERIF = (
    stage("values", 1, memory=600 * MB),
    stage("parse", 3, memory=2 * GB),
    stage("output", 2, memory=1 * GB),
)


@pytest.mark.parametrize(
    ("facts", "first", "further"),
    [
        ({}, 0, 0),
        ({"memory": 500}, 500, 500),
        ({"preload": True}, 0, 0),
        ({"memory": 500, "preload": True}, 550, 50),
        ({"memory": 500, "preload": "load", "memory_per_driver": 7}, 507, 7),
        ({"memory": 500, "preload": True, "memory_per_driver": 0}, 500, 0),
        # Nothing is shared.
        ({"memory": 500, "memory_per_driver": 7}, 500, 500),
    ],
)
def test_what_is_loaded_once_is_counted_once(
    facts: dict[str, Any], first: int, further: int
) -> None:
    assert memory_of(stage("a", **facts)) == (first, further)


@pytest.mark.parametrize(
    ("facts", "measured", "memory"),
    [
        ({}, None, 0),
        # One that is not there yet takes what any process of Python does.
        ({}, 0, 20_000_000),
        ({}, 70_000_000, 70_000_000),
        ({"preload": True}, 70_000_000, 70_000_000),
        ({"memory": 500}, 70_000_000, 500),
    ],
)
def test_what_drivers_were_measured_to_take_counts_where_the_file_does_not_say_it(
    facts: dict[str, Any], measured: int | None, memory: int
) -> None:
    assert memory_of(stage("a", **facts), measured) == (memory, memory)


@pytest.mark.parametrize(
    ("plan", "admission"),
    [
        # It fits, to the byte; or nothing is declared.
        (pipeline(*SERIF, memory=8_600 * MB), Admission()),
        (pipeline(stage("a", 1000), stage("b", (1, 1000))), Admission()),
        (pipeline(stage("a", 10, cpus=0.1), cpus=1.0), Admission()),
        (pipeline(stage("a", 1000, cpus=8.0)), Admission()),
        (pipeline(stage("a", 0, memory=99 * GB), stage("b", 1, memory=GB)), Admission()),
        # Together it does not.
        (
            pipeline(*SERIF, memory=4_700 * MB),
            Admission(
                refusals=(
                    "the drivers need 8.6 GB: values 1 × 600 MB, parse 3 × 2 GB, output 2 × 1 GB; "
                    "[host] memory allows 4.7 GB; lower drivers, or raise [host] memory",
                )
            ),
        ),
        (
            pipeline(*SERIF, stage("free"), memory=8 * GB),
            Admission(
                refusals=(
                    "the drivers need 8.6 GB: values 1 × 600 MB, parse 3 × 2 GB, output 2 × 1 GB; "
                    "[host] memory allows 8 GB; lower drivers, or raise [host] memory",
                )
            ),
        ),
        (
            pipeline(stage("a", 9, memory=GB, preload=True), stage("b", 1, memory=15 * GB)),
            Admission(
                refusals=(
                    "the drivers need 16.9 GB: a 1 GB + 9 × 100 MB, b 1 × 15 GB; "
                    "this host has 16 GB; lower drivers",
                )
            ),
        ),
        # One alone does not.
        (
            pipeline(stage("a", 1, memory=20 * GB), stage("b", (0, 2), memory=17 * GB)),
            Admission(
                refusals=(
                    "the drivers need 37 GB: a 1 × 20 GB, b 1 × 17 GB; this host has 16 GB; "
                    "lower drivers",
                )
            ),
        ),
        # Stages that might have none would wait for each other's room.
        (
            pipeline(stage("a", (0, 1), memory=9 * GB), stage("b", (0, 1), memory=9 * GB)),
            Admission(
                refusals=(
                    "the drivers need 18 GB: a 1 × 9 GB, b 1 × 9 GB; this host has 16 GB; "
                    "lower drivers",
                )
            ),
        ),
        # CPUs count when they are declared.
        (
            pipeline(stage("a", 2), stage("b", 1, cpus=2.5), cpus=4.0),
            Admission(
                refusals=(
                    "the drivers need 4.5 CPUs: a 2 × 1 CPUs, b 1 × 2.5 CPUs; "
                    "[host] cpus allows 4; lower drivers, or raise [host] cpus",
                )
            ),
        ),
        # Both, at once.
        (
            pipeline(stage("a", 5, memory=4 * GB), cpus=4.0),
            Admission(
                refusals=(
                    "the drivers need 20 GB: a 5 × 4 GB; this host has 16 GB; lower drivers",
                    "the drivers need 5 CPUs: a 5 × 1 CPUs; [host] cpus allows 4; "
                    "lower drivers, or raise [host] cpus",
                )
            ),
        ),
        # What cannot be reached.
        (
            pipeline(
                stage("a", 1, memory=GB), stage("parse", (1, 8), memory=2 * GB), memory=8 * GB
            ),
            Admission(
                words=("parse gets at most 3 of 8 drivers: memory; [host] memory allows 8 GB",),
            ),
        ),
        (
            pipeline(stage("a", (0, 90), memory=10 * GB, preload=True)),
            Admission(
                words=("a gets at most 6 of 90 drivers: memory; this host has 16 GB",),
            ),
        ),
        (
            pipeline(stage("a", 1), stage("b", (1, 8), memory=2 * GB, cpus=0.5), cpus=3.0),
            Admission(
                words=("b gets at most 4 of 8 drivers: cpus; [host] cpus allows 3",),
            ),
        ),
        # More is allowed than there is.
        (
            pipeline(stage("a", (1, 8), memory=4 * GB), memory=24 * GB),
            Admission(
                words=("a gets at most 4 of 8 drivers: memory; this host has 16 GB",),
            ),
        ),
        (pipeline(stage("a", 12), cpus=16.0), Admission()),
    ],
)
def test_what_there_is_room_for(plan: Pipeline, admission: Admission) -> None:
    assert admit(plan, 16 * GB) == admission


_STAGES = st.lists(
    st.builds(
        stage,
        st.just(""),
        st.tuples(st.integers(0, 3), st.integers(0, 5)).map(lambda two: (two[0], sum(two))),
        memory=st.none() | st.integers(0, 10),
        memory_per_driver=st.none() | st.integers(0, 5),
        preload=st.booleans(),
        cpus=st.sampled_from([0.1, 1.0]),
    ),
    min_size=1,
    max_size=4,
)


def _renamed(stages: list[Stage]) -> list[Stage]:
    return [msgspec.structs.replace(one, name=f"s{place}") for place, one in enumerate(stages)]


@given(
    stages=_STAGES.map(_renamed),
    memory=st.integers(0, 60),
    cpus=st.none() | st.sampled_from([1.0, 5.0]),
)
def test_what_is_admitted_fits_and_one_more_than_a_cap_does_not(
    stages: list[Stage], memory: int, cpus: float | None
) -> None:
    admission = admit(pipeline(*stages, cpus=cpus), memory)

    def taken(drivers: dict[str, int]) -> bool:
        total_memory, total_cpus = 0.0, 0.0
        for one in stages:
            first, further = memory_of(one)
            if count := drivers[one.name]:
                total_memory += first + (count - 1) * further
                total_cpus += count * one.cpus
        return total_memory <= memory and total_cpus <= (math.inf if cpus is None else cpus + 1e-6)

    least = {one.name: min(max(one.drivers.min, 1), one.drivers.max) for one in stages}
    assert taken(least) is not bool(admission.refusals)
    if admission.refusals:
        return
    caps = {
        found["stage"]: int(found["cap"])
        for words in admission.words
        if (found := re.match(r"(?P<stage>\S+) gets at most (?P<cap>\d+) of", words))
    }
    for one in stages:
        most = caps.get(one.name, one.drivers.max)
        assert taken(least | {one.name: most})
        if most < one.drivers.max:
            assert not taken(least | {one.name: most + 1})
