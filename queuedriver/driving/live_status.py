"""What a driver does right now, in memory that its watchdog reads: no system call, no file system.

A board is a small file in a local directory that both map. A driver writes it before and after each
document, so that a reader knows since when a document is at hand even while C code holds the
interpreter's lock, and how the driver ended after it was killed. One process writes; a reader that
finds the same twice has not read half of a change.

Instants are of the host's monotonic clock, which all its processes share.
"""

import mmap
import os
import struct
from typing import NamedTuple, Self

from queuedriver.errors import ConfigError

SIZE = 1024
_MAGIC = b"qdboard1"
# Who writes it: pid and the start of that process, as a registration has them; 0 until it does.
_WRITER = struct.Struct("<8sQQ")
# began_at, claimed, docid: all that changes when a document is taken up, in one call.
_BEGAN = struct.Struct("<dQ161p")
_BEGAN_AT = struct.Struct("<d")
# documents, failed, discarded; nanoseconds of work, wait, block, overhead
_COUNTS = struct.Struct("<7Q")
# ready_at, state, why
_STATE = struct.Struct("<d31p255p")
# exit code, last word
_END = struct.Struct("<i31p")
_DUMP = struct.Struct("<64p")
# parent, shared memory, what it was told
_ORDERED = struct.Struct("<QQ65p")
_AT_BEGAN, _AT_COUNTS, _AT_STATE, _AT_END, _AT_DUMP, _AT_ORDERED = 32, 256, 320, 640, 704, 768
_TRIES = 100

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
    # The file of the runtime directory that stacks go to.
    dump: str


class Ordered(NamedTuple):
    """What a watchdog has to know of a driver that an earlier one started."""

    # The process that it does not outlive; 0: it outlives them all.
    parent: int
    # Bytes that it shares with others.
    memory: int
    # Anything that differs for drivers that were told to do different things.
    order: str


class Board:
    """A mapped board. The driver writes, everybody else reads."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._map = mmap.mmap(fd, SIZE)
        self._ready_at = 0.0

    @classmethod
    def create(cls, path: str) -> Self:
        """A blank board under this name; whoever mapped an earlier one keeps that."""
        aside = f"{path}.new"
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Not ftruncate: a write to a hole on a full disk ends a process with SIGBUS.
            os.write(fd, _MAGIC + bytes(SIZE - len(_MAGIC)))
            os.rename(aside, path)
            return cls(path, fd)
        finally:
            os.close(fd)

    @classmethod
    def open(cls, path: str) -> Self:
        """A board that is there. ConfigError for a file that is none."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(fd).st_size != SIZE or os.pread(fd, len(_MAGIC), 0) != _MAGIC:
                raise ConfigError(f"{path} is no board of a driver; delete it")
            return cls(path, fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        self._map.close()

    # Its watchdog's, before there is a driver

    def ordered(self, parent: int, memory: int, order: str) -> None:
        """What another watchdog will want to know, should it find the driver."""
        _ORDERED.pack_into(self._map, _AT_ORDERED, parent, memory, _text(order))

    def read_ordered(self) -> Ordered:
        parent, memory, order = _ORDERED.unpack_from(self._map, _AT_ORDERED)
        return Ordered(parent, memory, order.decode(errors="replace"))

    # The driver's

    def sign(self, pid: int, ticks: int) -> None:
        """From now on this process writes here."""
        _WRITER.pack_into(self._map, 0, _MAGIC, pid, ticks)

    def began(self, docid: str, now: float, claimed: int) -> None:
        """A document, or a batch that starts with it, is taken up."""
        _BEGAN.pack_into(self._map, _AT_BEGAN, now, claimed, os.fsencode(docid))

    def clock(self, now: float) -> None:
        """The time of the document at hand counts from this instant, which may be to come."""
        _BEGAN_AT.pack_into(self._map, _AT_BEGAN, now)

    def ended(self, sums: Sums, failed: int, discarded: int) -> None:
        """It has been dealt with: nothing is at hand. `sums` are those of a `Tally`."""
        work, wait, block, overhead, documents = sums
        _COUNTS.pack_into(
            self._map, _AT_COUNTS, documents, failed, discarded, work, wait, block, overhead
        )
        _BEGAN_AT.pack_into(self._map, _AT_BEGAN, 0.0)

    def show(self, state: str, why: str) -> None:
        """What it does while no document is at hand."""
        _STATE.pack_into(self._map, _AT_STATE, self._ready_at, _text(state), _text(why))

    def ready(self, now: float) -> None:
        """The processor is loaded, and the driver registered."""
        self._ready_at = now
        self.show("ready", "")

    def stacks_go_to(self, name: str) -> None:
        _DUMP.pack_into(self._map, _AT_DUMP, _text(name))

    def left(self, word: str, why: str, exit_code: int) -> None:
        """The last word."""
        self.show("stopped", why)
        _END.pack_into(self._map, _AT_END, exit_code, _text(word))

    # Everybody's

    def read(self) -> Glimpse:
        data = self._copy()
        _, pid, ticks = _WRITER.unpack_from(data)
        began_at, claimed, docid = _BEGAN.unpack_from(data, _AT_BEGAN)
        counts = _COUNTS.unpack_from(data, _AT_COUNTS)
        ready_at, state, why = _STATE.unpack_from(data, _AT_STATE)
        exit_code, word = _END.unpack_from(data, _AT_END)
        (dump,) = _DUMP.unpack_from(data, _AT_DUMP)
        found = (
            pid,
            ticks,
            "busy" if began_at else state.decode(errors="replace") or "starting",
            why.decode(errors="replace"),
            ready_at,
            os.fsdecode(docid) if began_at else "",
            began_at,
            claimed,
            *counts,
            word.decode(errors="replace"),
            exit_code,
            dump.decode(errors="replace"),
        )
        return Glimpse._make(found)

    def _copy(self) -> bytes:
        data = self._map[:]
        for _ in range(_TRIES):
            again = self._map[:]
            if again == data:
                break
            data = again
        return data


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
