"""STREAM: an answer in parts, whole whatever its pieces."""

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin.stream import Part, Reader, parts_of
from queuedriver.errors import RemoteProtocolError

HANDLE = b"12345678"


@st.composite
def cuts(draw: st.DrawFn) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    left = streams.SIZE
    while left:
        length = draw(st.integers(1, left)) if len(found) < 20 else left
        found.append((draw(st.integers(0, streams.SIZE - length)), length))
        left -= length
    return found


def read(parts: list[Part]) -> tuple[Reader, int]:
    reader = Reader()
    for part in parts[:-1]:
        assert not reader.take(streams.decode_part(streams.encode_part(part)))
    assert reader.take(parts[-1])
    return reader, len(parts)


@given(cuts(), st.integers(1, 3000), st.sampled_from([streams.RAW, streams.ZLIB]))
def test_what_is_written_is_read_in_parts_of_any_size(
    made: list[tuple[int, int]], size: int, pack: bytes
) -> None:
    carried = streams.pieces_of(made)
    packed = zlib.compress(carried) if pack == streams.ZLIB else carried
    reader, parts = read(parts_of(HANDLE, packed, pack, size))
    assert reader.handle == HANDLE
    assert parts >= 1


def test_part_has_exactly_these_bytes() -> None:
    part = Part(streams.FINISHED, HANDLE, streams.pieces_of([(0, 2)]))
    data = b"2R\x08" + HANDLE + (0).to_bytes(4, "little") + (2).to_bytes(4, "little") + b"\x01\x01"
    assert streams.encode_part(part) == data
    assert streams.decode_part(data) == part


def test_short_stream_is_one_part_and_a_long_one_as_many_as_it_needs() -> None:
    carried = streams.pieces_of([(0, streams.SIZE)])
    assert read(parts_of(HANDLE, carried))[1] == 1
    assert read(parts_of(HANDLE, carried, part=11 + 100))[1] == 11


@given(st.binary(max_size=40))
def test_any_bytes_are_a_part_or_a_remote_protocol_error(data: bytes) -> None:
    try:
        part = streams.decode_part(data)
    except RemoteProtocolError:
        return
    assert streams.encode_part(part) == data


@given(
    st.sampled_from([streams.GO_ON, streams.FINISHED, streams.ABORT]),
    st.sampled_from([streams.RAW, streams.ZLIB]),
    st.binary(max_size=60),
)
def test_any_part_is_taken_or_refused(state: bytes, pack: bytes, data: bytes) -> None:
    for carried in (data, zlib.compress(data), b"\0\0\0\0\x01\0\0\0" + data):
        try:
            Reader().take(Part(state, HANDLE, carried, pack))
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize(
    ("carried", "words"),
    [
        (streams.pieces_of([(0, streams.SIZE - 1)]), "1 bytes yet to come"),
        (streams.pieces_of([(1, streams.SIZE)]), "a piece of"),
        (streams.pieces_of([(-1, 2)]), "a piece of"),
        (streams.pieces_of([(0, streams.SIZE), (0, 1)]), "a piece of"),
        (streams.pieces_of([(0, 0)]), "a piece of"),
        (streams.pieces_of([(0, streams.SIZE)])[:-1] + b"\2", "other bytes"),
        (streams.pieces_of([(0, streams.SIZE)]) + b"x", "0 bytes yet to come"),
        (b"x" * 100_000, "more than"),
    ],
)
def test_stream_that_is_not_what_was_asked_for_is_refused(carried: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        Reader().take(Part(streams.FINISHED, HANDLE, carried))


def test_aborted_stream_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="aborted"):
        Reader().take(Part(streams.ABORT, HANDLE, b""))


def test_packed_bytes_that_would_fill_the_memory_are_refused_before_they_do() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="more than"):
            Reader().take(Part(streams.GO_ON, HANDLE, bomb, streams.ZLIB))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
