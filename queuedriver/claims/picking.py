"""In which order a driver tries what waits.

`fair`, the default, reads the directory in passes, a block of names at a time: nothing is sorted or
statted, and neither memory nor what a claim costs depends on how much waits. A block that has grown
old is dropped and the same pass goes on with the next one, so every pass ends. What has failed
before is tried at its end. Neither kind can starve the other. `age` and `name` are exact, and cost
a full listing each time; what never was tried and what failed before take turns, each as long as
what waited when its turn began.

Drivers of one queue would all walk the same listing from its head and lose most races. So each
tries its own share first: the names are divided by inode number, which a listing has for nothing
and a rename keeps. A pass that found none of its own is followed by one that helps the others, as
is every eighth; so no share stands still because its driver does. Who has which share follows from
who lives and who has claims. Drivers may see that differently for a while: then they lose some
races, and whoever loses several looks again.
"""

import heapq
import math
import operator
import os
import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Literal, TypeVar

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.names import Item

Order = Literal["fair", "age", "name"]

# Names that are read at a time, and kept: half a megabyte, and a millisecond to read.
BLOCK = 4096
# Names that an exact order keeps.
_KEEP_SORTED = 256
# For how long names are a choice, in seconds: our own share, and what others may take as well; at
# least so many times as long as it took to list them, or a slow file system would be listed all the
# time.
_KEEP_OWN = 5.0
_FRESH = 0.25
_WORTH = 20
# So many races lost say that somebody is there whom we do not know; twice as many, that names are
# not what they were when they were listed.
_DOUBT = 2
# For so many passes, and so many seconds, others' names are left to them while there are some of
# our own. Then one may have been at a long document for hours, and its share must not starve.
_PATIENCE = 8
_PATIENT_FOR = 0.25
# For how long whoever was seen to have a claim is taken for one who shares the queue, in seconds.
_SHARES_FOR = 30.0
# Claims that a pass remembers for whoever looks after dead drivers.
_KEEP_CLAIMS = 10_000

# Inode numbers are dealt to the drivers by their remainder: a prime, because numbers of files made
# one after the other often have a stride; in steps of the golden ratio, because then any few that
# follow each other are spread evenly.
_REMAINDERS = 4093
_STEP = 2531
_GOLDEN = 0.618034
# A block of which so many names have fewer than half as many inode numbers is divided by name:
# some file systems have the same number for all.
_SAMPLE = 64

_inode = operator.methodcaller("inode")
_T = TypeVar("_T")


class Counts(msgspec.Struct, kw_only=True):
    """How many items of a queue are in each state; `due` are those of `later` whose time has
    come."""

    ready: int = 0
    failed: int = 0
    later: int = 0
    working: int = 0
    written: int = 0
    writing: int = 0
    discarded: int = 0
    failed_twice: int = 0
    due: int = 0
    foreign: int = 0
    # The earliest instant at which something postponed is due; 0 when nothing is.
    next_due: int = 0

    @property
    def waiting(self) -> int:
        """Return how many a driver could claim now."""
        return self.ready + self.failed + self.due

    @property
    def claimed(self) -> int:
        """Return how many drivers have in hand."""
        return self.working + self.written

    @property
    def unfinished(self) -> int:
        """Return how many may still become work here."""
        return self.ready + self.failed + self.later + self.working + self.written + self.writing

    @property
    def only_later(self) -> bool:
        """Return whether nothing can be done yet: another may be at work on what was due."""
        return self.unfinished == self.later > 0 and not self.due

    def see(self, name: str, item: Item | None, now: float) -> None:
        """Count a name. `now` is in seconds since the epoch."""
        if item is None:
            self.foreign += not names.is_reserved(name)
            return
        state = item.state
        setattr(self, state, getattr(self, state) + 1)
        if state != names.LATER:
            return
        if item.due <= now:
            self.due += 1
        else:
            self.next_due = min(self.next_due or item.due, item.due)

    def __add__(self, other: "Counts") -> "Counts":
        both = [self.next_due, other.next_due]
        sums = {
            field: getattr(self, field) + getattr(other, field)
            for field in Counts.__struct_fields__
        }
        return Counts(**{**sums, "next_due": min(filter(None, both), default=0)})


