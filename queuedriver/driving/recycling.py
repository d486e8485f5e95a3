"""When a driver has done enough, and is to be started anew: so leaks do not add up."""

import math
import os
import time

from queuedriver.disk.processes import tree_memory
from queuedriver.options import Options

# Recycling is spread, so that drivers started together do not all load their models at once.
_JITTER = 0.1
# How often memory is looked at, in seconds; and at least so many times as long as that takes: whose
# child is whose is seen by going through all processes of the host.
_MEMORY_EVERY = 1.0
_MEMORY_WORTH = 100
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Recycling:
    """The limits of one life."""

    def __init__(self, options: Options, now: float) -> None:
        import random

        spread = random.uniform(1 - _JITTER, 1 + _JITTER)
        # How many documents are enough.
        self.documents = (
            max(1, round(options.max_documents * spread)) if options.max_documents else math.inf
        )
        self._ends_at = options.max_age and now + options.max_age * spread
        self._memory = options.max_memory
        self._memory_at = 0.0

    def due(self, now: float, documents: int) -> str:
        """Return why it is enough; "" while it is not."""
        if documents >= self.documents:
            return f"it has done {documents} documents"
        if self._ends_at and now >= self._ends_at:
            return "it has reached its age"
        if self._memory and now >= self._memory_at:
            began_at = time.monotonic()
            memory = tree_memory()
            took = time.monotonic() - began_at
            self._memory_at = now + max(_MEMORY_EVERY, _MEMORY_WORTH * took)
            if memory > self._memory:
                return f"it uses {memory >> 20} MiB of memory"
        return ""


def resident_memory(process: int | str = "self") -> int:
    """Return how many bytes of memory a process of this host has in use."""
    with open(f"/proc/{process}/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE
