"""Durable queues on a disk that loses power at random moments; see `tests/testbed/power_cuts.py`.

python -m tests.testbed power-cuts --times 200      the same for longer
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed import power_cuts
from tests.testbed.lab import Guest, Lab

# For a run's worth: two of each way of journaling; and so many as do harm without `durable`. Each
# is a second or two. A campaign has 200.
DISK_CUTS, GUEST_CUTS = 6, 1
HARMFUL_CUTS = 9
SEED = 1
# Seconds, on a machine that does other things too.
LONG = 280.0


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    with Lab(tmp_path / "lab") as lab:
        yield power_cuts.guest_with_disk(lab)


def test_power_cut_at_any_moment_loses_nothing_and_doubles_nothing(guest: Guest) -> None:
    seen = guest.start(power_cuts.cut_disk, DISK_CUTS, SEED).result(LONG)
    assert seen["cuts"] == DISK_CUTS
    assert seen["published"] >= seen["safe"] > DISK_CUTS
    # They did come amid work.
    assert seen["leftovers"]


def test_host_that_lost_power_finds_all_that_was_safe(guest: Guest) -> None:
    seen = power_cuts.cut_guest(guest, GUEST_CUTS, SEED)
    assert seen["cuts"] == GUEST_CUTS
    assert seen["published"] >= seen["safe"] > GUEST_CUTS


def test_without_durable_the_same_cuts_do_harm(guest: Guest) -> None:
    """So they are cuts, and would be noticed."""
    with pytest.raises(AssertionError, match=r"are lost|not what was written"):
        guest.start(power_cuts.cut_disk, HARMFUL_CUTS, SEED, durable=False).result(LONG)
