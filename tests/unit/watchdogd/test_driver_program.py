"""A driver that nobody could find any more."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from watchdogd.programs import driver


class _Enough(Exception):
    """Ends a loop that has no end."""


@pytest.mark.parametrize("is_alone", [False, True])
def test_driver_whose_board_was_removed_leaves_only_when_its_watchdog_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """A watchdog that lives knows its drivers without, and makes the boards again when it can."""
    board, looks, told = tmp_path / "board", iter(range(20)), list[tuple[int, int]]()
    board.touch()

    def sleep(_seconds: float) -> None:
        if next(looks, None) is None:
            raise _Enough

    monkeypatch.setattr(driver, "time", SimpleNamespace(sleep=sleep, strftime=time.strftime))
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append((pid, number)))
    rotator = cast(Any, SimpleNamespace(rotate_if_large=lambda: None))
    with board.open("rb") as opened:
        board.unlink()
        with pytest.raises(_Enough):
            driver._look_after(rotator, opened.fileno(), str(board), os.getppid() + is_alone)
    assert told == [(os.getpid(), signal.SIGTERM)] * is_alone
