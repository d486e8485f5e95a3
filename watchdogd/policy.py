"""What the watchdog does about one slot: start a driver, ask something of it, or rest. Pure.

    decide      what is to be done now, by the facts about a slot
    remember    what a slot keeps in mind of a run that has ended, and when the next may begin

While its process lives, `decide` looks for a reason to end it; while there is none, for a reason to
start one. A run is judged by the work it did. One that finished a document was healthy, however it
ended, for the next document deserves a driver at once; one that finished nothing makes the next
start later, and after many of those in a row there is only a trial now and then. How much patience
there is with the drivers of a stage, the stage says. Every instant is of one monotonic clock.
"""

import math
from typing import Final, Literal, NamedTuple

import msgspec

from queuedriver.driving.lifetime import OUT_OF_TIME
from queuedriver.errors import Disagreement
from watchdogd.pipeline.model import HOUR, Stage

# A run without a document was healthy when it was ready for so long, and there was none to claim.
HEALTHY_AFTER = 60.0
# Two starts at once, for a document that crashes drivers is discarded by its second; then delays,
# spread so that many drivers do not come back to one file server together.
FREE_STARTS = 2
SHORTEST_DELAY = 1.0
LONGEST_DELAY = 60.0
JITTER = 0.2
# What a driver may take to leave beyond the grace of its document.
_LEAVING_TAKES = 5.0
# A driver over its limit recycles itself after the document at hand; so much over, it is ended.
MEMORY_FACTOR = 1.25

