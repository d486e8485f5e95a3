"""In which order a driver tries what waits.

`fair`, the default, streams the directory in passes: nothing is sorted or statted, and memory does
not depend on how much waits. What a pass saw as failed is tried at its end, so neither kind can
starve the other. `age` and `name` are exact, and cost a full listing each time; what never was
tried and what failed before take turns, each as long as what waited when its turn began.

Drivers of one queue would all walk the same listing from its head and lose most races. So each
takes its own share of the docids first (a hash, over the drivers alive). A pass that found none of
its own helps the others: from its own slice of their share, from the far end of it, and no further
than half-way, because from the near end comes the owner. What then still waits is anybody's, a
few at a time. Whoever loses a race while helping looks again.
"""

import heapq
import math
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.format import names

Order = Literal["fair", "age", "name"]

# Names a sorted listing keeps, and for how long they are a choice.
_KEEP_SORTED = 256
_FRESH = 0.25
# Names a helping pass keeps: some megabytes, and worth the listing of a very long queue.
_KEEP_OTHERS = 10_000
# How many names are taken by one division of the docids, before asking who is alive again.
_SHARE_NAMES = 32
# For so many passes what is others' is left to them while there is work of our own. Then one may
# have been at a long document for hours, and its share must not starve.
_PATIENCE = 8
# Up to here a listing is begun again rather than read on once it is known to be out of date.
_CHEAP_LISTING = 2_000
# Claims of others that a pass remembers for whoever looks after dead drivers.
_KEEP_CLAIMED = 10_000
_KEEP_FOREIGN = 10


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """An item that waits, by the name it was seen under."""

    name: str
    docid: str
    attempt: int


class Listing(msgspec.Struct):
    """What one pass over a queue saw."""

    ready: int = 0
    failed: int = 0
    later: int = 0
    working: int = 0
    written: int = 0
    writing: int = 0
    failed_twice: int = 0
    foreign: int = 0
    # The earliest instant at which something postponed is due; 0 when nothing is.
    next_due: int = 0
    claimed: list[tuple[str, names.Item]] = msgspec.field(default_factory=list)
    foreign_names: list[str] = msgspec.field(default_factory=list)
    # Items that wait, and that this pass left for other drivers.
    left: int = 0
    # Postponed items that are due, and those of them that have failed before.
    due: int = 0
    due_again: int = 0

    @property
    def unfinished(self) -> int:
        """Everything that may still become work here."""
        return self.ready + self.failed + self.later + self.working + self.written + self.writing

    @property
    def only_later(self) -> bool:
        """Whether nothing can be done yet: another may be at work on what was seen to be due."""
        return self.unfinished == self.later > 0 and not self.due

    def see(self, name: str, now: float) -> Candidate | None:
        """Count a name; a candidate if it waits and may be tried."""
        docid = names.plain_docid(name)
        if docid is not None:
            self.ready += 1
            return Candidate(name, docid, 0)
        item = names.parse(name)
        if item is None:
            self._see_foreign(name)
            return None
        state = item.state
        setattr(self, state, getattr(self, state) + 1)
        if state in ("ready", "failed"):
            return Candidate(name, item.docid, item.attempt)
        if state == "later":
            if item.due <= now:
                self.due += 1
                self.due_again += bool(item.attempt)
                return Candidate(name, item.docid, item.attempt)
            self.next_due = min(self.next_due or item.due, item.due)
        elif state in ("working", "written") and len(self.claimed) < _KEEP_CLAIMED:
            self.claimed.append((name, item))
        return None

    def _see_foreign(self, name: str) -> None:
        if name[0] == "." or name in names.CONTROLS or name == names.DISCARDED:
            return
        self.foreign += 1
        if len(self.foreign_names) < _KEEP_FOREIGN:
            self.foreign_names.append(name)


class Share(NamedTuple):
    """Which part of the docids is whose: the `part`th of `of` drivers."""

    part: int = 0
    of: int = 1


def look(directory: Directory, now: float) -> Listing:
    """One pass that only counts."""
    listing = Listing()
    for name in directory.names():
        listing.see(name, now)
    return listing


def _waiting(found: Iterable[str], now: float) -> Iterator[Candidate]:
    """What waits of these names."""
    listing = Listing()
    candidates = (listing.see(name, now) for name in found)
    return (candidate for candidate in candidates if candidate is not None)


