"""A client's side of roundrobin: requests, repeated until they are answered, and counted."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.doors.roundrobin import frames as wire
from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import tables as rr
from queuedriver.doors.roundrobin.client import Effects, Ended, RoundRobinClient
from queuedriver.doors.roundrobin.frames import Message, decode, encode
from queuedriver.doors.table import Row, Table
from queuedriver.doors.words import Send
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

W = b"tcp://h:1:worker"
CARRIED = streams.pieces_of([(0, streams.SIZE)])


class Desk:
    """A client, and words for what happens to it."""

    def __init__(self, table: Table = rr.CLIENT) -> None:
        self.session = RoundRobinClient(table=table)
        self.now = 0.0
        self.id = b""
        self.last = Message(wire.PING, b"")
        self.writer = streams.Writer(b"12345678", CARRIED, part=700)

    def do(self, effects: Effects) -> Effects:
        for one in effects:
            if isinstance(one, Send):
                self.last = decode(one.frames)
                if self.last.key != wire.ONGOING:
                    self.id = self.last.id
        return effects

    def ping(self, tracked: bool = True) -> Effects:
        return self.do(self.session.ping(self.now, tracked))

    def exec(self) -> Effects:
        return self.ping(tracked=False)

    def knock(self) -> Effects:
        return self.do(self.session.knock(self.now))

    def stream(self) -> Effects:
        return self.do(self.session.stream(self.now))

    def hear(self, message: Message) -> Effects:
        return self.do(self.session.receive(encode(message), self.now, 0.0))

    def respond(self, *args: bytes, command: bytes = wire.RESPONSE) -> Effects:
        return self.hear(Message(command, self.id, args, (), (W,)))

    def part(self) -> Effects:
        return self.respond(streams.encode_part(self.writer.next()))

    def bad(self) -> Effects:
        return self.respond(b"nonsense")

    def pong(self) -> Effects:
        return self.respond(command=wire.PONG)

    def tracked_address(self) -> Effects:
        self.now = 4.0
        effects = self.respond(command=wire.TRACKADDRESS)
        assert self.session.next_tick_at() == (9.0 if not self.reading else 5.0)
        return effects

    @property
    def reading(self) -> bool:
        return self.session.state_of(self.id) == rr.READING

    def time_out(self) -> Effects:
        self.now += 5.0
        return self.do(self.session.tick(self.now, 0.0))

    def too_late(self) -> Effects:
        self.now += 15.0
        return self.do(self.session.tick(self.now, 0.0))


def nothing(desk: Desk) -> None:
    pass


def reading(desk: Desk) -> None:
    desk.stream()
    desk.part()


def half(desk: Desk) -> Effects:
    """A part, and more to come after it."""
    desk.writer = streams.Writer(b"12345678", CARRIED, part=400)
    return desk.part()


def reading_more(desk: Desk) -> None:
    desk.stream()
    half(desk)


Scene = Callable[[Desk], object]
SCENES: dict[tuple[str, str, str], tuple[Scene, Scene]] = {
    (rr.NEW, "ask", "EXEC"): (nothing, Desk.exec),
    (rr.NEW, "ask", "TRACKEXEC"): (nothing, Desk.ping),
    (rr.NEW, "ask", "PING"): (nothing, Desk.knock),
    (rr.WAITING, "RESPONSE", ""): (Desk.ping, Desk.respond),
    (rr.WAITING, "RESPONSE", "more to come"): (Desk.stream, Desk.part),
    (rr.WAITING, "RESPONSE", "bad"): (Desk.stream, Desk.bad),
    (rr.WAITING, "PONG", ""): (Desk.knock, Desk.pong),
    (rr.WAITING, "TRACKADDRESS", ""): (Desk.ping, Desk.tracked_address),
    (rr.WAITING, "time-out", ""): (Desk.ping, Desk.time_out),
    (rr.WAITING, "time-out", "too often"): (Desk.ping, Desk.too_late),
    (rr.READING, "RESPONSE", ""): (reading, Desk.part),
    (rr.READING, "RESPONSE", "more to come"): (reading_more, Desk.part),
    (rr.READING, "RESPONSE", "bad"): (reading, Desk.bad),
    (rr.READING, "TRACKADDRESS", ""): (reading, Desk.tracked_address),
    (rr.READING, "time-out", "too often"): (reading, Desk.too_late),
}
OVER = {rr.ANSWERED: (1, 1), rr.GIVEN_UP: (1, 0)}


@pytest.mark.parametrize("row", rr.CLIENT.rows, ids=lambda row: "-".join(row[:3]))
def test_each_row_of_the_table_is_reached_and_needed(row: Row) -> None:
    before, scene = SCENES[row.state, row.event, row.when]
    desk = Desk()
    before(desk)
    if row.state != rr.NEW:
        assert desk.session.state_of(desk.id) == row.state
    scene(desk)
    if row.to in OVER:
        assert len(desk.session) == 0
        (count,) = desk.session.counts.values()
        assert (count.total, count.success) == OVER[row.to]
    else:
        assert desk.session.state_of(desk.id) == row.to
    without = Desk(Table("without", [one for one in rr.CLIENT.rows if one != row]))
    with pytest.raises((RemoteProtocolError, LocalProtocolError)):
        [one(without) for one in (before, scene)]


def test_requests_have_exactly_these_frames() -> None:
    session = RoundRobinClient(serial=6)
    eight, four = b"\7" + bytes(7), b"\x09\0\0\0"
    assert session.ping(0.0) == [Send(b"", (b"", b"LMQv100", b"\x04", eight, b"\x01", b""))]
    ping, _ = session.ping(0.0, tracked=False)
    assert ping == Send(b"", (b"", b"LMQv100", b"\x03", b"\x08" + bytes(7), b"\x01", b""))
    assert session.stream(0.0) == [
        Send(b"", (b"", b"LMQv100", b"\x04", four, b"\x0a", b"STREAM_ID", b"1024", b""))
    ]


def test_more_is_asked_of_the_very_worker_that_sends() -> None:
    desk = Desk()
    desk.stream()
    desk.part()
    assert desk.last.hops == (W,)
    assert desk.last.args == (wire.MORE, b"STREAM_ID", b"12345678", b"0")
    (ended,) = desk.part()
    assert isinstance(ended, Ended)
    assert ended.good


def test_stream_that_goes_wrong_amid_is_told_so() -> None:
    desk = Desk()
    reading(desk)
    ended, _ = desk.bad()
    assert isinstance(ended, Ended)
    assert not ended.good
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
    assert ended == Ended(desk.id, "PING", good=False, why="no answer")
    assert desk.session.next_tick_at() is None


def test_request_that_nobody_waits_for_is_never_repeated() -> None:
    desk = Desk()
    desk.exec()
    assert desk.session.next_tick_at() is None
    assert desk.too_late() == []


def test_request_that_could_not_be_sent_is_repeated_soon() -> None:
    desk = Desk()
    desk.ping()
    desk.session.retry(desk.id, 0.0)
    assert desk.session.next_tick_at() == 0.05
    assert len(desk.session.tick(0.05, 0.0)) == 1
    desk.session.retry(b"other", 0.0)


def test_second_answer_and_a_stranger_s_are_ignored() -> None:
    desk = Desk()
    desk.ping()
    assert len(desk.respond()) == 1
    assert desk.respond() == []
    assert desk.hear(Message(wire.RESPONSE, b"other")) == []
    assert desk.session.counts["PING"].success == 1


def test_probe_is_answered() -> None:
    desk = Desk()
    desk.hear(Message(wire.PING, b"p"))
    assert desk.last == Message(wire.PONG, b"p")


@pytest.mark.parametrize(
    ("args", "good", "why"),
    [
        ((b"0", b"", b"out"), True, ""),
        ((b"65", b"not for me"), False, "not for me"),
        ((), False, "it was not processed"),
    ],
)
def test_document_is_good_when_it_was_processed(
    args: tuple[bytes, ...], good: bool, why: str
) -> None:
    desk = Desk()
    desk.do(desk.session.document("d", b"x", 0.0))
    assert desk.last.args == (wire.DOCUMENT, b"d", b"0", b"x")
    (ended,) = desk.respond(*args)
    assert ended == Ended(desk.id, "DOCUMENT", good, args, why)


PARTS = st.sampled_from(
    [b"", b"", wire.VERSION, *sorted(wire.COMMANDS), b"2R\x0812345678", b"0Z\0", b"q", W]
)


@given(st.lists(st.lists(PARTS, max_size=8), max_size=12))
def test_whatever_frames_come_a_client_goes_on(came: list[list[bytes]]) -> None:
    desk = Desk()
    for begin in (desk.ping, desk.stream, desk.knock):
        begin()
        for frames in came:
            for made in (frames, [desk.id if one == b"q" else one for one in frames]):
                try:
                    desk.do(desk.session.receive(made, 0.0, 0.0))
                except RemoteProtocolError:
                    continue
