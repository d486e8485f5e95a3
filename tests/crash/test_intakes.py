"""Intakes killed at random: the small edition of `python -m tests.crash.intakes`."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.crash.intakes import Orders, Scene, figures


@pytest.mark.parametrize("kind", ["one file system", "two file systems", "a folder that stays"])
def test_each_drop_enters_once_and_none_half_while_intakes_are_killed(
    tmp_path: Path, kind: str
) -> None:
    orders = Orders(drops=400, kills=8, seed=3, leave=kind.startswith("a folder"))
    shared = Path("/dev/shm")
    elsewhere = None
    if kind.startswith("two"):
        if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is no file system of its own here")
        elsewhere = Path(tempfile.mkdtemp(dir=shared))
    try:
        outcome = Scene(orders, tmp_path, elsewhere).run()
    finally:
        if elsewhere is not None:
            shutil.rmtree(elsewhere)
    assert not outcome.complaints, "\n".join(figures(orders, outcome))
    assert outcome.kills == orders.kills
