"""JSON that anybody may have written: attempts at a document, its report, the plan of a claim, a
driver's registration, a line of a journal; read and written. Pure, but for `read_record`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from queuedriver.errors import is_trouble
from queuedriver.format.units import format_duration, format_instant, visible

if TYPE_CHECKING:
    from queuedriver.disk.filesystem import Directory

# More than the stacks and stderr of a hundred attempts; a limit all the same, for a file that
# others may have written.
MAX_RECORD = 64 << 20
# Seconds of silence for which a driver of another host is taken for alive: 60 s for the slowest
# attribute cache, and four beats missed.
LEASE = 180.0

# Longer lines are not ours, or no use: skipped when read, shortened when written.
MAX_LINE = 1 << 20
_MAX_MESSAGE = 4096
_MAX_OUTPUTS = 100

# What documents for programs are; raised when a field changes its meaning or goes.
VERSION = 1

_Kind = TypeVar("_Kind")
_decoders: "dict[type[Any], msgspec.json.Decoder[Any]]" = {}


def read_record(
    directory: "Directory", name: str, kind: type[_Kind], limit: int = 16 << 20
) -> _Kind | None:
    """Read a small file of ours; return None when it is not there, or nothing of the kind. What
    speaks of the file system is raised."""
    try:
        return decode(directory.read(name, limit), kind)
    except OSError as error:
        if is_trouble(error):
            raise
        return None
    except msgspec.DecodeError:
        return None


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt did not work: what a discarded document's report says of it."""

    # exception, permanent, exit, signal, timeout, hung, memory, ended, crashed, not-a-file, server,
    # bad-answer, bad-job, bad-request, too-large, output-missing, worker-lost, unknown;
    # rebooted, lost: its host went down, it showed no life; operator: somebody wished it
    cause: str
    message: str
    permanent: bool = False
    traceback: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    stderr_tail: str | None = None
    stacks: str | None = None
    peak_memory: int | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try at a document."""

    docid: str
    token: str
    attempt: int
    driver: str
    host: str
    claimed_at: float
    ended_at: float
    # Whether it was charged. Where the document may not be to blame, the first two are not.
    counted: bool
    failure: Failure


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of the attempts at a document that has not ended, oldest first."""

    docid: str
    attempts: tuple[Attempt, ...] = ()
    # When it was decided to discard the document: then this is its report, and has all that a
    # report has. Seconds since the epoch; 0 while the document is to be tried again.
    discarded_at: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Why a document was discarded."""

    version: int = 1
    docid: str
    queue: str
    discarded_at: float
    driver: str
    host: str
    failure: Failure
    attempts: tuple[Attempt, ...]


class Plan(msgspec.Struct, frozen=True):
    """The outputs of a claim that has not just the usual one: (queue, writing name, final name)."""

    outputs: tuple[tuple[int, str, str], ...]


class Identity(msgspec.Struct, frozen=True):
    """One process of one boot of one host. `ticks` tells it from a later one with its pid."""

    host: str
    machine: str
    boot: str
    namespace: int
    pid: int
    ticks: int


class Counters(msgspec.Struct, frozen=True):
    """A driver's time, in milliseconds, by what it was spent on, and what came of it."""

    work: int = 0
    wait: int = 0
    block: int = 0
    overhead: int = 0
    documents: int = 0
    failed: int = 0
    discarded: int = 0
    lost_races: int = 0


