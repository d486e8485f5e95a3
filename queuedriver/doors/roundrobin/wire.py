"""roundrobin on the wire: the frames of one message, what they mean, and how a document of a queue
and what became of it are said. Pure.

A message on its way, and the same where it has arrived:

    hop … / empty / LMQv100 / command / id / argument … / empty / sender …

Each hop takes its own address off the front and puts that of the sender at the end, so what is in
front is the way still to go and what is at the end, read backwards, the way home. An address is
never empty; so the first empty frame ends the way, and the last one the arguments: these may be
empty themselves.

An application's command is the first argument of EXEC or TRACKEXEC. The arguments of a document's
TRACKEXEC, and of its RESPONSE:

    DOCUMENT / docid / attempt / payload
    0 / name / bytes / name / bytes …          its outputs; without a name, the document's
    1 or 65 / text [/ cause / traceback]       it failed; 65: it always would
    75 / text [/ seconds]                      later: in so many seconds; 0: at once

A document's id is its claim's: no broker ever uses it again, whatever comes late.
"""

import hashlib
import math
import re
from collections.abc import Collection, Sequence

import msgspec

from queuedriver.claims.outcomes import MAX_LATER, Failed, Postponed, Released, Setback
from queuedriver.doors.transports.base import MAX_FRAMES
from queuedriver.doors.words import MAX_TEXT, Processed, Result, Work, status
from queuedriver.errors import LATER_AFTER, LocalProtocolError, RemoteProtocolError
from queuedriver.format.records import Failure

VERSION = b"LMQv100"

# EXEC brings an application's command; with TRACKEXEC it is to be answered. TRACKADDRESS says that
# it was received, and is being worked on: then only the connection's life counts, not the time.
COMMANDS = {
    b"\x01": "PING",
    b"\x02": "PONG",
    b"\x03": "EXEC",
    b"\x04": "TRACKEXEC",
    b"\x05": "TRACKADDRESS",
    b"\x06": "RESPONSE",
}
PING, PONG, EXEC, TRACKEXEC, TRACKADDRESS, RESPONSE = COMMANDS
# First arguments. DOCUMENT is ours: a document of a queue.
KEYS = {
    PING: "PING",
    b"\x07": "INCREMENT",
    b"\x08": "REGISTER",
    b"\x09": "DEREGISTER",
    b"\x0a": "STREAM",
    b"\x0b": "DOCUMENT",
    b"mqs_more": "MORE",
    b"ongoing": "ONGOING",
}
_, INCREMENT, REGISTER, DEREGISTER, STREAM, DOCUMENT, MORE, ONGOING = KEYS

# A longer way is a loop.
MAX_HOPS = 8
# More is no worker's, and a number that nobody can mean.
MAX_SLOTS = 1_000_000
# A longer key is kept as its hash: it is on disk and in memory, and its length is a client's.
_MAX_KEY = 512

# What an answer begins with, as a command's exit code would be (`words.status`).
DONE, FAILED, PERMANENT, LATER = b"0", b"1", b"65", b"75"
# Two frames each, and a message may have 64, eight hops included.
MAX_RESULTS = 24
# Bytes of a traceback: a report is for reading.
_MAX_TRACEBACK = 32 * 1024
_CAUSE = re.compile(rb"[a-z][a-z-]{0,31}")
_SECONDS = re.compile(rb"[0-9]{1,9}(\.[0-9]{1,6})?")


class Message(msgspec.Struct, frozen=True):
    """One message: where it is to go, what it says, and where it has been."""

    command: bytes
    id: bytes
    args: tuple[bytes, ...] = ()
    # The way still to go, the next hop first.
    hops: tuple[bytes, ...] = ()
    # Who passed it on, the nearest last.
    senders: tuple[bytes, ...] = ()

    @property
    def key(self) -> bytes:
        """Return an application's command; empty without one."""
        return self.args[0] if self.args else b""

    @property
    def tracked(self) -> bool:
        """Return whether an answer is waited for."""
        return self.command == TRACKEXEC

    @property
    def way_home(self) -> tuple[bytes, ...]:
        """Return the hops of an answer."""
        return self.senders[::-1]

    @property
    def name(self) -> str:
        """Return the command, and the application's, for people."""
        command = COMMANDS[self.command]
        if self.command not in (EXEC, TRACKEXEC):
            return command
        return f"{command} {KEYS.get(self.key, 'of its own')}"


