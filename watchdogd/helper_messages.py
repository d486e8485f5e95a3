"""What the watchdog and its helper tell each other: one JSON object a line, both ways. Pure.

    watchdog → helper    first a Brief, then Errands
    helper → watchdog    Messages; an empty one: that it lives

Either side leaves out what it has nothing to say about, and ignores what it does not know.
"""

from typing import Literal, TypeVar

import msgspec

from queuedriver.claims.counts import Counts
from queuedriver.format.records import decode
from watchdogd.pipeline.model import Pipeline


class QueueSeen(Counts, kw_only=True, omit_defaults=True):
    """One queue at the last look: how many items are in each state, and its control files."""

    done: bool = False
    paused: bool = False
    quit: bool = False
    # Why its stage has stopped itself; empty while it has not.
    tripped: str = ""
    # Seen twice without any item, and unchanged between; says nothing of `done`.
    drained: bool = False
    # Closed, and with items though it had been drained: somebody copied them in.
    late: bool = False


class Request(msgspec.Struct, frozen=True):
    """A file that asks for something once. `target`: a stage or a driver's short name, or empty."""

    kind: Literal["restart", "reload"]
    target: str
    serial: str


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """The control files in `.watchdogd/`, as far as they are meant for this host."""

    paused: bool = False
    quit: Literal["", "drain", "now"] = ""
    # By which that very QUIT is known again: its inode, and when it was written, in nanoseconds.
    quit_mark: tuple[int, int] = (0, 0)
    # Drivers that a stage is to have; None: as the pipeline file says.
    scale: dict[str, int | None] = {}
    # Each until it expires. Whoever serves them remembers which it has served: whole, for two may
    # have one serial.
    requests: tuple[Request, ...] = ()
    # What could not be understood, in words for people.
    notes: tuple[str, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and processor time of a driver with all that it has started."""

    # Of what it has started; its own its watchdog sees by itself. In bytes.
    memory: int = 0
    # Processor time of all together since they began, in seconds.
    cpu: float = 0.0


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One look at the queues; amid trouble it may have seen a part of them."""

    queues: dict[str, QueueSeen] = {}
    # None where they could not be read.
    controls: Controls | None = None
    # What the file system said; empty while all is well.
    trouble: str = ""
    # Of the drivers' processes, measured now and then.
    usage: dict[int, Usage] = {}


class Recovered(msgspec.Struct, frozen=True):
    """Leftovers of a queue that were recovered where there was no driver to do it."""

    queue: str
    # Claims that were finished or taken back.
    claims: int
    # The documents that were discarded by it.
    discarded: tuple[str, ...] = ()
    # Attempts that were charged: for which cause, and whether the document was discarded.
    failed: tuple[tuple[str, bool], ...] = ()


class Read(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pipeline as its file has it now, with what people should know of it on this host, or why
    it cannot be taken."""

    # As in the errand that asked for it.
    number: int = 0
    pipeline: Pipeline | None = None
    notes: tuple[str, ...] = ()
    error: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From the helper: any one of these, or none."""

    look: Look | None = None
    recovered: Recovered | None = None
    read: Read | None = None
    # Something odd that is nobody's fault, in words for people.
    note: str = ""
    # All that came before the farewell has been done, and seen.
    farewell: bool = False


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """To the helper, first: where to look, for whom."""

    pipeline: Pipeline
    host: str
    # The watchdog's own directory on this host: never below the root.
    local: str
    # Drivers that a stage has on this host, whatever the file says.
    drivers: dict[str, int] = {}
    # Queues that have been made or found: of these, what is missing may be a file system that went
    # away, and is not made again.
    made: tuple[str, ...] = ()
    # The watchdog's pid, without which the helper is not to live; 0: it need not care.
    parent: int = 0


class Errands(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To the helper: what else to do, all of it once."""

    # Queues that have claims, and no driver that would recover what dead ones left.
    recover: tuple[str, ...] = ()
    # The mark of a QUIT that is from before the watchdog: remove it once nobody has to read it.
    outdated_quit: tuple[int, int] | None = None
    # Copy this host's report now, rather than with the next look.
    report: bool = False
    # The processes of the drivers that there are now; None: those that there were.
    drivers: tuple[int, ...] | None = None
    # Read the pipeline's file again; answered with this number.
    read: int = 0
    # After a reload.
    pipeline: Pipeline | None = None
    # Look now, rather than at the next regular moment.
    look: bool = False
    # The last that is asked: to be answered with a farewell, after whatever is still on its way.
    farewell: bool = False


_Kind = TypeVar("_Kind")


def to_line(said: Message | Errands | Brief) -> bytes:
    """Encode what is said as one line."""
    return msgspec.json.encode(said) + b"\n"


def understood(line: bytes, kind: type[_Kind]) -> _Kind | None:
    """Decode what the other side says; return None when that is nothing of this kind."""
    try:
        return decode(line, kind)
    except msgspec.DecodeError:
        return None