class _Others:
    """What waits and is somebody else's to try first."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._slice: list[str] = []
        self._rest: list[str] = []

    def leave(self, name: str, docid: str) -> bool:
        """Whether it is another driver's; if so, remember it."""
        ours, of = self.share
        part = zlib.crc32(docid.encode())
        if part % of == ours:
            return False
        kept = self._slice if part // of % of == ours else self._rest
        if len(kept) < _KEEP_OTHERS:
            kept.append(name)
        return True

    def some(self) -> Iterator[str]:
        """Any of it, whosever it is."""
        kept = self._slice + self._rest
        return iter(random.sample(kept, min(len(kept), _SHARE_NAMES)))

    def to_help(self, patient: bool) -> Iterator[str]:
        """In which order to help, from the far end: the owner comes from the near one."""
        if self._slice:
            return reversed(self._slice[len(self._slice) // 2 :])
        if patient or not self._rest:
            return iter(())
        return iter(random.sample(self._rest, 1 + len(self._rest) // (2 * self.share.of)))


class Picker:
    """Passes over one queue, one candidate at a time."""

    def __init__(
        self,
        directory: Directory,
        order: Order = "fair",
        share: Callable[[], Share] = Share,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        # What the pass before saw, whole.
        self.listing = Listing()
        self.passes = 0
        self._order = order
        self._share = share
        self._clock = clock
        self._monotonic = monotonic
        self._stream: Iterator[Candidate] | None = None
        self._lost = False
        # Passes in a row that had work of our own, and left others'.
        self._passes_left = 0
        # In an exact order: whose turn it is, and for how many tries yet.
        self._failed_first = True
        self._tries = 0

    def next(self) -> Candidate | None:
        """The next item to try; None at the end of a pass."""
        if self._stream is None:
            self._stream = self._fair() if self._order == "fair" else self._sorted()
        try:
            candidate = next(self._stream, None)
        except OSError:
            self._stream = None
            raise
        if candidate is None:
            self._stream = None
            self.passes += 1
        return candidate

    def lost(self) -> None:
        """The last candidate was somebody else's: what helping goes by is out of date."""
        self._lost = True

    def restart(self) -> None:
        """Forget the pass at hand: its listing is out of date."""
        self._stream = None

    def _fair(self) -> Iterator[Candidate]:
        listing = Listing()
        others = _Others(self._share())
        now = self._clock()
        began_at = self._monotonic()
        seen = own = 0
        for name in self.directory.names():
            # Most names are of this kind, and with many drivers most of them are others'.
            docid = names.plain_docid(name)
            candidate = None
            if docid is not None:
                listing.ready += 1
            else:
                candidate = listing.see(name, now)
                if candidate is None or candidate.attempt:
                    continue
                docid = candidate.docid
            seen += 1
            if not seen % _SHARE_NAMES:
                others.share = self._share()
            if others.share.of > 1 and others.leave(name, docid):
                listing.left += 1
                continue
            own += 1
            self._lost = False
            yield candidate or Candidate(name, docid, 0)
            if self._lost and listing.left and listing.unfinished < _CHEAP_LISTING:
                # A helper is at our share: what else the kernel has listed for us may be gone too.
                break
        patient = not self.listing.left
        self._passes_left = self._passes_left + 1 if listing.left else 0
        self.listing = listing
        if not own:
            fresh = max(_FRESH, 4 * (self._monotonic() - began_at))
            self._passes_left = 0
            yield from self._while_fresh(_waiting(others.to_help(patient), now), fresh)
        elif self._passes_left > _PATIENCE:
            self._passes_left = 0
            yield from self._while_fresh(_waiting(others.some(), now), _FRESH)
        if listing.failed or listing.due_again:
            yield from self._failed()

    def _failed(self) -> Iterator[Candidate]:
        """The end of the queue: what failed before, looked up anew."""
        now = self._clock()
        seen = Listing()
        for name in self.directory.names():
            candidate = None if name.endswith(".ready") else seen.see(name, now)
            if candidate is not None and candidate.attempt:
                yield candidate

    def _sorted(self) -> Iterator[Candidate]:
        goes_on = self._tries > 0
        if not goes_on:
            self._failed_first = not self._failed_first
        listing = Listing()
        now = self._clock()
        seen = (listing.see(name, now) for name in self.directory.names())
        found = heapq.nsmallest(
            _KEEP_SORTED, (one for one in seen if one is not None), key=self._sort_key
        )
        self.listing = listing
        failed = listing.failed + listing.due_again
        fresh = listing.ready + listing.due - listing.due_again
        for candidate in self._while_fresh(iter(found), _FRESH):
            again = bool(candidate.attempt)
            if again is not self._failed_first or not self._tries:
                if again is self._failed_first and goes_on and (fresh if again else failed):
                    # The others' turn, from a listing in which they come first.
                    return
                # A new turn: our part of all there are.
                goes_on = True
                self._failed_first = again
                self._tries = math.ceil((failed if again else fresh) / self._share().of)
            self._tries -= 1
            yield candidate

    def _sort_key(self, candidate: Candidate) -> tuple[bool, int, int, str]:
        attempt = candidate.attempt
        last = bool(attempt) is not self._failed_first
        if self._order == "name":
            return last, attempt, 0, candidate.docid
        try:
            age = self.directory.status(candidate.name).mtime_ns
        except FileNotFoundError:
            age = 0
        return last, attempt, age, candidate.docid

    def _while_fresh(self, candidates: Iterator[Candidate], seconds: float) -> Iterator[Candidate]:
        until = self._monotonic() + seconds
        self._lost = False
        for candidate in candidates:
            yield candidate
            if self._lost or self._monotonic() > until:
                return
