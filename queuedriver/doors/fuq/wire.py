"""What fuq says on the wire: a header of twelve bytes, and bodies in msgpack. Pure.

    offset 0   u16   magic, 0xC047
    offset 2   u16   type: OK 1, JOB 2, UPDATE 3, STOP 4, ERROR 5, AUTH 6
    offset 4   u32   padding: sent as zero, not looked at
    offset 8   u32   arg0: a number; of JOB, UPDATE and AUTH the length of the body that follows

All numbers are little endian. ERROR had no number in the original, and AUTH is ours: it is sent
only where a secret was given, before anything else:

    broker → client   AUTH   32 bytes: the broker's nonce
    client → broker   AUTH   32 bytes: the client's nonce, 32 bytes: the client's proof
    broker → client   AUTH   32 bytes: the broker's proof

A proof is HMAC-SHA256 over whose proof it is and both nonces; so neither side's can be played back
to it, and the secret itself never travels. It hides nothing: that is for TLS.
"""

import hmac
import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from typing import Annotated, TypeVar

import msgspec

from queuedriver.errors import LocalProtocolError, RemoteProtocolError

T = TypeVar("T")
MAGIC = 0xC047
HEADER = struct.Struct("<HHII")
# A task is some hundred bytes, an update has at most 64 KiB of log. What a header announces beyond
# this is refused before anything is allocated for it. Bytes.
MAX_BODY = 1 << 20
# STOP(0) is for all processors, STOP(0xFFFFFFFF) for everything and at once.
STOP_ALL = 0
STOP_NOW = 0xFFFFFFFF
# More processors than this nobody has; the original's next version carried them in 16 bits.
MAX_NPROC = 0xFFFF
# Bytes of a nonce.
NONCE = 32
# In both tables: the state of a conversation that is over, and a condition.
END = "the end"
HOLDS = "the proof holds"
# The status of a task that a client did not begin, or may not.
CANNOT_RUN = "cannot_run_job"
_U32 = 0xFFFFFFFF
# What may come; of a JobId the encoding bounds the rest.
_JobId = Annotated[int, msgspec.Meta(ge=0)]
_TaskNumber = Annotated[int, msgspec.Meta(ge=0, le=_U32)]
_Processors = Annotated[int, msgspec.Meta(ge=0, le=MAX_NPROC)]


class Type(IntEnum):
    """What a message is."""

    OK = 1
    JOB = 2
    UPDATE = 3
    STOP = 4
    ERROR = 5
    AUTH = 6


class Code(IntEnum):
    """What an ERROR says."""

    OVERFLOW = 1
    CANNOT_RUN_JOB = 2
    BAD_MESSAGE = 3


# Those whose arg0 is the length of a body.
_WITH_BODY = frozenset({Type.JOB, Type.UPDATE, Type.AUTH})


class Message(msgspec.Struct, frozen=True):
    """One message as it came. `arg0` is 0 where the header had the length of the body."""

    type: Type
    arg0: int = 0
    body: bytes = b""


class JobDescription(msgspec.Struct, frozen=True, rename="pascal"):
    """A job: an array of tasks, numbered from 1, that run one command."""

    job_id: _JobId
    name: str
    num_tasks: int
    working_dir: str
    logging_dir: str
    command: str
    # 0 waiting, 1 running, 2 finished, 3 paused, 4 cancelled; of a task dealt out, 1.
    status: int = 1
    # Ours: the processors that each task takes.
    num_proc: Annotated[int, msgspec.Meta(ge=1, le=MAX_NPROC)] = 1


class Task(msgspec.Struct, frozen=True, rename={"task": "Task", "description": "JobDescription"}):
    """One task of a job: the body of JOB."""

    task: Annotated[int, msgspec.Meta(ge=1, le=_U32)]
    description: JobDescription


class NewJob(msgspec.Struct, frozen=True, rename="pascal"):
    """How many processors a client has free."""

    num_proc: _Processors


class JobStatusUpdate(msgspec.Struct, frozen=True, rename="pascal"):
    """How a task went: the body of UPDATE. From `exit_code` on the keys are ours."""

    job_id: _JobId
    task: _TaskNumber
    success: bool
    # "done", or what went wrong.
    status: str
    new_job: NewJob | None = None
    exit_code: int | None = None
    # Seconds since the epoch by the client's clock, and how long it took.
    started: float | None = None
    seconds: float | None = None
    # The end of its log.
    log: str | None = None


encode_task = encode_update = msgspec.msgpack.Encoder().encode


def encode(kind: Type, arg0: int = 0) -> bytes:
    """Return a message without a body."""
    if kind in _WITH_BODY or not 0 <= arg0 <= _U32:
        raise LocalProtocolError(f"{kind.name} cannot be sent with arg0 {arg0}")
    return HEADER.pack(MAGIC, kind, 0, arg0)


def encode_body(kind: Type, body: bytes) -> bytes:
    """Return a message with a body."""
    if kind not in _WITH_BODY or len(body) > _U32:
        raise LocalProtocolError(f"{kind.name} cannot be sent with a body of {len(body)} bytes")
    return HEADER.pack(MAGIC, kind, 0, len(body)) + body


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", no: str, body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise _bad(f"the body of {no}: {error}") from None


# Return what a JOB and an UPDATE bring; RemoteProtocolError for what is none.
decode_task = partial(_decoded, msgspec.msgpack.Decoder(Task), "JOB is no task")
decode_update = partial(_decoded, msgspec.msgpack.Decoder(JobStatusUpdate), "UPDATE is no status")


class Receiver:
    """What has come of a stream, and is not a whole message yet."""

    max_body = MAX_BODY

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Yield the messages that are whole with these bytes; RemoteProtocolError for what is
        none, after all that came before it; the stream cannot be read on then."""
        self._buffer += chunk
        at = 0
        try:
            while len(self._buffer) - at >= HEADER.size:
                magic, number, _, arg0 = HEADER.unpack_from(self._buffer, at)
                kind = self._check(magic, number, arg0)
                end = at + HEADER.size
                if kind not in _WITH_BODY:
                    at = end
                    yield Message(kind, arg0)
                    continue
                if len(self._buffer) < end + arg0:
                    break
                at = end + arg0
                yield Message(kind, 0, bytes(self._buffer[end:at]))
        finally:
            del self._buffer[:at]

    def _check(self, magic: int, number: int, arg0: int) -> Type:
        if magic != MAGIC:
            raise _bad(f"a message begins with {magic:#06x}, not with {MAGIC:#06x}")
        try:
            kind = Type(number)
        except ValueError:
            raise _bad(f"there is no message of type {number}") from None
        if kind in _WITH_BODY and arg0 > self.max_body:
            raise _bad(f"{kind.name} announces {arg0} bytes, more than {self.max_body}")
        return kind


def client_proof(secret: bytes, broker_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return what shows that a client knows the secret."""
    return hmac.digest(secret, b"fuq client" + broker_nonce + client_nonce, "sha256")


def broker_proof(secret: bytes, broker_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return what shows that a broker does."""
    return hmac.digest(secret, b"fuq broker" + broker_nonce + client_nonce, "sha256")


def _bad(words: str) -> RemoteProtocolError:
    return RemoteProtocolError(words, Code.BAD_MESSAGE)
