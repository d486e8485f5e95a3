"""Scale0's frames: a command, its options as one JSON object, and a body where there is one. Pure.

    ['']? COMMAND options [body]

The empty frame in front is a REQ socket's; who sends it gets it back. Options have the names of the
protocol's own description; what is not known is skipped. WORKREQUEST and WORKREPLY have a body.

A reply for a document may carry several outputs: then the option `outputs` lists name and size of
each, and the body is their bytes one after another. Without it the body is one output.
"""

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from queuedriver.claims.outcomes import Setback
from queuedriver.doors.statuses import DONE, status
from queuedriver.doors.words import Result
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


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of one command."""

    command: ClassVar[str]


class _Dated(Command, frozen=True, kw_only=True, omit_defaults=True):
    """Those with the sender's time of day and the version of its configuration."""

    time: float | None = None
    config_version: Version | None = None


class _Identified(Command, frozen=True, kw_only=True, omit_defaults=True):
    """Those that say by which name a worker's reply is known."""

    work_request_identifier: str = ""
    # As the protocol's own description spells it.
    work_request_indentifier: str = ""

    @property
    def identifier(self) -> str:
        return self.work_request_identifier or self.work_request_indentifier


class CheckConfig(Command, frozen=True, kw_only=True, omit_defaults=True):
    """A worker is new here, or was told to begin anew."""

    command = "CHECKCONFIG"
    # Nothing is JSON, too.
    config_type: str = ""
    config_version: Version | None = None
    # Ours: the identifiers of what it is still at work on; whatever else it had is lost.
    work_in_hand: tuple[str, ...] | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Brokers that deal from the same queues."""

    brokers: tuple[str, ...] = ()


class Config(Command, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker is to know; or that it knows it already."""

    command = "CONFIG"
    identity: str = ""
    services: tuple[str, ...] = ()
    group_config: Group = Group()
    preferred_broker: str = ""
    config_version: Version = ""
    unchanged: bool = False


