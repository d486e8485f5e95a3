"""roundrobin's messages as frames: what is one, what is none, and what a document becomes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Failed, Postponed, Released, Setback
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin.wire import (
    MAX_RESULTS,
    Message,
    answer_of,
    decode,
    document_of,
    encode,
    outcome_of,
    question,
    refusal_of,
)
from queuedriver.doors.words import Processed, Result, Work
from queuedriver.errors import LocalProtocolError, RemoteProtocolError
from queuedriver.format.records import Failure

ADDRESS = st.binary(min_size=1, max_size=40)
WAY = st.lists(ADDRESS, max_size=8).map(tuple)
MESSAGES = st.builds(
    Message,
    command=st.sampled_from(sorted(wire.COMMANDS)),
    id=st.binary(max_size=20),
    args=st.lists(st.binary(max_size=30), max_size=30).map(tuple),
    hops=WAY,
    senders=WAY,
)
# Frames that are often right, so that what is wrong with a message is seldom all of it.
FRAMES = st.lists(
    st.one_of(
        st.just(b""),
        st.just(wire.VERSION),
        st.sampled_from(sorted(wire.COMMANDS)),
        st.binary(max_size=12),
    ),
    max_size=70,
)


@pytest.mark.parametrize(
    ("message", "frames"),
    [
        (
            Message(wire.TRACKEXEC, b"\1\2\3\4", (wire.REGISTER, b"10"), (b"tcp://h:1",)),
            [b"tcp://h:1", b"", b"LMQv100", b"\x04", b"\1\2\3\4", b"\x08", b"10", b""],
        ),
        (
            Message(wire.EXEC, b"WORKER", (wire.DEREGISTER,), (b"s",)),
            [b"s", b"", b"LMQv100", b"\x03", b"WORKER", b"\x09", b""],
        ),
        (
            Message(wire.RESPONSE, b"id", (), (b"broker", b"client")),
            [b"broker", b"client", b"", b"LMQv100", b"\x06", b"id", b""],
        ),
        (
            Message(wire.TRACKEXEC, b"id", (wire.STREAM, b"STREAM_ID", b"1024"), (), (b"c",)),
            [b"", b"LMQv100", b"\x04", b"id", b"\x0a", b"STREAM_ID", b"1024", b"", b"c"],
        ),
        (Message(wire.PING, b"i"), [b"", b"LMQv100", b"\x01", b"i", b""]),
        (Message(wire.PONG, b"i"), [b"", b"LMQv100", b"\x02", b"i", b""]),
        (Message(wire.TRACKADDRESS, b"i"), [b"", b"LMQv100", b"\x05", b"i", b""]),
        (
            Message(wire.EXEC, b"i", (wire.INCREMENT,)),
            [b"", b"LMQv100", b"\x03", b"i", b"\x07", b""],
        ),
    ],
)
def test_message_has_exactly_these_frames(message: Message, frames: list[bytes]) -> None:
    assert list(encode(message)) == frames
    assert decode(frames) == message


@given(MESSAGES)
def test_what_is_sent_is_what_is_received(message: Message) -> None:
    assert decode(encode(message)) == message


@given(MESSAGES, ADDRESS)
def test_each_hop_takes_its_address_off_the_front_and_puts_the_senders_at_the_end(
    message: Message, sender: bytes
) -> None:
    arrived = [*encode(message)]
    if len(message.senders) == wire.MAX_HOPS:
        with pytest.raises(RemoteProtocolError):
            decode(arrived, sender)
        return
    seen = decode(arrived, sender)
    assert seen.senders == (*message.senders, sender)
    assert seen.way_home[0] == sender


@given(FRAMES)
def test_frames_are_a_message_or_a_remote_protocol_error(frames: list[bytes]) -> None:
    try:
        message = decode(frames)
    except RemoteProtocolError:
        return
    assert list(encode(message)) == frames


@given(MESSAGES, st.data())
def test_message_with_frames_dropped_added_repeated_or_reordered_is_one_or_an_error(
    message: Message, data: st.DataObject
) -> None:
    frames = list(encode(message))
    at = data.draw(st.integers(0, len(frames) - 1))
    other = data.draw(st.integers(0, len(frames) - 1))
    match data.draw(st.sampled_from(["drop", "add", "repeat", "swap"])):
        case "drop":
            del frames[at]
        case "add":
            frames.insert(at, data.draw(st.binary(max_size=9)))
        case "repeat":
            frames.insert(at, frames[at])
        case "swap":
            frames[at], frames[other] = frames[other], frames[at]
    try:
        seen = decode(frames)
    except RemoteProtocolError:
        return
    assert list(encode(seen)) == frames


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([], "without an empty frame"),
        ([b"a"], "without an empty frame"),
        ([b"a", b""], "ends with its addresses"),
        ([b"", b"LMQv101", b"\x01", b"i", b""], "version"),
        ([b"", b"LMQv100", b"\x0c", b"i", b""], "no command"),
        ([b"", b"LMQv100", b"", b"i", b""], "no command"),
        ([b"", b"LMQv100", b"\x01", b"i"], "without a command"),
        ([b"", b"LMQv100", b"\x01", b""], "without a command"),
        ([b"h"] * 9 + [b"", b"LMQv100", b"\x01", b"i", b""], "hops"),
        ([b"", b"LMQv100", b"\x01", b"i", b""] + [b"h"] * 9, "hops"),
        ([b""] * 65, "65 frames"),
    ],
)
def test_malformed_message_is_refused_in_words(frames: list[bytes], words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        decode(frames)


def test_message_that_would_be_too_long_with_its_sender_is_refused_at_once() -> None:
    frames = [b"", b"LMQv100", b"\x01", b"i", *[b"a"] * 59, b""]
    assert len(decode(frames).args) == 59
    with pytest.raises(RemoteProtocolError, match="frames"):
        decode(frames, b"sender")


@pytest.mark.parametrize(
    "message",
    [
        Message(b"\x0c", b"i"),
        Message(wire.PING, b"i", hops=(b"",)),
        Message(wire.PING, b"i", senders=(b"",)),
        Message(wire.PING, b"i", hops=(b"h",) * 9),
        Message(wire.PING, b"i", args=(b"a",) * 60),
    ],
)
def test_we_cannot_send_what_our_peer_may_not_get(message: Message) -> None:
    with pytest.raises(LocalProtocolError):
        encode(message)


@given(st.lists(ADDRESS, max_size=4), st.binary(max_size=9), st.lists(ADDRESS, max_size=4))
def test_two_return_paths_with_ids_have_one_key_only_when_they_are_the_same(
    way: list[bytes], identifier: bytes, other: list[bytes]
) -> None:
    same = wire.key_of(way, identifier) == wire.key_of(other, identifier)
    assert same == (way == other)
    assert wire.key_of([*way, identifier], b"") != wire.key_of(way, identifier)


def test_key_of_a_long_id_is_short() -> None:
    long = wire.key_of((b"w",), b"x" * 100_000)
    assert len(long) <= 512
    assert long != wire.key_of((b"w",), b"x" * 100_001)


@pytest.mark.parametrize("slots", [b"", b"x", b"-1", b"1.5", b" 3", b"1_0", b"9" * 8, b"1000001"])
def test_register_with_slots_that_are_no_number_is_refused(slots: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="slots"):
        wire.slots_of(Message(wire.TRACKEXEC, b"i", (wire.REGISTER, slots)))


@pytest.mark.parametrize(("slots", "count"), [(b"0", 0), (b"10", 10), (b"1000000", 1_000_000)])
def test_slots_are_ascii_digits(slots: bytes, count: int) -> None:
    assert wire.slots_of(Message(wire.TRACKEXEC, b"i", (wire.REGISTER, slots))) == count


def test_register_without_slots_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        wire.slots_of(Message(wire.TRACKEXEC, b"i", (wire.REGISTER,)))


@given(st.frozensets(st.binary(max_size=40), max_size=5))
def test_what_a_worker_has_in_hand_is_understood(keys: frozenset[bytes]) -> None:
    args = (wire.REGISTER, b"10", wire.in_hand(keys))
    assert wire.in_hand_of(Message(wire.TRACKEXEC, b"i", args)) == keys


@given(st.binary(max_size=30))
def test_whatever_is_said_to_be_in_hand_raises_nothing(packed: bytes) -> None:
    wire.in_hand_of(Message(wire.TRACKEXEC, b"i", (wire.REGISTER, b"10", packed)))


# Documents

NAMES = st.text(st.characters(codec="utf-8"), max_size=10)
RESULTS = st.lists(st.builds(Result, data=st.binary(max_size=9), name=st.none() | NAMES))


@given(NAMES, st.integers(0, 999), st.binary(max_size=30))
def test_document_arrives_as_it_was(docid: str, attempt: int, payload: bytes) -> None:
    message = question(Work("driver-1", docid, attempt, payload))
    assert message.id == b"driver-1"
    assert document_of(decode(encode(message)), "mine") == Work("mine", docid, attempt, payload)


@given(st.lists(st.binary(max_size=9), max_size=6))
def test_document_that_is_none_is_not_taken_for_one(args: list[bytes]) -> None:
    message = Message(wire.TRACKEXEC, b"i", (wire.DOCUMENT, *args))
    work = document_of(message, "mine")
    assert work is None or len(args) == 3


@given(RESULTS.filter(lambda results: len(results) <= MAX_RESULTS))
def test_outputs_arrive_as_they_were(results: list[Result]) -> None:
    args = decode(encode(Message(wire.RESPONSE, b"i", answer_of(results)))).args
    named = tuple(Result(one.data, one.name or None) for one in results)
    assert outcome_of(args) == Processed(named)


def test_empty_output_without_a_name_is_one() -> None:
    args = decode(encode(Message(wire.RESPONSE, b"i", answer_of([Result(b"")])))).args
    assert outcome_of(args) == Processed((Result(b""),))


def test_more_outputs_than_fit_fail_the_document_in_words() -> None:
    outcome = outcome_of(answer_of([Result(b"x")] * (MAX_RESULTS + 1)))
    assert isinstance(outcome, Failed)
    assert outcome.failure.permanent
    assert "25 outputs" in outcome.failure.message


FAILURE = Failure(cause="exit", message="it broke", traceback="line 1")


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (Failed(FAILURE), b"1"),
        (Failed(Failure(cause="permanent", message="never", permanent=True)), b"65"),
        (Postponed(90.0, "busy"), b"75"),
        (Released("leaving"), b"75"),
    ],
)
def test_set_back_arrives_as_it_was(how: Setback, status: bytes) -> None:
    args = refusal_of(how)
    assert args[0] == status
    assert outcome_of(args) == how


@pytest.mark.parametrize(("after", "seconds"), [(0.0, b"1"), (0.2, b"1"), (1.5, b"2")])
def test_later_is_never_said_as_at_once(after: float, seconds: bytes) -> None:
    assert refusal_of(Postponed(after, "x"))[2] == seconds


def test_later_without_an_end_is_bounded() -> None:
    outcome = outcome_of(refusal_of(Postponed(math.inf, "x")))
    assert isinstance(outcome, Postponed)
    assert outcome.after <= 366 * 24 * 3600


def test_answer_as_short_as_it_may_be_is_understood() -> None:
    assert outcome_of((b"75",)) == Postponed(60.0, "")
    failed = outcome_of((b"65", b"no"))
    assert failed == Failed(Failure(cause="exception", message="no", permanent=True))
    assert outcome_of((b"0",)) == Processed(())


@given(st.lists(st.binary(max_size=9), max_size=6))
def test_any_answer_ends_the_document_somehow(args: list[bytes]) -> None:
    for status in (b"0", b"1", b"65", b"75", b""):
        outcome_of((status, *args))
    outcome_of(args)


@pytest.mark.parametrize("args", [(), (b"0", b"name"), (b"2",), (b"0", b"\xff", b"data")])
def test_answer_that_is_none_fails_the_document(args: tuple[bytes, ...]) -> None:
    outcome = outcome_of(args)
    assert isinstance(outcome, Failed)
    assert outcome.failure.cause == "bad-answer"
