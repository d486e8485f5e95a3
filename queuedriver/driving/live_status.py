"""What a driver does right now, counted; and shown in memory that its watchdog reads, without a
system call or a file system.

A board is a small file in a local directory that both map. A driver writes it before and after each
document, so that a reader knows since when a document is at hand even while C code holds the
interpreter's lock, and how the driver ended after it was killed. Each part is written by itself:
what goes with each document is its docid, an instant and two numbers; how long documents waited and
took, and why they failed, is written turn by turn. One process writes; a reader that finds the same
twice has not read half of a change.

Instants are of the host's monotonic clock, which all its processes share.
"""

import itertools
import mmap
import operator
import os
import struct
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Self

from queuedriver.driving.measurements import BOUNDS, BUCKETS, CAUSES, FILES, NUMBERS, OTHER, Counted
from queuedriver.errors import ConfigError
from queuedriver.format.records import Counters

SIZE = 1536
_MAGIC = b"qdboard6"
_BLANK = _MAGIC + bytes(SIZE - len(_MAGIC))
# The parts, one behind the other, each in the order of Glimpse.
_SIGNED = struct.Struct("<QQQ")
_SAID = struct.Struct("<31p255p")
_READY = struct.Struct("<d")
_LEFT = struct.Struct("<31pi")
_DUMP = struct.Struct("<240p")
_BEGAN = struct.Struct("<161pd")
_COUNTED = struct.Struct("<QQQQQQQ")
# How long documents waited and took, and why they failed.
_MEASURED = struct.Struct(f"<{NUMBERS}Q")
# What becomes of the files that an intake sees.
_FILES = struct.Struct(f"<{len(FILES)}Q")
_PARTS = (_SIGNED, _SAID, _READY, _LEFT, _DUMP, _BEGAN, _COUNTED, _MEASURED, _FILES)
_WHOLE = struct.Struct("<" + "".join(one.format[1:] for one in _PARTS))
_offsets = itertools.accumulate((one.size for one in _PARTS[:-1]), initial=len(_MAGIC))
_SIGNED_AT, _SAID_AT, _READY_AT, _LEFT_AT, _DUMP_AT, _BEGAN_AT, *_rest = _offsets
_COUNTED_AT, _MEASURED_AT, _FILES_AT = _rest
_REST = slice(_MEASURED_AT, None)
# Since when a document is at hand, by itself and with the numbers that follow: those which change
# with each document, and all.
_CLOCK = struct.Struct("<d")
_ENDED = struct.Struct("<dQQ")
_ALL_ENDED = struct.Struct("<dQQQQQQQ")
_CLOCK_AT = _COUNTED_AT - _CLOCK.size
_TRIES = 100
_bucket_of = partial(bisect_left, BOUNDS)
# How claims end whose documents are done.
_DONE = ("published", "finished", "stuck")


class Totals(NamedTuple):
    """What a driver has spent its time on, in nanoseconds, and what came of its documents."""

    work: int = 0
    documents: int = 0
    wait: int = 0
    block: int = 0
    overhead: int = 0
    failed: int = 0
    discarded: int = 0

    def plus(self, other: "Totals") -> "Totals":
        return Totals(*map(operator.add, self, other))

    def minus(self, other: "Totals") -> "Totals":
        return Totals(*map(operator.sub, self, other))


class Glimpse(NamedTuple):
    """A board at one moment."""

    pid: int = 0
    ticks: int = 0
    # Bytes of memory that it shares with the process it was forked from.
    shared: int = 0
    # One word, and what there is to say besides.
    state: str = "starting"
    why: str = ""
    ready_at: float = 0.0
    # How it left: empty while it lives, and for ever when it was killed.
    word: str = ""
    exit_code: int = 0
    # The file that stacks go to.
    dump: str = ""
    # The document at hand, and since when.
    docid: str = ""
    began_at: float = 0.0
    # Whether there ever was one.
    claimed: bool = False
    totals: Totals = Totals()
    counted: Counted = Counted()
    # By FILES.
    files: tuple[int, ...] = (0,) * len(FILES)


