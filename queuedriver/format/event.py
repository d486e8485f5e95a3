"""One line of a journal: what happened to a document; as bytes, and as a person reads it. Pure."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from queuedriver.format.decoding import decode_by
from queuedriver.format.units import format_duration, visible

# Longer lines are not ours, or no use: skipped when read, shortened when written.
MAX_LINE = 1 << 20
_MAX_MESSAGE = 4096
_MAX_OUTPUTS = 100
_TOGETHER = 1_000


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
_decoder = msgspec.json.Decoder(Event)


def encode(events: Sequence[Event]) -> bytes:
    """Return a line for each event, none longer than a reader takes."""
    slices = (events[at : at + _TOGETHER] for at in range(0, len(events), _TOGETHER))
    return b"".join(map(_encode_some, slices))


def _encode_some(events: Sequence[Event]) -> bytes:
    with suppress(UnicodeEncodeError):
        data = _encoder.encode_lines(events)
        # Where all together are no longer than one may be, none is; usual events are far from it.
        if len(data) <= MAX_LINE:
            return data
    return b"".join(_line(event) for event in events)


def _line(event: Event) -> bytes:
    try:
        line = _encoder.encode(event)
    except UnicodeEncodeError:
        event = msgspec.convert(encodable(msgspec.to_builtins(event)), Event)
        line = _encoder.encode(event)
    if len(line) >= MAX_LINE:
        event = msgspec.structs.replace(
            event,
            message=event.message and event.message[:_MAX_MESSAGE],
            outputs=event.outputs and event.outputs[:_MAX_OUTPUTS],
        )
        line = _encoder.encode(event)
    return line + b"\n"


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


def decode(line: bytes) -> Event | None:
    """Return the event of a line; None when it is none."""
    if len(line) > MAX_LINE:
        return None
    try:
        return decode_by(_decoder, line)
    except msgspec.DecodeError:
        return None


def describe(event: Event) -> str:
    """Return one line for a person, in local time; nothing in it can steer a terminal."""
    try:
        seconds, millis = divmod(int(event.at * 1000), 1000)
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) + f".{millis:03d}"
    except (OverflowError, ValueError, OSError):
        clock = f"at {event.at}"
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
