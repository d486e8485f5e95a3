"""In which order a driver tries what waits.

`fair`, the default, reads the directory in passes, a block of names at a time: nothing is sorted or
statted, and neither memory nor what a claim costs depends on how much waits. A block that has grown
old is dropped and the same pass goes on with the next one, so every pass ends. What has failed
before is tried at its end. `age` and `name` are exact, and each pass costs a full listing; what
failed before comes last, but first in every eighth. So neither kind can starve the other.

Drivers of one queue would all walk the same listing from its head and lose most races. So each
tries its own share first: the names are divided by inode number, which a listing has for nothing
and a rename keeps. Who has found none of its own for a pass, or two after a lost race, helps the
others in the next, and in every eighth; so no share stands still because its driver does. Who has
which share follows from who lives. Drivers may see that differently for a while: then they lose
some races, and whoever has lost one drops what was listed, looks who is there, and goes on with the
next block.

`Lookahead` has the names that are next, and knows whether the queue is drained: when two whole
passes showed nothing, and the directory did not change from before the first to after the second.
One listing alone may miss what is renamed meanwhile.
"""

import os
import time
import zlib
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple

from queuedriver.claims.attempts import Attempts
from queuedriver.claims.counts import Counts, Pass
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.names import Item

Order = Literal["fair", "age", "name"]

# Names that are read at a time, and kept: half a megabyte, and a millisecond to read. So many of
# those that failed before are kept, too. Where nothing was to be had before, fewer are read at
# first: others may have come, and who took their names for its own drops what was read when a race
# is lost.
BLOCK = 4096
_FIRST_BLOCK = 1024
# Names that an exact order keeps.
_KEEP_SORTED = 256
# For how long names are a choice, in seconds, and those of an exact order; at least so many times
# as long as it took to list them, or a slow file system would be listed all the time.
_KEEP = 5.0
_KEEP_EXACT = 0.25
_WORTH = 20
# For so many passes others' names are left to them while there are some of our own: then one may
# have been at a long document for hours, and its share must not starve. And for so many that are
# exact, what failed before is left to the end.
_PATIENCE = 8
# An empty queue is not listed again sooner, but by who has paused; in seconds.
_REST = 0.05
# Who has come is asked so seldom, in seconds, where no race was lost: it is a listing, too.
_ASK_EVERY = 1.0
# So many names are taken at most from what was listed, and again so many when those before them
# were used up within so many seconds.
_MOST_AHEAD = 64
_AT_ONCE = 0.1
# Claims that a pass remembers for whoever looks after dead drivers.
_KEEP_CLAIMS = 10_000

# Inode numbers are dealt to the drivers by their remainder: of a prime, because numbers of files
# made one after the other often have a stride; in steps of nearly the golden ratio, because then
# any few that follow each other are spread evenly. Both as (prime, step). A crowd of so many
# drivers takes the larger one, or some would have twice as many as others, and of thousands many
# none.
# Of a driver that is alone everything is.
_ONE, _FEW, _MANY = (1, 1), (4093, 2531), (65537, 40507)
_CROWD = 512
_GOLDEN = 0.618034
# A block of which so many names have fewer than half as many inode numbers is divided by name:
# some file systems have the same number for all.
_SAMPLE = 64


class _ByName(NamedTuple):
    """A line of a listing whose number is one of its name."""

    name: str

    def inode(self) -> int:
        return zlib.crc32(self.name.encode(errors="surrogateescape"))


_Line = os.DirEntry[str] | _ByName


