"""Look twice, judge, and mend until there is nothing left that can be mended.

A check is safe while drivers run: what breaks a rule is named only when a second look, half a
second after the first, still sees it.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from queuedriver.check.files import Finding, Look
from queuedriver.check.rules import FINDERS, Repairs, judge_item
from queuedriver.claims.liveness import Observer
from queuedriver.operating.queue import Queue

# Longer than a driver takes from one rename of a hand-off to the next.
PAUSE = 0.5
# Some things are seen only when others are mended.
_ROUNDS = 4


class Repair(NamedTuple):
    """Findings that were mended, and those that a check has after it."""

    mended: list[Finding]
    left: list[Finding]


def check(
    queue: Queue, *, clock: Callable[[], float] = time.time, pause: float = PAUSE
) -> list[Finding]:
    """Every broken rule."""
    observer = Observer()
    found = _look(queue, observer, clock)
    if found:
        before = {_key(one) for one in found}
        time.sleep(pause)
        found = [one for one in _look(queue, observer, clock) if _key(one) in before]
    return found


def repair(queue: Queue, *, clock: Callable[[], float] = time.time, pause: float = PAUSE) -> Repair:
    """Mend what can be mended."""
    mended: list[Finding] = []
    left = check(queue, clock=clock, pause=pause)
    for _ in range(_ROUNDS):
        todo = [one for one in left if one.repair]
        if not todo:
            break
        Repairs(queue, clock).mend(todo)
        left = check(queue, clock=clock, pause=pause)
        still = {_key(one) for one in left}
        done = [one for one in todo if _key(one) not in still]
        if not done:
            break
        mended += done
    return Repair(mended, left)


def _look(queue: Queue, observer: Observer, clock: Callable[[], float]) -> list[Finding]:
    look = Look(queue, observer, clock(), judge_item)
    return [Finding(*found) for find in FINDERS for found in find(look)]


def _key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.subject
