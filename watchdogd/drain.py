"""`run --drain`: when all is through, or can never be. Instants are monotonic, and arguments."""

import math

from watchdogd.stages import Stages

# How many looks in a row must see all stages drained: what one look does not see in one queue may
# have come there from another that was looked at before.
_LOOKS = 2
# How soon a look that saw nothing left is followed by the next, in seconds.
_LOOK_AGAIN = 0.1


class Drain:
    """The end of a watchdog that leaves by itself. No queue is closed: more may come tomorrow."""

    def __init__(self) -> None:
        # When the helper is to look again.
        self.look_at = math.inf
        # Why it was given up; empty while it was not.
        self.hopeless = ""
        self._looks = 0

    def see(self, stages: Stages, trouble: str, now: float) -> bool:
        """Take note of a look; return whether all is through."""
        inputs = stages.inputs
        nothing_left = all(one.empty for one in inputs) and not (trouble or stages.taking)
        is_drained = all(one.drained for one in inputs) and not stages.taking
        self._looks = self._looks + 1 if is_drained else 0
        over = nothing_left and self._looks >= _LOOKS
        if nothing_left and not over:
            self.look_at = now + _LOOK_AGAIN
        return over