def count(directory: Directory, now: float) -> Counts:
    """Count the names of a queue."""
    counts = Counts()
    for name, item in names.walk(directory):
        counts.see(name, item, now)
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
        # What the latest whole pass saw, how many there were, and in how many of the latest nothing
        # was to be had.
        self.counts = Pass()
        self.passes = self._in_vain = 0
        self._directory = directory
        self.order = order
        self._me = me
        # The drivers known to live: to ask at the beginning of a pass is to cost nothing; anew when
        # races are lost.
        self._alive = alive
        # How many drivers take from this queue, as far as is known; and which part is ours.
        self.sharers, self.part = 1, 0
        # When to ask anew, on the monotonic clock: who was there already is known.
        self._ask_at = time.monotonic() + _ASK_EVERY
        # The pass under way: what it saw, and its further blocks.
        self._pass = Pass()
        self._blocks: Generator[list[str]] | None = None
        # The names of the block at hand, the next one last; until when they are a choice, on the
        # monotonic clock.
        self._waiting: list[str] = []
        self._stale_at = 0.0

    def names(self, limit: int, now: float) -> list[str]:
        """Return up to `limit` names to try next; none at the end of a pass. `now` is on the
        monotonic clock."""
        waiting = self._waiting
        if not waiting or now > self._stale_at:
            waiting = self._next_block(now)
        given = waiting[: -limit - 1 : -1]
        del waiting[-limit:]
        self._pass.given += len(given)
        return given

    def lost(self, ahead: list[str]) -> None:
        """Note that a name was somebody else's. Of a share the rest may be, too: take back those
        that are yet to be tried, and see who is there."""
        self._pass.missed += 1
        self._pass.lost += 1
        if self.order != "fair":
            # All have the same names at hand: the next may be free, and a listing is of everything.
            return
        self._pass.given -= len(ahead)
        ahead.clear()
        self._waiting = []
        self._see_who_lives(anew=True)

    def refused(self) -> None:
        """Note that a name may not be claimed by us."""
        self._pass.missed += 1
        self._pass.refused += 1

    def foreign(self, name: str) -> None:
        """Note that a name is no item after all."""
        self._pass.missed += 1
        self._pass.ready -= 1
        self._pass.see(name, None, 0.0)

    def restart(self) -> None:
        """Drop the pass at hand, and what it has open."""
        if self._blocks is not None:
            self._blocks.close()
        self._blocks = None
        self._waiting = []

    def _see_who_lives(self, *, anew: bool) -> None:
        if anew:
            self._ask_at = time.monotonic() + _ASK_EVERY
        drivers = {self._me, *self._alive(anew)}
        self.sharers, self.part = len(drivers), sum(one < self._me for one in drivers)

    def _next_block(self, now: float) -> list[str]:
        """Go on to the next names of the pass; return none at its end."""
        began_at = time.monotonic()
        blocks, self._blocks = self._blocks, None
        self._waiting = []
        if blocks is None:
            # Whoever came while there was nothing to do shares what there is now.
            self._pass = Pass()
            self._see_who_lives(anew=self.counts.got <= 0 and began_at >= self._ask_at)
            blocks = self._fair() if self.order == "fair" else self._sorted()
        # Trouble ends the pass, and the next one begins anew.
        waiting = self._waiting = next(blocks, [])
        # For how long these names are a choice: the longer it took to list and to deal them.
        took = time.monotonic() - began_at
        kept = _KEEP if self.order == "fair" else _KEEP_EXACT
        self._stale_at = now + took + max(kept, _WORTH * took)
        if waiting:
            self._blocks = blocks
        else:
            self.counts = self._pass
            self.passes += 1
            self._in_vain = self._in_vain + 1 if self._pass.got <= 0 else 0
        return waiting

    def _read(self, size: int = BLOCK) -> Iterator[Sequence[_Line]]:
        """Read the directory block by block, the first of this size."""
        with self._directory.scan() as entries:
            while block := list(islice(entries, size)):
                yield block
                size = BLOCK

    def _look(self, entries: Iterable[_Line]) -> Iterator[tuple[_Line, Item]]:
        """Count names and note claims; yield what may be tried."""
        seen = self._pass
        now = time.time()
        for entry in entries:
            item = names.parse(entry.name)
            seen.see(entry.name, item, now)
            if item is None:
                continue
            if item.waits(now):
                yield entry, item
            elif item.claimed and len(seen.claims) < _KEEP_CLAIMS:
                seen.claims.append(entry.name)

    def _fair(self) -> Generator[list[str]]:
        """Yield what never was tried of our share, block by block, then what failed before."""
        seen, before = self._pass, self.counts
        # Who lost a race for one of its own tries once more.
        has_none = self._in_vain > bool(before.lost)
        helping = bool(before.left) and (has_none or not self.passes % _PATIENCE)
        failed: list[str] = []
        size = _FIRST_BLOCK if before.got <= 0 and not helping else BLOCK
        for block in map(_numbered, self._read(size)):
            dealt, mine = _deal(0, 1) if helping else _deal(self.part, self.sharers)
            waiting, others = _split(block, dealt, mine)
            seen.ready += len(block) - len(others)
            seen.left += len(block) - len(others) - len(waiting)
            for entry, item in self._look(others):
                if item.attempt:
                    failed.append(entry.name)
                elif entry.inode() % dealt in mine:
                    waiting.append(entry.name)
                else:
                    seen.left += 1
            del failed[BLOCK:]
            if waiting:
                yield self._turned(waiting)
        if failed:
            # Everybody's: there are few.
            yield self._turned(failed)

    def _turned(self, waiting: list[str]) -> list[str]:
        """Put names in the order in which they are taken off the end. Each driver begins at its own
        place, and each pass elsewhere: of a block that is old after one document, only the first is
        tried."""
        first = int((self.part / self.sharers + self.passes * _GOLDEN) % 1.0 * len(waiting))
        return (waiting[first:] + waiting[:first])[::-1]

    def _sorted(self) -> Generator[list[str]]:
        """Yield what waits, exactly in order: what never was tried, and then what failed before; or
        now and then the other way round."""
        # Late: exact orders alone want it.
        from heapq import nsmallest

        last: tuple[Any, ...] = ()
        while True:
            looked_at = (one for block in self._read() for one in self._look(block))
            ranked = (self._rank(entry.name, item) for entry, item in looked_at)
            found = nsmallest(_KEEP_SORTED, (one for one in ranked if one > last))
            if not found:
                return
            yield [name for *_, name in reversed(found)]
            was = self._pass
            if was.got > 0:
                return
            # None of these was to be had: what comes after them is not to wait for people.
            last = found[-1]
            self._pass = Pass(
                given=was.given, missed=was.missed, refused=was.refused, lost=was.lost
            )

    def _rank(self, name: str, item: Item) -> tuple[bool, int, int, str, str]:
        failed_first, age = (self.passes + 1) % _PATIENCE == 0, 0
        if self.order == "age":
            with suppress(FileNotFoundError):
                age = self._directory.status(name).st_mtime_ns
        later = (item.attempt > 0) is not failed_first
        return later, item.attempt, age, item.docid, name


