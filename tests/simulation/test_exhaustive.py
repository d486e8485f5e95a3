"""Two drivers, two watchdogs, two documents: every schedule of one interruption.

Two kills at any two steps are a part of `sh tests/run campaign`. Two of several kinds take hours:
`python -m tests.simulation --exhaustive 2 --kinds switch crash`.
"""

import pytest

from tests.simulation.exhaustive import KINDS, explore
from tests.simulation.mutants import MUTANTS
from tests.simulation.scene import SCENES


@pytest.mark.parametrize("scene", ["plain", "durable", "one host", "plan"])
def test_no_single_interruption_does_harm_at_any_step(scene: str) -> None:
    explored = explore(SCENES[scene], 1)
    assert not explored.broken
    # Else it would not have looked.
    assert explored.states > 1000


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("publish before commit", "crash"),
        ("publish by link and unlink", "crash"),
        ("publish replaces", "consume"),
        ("enoent believed at claim", "lose"),
        ("enoent believed at commit", "lose"),
    ],
)
def test_a_broken_rule_that_one_interruption_can_show_is_found(name: str, kind: str) -> None:
    mutant = MUTANTS[name]
    with mutant():
        explored = [explore(SCENES[scene], 1, [kind]) for scene in mutant.scenes]
    assert any(one.broken for one in explored)


def test_a_state_that_is_known_is_not_entered_again() -> None:
    """All kinds at all steps would be some thousands of runs to their ends, with states of each."""
    explored = explore(SCENES["plain"], 1, KINDS)
    assert explored.states < explored.schedules
