"""What a driver does next: each rule, and which of two goes first."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.counts import Pass
from queuedriver.driving.plan import (
    DRAIN_POLL,
    DRAINED_AFTER,
    HINTED_LOOK,
    LONGEST_POLL,
    LONGEST_TROUBLE,
    NAPS,
    NO_CONSUMER,
    SHORTEST_BLOCK,
    SHORTEST_NAP,
    SHORTEST_POLL,
    SHORTEST_TROUBLE,
    Decision,
    Quit,
    Seen,
    Wait,
    is_time_to_watch,
    plan,
)

NOW = 1000.0
# What others have claimed.
ONE, TWO = Pass(working=1), Pass(working=2)


@pytest.mark.parametrize(
    ("seen", "decision"),
    [
        # There is work.
        (Seen(candidate=True), None),
        (Seen(candidate=True, passed=Pass(ready=9), done=True, drain=True), None),
        (Seen(candidate=True, empty_for=9.0, done=True), None),
        (Seen(candidate=True, passed=Pass(later=1), drain=True), None),
        # There is work, and no room.
        (Seen(candidate=True, full="out is full"), Wait(SHORTEST_BLOCK, "out is full", "blocked")),
        (
            Seen(candidate=True, full="out is full", no_consumer_for=NO_CONSUMER),
            Wait(SHORTEST_BLOCK, "out is full", "blocked"),
        ),
        (
            Seen(candidate=True, full="out is full", drain=True, no_consumer_for=NO_CONSUMER - 1),
            Wait(SHORTEST_BLOCK, "out is full", "blocked"),
        ),
        (
            Seen(candidate=True, full="out is full", drain=True, no_consumer_for=NO_CONSUMER),
            Quit(
                "blocked",
                "out is full, and no driver empties it; start one, or raise the limit",
                75,
            ),
        ),
        # There is none.
        (Seen(), Wait(SHORTEST_NAP, "the queue is empty")),
        (Seen(full="out is full"), Wait(SHORTEST_NAP, "the queue is empty")),
        (Seen(empty_for=9.0), Wait(SHORTEST_NAP, "the queue is empty")),
        (Seen(done=True), Wait(DRAINED_AFTER, "making sure that the queue is drained")),
        (
            Seen(drain=True, empty_for=DRAINED_AFTER / 2),
            Wait(DRAINED_AFTER, "making sure that the queue is drained"),
        ),
        (Seen(done=True, empty_for=DRAINED_AFTER), Quit("done", "the queue is done and drained")),
        # It may be reopened.
        (
            Seen(done=True, empty_for=9.0, linger=10.0, idle_turns=99),
            Wait(LONGEST_POLL, "the queue is done, and may be reopened"),
        ),
        (
            Seen(done=True, empty_for=9.0, linger=9.0),
            Quit("done", "the queue is done and drained"),
        ),
        (
            Seen(done=True, drain=True, empty_for=DRAINED_AFTER, linger=9.0),
            Quit("done", "the queue is done and drained"),
        ),
        (Seen(drain=True, empty_for=DRAINED_AFTER), Quit("drained", "the queue is drained")),
        (
            Seen(drain=True, done=True, empty_for=DRAINED_AFTER),
            Quit("done", "the queue is done and drained"),
        ),
        # There is some, and it is others'.
        (Seen(passed=ONE), Wait(SHORTEST_NAP, "other drivers have the rest")),
        (
            Seen(passed=ONE, rest="no worker is there"),
            Wait(SHORTEST_NAP, "no worker is there"),
        ),
        # Whatever seemed to wait.
        (
            Seen(rest="no worker is there", drain=True, empty_for=DRAINED_AFTER),
            Quit("drained", "the queue is drained"),
        ),
        (
            Seen(passed=ONE, done=True),
            Wait(SHORTEST_NAP, "other drivers have the rest"),
        ),
        (
            Seen(passed=ONE, drain=True),
            Wait(SHORTEST_NAP, "other drivers have the rest"),
        ),
        (
            Seen(passed=Pass(ready=1, left=1), idle_turns=9),
            Wait(SHORTEST_NAP, "left to the drivers whose share it is"),
        ),
        # There is some, and it is not due.
        (
            Seen(passed=Pass(later=1, next_due=1060), now=NOW, idle_turns=20),
            Wait(LONGEST_POLL, "nothing is due yet"),
        ),
        (
            Seen(passed=Pass(later=1, next_due=1002), now=NOW, idle_turns=20),
            Wait(2.0, "nothing is due yet"),
        ),
        (
            Seen(passed=Pass(later=1, next_due=999), now=NOW, idle_turns=20),
            Wait(SHORTEST_POLL, "nothing is due yet"),
        ),
        (
            Seen(passed=Pass(later=1, next_due=1060), now=NOW, drain=True),
            Quit("later", "only documents that are not due yet are left", 75),
        ),
        # Paused, in trouble, leaving.
        (Seen(paused=True), Wait(SHORTEST_NAP, "paused")),
        (Seen(trouble="no space"), Wait(0.5, "waiting for the file system: no space")),
        (Seen(leaving="quit", leaving_why="it was asked to"), Quit("quit", "it was asked to")),
        (Seen(leaving="recycled", leaving_why="age"), Quit("recycled", "age")),
        (Seen(leaving="out-of-time", leaving_why="soon"), Quit("out-of-time", "soon")),
        # Whoever asked for a drain is to know that there was none.
        (
            Seen(leaving="out-of-time", leaving_why="soon", drain=True),
            Quit("out-of-time", "soon", 75),
        ),
    ],
)
def test_each_rule_decides_what_it_says(seen: Seen, decision: Decision | None) -> None:
    assert plan(seen) == decision


# From the first to the last: what speaks against all that comes after it.
_RANKS: list[tuple[dict[str, Any], type[Decision | None]]] = [
    ({"leaving": "quit"}, Quit),
    ({"trouble": "no space"}, Wait),
    ({"paused": True}, Wait),
    ({"candidate": True}, type(None)),
    ({"done": True, "drain": True, "empty_for": 9.0}, Quit),
]


def test_a_drain_ends_when_nobody_can_recover_what_is_left() -> None:
    why = "1 claim cannot be recovered: run queuedriver check"
    stuck = Seen(passed=ONE, stuck=1, drain=True)
    assert plan(stuck) == Quit("blocked", why, exit_code=75)
    assert plan(Seen(passed=Pass(working=1, later=2), stuck=1, drain=True)) == plan(stuck)
    # Others may have the rest; and who is not asked to drain waits, and says why.
    for seen in (
        Seen(passed=TWO, stuck=1, drain=True),
        Seen(passed=ONE, stuck=1),
    ):
        waits = plan(seen)
        assert isinstance(waits, Wait)
        assert waits.why == why


@pytest.mark.parametrize(("higher", "lower"), list(itertools.combinations(range(len(_RANKS)), 2)))
def test_leaving_goes_before_trouble_before_pausing_before_work_before_the_end(
    higher: int, lower: int
) -> None:
    facts, kind = _RANKS[higher]
    both = plan(Seen(**{**_RANKS[lower][0], **facts}))
    assert both == plan(Seen(**facts))
    assert type(both) is kind


seens = st.builds(
    Seen,
    candidate=st.booleans(),
    passed=st.builds(
        Pass,
        ready=st.integers(0, 1),
        working=st.integers(0, 1),
        later=st.integers(0, 2),
        next_due=st.integers(0, 2000),
        left=st.integers(0, 1),
        refused=st.integers(0, 1),
    ),
    empty_for=st.sampled_from([-1.0, 0.0, DRAINED_AFTER, 9.0]),
    done=st.booleans(),
    paused=st.booleans(),
    leaving=st.sampled_from(["", "quit", "reload", "recycled", "out-of-time"]),
    full=st.sampled_from(["", "out is full"]),
    no_consumer_for=st.sampled_from([0.0, NO_CONSUMER, 99.0]),
    trouble=st.sampled_from(["", "no space"]),
    troubles=st.integers(0, 5000),
    drain=st.booleans(),
    idle_turns=st.integers(0, 100_000),
    hinted=st.booleans(),
    now=st.just(NOW),
)


@given(seens)
def test_no_wait_is_for_nothing_nor_for_ever(seen: Seen) -> None:
    decision = plan(seen)
    if isinstance(decision, Wait):
        assert SHORTEST_NAP <= decision.seconds <= LONGEST_TROUBLE
        assert decision.why
        if seen.hinted and not seen.trouble and not seen.passed.only_later:
            assert decision.seconds <= HINTED_LOOK


@given(seens)
def test_nothing_is_claimed_but_a_candidate_and_never_while_told_not_to(seen: Seen) -> None:
    if plan(seen) is None:
        assert seen.candidate
        assert not any((seen.leaving, seen.paused, seen.trouble, seen.full))


@given(seens)
def test_a_driver_that_was_not_asked_to_leaves_a_queue_only_when_it_may(seen: Seen) -> None:
    decision = plan(seen)
    if isinstance(decision, Quit) and not seen.leaving:
        assert seen.drain or seen.done
        assert not seen.paused
        if decision.word in ("done", "drained"):
            assert seen.empty_for >= DRAINED_AFTER
            assert not seen.passed.unfinished
            assert decision.exit_code == 0
        else:
            assert seen.drain
            assert decision.exit_code == 75


@pytest.mark.parametrize(
    ("facts", "longest"),
    [
        ({}, LONGEST_POLL),
        ({"hinted": True}, HINTED_LOOK),
        ({"passed": ONE}, LONGEST_POLL),
        ({"passed": ONE, "drain": True}, DRAIN_POLL),
        ({"passed": ONE, "done": True}, DRAIN_POLL),
        ({"paused": True}, LONGEST_POLL),
        ({"candidate": True, "full": "out is full"}, LONGEST_POLL),
    ],
)
def test_an_idle_driver_looks_less_and_less_often_but_often_enough(
    facts: dict[str, Any], longest: float
) -> None:
    waits = []
    for turns in range(20):
        decision = plan(Seen(idle_turns=turns, **facts))
        assert isinstance(decision, Wait)
        waits.append(decision.seconds)
    assert waits[0] == (SHORTEST_BLOCK if "full" in facts else SHORTEST_NAP)
    assert waits[NAPS] == SHORTEST_POLL
    assert waits == sorted(waits)
    assert waits[-1] == longest


def test_trouble_is_looked_at_less_and_less_often_but_often_enough() -> None:
    waits = []
    for troubles in range(20):
        decision = plan(Seen(trouble="no space", troubles=troubles))
        assert isinstance(decision, Wait)
        waits.append(decision.seconds)
    assert waits[0] == SHORTEST_TROUBLE
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_TROUBLE


def test_what_watches_is_loaded_only_for_who_has_been_idle_for_a_while() -> None:
    idle, turns = 0.0, 0
    while not is_time_to_watch(turns, loaded=False):
        decision = plan(Seen(idle_turns=turns))
        assert isinstance(decision, Wait)
        idle += decision.seconds
        turns += 1
    assert 0.1 < idle < 0.3
    assert is_time_to_watch(turns, loaded=True)
    assert is_time_to_watch(NAPS, loaded=True)
