"""What is remembered of a driver that has ended, and when the next one may start. Pure.

The rule of the house: a run is judged by the work it did. One that finished a document was healthy,
however it ended, for the next document deserves a driver at once; one that finished nothing makes
the next start later, and so many of them in a row are left alone but for a trial now and then.
Every instant is of one monotonic clock.
"""

import math
import signal
from typing import Literal

import msgspec

from watchdogd.pipeline.model import HOUR, Stage

# A run without a document was healthy when it was ready for so long, and there was none to claim.
HEALTHY_AFTER = 60.0
# Two starts at once, for a document that crashes drivers is discarded by its second; then delays,
# spread so that many drivers do not come back to one file server together.
FREE_STARTS = 2
SHORTEST_DELAY = 1.0
LONGEST_DELAY = 60.0
JITTER = 0.2

# Why a driver is ended, in a word: what `Ask` says of it, and `Life.ended_for` takes.
HUNG = "hung"
MEMORY = "memory"
START_UP = "start-up"
LATE = "it did not leave"
SENTENCES = {
    HUNG: "its document was past its hard limit",
    MEMORY: "it used too much memory",
    START_UP: "it was not ready in time",
    LATE: LATE,
}

# A start cannot mend these. Only who changed something can tell that it is worth another try.
_HOPELESS = {
    2: "wrong usage",
    64: "wrong usage",
    77: "not permitted",
    78: "wrong configuration",
    126: "the command cannot be executed",
    127: "there is no such command",
}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How much patience there is with the drivers of a stage; times in seconds, sizes in bytes."""

    max_unhealthy: int = 8
    # 0: no trials.
    trial_every: float = 900.0
    startup_timeout: float = 300.0
    grace: float = 60.0
    # The hard limit of one document.
    hard: float | None = None
    max_memory: int | None = None


def policy_of(stage: Stage, learned: float | None) -> Policy:
    """The policy of a stage; `learned` is the hard limit that its own history suggests."""
    declared = stage.timeout
    if declared == "auto":
        hard = learned
    else:
        hard = None if declared is None else declared + stage.hard_after
    return Policy(
        max_unhealthy=stage.max_unhealthy,
        trial_every=stage.trial_every,
        startup_timeout=stage.startup_timeout,
        grace=stage.grace,
        hard=hard,
        max_memory=stage.max_memory,
    )


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a driver, from its start to its end."""

    started_at: float
    # 0: it never was.
    ready_at: float = 0.0
    ended_at: float
    # Finished, and claimed at all.
    documents: int = 0
    claimed: int = 0
    # Its last word, and what it said besides; empty when it was killed.
    word: str = ""
    why: str = ""
    exit_code: int | None = None
    signal: int | None = None
    # Why the watchdog ended it; empty when it did not.
    ended_for: str = ""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot remembers. A blank one lets a driver be started at once."""

    state: Literal["", "backoff", "crash-looped", "stopped", "waiting-fs"] = ""
    why: str = ""
    # Runs in a row that finished nothing.
    unhealthy: int = 0
    # Since when runs have ended by no fault of theirs; 0: the last one did not.
    deferred_at: float = 0.0
    not_before: float = 0.0


class _Deferral(msgspec.Struct, frozen=True):
    """A run that ended by no fault of its own. The wait is as long as it has lasted already, in
    these bounds; if it lasts longer than `counted_after`, runs count as unhealthy after all."""

    state: Literal["backoff", "stopped", "waiting-fs"]
    least: float
    most: float
    counted_after: float
    why: str


# At least two seconds: a driver sees QUIT or done before the watchdog is told, and would be started
# and leave again until that is.
_LEFT = _Deferral("stopped", 2.0, LONGEST_DELAY, math.inf, "it left as it was told")
_LATER = _Deferral("backoff", SHORTEST_DELAY, LONGEST_DELAY, HOUR, "it asked to be started later")
_HELD = _Deferral("backoff", 5.0, 5.0, HOUR, "another living driver has its id")
_TROUBLE = _Deferral("waiting-fs", 10.0, 10.0, math.inf, "the file system is in trouble")
# Nearly always one that is not mounted just now, which our helper is about to see too. If it
# sees all queues for an hour, it is something else.
_MISSING = _Deferral("waiting-fs", 10.0, 10.0, HOUR, "a queue of its is not there")
_WORDS = dict.fromkeys(("quit", "drained", "done"), _LEFT) | dict.fromkeys(
    ("later", "blocked", "tripped"), _LATER
)
_CODES = {66: _MISSING, 69: _HELD, 74: _TROUBLE, 75: _LATER}


def remember(past: Past, life: Life, policy: Policy, jitter: float) -> Past:
    """What a slot remembers after a run; `jitter` from -1 to 1."""
    well = healthy(life)
    if life.ended_for in ("restart", "unmanaged"):
        return Past(why=life.ended_for)
    if life.ended_for in ("scale", "stop"):
        return Past() if well else past
    if not life.ended_for:
        if life.signal is None and life.exit_code in _HOPELESS:
            return Past(
                state="crash-looped",
                why=f"{cause(life)}; mend that, then restart or reload",
                unhealthy=past.unhealthy + 1,
                not_before=math.inf,
            )
        # One that is over its memory or age before it has claimed anything would be started for
        # ever and do nothing: that is counted.
        if life.word == "reload" or (life.word == "recycled" and (life.claimed or well)):
            return Past(why=life.word, unhealthy=0 if well else past.unhealthy)
        code = life.exit_code if life.signal is None else None
        if deferral := _WORDS.get(life.word) or _CODES.get(code or 0):
            return _defer(past, life, policy, jitter, deferral)
    if well:
        return Past(state="backoff", why=cause(life), not_before=life.ended_at)
    return _count(past, life, policy, jitter)


def healthy(life: Life) -> bool:
    """Whether a run is reason enough for the next one to start at once."""
    if life.documents:
        return True
    if life.ended_for in (HUNG, MEMORY, START_UP) or life.claimed or not life.ready_at:
        return False
    # From when it was ready: a program that loads for minutes and then dies has been of no use.
    return life.ended_at - life.ready_at >= HEALTHY_AFTER


def cause(life: Life) -> str:
    """How a run ended, in words."""
    if life.ended_for:
        return SENTENCES.get(life.ended_for, life.ended_for)
    if life.signal is not None:
        return f"it was ended by {_signal(life.signal)}"
    if life.exit_code == 0 and not life.word:
        return "it ended without a word, with exit code 0"
    words = life.why or _HOPELESS.get(life.exit_code or 0, "it crashed")
    return words if life.exit_code is None else f"{words} (exit code {life.exit_code})"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _defer(past: Past, life: Life, policy: Policy, jitter: float, rule: _Deferral) -> Past:
    # It goes on if this run was started as soon as it might be: what made drivers leave an hour ago
    # has nothing to do with what does now.
    goes_on = past.deferred_at and life.started_at - past.not_before < LONGEST_DELAY
    since = past.deferred_at if goes_on and not healthy(life) else life.ended_at
    lasted = life.ended_at - since
    if lasted > rule.counted_after:
        return msgspec.structs.replace(_count(past, life, policy, jitter), deferred_at=since)
    delay = min(max(lasted, rule.least), rule.most)
    return Past(
        state=rule.state,
        why=life.why or rule.why,
        unhealthy=0 if healthy(life) else past.unhealthy,
        deferred_at=since,
        not_before=life.ended_at + delay * (1 + JITTER * jitter),
    )


def _count(past: Past, life: Life, policy: Policy, jitter: float) -> Past:
    count = past.unhealthy + 1
    if count >= policy.max_unhealthy:
        return Past(
            state="crash-looped",
            why=f"{count} runs in a row finished nothing; the last: {cause(life)}",
            unhealthy=count,
            not_before=life.ended_at + (policy.trial_every or math.inf),
        )
    doubled = SHORTEST_DELAY * 2 ** min(count - FREE_STARTS - 1, 10)
    delay = 0.0 if count <= FREE_STARTS else min(LONGEST_DELAY, doubled)
    return Past(
        state="backoff",
        why=cause(life),
        unhealthy=count,
        not_before=life.ended_at + delay * (1 + JITTER * jitter),
    )
