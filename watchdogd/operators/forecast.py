"""Tells whether what waits in a stage gets less, and when it will be through. Pure.

By the last minutes where they tell, else by the last hour: documents often come many at once, and
what was brought a minute ago says little of how they will go.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import msgspec

from queuedriver.format.units import format_duration

if TYPE_CHECKING:
    from watchdogd.operators.history import Moment

# Seconds that are looked back: in moments of history.FINE, and of history.COARSE.
SHORT, LONG = 180.0, 3600.0
# From fewer moments to the next nothing can be told, nor from fewer documents more or less.
_FEWEST = 4
_LEAST_CHANGE = 2.0
# What comes by chance moves a slope by less than so many standard errors, mostly.
_ERRORS = 2.0
# Nothing was done for so long, or for so many times what nearly all documents take.
_STALLED_AFTER = 120.0
_STALLED_TIMES = 4.0
_NEARLY_ALL = 0.95
# Nobody wrote for so long: then what was written is old.
_OLD = 60.0

_Known = Sequence["Moment | None"]


class Outlook(msgspec.Struct, frozen=True):
    """The way it goes on with what waits, as far as can be told."""

    # "": nothing waits. rising: by the last minutes alone; growing: by the last hour, too. unknown:
    # neither did anybody write down enough of it, nor was anything done in the last minute.
    kind: Literal["", "clear", "stalled", "rising", "growing", "steady", "unknown"] = ""
    # Until all is done (clear), or since something was (stalled).
    seconds: float | None = None
    # By how many documents a minute more wait (rising, growing).
    per_minute: float | None = None

    @property
    def sentence(self) -> str:
        """Return it in words; "" where there is nothing to say."""
        growing = f"growing {_digits(self.per_minute or 0.0)}/min"
        seconds = format_duration(self.seconds or 0.0)
        return {
            "clear": f"clear in {seconds}",
            "stalled": f"stalled for {seconds}",
            "rising": growing,
            "growing": f"{growing}, will not drain",
            "steady": "steady: as many come as are done",
        }.get(self.kind, self.kind)


def outlook(short: _Known, long: _Known, waiting: int, now: float, rate: float = 0.0) -> Outlook:
    """Return how it goes on with so many documents that wait, by what was written of the last
    SHORT and LONG seconds; and where that tells nothing, by how many are done in a second."""
    if not waiting:
        return Outlook()
    by_rate = Outlook("clear", seconds=waiting / rate) if rate else Outlook("unknown")
    latest, hour = _written(short), _written(long)
    if not latest or now - latest[-1].at > _OLD:
        return by_rate
    if (idle := _idle_for(latest, hour, now)) is not None:
        return Outlook("stalled", seconds=idle)
    soon, overall = _slope(latest), _slope(hour)
    slope = soon or overall
    if slope is None or (not slope and not any(one.done for one in latest)):
        return by_rate
    if slope < 0:
        return Outlook("clear", seconds=waiting / -slope)
    if slope > 0:
        return Outlook("growing" if (overall or 0.0) > 0 else "rising", per_minute=slope * 60)
    return Outlook("steady")


def _written(moments: _Known) -> list["Moment"]:
    """Return the moments that somebody wrote, each once."""
    return list({one.at: one for one in moments if one is not None}.values())


def _idle_for(latest: Sequence["Moment"], hour: Sequence["Moment"], now: float) -> float | None:
    """Return for how long nothing was done though something waited; None while that may be usual.
    What waits since a moment is not late."""
    every = sorted([*hour, *latest], key=lambda one: one.at)
    since = now
    for one in reversed(every):
        if one.done or one.failed or not one.waiting:
            break
        since = min(since, one.at - one.seconds)
    idle = now - since
    if idle < _STALLED_AFTER:
        return None
    usual = max((one.service(_NEARLY_ALL) or 0.0 for one in every), default=0.0)
    return idle if idle >= _STALLED_TIMES * usual else None


def _slope(moments: Sequence["Moment"]) -> float | None:
    """Return how many more documents wait with each second, since any do; 0 where it may as well be
    chance, None where there is too little to tell. One change that outweighs all others together is
    left out: what was brought at once says nothing of how it goes on."""
    empty = [number for number, one in enumerate(moments) if not one.waiting]
    pairs = pairwise(moments[empty[-1] + 1 if empty else 0 :])
    steps = [(after.waiting - one.waiting, after.at - one.at) for one, after in pairs]
    steps.sort(key=lambda step: abs(step[0]))
    if steps and 2 * abs(steps[-1][0]) > sum(abs(more) for more, _ in steps):
        del steps[-1]
    if len(steps) < _FEWEST:
        return None
    change, count = sum(more for more, _ in steps), len(steps)
    variance = sum((more - change / count) ** 2 for more, _ in steps) / (count - 1)
    is_chance = abs(change) <= max(_LEAST_CHANGE, _ERRORS * (variance * count) ** 0.5)
    return 0.0 if is_chance else change / sum(took for _, took in steps)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")
