"""Limits that come by a fact, and not by the clock: a slow machine must not come first."""

import time
from pathlib import Path

from queuedriver.driving.limits import Limits

# Seconds from one look to the next.
_LOOK = 0.01


class LimitsByFact(Limits):
    """The time-out of a document at hand is over when a file is there."""

    over: Path | None = None

    def _ends(self) -> dict[str, float]:
        if self.over is None:
            return super()._ends()
        return {"timeout": 0.0 if self.over.exists() else time.monotonic() + _LOOK}