class Pass(Counts, kw_only=True):
    """What one pass over a queue saw. A `.ready` name is counted before anybody looks at it more
    closely: that is done when it is tried."""

    claims: list[tuple[str, Item]] = msgspec.field(default_factory=list)
    # Items that wait, and that this pass left to other drivers.
    left: int = 0
    # Items that the operating system does not let us claim.
    refused: int = 0
    # Names that were given to be tried, less those that were not to be had.
    got: int = 0
    # Items that wait and have failed before.
    again: int = 0


def count(directory: Directory, now: float) -> Counts:
    """Count the names of a queue."""
    counts = Counts()
    for name in directory.names():
        if names.is_plain(name):
            # Most are of this kind.
            counts.ready += 1
        else:
            counts.see(name, names.parse(name), now)
    return counts


class Picker:
    """Passes over one queue: the names to try, and what a pass saw."""

    def __init__(
        self,
        directory: Directory,
        order: Order = "fair",
        me: str = "",
        alive: Callable[[bool], Collection[str]] = lambda anew: (),
    ) -> None:
        # What the latest whole pass saw, and how many there were.
        self.counts = Pass()
        self.passes = 0
        self._directory = directory
        self._order = order
        self._sharers = Sharers(me, alive)
        # The pass under way: what it saw, its further blocks, and whether it is at what failed.
        self._pass = Pass()
        self._blocks: Generator[list[str]] | None = None
        self._again = False
        # The names of the block at hand, the next one last; until when they are a choice, when to
        # think about that, and how many of them were lost.
        self._waiting: list[str] = []
        self._stale_at = self._look_at = math.inf
        self._lost = 0
        # By which numbers they were dealt, in the order of the names; none where all are ours.
        self._numbers: list[int] = []
        self._dealt = (0, 1)
        # When the block was asked for, on the monotonic clock of whoever asks.
        self._now = 0.0
        # Passes in a row that left others' names to them, and since when.
        self._patient = 0
        self._patient_since = 0.0

    @property
    def sharers(self) -> int:
        """Return how many drivers take from this queue, as far as is known."""
        return self._sharers.share[1]

    def names(self, limit: int, now: float) -> list[str]:
        """Return up to `limit` names to try next; none at the end of a pass. What failed before
        comes alone. `now` is on the monotonic clock."""
        waiting = self._waiting
        if not waiting or now > self._look_at:
            waiting = self._look_again(now)
        if self._again:
            limit = 1
        given = waiting[: -limit - 1 : -1]
        del waiting[-limit:]
        self._pass.got += len(given)
        return given

    def lost(self) -> None:
        """Note that a name was somebody else's: the others may be, too."""
        self._pass.got -= 1
        self._lost += 1
        if not self._lost % _DOUBT:
            self._look_at = -math.inf

    def refused(self) -> None:
        """Note that a name may not be claimed by us."""
        self._pass.got -= 1
        self._pass.refused += 1

    def foreign(self, name: str) -> None:
        """Note that a name is no item after all."""
        self._pass.got -= 1
        self._pass.ready -= 1
        self._pass.see(name, None, 0.0)

    def restart(self) -> None:
        """Drop the pass at hand, and what it has open."""
        if self._blocks is not None:
            self._blocks.close()
        self._blocks = None
        self._waiting = []

    def _look_again(self, now: float) -> list[str]:
        """Return what is to be tried yet: of the block at hand, if others are now known to whom the
        rest belongs, or if little was lost; else of the next one."""
        self._now = now
        if self._waiting and now <= self._stale_at:
            self._look_at = self._stale_at
            if (self._deal_again() or self._lost < 2 * _DOUBT) and self._waiting:
                return self._waiting
        return self._next_block(now)

    def _deal_again(self) -> bool:
        """Leave to others what is theirs; return whether any of them were not known before."""
        self._sharers.ask(self._now, anew=True)
        if not self._numbers or self._sharers.share == self._dealt:
            return False
        self._lost, self._dealt = 0, self._sharers.share
        mine = _deal(*self._dealt)
        left = list(zip(self._waiting, self._numbers, strict=False))
        kept = [(name, number) for name, number in left if number % _REMAINDERS in mine]
        self._pass.left += len(left) - len(kept)
        self._waiting = [name for name, _ in kept]
        self._numbers = [number for _, number in kept]
        return True

    def _next_block(self, now: float) -> list[str]:
        """Go on to the next names of the pass; return none at its end."""
        self._lost, self._now, self._numbers = 0, now, []
        began_at = time.monotonic()
        if self._blocks is None:
            self._pass, self._again = Pass(), False
            self._blocks = self._fair() if self._order == "fair" else self._sorted()
        try:
            self._waiting = next(self._blocks, [])
        except OSError:
            self.restart()
            raise
        # For how long these names are a choice: the longer it took to list and to deal them.
        took = time.monotonic() - began_at
        seconds = _KEEP_OWN if self._numbers else _FRESH
        self._stale_at = self._look_at = now + took + max(seconds, _WORTH * took)
        if not self._waiting:
            self._blocks = None
            self.counts = self._pass
            self.passes += 1
        return self._waiting

    # Fair

    def _fair(self) -> Generator[list[str]]:
        seen = self._pass
        helping = self._begin_share()
        for block in self._read():
            if waiting := self._see(block, helping):
                yield waiting
        if not seen.again:
            return
        self._again = True
        now = time.time()
        for block in self._read():
            if waiting := [e.name for e in block if _has_failed(e.name, now)]:
                yield self._turned(waiting, 0.0)

    def _read(self) -> Iterator[list["os.DirEntry[str]"]]:
        """Read the directory block by block."""
        with self._directory.scan() as entries:
            while block := list(islice(entries, BLOCK)):
                yield block

    def _see(self, block: list["os.DirEntry[str]"], helping: bool) -> list[str]:
        """Count a block; return which of its names to try, the first one last."""
        seen = self._pass
        part, of = self._dealt = self._sharers.share
        mine = _deal(0, 1) if helping else _deal(part, of)
        number = _numbering(block)
        # No call of ours for each: with many drivers most names are others'.
        waiting = [
            e for e in block if number(e) % _REMAINDERS in mine and e.name.endswith(".ready")
        ]
        others = [e for e in block if not e.name.endswith(".ready")]
        seen.ready += len(block) - len(others)
        seen.left += len(block) - len(others) - len(waiting)
        for entry, item in self._look(others):
            if item.attempt:
                # Everybody's, at the end of the pass.
                continue
            if number(entry) % _REMAINDERS in mine:
                waiting.append(entry)
            else:
                seen.left += 1
        waiting = self._turned(waiting, part / of if helping else 0.0)
        if not helping:
            self._numbers = [number(entry) for entry in waiting]
        return [entry.name for entry in waiting]

    def _look(
        self, entries: Iterable["os.DirEntry[str]"]
    ) -> Iterator[tuple["os.DirEntry[str]", Item]]:
        """Count names and note claims; yield what may be tried."""
        seen = self._pass
        now = time.time()
        for entry in entries:
            name = entry.name
            item = names.parse(name)
            seen.see(name, item, now)
            if item is None:
                continue
            if item.claimed:
                self._see_claim(name, item)
            elif item.waits(now):
                seen.again += bool(item.attempt)
                yield entry, item

    def _see_claim(self, name: str, item: Item) -> None:
        if len(self._pass.claims) < _KEEP_CLAIMS:
            self._pass.claims.append((name, item))
        token = names.parse_token(item.token)
        if token.salt:
            self._sharers.meet(token.driver, self._now)

    def _turned(self, waiting: list[_T], start: float) -> list[_T]:
        """Put them in the order in which they are taken off the end, from this part on. Each pass
        begins elsewhere: of a block that is old after one document, only the first is tried."""
        first = int((start + self.passes * _GOLDEN) % 1.0 * len(waiting))
        waiting = waiting[first:] + waiting[:first]
        waiting.reverse()
        return waiting

    def _begin_share(self) -> bool:
        """See who shares the queue; return whether this pass helps the others."""
        now = self._now
        self._sharers.begin(now)
        before = self.counts
        self._patient = self._patient + 1 if before.left else 0
        if self._patient <= 1:
            self._patient_since = now
        lasted = self._patient >= _PATIENCE and now - self._patient_since >= _PATIENT_FOR
        return bool(before.left) and (before.got <= 0 or lasted)

    # By age, by name

    def _sorted(self) -> Generator[list[str]]:
        """Yield what never was tried, exactly in order, then what failed before; each for as many
        tries as waited when its turn began, or what comes meanwhile could keep the other out."""
        self._begin_share()
        for self._again in (False, True):
            found = self._first()
            seen = self._pass
            waiting = seen.again if self._again else seen.waiting - seen.again
            # Our part of it.
            tries = math.ceil(waiting / self._sharers.share[1])
            while tries > 0 and found:
                turn = found[:tries][::-1]
                tries -= len(turn)
                yield turn
                # What was dropped was not tried.
                tries += len(turn)
                found = self._first() if tries > 0 else []
            if not self._pass.again:
                return

    def _first(self) -> list[str]:
        """List the queue; return the first in order of those whose turn it is."""
        before, self._pass = self._pass, Pass()
        self._pass.got, self._pass.refused = before.got, before.refused
        found = heapq.nsmallest(
            _KEEP_SORTED,
            (
                (item.attempt, self._age(entry.name), item.docid, entry.name)
                for block in self._read()
                for entry, item in self._look(block)
                if bool(item.attempt) is self._again
            ),
        )
        return [one[-1] for one in found]

    def _age(self, name: str) -> int:
        if self._order == "name":
            return 0
        try:
            return self._directory.status(name).st_mtime_ns
        except FileNotFoundError:
            return 0