def decode(frames: Sequence[bytes], sender: bytes = b"") -> Message:
    """Return what came from a sender; RemoteProtocolError for what is no message."""
    # It is passed on with its sender's address added.
    if len(frames) + bool(sender) > MAX_FRAMES:
        raise RemoteProtocolError(f"a message of {len(frames)} frames; at most {MAX_FRAMES}")
    if b"" not in frames:
        raise RemoteProtocolError("a message without an empty frame")
    start, end = frames.index(b""), len(frames) - 1 - frames[::-1].index(b"")
    if len(frames) < start + 2:
        raise RemoteProtocolError("a message that ends with its addresses")
    if frames[start + 1] != VERSION:
        raise RemoteProtocolError(f"version {frames[start + 1][:20]!r}; this is {VERSION!r}")
    # Version, command, id; then arguments and the empty frame that ends them.
    if end < start + 4:
        raise RemoteProtocolError("a message without a command, an id or its end")
    command = frames[start + 2]
    if command not in COMMANDS:
        raise RemoteProtocolError(f"no command {command[:20]!r}")
    hops = tuple(frames[:start])
    senders = (*frames[end + 1 :], sender) if sender else tuple(frames[end + 1 :])
    if len(hops) > MAX_HOPS or len(senders) > MAX_HOPS:
        raise RemoteProtocolError(f"a way of more than {MAX_HOPS} hops")
    return Message(command, frames[start + 3], tuple(frames[start + 4 : end]), hops, senders)


def encode(message: Message) -> tuple[bytes, ...]:
    """Return the frames of a message, to be sent."""
    if message.command not in COMMANDS:
        raise LocalProtocolError(f"no command {message.command!r}")
    if not (all(message.hops) and all(message.senders)):
        raise LocalProtocolError("an address may not be empty")
    if len(message.hops) > MAX_HOPS or len(message.senders) > MAX_HOPS:
        raise LocalProtocolError(f"a way of more than {MAX_HOPS} hops")
    frames = (
        *message.hops,
        b"",
        VERSION,
        message.command,
        message.id,
        *message.args,
        b"",
        *message.senders,
    )
    if len(frames) > MAX_FRAMES:
        raise LocalProtocolError(f"a message of {len(frames)} frames; at most {MAX_FRAMES}")
    return frames


def key_of(way_home: Sequence[bytes], identifier: bytes) -> bytes:
    """Return one name for a return path and an id: no two pairs have the same."""
    key = b"".join(len(frame).to_bytes(4, "big") + frame for frame in (*way_home, identifier))
    return key if len(key) <= _MAX_KEY else hashlib.sha256(key).digest()


def slots_of(message: Message) -> int:
    """Return the slots in a REGISTER."""
    text = message.args[1] if len(message.args) > 1 else b""
    # int() would take " 1_0 " as well, and needs a while for a million digits.
    if not (text.isdigit() and len(text) <= 7 and int(text) <= MAX_SLOTS):
        raise RemoteProtocolError(f"REGISTER with {text[:20]!r} slots; a number, in ASCII digits")
    return int(text)


def in_hand(keys: Collection[bytes]) -> bytes:
    """Return what a worker of ours adds to REGISTER when its connection broke: what it has in
    hand."""
    return msgspec.msgpack.encode([*keys])


def in_hand_of(message: Message) -> frozenset[bytes] | None:
    """Return what a REGISTER says is in hand; None: nothing that we would understand, as from
    another program's worker."""
    if len(message.args) != 3:
        return None
    try:
        return msgspec.msgpack.decode(message.args[2], type=frozenset[bytes])
    except (msgspec.DecodeError, RecursionError):
        return None


