"""Intakes in the simulated world: nothing that befalls them loses, doubles or halves a drop."""

import pytest

from tests.simulation.intake_mutants import INTAKE_MUTANTS
from tests.simulation.intakes import SCENES, draw
from tests.simulation.schedules import broken

# Of each scene.
_SCHEDULES = 60


@pytest.mark.parametrize("scene", SCENES)
def test_each_drop_enters_once_and_whole_whatever_befalls_its_intakes(scene: str) -> None:
    for seed in range(_SCHEDULES):
        assert broken(draw(seed, (scene,))) is None, f"seed {seed} of {scene}"


@pytest.mark.parametrize("name", INTAKE_MUTANTS)
def test_a_rule_of_the_intake_that_is_broken_is_noticed(name: str) -> None:
    mutant = INTAKE_MUTANTS[name]
    with mutant():
        found = mutant.hunt()
    assert found is not None, mutant.why
    assert broken(found) is None, f"{found} breaks a promise without the mutant, too"
