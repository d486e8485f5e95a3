"""Two drivers, two watchdogs, two documents: every schedule there is, up to a depth.

A deeper one takes hours: `python -m tests.simulation --exhaustive 2 --kinds switch crash`.
"""

from collections.abc import Sequence

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


@pytest.mark.parametrize("kinds", [["crash"]])
def test_nor_do_two(kinds: Sequence[str]) -> None:
    explored = explore(SCENES["plain"], 2, kinds)
    assert not explored.broken
    assert explored.states > 10_000


def test_what_one_interruption_can_show_is_found() -> None:
    with MUTANTS["publish before commit"]():
        explored = explore(SCENES["durable"], 1, ["crash"])
    assert any("twice" in wrong for _, wrong in explored.broken)


def test_a_state_that_is_known_is_not_entered_again() -> None:
    """All kinds at all steps would be some thousands of runs to their ends, with states of each."""
    explored = explore(SCENES["plain"], 1, KINDS)
    assert explored.states < explored.schedules
