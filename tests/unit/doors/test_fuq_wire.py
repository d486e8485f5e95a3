"""What fuq says on the wire, byte by byte."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.wire import (
    JobDescription,
    JobStatusUpdate,
    Message,
    NewJob,
    Receiver,
    Task,
    Type,
)
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

JOB = JobDescription(7, "sim", 100, "/w", "/l", "sim --fast")

plain = st.builds(
    Message,
    st.sampled_from([Type.OK, Type.STOP, Type.ERROR]),
    st.integers(0, 0xFFFFFFFF),
)
bodied = st.builds(
    Message,
    st.sampled_from([Type.JOB, Type.UPDATE, Type.AUTH]),
    st.just(0),
    st.binary(max_size=200),
)
messages = st.lists(st.one_of(plain, bodied), max_size=8)


def encoded(message: Message) -> bytes:
    if message.type in (Type.JOB, Type.UPDATE, Type.AUTH):
        return wire.encode_body(message.type, message.body)
    return wire.encode(message.type, message.arg0)


class Small(Receiver):
    max_body = 64


def test_header_is_twelve_bytes_little_endian_with_the_original_s_magic() -> None:
    assert wire.encode(Type.OK, 4) == bytes.fromhex("47c0 0100 00000000 04000000")
    assert wire.encode(Type.STOP, wire.STOP_NOW) == bytes.fromhex("47c0 0400 00000000 ffffffff")
    assert wire.encode(Type.ERROR, 2) == bytes.fromhex("47c0 0500 00000000 02000000")
    assert wire.encode_body(Type.JOB, b"abc") == bytes.fromhex("47c0 0200 00000000 03000000") + (
        b"abc"
    )
    assert wire.encode_body(Type.UPDATE, b"")[:4] == bytes.fromhex("47c0 0300")


def test_task_has_the_keys_of_the_original_and_one_of_ours() -> None:
    packed = wire.encode_task(Task(3, JOB))
    assert msgspec.msgpack.decode(packed) == {
        "Task": 3,
        "JobDescription": {
            "JobId": 7,
            "Name": "sim",
            "NumTasks": 100,
            "WorkingDir": "/w",
            "LoggingDir": "/l",
            "Command": "sim --fast",
            "Status": 1,
            "NumProc": 1,
        },
    }
    # A map of two, whose first key is the task's.
    assert packed.startswith(b"\x82\xa4Task\x03")


def test_update_has_the_keys_of_the_original_and_some_of_ours() -> None:
    update = JobStatusUpdate(7, 3, success=True, status="done", new_job=NewJob(4))
    found = msgspec.msgpack.decode(wire.encode_update(update))
    original = {"JobId": 7, "Task": 3, "Success": True, "Status": "done", "NewJob": {"NumProc": 4}}
    assert found == original | dict.fromkeys(("ExitCode", "Started", "Seconds", "Log"))


def test_original_messages_are_read_without_our_keys_and_with_unknown_ones() -> None:
    job = {
        "JobId": 2**64 - 1,
        "Name": "n",
        "NumTasks": 1,
        "WorkingDir": "",
        "LoggingDir": "",
        "Command": "c",
        "Status": 0,
        "Later": {"deep": [1, None]},
    }
    packed = msgspec.msgpack.encode({"Task": 1, "JobDescription": job, "More": 1})
    task = wire.decode_task(packed)
    assert (task.description.num_proc, task.description.job_id) == (1, 2**64 - 1)
    update = {"JobId": 1, "Task": 1, "Success": False, "Status": "oh", "NewJob": None, "X": 1}
    assert wire.decode_update(msgspec.msgpack.encode(update)).new_job is None


@given(messages, st.data())
def test_stream_gives_the_same_messages_however_it_is_cut(
    sent: list[Message], data: st.DataObject
) -> None:
    stream = b"".join(map(encoded, sent))
    receiver = Receiver()
    found: list[Message] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += receiver.feed(stream[:size])
        stream = stream[size:]
    assert found == sent


@given(messages)
def test_stream_may_come_byte_by_byte(sent: list[Message]) -> None:
    receiver = Receiver()
    stream = b"".join(map(encoded, sent))
    found = [one for byte in stream for one in receiver.feed(bytes([byte]))]
    assert found == sent


@given(messages, st.binary(min_size=1, max_size=11))
def test_trailing_bytes_wait_for_the_rest_of_their_message(
    sent: list[Message], trailing: bytes
) -> None:
    receiver = Receiver()
    assert list(receiver.feed(b"".join(map(encoded, sent)) + encoded_head(trailing))) == sent
    rest = wire.encode(Type.OK, 9)[len(trailing) :]
    assert list(receiver.feed(rest)) == [Message(Type.OK, 9)]


def encoded_head(trailing: bytes) -> bytes:
    """As many bytes of an OK as there are in `trailing`."""
    return wire.encode(Type.OK, 9)[: len(trailing)]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("47c1 0100 00000000 00000000", "0xc147"),
        ("c047 0100 00000000 00000000", "0x47c0"),
        ("47c0 0000 00000000 00000000", "type 0"),
        ("47c0 0700 00000000 00000000", "type 7"),
        ("47c0 0200 00000000 ffffffff", "4294967295 bytes"),
        ("47c0 0300 00000000 01001000", "1048577 bytes"),
    ],
)
def test_header_that_is_none_is_refused_after_all_that_came_before_it(
    head: str, words: str
) -> None:
    feed = Receiver().feed(wire.encode(Type.OK, 1) + bytes.fromhex(head))
    assert next(feed) == Message(Type.OK, 1)
    with pytest.raises(RemoteProtocolError, match=words) as caught:
        next(feed)
    assert caught.value.code == wire.Code.BAD_MESSAGE


def test_padding_is_not_looked_at() -> None:
    assert list(Receiver().feed(bytes.fromhex("47c0 0100 deadbeef 04000000"))) == [
        Message(Type.OK, 4)
    ]


def test_nothing_is_allocated_for_what_a_header_only_announces() -> None:
    receiver = Small()
    head = wire.HEADER.pack(wire.MAGIC, Type.UPDATE, 0, 64)
    assert list(receiver.feed(head + b"abc")) == []
    assert len(receiver._buffer) == len(head) + 3
    with pytest.raises(RemoteProtocolError):
        list(Small().feed(wire.HEADER.pack(wire.MAGIC, Type.UPDATE, 0, 65)))


@given(st.binary(max_size=300))
def test_random_bytes_are_messages_or_a_remote_mistake(data: bytes) -> None:
    for prefix in (b"", bytes.fromhex("47c0"), bytes.fromhex("47c00300000000000a000000")):
        try:
            list(Receiver().feed(prefix + data))
        except RemoteProtocolError:
            pass


@given(st.one_of(st.binary(max_size=100), st.just(b"\x91" * 100_000), st.just(b"\x81\xa1a" * 9000)))
def test_random_bodies_are_records_or_a_remote_mistake(body: bytes) -> None:
    for decode in (wire.decode_task, wire.decode_update):
        try:
            decode(body)
        except RemoteProtocolError:
            pass


@pytest.mark.parametrize("depth", [100, 100_000])
def test_record_that_is_deeper_than_python_counts_is_a_remote_mistake(depth: int) -> None:
    body = b"\x83\xa1x" + b"\x91" * depth + b"\xc0"
    with pytest.raises(RemoteProtocolError):
        wire.decode_update(body)


@pytest.mark.parametrize(
    "change",
    [
        {"JobId": -1},
        {"Task": -1},
        {"NewJob": {"NumProc": -1}},
        {"NewJob": {"NumProc": 65_536}},
        {"Success": "yes"},
        {"Status": b"\xff"},
        {"Task": 2**40},
    ],
)
def test_update_with_impossible_values_is_refused(change: dict[str, object]) -> None:
    update = {"JobId": 1, "Task": 1, "Success": True, "Status": "done", "NewJob": None}
    with pytest.raises(RemoteProtocolError):
        wire.decode_update(msgspec.msgpack.encode(update | change))


@pytest.mark.parametrize("change", [{"NumProc": 0}, {"NumProc": 70_000}, {"JobId": -2}])
def test_task_with_impossible_values_is_refused(change: dict[str, object]) -> None:
    description = msgspec.msgpack.decode(msgspec.msgpack.encode(JOB)) | change
    with pytest.raises(RemoteProtocolError):
        wire.decode_task(msgspec.msgpack.encode({"Task": 1, "JobDescription": description}))


def test_we_never_send_what_has_no_such_form() -> None:
    with pytest.raises(LocalProtocolError):
        wire.encode(Type.JOB, 3)
    with pytest.raises(LocalProtocolError):
        wire.encode(Type.OK, 2**32)
    with pytest.raises(LocalProtocolError):
        wire.encode_body(Type.OK, b"")
