"""What a watchdog does about one slot, as tables of facts and decisions."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.driving.lifetime import OUT_OF_TIME
from queuedriver.errors import ConfigError, Disagreement
from watchdogd.pipeline.model import Drivers, Stage
from watchdogd.policy import (
    HEALTHY_AFTER,
    HUNG,
    JITTER,
    LATE,
    LONGEST_DELAY,
    MEMORY,
    START_UP,
    Action,
    Ask,
    Life,
    Past,
    Rest,
    Seen,
    Start,
    Withdraw,
    cause,
    decide,
    hard_limit,
    healthy,
    is_degraded,
    leaves_within,
    remember,
)

NOW = 10_000.0
HARD = 600.0


def stage(**facts: Any) -> Stage:
    usual: dict[str, Any] = {"name": "parse", "inputs": ("in",), "outputs": ("out",)}
    work = {"drivers": Drivers(1, 1), "kind": "call", "work": "parse:process"}
    return Stage(**(usual | work | facts))


STAGE = stage(grace=60.0, startup_timeout=300.0, max_memory=1000)
LEAVING = leaves_within(STAGE.grace)
BLANK = Past()


def life(**facts: Any) -> Life:
    """A run that was ready at once and ended now, a moment later unless told otherwise."""
    return Life(**({"started_at": NOW - 1, "ready_at": NOW - 1, "ended_at": NOW} | facts))


CRASH = life(claimed=True, signal="SIGSEGV")


def lives(past: Past, each: Life, number: int, patience: Stage = STAGE) -> list[Past]:
    """What is remembered after each of so many equal runs, each started as soon as it might be."""
    found, now = [], NOW
    for _ in range(number):
        now = max(now, past.not_before)
        lasted = each.ended_at - each.started_at
        run = msgspec.structs.replace(
            each,
            started_at=now,
            ready_at=each.ready_at and now + each.ready_at - each.started_at,
            ended_at=now + lasted,
        )
        now = run.ended_at
        past = remember(past, run, patience, 0.0)
        found.append(past)
    return found


def delays(past: Past, each: Life, number: int, patience: Stage = STAGE) -> list[float]:
    """How long each of so many equal runs makes the next one wait."""
    found, now = [], NOW
    for one in lives(past, each, number, patience):
        now += each.ended_at - each.started_at
        found.append(round(one.not_before - now, 6))
        now = max(now, one.not_before)
    return found


# What a run was worth


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        # It finished a document: healthy, however it ended.
        ({"documents": 1, "claimed": True}, True),
        ({"documents": 1, "claimed": True, "signal": "SIGSEGV"}, True),
        ({"documents": 1, "claimed": True, "ended_for": HUNG}, True),
        ({"documents": 1, "claimed": True, "ended_for": MEMORY}, True),
        # It finished none, though there were some.
        ({"claimed": True, "signal": "SIGSEGV"}, False),
        ({"claimed": True, "ready_at": NOW - 9999, "started_at": NOW - 9999}, False),
        # There was none to claim.
        ({"ready_at": NOW - HEALTHY_AFTER, "signal": "SIGKILL"}, True),
        ({"ready_at": NOW - HEALTHY_AFTER + 1, "signal": "SIGKILL"}, False),
        # What loads for minutes and dies before it is ready has been of no use.
        ({"started_at": NOW - 9999, "ready_at": 0.0, "exit_code": 1}, False),
        # What had to be ended has to have done something.
        ({"ready_at": NOW - 9999, "ended_for": MEMORY}, False),
        ({"ready_at": NOW - 9999, "ended_for": HUNG, "claimed": True}, False),
        ({"started_at": NOW - 300, "ready_at": 0.0, "ended_for": START_UP}, False),
    ],
)
def test_a_run_is_judged_by_the_work_it_did(facts: dict[str, Any], verdict: bool) -> None:
    assert healthy(life(**facts)) is verdict


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"signal": "SIGSEGV"}, "it was ended by SIGSEGV"),
        ({"exit_code": 1}, "it crashed (exit code 1)"),
        ({"exit_code": 70, "word": "crashed", "why": "no"}, "no (exit code 70)"),
        ({"exit_code": 127}, "there is no such command (exit code 127)"),
        ({"exit_code": 0}, "it ended without a word, with exit code 0"),
        ({}, "it crashed"),
        ({"ended_for": HUNG, "signal": "SIGKILL"}, "its document was past its hard limit"),
        ({"ended_for": MEMORY, "signal": "SIGKILL"}, "it used too much memory"),
        ({"ended_for": START_UP, "signal": "SIGTERM"}, "it was not ready in time"),
        ({"ended_for": LATE, "signal": "SIGTERM"}, "it did not leave"),
        ({"ended_for": "restart"}, "restart"),
    ],
)
def test_how_a_run_ended_is_said_in_words(facts: dict[str, Any], words: str) -> None:
    assert cause(life(**facts)) == words


# Restarts


@pytest.mark.parametrize(
    "facts",
    [
        {"claimed": True, "signal": "SIGSEGV"},
        {"claimed": True, "signal": "SIGKILL"},
        {"exit_code": 1, "word": "crashed"},
        {"exit_code": 70, "word": "crashed"},
        {"exit_code": 73, "word": "failed"},
        # A program that ends by itself, and says nothing of it.
        {"exit_code": 0},
        {"exit_code": 0, "claimed": True},
        {"ended_for": HUNG, "claimed": True, "signal": "SIGKILL"},
        {"ended_for": MEMORY, "claimed": True, "signal": "SIGKILL"},
        {"ended_for": START_UP, "ready_at": 0.0, "signal": "SIGKILL"},
        {"ended_for": LATE, "word": "recycled", "signal": "SIGKILL"},
        # Ended by us, whatever it had come to say.
        {"ended_for": HUNG, "claimed": True, "word": "quit", "exit_code": 0},
        {"ended_for": HUNG, "claimed": True, "exit_code": 78},
        # It recycled itself before it had claimed anything: its limit is less than it loads.
        {"word": "recycled", "exit_code": 0},
    ],
)
def test_runs_that_finish_nothing_wait_longer_and_longer_and_are_then_left_alone(
    facts: dict[str, Any],
) -> None:
    run = life(**facts)
    assert delays(BLANK, run, 8) == [0, 0, 1, 2, 4, 8, 16, 900]
    past = lives(BLANK, run, 8)
    assert [one.state for one in past] == ["backoff"] * 7 + ["crash-looped"]
    assert [one.unhealthy for one in past] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert past[-1].why == f"8 runs in a row finished nothing; the last: {cause(run)}"


def test_delays_grow_to_a_minute_and_no_further() -> None:
    patient = stage(max_unhealthy=2000)
    found = delays(BLANK, CRASH, 1500, patient)
    assert found[:10] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert set(found[8:]) == {60.0}


@pytest.mark.parametrize(("jitter", "factor"), [(-1.0, 1 - JITTER), (0.0, 1.0), (1.0, 1 + JITTER)])
def test_delays_are_spread(jitter: float, factor: float) -> None:
    past = remember(Past(unhealthy=5), CRASH, STAGE, jitter)
    assert past.not_before == pytest.approx(NOW + 8.0 * factor)


@pytest.mark.parametrize(
    "facts",
    [
        {"documents": 1, "claimed": True, "signal": "SIGSEGV"},
        {"ready_at": NOW - 60, "exit_code": 1},
    ],
)
@pytest.mark.parametrize("unhealthy", [0, 1, 7, 30])
def test_after_a_healthy_run_a_crash_is_the_first_one_again(
    facts: dict[str, Any], unhealthy: int
) -> None:
    past = remember(Past(state="crash-looped", unhealthy=unhealthy), life(**facts), STAGE, 1.0)
    assert (past.state, past.unhealthy, past.not_before) == ("backoff", 0, NOW)
    assert remember(past, CRASH, STAGE, 1.0).not_before == NOW


def test_a_failed_trial_leaves_it_crash_looped_until_the_next() -> None:
    past = lives(Past(unhealthy=8, state="crash-looped"), CRASH, 3)
    assert [one.state for one in past] == ["crash-looped"] * 3
    assert delays(Past(unhealthy=8, state="crash-looped"), CRASH, 3) == [900, 900, 900]


def test_without_trials_a_crash_loop_is_for_good() -> None:
    past = remember(Past(unhealthy=7), CRASH, stage(trial_every=0.0), 0.0)
    assert (past.state, past.not_before) == ("crash-looped", math.inf)


@pytest.mark.parametrize("code", [2, 64, 77, 78, 126, 127])
@pytest.mark.parametrize("documents", [0, 5])
def test_what_no_start_can_mend_is_not_started_again(code: int, documents: int) -> None:
    run = life(exit_code=code, word="failed", why="no such module 'ocr'", documents=documents)
    past = remember(BLANK, run, STAGE, 0.0)
    assert (past.state, past.not_before) == ("crash-looped", math.inf)
    assert past.why == f"no such module 'ocr' (exit code {code}); mend that, then restart or reload"


def test_driver_that_disagrees_with_others_is_tried_again_and_is_no_wrong_configuration() -> None:
    run = life(word=Disagreement.last_word, exit_code=ConfigError.exit_code, ready_at=0.0)
    past = remember(Past(unhealthy=3), run, STAGE, 0.0)
    assert (past.state, past.unhealthy, past.not_before) == ("backoff", 3, NOW + 5)
    assert past.why == "others of its queue have other settings"


# Leaving


@pytest.mark.parametrize("unhealthy", [0, 7, 9])
@pytest.mark.parametrize("ended_for", ["restart", "parting"])
def test_what_was_restarted_has_no_past(unhealthy: int, ended_for: str) -> None:
    before = Past(state="crash-looped", unhealthy=unhealthy)
    assert remember(before, life(ended_for=ended_for, signal="SIGKILL"), STAGE, 0.0) == Past(
        why=ended_for
    )


@pytest.mark.parametrize("ended_for", ["scale", "stop"])
def test_what_was_no_longer_wanted_is_not_counted(ended_for: str) -> None:
    before = Past(state="backoff", unhealthy=5, why="it crashed")
    run = life(ended_for=ended_for, word="quit", exit_code=0)
    assert remember(before, run, STAGE, 0.0) == before
    assert remember(before, msgspec.structs.replace(run, documents=1), STAGE, 0.0) == BLANK


@pytest.mark.parametrize(
    ("facts", "unhealthy"),
    [
        ({"word": "recycled", "claimed": True, "documents": 9}, 0),
        ({"word": "recycled", "ready_at": NOW - 60}, 0),
        ({"word": "recycled", "claimed": True}, 3),
        ({"word": "reload"}, 3),
        ({"word": "reload", "documents": 1}, 0),
        # Not even when it was ended on its way out.
        ({"word": "reload", "signal": "SIGKILL"}, 3),
    ],
)
def test_after_recycling_and_reloading_it_is_started_at_once_and_nothing_is_counted(
    facts: dict[str, Any], unhealthy: int
) -> None:
    past = remember(Past(state="backoff", unhealthy=3), life(**facts), STAGE, 0.0)
    assert past == Past(why=facts["word"], unhealthy=unhealthy)


@pytest.mark.parametrize("word", ["quit", "done"])
def test_what_left_as_it_was_told_is_stopped(word: str) -> None:
    past = remember(Past(unhealthy=3), life(word=word, exit_code=0), STAGE, 0.0)
    # Two seconds: until the watchdog has surely been told the cause, too.
    assert past == Past(
        state="stopped",
        why="it left as it was told",
        unhealthy=3,
        deferred_at=NOW,
        not_before=NOW + 2,
    )


def test_what_leaves_again_and_again_is_started_less_and_less_often() -> None:
    found = delays(BLANK, life(word="quit", exit_code=0), 9)
    # Each time as long as it has lasted, runs of 1 s included.
    assert found == [2, 3, 7, 15, 31, 60, 60, 60, 60]


@pytest.mark.parametrize(
    ("facts", "state", "first", "why"),
    [
        ({"word": "later", "exit_code": 75}, "backoff", 1.0, "it asked to be started later"),
        ({"exit_code": 75}, "backoff", 1.0, "it asked to be started later"),
        ({"word": "blocked", "exit_code": 75, "why": "full"}, "backoff", 1.0, "full"),
        ({"word": "failed", "exit_code": 69, "why": "held by 7"}, "backoff", 5.0, "held by 7"),
        ({"exit_code": 69}, "backoff", 5.0, "another living driver has its id"),
        ({"word": "disagrees", "exit_code": 78, "why": "retries"}, "backoff", 5.0, "retries"),
        ({"word": "failed", "exit_code": 66, "why": "no in"}, "waiting-fs", 10.0, "no in"),
        ({"exit_code": 66}, "waiting-fs", 10.0, "a queue of its is not there"),
    ],
)
def test_what_is_not_its_fault_is_not_counted_for_an_hour(
    facts: dict[str, Any], state: Any, first: float, why: str
) -> None:
    run = life(**facts)
    past = remember(Past(unhealthy=3), run, STAGE, 0.0)
    assert past == Past(state=state, why=why, unhealthy=3, deferred_at=NOW, not_before=NOW + first)
    found, now = BLANK, NOW
    while not found.unhealthy:
        now = max(now, found.not_before)
        run = msgspec.structs.replace(run, started_at=now, ready_at=now, ended_at=now + 1)
        now += 1
        found = remember(found, run, STAGE, 0.0)
        assert found.not_before - now <= LONGEST_DELAY
    assert 3600 < now - NOW < 3600 + 2 * LONGEST_DELAY
    # From then on it is.
    last = lives(found, run, 12)[-1]
    assert last.state == "crash-looped"


def test_an_hour_of_deferral_starts_over_when_a_document_was_finished() -> None:
    before = Past(state="backoff", deferred_at=NOW - 4000, not_before=NOW - 1)
    done = remember(before, life(exit_code=75, documents=1), STAGE, 0.0)
    assert (done.unhealthy, done.deferred_at) == (0, NOW)
    assert remember(before, life(exit_code=75), STAGE, 0.0).unhealthy == 1


def test_what_made_it_leave_yesterday_does_not_slow_it_down_today() -> None:
    before = Past(state="stopped", deferred_at=NOW - 90_000, not_before=NOW - 89_000)
    past = remember(before, life(word="done", exit_code=0), STAGE, 0.0)
    assert (past.deferred_at, past.not_before) == (NOW, NOW + 2)


def test_trouble_of_the_file_system_is_waited_for_and_never_counted() -> None:
    run = life(exit_code=74, word="failed", why="No space left on device", claimed=True)
    assert delays(BLANK, run, 1000) == [10.0] * 1000
    past = lives(BLANK, run, 1000)[-1]
    assert (past.state, past.unhealthy) == ("waiting-fs", 0)
    assert past.why == "No space left on device"


_RUNS = st.builds(
    Life,
    started_at=st.just(NOW - 100),
    ready_at=st.sampled_from([0.0, NOW - 99, NOW - 1]),
    ended_at=st.just(NOW),
    documents=st.integers(0, 2),
    claimed=st.booleans(),
    word=st.sampled_from(
        [
            "",
            "quit",
            "reload",
            "recycled",
            "done",
            "later",
            "failed",
            "disagrees",
            OUT_OF_TIME,
        ]
    ),
    exit_code=st.none() | st.integers(0, 130),
    signal=st.sampled_from(["", "SIGKILL", "SIGSEGV"]),
    ended_for=st.sampled_from(["", HUNG, MEMORY, START_UP, LATE, "restart", "scale", "stop"]),
)
_PASTS = st.builds(
    Past,
    state=st.sampled_from(["", "backoff", "crash-looped", "stopped", "waiting-fs"]),
    unhealthy=st.integers(0, 3000),
    deferred_at=st.sampled_from([0.0, NOW - 5000, NOW - 101]),
    not_before=st.floats(0, NOW - 100),
)


@given(past=_PASTS, run=_RUNS, jitter=st.floats(-1, 1))
def test_whatever_a_run_was_the_slot_has_a_future(past: Past, run: Life, jitter: float) -> None:
    found = remember(past, run, STAGE, jitter)
    assert found.unhealthy in (0, past.unhealthy, past.unhealthy + 1)
    assert found.unhealthy <= past.unhealthy or not healthy(run) or "mend" in found.why
    waits = found.not_before - NOW
    if found.state == "crash-looped" and run.ended_for not in ("scale", "stop"):
        assert waits in (STAGE.trial_every, math.inf)
    else:
        assert waits <= LONGEST_DELAY * (1 + JITTER)


# An empty slot


def seen(**facts: Any) -> Seen:
    usual: dict[str, Any] = {"unwanted": "", "alive": False, "past": BLANK, "hard": HARD}
    return Seen(**(usual | facts))


@pytest.mark.parametrize(
    ("facts", "action"),
    [
        # Now.
        ({}, Start("first start")),
        ({"past": Past(why="recycled")}, Start("recycled")),
        ({"past": Past(state="backoff", why="it crashed", not_before=NOW)}, Start("it crashed")),
        ({"past": Past(state="crash-looped", why="8 runs", not_before=NOW)}, Start("trial")),
        ({"past": Past(state="stopped", not_before=NOW - 1)}, Start("there is work again")),
        ({"past": Past(state="waiting-fs")}, Start("the file system answers again")),
        # When its time has come.
        (
            {"past": Past(state="backoff", why="it crashed", not_before=NOW + 1)},
            Rest("backoff", "it crashed", NOW + 1),
        ),
        (
            {"past": Past(state="crash-looped", why="8 runs", not_before=NOW + 900)},
            Rest("crash-looped", "8 runs", NOW + 900),
        ),
        (
            {"past": Past(state="crash-looped", why="8 runs", not_before=math.inf)},
            Rest("crash-looped", "8 runs"),
        ),
        (
            {"past": Past(state="stopped", why="it left", not_before=NOW + 2)},
            Rest("stopped", "it left", NOW + 2),
        ),
        (
            {"past": Past(state="waiting-fs", why="disk full", not_before=NOW + 10)},
            Rest("waiting-fs", "disk full", NOW + 10),
        ),
        # Not while nobody wants it, or there is nothing to do.
        ({"unwanted": "scale"}, Rest("stopped", "fewer drivers are wanted")),
        (
            {"unwanted": "scale", "fs_ok": False},
            Rest("stopped", "fewer drivers are wanted"),
        ),
        (
            {"unwanted": "scale", "past": Past(state="crash-looped", not_before=NOW + 9)},
            Rest("stopped", "fewer drivers are wanted"),
        ),
        (
            {"unwanted": "done"},
            Rest("stopped", "its input queues are closed"),
        ),
        ({"idle": "quit"}, Rest("stopped", "told to quit")),
        (
            {"idle": "done", "past": Past(state="stopped", why="it left as it was told")},
            Rest("stopped", "its input queues are closed"),
        ),
        ({"idle": "10 s are left"}, Rest("stopped", "10 s are left")),
        # Not while the file system does not answer.
        ({"fs_ok": False}, Rest("waiting-fs", "the file system does not answer")),
        (
            {"fs_ok": False, "past": Past(state="backoff", not_before=NOW + 1)},
            Rest("waiting-fs", "the file system does not answer"),
        ),
        (
            {"fs_ok": False, "past": Past(state="crash-looped", why="8 runs", not_before=NOW + 1)},
            Rest("crash-looped", "8 runs", NOW + 1),
        ),
        (
            {"fs_ok": False, "past": Past(state="crash-looped", not_before=NOW)},
            Rest("waiting-fs", "the file system does not answer"),
        ),
    ],
)
def test_an_empty_slot(facts: dict[str, Any], action: Action) -> None:
    assert decide(seen(**facts), STAGE, NOW) == action


# A living driver


def live(**facts: Any) -> Seen:
    """A driver that has been ready for a while and has nothing at hand."""
    usual = {"alive": True, "started_at": NOW - 900, "ready_at": NOW - 890, "state": "ready"}
    return seen(**(usual | facts))


DUE = NOW + 3


def on(rung: str, why: str) -> dict[str, Any]:
    """Facts of a driver that has just been put on this rung of the ladder."""
    return {"rung": rung, "asked_for": why, "asked_at": NOW, "due_at": DUE}


LOADING = {"started_at": NOW - 10, "ready_at": 0.0, "state": "starting"}


@pytest.mark.parametrize(
    ("facts", "state", "why", "until"),
    [
        (LOADING, "starting", "", NOW + 290),
        (LOADING | {"state": ""}, "starting", "", NOW + 290),
        ({}, "ready", "", math.inf),
        ({"began_at": NOW - 5}, "busy", "", NOW + 595),
        ({"state": "busy"}, "busy", "", math.inf),
        ({"state": "blocked"}, "ready", "its outputs take no more", math.inf),
        ({"state": "waiting-fs"}, "waiting-fs", "it waits for the file system", math.inf),
        # It leaves by itself.
        ({"state": "stopped"}, "draining", "it is leaving", math.inf),
        ({"state": "recycled"}, "draining", "it is leaving", math.inf),
        ({"left_at": NOW - 1}, "draining", "it is leaving", NOW - 1 + LEAVING),
        # It was asked to.
        (on("leave", "scale"), "draining", "fewer drivers are wanted", DUE),
        (on("leave", "its watchdog has died"), "draining", "its watchdog has died", DUE),
        (
            on("leave", "restart") | {"began_at": NOW - 598},
            "draining",
            "another takes its place",
            NOW + 2,
        ),
        (on("hurry", "stop") | {"unwanted": "scale"}, "draining", "the watchdog leaves", DUE),
        # The file system does not answer: hard limits stand still.
        ({"fs_ok": False}, "waiting-fs", "the file system does not answer", math.inf),
        (
            {"fs_ok": False, "began_at": NOW - 9999},
            "waiting-fs",
            "the file system does not answer",
            math.inf,
        ),
        (
            LOADING | {"fs_ok": False, "started_at": NOW - 9999},
            "waiting-fs",
            "the file system does not answer",
            math.inf,
        ),
        (
            {"state": "waiting-fs", "began_at": NOW - 9999},
            "waiting-fs",
            "it waits for the file system",
            math.inf,
        ),
    ],
)
def test_a_living_driver_is_left_to_its_work(
    facts: dict[str, Any], state: str, why: str, until: float
) -> None:
    assert decide(live(**facts), STAGE, NOW) == Rest(state, why, until)


@pytest.mark.parametrize(
    ("facts", "action"),
    [
        # Too long, at the very instant.
        ({"began_at": NOW - 600}, Ask("stacks", HUNG)),
        ({"began_at": NOW - 599.9}, Rest("busy", "", NOW + 0.1)),
        (LOADING | {"started_at": NOW - 300}, Ask("stacks", START_UP)),
        ({"left_at": NOW - LEAVING}, Ask("stacks", LATE)),
        # Those on their way out may be past another limit first.
        (on("leave", "scale") | {"began_at": NOW - 600}, Ask("stacks", HUNG)),
        # A dead mount is no reason to be there for ever.
        ({"left_at": NOW - LEAVING, "fs_ok": False}, Ask("stacks", LATE)),
        # Too large.
        ({"memory": 1250}, Rest("ready", "")),
        ({"memory": 1251}, Ask("kill", MEMORY)),
        ({"memory": 1251, "fs_ok": False}, Ask("kill", MEMORY)),
        ({"memory": 1251} | on("leave", "scale"), Ask("kill", MEMORY)),
        ({"memory": 1251} | on("hurry", "stop"), Ask("kill", MEMORY)),
        ({"memory": 1251} | on("stacks", HUNG), Ask("kill", MEMORY)),
        ({"memory": 1251, "began_at": NOW - 600}, Ask("kill", MEMORY)),
        # Not wanted.
        ({"unwanted": "scale"}, Ask("leave", "scale")),
        (LOADING | {"unwanted": "scale"}, Ask("leave", "scale")),
        ({"unwanted": "scale", "fs_ok": False}, Ask("leave", "scale")),
        ({"unwanted": "scale", "began_at": NOW - 600}, Ask("stacks", HUNG)),
        # It is leaving already; a second signal would only hurry it.
        ({"unwanted": "scale", "left_at": NOW}, Rest("draining", "it is leaving", NOW + LEAVING)),
    ],
)
def test_a_driver_is_asked_to_end(facts: dict[str, Any], action: Action) -> None:
    assert decide(live(**facts), STAGE, NOW) == action


@pytest.mark.parametrize("rung", ["stacks", "terminate", "kill"])
@pytest.mark.parametrize(
    ("facts", "why", "sentence"),
    [
        ({"began_at": NOW - 601}, HUNG, "its document was past its hard limit"),
        (LOADING | {"started_at": NOW - 301}, START_UP, "it was not ready in time"),
        ({"left_at": NOW - LEAVING - 1}, LATE, "it did not leave"),
        # It was told to leave, and the ladder goes on from there.
        ({"unwanted": "scale"}, "scale", "it did not leave"),
        ({}, "scale", "it did not leave"),
    ],
)
def test_what_hangs_is_on_a_ladder_until_it_ends(
    facts: dict[str, Any], why: str, sentence: str, rung: str
) -> None:
    assert decide(live(**facts, **on(rung, why)), STAGE, NOW) == Rest("hung", sentence, DUE)


@pytest.mark.parametrize("why", [HUNG, MEMORY, START_UP, LATE, "scale", "stop"])
def test_what_not_even_sigkill_ends_is_unkillable(why: str) -> None:
    found = decide(live(**on("stuck", why)), STAGE, NOW)
    assert isinstance(found, Rest)
    assert (found.state, found.until) == ("unkillable", math.inf)
    assert "killed, it waits in the kernel, as for a dead mount" in found.why


@pytest.mark.parametrize("rung", ["terminate", "kill"])
def test_who_was_given_its_chance_is_ended_whatever_has_changed(rung: str) -> None:
    assert decide(live(**on(rung, HUNG)), STAGE, NOW).state == "hung"  # type: ignore[union-attr]


def test_a_document_that_ends_while_stacks_are_taken_is_not_killed_for_them() -> None:
    # With nothing at hand, too: whatever comes later has nothing to do with it.
    assert decide(live(**on("stacks", HUNG)), STAGE, NOW) == Withdraw()
    assert decide(live(began_at=NOW - 1, **on("stacks", HUNG)), STAGE, NOW) == Withdraw()
    # Nor for those that were another document's.
    busy = live(began_at=NOW - 600, **on("stacks", HUNG) | {"asked_at": NOW - 1})
    assert decide(busy, STAGE, NOW) == Withdraw()
    # Should it hang, its own stacks are wanted.
    assert decide(live(began_at=NOW - 600), STAGE, NOW) == Ask("stacks", HUNG)


def test_a_driver_that_is_ready_after_all_is_not_ended_for_having_been_late() -> None:
    assert decide(live(**on("stacks", START_UP)), STAGE, NOW) == Withdraw()


def test_a_file_system_that_stops_answering_stops_the_escalation() -> None:
    stuck = live(began_at=NOW - 600, fs_ok=False, **on("stacks", HUNG))
    assert decide(stuck, STAGE, NOW) == Withdraw()
    # It answers again, after 60 s: the limit has moved as far.
    mended = live(began_at=NOW - 540)
    assert decide(mended, STAGE, NOW + 59) == Rest("busy", "", NOW + 60)
    assert decide(mended, STAGE, NOW + 60) == Ask("stacks", HUNG)


def test_without_limits_nothing_is_too_long_or_too_large() -> None:
    boundless = stage()
    driver = live(began_at=1.0, memory=10**15, hard=None)
    assert decide(driver, boundless, NOW) == Rest("busy", "")


_SEEN = st.builds(
    Seen,
    unwanted=st.sampled_from(["", "scale", "stop"]),
    alive=st.booleans(),
    past=_PASTS,
    started_at=st.floats(NOW - 2000, NOW),
    ready_at=st.sampled_from([0.0, NOW - 1]),
    began_at=st.just(0.0) | st.floats(NOW - 1000, NOW),
    state=st.sampled_from(["", "starting", "ready", "blocked", "waiting-fs", "stopped"]),
    left_at=st.just(0.0) | st.floats(NOW - 1000, NOW),
    memory=st.integers(0, 2000),
    rung=st.sampled_from(["run", "leave", "hurry", "stacks", "terminate", "kill", "stuck"]),
    asked_for=st.sampled_from([HUNG, LATE, MEMORY, START_UP, "scale", "stop"]),
    asked_at=st.floats(NOW - 1000, NOW),
    due_at=st.floats(NOW, NOW + 1000, exclude_min=True),
    fs_ok=st.booleans(),
    idle=st.sampled_from(["", "done", "2 min are left"]),
)


@given(facts=_SEEN)
def test_nothing_is_asked_twice_and_every_rest_has_an_end_ahead(facts: Seen) -> None:
    action = decide(facts, STAGE, NOW)
    if isinstance(action, Ask):
        assert facts.alive
        asked = {"rung": action.step, "asked_for": action.why, "asked_at": NOW, "due_at": NOW + 1}
        after = msgspec.structs.replace(facts, **asked)
        assert isinstance(decide(after, STAGE, NOW), Rest)
    elif isinstance(action, Withdraw):
        assert facts.alive
        after = msgspec.structs.replace(facts, rung="run")
        assert not isinstance(decide(after, STAGE, NOW), Withdraw)
    elif isinstance(action, Start):
        assert not facts.alive
        assert (facts.unwanted, facts.idle, facts.fs_ok) == ("", "", True)
    else:
        assert action.until > NOW


@given(facts=_SEEN)
def test_an_unwanted_driver_is_leaving_or_on_its_way_to_its_end(facts: Seen) -> None:
    facts = msgspec.structs.replace(facts, unwanted="scale", alive=True)
    action = decide(facts, STAGE, NOW)
    if isinstance(action, Withdraw):
        action = decide(msgspec.structs.replace(facts, rung="run"), STAGE, NOW)
    if isinstance(action, Rest):
        # Each of these has its time, and the next rung after it.
        assert math.isfinite(action.until) or facts.rung == "stuck"
        assert facts.rung != "run" or facts.left_at


# A stage


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ([], False),
        (["ready"], False),
        (["crash-looped"], True),
        (["crash-looped", "ready"], False),
        (["crash-looped", "crash-looped"], True),
        (["crash-looped", "crash-looped", "busy"], True),
        (["crash-looped", "crash-looped", "busy", "backoff"], True),
        (["crash-looped", "crash-looped", "busy", "ready", "ready"], False),
        (["backoff"] * 4, False),
    ],
)
def test_a_stage_is_degraded_when_half_of_its_slots_are_left_alone(
    states: list[str], verdict: bool
) -> None:
    assert is_degraded(states.count("crash-looped"), len(states)) is verdict


@pytest.mark.parametrize(
    ("timeout", "learned", "hard"),
    [
        (120.0, None, 150.0),
        (120.0, 900.0, 150.0),
        (None, 900.0, None),
        ("auto", 900.0, 900.0),
        ("auto", None, None),
    ],
)
def test_the_hard_limit_is_what_was_declared_or_else_learned(
    timeout: Any, learned: float | None, hard: float | None
) -> None:
    assert hard_limit(stage(timeout=timeout), learned) == hard
