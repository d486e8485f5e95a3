"""Break a rule, and the simulation notices; with all rules in place, the same does no harm."""

import pytest

from tests.simulation.found import FOUND, SCHEDULES
from tests.simulation.job_mutants import JOB_MUTANTS
from tests.simulation.mutants import MUTANTS
from tests.simulation.schedules import broken, outline

RULES = MUTANTS | JOB_MUTANTS


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_broken_is_noticed(name: str) -> None:
    mutant = RULES[name]
    with mutant():
        found = mutant.hunt()
    assert found is not None, mutant.why
    assert broken(found) is None, f"{outline(found)} breaks a promise without the mutant, too"


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_would_be_found_again(name: str) -> None:
    mutant = FOUND[name]
    with mutant():
        found = mutant.hunt()
    assert found is not None, mutant.why
    assert broken(found) is None
    assert broken(SCHEDULES[name]) is None
