"""What a driver does right now, counted; and shown in memory that its watchdog reads, without a
system call or a file system.

A board is a small file in a local directory that both map. A driver writes it before and after each
document, so that a reader knows since when a document is at hand even while C code holds the
interpreter's lock, and how the driver ended after it was killed. One process writes; a reader that
finds the same twice has not read half of a change.

Instants are of the host's monotonic clock, which all its processes share.
"""

import mmap
import os
import struct
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import msgspec

from queuedriver.errors import ConfigError
from queuedriver.format.records import Counters

SIZE = 1024
_MAGIC = b"qdboard3"
# What the driver shows, in the order of Glimpse.
_SHOWN = struct.Struct("<8sQQ31p255pd161pdQ7Q31pi240pQ")
_BLANK = _MAGIC + bytes(SIZE - len(_MAGIC))
_TRIES = 100
# How claims end whose documents are done.
_DONE = ("published", "finished", "stuck")

Sums = tuple[int, int, int, int, int]


class Glimpse(NamedTuple):
    """A board at one moment."""

    pid: int
    ticks: int
    # One word, and what there is to say besides.
    state: str
    why: str
    ready_at: float
    # The document at hand, since when, and how many have been claimed so far.
    docid: str
    began_at: float
    claimed: int
    documents: int
    failed: int
    discarded: int
    work: int
    wait: int
    block: int
    overhead: int
    # How it left: empty while it lives, and for ever when it was killed.
    word: str
    exit_code: int
    # The file that stacks go to.
    dump: str
    # Bytes of memory that it shares with the process it was forked from.
    shared: int


# The same as it is written, its text in bytes: the driver changes some of it at a time.
_Shown: Any = msgspec.defstruct("_Shown", Glimpse._fields, gc=False)


class Board:
    """A mapped board. The driver writes, everybody else reads."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._map = mmap.mmap(fd, SIZE)
        self._shown = _Shown(*_SHOWN.unpack_from(self._map)[1:])
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
        board._shown = _Shown(*_SHOWN.unpack_from(_BLANK)[1:])
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
        self._shown.pid, self._shown.ticks, self._shown.shared = pid, ticks, shared
        self._write()

    def began(self, docid: str, now: float, claimed: int) -> None:
        """Show a document, or a batch that starts with it, as taken up."""
        shown = self._shown
        shown.docid, shown.began_at, shown.claimed = os.fsencode(docid), now, claimed
        self._write()

    def clock(self, now: float) -> None:
        """Count the time of the document at hand from this instant, which may be to come."""
        self._shown.began_at = now
        self._write()

    def ended(self, sums: Sums, failed: int, discarded: int) -> None:
        """Show that nothing is at hand. `sums` are those of a `Tally`."""
        shown = self._shown
        shown.work, shown.wait, shown.block, shown.overhead, shown.documents = sums
        shown.failed, shown.discarded, shown.began_at = failed, discarded, 0.0
        self._write()

    def show(self, state: str, why: str) -> None:
        """Show what it does while no document is at hand."""
        self._shown.state, self._shown.why = _text(state), _text(why)
        self._write()

    def ready(self, now: float) -> None:
        """Show that the processor is loaded, and the driver registered."""
        self._shown.ready_at = now
        self.show("ready", "")

    def stacks_go_to(self, name: str) -> None:
        self._shown.dump = _text(name)
        self._write()

    def left(self, word: str, why: str, exit_code: int) -> None:
        """Show the last word."""
        self._shown.word, self._shown.exit_code = _text(word), exit_code
        self.show("stopped", why)

    def _write(self) -> None:
        _SHOWN.pack_into(self._map, 0, _MAGIC, *msgspec.structs.astuple(self._shown))

    # Everybody's

    def read(self) -> Glimpse:
        """Return what it shows; the same object while that is the same."""
        if self._map[:] != self._data:
            self._data = self._copy()
            self._glimpse = _glimpse_of(_Shown(*_SHOWN.unpack_from(self._data)[1:]))
        return self._glimpse

    def _copy(self) -> bytes:
        data = self._map[:]
        for _ in range(_TRIES):
            again = self._map[:]
            if again == data:
                break
            data = again
        return data


def _glimpse_of(shown: Any) -> Glimpse:
    glimpse = Glimpse._make(
        one.decode(errors="replace") if isinstance(one, bytes) else one
        for one in msgspec.structs.astuple(shown)
    )
    if shown.began_at:
        return glimpse._replace(state="busy", docid=os.fsdecode(shown.docid))
    return glimpse._replace(state=glimpse.state or "starting", docid="")


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


class Tally:
    """Counters of a driver: what it spent its time on, in seconds, and what came of it."""

    def __init__(self, board: Board | None = None) -> None:
        # Where whoever supervises this driver reads along.
        self.board = board
        self._claimed = 0
        self._wait = self._block = 0.0
        self.failed = 0
        self.discarded = 0
        self.lost_races = 0
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

    def began(self, docid: str, documents: int) -> None:
        """Show that so many documents are taken up, this one first."""
        if self.board is not None:
            self._claimed += documents
            self.board.began(docid, time.monotonic(), self._claimed)

    def ended(self) -> None:
        """Show that nothing is at hand."""
        if self.board is not None:
            self.board.ended(self.sums(), self.failed, self.discarded)

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

    def sums(self) -> Sums:
        """Return nanoseconds of work, wait, block and overhead, and the documents done."""
        work, documents, at = self.done
        wait, block = self._wait, self._block
        overhead = max(0.0, at - self._began_at - work - wait - block)
        return int(work * 1e9), int(wait * 1e9), int(block * 1e9), int(overhead * 1e9), documents

    def counters(self, seconds: float = 0.0, more: int = 0) -> Counters:
        """Return them as a registration has them, in milliseconds; with so many more documents, and
        seconds of work on them, that are not booked yet."""
        *spent, documents = self.sums()
        work, wait, block, overhead = (nanoseconds // 1_000_000 for nanoseconds in spent)
        return Counters(
            work=work + int(seconds * 1e3),
            wait=wait,
            block=block,
            overhead=overhead,
            documents=documents + more,
            failed=self.failed,
            discarded=self.discarded,
            lost_races=self.lost_races,
        )
