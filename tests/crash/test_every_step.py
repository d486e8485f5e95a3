"""Whatever step of the hand-off a driver dies at, each document comes out, and comes out once."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# More than processors, because a driver that drains a queue mostly waits to be sure.
JOBS = 6
# One of each kind is played each time, every schedule of every variant in a campaign: some minutes,
# for whoever has changed the hand-off.
CAMPAIGN = pytest.mark.campaign
HOWS = ("other", "restart", "recover")
VARIANTS = (
    "no-output",
    "several-outputs",
    "durable",
    "batch",
    "archive",
    "failing",
    "delayed",
    "later",
    "mixed",
)
# In memory, because a kill, unlike a power cut, takes nothing from the page cache.
MEMORY = "/dev/shm"


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """A directory for the schedules; in memory where there is one."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="queuedriver-crash-", dir=MEMORY) as directory:
        yield Path(directory)


def schedules(base: Path, variant: str, how: str, *given: str) -> int:
    """Run them all; how many there were."""
    options = [*given, "--jobs", str(JOBS), "--base", str(base / how)]
    (base / how).mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.crash.schedules", variant, how, *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    *wrong, last = ran.stdout.splitlines()
    assert not wrong, "\n".join(wrong[:20])
    assert ran.returncode == 0
    return int(last.split()[0])


@pytest.mark.parametrize("how", [pytest.param("any", marks=pytest.mark.quick)])
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(base: Path, how: str) -> None:
    assert schedules(base, "one-output", how) > 40


@CAMPAIGN
@pytest.mark.parametrize("how", HOWS)
def test_so_it_is_on_both_sides_of_each_call_that_only_looks_too(base: Path, how: str) -> None:
    assert schedules(base, "one-output", how, "--thorough") > 200


@pytest.mark.parametrize("variant", VARIANTS)
def test_so_it_is_whatever_the_driver_does(base: Path, variant: str) -> None:
    assert schedules(base, variant, "any") > 40


@CAMPAIGN
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_so_it_is_whoever_takes_over_from_it(base: Path, variant: str, how: str) -> None:
    assert schedules(base, variant, how) > 40


@pytest.mark.parametrize(
    "variant",
    [
        "mixed",
        *(pytest.param(one, marks=CAMPAIGN) for one in ("one-output", "batch", "archive", "later")),
    ],
)
def test_a_driver_given_up_by_mistake_at_any_step_does_no_harm_when_it_goes_on(
    base: Path, variant: str
) -> None:
    assert schedules(base, variant, "woken") > 40


@pytest.mark.parametrize("how", ["asked", "hurried"])
@pytest.mark.parametrize("variant", [pytest.param("batch", marks=CAMPAIGN), "mixed"])
def test_a_driver_asked_to_leave_at_any_step_leaves_nothing_and_charges_nobody(
    base: Path, variant: str, how: str
) -> None:
    assert schedules(base, variant, how) > 40


# Of each kind of second death one variant is played each time, and each variant in one of them.
@pytest.mark.parametrize("how", ["twice", pytest.param("restarts", marks=CAMPAIGN)])
@pytest.mark.parametrize("variant", ["one-many", pytest.param("one-bad", marks=CAMPAIGN)])
def test_who_recovers_may_be_killed_at_any_step_too(base: Path, variant: str, how: str) -> None:
    assert schedules(base, variant, how) > 100


@pytest.mark.parametrize("variant", [pytest.param("one-many", marks=CAMPAIGN), "one-bad"])
def test_two_may_recover_at_once_one_of_them_standing_still_at_any_step(
    base: Path, variant: str
) -> None:
    assert schedules(base, variant, "overtaken") > 100
