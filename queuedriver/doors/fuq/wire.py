"""What fuq says on the wire: a header of twelve bytes, and bodies in msgpack. Pure.

    offset 0   u16   magic, 0xC047
    offset 2   u16   type: OK 1, JOB 2, UPDATE 3, STOP 4, ERROR 5, AUTH 6
    offset 4   u32   padding: sent as zero, not looked at
    offset 8   u32   arg0: a number; of JOB, UPDATE and AUTH the length of the body that follows

All numbers are little endian. ERROR had no number in the original, and AUTH is ours: it is sent
only where a secret was given.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import TypeVar

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
# The status of a task that a client did not begin, or may not.
CANNOT_RUN = "cannot_run_job"
_U32 = 0xFFFFFFFF
_U64 = 0xFFFFFFFFFFFFFFFF


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

    job_id: int
    name: str
    num_tasks: int
    working_dir: str
    logging_dir: str
    command: str
    # 0 waiting, 1 running, 2 finished, 3 paused, 4 cancelled; of a task dealt out, 1.
    status: int = 1
    # Ours: the processors that each task takes.
    num_proc: int = 1


class Task(msgspec.Struct, frozen=True, rename={"task": "Task", "description": "JobDescription"}):
    """One task of a job: the body of JOB."""

    task: int
    description: JobDescription


class NewJob(msgspec.Struct, frozen=True, rename="pascal"):
    """How many processors a client has free."""

    num_proc: int


class JobStatusUpdate(msgspec.Struct, frozen=True, rename="pascal"):
    """How a task went: the body of UPDATE. From `exit_code` on the keys are ours."""

    job_id: int
    task: int
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


_encoder = msgspec.msgpack.Encoder()
_tasks = msgspec.msgpack.Decoder(Task)
_updates = msgspec.msgpack.Decoder(JobStatusUpdate)


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


def encode_task(task: Task) -> bytes:
    return _encoder.encode(task)


def encode_update(update: JobStatusUpdate) -> bytes:
    return _encoder.encode(update)


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", body: bytes, no: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise _bad(f"the body of {no}: {error}") from None


def decode_task(body: bytes) -> Task:
    """Return the task that a JOB brings; RemoteProtocolError for what is none."""
    task = _decoded(_tasks, body, "JOB is no task")
    job = task.description
    if not (0 <= job.job_id <= _U64 and 1 <= task.task <= _U32 and 1 <= job.num_proc <= MAX_NPROC):
        raise _bad(f"JOB with JobId {job.job_id}, Task {task.task}, NumProc {job.num_proc}")
    return task


def decode_update(body: bytes) -> JobStatusUpdate:
    """Return the status that an UPDATE brings; RemoteProtocolError for what is none."""
    update = _decoded(_updates, body, "UPDATE is no status")
    if not (0 <= update.job_id <= _U64 and 0 <= update.task <= _U32):
        raise _bad(f"UPDATE with JobId {update.job_id}, Task {update.task}")
    if update.new_job is not None and not 0 <= update.new_job.num_proc <= MAX_NPROC:
        raise _bad(f"UPDATE with NumProc {update.new_job.num_proc}")
    return update


def check_nproc(nproc: int) -> int:
    """Return the number of processors that a client offers in its greeting; RemoteProtocolError
    for more than anybody has."""
    if nproc > MAX_NPROC:
        raise _bad(f"OK offers {nproc} processors, more than {MAX_NPROC}")
    return nproc


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


def _bad(words: str) -> RemoteProtocolError:
    return RemoteProtocolError(words, Code.BAD_MESSAGE)
