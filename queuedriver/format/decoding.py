"""JSON that anybody may have written: one of our records, or refused in one way. Pure.

msgspec has three ways: an error of its own, and Python's for bytes that are no text and for what is
nested without end. Whoever reads a file that others may have written means all of them.
"""

from typing import Any, TypeVar

import msgspec

_Kind = TypeVar("_Kind")
_decoders: "dict[type[Any], msgspec.json.Decoder[Any]]" = {}


def decode(data: bytes, kind: type[_Kind]) -> _Kind:
    """Return what the bytes say; raise msgspec.DecodeError when that is nothing of this kind."""
    decoder: msgspec.json.Decoder[_Kind] | None = _decoders.get(kind)
    if decoder is None:
        # To make one takes longer than to use it.
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decode_by(decoder, data)


def decode_by(decoder: "msgspec.json.Decoder[_Kind]", data: bytes) -> _Kind:
    """Decode with a decoder that is kept, where it is done often."""
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