class Lookahead:
    """The names that wait in one queue, as far as it was listed, and whether there are any."""

    def __init__(
        self,
        directory: Directory,
        attempts: Attempts,
        picker: Picker,
        *,
        await_writing: bool = True,
    ) -> None:
        # The next one last.
        self.names: list[str] = []
        # Whether all of them need no closer look: these never failed, nor were they troubled.
        self.usual = False
        # Documents of which something is remembered: these are never as usual.
        self.troubled: Collection[str] = ()
        # Names that are left alone, and until when.
        self.left_alone: dict[str, float] = {}
        self.picker = picker
        self._directory = directory
        self._attempts = attempts
        self._await_writing = await_writing
        # How many names are taken at a time, and when that was done last. An exact order is one of
        # names that were just listed.
        self._ahead, self._ahead_at = 1, 0.0
        self._most_ahead = _MOST_AHEAD if picker.order == "fair" else 1
        # The directory's mtime before the pass at hand; None between passes.
        self._mtime: int | None = None
        self._rest_until = 0.0
        # The mtime at which it was seen empty, and since when, while it is that.
        self._empty: tuple[int, float] | None = None

    def needs_care(self, docid: str, attempt: int) -> bool:
        """Tell whether a document failed before, or has been troubled."""
        return attempt > 0 or docid in self.troubled

    def list_more(self, now: float) -> bool:
        """List some names to try, when none is left. False after a pass that had none, and for a
        moment thereafter, unless `wake` was called: its driver may have other queues."""
        while True:
            if self._mtime is None:
                if now < self._rest_until:
                    return False
                self._mtime = self._directory.status().st_mtime_ns
                self.troubled = self._attempts.docids()
            if given := self.picker.names(self._next_ahead(now), now):
                given.reverse()
                self.names += given
                self.usual = not self.troubled and all(map(names.is_plain, given))
                if self.left_alone:
                    self._leave_alone(now)
                if self.names:
                    return True
                continue
            self._end_pass(now, self._mtime)
            # After a pass that gave work there may be more; after one whose every item was somebody
            # else's (or a ghost of a stale listing) only waiting helps.
            if self.picker.counts.got <= 0:
                self._rest_until = now + _REST
                return False

    def restart(self) -> None:
        """Forget what was listed: it is out of date."""
        self.picker.restart()
        self.names.clear()
        self._mtime = None
        self.wake()

    def wake(self) -> None:
        """Rest no longer: there may be something new."""
        self._rest_until = 0.0

    def empty_for(self, now: float) -> float:
        """Return for how long whole listings have shown the queue empty; negative if not at all."""
        return now - self._empty[1] if self._empty is not None else -1.0

    def waited(self, name: str) -> float | None:
        """Return the seconds for which a document has waited since it came, was given back, or was
        due; None when it is gone. Its name was changed by whatever brought it here, and the file
        system notes when."""
        item = names.parse(name)
        try:
            since = self._directory.status(name).st_ctime
        except OSError:
            return None
        return max(0.0, time.time() - max(since, item.due if item is not None else 0.0))

    def _next_ahead(self, now: float) -> int:
        """Return how many names to take: more while they are used up at once, and one while a
        document takes long, or others would lose races for what has long been done."""
        soon = now - self._ahead_at < _AT_ONCE
        self._ahead = min(2 * self._ahead, self._most_ahead) if soon else 1
        self._ahead_at = now
        return self._ahead

    def _leave_alone(self, now: float) -> None:
        for name in [one for one in self.names if self.left_alone.get(one, 0.0) > now]:
            self.names.remove(name)
            self.picker.refused()

    def _end_pass(self, now: float, before: int) -> None:
        """Note whether the queue was empty."""
        self._mtime = None
        counts = self.picker.counts
        if not self._await_writing:
            counts.writing = 0
        if counts.left:
            # What nobody has tried may be no item at all; the next pass tries everything.
            return
        if counts.unfinished:
            self._empty = None
            return
        after = self._directory.status().st_mtime_ns
        if self._empty is None or self._empty[0] != after:
            self._empty = (after, now) if before == after else None


