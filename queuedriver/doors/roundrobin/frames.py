"""roundrobin on the wire: the frames of one message, and what they mean. Pure.

A message on its way, and the same where it has arrived:

    hop … / empty / LMQv100 / command / id / argument … / empty / sender …

Each hop takes its own address off the front and puts that of the sender at the end, so what is in
front is the way still to go and what is at the end, read backwards, the way home. An address is
never empty; so the first empty frame ends the way, and the last one the arguments: these may be
empty themselves.

An application's command is the first argument of EXEC or TRACKEXEC.
"""

import hashlib
from collections.abc import Collection, Sequence

import msgspec

from queuedriver.doors.transports.base import MAX_FRAMES
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

VERSION = b"LMQv100"

PING = b"\x01"
PONG = b"\x02"
# An application's command; with TRACKEXEC it is to be answered.
EXEC = b"\x03"
TRACKEXEC = b"\x04"
# "Received, and being worked on": then only the connection's life counts, not the time.
TRACKADDRESS = b"\x05"
RESPONSE = b"\x06"

# First arguments. PING is one, too.
INCREMENT = b"\x07"
REGISTER = b"\x08"
DEREGISTER = b"\x09"
STREAM = b"\x0a"
# Ours: a document of a queue.
DOCUMENT = b"\x0b"
MORE = b"mqs_more"
ONGOING = b"ongoing"

COMMANDS = {
    PING: "PING",
    PONG: "PONG",
    EXEC: "EXEC",
    TRACKEXEC: "TRACKEXEC",
    TRACKADDRESS: "TRACKADDRESS",
    RESPONSE: "RESPONSE",
}
KEYS = {
    PING: "PING",
    INCREMENT: "INCREMENT",
    REGISTER: "REGISTER",
    DEREGISTER: "DEREGISTER",
    STREAM: "STREAM",
    DOCUMENT: "DOCUMENT",
    MORE: "MORE",
    ONGOING: "ONGOING",
}

# A longer way is a loop.
MAX_HOPS = 8
# More is no worker's, and a number that nobody can mean.
MAX_SLOTS = 1_000_000
# A longer key is kept as its hash: it is on disk and in memory, and its length is a client's.
_MAX_KEY = 512


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
    return b"".join(len(key).to_bytes(2, "big") + key for key in keys)


def in_hand_of(message: Message) -> frozenset[bytes] | None:
    """Return what a REGISTER says is in hand; None: nothing that we would understand, as from
    another program's worker."""
    if len(message.args) != 3:
        return None
    packed, keys, at = message.args[2], set(), 0
    while at < len(packed):
        end = at + 2 + int.from_bytes(packed[at : at + 2], "big")
        keys.add(packed[at + 2 : end])
        at = end
    return frozenset(keys) if at == len(packed) else None


def count_of(text: bytes) -> int | None:
    """Return the small number that ASCII digits say; None for anything else."""
    return int(text) if text.isdigit() and len(text) <= 9 else None
