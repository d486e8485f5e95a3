"""The broker's side of roundrobin: who is dealt what, and what becomes of what they answer."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Doubted, Failed, Released
from queuedriver.doors.roundrobin import broker as rr
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin.broker import RoundRobinBroker
from queuedriver.doors.roundrobin.console import table
from queuedriver.doors.roundrobin.wire import Message, decode, encode
from queuedriver.doors.words import (
    Answer,
    Asked,
    Close,
    Effect,
    Effects,
    End,
    Processed,
    Request,
    Result,
    Say,
    Send,
    Work,
)
from queuedriver.errors import RemoteProtocolError
from queuedriver.format.records import Failure

W, V, C = b"tcp://h:1:worker", b"tcp://h:1:other", b"tcp://h:1:client"


def is_answer(effect: Effect) -> bool:
    return isinstance(effect, End) and isinstance(effect.how, Answer)


def said_apart(effects: Effects) -> list[Effect]:
    """What is to be done, without what is only said."""
    return [one for one in effects if not isinstance(one, Say)]


class Small(RoundRobinBroker):
    max_workers = 1


class Office:
    """A broker, and words for what happens to it."""

    def __init__(self, job_timeout: float | None = None) -> None:
        self.session = RoundRobinBroker(job_timeout)
        self.now = 0.0

    def hear(self, peer: bytes, message: Message) -> list[Effect]:
        return said_apart(self.session.hear(peer, encode(message), self.now, 0.0))

    def state_of(self, peer: bytes) -> str:
        worker = self.session.workers.get(peer)
        return rr.UNKNOWN if worker is None else worker.state

    def ready(self) -> bool:
        return self.session.pick("", self.now) is not None

    def register(self, worker: bytes = W, slots: int = 10, id: bytes = b"reg1") -> list[Effect]:
        return self.hear(worker, Message(wire.TRACKEXEC, id, (wire.REGISTER, b"%d" % slots)))

    def deregister(self, worker: bytes = W) -> list[Effect]:
        return self.hear(worker, Message(wire.EXEC, b"WORKER", (wire.DEREGISTER,)))

    def increment(self, worker: bytes = W) -> list[Effect]:
        return self.hear(worker, Message(wire.EXEC, b"i", (wire.INCREMENT,)))

    def deal(self, claim: str = "c", request: Request | None = None) -> list[Effect]:
        work = Work(claim, f"doc-{claim}", 0, b"payload", request=request)
        worker = self.session.pick("", self.now)
        assert worker is not None
        return [self.session.deal(worker, work, self.now)]

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
        return {one.name: max(0, one.free) for one in self.session.registered()}[worker]

    def rejoin(self, *in_hand: bytes, slots: int = 2) -> list[Effect]:
        """Its connection broke and is there again: it says what it has in hand."""
        args = (wire.REGISTER, b"%d" % slots, wire.in_hand(in_hand))
        return self.hear(W, Message(wire.TRACKEXEC, b"again", args))


def lost(why: str) -> Failure:
    message = f"its worker was lost ({why}) while it had the document"
    return Failure(cause="worker-lost", message=message)


ON_ITS_WAY = Doubted(
    Failure(cause="worker-lost", message="it was lost on its way to its worker, or back")
)
DONE = Processed((Result(b"out"),))


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
    office.session = Small()
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
    assert answer == End("c", Answer(C, encode(Message(wire.RESPONSE, b"q1", senders=(W,)))))


def lose(office: Office) -> None:
    assert said_apart(office.session.gone(W, 1.0)) == [End("c", Failed(lost("unroutable")))]


def lose_idle(office: Office) -> None:
    assert said_apart(office.session.gone(W, 0.0)) == []


def lose_unsent(office: Office) -> None:
    effects = said_apart(office.session.undelivered(W, "c", 0.0))
    assert effects == [End("c", Released("its worker was gone before it was sent"))]


def second(office: Office) -> None:
    (probe,) = office.session.tick(1.0)
    assert isinstance(probe, Send)
    assert (probe.peer, decode(probe.frames).command) == (W, wire.PING)


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
    assert office.answer() == [End("c", DONE)]


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
    (rr.REGISTERED, "REGISTER", "connected again"): (registered, Office.rejoin),
    (rr.REGISTERED, "each second", "busy"): (registered_busy, second),
    (rr.REGISTERED, "lost", "not sent"): (registered_busy, lose_unsent),
    (rr.LEAVING, "REGISTER", "connected again"): (leaving, Office.rejoin),
    (rr.LEAVING, "each second", "busy"): (leaving, second),
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


@pytest.mark.parametrize("cell", rr.BROKER.cells, ids="-".join)
def test_each_row_of_the_table_is_stepped(
    monkeypatch: pytest.MonkeyPatch, cell: tuple[str, str, str]
) -> None:
    before, scene = SCENES[cell]
    office = Office()
    before(office)
    assert office.state_of(W) == cell[0]
    stepped: Counter[tuple[str, str, str]] = Counter()
    monkeypatch.setattr(rr.BROKER, "stepped", stepped)
    scene(office)
    assert stepped[cell] == 1
    assert office.state_of(W) == rr.BROKER.cells[cell]


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
    assert not office.ready()
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
    assert not office.ready()
    assert office.session.registered() == []
    assert office.answer() == [End("c", DONE)]
    assert office.state_of(W) == rr.UNKNOWN


def test_client_of_a_deregistered_worker_gets_its_answer() -> None:
    office = Office()
    leaving_asked(office)
    (answer,) = office.respond()
    assert is_answer(answer)


def test_worker_that_deregistered_and_is_gone_is_lost_with_what_it_had() -> None:
    office = Office()
    leaving(office)
    lose(office)


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
    assert not office.ready()
    office.increment()
    assert office.ready()


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
            case "deal" if office.ready():
                in_hand[claim] = office.dealt_to(claim)
            case "answer" if in_hand:
                dealt, holder = in_hand.popitem()
                office.answer(holder, dealt)
            case "ask" if office.ready():
                office.deal(claim, office.ask(claim.encode(), command=wire.EXEC))
            case "gone":
                office.session.gone(worker, office.now)
        for one in office.session.registered():
            assert one.free <= limits[one.name]


# Dealing


def test_document_goes_out_as_a_trackexec_of_ours_named_by_its_claim() -> None:
    office = Office()
    office.register()
    (send,) = office.deal("driver-0a")
    assert isinstance(send, Send)
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
    assert send == Send(W, frames)


def test_workers_take_turns_by_when_they_were_dealt_to_and_full_ones_are_skipped_in_place() -> None:
    office = Office()
    a, b, c = b"a", b"b", b"c"
    office.register(a, 2)
    office.register(b, 1)
    office.register(c, 2)
    assert [office.dealt_to(str(n)) for n in range(5)] == [a, b, c, a, c]
    assert not office.ready()
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


def test_without_a_free_slot_nobody_is_ready() -> None:
    office = Office()
    assert not office.ready()
    office.register(slots=0)
    assert not office.ready()


def test_document_is_ready_to_be_dealt_the_moment_a_slot_is_free() -> None:
    office = Office()
    office.register(slots=1)
    office.deal("a")
    assert not office.ready()
    office.increment()
    assert office.ready()


# Answers


def test_failed_document_is_charged_with_what_its_worker_said() -> None:
    office = Office()
    registered_busy(office)
    (end,) = office.answer(W, "c", b"1", b"it broke", b"exit")
    assert isinstance(end, End)
    assert isinstance(end.how, Failed)
    assert (end.how.failure.cause, end.how.failure.message) == ("exit", "it broke")


def test_document_is_ended_by_the_worker_that_has_it_and_only_once() -> None:
    office = Office()
    office.register(W)
    office.register(V)
    office.deal()
    assert office.answer(V) == []
    assert office.answer(W) == [End("c", DONE)]
    assert office.answer(W) == []


def test_late_answer_of_a_lost_worker_is_dropped_and_it_is_asked_to_register() -> None:
    office = Office()
    registered_busy(office)
    lose(office)
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
    lose(office)
    office.register(V)
    office.deal("c2", request)
    with pytest.raises(RemoteProtocolError):
        # Nobody knows it: it may not send to clients at all.
        office.respond(W)
    office.register(W)
    assert office.respond(W) == []
    (answer,) = office.respond(V)
    assert is_answer(answer)
    assert isinstance(answer, End)
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
    assert send == Send(W, request.frames)
    (answer,) = office.respond()
    # Unchanged, but for the hop it has made.
    assert answer == End("c", Answer(C, (b"", b"LMQv100", b"\x06", b"q1", b"", W)))


def test_request_through_two_brokers_is_answered_through_both() -> None:
    office = Office()
    office.register()
    first = b"another broker"
    (asked,) = office.hear(first, Message(wire.TRACKEXEC, b"q", (wire.PING,), (), (C,)))
    assert isinstance(asked, Asked)
    office.deal("c", asked.request)
    (answer,) = office.hear(W, Message(wire.RESPONSE, b"q", hops=(first, C)))
    assert answer == End("c", Answer(first, (C, b"", b"LMQv100", b"\x06", b"q", b"", W)))


def test_request_that_nobody_waits_for_takes_a_slot_and_no_claim() -> None:
    office = Office()
    office.register(slots=1)
    office.deal("c", office.ask(command=wire.EXEC))
    assert not office.ready()
    assert said_apart(office.session.tick(1.0)) != []
    lose_idle(office)


def test_request_that_is_dealt_already_is_not_dealt_again() -> None:
    office = Office()
    registered_asked(office)
    assert office.deal("again", office.ask()) == [End("again", Processed(()))]


def test_request_on_disk_that_is_no_message_is_discarded() -> None:
    office = Office()
    office.register()
    (end,) = office.deal("c", Request(b"k", (b"nonsense",)))
    assert isinstance(end, End)
    assert isinstance(end.how, Failed)
    assert end.how.failure.permanent
    assert office.ready()


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
        with pytest.raises(RemoteProtocolError, match="not allowed"):
            office.hear(C, Message(wire.TRACKEXEC, b"m", (wire.MORE,), hops=hops))


@pytest.mark.parametrize("command", sorted(wire.COMMANDS))
def test_worker_may_send_to_return_paths_it_was_given_and_to_nobody_else(command: bytes) -> None:
    office = Office()
    registered_asked(office)
    office.register(V)
    message = Message(command, b"x", (b"a",), hops=(C,))
    assert office.hear(W, message) == [Send(C, encode(Message(command, b"x", (b"a",), (), (W,))))]
    for worker, hops in ((V, (C,)), (W, (V,)), (W, (C, C)), (W, (b"else",))):
        with pytest.raises(RemoteProtocolError, match="not allowed"):
            office.hear(worker, Message(command, b"x", hops=hops))


def test_client_that_is_gone_takes_nothing_with_it() -> None:
    office = Office()
    registered_asked(office)
    assert office.session.gone(C, 0.0) == []
    (answer,) = office.respond()
    assert is_answer(answer)


# Loss


def test_worker_that_is_gone_when_it_is_dealt_to_costs_that_document_nothing() -> None:
    office = Office()
    office.register()
    office.deal("a")
    office.deal("b")
    effects = said_apart(office.session.undelivered(W, "b", 0.0))
    assert effects == [
        End("b", Released("its worker was gone before it was sent")),
        End("a", Failed(lost("undelivered"))),
    ]


def test_request_that_could_not_be_sent_is_dealt_to_the_next() -> None:
    office = Office()
    office.register()
    request = office.ask()
    office.deal("c", request)
    office.session.undelivered(W, "c", 0.0)
    office.register(V)
    assert office.deal("c2", request) == [Send(V, request.frames)]
    (answer,) = office.respond(V)
    assert is_answer(answer)


def test_what_was_beside_others_is_doubted_when_its_worker_is_lost() -> None:
    office = Office()
    office.register()
    for claim in ("a", "b"):
        office.deal(claim)
    doubted = Doubted(lost("unroutable"))
    assert said_apart(office.session.gone(W, 0.0)) == [End("a", doubted), End("b", doubted)]
    office.register()
    office.deal("a")
    # Nobody waits for this one; it may have ended the worker all the same.
    office.deal("x", office.ask(command=wire.EXEC))
    assert said_apart(office.session.gone(W, 0.0)) == [End("a", doubted)]


def test_busy_workers_are_probed_each_second_and_idle_ones_are_not() -> None:
    office = Office()
    office.register(W)
    office.register(V)
    office.deal()
    (probe,) = said_apart(office.session.tick(1.0))
    assert isinstance(probe, Send)
    assert probe.peer == W
    assert decode(probe.frames).command == wire.PING
    assert office.session.next_tick_at() == 2.0
    office.answer()
    office.increment()
    assert said_apart(office.session.tick(2.0)) == []


def test_silent_worker_is_not_lost_as_long_as_it_can_be_reached() -> None:
    office = Office()
    registered_busy(office)
    for second in range(1, 10_000, 100):
        assert not any(isinstance(one, End) for one in office.session.tick(float(second)))
    office.answer()
    for second in range(10_000, 20_000, 100):
        assert office.session.tick(float(second)) == []
    assert office.state_of(W) == rr.REGISTERED


def test_worker_is_lost_at_the_deadline_of_its_document_and_of_its_request() -> None:
    office = Office(job_timeout=30.0)
    office.register()
    office.deal("a")
    office.now = 5.0
    office.deal("b", office.ask())
    assert not any(isinstance(one, End) for one in office.session.tick(29.0))
    *ends, close = said_apart(office.session.tick(30.0))
    # Either may have kept it from the other.
    assert ends == [End(claim, Doubted(lost("overdue"))) for claim in ("a", "b")]
    assert isinstance(close, Close)
    assert office.state_of(W) == rr.UNKNOWN


def test_time_in_which_a_document_waits_for_others_in_its_worker_is_not_its_own() -> None:
    office = Office(job_timeout=30.0)
    office.register()
    for claim in ("a", "b", "c"):
        office.deal(claim)
    for claim, second in (("a", 29.0), ("b", 58.0)):
        assert not any(isinstance(one, End) for one in office.session.tick(second))
        office.now = second
        office.answer(W, claim)
        office.increment()
    # From when it is seen that it is its turn.
    assert not any(isinstance(one, End) for one in office.session.tick(59.0))
    assert not any(isinstance(one, End) for one in office.session.tick(88.0))
    *ends, _ = said_apart(office.session.tick(89.0))
    assert ends == [End("c", Failed(lost("overdue")))]


def test_answer_finds_its_client_however_many_others_asked_in_between() -> None:
    office = Office()
    office.register(slots=3000)
    first = office.ask()
    office.deal("c", first)
    for number in range(2000):
        client = b"client %d" % number
        office.deal(f"c{number}", office.ask(client=client))
        office.hear(W, Message(wire.RESPONSE, b"q1", hops=(client,)))
    (answer,) = office.respond()
    assert is_answer(answer)


# What was lost on its way


def key(claim: str) -> bytes:
    return wire.key_of((), claim.encode())


def test_document_that_its_worker_never_got_is_set_back_when_its_connection_is_there_again() -> (
    None
):
    office = Office()
    office.register(slots=2)
    office.deal("a")
    office.deal("b", office.ask())
    back, answer = office.rejoin(wire.key_of((C,), b"q1"))
    assert back == End("a", ON_ITS_WAY)
    assert isinstance(answer, Send)
    assert office.free() == 1
    (answered,) = office.respond()
    assert is_answer(answered)


def test_request_that_its_worker_never_got_is_dealt_again() -> None:
    office = Office()
    office.register(slots=2)
    request = office.ask()
    office.deal("a", request)
    back, _ = office.rejoin()
    assert back == End("a", ON_ITS_WAY)
    assert office.deal("b", request) == [Send(W, request.frames)]


def test_document_that_its_worker_has_stays_with_it() -> None:
    office = Office()
    office.register(slots=2)
    office.deal("a")
    office.deal("b", office.ask())
    for _ in range(3):
        assert len(office.rejoin(key("a"), wire.key_of((C,), b"q1"))) == 1
        assert len(office.register(slots=2)) == 1
    assert office.free() == 0


def test_slot_whose_increment_was_lost_is_free_again_once_its_worker_is_connected_again() -> None:
    office = Office()
    office.register(slots=2)
    office.deal("a")
    office.answer(W, "a")
    office.deal("x", office.ask(command=wire.EXEC))
    office.register(slots=2)
    assert office.free() == 0
    office.rejoin()
    assert office.free() == 2


# A request that will not be done


def test_client_of_a_document_is_told_that_it_will_not_be_done() -> None:
    office = Office()
    args = (wire.DOCUMENT, b"d", b"0", b"payload")
    (asked,) = office.hear(C, Message(wire.TRACKEXEC, b"q", args))
    assert isinstance(asked, Asked)
    refusal = office.session.refusal(asked.request, "it failed twice")
    assert refusal is not None
    assert refusal.peer == C
    told = decode(refusal.frames)
    assert (told.command, told.id, told.args) == (wire.RESPONSE, b"q", (b"65", b"it failed twice"))


def test_of_other_requests_nobody_knows_how_to_say_so() -> None:
    office = Office()
    assert office.session.refusal(office.ask(), "it failed") is None
    assert office.session.refusal(Request(b"k", (b"nonsense",)), "it failed") is None


def test_children_are_told_from_others_by_their_names() -> None:
    office = Office()
    for name in (b"p", b"p.1", b"p.10", b"q.1", b"p.x"):
        office.register(name)
    marked = [line.endswith("(child)") for line in table(office.session.registered())]
    assert marked == [False, True, True, False, False]


# Whatever comes

PEERS = st.sampled_from([W, V, C])
PARTS = st.sampled_from(
    [b"", b"", wire.VERSION, *sorted(wire.COMMANDS), *sorted(wire.KEYS), b"10", b"c", b"q1", W, C]
)


@given(st.lists(st.tuples(PEERS, st.lists(PARTS, max_size=9)), max_size=12))
def test_whatever_frames_come_a_broker_goes_on(came: list[tuple[bytes, list[bytes]]]) -> None:
    office = Office()
    registered_busy(office)
    office.deal("d", office.ask()) if office.ready() else None
    for peer, frames in came:
        try:
            office.session.hear(peer, frames, 0.0, 0.0)
        except RemoteProtocolError:
            continue
    office.session.tick(1.0)
