"""What is imported before a reload: what no stage that runs has loaded."""

from typing import Any

import pytest
from msgspec.structs import replace

from watchdogd.check import other_than_in
from watchdogd.pipeline.model import Drivers, Pipeline, Stage

STAGE = Stage(
    name="one", inputs=("in",), outputs=("out",), kind="call", work="a:b", preload="a:load"
)
RUNNING = Pipeline(name="p", file="/p.toml", root="/q", stages=(STAGE,))


@pytest.mark.parametrize(
    "change",
    [{"work": "a:c"}, {"preload": "a:lode"}, {"preload": True}, {"env": {"PYTHONPATH": "/x"}}],
)
def test_stage_that_loads_something_else_is_imported_first(change: dict[str, Any]) -> None:
    assert other_than_in(RUNNING)(replace(STAGE, **change))


@pytest.mark.parametrize(
    "change", [{}, {"name": "two"}, {"drivers": Drivers(2, 9)}, {"timeout": 9.0}, {"retries": 3}]
)
def test_stage_that_loads_what_runs_already_is_not(change: dict[str, Any]) -> None:
    assert not other_than_in(RUNNING)(replace(STAGE, **change))
