"""What drivers are told: the same when it is read back, and nothing that changes by itself."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from watchdogd.driver_orders import StageOrders, decode, encode, keep, read
from watchdogd.pipeline.model import Drivers, Pipeline, Stage

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(0, 1e9)
STAGES = st.builds(
    Stage,
    name=st.just("parse"),
    inputs=st.lists(TEXTS, max_size=2).map(tuple),
    outputs=st.lists(TEXTS, max_size=2).map(tuple),
    drivers=st.just(Drivers(1, 4)),
    kind=st.sampled_from(["call", "command", "server"]),
    work=TEXTS | st.lists(TEXTS, max_size=3).map(tuple),
    preload=st.booleans() | TEXTS,
    env=st.dictionaries(TEXTS, TEXTS, max_size=3),
    timeout=st.sampled_from([None, "auto"]) | FLOATS,
    startup_timeout=FLOATS,
    grace=FLOATS,
    retry_delay=FLOATS,
    max_age=st.none() | FLOATS,
    max_memory=st.none() | st.integers(1, 1 << 50),
    archive=st.none() | TEXTS,
)


def stage(**facts: Any) -> Stage:
    usual: dict[str, Any] = {"name": "parse", "inputs": ("in",), "outputs": ("out",)}
    usual |= {"drivers": Drivers(1, 1), "kind": "call", "work": "parse:process"}
    return Stage(**(usual | facts))


def pipeline(*, adopt: bool = True) -> Pipeline:
    return Pipeline(name="p", file="/here/p.toml", root="/here/q", stages=(), adopt=adopt)


def order(one: Stage, **facts: Any) -> Any:
    return replace(StageOrders(one, pipeline(), "rose", "/local").of(1), **facts)


@given(one=STAGES, adopt=st.booleans(), serial=TEXTS, until=st.none() | FLOATS)
def test_order_that_is_read_back_is_the_same(
    one: Stage, adopt: bool, serial: str, until: float | None
) -> None:
    told = StageOrders(one, pipeline(adopt=adopt), "rose", "/local", until).of(1, serial)
    assert told.options.until == until
    assert decode(encode(told)) == told
    assert decode(encode(told)).settled == told.settled


@pytest.mark.parametrize(
    ("changes", "stale", "settled"),
    [
        ({"outputs": ("other",)}, True, False),
        ({"retries": 5}, True, False),
        ({"archive": "/kept"}, True, False),
        ({"timeout": 5.0}, True, True),
        ({"work": "parse:other"}, True, True),
        ({"env": {"A": "1"}}, True, True),
        ({"grace": 5.0}, True, True),
        # What is the watchdog's own business, and no driver's.
        ({"drivers": Drivers(2, 3)}, False, True),
        ({"memory": 5, "memory_per_driver": 6, "cpus": 2.0}, False, True),
        ({"max_unhealthy": 3, "trial_every": 5.0, "startup_timeout": 5.0}, False, True),
    ],
)
def test_driver_is_replaced_only_for_what_concerns_it_and_all_at_once_for_what_must_not_differ(
    changes: dict[str, Any], stale: bool, settled: bool
) -> None:
    before, after = order(stage()), order(stage(**changes))
    assert (before != after) is stale
    assert (before.settled == after.settled) is settled


def test_copy_is_for_its_owner_alone_and_found_by_the_next_watchdog(tmp_path: Path) -> None:
    told = order(stage(env={"TOKEN": "secret"}))
    keep(str(tmp_path), told)
    (path,) = (tmp_path / "orders").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(str(tmp_path), told.id) == told
    assert read(str(tmp_path), "rose-parse-2") is None
    path.write_text("half an ord")
    assert read(str(tmp_path), told.id) is None


def test_copy_that_cannot_be_written_leaves_none_of_an_earlier_driver(tmp_path: Path) -> None:
    told = order(stage())
    keep(str(tmp_path), told)
    # Nothing can be made under the name that it is written under first.
    os.mkdir(tmp_path / "orders" / f"{told.id}.json.new")
    keep(str(tmp_path), replace(told, restart="r1"))
    assert read(str(tmp_path), told.id) is None
