"""What a driver spent its time on, and when it has done enough."""

import math
import os
import random
import time

from queuedriver.claims.liveness import Counters
from queuedriver.driving.live_status import Board
from queuedriver.options import Options

# Recycling is spread, so that drivers started together do not all load their models at once.
_JITTER = 0.1
# How often memory is looked at.
_MEMORY_EVERY = 1.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Tally:
    """Work, Wait, Block, Overhead and what came of them.

    The times and the documents are one tuple, replaced as a whole, so that the beat thread never
    reads half a turn.
    """

    def __init__(self, board: Board | None = None) -> None:
        # Where whoever supervises this driver reads along.
        self._board = board
        self._claimed = 0
        self._sums = (0, 0, 0, 0, 0)
        self._turn_at = time.perf_counter_ns()
        self.failed = 0
        self.discarded = 0
        self.lost_races = 0

    @property
    def documents(self) -> int:
        return self._sums[4]

    def start(self) -> None:
        """The first turn begins: what came before was loading."""
        self._turn_at = time.perf_counter_ns()

    def began(self, docid: str, documents: int) -> None:
        """So many documents are taken up, this one first."""
        if self._board is not None:
            self._claimed += documents
            self._board.began(docid, time.monotonic(), self._claimed)

    def show(self, state: str, why: str) -> None:
        """What the driver does while it has no document at hand."""
        if self._board is not None:
            self._board.ended(self._sums, self.failed, self.discarded)
            self._board.show(state, why)

    def worked(self, work: int, documents: int) -> None:
        """Book a turn: `work` nanoseconds in the processor, the rest of it overhead."""
        now = time.perf_counter_ns()
        worked, wait, block, overhead, done = self._sums
        overhead += now - self._turn_at - work
        self._turn_at = now
        self._sums = (worked + work, wait, block, overhead, done + documents)
        if self._board is not None:
            self._board.ended(self._sums, self.failed, self.discarded)

    def paused(self, blocked: bool) -> None:
        """Book a turn that had nothing to do, or no room for what would come of it."""
        now = time.perf_counter_ns()
        worked, wait, block, overhead, done = self._sums
        if blocked:
            block += now - self._turn_at
        else:
            wait += now - self._turn_at
        self._turn_at = now
        self._sums = (worked, wait, block, overhead, done)

    def counters(self) -> Counters:
        worked, wait, block, overhead, documents = self._sums
        return Counters(
            work=worked // 1_000_000,
            wait=wait // 1_000_000,
            block=block // 1_000_000,
            overhead=overhead // 1_000_000,
            documents=documents,
            failed=self.failed,
            discarded=self.discarded,
            lost_races=self.lost_races,
        )


class Recycling:
    """When a driver should leave, to be started anew: so leaks do not add up."""

    def __init__(self, options: Options, now: float) -> None:
        spread = random.uniform(1 - _JITTER, 1 + _JITTER)
        # How many documents are enough.
        self.documents = (
            max(1, round(options.max_documents * spread)) if options.max_documents else math.inf
        )
        self._ends_at = options.max_age and now + options.max_age * spread
        self._memory = options.max_memory
        self._memory_at = 0.0

    def due(self, now: float, documents: int) -> str:
        """Why it is enough; empty while it is not."""
        if documents >= self.documents:
            return f"it has done {documents} documents"
        if self._ends_at and now >= self._ends_at:
            return "it has reached its age"
        if self._memory and now >= self._memory_at:
            self._memory_at = now + _MEMORY_EVERY
            if (memory := resident_memory()) > self._memory:
                return f"it uses {memory >> 20} MiB of memory"
        return ""


def resident_memory(process: int | str = "self") -> int:
    """Bytes of memory that a process of this host has in use."""
    with open(f"/proc/{process}/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE
