"""What a stage's own history says about the next document: `timeout = "auto"`. Pure.

Generous on purpose: a limit that ends a healthy document does more harm than one that comes late.
How large documents are is not known here, and what is large and what hangs look the same for a
while. So a document that this limit has ended is given ten times as long the next time: what only
is large gets through, and what hangs costs one longer wait before it is set aside.
"""

import math
from collections.abc import Sequence

# From so many successes on there is something to learn from, and older ones than so many do not
# count: models and documents change.
ENOUGH = 20
REMEMBERED = 200
# So many times what all but one in twenty documents take, and never less than ten minutes.
FACTOR = 10.0
SHARE = 0.95
LEAST = 600.0
# For a document that it has ended once.
SECOND_CHANCE = 10.0


def hard_limit(durations: Sequence[float]) -> float | None:
    """Seconds after which a document counts as hung, from what documents took that succeeded, the
    latest last. None: too few to tell."""
    latest = sorted(durations[-REMEMBERED:])
    if len(latest) < ENOUGH:
        return None
    usual = latest[math.ceil(SHARE * len(latest)) - 1]
    return max(LEAST, FACTOR * usual)
