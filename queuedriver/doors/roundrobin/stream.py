"""STREAM: data that comes in parts, each asked for. Pure.

The argument of each RESPONSE is a header and a part of what is carried:

    state (0 more comes, 1 aborted, 2 finished), pack (R raw, Z zlib), length of the handle (8),
    handle, bytes

With state 0 the reader asks for the next part with `mqs_more`, naming a host id and the handle;
with state 1 in that request it wants no more. What is carried, once unpacked, is a row of pieces:
offset and length as 32-bit numbers in the host's order, then so many bytes. Pieces may overlap;
their lengths add up to what was asked for.
"""

import random
import struct
import zlib
from collections.abc import Sequence

import msgspec

from queuedriver.doors.roundrobin.wire import MORE
from queuedriver.doors.words import Recent
from queuedriver.errors import RemoteProtocolError

GO_ON = b"0"
ABORT = b"1"
FINISHED = b"2"
RAW = b"R"
ZLIB = b"Z"

# What a STREAM asks for, and the byte of which it consists.
SIZE = 1024
FILLING = b"\x01"
# The longest part, header included.
PART = 8192
HANDLE = 8

# Seconds after which a worker forgets a stream of which it hears nothing.
SILENCE = 15.0
# Streams of one worker that wait to be asked for more.
_MOST_OPEN = 1000
_PIECE = struct.Struct("=ii")
# Pieces of one byte each are the most that a stream can consist of.
_MOST_CARRIED = SIZE * (_PIECE.size + 1)


class Part(msgspec.Struct, frozen=True):
    """One RESPONSE's argument."""

    state: bytes
    handle: bytes
    data: bytes
    pack: bytes = RAW


def encode_part(part: Part) -> bytes:
    """Return its bytes."""
    head = part.state + part.pack + bytes((len(part.handle),))
    return head + part.handle + part.data


def decode_part(data: bytes) -> Part:
    """Return what an argument says; RemoteProtocolError for what is none."""
    if len(data) < 3 or len(data) < 3 + data[2]:
        raise RemoteProtocolError("a part of a stream that is shorter than its header")
    state, pack, end = data[:1], data[1:2], 3 + data[2]
    if state not in (GO_ON, ABORT, FINISHED) or pack not in (RAW, ZLIB):
        raise RemoteProtocolError(f"a part of a stream of state {state!r}, packed as {pack!r}")
    return Part(state, data[3:end], data[end:], pack)


def pieces_of(cuts: list[tuple[int, int]]) -> bytes:
    """Return what a stream carries that sends these (offset, length)."""
    return b"".join(_PIECE.pack(offset, length) + FILLING * length for offset, length in cuts)


def parts_of(handle: bytes, carried: bytes, pack: bytes = RAW, part: int = PART) -> list[Part]:
    """Cut what a stream carries, packed as it is, into parts of at most so many bytes."""
    room = max(1, part - 3 - len(handle))
    *more, last = [carried[at : at + room] for at in range(0, len(carried), room)]
    return [*(Part(GO_ON, handle, data, pack) for data in more), Part(FINISHED, handle, last, pack)]


class _Open(msgspec.Struct):
    """A stream whose reader may ask for more."""

    host: bytes
    # What is to come, the last part first.
    parts: list[Part]
    heard_at: float


class Streams:
    """The streams that one worker has not sent to their ends; `chance` cuts them into pieces."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._open: Recent[bytes, _Open] = Recent(_MOST_OPEN)

    def begin(self, handle: bytes, host: bytes, now: float) -> bytes:
        """Return the first part of a stream, which is for one host."""
        first, *parts = parts_of(handle, pieces_of(self._cuts()))
        if parts:
            self._open[handle] = _Open(host, parts[::-1], now)
        return encode_part(first)

    def _cuts(self) -> list[tuple[int, int]]:
        cuts, left = [], SIZE
        while left:
            length = self._chance.randint(1, left)
            cuts.append((self._chance.randint(0, SIZE - length), length))
            left -= length
        return cuts

    def hear(self, args: Sequence[bytes], now: float) -> bytes:
        """Return the answer to `mqs_more` and to `ongoing`, as they came."""
        key, host, handle, want = (*args, b"", b"", b"")[:4]
        heard = {at: one for at, one in self._open.items() if now < one.heard_at + SILENCE}
        known = {at: one for at, one in heard.items() if one.host == host}
        if key != MORE:
            for one in known.values():
                one.heard_at = now
            # As a command's exit status: whether anything of it is known here.
            return b"0" if known else b"1"
        if handle not in known or want != GO_ON:
            if handle in known:
                del self._open[handle]
            return encode_part(Part(ABORT, handle[:HANDLE], b""))
        known[handle].heard_at = now
        part = known[handle].parts.pop()
        if not known[handle].parts:
            del self._open[handle]
        return encode_part(part)


class Reader:
    """One stream that is received. Whatever comes, it holds a bounded number of bytes."""

    def __init__(self) -> None:
        self.handle = b""
        self._carried = b""
        self._inflate: zlib._Decompress | None = None

    def take(self, part: Part) -> bool:
        """Take a part in; return whether it was the last. RemoteProtocolError: it cannot be
        right."""
        if part.state == ABORT:
            raise RemoteProtocolError("the stream was aborted")
        self.handle = part.handle
        self._carried += self._unpacked(part)
        if len(self._carried) > _MOST_CARRIED:
            raise RemoteProtocolError("a stream that carries more than was asked for")
        if part.state == FINISHED:
            _check(self._carried)
        return part.state == FINISHED

    def _unpacked(self, part: Part) -> bytes:
        if part.pack == RAW:
            return part.data
        self._inflate = self._inflate or zlib.decompressobj()
        try:
            return self._inflate.decompress(part.data, _MOST_CARRIED + 1)
        except zlib.error as error:
            raise RemoteProtocolError(f"a part of a stream that is not zlib: {error}") from None


def _check(carried: bytes) -> None:
    """Raise RemoteProtocolError where pieces are not what was asked for."""
    left, at = SIZE, 0
    while at + _PIECE.size <= len(carried):
        offset, length = _PIECE.unpack_from(carried, at)
        if not (0 <= offset <= SIZE - length and 0 < length <= left):
            raise RemoteProtocolError(f"a piece of {length} bytes at {offset} of a stream")
        at += _PIECE.size + length
        left -= length
        if carried[at - length : at] != FILLING * length:
            raise RemoteProtocolError("a piece of a stream with other bytes than were agreed")
    if left or at != len(carried):
        raise RemoteProtocolError(f"a stream that ended with {left} bytes yet to come")