class Registration(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A driver's account of itself."""

    id: str
    salt: str
    past: tuple[str, ...] = ()
    # Those of them that left in order: what they had in hand is given back.
    left: tuple[str, ...] = ()
    identity: Identity
    processor: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    # What it opened them as (`Target.identity`), and those of its earlier lives that were opened as
    # others, by salt.
    output_ids: tuple[str, ...] = ()
    past_output_ids: dict[str, tuple[str, ...]] = {}
    started_at: float
    beat: int = 0
    beat_at: float = 0.0
    lease: float = LEASE
    state: str = "starting"
    why: str = ""
    counters: Counters = Counters()
    # Documents per second over the last minute.
    rate: float = 0.0
    # How many of its documents failed in a row for one cause, and what these have in common.
    streak: int = 0
    streak_of: str = ""
    # Its queue is on a file system that other hosts may use.
    network: bool = False
    # The file that faulthandler writes before it ends a hung driver; see disk/runtime.py.
    dump: str = ""
    # It deals documents to workers elsewhere: that it ends says nothing about any document.
    broker: bool = False
    # How many documents it has processed at once: of one, only the newest claim can have ended it.
    batch: int = 1
    # Why it is to leave, once it knows; and the process whose end ends it, too, if there is one.
    leaving: str = ""
    supervisor: int = 0
    supervisor_ticks: int = 0
    last_word: str = ""
    last_why: str = ""

    def made_for(self, salt: str) -> tuple[str, ...]:
        """Return what the outputs were opened as by the life that has this salt."""
        return self.past_output_ids.get(salt, self.output_ids)


def encode_report(report: Report | Record) -> bytes:
    """Return JSON for people to read."""
    return msgspec.json.format(encode(report), indent=2)


def encode(record: msgspec.Struct) -> bytes:
    """Return JSON in which what it cannot hold is made visible."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(msgspec.to_builtins(record)))


def json_text(document: Mapping[str, object], indent: int | None = 2) -> str:
    """Return a document for programs. ASCII, so every name in it is exact."""
    # Late: what is stored is written by msgspec.
    import json

    return json.dumps({"version": VERSION, **document}, indent=indent, default=msgspec.to_builtins)


def encodable(value: Any) -> Any:
    """Return a value without lone surrogates, which stand for bytes that were no text."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {key: encodable(part) for key, part in value.items()}
        case list() | tuple():
            return [encodable(part) for part in value]
    return value


def decode(data: bytes, kind: type[_Kind]) -> _Kind:
    """Return what the bytes say; raise msgspec.DecodeError when that is nothing of this kind."""
    decoder: msgspec.json.Decoder[_Kind] | None = _decoders.get(kind)
    if decoder is None:
        # To make one takes longer than to use it.
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decode_by(decoder, data)


def decode_by(decoder: "msgspec.json.Decoder[_Kind]", data: bytes) -> _Kind:
    """Decode with a decoder that is kept, where it is done often.

    msgspec has three ways to refuse: an error of its own, and Python's for bytes that are no text
    and for what is nested without end. Whoever reads a file that others may have written means all
    of them.
    """
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None


# Lines of a journal: what happened to a document


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One line: what happened (submitted, published, failed, …) to which document, when."""

    at: float
    event: str
    docid: str = ""
    token: str | None = None
    # What the work took.
    seconds: float | None = None
    # Final names.
    outputs: tuple[str, ...] | None = None
    host: str = ""
    driver: str = ""
    queue: str | None = None
    attempt: int | None = None
    cause: str | None = None
    message: str | None = None
    # The docid under which it goes on, when its own was taken.
    renamed: str | None = None


_encoder = msgspec.json.Encoder()


def encode_lines(events: Sequence[Event]) -> bytes:
    """Return a line for each event, none longer than a reader takes."""
    with suppress(UnicodeEncodeError):
        data = _encoder.encode_lines(events)
        # Where all together are no longer than one may be, none is.
        if len(data) <= MAX_LINE:
            return data
    return b"".join(map(_line, events))


def _line(event: Event) -> bytes:
    line = encode(event)
    if len(line) >= MAX_LINE:
        event = msgspec.structs.replace(
            event,
            message=event.message and event.message[:_MAX_MESSAGE],
            outputs=event.outputs and event.outputs[:_MAX_OUTPUTS],
        )
        line = encode(event)
    return line + b"\n"


def decode_line(line: bytes) -> Event | None:
    """Return the event of a line; None when it is none."""
    if len(line) > MAX_LINE:
        return None
    try:
        return decode(line, Event)
    except msgspec.DecodeError:
        return None


def describe_event(event: Event) -> str:
    """Return one line for a person, in local time; nothing in it can steer a terminal."""
    clock = format_instant(event.at, precise=True)
    parts = [event.event]
    if event.attempt is not None:
        parts.append(f"attempt {event.attempt}")
    if event.seconds is not None:
        parts.append(f"took {format_duration(event.seconds)}")
    if event.outputs:
        parts.append(f"as {' '.join(event.outputs)}")
    if event.renamed:
        parts.append(f"goes on as {event.renamed}")
    by = f"by {event.driver}" if event.driver else ""
    on = f"on {event.host}" if event.host else ""
    words = " ".join(filter(None, (clock, event.docid, ", ".join(parts), by, on)))
    why = ": ".join(filter(None, (event.cause, event.message)))
    return visible(f"{words}: {why}" if why else words)