def count_of(text: bytes) -> int | None:
    """Return the small number that ASCII digits say; None for anything else."""
    return int(text) if text.isdigit() and len(text) <= 9 else None


# Documents


def question(work: Work) -> Message:
    """Return what a worker is sent."""
    args = (DOCUMENT, _bytes(work.docid), b"%d" % work.attempt, work.payload)
    return Message(TRACKEXEC, work.claim.encode("ascii"), args)


def document_of(message: Message, claim: str) -> Work | None:
    """Return what a worker is to process; None: it is no DOCUMENT as it should be."""
    if len(message.args) != 4 or message.key != DOCUMENT:
        return None
    _, docid, attempt, payload = message.args
    number = count_of(attempt)
    name = _text(docid)
    if number is None or name is None:
        return None
    return Work(claim, name, number, payload)


def answer_of(results: Sequence[Result]) -> tuple[bytes, ...]:
    """Return what a worker says of a document that was processed."""
    if len(results) > MAX_RESULTS:
        message = f"{len(results)} outputs; one answer takes at most {MAX_RESULTS}"
        return refusal_of(Failed(Failure(cause="bad-answer", message=message, permanent=True)))
    frames = ((_bytes(one.name or ""), one.data) for one in results)
    return (DONE, *(frame for pair in frames for frame in pair))


def refusal_of(how: Setback) -> tuple[bytes, ...]:
    """Return what a worker says of a document that was not."""
    code, text = status(how)
    said = b"%d" % code, _bytes(text)[:MAX_TEXT]
    match how:
        case Postponed():
            # Rounded up: 0 has a meaning of its own.
            return *said, b"%d" % max(1, math.ceil(min(how.after, MAX_LATER)))
        case Released():
            return *said, b"0"
    traceback = _bytes(how.failure.traceback or "")[:_MAX_TRACEBACK]
    return *said, _bytes(how.failure.cause), traceback


def outcome_of(args: Sequence[bytes]) -> Processed | Setback:
    """Return how an answer ends its document. What is no answer fails it: it had its turn."""
    said, rest = (args[0], args[1:]) if args else (b"", ())
    if said == DONE and len(rest) == 2 and not rest[0]:
        # As most answers are.
        return Processed((Result(rest[1]),))
    if said == DONE and len(rest) % 2 == 0:
        names = [_text(name) for name in rest[::2]]
        if None in names:
            return _failed("an output's name that is not UTF-8")
        results = zip(names, rest[1::2], strict=True)
        return Processed(tuple(Result(data, name or None) for name, data in results))
    text = _readable(rest[0] if rest else b"", MAX_TEXT)
    if said == LATER:
        return _later(text, rest)
    if said in (FAILED, PERMANENT):
        cause = rest[1] if len(rest) > 1 and _CAUSE.fullmatch(rest[1]) else b"exception"
        traceback = _readable(rest[2], _MAX_TRACEBACK) if len(rest) > 2 else ""
        failure = Failure(
            cause=cause.decode("ascii"),
            message=text or "the worker did not say why",
            permanent=said == PERMANENT,
            traceback=traceback or None,
        )
        return Failed(failure)
    shown = said[:20].decode("ascii", "backslashreplace")
    return _failed(f"an answer of status {shown!r} and {len(rest)} frames")


def _later(text: str, rest: Sequence[bytes]) -> Setback:
    if len(rest) < 2 or not _SECONDS.fullmatch(rest[1]):
        return Postponed(LATER_AFTER, text)
    seconds = float(rest[1])
    return Postponed(min(seconds, MAX_LATER), text) if seconds else Released(text)


def _failed(message: str) -> Failed:
    return Failed(Failure(cause="bad-answer", message=message))


def _readable(data: bytes, most: int) -> str:
    return data[:most].decode("utf-8", "replace")


def _text(name: bytes) -> str | None:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _bytes(text: str) -> bytes:
    # A file name that is not UTF-8 reached Python with surrogates in it.
    return text.encode("utf-8", "backslashreplace")
