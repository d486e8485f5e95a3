"""What the watchdog and its eyes tell each other: one JSON object a line, both ways. Pure.

    watchdog → eyes    first a Brief, then Errands
    eyes → watchdog    Message: a snapshot, or only that it is alive

Either side leaves out what it has nothing to say about, and ignores what it does not know.
"""

from typing import Literal

import msgspec

from queuedriver.format.records import decode_by
from watchdogd.pipeline.model import Pipeline

# A line may be as long as a host's whole status document; more than this is not ours.
MAX_LINE = 4 << 20


class QueueSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One queue at the last look: how many items are in each state, and its control files."""

    ready: int = 0
    failed: int = 0
    later: int = 0
    # Those of `later` whose time has come.
    due: int = 0
    working: int = 0
    written: int = 0
    writing: int = 0
    discarded: int = 0
    # Files that are no items; in a plain directory of results, the results.
    foreign: int = 0
    done: bool = False
    paused: bool = False
    quit: bool = False
    # Why its stage has stopped itself; empty while it has not.
    tripped: str = ""
    # Seen twice without any item, and unchanged between; says nothing of `done`.
    drained: bool = False
    # Closed, and with items though it had been drained: somebody copied them in.
    late: bool = False

    @property
    def waiting(self) -> int:
        """What a driver could claim now."""
        return self.ready + self.failed + self.due

    @property
    def unfinished(self) -> int:
        """Everything that may still become work here."""
        return self.ready + self.failed + self.later + self.working + self.written + self.writing


class Request(msgspec.Struct, frozen=True):
    """A file that asks for something once. `target`: a stage or a driver's short name, or empty."""

    kind: Literal["restart", "reload"]
    target: str
    serial: str


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """What is in `.watchdogd/`, as far as it is meant for this host."""

    paused: bool = False
    quit: Literal["", "drain", "now"] = ""
    # Drivers that a stage is to have; None: as the pipeline file says.
    scale: dict[str, int | None] = {}
    # Each until it expires. Whoever serves them remembers which it has served: whole, for two may
    # have one serial.
    requests: tuple[Request, ...] = ()
    # What could not be understood, in words for people.
    notes: tuple[str, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The queues at one moment, all that the watchdog knows of them."""

    queues: dict[str, QueueSeen] = {}
    controls: Controls = Controls()
    # What the file system said; empty while all is well. Queues that could not be seen are then
    # as they were, or missing when they never were seen.
    trouble: str = ""
    # The learned hard limit of one document, in seconds, of stages with timeout = "auto".
    timeouts: dict[str, float | None] = {}
    # Seconds that this look took.
    took: float = 0.0


class Recovered(msgspec.Struct, frozen=True):
    """What came of a queue's leftovers when there was no driver to deal with them."""

    queue: str
    # Claims that were finished or taken back.
    claims: int
    # The documents that were discarded by it.
    discarded: tuple[str, ...] = ()


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From the eyes: any one of these."""

    snapshot: Snapshot | None = None
    alive: bool = False
    recovered: tuple[Recovered, ...] = ()
    # Something odd that is nobody's fault, in words for people.
    note: str = ""
    # All that came before the farewell has been done, and seen.
    farewell: bool = False


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """To the eyes, first: where to look, for whom."""

    pipeline: Pipeline
    host: str
    # The watchdog's own directory on this host: never below the root.
    local: str
    # Queues that have been made or found: of these, what is missing may be a file system that went
    # away, and is not made again.
    made: tuple[str, ...] = ()
    # The watchdog's pid, without which the eyes are not to live; 0: they need not care.
    parent: int = 0


class Errands(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To the eyes: what else to do, all of it once."""

    # Queues that have claims, and no driver that would recover what dead ones left.
    recover: tuple[str, ...] = ()
    # Files of `.watchdogd/` that have been obeyed: remove them.
    forget_controls: tuple[str, ...] = ()
    # This host's status document, published as it is; empty: none.
    publish: msgspec.Raw = msgspec.Raw()
    # After a reload.
    pipeline: Pipeline | None = None
    # Look now, rather than at the next regular moment.
    look: bool = False
    # The last that is asked: to be answered with a farewell, after whatever is still on its way.
    farewell: bool = False


_message = msgspec.json.Decoder(Message)
_errands = msgspec.json.Decoder(Errands)
_brief = msgspec.json.Decoder(Brief)
_encoder = msgspec.json.Encoder()


def to_line(said: Message | Errands | Brief) -> bytes:
    return _encoder.encode(said) + b"\n"


def message_of(line: bytes) -> Message | None:
    """None when it is not understood."""
    try:
        return decode_by(_message, line)
    except msgspec.DecodeError:
        return None


def errands_of(line: bytes) -> Errands | None:
    """None when they are not understood."""
    try:
        return decode_by(_errands, line)
    except msgspec.DecodeError:
        return None


def brief_of(line: bytes) -> Brief:
    """The first line; raises msgspec.DecodeError when it is not one."""
    return decode_by(_brief, line)
