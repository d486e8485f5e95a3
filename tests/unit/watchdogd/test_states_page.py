"""The page of states has the table of a driver's place as the policy decides it."""

from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from watchdogd import children
from watchdogd.operators.sentences import MEANINGS
from watchdogd.pipeline.model import Drivers, Stage
from watchdogd.policy import HUNG, UNWANTED, Ask, Past, Rest, Seen, Start, Withdraw, decide
from watchdogd.stage_words import ROWS

# Of the drivers that status shows.
DRIVER_STATES = {
    *("starting", "ready", "busy", "blocked", "paused", "draining", "stopped", "backoff"),
    *("crash-looped", "hung", "waiting-fs", "tripped", "unkillable", "dead", "lost"),
}
PAGE = Path(__file__).parents[3] / "docs/states.rst"
NOW = 1000.0
STAGE = Stage(
    name="parse",
    inputs=("values",),
    outputs=("parse",),
    drivers=Drivers(1, 1),
    kind="call",
    work="parse:process",
    max_memory=1000,
)

_EMPTY = Seen(alive=False, unwanted="", past=Past())
_READY = replace(_EMPTY, alive=True, state="ready", started_at=NOW - 90, ready_at=NOW - 80)
_BUSY = replace(_READY, state="busy", began_at=NOW - 10, hard=60.0)
_LATE = replace(_BUSY, began_at=NOW - 70)
# What is in a place, by the word that people read and what is told apart of it.
PLACES = {
    "``stopped``, and wanted": _EMPTY,
    "``backoff``": replace(_EMPTY, past=Past(state="backoff", not_before=NOW + 4)),
    "``crash-looped``": replace(_EMPTY, past=Past(state="crash-looped", not_before=NOW + 900)),
    "``starting``": replace(_READY, state="starting", ready_at=0.0),
    "``ready``": _READY,
    "``busy``": _BUSY,
    "``draining``": replace(_BUSY, rung="leave", asked_for="scale", asked_at=NOW - 1),
    "``hung``: stacks": replace(_LATE, rung="stacks", asked_for=HUNG, asked_at=NOW - 1),
    "``hung``: TERM": replace(_LATE, rung="terminate", asked_for=HUNG, asked_at=NOW - 1),
    "``hung``: KILL": replace(_LATE, rung="kill", asked_for=HUNG, asked_at=NOW - 1),
    "``unkillable``": replace(_LATE, rung="stuck", asked_for=HUNG, asked_at=NOW - 60),
}
# What comes, and how much later it is looked at again.
EVENTS: dict[str, tuple[dict[str, Any], float]] = {
    "nothing": ({}, 0.0),
    "not wanted any more": ({"unwanted": "scale"}, 0.0),
    "its queues are done": ({"unwanted": "done", "idle": "done"}, 0.0),
    "the file system is lost": ({"fs_ok": False}, 0.0),
    "it is ready": ({"began_at": 0.0, "state": "ready", "ready_at": NOW}, 0.0),
    "it takes too much memory": ({"memory": 10_000}, 0.0),
    "its time is over": ({}, 10_000.0),
}
_ASKED = {
    "leave": "TERM: leave",
    "stacks": "asked for its stacks",
    "terminate": "TERM to all of it",
    "kill": "KILL to all of it",
    "stuck": "``unkillable``",
}


def cell(place: str, event: str) -> str:
    """What is done about a place when something comes; a dash where that changes nothing."""
    facts, later = EVENTS[event]
    before = PLACES[place]
    if not before.alive and event in ("it is ready", "it takes too much memory"):
        # That comes to a driver, and there is none.
        return ""
    if later and before.rung not in ("run", "stuck"):
        return _ASKED[children._LADDER[cast(children.Rung, before.rung)].then]
    match decide(replace(before, **facts), STAGE, NOW + later):
        case Start(why):
            return f"started: {why}"
        case Ask(step):
            return _ASKED[step]
        case Withdraw():
            return "goes on"
        case Rest(state):
            return "–" if place.startswith(f"``{state}``") else f"``{state}``"


def table() -> str:
    """The table of the page."""
    _, *events = EVENTS
    rows = [["what is there", *events]]
    rows += [[place, *(cell(place, event) for event in events)] for place in PLACES]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        lines += [f"   {'  ' if index else '* '}- {one}".rstrip() for index, one in enumerate(row)]
    return "\n".join(lines)


def test_page_has_the_table_of_what_is_done_about_a_driver() -> None:
    assert table() in PAGE.read_text()


def test_page_says_why_a_driver_is_not_wanted_as_the_watchdog_does() -> None:
    _, stopped = PAGE.read_text().split(".. _state-stopped:")
    _, table, _ = stopped.split(f"\n{'=' * 56}  ")[:3]
    rows = [row.split("  ")[0] for row in table.splitlines()[1:]]
    assert rows == [*UNWANTED.values()]


def test_each_word_has_its_meaning_and_is_on_the_page() -> None:
    text = PAGE.read_text()
    words = {*DRIVER_STATES, *(row.word for row in ROWS if row.word != "parting")}
    assert words <= {*MEANINGS}
    of_no_page = {"at work", "waits", "idle"}
    for word in {*MEANINGS} - of_no_page:
        assert f".. _state-{word}:" in text or f"``{word}``" in text, word


@pytest.mark.parametrize("place", PLACES)
def test_every_place_of_the_table_is_what_its_row_says_while_nothing_comes(place: str) -> None:
    expected = "started: first start" if place == "``stopped``, and wanted" else "–"
    assert cell(place, "nothing") == expected
