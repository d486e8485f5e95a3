"""Each row of the table of a slot's states, stepped."""

from typing import Any

import pytest
from msgspec.structs import replace

from queuedriver.doors.table import Row
from watchdogd.children import Child
from watchdogd.pipeline.model import Drivers, Stage
from watchdogd.policy import HUNG, Ask, Life, Past, Rest, Seen, Start, Withdraw, decide, remember
from watchdogd.states import SLOT

NOW = 10_000.0
HARD = 600.0
STAGE = Stage(
    name="one",
    inputs=("in",),
    outputs=("out",),
    drivers=Drivers(1, 1),
    kind="call",
    work="m:f",
    max_memory=1000,
)
LEFT = {"rung": "leave", "asked_for": "not wanted", "asked_at": NOW - 1, "due_at": NOW + 60}
EMPTY = {"wanted": True, "alive": False, "started_at": NOW - 99}
READY = {**EMPTY, "alive": True, "ready_at": NOW - 90, "state": "ready", "hard": HARD}
BUSY = {**READY, "began_at": NOW - 5}
HANGS = {**READY, "rung": "stacks", "asked_for": HUNG, "asked_at": NOW - 1, "due_at": NOW + 1}


def past(state: Any, wait: float = 5.0) -> dict[str, Any]:
    return {**EMPTY, "past": Past(state=state, not_before=NOW + wait)}


# What the facts are in each state.
STATES: dict[str, dict[str, Any]] = {
    "stopped": {**EMPTY, "wanted": False},
    "backoff": past("backoff"),
    "crash-looped": past("crash-looped"),
    "waiting-fs": {**EMPTY, "fs_ok": False},
    "starting": {**READY, "ready_at": 0.0, "state": "starting"},
    "ready": READY,
    "busy": BUSY,
    "draining": {**BUSY, "wanted": False, **LEFT},
    "hung": {**HANGS, "began_at": NOW - HARD - 1},
    "unkillable": {**HANGS, "rung": "stuck"},
}
# What an event changes; of some it depends on when it comes.
EVENTS: dict[str, dict[str, Any]] = {
    "wanted, and there is work": {"wanted": True},
    "wanted again": {"wanted": True},
    "not wanted": {"wanted": False},
    "its time has come": {"past": Past(state="backoff", not_before=NOW)},
    "the file system does not answer": {"wanted": True, "fs_ok": False},
    "the file system answers": {"fs_ok": True},
    "ready": {"ready_at": NOW, "state": "ready"},
    "a document begun": {"began_at": NOW},
    "the document ended": {"began_at": 0.0},
    "its reason gone": {"began_at": 0.0},
    "its last word": {"state": "stopped", "left_at": NOW},
    "startup_timeout over": {"started_at": NOW - STAGE.startup_timeout},
    "hard limit over": {"began_at": NOW - HARD},
    "too much memory": {"memory": 2000},
}
# What a process was asked for before its time was over.
RUNGS: dict[str, Any] = {
    "after the first wish": "leave",
    "after the second wish: 5 s": "hurry",
    "after its stacks: 2 s": "stacks",
    "after SIGTERM: 5 s": "terminate",
    "after SIGKILL: 10 s": "kill",
}
# How runs end.
CRASHED = {"claimed": True, "signal": "SIGSEGV"}
ENDS: dict[str, tuple[dict[str, Any], int]] = {
    "a document finished": ({**CRASHED, "documents": 1}, 1),
    "none finished, twice in a row": (CRASHED, 2),
    "none finished": (CRASHED, 3),
    "none finished, eight in a row": (CRASHED, 8),
    "a start mends nothing: 78": ({"exit_code": 78}, 1),
    "later: 75": ({"exit_code": 75}, 1),
    "the file system: 74": ({"exit_code": 74}, 1),
    "restart": ({"ended_for": "restart"}, 1),
    "scale, stop": ({"ended_for": "scale"}, 1),
    "": ({**CRASHED, "ended_for": HUNG}, 3),
}
SIGNALS = {"leave": "SIGTERM", "stacks": "SIGUSR2", "kill": "SIGKILL", "terminate": "SIGTERM"}


def follow(facts: dict[str, Any]) -> tuple[list[str], str]:
    """Return what is done about these facts, and the state that it comes to."""
    seen, done = Seen(**{"past": Past(), **facts}), []
    while not isinstance(action := decide(seen, STAGE, NOW), Rest):
        if isinstance(action, Ask):
            done.append(SIGNALS[action.step])
            asked = {"rung": action.step, "asked_for": action.why, "due_at": NOW + 2}
            seen = replace(seen, asked_at=NOW, **asked)
        elif isinstance(action, Withdraw):
            done.append("it is left")
            seen = replace(seen, rung="run", asked_for="")
        else:
            assert isinstance(action, Start)
            done.append("start")
            seen = replace(seen, alive=True, started_at=NOW, state="starting")
    return done, action.state


def climb(facts: dict[str, Any], rung: Any) -> dict[str, Any]:
    """The time of a rung is over: the process goes on to the next."""
    child = Child()
    child.ask(rung, facts.get("asked_for", "not wanted"), NOW - 60)
    child.climb(NOW)
    asked = {"rung": child.rung, "asked_for": child.why, "asked_at": child.asked_at}
    return {**facts, **asked, "due_at": NOW + 5}


def after(row: Row) -> dict[str, Any]:
    """Return the facts once the event of this row has come."""
    facts = STATES[row.state]
    if row.event == "its time over":
        return climb(facts, RUNGS[row.when])
    if row.event == "a second wish":
        return {**facts, "rung": "hurry", "asked_for": "stop", "due_at": NOW + 5}
    if row.event != "its end":
        return {**facts, **EVENTS[row.event]}
    ended, number = ENDS[row.when]
    found = Past()
    for _ in range(number):
        run = Life(started_at=NOW - 1, ready_at=NOW - 1, ended_at=NOW, **ended)
        found = remember(found, run, STAGE, 0.0)
    return {**EMPTY, "past": found, "wanted": "scale" not in row.when}


@pytest.mark.parametrize("row", SLOT.rows, ids=lambda row: f"{row.state}: {row.event} {row.when}")
def test_row_of_the_table_is_what_the_policy_does(row: Row) -> None:
    # What is there before is in the state that the row says.
    assert follow(STATES[row.state]) == ([], row.state)
    done, state = follow(after(row))
    assert state == row.to
    # What is done, the row says, too.
    assert all(one.lower() in row.action.lower() for one in done)
    if "is started" in row.action and row.action != "none is started":
        assert done == ["start"]


def test_every_state_has_a_way_in_and_a_way_out() -> None:
    assert {row.state for row in SLOT.rows} == set(STATES)
    assert {row.to for row in SLOT.rows} == set(STATES)