class NeedBroker(Command, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's own broker cannot be reached."""

    command = "NEEDBROKER"
    identity: str = ""
    services: tuple[str, ...] = ()


class Ready(_Dated, frozen=True, kw_only=True, omit_defaults=True):
    """A worker takes one request."""

    command = "READY"
    services: tuple[str, ...] = ()
    heartbeat_interval: float | None = None


class ReadyOk(_Dated, frozen=True, kw_only=True, omit_defaults=True):
    """It is listed."""

    command = "READYOK"
    heartbeat_interval: float | None = None


class Ping(_Dated, frozen=True, kw_only=True, omit_defaults=True):
    """A worker lives."""

    command = "PING"


class Pong(_Dated, frozen=True, kw_only=True, omit_defaults=True):
    """So does the broker: the worker's own time, and the broker's."""

    command = "PONG"
    broker_time: float | None = None


class WorkRequest(_Identified, frozen=True, kw_only=True, omit_defaults=True):
    """A frontend's to its broker, with service and message id; a broker's to a worker, with the
    identifier by which the reply is known."""

    command = "WORKREQUEST"
    service: str = ""
    message_id: str = ""
    time: float | None = None
    config_version: Version | None = None
    # Ours, for documents.
    docid: str = ""
    attempt: _Count = 0


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where in a body one output is."""

    size: _Count
    name: str | None = None


class WorkReply(_Identified, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a request."""

    command = "WORKREPLY"
    # Ours: what became of a document.
    status: _Code = DONE
    error_message: str = ""
    outputs: tuple[Part, ...] | None = None


class DisconnectError(Command, frozen=True, kw_only=True, omit_defaults=True):
    """Why a peer is disconnected, or why a frontend's request is not done."""

    command = "DISCONNECTERROR"
    error_code: _Code
    error_message: str = ""
    # With 301: who to go to.
    broker: str = ""
    # To a frontend: which request.
    message_id: str = ""


class ForceNegotiate(Command, frozen=True, kw_only=True, omit_defaults=True):
    """The broker is not sure of a worker: it is to begin anew, with CHECKCONFIG."""

    command = "FORCENEGOTIATE"
    error_message: str = ""


class Message(msgspec.Struct, frozen=True):
    """One message."""

    event: Command
    body: bytes = b""
    # Whether an empty frame stands in front.
    envelope: bool = False
    # The options as they came.
    options: bytes = b"{}"


_COMMANDS: tuple[type[Command], ...] = (
    *(CheckConfig, Config, NeedBroker, Ready, ReadyOk, Ping, Pong),
    *(WorkRequest, WorkReply, DisconnectError, ForceNegotiate),
)
_KINDS = {kind.command.encode(): msgspec.json.Decoder(kind) for kind in _COMMANDS}
_WITH_BODY = frozenset({b"WORKREQUEST", b"WORKREPLY"})
_json = msgspec.json.Encoder().encode


def has_envelope(frames: Sequence[bytes]) -> bool:
    """Whether an empty frame stands in front."""
    return bool(frames) and not frames[0]


def decode(frames: Sequence[bytes]) -> Message:
    """What a message means; RemoteProtocolError with the code that its sender is told."""
    envelope = has_envelope(frames)
    at = 1 if envelope else 0
    command = frames[at] if len(frames) > at else b""
    decoder = _KINDS.get(command)
    if decoder is None:
        raise RemoteProtocolError(f"{command[:40]!r} is no command of scale0", UNKNOWN)
    behind = len(frames) - at - 1
    if behind > (2 if command in _WITH_BODY else 1):
        raise RemoteProtocolError(f"{command.decode()} has {behind} frames after it", MALFORMED)
    options = (frames[at + 1] if behind else b"") or b"{}"
    if len(options) > MAX_OPTIONS:
        name = command.decode()
        raise RemoteProtocolError(f"{name} has {len(options)} bytes of options", MALFORMED)
    try:
        event = decoder.decode(options)
    except RecursionError:
        raise RemoteProtocolError(
            f"the options of {command.decode()} are nested too deeply", MALFORMED
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        words = f"the options of {command.decode()}: {error}"
        raise RemoteProtocolError(words, MALFORMED) from None
    return Message(event, frames[at + 2] if behind > 1 else b"", envelope, options)


def encode(event: Command, body: bytes | None = None, envelope: bool = False) -> tuple[bytes, ...]:
    """The frames of a message."""
    head = (event.command.encode(), _json(event))
    frames = head if body is None else (*head, body)
    return (b"", *frames) if envelope else frames


# Identifiers

_PLAIN = re.compile(rb"[A-Za-z0-9._-]{1,128}")


def frontend_name(identity: bytes) -> str:
    """How a frontend is called in an identifier: by its identity, or by the hex digits of it."""
    if _PLAIN.fullmatch(identity):
        return identity.decode()
    return f"~{identity.hex()}"


def frontend_identity(identifier: str) -> bytes:
    """Whom the answer to a frontend's request is for."""
    name, _, _ = identifier.partition(":")
    try:
        return bytes.fromhex(name[1:]) if name.startswith("~") else name.encode("ascii")
    except ValueError:
        raise RemoteProtocolError(f"{identifier[:80]!r} names no frontend", MALFORMED) from None


# Replies


def pack(results: Sequence[Result]) -> tuple[tuple[Part, ...] | None, bytes]:
    """The outputs of a document, as option and body."""
    if len(results) == 1 and results[0].name is None:
        return None, results[0].data
    parts = tuple(Part(size=len(one.data), name=one.name) for one in results)
    return parts, b"".join(one.data for one in results)


def unpack(reply: WorkReply, body: bytes) -> tuple[Result, ...]:
    """The same, taken apart."""
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


def reply_of(identifier: str, how: Setback) -> WorkReply:
    """Return the reply that says how a document ended, where it was not processed."""
    code, text = status(how)
    return WorkReply(work_request_identifier=identifier, status=code, error_message=text)
