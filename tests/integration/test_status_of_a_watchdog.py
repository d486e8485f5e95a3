"""What `watchdogd status` says of a watchdog that runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.watchdogs import Yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path) as yard:
        yield yard


def status(yard: Yard) -> Any:
    return json.loads(yard.command("status", "--json").stdout)


def test_driver_that_waited_is_busy_without_a_word_of_that(yard: Yard) -> None:
    yard.write('name = "work"\ncall = "stages:obey"')
    yard.put("a", "wait")
    (yard.root / "queues/input/PAUSE").touch()
    yard.run()
    until(lambda: [one["why"] for one in status(yard)["drivers"]] == ["paused"])
    assert yard.command("resume", "work").returncode == 0
    until(lambda: [one["document"] for one in status(yard)["drivers"]] == ["a"])
    # What its watchdog says of it, too, and not only its claim.
    until(lambda: (seen := yard.status()) is not None and seen.drivers[0].document == "a")
    (driver,) = status(yard)["drivers"]
    assert (driver["state"], driver["document"], driver["why"]) == ("busy", "a", "")
