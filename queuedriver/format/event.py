"""One line of a journal: what happened to a document; as bytes, and as a person reads it. Pure."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from queuedriver.format.records import decode_by
from queuedriver.format.records import encode as encode_record
from queuedriver.format.units import format_duration, format_instant, visible

# Longer lines are not ours, or no use: skipped when read, shortened when written.
MAX_LINE = 1 << 20
_MAX_MESSAGE = 4096
_MAX_OUTPUTS = 100


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
    with suppress(UnicodeEncodeError):
        data = _encoder.encode_lines(events)
        # Where all together are no longer than one may be, none is.
        if len(data) <= MAX_LINE:
            return data
    return b"".join(map(_line, events))


def _line(event: Event) -> bytes:
    line = encode_record(event)
    if len(line) >= MAX_LINE:
        event = msgspec.structs.replace(
            event,
            message=event.message and event.message[:_MAX_MESSAGE],
            outputs=event.outputs and event.outputs[:_MAX_OUTPUTS],
        )
        line = encode_record(event)
    return line + b"\n"


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
