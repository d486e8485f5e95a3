"""Bytes that somebody might have written: cut, flipped, repeated, interleaved, and made up."""

import random
from collections.abc import Callable, Sequence

# What parsers stumble over.
_TOKENS = (
    b"\0",
    b"\n",
    b"\r",
    b"\x1b[2J",
    b"\x1b]0;title\x07",
    b"\xe2\x80\xae",
    b"\xff",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\\u001b[2J\\u0007",
    b"\\u202e",
    b"\\n",
    b"\\u0000",
    b"{",
    b"}",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"null",
    b"true",
    b"-1",
    b"1e308",
    b"1e999",
    b"9" * 30,
    b"9" * 400,
    b"9" * 5000,
    b"NaN",
    b"../outside/secret",
    b"/etc/passwd",
    b"../../../../../../etc",
    b"x" * 300,
    b"$(touch x)",
    b"-rf",
    b".ready",
    b".working",
    b"%s%n",
)


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _flip(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 8))):
        if changed:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(_TOKENS) + data[at:]


def _replace(data: bytes, draw: random.Random) -> bytes:
    """Another value in the place of one: what stands between two marks."""
    marks = [at for at, byte in enumerate(data) if byte in b':,"[]{}=\n.']
    if len(marks) < 2:
        return _insert(data, draw)
    at = draw.randrange(len(marks) - 1)
    return data[: marks[at] + 1] + draw.choice(_TOKENS) + data[marks[at + 1] :]


def _repeat(data: bytes, draw: random.Random) -> bytes:
    start, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start:end] * draw.choice((1, 2, 50)) + data[end:]


def _drop(data: bytes, draw: random.Random) -> bytes:
    start, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[end:]


def _interleave(data: bytes, draw: random.Random) -> bytes:
    """As of two writers at once."""
    step = draw.randrange(1, 20)
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    draw.shuffle(pieces)
    return b"".join(pieces)


def _noise(_: bytes, draw: random.Random) -> bytes:
    return draw.randbytes(draw.choice((0, 1, 10, 1000)))


_WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _cut,
    _flip,
    _flip,
    _insert,
    _insert,
    _replace,
    _replace,
    _replace,
    _repeat,
    _drop,
    _interleave,
    _noise,
)


def mutated(samples: Sequence[bytes], draw: random.Random) -> bytes:
    """One of the samples, after a few accidents."""
    data = draw.choice(samples)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 5))):
        data = draw.choice(_WAYS)(data, draw)
    return data