class Sharers:
    """The drivers that take from a queue: those that live, those seen to have a claim, and we."""

    def __init__(self, me: str, alive: Callable[[bool], Collection[str]]) -> None:
        self._me = me
        # The drivers known to live; asked at the beginning of a pass, which is to cost nothing, and
        # anew when races are lost.
        self._alive = alive
        # When each was last known to share the queue, on the monotonic clock.
        self._met = {me: 0.0}

    @property
    def share(self) -> tuple[int, int]:
        """Return which part of how many is ours."""
        drivers = sorted(self._met)
        return drivers.index(self._me), len(drivers)

    def meet(self, driver: str, now: float) -> None:
        self._met[driver] = now

    def ask(self, now: float, *, anew: bool) -> None:
        """Add the drivers that are known to live."""
        self._met |= dict.fromkeys((*self._alive(anew), self._me), now)

    def begin(self, now: float) -> None:
        """Begin a pass: forget who was not seen for long, and ask who lives."""
        self._met = {one: met for one, met in self._met.items() if now - met < _SHARES_FOR}
        self.ask(now, anew=False)


def _has_failed(name: str, now: float) -> bool:
    """Return whether a name is of an item that waits and has failed before."""
    item = None if name.endswith(".ready") else names.parse(name)
    return item is not None and item.attempt > 0 and item.waits(now)


@lru_cache(64)
def _deal(part: int, of: int) -> frozenset[int]:
    """Deal the remainders out to so many drivers; return those of one."""
    return frozenset(
        one for one in range(_REMAINDERS) if one * _STEP % _REMAINDERS * of // _REMAINDERS == part
    )


def _numbering(block: list["os.DirEntry[str]"]) -> Callable[["os.DirEntry[str]"], int]:
    """Choose by which number a block's names are divided."""
    sample = block[:_SAMPLE]
    apart = 2 * len({entry.inode() for entry in sample}) >= len(sample)
    return _inode if apart else _number_of_name


def _number_of_name(entry: "os.DirEntry[str]") -> int:
    return zlib.crc32(entry.name.encode(errors="surrogateescape"))