@lru_cache(64)
def _deal(part: int, of: int) -> tuple[int, frozenset[int]]:
    """Deal the remainders of a number out to so many drivers; return it, and those of one."""
    dealt, step = _ONE if of == 1 else _FEW if of < _CROWD else _MANY
    back = pow(step, -1, dealt)
    first, end = (-(-one * dealt // of) for one in (part, part + 1))
    return dealt, frozenset(one * back % dealt for one in range(first, end))


def _split(
    block: Sequence[_Line], dealt: int, mine: Container[int]
) -> tuple[list[str], list[_Line]]:
    """Return the names of a block that never were tried and are in a share; and what is no such
    name at all."""
    # No call of ours for each: with many drivers most are others'. Who is alone has all names,
    # and where all names wait and are ours, nothing is left to look at.
    if dealt == 1:
        waiting = [e.name for e in block if e.name.endswith(".ready")]
    else:
        waiting = [e.name for e in block if e.inode() % dealt in mine and e.name.endswith(".ready")]
    others = [] if len(waiting) == len(block) else [e for e in block if e.name[-6:] != ".ready"]
    return waiting, others


def _numbered(block: Sequence[_Line]) -> Sequence[_Line]:
    """Return a block with the numbers by which its names are divided."""
    sample = block[:_SAMPLE]
    if 2 * len({entry.inode() for entry in sample}) >= len(sample):
        return block
    return [_ByName(entry.name) for entry in block]
