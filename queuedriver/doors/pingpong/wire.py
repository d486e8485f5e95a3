"""Pingpong's frames. Pure.

['', READY] ['', PING] ['', PONG] ['', EXIT] ['', DISCONNECT]     these ASCII bytes
['', ERROR, code, text]                                           a document was not processed
['', payload]                                                     a document, or its result
['', '', payload]                                                 one that equals a word
['']                                                              the connection broke and is back
"""

import re
from collections.abc import Sequence

import msgspec

from queuedriver.doors.words import MAX_TEXT
from queuedriver.errors import RemoteProtocolError

READY = (b"", b"READY")
PING = (b"", b"PING")
PONG = (b"", b"PONG")
EXIT = (b"", b"EXIT")
DISCONNECT = (b"", b"DISCONNECT")
BACK = (b"",)
_ERROR = b"ERROR"
WORDS = {word: word.decode() for _, word in (READY, PING, PONG, EXIT, DISCONNECT)}
_CODE = re.compile(rb"-?[0-9]{1,3}")


class Said(msgspec.Struct, frozen=True, gc=False):
    """A message, taken apart."""

    # READY, PING, PONG, EXIT, DISCONNECT, ERROR, "joined again" or "payload".
    event: str
    # A payload; of ERROR, its text.
    data: bytes = b""
    # What ERROR says, as a command's exit code would.
    code: int = 0


def decode(frames: Sequence[bytes]) -> Said:
    """Return what a message means, whoever sent it."""
    match frames:
        case [b"", word] if word in WORDS:
            return Said(WORDS[word])
        case [b"", data] if data != _ERROR:
            return Said("payload", data)
        case [b"", b"", data]:
            return Said("payload", data)
        case [b"", b"ERROR", code, text] if _CODE.fullmatch(code):
            return Said("ERROR", text[:MAX_TEXT], int(code))
        case [b""]:
            return Said("joined again")
    raise RemoteProtocolError(
        f"{len(frames)} frames that are neither a word, nor a payload, nor an ERROR with code "
        "and text, each after one empty frame"
    )


def payload(data: bytes) -> tuple[bytes, ...]:
    """Return the frames of a document, or of its result."""
    return (b"", b"", data) if data in WORDS or data == _ERROR else (b"", data)


def error(code: int, text: str) -> tuple[bytes, ...]:
    """Return the frames that say that a document was not processed."""
    return (b"", _ERROR, b"%d" % code, text.encode(errors="replace")[:MAX_TEXT])
