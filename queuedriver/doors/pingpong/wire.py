"""Pingpong's frames and constants. Pure.

['', READY] ['', PING] ['', PONG] ['', EXIT] ['', DISCONNECT]     these ASCII bytes
['', ERROR, code, text]                                           a document was not processed
['', payload]                                                     a document, or its result
['', '', payload]                                                 one that equals a word
['']                                                              the connection broke and is back
"""

import re
from collections.abc import Sequence

import msgspec

from queuedriver.doors.statuses import MAX_TEXT
from queuedriver.errors import ConfigError, RemoteProtocolError

READY = (b"", b"READY")
PING = (b"", b"PING")
PONG = (b"", b"PONG")
EXIT = (b"", b"EXIT")
DISCONNECT = (b"", b"DISCONNECT")
BACK = (b"",)
_ERROR = b"ERROR"
WORDS = {word: word.decode() for _, word in (READY, PING, PONG, EXIT, DISCONNECT)}
_CODE = re.compile(rb"-?[0-9]{1,3}")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of the protocol, in seconds, with the originals' values."""

    # A worker counts such periods without a message from the broker …
    broker_timeout: float = 1.0
    # … and after so many in a row connects anew.
    n_timeouts: int = 3
    # So long after its last message the broker drops a worker that waits for work.
    worker_expire_seconds: float = 3.0
    # How often a worker that waits sends PING.
    ping_interval: float = 1.0
    max_workers: int = 10_000

    def check(self) -> "Options":
        """Return these; ConfigError for what would make workers and broker give each other up."""
        if min(self.broker_timeout, self.n_timeouts, self.ping_interval, self.max_workers) <= 0:
            raise ConfigError("the time-outs, intervals and limits of pingpong must be above 0")
        silence = self.n_timeouts * self.broker_timeout
        if not silence <= self.worker_expire_seconds:
            raise ConfigError(
                f"N_TIMEOUTS × BROKER_TIMEOUT is {silence:g} s, WORKER_EXPIRE_SECONDS only "
                f"{self.worker_expire_seconds:g} s: raise the latter, or a worker would be dropped "
                "before it could notice that its broker is silent"
            )
        if not self.ping_interval < self.worker_expire_seconds:
            raise ConfigError(
                f"a PING every {self.ping_interval:g} s is too rare for WORKER_EXPIRE_SECONDS of "
                f"{self.worker_expire_seconds:g} s"
            )
        return self


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
