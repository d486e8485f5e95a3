"""The words for a stage, row by row, and what each means for its drivers."""

from pathlib import Path
from typing import Any

import pytest

from watchdogd.helper_messages import QueueSeen
from watchdogd.stage_words import ROWS, Row, StageFacts

PAGE = Path(__file__).parents[3] / "docs/states.rst"

WELL = QueueSeen()
PAUSED = QueueSeen(paused=True)
QUIT = QueueSeen(quit=True)
TRIPPED = QueueSeen(tripped="stopped by itself: no such file")


@pytest.mark.parametrize(
    ("inputs", "more", "word"),
    [
        ([WELL], {}, ("", "")),
        ([WELL], {"degraded": "exit code 1"}, ("degraded", "exit code 1")),
        ([PAUSED], {"degraded": "exit code 1"}, ("degraded", "exit code 1")),
        ([PAUSED], {}, ("paused", "")),
        ([WELL], {"paused": True}, ("paused", "")),
        ([PAUSED], {"done": True}, ("paused", "")),
        # One input of two: there is still something to claim.
        ([PAUSED, WELL], {}, ("", "")),
        # What is not seen yet may have no PAUSE.
        ([PAUSED, None], {}, ("", "")),
        ([QUIT, WELL], {}, ("quit", "")),
        ([QUIT], {"done": True}, ("quit", "")),
        ([TRIPPED, WELL], {}, ("tripped", TRIPPED.tripped)),
        ([QUIT, TRIPPED], {}, ("tripped", TRIPPED.tripped)),
        ([QUIT], {"parting": True}, ("parting", "")),
        ([WELL], {"done": True}, ("done", "")),
        ([WELL], {"late": "its time ends"}, ("late", "its time ends")),
        ([], {}, ("", "")),
    ],
)
def test_stage_has_the_word_of_the_first_that_holds(
    inputs: list[QueueSeen | None], more: dict[str, Any], word: tuple[str, str]
) -> None:
    paused, facts = "paused" in more, {key: more[key] for key in more if key != "paused"}
    assert StageFacts(**facts).with_inputs(inputs, paused=paused).word == word


WORDS = [row.word for row in ROWS]


def holding(*words: str) -> StageFacts:
    """A stage of which these facts hold, and no other."""
    texts = {"degraded", "tripped", "late"}
    return StageFacts(**{word: "because" if word in texts else True for word in words})  # type: ignore[arg-type]


def test_there_is_a_row_for_each_fact_in_their_order() -> None:
    assert tuple(WORDS) == StageFacts._fields


@pytest.mark.parametrize("row", ROWS, ids=WORDS)
def test_word_comes_with_its_fact_and_goes_with_it_whatever_else_holds_below(row: Row) -> None:
    below = WORDS[WORDS.index(row.word) + 1 :]
    assert holding(row.word).word[0] == row.word
    assert holding(row.word, *below).word[0] == row.word
    assert holding(*below).word[0] == (below or [""])[0]


@pytest.mark.parametrize("row", ROWS, ids=WORDS)
def test_each_fact_counts_for_the_drivers_though_another_gives_the_word(row: Row) -> None:
    for other in ROWS:
        facts = holding(row.word, other.word)
        assert bool(facts.without_drivers) is not (row.drivers and other.drivers)
        assert facts.has_work is (row.work and other.work)
    # Without drivers nothing of what waits is work for more of them.
    assert row.drivers or not row.work


def test_stage_of_which_nothing_holds_has_its_drivers_and_its_work() -> None:
    facts = StageFacts()
    assert (facts.word, facts.without_drivers, facts.has_work) == (("", ""), "", True)


def test_page_of_states_has_the_words_and_prints_the_table() -> None:
    page = PAGE.read_text()
    _, section = page.split(".. _states-of-stages:")
    words = [line.split()[0] for line in section.splitlines() if line.startswith("``")]
    # A stage that is parting is told of by its drivers alone.
    assert words[: len(ROWS) - 1] == [f"``{word}``" for word in WORDS[1:]]
    for row in ROWS:
        cells = (f"``{row.word}``", row.comes, row.goes, row.then)
        assert "   * - " + "\n     - ".join(cells) in section
