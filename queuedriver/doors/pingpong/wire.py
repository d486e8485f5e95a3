"""Pingpong's frames and constants. Pure.

['', READY] ['', PING] ['', PONG] ['', EXIT] ['', DISCONNECT]     these ASCII bytes
['', ERROR, code, text]                                           a document was not processed
['', payload]                                                     a document, or its result
['', '', payload]                                                 one that equals a word
"""

import re
from collections.abc import Sequence

import msgspec

from queuedriver.errors import ConfigError, RemoteProtocolError

READY = b"READY"
PING = b"PING"
PONG = b"PONG"
EXIT = b"EXIT"
DISCONNECT = b"DISCONNECT"
ERROR = b"ERROR"
WORDS = frozenset({READY, PING, PONG, EXIT, DISCONNECT, ERROR})

# What ERROR says, as a command's exit code would.
FAILED = 1
PERMANENT = 65
LATER = 75
_CODE = re.compile(rb"-?[0-9]{1,3}")
# Bytes of an error's text: a report is for reading.
_MAX_TEXT = 8 * 1024


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of the protocol, in seconds, with the originals' values."""

    # A worker counts such periods without a message from the broker …
    broker_timeout: float = 1.0
    # … and after so many in a row connects anew.
    n_timeouts: int = 3
    # So long after its last message the broker drops a worker that waits for work.
    worker_expire_seconds: float = 3.0
    # How often a worker that waits sends PING, and a broker tries whether busy ones are there.
    ping_interval: float = 1.0
    # ERROR 75 does not say how much later.
    later_after: float = 60.0
    max_workers: int = 10_000

    def check(self) -> "Options":
        """ConfigError for what would make workers and broker give each other up."""
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


# What is sent


class Word(msgspec.Struct, frozen=True):
    """READY, PING, PONG, EXIT or DISCONNECT."""

    word: bytes


class Payload(msgspec.Struct, frozen=True):
    """A document, or its result."""

    data: bytes


class Error(msgspec.Struct, frozen=True):
    """A document was not processed."""

    code: int
    text: str


Event = Word | Payload | Error


def decode(frames: Sequence[bytes]) -> Event:
    """What a message means, whoever sent it."""
    match frames:
        case [b"", word] if word not in WORDS:
            return Payload(word)
        case [b"", word] if word != ERROR:
            return Word(word)
        case [b"", b"", data]:
            return Payload(data)
        case [b"", b"ERROR", code, text] if _CODE.fullmatch(code):
            return Error(int(code), text[:_MAX_TEXT].decode(errors="replace"))
    raise RemoteProtocolError(
        f"{len(frames)} frames that are neither a word, nor a payload, nor an ERROR with code "
        "and text, each after one empty frame"
    )


def encode(event: Event) -> tuple[bytes, ...]:
    """The frames of a message."""
    match event:
        case Word(word=word):
            return (b"", word)
        case Error(code=code, text=text):
            return (b"", ERROR, b"%d" % code, text.encode(errors="replace")[:_MAX_TEXT])
        case Payload(data=data):
            return (b"", b"", data) if data in WORDS else (b"", data)
