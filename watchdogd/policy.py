"""What a watchdog does about one slot: start a driver, ask something of it, or rest. Pure.

A slot is a place for one driver of a stage. While its process lives, `decide` looks for a reason to
end it; while there is none, for a reason to start one. What is remembered of the one before, and
how much patience there is, is in `past.py`. Every instant is of one monotonic clock.
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from watchdogd.past import (
    HUNG,
    LATE,
    MEMORY,
    SENTENCES,
    START_UP,
    Life,
    Past,
    Policy,
    policy_of,
    remember,
)

__all__ = [
    "Action",
    "Ask",
    "Asked",
    "Life",
    "Past",
    "Policy",
    "Rest",
    "Seen",
    "Start",
    "decide",
    "degraded",
    "policy_of",
    "remember",
]

# From the stacks to SIGTERM, from that to SIGKILL, and until that should have worked.
STACKS_TAKE = 2.0
TERMINATION_TAKES = 5.0
KILL_TAKES = 10.0
# What a driver may take to leave beyond the grace of its document.
LEAVING_TAKES = 5.0
# A driver over its limit recycles itself after the document at hand; so much over, it is ended.
MEMORY_FACTOR = 1.25

Step = Literal["leave", "hurry", "stacks", "terminate", "kill"]


class Asked(msgspec.Struct, frozen=True):
    """The last thing that was asked of the living process."""

    step: Step
    why: str
    at: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one slot."""

    wanted: bool
    alive: bool
    past: Past
    started_at: float = 0.0
    # 0: not yet.
    ready_at: float = 0.0
    # Since when a document is at hand; 0: there is none.
    began_at: float = 0.0
    # What its board says.
    state: str = ""
    # Since when its board has had a last word while the process is still there; 0: it has none.
    left_at: float = 0.0
    memory: int = 0
    asked: Asked | None = None
    # While not, nothing is started and hard limits stand still; who knows since when shifts
    # `began_at`, and `started_at` of what is not ready, by how long that was.
    fs_ok: bool = True
    # False: its input queues are done and drained, or were told to quit.
    work: bool = True


class Start(msgspec.Struct, frozen=True):
    """Start a driver."""

    why: str


class Ask(msgspec.Struct, frozen=True):
    """Ask something of the process; `why` is a word for `Life.ended_for`."""

    step: Step
    why: str


class Rest(msgspec.Struct, frozen=True):
    """Nothing to do before `until`, or (None) before a fact changes; `state` is for people."""

    state: str
    why: str
    until: float | None


Action = Start | Ask | Rest

# What a board says, for people. Anything else is the end of a driver.
_STATES = {
    "": ("starting", ""),
    "starting": ("starting", ""),
    "ready": ("ready", ""),
    "busy": ("busy", ""),
    "blocked": ("ready", "its outputs take no more"),
    "tripped": ("tripped", "its stage has stopped itself"),
    "waiting-fs": ("waiting-fs", "it waits for the file system"),
}
_STARTS = {
    "crash-looped": "trial",
    "stopped": "there is work again",
    "waiting-fs": "the file system answers again",
}
_NO_ANSWER = "the file system does not answer"


def decide(seen: Seen, policy: Policy, now: float) -> Action:
    """What to do about a slot."""
    return _living(seen, policy, now) if seen.alive else _empty(seen, now)


def _empty(seen: Seen, now: float) -> Action:
    past = seen.past
    if not seen.wanted:
        return Rest("stopped", "not wanted", None)
    if not seen.work:
        return Rest("stopped", past.why or "its input queues are done, or told to quit", None)
    if now < past.not_before and (seen.fs_ok or past.state == "crash-looped"):
        until = past.not_before if math.isfinite(past.not_before) else None
        return Rest(past.state or "backoff", past.why, until)
    if not seen.fs_ok:
        return Rest("waiting-fs", _NO_ANSWER, None)
    return Start(_STARTS.get(past.state) or past.why or "first start")


def _living(seen: Seen, policy: Policy, now: float) -> Action:
    asked = seen.asked
    if asked and asked.step in ("terminate", "kill"):
        # It was given its chance: this goes on, whatever has changed.
        return _end(asked, now)
    if policy.max_memory and seen.memory > MEMORY_FACTOR * policy.max_memory:
        return Ask("kill", MEMORY)
    if asked and asked.step == "hurry":
        ends_at = asked.at + TERMINATION_TAKES
        return Ask("kill", asked.why) if now >= ends_at else Rest("draining", asked.why, ends_at)
    limit = _limit(seen, policy)
    if limit and now >= limit[0]:
        due, why = limit
        # Stacks that were asked for before this limit was reached were another document's.
        if asked is None or asked.step != "stacks" or asked.at < due:
            return Ask("stacks", why)
        ends_at = asked.at + STACKS_TAKE
        if now >= ends_at:
            return Ask("terminate", why)
        return Rest("hung", SENTENCES[why], ends_at)
    if not (seen.wanted or seen.left_at or (asked and asked.step == "leave")):
        return Ask("leave", "not wanted")
    state, why = _state(seen)
    return Rest(state, why, limit[0] if limit else None)


def _end(asked: Asked, now: float) -> Action:
    """The last steps for one that would not end."""
    why = SENTENCES.get(asked.why, asked.why)
    if asked.step == "terminate":
        ends_at = asked.at + TERMINATION_TAKES
        return Ask("kill", asked.why) if now >= ends_at else Rest("hung", why, ends_at)
    ends_at = asked.at + KILL_TAKES
    if now < ends_at:
        return Rest("hung", why, ends_at)
    return Rest("unkillable", f"{why}; killed, it waits in the kernel, as for a dead mount", None)


def _limit(seen: Seen, policy: Policy) -> tuple[float, str] | None:
    """When patience ends first, and with what."""
    asked, limits = seen.asked, []
    leaving_takes = policy.grace + LEAVING_TAKES
    if asked and asked.step == "leave":
        limits.append((asked.at + leaving_takes, LATE))
    if asked and asked.step == "stacks" and asked.why == LATE:
        limits.append((asked.at, LATE))
    if seen.left_at:
        limits.append((seen.left_at + leaving_takes, LATE))
    if seen.fs_ok and seen.state != "waiting-fs":
        if not seen.ready_at and not seen.left_at:
            limits.append((seen.started_at + policy.startup_timeout, START_UP))
        if seen.began_at and policy.hard:
            limits.append((seen.began_at + policy.hard, HUNG))
    return min(limits, default=None)


def _state(seen: Seen) -> tuple[str, str]:
    if seen.asked and seen.asked.step == "leave":
        return "draining", seen.asked.why
    if seen.left_at or seen.state not in _STATES:
        return "draining", "it is leaving"
    if not seen.fs_ok:
        return "waiting-fs", _NO_ANSWER
    if seen.began_at and seen.state != "waiting-fs":
        return "busy", ""
    return _STATES[seen.state]


def degraded(states: Sequence[str]) -> bool:
    """Whether so many slots of a stage are crash-looped that people should know: half of them, and
    two at least where there are two."""
    looped = states.count("crash-looped")
    return bool(looped) and looped >= min(2, len(states)) and 2 * looped >= len(states)
