"""A client's side of roundrobin: requests, repeated until they are answered."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin.client import Client
from queuedriver.doors.roundrobin.wire import Message, decode, encode
from queuedriver.doors.words import Effects, Ended, Result, Send
from queuedriver.errors import RemoteProtocolError

W = b"tcp://h:1:worker"
CARRIED = streams.pieces_of([(0, streams.SIZE)])


class Desk:
    """A client, and words for what happens to it."""

    def __init__(self) -> None:
        self.session = Client()
        self.now = 0.0
        self.id = b""
        self.last = Message(wire.PING, b"")
        self.parts = iter(streams.parts_of(b"12345678", CARRIED, part=700))

    def do(self, effects: Effects) -> Effects:
        for one in effects:
            if isinstance(one, Send):
                self.last = decode(one.frames)
                if self.last.key != wire.ONGOING:
                    self.id = self.last.id
        return effects

    def ping(self) -> Effects:
        return self.do(self.session.ping(self.now)[1])

    def exec(self) -> Effects:
        return self.do(self.session.ping(self.now, tracked=False)[1])

    def stream(self) -> Effects:
        return self.do(self.session.stream(self.now)[1])

    def hear(self, message: Message) -> Effects:
        return self.do(self.session.hear(b"", encode(message), self.now, 0.0))

    def respond(self, *args: bytes, command: bytes = wire.RESPONSE) -> Effects:
        return self.hear(Message(command, self.id, args, (), (W,)))

    def part(self) -> Effects:
        return self.respond(streams.encode_part(next(self.parts)))

    def bad(self) -> Effects:
        return self.respond(b"nonsense")

    def pong(self) -> Effects:
        return self.respond(command=wire.PONG)

    def tracked_address(self) -> Effects:
        self.now = 4.0
        effects = self.respond(command=wire.TRACKADDRESS)
        assert self.session.next_tick_at() == 9.0
        return effects

    def time_out(self) -> Effects:
        self.now += 5.0
        return self.do(self.session.tick(self.now, 0.0))

    def too_late(self) -> Effects:
        self.now += 15.0
        return self.do(self.session.tick(self.now, 0.0))


def reading(desk: Desk) -> None:
    desk.stream()
    desk.part()


def half(desk: Desk) -> Effects:
    """A part, and more to come after it."""
    desk.parts = iter(streams.parts_of(b"12345678", CARRIED, part=400))
    return desk.part()


def reading_more(desk: Desk) -> None:
    desk.stream()
    half(desk)


Scene = Callable[[Desk], object]


@pytest.mark.parametrize(
    ("before", "scene", "goes_on"),
    [
        (Desk.exec, Desk.respond, True),
        (Desk.exec, Desk.pong, False),
        (Desk.exec, Desk.time_out, True),
        (Desk.exec, Desk.too_late, False),
        (Desk.ping, Desk.pong, True),
        (Desk.ping, Desk.respond, False),
        (Desk.ping, Desk.tracked_address, True),
        (Desk.ping, Desk.time_out, True),
        (Desk.ping, Desk.too_late, False),
        (Desk.stream, Desk.part, True),
        (Desk.stream, Desk.bad, False),
        (reading, Desk.part, False),
        (reading_more, Desk.part, True),
        (reading, Desk.bad, False),
        (reading, Desk.tracked_address, True),
        (reading, Desk.time_out, True),
        (reading, Desk.too_late, False),
    ],
)
def test_request_is_under_way_until_it_is_answered_or_given_up(
    before: Scene, scene: Scene, goes_on: bool
) -> None:
    desk = Desk()
    before(desk)
    assert len(desk.session.under_way) == 1
    scene(desk)
    assert bool(desk.session.under_way) == goes_on


def test_requests_have_exactly_these_frames() -> None:
    session = Client(serial=6)
    eight, four = b"\7" + bytes(7), b"\x09\0\0\0"
    assert session.ping(0.0)[1] == [Send(b"", (b"", b"LMQv100", b"\x04", eight, b"\x01", b""))]
    again = b"\x08" + bytes(7)
    assert session.ping(0.0, tracked=False)[1] == [
        Send(b"", (b"", b"LMQv100", b"\x03", again, b"\x01", b"")),
        Send(b"", (b"", b"LMQv100", b"\x01", again, b"")),
    ]
    assert session.stream(0.0)[1] == [
        Send(b"", (b"", b"LMQv100", b"\x04", four, b"\x0a", b"STREAM_ID", b"1024", b""))
    ]


def test_more_is_asked_of_the_very_worker_that_sends() -> None:
    desk = Desk()
    desk.stream()
    desk.part()
    assert desk.last.hops == (W,)
    assert desk.last.args == (wire.MORE, b"STREAM_ID", b"12345678", b"0")
    (ended,) = desk.part()
    assert ended == Ended(desk.id)


def test_stream_that_goes_wrong_amid_is_told_so() -> None:
    desk = Desk()
    reading(desk)
    ended, _ = desk.bad()
    assert isinstance(ended, Ended)
    assert ended.why
    assert desk.last.args == (wire.MORE, b"STREAM_ID", b"12345678", b"1")


def test_reader_of_a_slow_stream_says_that_it_still_reads() -> None:
    desk = Desk()
    reading(desk)
    desk.now = desk.session.next_tick_at() or 0.0
    desk.do(desk.session.tick(desk.now, 0.0))
    assert desk.now == 5.0
    assert (desk.last.hops, desk.last.args) == ((W,), (wire.ONGOING, b"STREAM_ID"))


def test_unanswered_request_is_repeated_as_it_was_and_given_up_in_the_end() -> None:
    desk = Desk()
    first = desk.ping()
    assert desk.time_out() == first
    assert desk.time_out() == first
    (ended,) = desk.time_out()
    assert ended == Ended(desk.id, why="there was no answer")
    assert desk.session.next_tick_at() is None


def test_request_that_nobody_waits_for_is_over_when_what_was_sent_behind_it_is_answered() -> None:
    desk = Desk()
    desk.exec()
    # Only that is repeated: the request is done at most once.
    assert desk.time_out() == [Send(b"", encode(Message(wire.PING, desk.id)))]
    assert desk.pong() == [Ended(desk.id)]
    assert desk.session.next_tick_at() is None


def test_request_that_nobody_waits_for_has_not_arrived_when_nobody_answers() -> None:
    desk = Desk()
    desk.exec()
    assert desk.too_late() == [Ended(desk.id, why="there was no answer")]


def test_second_answer_and_a_stranger_s_are_ignored() -> None:
    desk = Desk()
    desk.ping()
    assert len(desk.respond()) == 1
    assert desk.respond() == []
    assert desk.hear(Message(wire.RESPONSE, b"other")) == []


def test_probe_is_answered() -> None:
    desk = Desk()
    desk.hear(Message(wire.PING, b"p"))
    assert desk.last == Message(wire.PONG, b"p")


@pytest.mark.parametrize(
    ("args", "results", "why"),
    [
        ((b"0", b"", b"out"), (Result(b"out"),), ""),
        ((b"0", b"a", b"1", b"b", b"2"), (Result(b"1", "a"), Result(b"2", "b")), ""),
        ((b"65", b"not for me"), (), "not for me"),
        ((b"75", b"later"), (), "later"),
        ((), (), "an answer of status '' and 0 frames"),
    ],
)
def test_end_of_a_document_is_what_came_of_it(
    args: tuple[bytes, ...], results: tuple[Result, ...], why: str
) -> None:
    desk = Desk()
    desk.do(desk.session.ask("d", b"x", 0.0)[1])
    assert desk.last.args == (wire.DOCUMENT, b"d", b"0", b"x")
    assert desk.respond(*args) == [Ended(desk.id, results, why)]


@pytest.mark.parametrize("ask", [Desk.ping, Desk.stream])
def test_request_that_its_broker_discarded_is_over_and_says_why(
    ask: Callable[[Desk], Effects],
) -> None:
    desk = Desk()
    ask(desk)
    (ended,) = desk.respond(b"1", b"it failed too often")
    assert isinstance(ended, Ended)
    assert ended.why


PARTS = st.sampled_from(
    [b"", b"", wire.VERSION, *sorted(wire.COMMANDS), b"2R\x0812345678", b"0Z\0", b"q", W]
)


@given(st.lists(st.lists(PARTS, max_size=8), max_size=12))
def test_whatever_frames_come_a_client_goes_on(came: list[list[bytes]]) -> None:
    desk = Desk()
    for begin in (desk.ping, desk.stream, desk.exec):
        begin()
        for frames in came:
            for made in (frames, [desk.id if one == b"q" else one for one in frames]):
                try:
                    desk.do(desk.session.hear(b"", made, 0.0, 0.0))
                except RemoteProtocolError:
                    continue
