"""What a driver spent its time on, and when it has done enough."""

import math
import os
import random
import time
from collections.abc import Sequence

from queuedriver.claims.liveness import Counters
from queuedriver.driving.live_status import Board, Sums
from queuedriver.options import Options

# Recycling is spread, so that drivers started together do not all load their models at once.
_JITTER = 0.1
# How often memory is looked at.
_MEMORY_EVERY = 1.0
# How claims end whose documents are done.
_DONE = ("published", "finished", "stuck")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Tally:
    """Counters of a driver: what it spent its time on, and what came of it."""

    def __init__(self, board: Board | None = None) -> None:
        # Where whoever supervises this driver reads along.
        self.board = board
        self._claimed = 0
        self._began_at = time.monotonic()
        # Seconds of work, documents, and when that was booked: replaced as a whole, so that another
        # thread never reads half a turn.
        self.done = (0.0, 0, self._began_at)
        self._wait = self._block = 0.0
        self.failed = 0
        self.discarded = 0
        self.lost_races = 0

    @property
    def documents(self) -> int:
        return self.done[1]

    def start(self) -> None:
        """Begin the first turn: what came before was loading."""
        self._began_at = time.monotonic()
        self.done = (0.0, 0, self._began_at)

    def began(self, docid: str, documents: int) -> None:
        """Show that so many documents are taken up, this one first."""
        if self.board is not None:
            self._claimed += documents
            self.board.began(docid, time.monotonic(), self._claimed)

    def show(self, state: str, why: str) -> None:
        """Show what the driver does while it has no document at hand."""
        if self.board is not None:
            self.ended()
            self.board.show(state, why)

    def ended(self) -> None:
        """Show that nothing is at hand."""
        if self.board is not None:
            self.board.ended(self.sums(), self.failed, self.discarded)

    def worked(self, work: int, documents: int) -> None:
        """Book a turn: `work` nanoseconds in the processor, the rest of it overhead."""
        self.add(work / 1e9, documents)

    def add(self, work: float, documents: int) -> None:
        """Book so many seconds of work on so many documents, the rest of the time overhead."""
        seconds, done, _ = self.done
        self.done = (seconds + work, done + documents, time.monotonic())
        self.ended()

    def book(self, fates: Sequence[str], work: int) -> None:
        """Book a turn by what became of its claims."""
        self.discarded += fates.count("discarded")
        self.failed += fates.count("failed") + fates.count("discarded")
        self.worked(work, sum(fate in _DONE for fate in fates))

    def paused(self, blocked: bool) -> None:
        """Book a turn that had nothing to do, or no room for what would come of it."""
        seconds, done, since = self.done
        now = time.monotonic()
        if blocked:
            self._block += now - since
        else:
            self._wait += now - since
        self.done = (seconds, done, now)

    def sums(self) -> Sums:
        """Return nanoseconds of work, wait, block and overhead, and the documents done."""
        work, documents, at = self.done
        wait, block = self._wait, self._block
        overhead = max(0.0, at - self._began_at - work - wait - block)
        parts = [int(seconds * 1e9) for seconds in (work, wait, block, overhead)]
        return parts[0], parts[1], parts[2], parts[3], documents

    def counters(self) -> Counters:
        """Return them as a registration has them, in milliseconds."""
        work, wait, block, overhead, documents = self.sums()
        return Counters(
            work=work // 1_000_000,
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
