"""What an intake tells of the files that it has not taken."""

import itertools
from collections import Counter
from operator import attrgetter
from typing import NamedTuple

from queuedriver.driving.measurements import FILTERED
from queuedriver.format.units import format_count
from queuedriver.intake.watcher import STAYS, Watcher

_state_of = attrgetter("state")


class Waiting(NamedTuple):
    """How many there are, by FILES; and what is waited for, in a sentence."""

    counts: Counter[str]
    why: str


def waiting(watcher: Watcher) -> Waiting:
    """Count the files that are not taken; return besides what they wait for. Of 100,000 that takes
    some milliseconds."""
    every = itertools.chain(watcher.files.values(), watcher.claims.values())
    counts = Counter(map(_state_of, every))
    del counts[STAYS]
    parts = [watcher.blocked] if watcher.blocked else []
    files = (one for one in watcher.files.items() if not one[1].is_left)
    claimed = ((claim.path, one) for claim, one in watcher.claims.items())
    if (first := next(itertools.chain(claimed, files), None)) is not None:
        words = format_count(counts.total(), "file waits", "files wait")
        parts.append(f"{words}, as {first[0]}: {first[1].waits.why}")
    if others := watcher.folder.others:
        words = format_count(others, "directory or link", "directories or links")
        parts.append(f"{words} stay")
    counts[FILTERED] = len(watcher.filtered)
    return Waiting(counts, "; ".join(parts))