class Board:
    """A mapped board. The driver writes, everybody else reads."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._map = mmap.mmap(fd, SIZE)
        # What was read last, and what that says: most boards are as they were at the last look.
        self._data = b""
        self._glimpse: Glimpse

    @classmethod
    def create(cls, path: str) -> Self:
        """Make a blank board under this name; whoever mapped an earlier one keeps that. A full disk
        has room for what is there: then the earlier one is blanked, which nobody uses any more."""
        aside = f"{path}.new"
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Not ftruncate: a write to a hole on a full disk ends a process with SIGBUS.
            if os.write(fd, _BLANK) == SIZE:
                os.rename(aside, path)
                return cls(path, fd)
        except OSError:
            if not os.path.exists(path):
                raise
        finally:
            os.close(fd)
        board = cls.open(path)
        board._map[:] = _BLANK
        return board

    @classmethod
    def open(cls, path: str) -> Self:
        """Map a board that is there; raise ConfigError for a file that is none."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(fd).st_size != SIZE or os.pread(fd, len(_MAGIC), 0) != _MAGIC:
                raise ConfigError(f"{path} is no board of a driver; delete it")
            return cls(path, fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        self._map.close()

    # The driver's

    def sign(self, pid: int, ticks: int, shared: int = 0) -> None:
        """Note that from now on this process writes here, and how much memory is not its own."""
        _SIGNED.pack_into(self._map, _SIGNED_AT, pid, ticks, shared)

    def began(self, docid: str, now: float) -> None:
        """Show a document, or a batch that starts with it, as taken up."""
        _BEGAN.pack_into(self._map, _BEGAN_AT, docid.encode("utf-8", "surrogateescape"), now)

    def clock(self, now: float) -> None:
        """Count the time of the document at hand from this instant, which may be to come."""
        _CLOCK.pack_into(self._map, _CLOCK_AT, now)

    def ended(self, work: float, documents: int) -> None:
        """Show that nothing is at hand, and the seconds of work on so many documents so far."""
        _ENDED.pack_into(self._map, _CLOCK_AT, 0.0, int(work * 1e9), documents)

    def count(self, totals: Totals) -> None:
        """Show that nothing is at hand, and all that is counted."""
        _ALL_ENDED.pack_into(self._map, _CLOCK_AT, 0.0, *totals)

    def measured(self, numbers: Sequence[int]) -> None:
        """Show how long documents have waited and taken, and why they failed."""
        _MEASURED.pack_into(self._map, _MEASURED_AT, *numbers)

    def files(self, numbers: Sequence[int]) -> None:
        """Show what becomes of files that are not taken."""
        _FILES.pack_into(self._map, _FILES_AT, *numbers)

    def show(self, state: str, why: str) -> None:
        """Show what it does while no document is at hand."""
        _SAID.pack_into(self._map, _SAID_AT, _text(state), _text(why))

    def ready(self, now: float) -> None:
        """Show that the processor is loaded, and the driver registered."""
        self.show("ready", "")
        _READY.pack_into(self._map, _READY_AT, now)

    def stacks_go_to(self, name: str) -> None:
        _DUMP.pack_into(self._map, _DUMP_AT, _text(name))

    def left(self, word: str, why: str, exit_code: int) -> None:
        """Show the last word."""
        self.show("stopped", why)
        _LEFT.pack_into(self._map, _LEFT_AT, _text(word), exit_code)

    # Everybody's

    def read(self) -> Glimpse:
        """Return what it shows; the same object while that is the same."""
        data, before = self._map[:], self._data
        if data == before:
            return self._glimpse
        for _ in range(_TRIES):
            again = self._map[:]
            if again == data:
                break
            data = again
        self._data = data
        if data[:_COUNTED_AT] == before[:_COUNTED_AT] and data[_REST] == before[_REST]:
            # One that looks for documents and finds none counts the time, and nothing else.
            totals = Totals(*_COUNTED.unpack_from(data, _COUNTED_AT))
            self._glimpse = self._glimpse._replace(totals=totals)
        else:
            self._glimpse = _glimpse_of(data)
        return self._glimpse


def _glimpse_of(data: bytes) -> Glimpse:
    pid, ticks, shared, state, why, ready_at, word, exit_code, dump, docid, began_at, *counted = (
        _WHOLE.unpack_from(data, len(_MAGIC))
    )
    return Glimpse(
        pid,
        ticks,
        shared,
        "busy" if began_at else _read(state) or "starting",
        _read(why),
        ready_at,
        _read(word),
        exit_code,
        _read(dump),
        docid.decode("utf-8", "surrogateescape") if began_at else "",
        began_at,
        bool(docid),
        Totals(*counted[: len(Totals._fields)]),
        Counted.of(counted[len(Totals._fields) : -len(FILES)]),
        tuple(counted[-len(FILES) :]),
    )


def _read(text: bytes) -> str:
    # It may have been cut within a character.
    return text.decode(errors="replace")


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


class Counting:
    """Counts what a driver does, in the row of numbers that a `Counted` has."""

    def __init__(self) -> None:
        self.numbers = [0] * NUMBERS

    @property
    def counted(self) -> Counted:
        """Return what is counted."""
        return Counted.of(self.numbers)

    def waited(self, seconds: float, documents: int) -> None:
        """Count so many documents that waited for so long."""
        self._add((seconds,), 0, documents)

    def took(self, seconds: Sequence[float]) -> None:
        """Count documents that were done. For a thousand of them this is a handful of calls."""
        self._add(seconds, BUCKETS + 1)

    def _add(self, seconds: Sequence[float], first: int, weight: int = 1) -> None:
        for bucket, count in Counter(map(_bucket_of, seconds)).items():
            self.numbers[first + bucket] += count * weight
        self.numbers[first + BUCKETS] += int(sum(seconds) * 1e9) * weight

    def failed(self, cause: str, *, discarded: bool) -> None:
        """Count an attempt that failed, and the document that was discarded by it."""
        place = CAUSES.index(cause if cause in CAUSES else OTHER) - len(CAUSES)
        self.numbers[place - len(CAUSES)] += 1
        self.numbers[place] += discarded


class Tally:
    """Counters of a driver: what it spent its time on, in seconds, and what came of it."""

    def __init__(self, board: Board | None = None) -> None:
        # Where whoever supervises this driver reads along.
        self.board = board
        self._wait = self._block = 0.0
        self.failed = 0
        self.discarded = 0
        self.lost_races = 0
        # How long documents waited and took, and why they failed; as far as anybody reads along.
        self.measured = Counting()
        # For how long one had waited that was to be claimed next; and how many attempts had ended
        # when that was counted for those that did. Seconds; None: nobody knows.
        self._waited: float | None = None
        self._ended = 0
        self.start()

    def start(self) -> None:
        """Begin the first turn: what came before was loading."""
        self._began_at = time.monotonic()
        # Seconds of work, documents, and when that was booked: replaced as a whole, so that another
        # thread never reads half a turn.
        self.done = (0.0, 0, self._began_at)

    @property
    def documents(self) -> int:
        return self.done[1]

    # Show

    def began(self, docid: str) -> None:
        """Show that documents are taken up, this one first."""
        if self.board is not None:
            self.board.began(docid, time.monotonic())

    def ended(self) -> None:
        """Show that nothing is at hand, and what is booked."""
        if self.board is not None:
            self._count_waits()
            self.board.measured(self.measured.numbers)
            self.board.count(self.totals)

    def show(self, state: str, why: str) -> None:
        """Show what the driver does while it has no document at hand."""
        if self.board is not None:
            self.ended()
            self.board.show(state, why)

    # Book

    def worked(self, work: float, documents: int) -> None:
        """Book so many seconds of work on so many documents, the rest of the time overhead."""
        seconds, done, _ = self.done
        # Not shown here: another document may be at hand, and a watchdog is to see since when.
        self.done = (seconds + work, done + documents, time.monotonic())

    def book(self, fates: Sequence[str], work: float) -> None:
        """Book a turn by what became of its claims."""
        self.discarded += fates.count("discarded")
        self.failed += fates.count("failed") + fates.count("discarded")
        self.worked(work, sum(fate in _DONE for fate in fates))

    def waited(self, seconds: float | None) -> None:
        """Take note of how long the next document has waited: those that are claimed with it, in a
        tenth of a second, count the same, so that none of them needs a look of its own."""
        self._waited = seconds

    def _count_waits(self) -> None:
        ended = self.documents + self.failed
        if self._waited is not None and ended > self._ended:
            self.measured.waited(self._waited, ended - self._ended)
        self._ended = ended

    def paused(self, blocked: bool) -> None:
        """Book a turn that had nothing to do, or no room for what would come of it."""
        seconds, done, since = self.done
        now = time.monotonic()
        if blocked:
            self._block += now - since
        else:
            self._wait += now - since
        self.done = (seconds, done, now)

    # Read

    @property
    def totals(self) -> Totals:
        """Return all that is booked."""
        work, documents, at = self.done
        wait, block = self._wait, self._block
        overhead = max(0.0, at - self._began_at - work - wait - block)
        return Totals(
            work=int(work * 1e9),
            documents=documents,
            wait=int(wait * 1e9),
            block=int(block * 1e9),
            overhead=int(overhead * 1e9),
            failed=self.failed,
            discarded=self.discarded,
        )

    def counters(self, seconds: float = 0.0, more: int = 0) -> Counters:
        """Return them as a registration has them, in milliseconds; with so many more documents, and
        seconds of work on them, that are not booked yet."""
        work, documents, *spent, failed, discarded = self.totals
        spent = [nanoseconds // 1_000_000 for nanoseconds in (work + int(seconds * 1e9), *spent)]
        work, wait, block, overhead = spent
        counts = documents + more, failed, discarded, self.lost_races
        return Counters(work, wait, block, overhead, *counts)
