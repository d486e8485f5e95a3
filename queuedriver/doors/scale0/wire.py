"""Scale0's frames: a command, its options as one JSON object, and a body where there is one. Pure.

    ['']? COMMAND options [body]

The empty frame in front is a REQ socket's; who sends it gets it back. Options have the names of the
protocol's own description; what is not known is skipped. WORKREQUEST and WORKREPLY have a body.

A reply for a document may carry several outputs: then the option `outputs` lists name and size of
each, and the body is their bytes one after another. Without it the body is one output.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from queuedriver.claims.outcomes import Setback
from queuedriver.doors.words import DONE, Result, status
from queuedriver.errors import RemoteProtocolError

# What DISCONNECTERROR says.
REDIRECT = 301
MALFORMED = 400
CLOCK = 409
VERSION = 426
NO_RESPONSE = 444
UNKNOWN = 501
NOT_ACCEPTING = 503

# Bytes of options: names and sizes of ten thousand outputs fit.
MAX_OPTIONS = 1 << 20
# Characters of a message id.
MAX_NAME = 256

# Numbers that a peer may send: a larger one is a slip, or an attack on whoever prints it.
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_Code = Annotated[int, msgspec.Meta(ge=-999, le=999)]
Version = str | Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Brokers that deal from the same queues."""

    brokers: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where in a body one output is."""

    size: _Count
    name: str | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is said with a command: each has some of these, and the others are not there."""

    # Of a worker, or told to it: its configuration. CHECKCONFIG may ask for another type than JSON.
    identity: str = ""
    services: tuple[str, ...] = ()
    config_type: str = ""
    config_version: Version | None = None
    group_config: Group = Group()
    preferred_broker: str = ""
    unchanged: bool = False
    # Ours: the identifiers of what it is still at work on; whatever else it had is lost.
    work_in_hand: tuple[str, ...] | None = None
    # The sender's time of day; in PONG the worker's own, and the broker's.
    time: float | None = None
    broker_time: float | None = None
    heartbeat_interval: float | None = None
    # A frontend's request has service and message id; a broker's, and the reply, the identifier by
    # which the reply is known, which the protocol's own description spells otherwise.
    service: str = ""
    message_id: str = ""
    work_request_identifier: str = ""
    work_request_indentifier: str = ""
    # Ours, for documents; and what became of one.
    docid: str = ""
    attempt: _Count = 0
    status: _Code = DONE
    outputs: tuple[Part, ...] | None = None
    # Why a peer is disconnected, or a request is not done; with 301, who to go to.
    error_code: _Code = 0
    error_message: str = ""
    broker: str = ""

    @property
    def identifier(self) -> str:
        """Return by which name a reply is known."""
        return self.work_request_identifier or self.work_request_indentifier


class Message(msgspec.Struct, frozen=True):
    """One message."""

    command: str
    options: Options
    body: bytes = b""
    # Whether an empty frame stands in front.
    envelope: bool = False
    # The options as they came.
    as_sent: bytes = b"{}"


_COMMANDS = {
    name.encode(): name
    for name in (
        *("CHECKCONFIG", "CONFIG", "NEEDBROKER", "READY", "READYOK", "PING", "PONG"),
        *("WORKREQUEST", "WORKREPLY", "DISCONNECTERROR", "FORCENEGOTIATE"),
    )
}
_WITH_BODY = ("WORKREQUEST", "WORKREPLY")
_decode = msgspec.json.Decoder(Options).decode
_json = msgspec.json.Encoder().encode


def decode(frames: Sequence[bytes]) -> Message:
    """Return what a message means; RemoteProtocolError with the code that its sender is told."""
    envelope = not frames[0] if frames else False
    at = 1 if envelope else 0
    said = frames[at] if len(frames) > at else b""
    command = _COMMANDS.get(said)
    if command is None:
        raise RemoteProtocolError(f"{said[:40]!r} is no command of scale0", UNKNOWN)
    behind = len(frames) - at - 1
    if behind > (2 if command in _WITH_BODY else 1):
        raise RemoteProtocolError(f"{command} has {behind} frames after it", MALFORMED)
    options = (frames[at + 1] if behind else b"") or b"{}"
    if len(options) > MAX_OPTIONS:
        words = f"{command} has {len(options)} bytes of options"
        raise RemoteProtocolError(words, MALFORMED)
    try:
        found = _decode(options)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the options of {command}: {error}", MALFORMED) from None
    return Message(command, found, frames[at + 2] if behind > 1 else b"", envelope, options)


def encode(
    command: str, options: Options, body: bytes | None = None, envelope: bool = False
) -> tuple[bytes, ...]:
    """Return the frames of a message."""
    head = (command.encode(), _json(options))
    frames = head if body is None else (*head, body)
    return (b"", *frames) if envelope else frames


# Identifiers

_PLAIN = re.compile(rb"[A-Za-z0-9._-]{1,128}")


def frontend_name(identity: bytes) -> str:
    """Return how a frontend is called in an identifier: by its identity, or by its hex digits."""
    if _PLAIN.fullmatch(identity):
        return identity.decode()
    return f"~{identity.hex()}"


def frontend_identity(identifier: str) -> bytes:
    """Return whom the answer to a frontend's request is for."""
    name, _, _ = identifier.partition(":")
    try:
        return bytes.fromhex(name[1:]) if name.startswith("~") else name.encode("ascii")
    except ValueError:
        raise RemoteProtocolError(f"{identifier[:80]!r} names no frontend", MALFORMED) from None


# Replies


def pack(results: Sequence[Result]) -> tuple[tuple[Part, ...] | None, bytes]:
    """Return the outputs of a document, as option and body."""
    if len(results) == 1 and results[0].name is None:
        return None, results[0].data
    parts = tuple(Part(size=len(one.data), name=one.name) for one in results)
    return parts, b"".join(one.data for one in results)


def unpack(reply: Options, body: bytes) -> tuple[Result, ...]:
    """Return the outputs that option and body are of; RemoteProtocolError where they disagree."""
    if reply.outputs is None:
        return (Result(body),)
    if len(body) != sum(part.size for part in reply.outputs):
        raise RemoteProtocolError(
            f"the sizes of the outputs are not those of the body ({len(body)} bytes)", MALFORMED
        )
    results, at = [], 0
    for part in reply.outputs:
        results.append(Result(body[at : at + part.size], part.name))
        at += part.size
    return tuple(results)


def reply_of(identifier: str, how: Setback) -> Options:
    """Return the reply that says how a document ended, where it was not processed."""
    code, text = status(how)
    return Options(work_request_identifier=identifier, status=code, error_message=text)
