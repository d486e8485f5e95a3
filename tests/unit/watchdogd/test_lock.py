"""One watchdog for each host and root, and the second hears of the first."""

import os
from pathlib import Path

import pytest

from queuedriver.errors import IdHeld
from watchdogd.driver_ids import STATE_VARIABLE, lock_path
from watchdogd.lock import only_one


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_second_is_refused_and_told_of_the_first() -> None:
    with only_one("/queues", "rose", "/a/pipeline.toml", 1_800_000_000.0):
        with pytest.raises(IdHeld) as refusal, only_one("/queues", "rose", "/b/other.toml", 2e9):
            pass
        assert f"process {os.getpid()}, with /a/pipeline.toml since 2027-" in str(refusal.value)
        assert refusal.value.exit_code == 69


def test_other_roots_and_hosts_are_other_pipelines() -> None:
    with (
        only_one("/queues", "rose", "/a.toml", 1.0),
        only_one("/queues", "lily", "/a.toml", 1.0),
        only_one("/others", "rose", "/a.toml", 1.0),
    ):
        pass


def test_who_leaves_makes_room_for_the_next() -> None:
    for _ in range(2):
        with only_one("/queues", "rose", "/a.toml", 1.0):
            pass


@pytest.mark.parametrize("holder", [None, b"", b"no json"])
def test_holder_that_cannot_be_read_is_no_reason_to_go_on(holder: bytes | None) -> None:
    with only_one("/queues", "rose", "/a.toml", 1.0):
        path = Path(f"{lock_path('/queues', 'rose')}.holder")
        if holder is None:
            path.unlink()
        else:
            path.write_bytes(holder)
        with (
            pytest.raises(IdHeld, match="another watchdogd keeps"),
            only_one("/queues", "rose", "/a.toml", 1.0),
        ):
            pass
