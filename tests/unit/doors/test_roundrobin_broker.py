"""The broker's side of roundrobin: who is dealt what, and what becomes of what they answer."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Failed, Released
from queuedriver.doors.roundrobin import frames as wire
from queuedriver.doors.roundrobin import tables as rr
from queuedriver.doors.roundrobin.broker import RoundRobinBroker
from queuedriver.doors.roundrobin.frames import Message, decode, encode
from queuedriver.doors.table import Row, Table
from queuedriver.doors.words import (
    Answered,
    Asked,
    Done,
    Effect,
    Effects,
    Lost,
    Request,
    Result,
    Say,
    Send,
    SetBack,
    Work,
)
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

W, V, C = b"tcp://h:1:worker", b"tcp://h:1:other", b"tcp://h:1:client"


def said_apart(effects: Effects) -> list[Effect]:
    """What is to be done, without what is only said."""
    return [one for one in effects if not isinstance(one, Say)]


class Office:
    """A broker, and words for what happens to it."""

    def __init__(self, options: rr.Options | None = None, table: Table = rr.BROKER) -> None:
        self.session = RoundRobinBroker(options, table)
        self.now = 0.0

    def hear(self, peer: bytes, message: Message) -> list[Effect]:
        return said_apart(self.session.receive(peer, encode(message), self.now, 0.0))

    def register(self, worker: bytes = W, slots: int = 10, id: bytes = b"reg1") -> list[Effect]:
        return self.hear(worker, Message(wire.TRACKEXEC, id, (wire.REGISTER, b"%d" % slots)))

    def deregister(self, worker: bytes = W) -> list[Effect]:
        return self.hear(worker, Message(wire.EXEC, b"WORKER", (wire.DEREGISTER,)))

    def increment(self, worker: bytes = W) -> list[Effect]:
        return self.hear(worker, Message(wire.EXEC, b"i", (wire.INCREMENT,)))

    def deal(self, claim: str = "c", request: Request | None = None) -> list[Effect]:
        work = Work(claim, f"doc-{claim}", 0, b"payload", request=request)
        return said_apart(self.session.deal(work, self.now))

    def dealt_to(self, claim: str) -> bytes:
        (send,) = self.deal(claim)
        assert isinstance(send, Send)
        return send.peer

    def answer(self, worker: bytes = W, claim: str = "c", *args: bytes) -> list[Effect]:
        args = args or (b"0", b"", b"out")
        return self.hear(worker, Message(wire.RESPONSE, claim.encode(), args))

    def ask(self, id: bytes = b"q1", client: bytes = C, command: bytes = wire.TRACKEXEC) -> Request:
        (asked,) = self.hear(client, Message(command, id, (wire.PING,)))
        assert isinstance(asked, Asked)
        return asked.request

    def respond(self, worker: bytes = W, id: bytes = b"q1", client: bytes = C) -> list[Effect]:
        return self.hear(worker, Message(wire.RESPONSE, id, hops=(client,)))

    def free(self, worker: bytes = W) -> int:
        return {seen.address: seen.free_slots for seen in self.session.workers()}[worker]


# Tables: each row is reached, and its absence would be noticed


def unknown(office: Office) -> None:
    pass


def registered(office: Office) -> None:
    office.register()


def registered_busy(office: Office) -> None:
    office.register()
    office.deal()


def registered_asked(office: Office) -> None:
    office.register()
    office.deal(request=office.ask())


def leaving(office: Office) -> None:
    registered_busy(office)
    office.deregister()


def leaving_twice(office: Office) -> None:
    registered_busy(office)
    office.deal("d")
    office.deregister()


def leaving_asked(office: Office) -> None:
    registered_asked(office)
    office.deregister()


def leaving_asked_twice(office: Office) -> None:
    registered_asked(office)
    office.deal("d")
    office.deregister()


def ping(office: Office) -> None:
    assert office.hear(W, Message(wire.PING, b"p")) == [Send(W, encode(Message(wire.PONG, b"p")))]


def pong(office: Office) -> None:
    assert office.hear(W, Message(wire.PONG, b"p")) == []


def request_of_it(office: Office) -> None:
    office.ask(client=W)


def register_fully(office: Office) -> None:
    office.session = RoundRobinBroker(rr.Options(max_workers=1), office.session._table)
    office.register(V)
    assert office.register() == []


def pass_to_worker(office: Office) -> None:
    office.register(V)
    office.hear(W, Message(wire.TRACKEXEC, b"m", (wire.MORE,), hops=(V,)))


def pass_given(office: Office) -> None:
    office.hear(C, Message(wire.TRACKEXEC, b"m", (wire.MORE,), hops=(W,)))
    assert office.respond(id=b"m") == [Send(C, encode(Message(wire.RESPONSE, b"m", senders=(W,))))]


def pass_late(office: Office) -> None:
    """Its request is in other hands meanwhile, and it is given the same way home again."""
    office.register(V, 2)
    office.deal("d")
    office.hear(C, Message(wire.TRACKEXEC, b"m", (wire.MORE,), hops=(W,)))
    office.hear(C, Message(wire.TRACKEXEC, b"m", (wire.MORE,), hops=(V,)))
    request = office.ask(b"q2")
    (send,) = office.deal("e", request)
    assert isinstance(send, Send)
    assert send.peer == V
    assert office.respond(W, b"q2") == []


def answered(office: Office) -> None:
    (answer,) = office.respond()
    assert answer == Answered("c", C, encode(Message(wire.RESPONSE, b"q1", senders=(W,))))


def lose(office: Office) -> None:
    office.now = 1.0
    office.session.tick(office.now)
    assert said_apart(office.session.gone(W, office.now)) == [Lost(W, ("c",), "unroutable")]


def lose_idle(office: Office) -> None:
    assert said_apart(office.session.gone(W, 0.0)) == [Lost(W, (), "unroutable")]


def call(office: Office) -> None:
    (send,) = office.increment()
    assert isinstance(send, Send)
    assert decode(send.frames).args == (wire.REGISTER,)


def late(office: Office) -> None:
    office.answer(claim="other")


def late_unknown(office: Office) -> None:
    (send,) = office.answer(claim="other")
    assert isinstance(send, Send)
    assert decode(send.frames).args == (wire.REGISTER,)


def end(office: Office) -> None:
    assert office.answer() == [Done("c", (Result(b"out"),))]


Scene = Callable[[Office], object]
SCENES: dict[tuple[str, str, str], tuple[Scene, Scene]] = {
    (rr.UNKNOWN, "REGISTER", ""): (unknown, Office.register),
    (rr.UNKNOWN, "REGISTER", "no room"): (unknown, register_fully),
    (rr.UNKNOWN, "DEREGISTER", ""): (unknown, Office.deregister),
    (rr.UNKNOWN, "INCREMENT", ""): (unknown, call),
    (rr.UNKNOWN, "RESPONSE", "late"): (unknown, late_unknown),
    (rr.UNKNOWN, "PONG", ""): (unknown, pong),
    (rr.UNKNOWN, "PING", ""): (unknown, ping),
    (rr.UNKNOWN, "request", ""): (unknown, request_of_it),
    (rr.UNKNOWN, "pass", "to a worker"): (unknown, pass_to_worker),
    (rr.REGISTERED, "REGISTER", ""): (registered, Office.register),
    (rr.REGISTERED, "DEREGISTER", ""): (registered, Office.deregister),
    (rr.REGISTERED, "DEREGISTER", "in hand"): (registered_busy, Office.deregister),
    (rr.REGISTERED, "INCREMENT", ""): (registered_busy, Office.increment),
    (rr.REGISTERED, "RESPONSE", "in hand"): (registered_busy, end),
    (rr.REGISTERED, "RESPONSE", "late"): (registered, late),
    (rr.REGISTERED, "PONG", ""): (registered, pong),
    (rr.REGISTERED, "PING", ""): (registered, ping),
    (rr.REGISTERED, "request", ""): (registered, request_of_it),
    (rr.REGISTERED, "pass", "given"): (registered, pass_given),
    (rr.REGISTERED, "pass", "answer"): (registered_asked, answered),
    (rr.REGISTERED, "pass", "late"): (registered_busy, pass_late),
    (rr.REGISTERED, "deal", ""): (registered, Office.deal),
    (rr.REGISTERED, "lost", ""): (registered, lose_idle),
    (rr.LEAVING, "REGISTER", ""): (leaving, Office.register),
    (rr.LEAVING, "DEREGISTER", ""): (leaving, Office.deregister),
    (rr.LEAVING, "INCREMENT", ""): (leaving, Office.increment),
    (rr.LEAVING, "RESPONSE", "in hand"): (leaving_twice, end),
    (rr.LEAVING, "RESPONSE", "last"): (leaving, end),
    (rr.LEAVING, "RESPONSE", "late"): (leaving, late),
    (rr.LEAVING, "PONG", ""): (leaving, pong),
    (rr.LEAVING, "PING", ""): (leaving, ping),
    (rr.LEAVING, "request", ""): (leaving, request_of_it),
    (rr.LEAVING, "pass", "given"): (leaving, pass_given),
    (rr.LEAVING, "pass", "answer"): (leaving_asked_twice, answered),
    (rr.LEAVING, "pass", "last"): (leaving_asked, answered),
    (rr.LEAVING, "pass", "late"): (leaving, pass_late),
    (rr.LEAVING, "lost", ""): (leaving, lose),
}


@pytest.mark.parametrize("row", rr.BROKER.rows, ids=lambda row: "-".join(row[:3]))
def test_each_row_of_the_table_is_reached_and_needed(row: Row) -> None:
    before, scene = SCENES[row.state, row.event, row.when]
    office = Office()
    before(office)
    assert office.session.state_of(W) == row.state
    scene(office)
    assert office.session.state_of(W) == row.to
    without = Office(table=Table("without", [one for one in rr.BROKER.rows if one != row]))
    with pytest.raises((RemoteProtocolError, LocalProtocolError)):
        [one(without) for one in (before, scene)]


# Registration


def test_register_is_answered_with_its_id_and_nothing_more() -> None:
    (send,) = Office().register(id=b"\0\1")
    assert send == Send(W, (b"", b"LMQv100", b"\x06", b"\0\1", b""))


def test_register_as_exec_is_not_answered() -> None:
    office = Office()
    assert office.hear(W, Message(wire.EXEC, b"i", (wire.REGISTER, b"3"))) == []
    assert office.free() == 3


def test_registering_again_sets_the_slots_less_what_is_in_hand() -> None:
    office = Office()
    office.register(slots=3)
    office.deal("a")
    office.deal("b")
    office.register(slots=5)
    assert office.free() == 3
    office.register(slots=1)
    assert office.free() == 0
    assert not office.session.ready()
    office.answer(W, "a")
    office.increment()
    assert office.free() == 0
    office.answer(W, "b")
    office.increment()
    assert office.free() == 1


def test_deregistering_worker_still_answers_what_it_has_and_is_given_nothing() -> None:
    office = Office()
    office.register()
    office.deal()
    office.deregister()
    assert not office.session.ready()
    assert office.session.workers() == ()
    assert office.answer() == [Done("c", (Result(b"out"),))]
    assert office.session.state_of(W) == rr.UNKNOWN


def test_client_of_a_deregistered_worker_gets_its_answer() -> None:
    office = Office()
    leaving_asked(office)
    (answer,) = office.respond()
    assert isinstance(answer, Answered)


def test_worker_that_deregistered_and_is_gone_is_lost_with_what_it_had() -> None:
    office = Office()
    leaving(office)
    office.now = 2.0
    office.session.tick(2.0)
    assert said_apart(office.session.gone(W, 2.0)) == [Lost(W, ("c",), "unroutable")]


# Slots


def test_increment_never_gives_more_slots_than_registered() -> None:
    office = Office()
    office.register(slots=2)
    for _ in range(5):
        office.increment()
    assert office.free() == 2


def test_answer_frees_no_slot_and_increment_does() -> None:
    office = Office()
    office.register(slots=1)
    office.deal()
    office.answer()
    assert not office.session.ready()
    office.increment()
    assert office.session.ready()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["register", "deregister", "increment", "deal", "answer", "ask", "gone"]),
        st.sampled_from([W, V]),
        st.integers(0, 4),
    ),
    max_size=40,
)


@given(STEPS)
def test_free_slots_are_never_below_none_nor_above_the_limit(
    steps: list[tuple[str, bytes, int]],
) -> None:
    office = Office()
    limits: dict[bytes, int] = {}
    in_hand: dict[str, bytes] = {}
    for at, (step, worker, slots) in enumerate(steps):
        claim = f"c{at}"
        match step:
            case "register":
                office.register(worker, slots)
                limits[worker] = slots
            case "deregister":
                office.deregister(worker)
            case "increment":
                office.increment(worker)
            case "deal" if office.session.ready():
                in_hand[claim] = office.dealt_to(claim)
            case "answer" if in_hand:
                dealt, holder = in_hand.popitem()
                office.answer(holder, dealt)
            case "ask" if office.session.ready():
                office.deal(claim, office.ask(claim.encode(), command=wire.EXEC))
            case "gone":
                office.session.gone(worker, office.now)
        for seen in office.session.workers():
            assert 0 <= seen.free_slots <= limits[seen.address]


# Dealing


def test_document_goes_out_as_a_trackexec_of_ours_named_by_its_claim() -> None:
    office = Office()
    office.register()
    (send,) = office.deal("driver-0a")
    frames = (
        b"",
        b"LMQv100",
        b"\x04",
        b"driver-0a",
        b"\x0b",
        b"doc-driver-0a",
        b"0",
        b"payload",
        b"",
    )
    assert send == Send(W, frames, "driver-0a")


def test_workers_take_turns_by_when_they_were_dealt_to_and_full_ones_are_skipped_in_place() -> None:
    office = Office()
    a, b, c = b"a", b"b", b"c"
    office.register(a, 2)
    office.register(b, 1)
    office.register(c, 2)
    assert [office.dealt_to(str(n)) for n in range(5)] == [a, b, c, a, c]
    assert not office.session.ready()
    # b was dealt to before the others: when it has a slot again, its turn comes first.
    for worker in (c, a, b):
        office.increment(worker)
    assert [office.dealt_to(str(n)) for n in range(5, 8)] == [b, a, c]


def test_ending_a_document_does_not_change_whose_turn_it_is() -> None:
    office = Office()
    office.register(W)
    office.register(V)
    assert office.dealt_to("1") == W
    assert office.dealt_to("2") == V
    office.answer(V, "2")
    office.increment(V)
    assert office.dealt_to("3") == W


def test_without_a_free_slot_nobody_is_ready_and_a_document_is_given_back() -> None:
    office = Office()
    assert not office.session.ready()
    assert office.deal() == [SetBack("c", Released("no worker has a free slot"))]
    office.register(slots=0)
    assert not office.session.ready()


def test_document_is_ready_to_be_dealt_the_moment_a_slot_is_free() -> None:
    office = Office()
    office.register(slots=1)
    office.deal("a")
    assert not office.session.ready()
    office.increment()
    assert office.session.ready()


# Answers


def test_failed_document_is_charged_with_what_its_worker_said() -> None:
    office = Office()
    registered_busy(office)
    (end,) = office.answer(W, "c", b"1", b"it broke", b"exit")
    assert isinstance(end, SetBack)
    assert isinstance(end.how, Failed)
    assert (end.how.failure.cause, end.how.failure.message) == ("exit", "it broke")


def test_document_is_ended_by_the_worker_that_has_it_and_only_once() -> None:
    office = Office()
    office.register(W)
    office.register(V)
    office.deal()
    assert office.answer(V) == []
    assert office.answer(W) == [Done("c", (Result(b"out"),))]
    assert office.answer(W) == []


def test_late_answer_of_a_lost_worker_is_dropped_and_it_is_asked_to_register() -> None:
    office = Office()
    registered_busy(office)
    office.now = 9.0
    office.session.tick(9.0)
    office.session.gone(W, 9.0)
    office.register(V)
    assert office.dealt_to("c2") == V
    (call,) = office.answer(W)
    assert isinstance(call, Send)
    assert decode(call.frames).args == (wire.REGISTER,)
    office.register(W)
    assert office.answer(W) == []


def test_late_answer_to_a_client_is_dropped_when_its_request_is_in_other_hands() -> None:
    office = Office()
    registered_asked(office)
    request = Request(
        wire.key_of((C,), b"q1"), encode(Message(wire.TRACKEXEC, b"q1", (wire.PING,), (), (C,)))
    )
    office.now = 9.0
    office.session.tick(9.0)
    assert said_apart(office.session.gone(W, 9.0)) == [Lost(W, ("c",), "unroutable")]
    office.register(V)
    office.deal("c2", request)
    with pytest.raises(RemoteProtocolError):
        # Nobody knows it: it may not send to clients at all.
        office.respond(W)
    office.register(W)
    with pytest.raises(RemoteProtocolError):
        office.respond(W)
    (answer,) = office.respond(V)
    assert isinstance(answer, Answered)
    assert answer.claim == "c2"


# Requests


def test_request_is_kept_with_its_way_home_and_its_id_as_its_key() -> None:
    office = Office()
    request = office.ask(b"\0" * 8)
    assert request.answered
    assert request.key == wire.key_of((C,), b"\0" * 8)
    assert request.frames == (b"", b"LMQv100", b"\x04", b"\0" * 8, b"\x01", b"", C)
    assert office.ask(b"\0" * 8).key == request.key
    assert office.ask(b"\1" * 8).key != request.key
    assert not office.ask(b"x", command=wire.EXEC).answered


def test_request_is_dealt_so_that_the_answer_finds_its_way_back() -> None:
    office = Office()
    office.register()
    request = office.ask()
    (send,) = office.deal("c", request)
    assert send == Send(W, request.frames, "c")
    (answer,) = office.respond()
    # Unchanged, but for the hop it has made.
    assert answer == Answered("c", C, (b"", b"LMQv100", b"\x06", b"q1", b"", W))


def test_request_through_two_brokers_is_answered_through_both() -> None:
    office = Office()
    office.register()
    first = b"another broker"
    (asked,) = office.hear(first, Message(wire.TRACKEXEC, b"q", (wire.PING,), (), (C,)))
    assert isinstance(asked, Asked)
    office.deal("c", asked.request)
    (answer,) = office.hear(W, Message(wire.RESPONSE, b"q", hops=(first, C)))
    assert answer == Answered("c", first, (C, b"", b"LMQv100", b"\x06", b"q", b"", W))


def test_request_that_nobody_waits_for_takes_a_slot_and_no_claim() -> None:
    office = Office()
    office.register(slots=1)
    office.deal("c", office.ask(command=wire.EXEC))
    assert not office.session.ready()
    assert said_apart(office.session.tick(1.0)) != []
    assert said_apart(office.session.gone(W, 2.0)) == [Lost(W, (), "unroutable")]


def test_request_that_is_dealt_already_is_not_dealt_again() -> None:
    office = Office()
    registered_asked(office)
    assert office.deal("again", office.ask()) == [Done("again", ())]


def test_request_on_disk_that_is_no_message_is_discarded() -> None:
    office = Office()
    office.register()
    (end,) = office.deal("c", Request(b"k", (b"nonsense",)))
    assert isinstance(end, SetBack)
    assert isinstance(end.how, Failed)
    assert end.how.failure.permanent
    assert office.session.ready()


# Passing on


def test_client_may_send_to_workers_and_to_nobody_else() -> None:
    office = Office()
    office.register()
    more = Message(wire.TRACKEXEC, b"m", (wire.MORE, b"h", b"12345678", b"0"), hops=(W,))
    assert office.hear(C, more) == [
        Send(W, encode(Message(wire.TRACKEXEC, b"m", more.args, (), (C,))))
    ]
    assert office.free() == 10
    for hops in ((V,), (C,), (V, W)):
        with pytest.raises(RemoteProtocolError, match="no worker"):
            office.hear(C, Message(wire.TRACKEXEC, b"m", (wire.MORE,), hops=hops))


@pytest.mark.parametrize("command", sorted(wire.COMMANDS))
def test_worker_may_send_to_return_paths_it_was_given_and_to_nobody_else(command: bytes) -> None:
    office = Office()
    registered_asked(office)
    office.register(V)
    message = Message(command, b"x", (b"a",), hops=(C,))
    assert office.hear(W, message) == [Send(C, encode(Message(command, b"x", (b"a",), (), (W,))))]
    for worker, hops in ((V, (C,)), (W, (V,)), (W, (C, C)), (W, (b"else",))):
        with pytest.raises(RemoteProtocolError, match="not given"):
            office.hear(worker, Message(command, b"x", hops=hops))


def test_client_that_is_gone_takes_nothing_with_it() -> None:
    office = Office()
    registered_asked(office)
    assert office.session.gone(C, 0.0) == []
    (answer,) = office.respond()
    assert isinstance(answer, Answered)


# Loss


def test_worker_that_is_gone_when_it_is_dealt_to_costs_the_document_nothing() -> None:
    office = Office()
    office.register()
    office.deal("a")
    office.deal("b")
    effects = said_apart(office.session.gone(W, 0.0, "b"))
    assert effects == [
        SetBack("b", Released("its worker was gone before it was sent")),
        Lost(W, ("a",), "unroutable"),
    ]


def test_busy_workers_are_probed_each_second_and_idle_ones_are_not() -> None:
    office = Office()
    office.register(W)
    office.register(V)
    assert office.session.next_tick_at() is None
    office.deal()
    assert office.session.next_tick_at() == 1.0
    (probe,) = said_apart(office.session.tick(1.0))
    assert isinstance(probe, Send)
    assert probe.peer == W
    assert decode(probe.frames).command == wire.PING
    assert office.session.next_tick_at() == 2.0
    office.answer()
    office.increment()
    assert said_apart(office.session.tick(2.0)) == []
    assert office.session.next_tick_at() is None


def test_silent_worker_is_not_lost_as_long_as_it_can_be_reached() -> None:
    office = Office()
    registered_busy(office)
    for second in range(1, 10_000, 100):
        assert not any(isinstance(one, Lost) for one in office.session.tick(float(second)))


def test_worker_is_lost_at_the_deadline_of_its_document_and_of_its_request() -> None:
    office = Office(rr.Options(job_timeout=30.0))
    office.register()
    office.deal("a")
    office.now = 5.0
    office.deal("b", office.ask())
    assert not any(isinstance(one, Lost) for one in office.session.tick(29.0))
    (lost,) = (one for one in office.session.tick(30.0) if isinstance(one, Lost))
    # Either may have kept it from the other.
    assert lost == Lost(W, ("a", "b"), "overdue", doubted=True)
    assert office.session.state_of(W) == rr.UNKNOWN


# What was lost on its way


def rejoin(office: Office, *in_hand: bytes) -> list[Effect]:
    args = (wire.REGISTER, b"2", wire.in_hand(in_hand))
    return office.hear(W, Message(wire.TRACKEXEC, b"2", args))


def key(claim: str) -> bytes:
    return wire.key_of((), claim.encode())


def test_document_that_its_worker_never_got_is_given_back() -> None:
    office = Office()
    office.register(slots=2, id=b"1")
    office.deal("a")
    # As every so often, from a worker whose connection is as it was.
    assert len(office.register(slots=2, id=b"2")) == 1
    back, answer = rejoin(office)
    assert back == SetBack("a", Released("it was lost on its way"))
    assert isinstance(answer, Send)
    assert office.free() == 2


def test_document_that_its_worker_has_stays_with_it() -> None:
    office = Office()
    office.register(slots=2, id=b"1")
    office.deal("a")
    office.deal("b", office.ask())
    assert len(rejoin(office, key("a"), wire.key_of((C,), b"q1"))) == 1
    assert office.free() == 0


def test_slot_whose_increment_was_lost_is_free_again_once_nothing_is_in_hand() -> None:
    office = Office()
    office.register(slots=2, id=b"1")
    office.deal("a")
    office.answer(W, "a")
    assert office.free() == 1
    rejoin(office)
    assert office.free() == 2


def test_children_are_told_from_others_by_their_names() -> None:
    office = Office()
    for name in (b"p", b"p.1", b"p.10", b"q.1", b"p.x"):
        office.register(name)
    assert [(seen.address, seen.child) for seen in office.session.workers()] == [
        (b"p", False),
        (b"p.1", True),
        (b"p.10", True),
        (b"q.1", False),
        (b"p.x", False),
    ]


# Whatever comes

PEERS = st.sampled_from([W, V, C])
PARTS = st.sampled_from(
    [b"", b"", wire.VERSION, *sorted(wire.COMMANDS), *sorted(wire.KEYS), b"10", b"c", b"q1", W, C]
)


@given(st.lists(st.tuples(PEERS, st.lists(PARTS, max_size=9)), max_size=12))
def test_whatever_frames_come_a_broker_goes_on(came: list[tuple[bytes, list[bytes]]]) -> None:
    office = Office()
    registered_busy(office)
    office.deal("d", office.ask()) if office.session.ready() else None
    for peer, frames in came:
        try:
            office.session.receive(peer, frames, 0.0, 0.0)
        except RemoteProtocolError:
            continue
    office.session.tick(1.0)
