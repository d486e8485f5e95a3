"""Faults of all kinds at once, and the reckoning after them."""

from pathlib import Path

import pytest

from tests.testbed.fuse_mount import missing
from tests.testbed.fuse_storm import documents, reckon, results, run

SUBMITTED = documents(20)
RESULTS = results(SUBMITTED)
CHARGES = {"bad-0": 2}


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("seed", [8])
def test_nothing_is_lost_and_nothing_twice_in_a_storm(tmp_path: Path, seed: int) -> None:
    found = run(tmp_path, seed, count=120, seconds=10)
    assert found.well, found
    assert found.faults


# What the reckoning sees


def test_all_is_well_when_each_result_is_there_once() -> None:
    assert reckon(SUBMITTED, RESULTS, CHARGES, []).well


def test_result_that_is_not_there_is_lost() -> None:
    found = {name: text for name, text in RESULTS.items() if name != "many-1-a.xml"}
    assert reckon(SUBMITTED, found, CHARGES, []).lost == ("many-1-a.xml",)
    assert reckon(SUBMITTED, RESULTS, {}, []).lost == ("bad-0",)


def test_result_beside_its_like_is_twice() -> None:
    again = "good-3~06608c45caf84b9ab1.xml"
    found = {**RESULTS, again: RESULTS["good-3.xml"]}
    assert reckon(SUBMITTED, found, CHARGES, []).twice == (again,)
    assert reckon(SUBMITTED, RESULTS, {**CHARGES, "good-3": 2}, []).twice == ("good-3",)


def test_result_that_is_cut_short_is_broken() -> None:
    found = {**RESULTS, "good-3.xml": RESULTS["good-3.xml"][:4096]}
    assert reckon(SUBMITTED, found, CHARGES, []).broken == ("good-3.xml",)


@pytest.mark.parametrize("charges", [{"bad-0": 1}, {"bad-0": 3}, {"bad-0": 0}])
def test_charge_without_a_fault_of_the_document_is_seen(charges: dict[str, int]) -> None:
    assert reckon(SUBMITTED, RESULTS, charges, []).charged == ("bad-0",)