# The state of a slot whose runs finished nothing, too often to be tried again soon.
CRASH_LOOPED: Final = "crash-looped"
Step = Literal["leave", "stacks", "kill"]
# Why a driver is ended by a fault of its own, in a word, which `Ask` says and `Life.ended_for`
# takes; and in words for people.
HUNG = "hung"
MEMORY = "memory"
START_UP = "start-up"
LATE = "it did not leave"
OUTPUT_FULL = "its outputs take no more"
SENTENCES = {
    HUNG: "its document was past its hard limit",
    MEMORY: "it used too much memory",
    START_UP: "it was not ready in time",
    LATE: LATE,
}
# The same where it is not its fault: why it is to leave, or there is to be none.
UNWANTED = {
    "scale": "fewer drivers are wanted",
    "restart": "another takes its place",
    "stop": "the watchdog leaves",
    "parting": "the pipeline's file does not have its stage any more",
    "done": "its input queues are closed",
    "quit": "told to quit",
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
# What a board says, for people. Anything else is the end of a driver.
_STATES = {
    "": ("starting", ""),
    "starting": ("starting", ""),
    "ready": ("ready", ""),
    "busy": ("busy", ""),
    "blocked": ("ready", OUTPUT_FULL),
    "tripped": ("tripped", "its stage has stopped itself"),
    "waiting-fs": ("waiting-fs", "it waits for the file system"),
}
# Why a driver is started, by what became of the one before.
_STARTS = {
    CRASH_LOOPED: "trial",
    "stopped": "there is work again",
    "waiting-fs": "the file system answers again",
}
_NO_ANSWER = "the file system does not answer"


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a driver, from its start to its end."""

    started_at: float
    # 0: it never was.
    ready_at: float = 0.0
    ended_at: float
    # Documents finished, and whether any was claimed.
    documents: int = 0
    claimed: bool = False
    # Its last word, and what it said besides; empty when it was killed.
    word: str = ""
    why: str = ""
    exit_code: int | None = None
    # The name of the signal that ended it; empty when none did.
    signal: str = ""
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


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one slot."""

    # Why it is to leave, or there is to be none, as a word of UNWANTED; empty while one is wanted.
    unwanted: str
    alive: bool
    past: Past
    started_at: float = 0.0
    # 0: not yet.
    ready_at: float = 0.0
    # Since when a document is at hand; 0: there is none.
    began_at: float = 0.0
    # Seconds that the document at hand may take before the driver counts as hung.
    hard: float | None = None
    # What its board says.
    state: str = ""
    # Since when its board has had a last word while the process is still there; 0: it has none.
    left_at: float = 0.0
    memory: int = 0
    # The rung of the ladder (children.py) that the process is on, why, since when, and until when.
    rung: str = "run"
    asked_for: str = ""
    asked_at: float = 0.0
    due_at: float = math.inf
    # While false, nothing is started. The caller adds the time lost to `began_at`, and to
    # `started_at` of what is not ready, so that limits stand still.
    fs_ok: bool = True
    # Why none is started, as such a word or in words for people; empty while there is work.
    idle: str = ""


class Start(msgspec.Struct, frozen=True):
    """Start a driver."""

    why: str


class Ask(msgspec.Struct, frozen=True):
    """Ask something of the process; `why` is a word: its fault, or why it is not wanted."""

    step: Step
    why: str


class Withdraw(msgspec.Struct, frozen=True):
    """Forget that the stacks were asked for: their reason has gone, and the driver goes on."""


class Rest(msgspec.Struct, frozen=True):
    """Do nothing before `until`, or (infinity) before a fact changes; `state` is for people."""

    state: str
    why: str = ""
    until: float = math.inf


Action = Start | Ask | Withdraw | Rest


def leaves_within(grace: float) -> float:
    """Return the seconds that a driver has to leave, when its document has so many."""
    return grace + _LEAVING_TAKES


def decide(seen: Seen, stage: Stage, now: float) -> Action:
    """Return what is to be done about a slot."""
    return _living(seen, stage, now) if seen.alive else _empty(seen, now)


def _empty(seen: Seen, now: float) -> Action:
    past = seen.past
    if why := seen.unwanted or seen.idle:
        return Rest("stopped", UNWANTED.get(why, why))
    if now < past.not_before and (seen.fs_ok or past.state == CRASH_LOOPED):
        return Rest(past.state or "backoff", past.why, past.not_before)
    if not seen.fs_ok:
        return Rest("waiting-fs", _NO_ANSWER)
    return Start(_STARTS.get(past.state) or past.why or "first start")


def _living(seen: Seen, stage: Stage, now: float) -> Action:
    rung = seen.rung
    if rung in ("terminate", "kill", "stuck"):
        # It was given its chance: this goes on, whatever has changed.
        return _ending(seen)
    if stage.max_memory and seen.memory > MEMORY_FACTOR * stage.max_memory:
        return Ask("kill", MEMORY)
    if rung == "hurry":
        return Rest("draining", UNWANTED.get(seen.asked_for, seen.asked_for), seen.due_at)
    ends_at, fault = _limit(seen, stage)
    if rung == "stacks":
        # That it was to leave holds for good. Stacks that were asked for before the limit was
        # reached were another document's.
        is_late = reason(rung, seen.asked_for) == LATE
        holds = is_late or (now >= ends_at and seen.asked_at >= ends_at)
        return _ending(seen) if holds else Withdraw()
    if now >= ends_at:
        return Ask("stacks", fault)
    if seen.unwanted and not (seen.left_at or rung == "leave"):
        return Ask("leave", seen.unwanted)
    state, why = _state(seen)
    return Rest(state, why, min(seen.due_at, ends_at))


def _ending(seen: Seen) -> Rest:
    why = SENTENCES[reason(seen.rung, seen.asked_for)]
    if seen.rung == "stuck":
        words = f"{why}; killed, it waits in the kernel, as for a dead mount"
        return Rest("unkillable", words)
    return Rest("hung", why, seen.due_at)


def reason(rung: str, asked_for: str) -> str:
    """Return why a driver on this rung is being ended; LATE for one that would not leave."""
    return asked_for if asked_for in SENTENCES or rung in ("run", "leave", "hurry") else LATE


def _limit(seen: Seen, stage: Stage) -> tuple[float, str]:
    """Return when patience ends first, and with what."""
    limits = []
    if seen.left_at:
        limits.append((seen.left_at + leaves_within(stage.grace), LATE))
    if seen.fs_ok and seen.state != "waiting-fs":
        if not seen.ready_at and not seen.left_at:
            limits.append((seen.started_at + stage.startup_timeout, START_UP))
        if seen.began_at and seen.hard:
            limits.append((seen.began_at + seen.hard, HUNG))
    return min(limits, default=(math.inf, ""))


def _state(seen: Seen) -> tuple[str, str]:
    if seen.rung == "leave":
        return "draining", UNWANTED.get(seen.asked_for, seen.asked_for)
    if seen.left_at or seen.state not in _STATES:
        return "draining", "it is leaving"
    if not seen.fs_ok:
        return "waiting-fs", _NO_ANSWER
    if seen.began_at and seen.state != "waiting-fs":
        return "busy", ""
    return _STATES[seen.state]


def is_degraded(looped: int, slots: int) -> bool:
    """Return whether so many slots of a stage are crash-looped that people should know: half of
    them, and two at least where there are two."""
    return looped >= max(1, min(2, slots), slots / 2)


def hard_limit(stage: Stage, learned: float | None) -> float | None:
    """Return how long a document of this stage may take before its driver counts as hung;
    `learned` is what the stage's own history suggests."""
    if stage.kind in ("broker", "intake"):
        # They have many at hand, and end the wait for each by themselves.
        return None
    if stage.timeout == "auto":
        return learned
    return None if stage.timeout is None else stage.timeout + stage.hard_after


class _Deferral(NamedTuple):
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
# Nearly always one that is not mounted just now, which the helper is about to see too. If it sees
# all queues for an hour, it is something else.
_MISSING = _Deferral("waiting-fs", 10.0, 10.0, HOUR, "a queue of its is not there")
# With a driver that was told other settings, be it another host's, which leaves in its own time; or
# with claims that are recovered first.
_DISAGREES = _Deferral("backoff", 5.0, 5.0, HOUR, "others of its queue have other settings")
_WORDS = {
    **dict.fromkeys(("quit", "done", OUT_OF_TIME), _LEFT),
    # A worker that finds no broker.
    "later": _LATER,
    Disagreement.last_word: _DISAGREES,
}
_CODES = {66: _MISSING, 69: _HELD, 74: _TROUBLE, 75: _LATER}


def remember(past: Past, life: Life, stage: Stage, jitter: float) -> Past:
    """Return what a slot remembers after a run; `jitter` is from -1 to 1."""
    well = healthy(life)
    if life.ended_for in ("restart", "parting"):
        return Past(why=life.ended_for)
    if life.ended_for in ("scale", "stop", "done"):
        return Past() if well else past
    if not life.ended_for:
        deferral = _WORDS.get(life.word)
        if deferral is None and not life.signal and life.exit_code in _HOPELESS:
            return Past(
                state=CRASH_LOOPED,
                why=f"{cause(life)}; mend that, then restart or reload",
                unhealthy=past.unhealthy + 1,
                not_before=math.inf,
            )
        # One that is over its memory or age before it has claimed anything would be started for
        # ever and do nothing: that is counted.
        if life.word == "reload" or (life.word == "recycled" and (life.claimed or well)):
            return Past(why=life.word, unhealthy=0 if well else past.unhealthy)
        code = life.exit_code if not life.signal else None
        if deferral := deferral or _CODES.get(code or 0):
            return _defer(past, life, stage, jitter, deferral)
    if well:
        return Past(state="backoff", why=cause(life), not_before=life.ended_at)
    return _count(past, life, stage, jitter)


def healthy(life: Life) -> bool:
    """Return whether a run is reason enough for the next one to start at once."""
    if life.documents:
        return True
    if life.ended_for in (HUNG, MEMORY, START_UP) or life.claimed or not life.ready_at:
        return False
    # From when it was ready: a program that loads for minutes and then dies has been of no use.
    return life.ended_at - life.ready_at >= HEALTHY_AFTER


def cause(life: Life) -> str:
    """Return how a run ended, in words."""
    if life.ended_for:
        return SENTENCES.get(life.ended_for, life.ended_for)
    if life.signal:
        return f"it was ended by {life.signal}"
    if life.exit_code == 0 and not life.word:
        return "it ended without a word, with exit code 0"
    words = life.why or _HOPELESS.get(life.exit_code or 0, "it crashed")
    return words if life.exit_code is None else f"{words} (exit code {life.exit_code})"


def _defer(past: Past, life: Life, stage: Stage, jitter: float, rule: _Deferral) -> Past:
    # It goes on if this run was started as soon as it might be: what made drivers leave an hour ago
    # has nothing to do with what does now.
    goes_on = past.deferred_at and life.started_at - past.not_before < LONGEST_DELAY
    since = past.deferred_at if goes_on and not healthy(life) else life.ended_at
    lasted = life.ended_at - since
    if lasted > rule.counted_after:
        return msgspec.structs.replace(_count(past, life, stage, jitter), deferred_at=since)
    delay = min(max(lasted, rule.least), rule.most)
    return Past(
        state=rule.state,
        why=life.why or rule.why,
        unhealthy=0 if healthy(life) else past.unhealthy,
        deferred_at=since,
        not_before=life.ended_at + delay * (1 + JITTER * jitter),
    )


def _count(past: Past, life: Life, stage: Stage, jitter: float) -> Past:
    count = past.unhealthy + 1
    if count >= stage.max_unhealthy:
        return Past(
            state=CRASH_LOOPED,
            why=f"{count} runs in a row finished nothing; the last: {cause(life)}",
            unhealthy=count,
            not_before=life.ended_at + (stage.trial_every or math.inf),
        )
    doubled = SHORTEST_DELAY * 2 ** min(count - FREE_STARTS - 1, 10)
    delay = 0.0 if count <= FREE_STARTS else min(LONGEST_DELAY, doubled)
    return Past(
        state="backoff",
        why=cause(life),
        unhealthy=count,
        not_before=life.ended_at + delay * (1 + JITTER * jitter),
    )
