"""What a driver does next, and why. Pure.

The loop gathers facts (`Seen`), `plan` decides, the loop acts. The order of the rules is the order
of their rank: leaving before pausing, pausing before work, work before waiting.
"""

import msgspec

from queuedriver.claims.counts import Pass
from queuedriver.driving.lifetime import OUT_OF_TIME
from queuedriver.errors import LATER
from queuedriver.format.units import format_count

# Two listings this far apart, with the directory unchanged between them, prove a queue drained: one
# alone may miss a file that is renamed while it is read.
DRAINED_AFTER = 0.05
# With a hint armed, how often to look all the same: an overflow of hints is not reported.
HINTED_LOOK = 1.0
# After work, so many naps until the inputs are watched, or polled: to start watching and to stop
# costs some hundred short documents, and in a chain at work the next ones come by themselves.
NAPS = 5
# The first time the package that watches has to be imported, which takes as long as thousands of
# short documents: not before 0.17 s without any.
NAPS_BEFORE_LOADING = 9
SHORTEST_NAP = 0.0005
SHORTEST_POLL = 0.01
# A look at a full output counts hundreds of items.
SHORTEST_BLOCK = 0.005
LONGEST_POLL = 5.0
# What is watched for the end of a queue, where no hint comes.
DRAIN_POLL = 0.2
# How often a driver of a stage that has stopped itself looks whether it still is.
STOPPED_LOOK = 0.5
SHORTEST_TROUBLE = 0.5
LONGEST_TROUBLE = 10.0
# How long a full output may have nobody to empty it before `--drain` gives up.
NO_CONSUMER = 5.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one turn."""

    # A waiting item to try; only its being there matters here.
    candidate: bool = False
    # What the last whole pass saw.
    passed: Pass = msgspec.field(default_factory=Pass)
    # For how long the queue has been seen empty and unchanged; negative when it has not.
    empty_for: float = -1.0
    done: bool = False
    # How long to stay though it is done, in seconds.
    linger: float = 0.0
    paused: bool = False
    # Why the stage has stopped itself, and in how many seconds one document is tried; and whether
    # it is about to, unless another driver has a success.
    tripped: str = ""
    trial_in: float = 0.0
    holding: bool = False
    # Why to leave, as the last word on leaving: quit, reload, recycled, out-of-time.
    leaving: str = ""
    leaving_why: str = ""
    # Why the outputs take no more; and for how long nobody has been there to empty them.
    full: str = ""
    no_consumer_for: float = 0.0
    # What the file system said, and how often in a row.
    trouble: str = ""
    troubles: int = 0
    drain: bool = False
    idle_turns: int = 0
    hinted: bool = False
    # Why what is left is not ours to take.
    rest: str = "other drivers have the rest"
    # Claims of dead drivers that cannot be recovered.
    stuck: int = 0
    now: float = 0.0


class Wait(msgspec.Struct, frozen=True):
    """Claim nothing for so long."""

    seconds: float
    why: str
    # What the driver shows: "ready" while it has nothing to do; "blocked" where there is no room
    # for what comes of it, and "tripped" where the stage has stopped itself.
    state: str = "ready"


class Quit(msgspec.Struct, frozen=True):
    """Leave, with this last word."""

    word: str
    why: str
    exit_code: int = 0


Decision = Wait | Quit


def plan(seen: Seen) -> Decision | None:
    """Return why and how long to wait, or to leave; None when there is something to claim."""
    if seen.leaving:
        too_early = seen.drain and seen.leaving == OUT_OF_TIME
        return Quit(seen.leaving, seen.leaving_why, exit_code=LATER if too_early else 0)
    if seen.trouble:
        seconds = min(LONGEST_TROUBLE, SHORTEST_TROUBLE * 2 ** min(seen.troubles, 10))
        return Wait(seconds, f"waiting for the file system: {seen.trouble}")
    if seen.paused:
        return Wait(_pause(seen), "paused")
    if seen.holding:
        return Wait(STOPPED_LOOK, "seeing whether other drivers fail, too", "tripped")
    if seen.candidate and seen.tripped:
        return _stopped(seen)
    if seen.candidate:
        return _blocked(seen) if seen.full else None
    passed = seen.passed
    if not passed.unfinished:
        return _empty(seen)
    if seen.drain and passed.only_later:
        return Quit("later", "only documents that are not due yet are left", exit_code=LATER)
    if passed.only_later:
        left = max(passed.next_due - seen.now, SHORTEST_POLL)
        return Wait(min(left, _pause(seen)), "nothing is due yet")
    if passed.refused or seen.stuck:
        return _left_to_people(seen)
    if passed.left:
        # The next pass takes it: let them be first.
        return Wait(SHORTEST_NAP, "left to the drivers whose share it is")
    return Wait(_pause(seen), seen.rest)


def is_time_to_watch(idle_turns: int, loaded: bool) -> bool:
    """Tell whether inputs that were empty for so many turns are to be watched now, not polled."""
    return idle_turns >= (NAPS if loaded else NAPS_BEFORE_LOADING)


def _stopped(seen: Seen) -> Decision:
    if seen.drain:
        return Quit("tripped", seen.tripped, exit_code=LATER)
    seconds = min(max(seen.trial_in, SHORTEST_POLL), STOPPED_LOOK)
    return Wait(seconds, seen.tripped, "tripped")


def _blocked(seen: Seen) -> Decision:
    if seen.drain and seen.no_consumer_for >= NO_CONSUMER:
        why = f"{seen.full}, and no driver empties it; start one, or raise the limit"
        return Quit("blocked", why, exit_code=LATER)
    return Wait(max(SHORTEST_BLOCK, _pause(seen)), seen.full, "blocked")


def _left_to_people(seen: Seen) -> Decision:
    """Leave to people what no driver can move: who waits for its end would wait for ever."""
    passed, whys = seen.passed, []
    if passed.refused:
        whys.append(
            f"{format_count(passed.refused, 'item')} may not be claimed, as another user's "
            "where only owners may move: queuedriver check says why"
        )
    if seen.stuck:
        count = format_count(seen.stuck, "claim")
        whys.append(f"{count} cannot be recovered: run queuedriver check")
    why = "; ".join(whys)
    if seen.drain and passed.refused + seen.stuck + passed.later >= passed.unfinished:
        return Quit("blocked", why, exit_code=LATER)
    return Wait(_pause(seen), why)


def _empty(seen: Seen) -> Decision:
    if not seen.done and not seen.drain:
        return Wait(_pause(seen), "the queue is empty")
    if seen.empty_for < DRAINED_AFTER:
        return Wait(DRAINED_AFTER, "making sure that the queue is drained")
    if seen.done and not seen.drain and seen.empty_for < seen.linger:
        return Wait(_pause(seen), "the queue is done, and may be reopened")
    if seen.done:
        return Quit("done", "the queue is done and drained")
    return Quit("drained", "the queue is drained")


def _pause(seen: Seen) -> float:
    """Return a pause that grows from turn to turn: an idle driver costs nothing."""
    if seen.idle_turns < NAPS:
        return float(SHORTEST_NAP * 2**seen.idle_turns)
    longest = HINTED_LOOK if seen.hinted else LONGEST_POLL
    if seen.drain or (seen.done and not seen.linger):
        longest = min(longest, DRAIN_POLL)
    return float(min(longest, SHORTEST_POLL * 2 ** min(seen.idle_turns - NAPS, 10)))
