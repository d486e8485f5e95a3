"""Whom a transport did not let in, and why, for people."""

import math
import time
from collections.abc import Iterator

from queuedriver.doors.transports.base import Refused
from queuedriver.doors.words import Recent

# Seconds for which nobody is told again what was told: whoever is refused comes again at once.
_EVERY = 60.0
_MOST = 100


class Refusals:
    """Tells each reason once in a while."""

    def __init__(self) -> None:
        self._told: Recent[str, float] = Recent(_MOST)

    def news(self, why: str) -> Iterator[Refused]:
        """Yield a refusal, unless it was told just now."""
        now = time.monotonic()
        if now - self._told.get(why, -math.inf) >= _EVERY:
            self._told[why] = now
            yield Refused(why)
