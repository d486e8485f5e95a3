"""A worker's side of roundrobin, and a server's that has no broker."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Failed, Released
from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin import worker as rr
from queuedriver.doors.roundrobin.wire import Message, decode, encode
from queuedriver.doors.roundrobin.worker import REGISTER_INTERVAL, Server, Worker
from queuedriver.doors.words import Effect, Effects, Leave, Process, Result, Say, Send, Work
from queuedriver.errors import RemoteProtocolError
from queuedriver.format.records import Failure

C = b"tcp://h:1:client"


def sent(effects: Effects) -> list[Message]:
    """What goes to the broker, in its order."""
    return [decode(one.frames) for one in effects if isinstance(one, Send)]


def shown(effects: Effects) -> list[str]:
    return [message.name for message in sent(effects)]


class Crumbs(random.Random):
    """Cuts a stream into pieces of one byte, so that it needs two parts."""

    def randint(self, a: int, b: int) -> int:
        return a


class Bench:
    """A worker, and words for what happens to it."""

    def __init__(self, processor: bool = True) -> None:
        self.session = Worker(2, processor=processor, chance=Crumbs())
        self.now = 0.0
        self.claims: list[str] = []

    def hear(self, message: Message) -> Effects:
        effects = self.session.hear(b"", encode(message), self.now, 0.0)
        self.claims += [one.work.claim for one in effects if isinstance(one, Process)]
        return effects

    def register(self) -> Effects:
        return self.session.register(self.now)

    def answer(self) -> Effects:
        """The answer to the REGISTER it sent last."""
        (asked,) = sent(self.register()) if self.session.state == rr.NEW else (self.last,)
        return self.hear(Message(wire.RESPONSE, asked.id))

    @property
    def last(self) -> Message:
        """Its next REGISTER, at once."""
        self.now = max(self.now, self.session.next_tick_at() or 0.0)
        (message,) = sent(self.session.tick(self.now, 0.0))
        return message

    def document(self, id: bytes = b"c", way: tuple[bytes, ...] = ()) -> Effects:
        args = (wire.DOCUMENT, b"doc", b"0", b"payload")
        return self.hear(Message(wire.TRACKEXEC, id, args, (), way))

    def finish(self) -> Effects:
        return self.session.finished(self.claims.pop(0), (Result(b"out"),), self.now)

    def ping(self) -> Effects:
        return self.hear(Message(wire.TRACKEXEC, b"p", (wire.PING,), (), (C,)))

    def called(self) -> Effects:
        return self.hear(Message(wire.EXEC, b"x", (wire.REGISTER,)))

    def leave(self) -> Effects:
        return self.session.leave(self.now)


def new(bench: Bench) -> None:
    pass


def new_busy(bench: Bench) -> None:
    bench.document()


def registering(bench: Bench) -> None:
    bench.register()


def registering_busy(bench: Bench) -> None:
    bench.register()
    bench.document()


def registered(bench: Bench) -> None:
    bench.answer()


def registered_busy(bench: Bench) -> None:
    bench.answer()
    bench.document()


def leaving(bench: Bench) -> None:
    registered_busy(bench)
    bench.leave()


def leaving_twice(bench: Bench) -> None:
    registered_busy(bench)
    bench.document(b"d")
    bench.leave()


def time_out(bench: Bench) -> None:
    assert bench.last.key == wire.REGISTER


def joined(bench: Bench) -> None:
    assert shown(bench.session.joined(b"", bench.now)) == ["TRACKEXEC REGISTER"]


def deregister(bench: Bench) -> None:
    assert shown(bench.session.deregister(bench.now)) == ["EXEC DEREGISTER"]


def called(bench: Bench) -> None:
    asked = bench.session.state == rr.REGISTERED
    assert shown(bench.called()) == (["TRACKEXEC REGISTER"] if asked else [])


Scene = Callable[[Bench], object]
SCENES: dict[tuple[str, str, str], tuple[Scene, Scene]] = {
    (rr.NEW, "register", ""): (new, Bench.register),
    (rr.NEW, "called", ""): (new, called),
    (rr.NEW, "task", ""): (new, Bench.document),
    (rr.NEW, "task ended", ""): (new_busy, Bench.finish),
    (rr.NEW, "leave", ""): (new, Bench.leave),
    (rr.NEW, "leave", "in hand"): (new_busy, Bench.leave),
    (rr.REGISTERING, "RESPONSE", ""): (registering, Bench.answer),
    (rr.REGISTERING, "register", ""): (registering, Bench.register),
    (rr.REGISTERING, "time-out", ""): (registering, time_out),
    (rr.REGISTERING, "joined again", ""): (registering, joined),
    (rr.REGISTERING, "called", ""): (registering, called),
    (rr.REGISTERING, "task", ""): (registering, Bench.document),
    (rr.REGISTERING, "task ended", ""): (registering_busy, Bench.finish),
    (rr.REGISTERING, "deregister", ""): (registering, deregister),
    (rr.REGISTERING, "leave", ""): (registering, Bench.leave),
    (rr.REGISTERING, "leave", "in hand"): (registering_busy, Bench.leave),
    (rr.REGISTERED, "RESPONSE", ""): (registered, Bench.answer),
    (rr.REGISTERED, "register", ""): (registered, Bench.register),
    (rr.REGISTERED, "time-out", ""): (registered, time_out),
    (rr.REGISTERED, "joined again", ""): (registered, joined),
    (rr.REGISTERED, "called", ""): (registered, called),
    (rr.REGISTERED, "task", ""): (registered, Bench.document),
    (rr.REGISTERED, "task ended", ""): (registered_busy, Bench.finish),
    (rr.REGISTERED, "deregister", ""): (registered, deregister),
    (rr.REGISTERED, "leave", ""): (registered, Bench.leave),
    (rr.REGISTERED, "leave", "in hand"): (registered_busy, Bench.leave),
    (rr.LEAVING, "called", ""): (leaving, called),
    (rr.LEAVING, "task", ""): (leaving, Bench.document),
    (rr.LEAVING, "task ended", ""): (leaving_twice, Bench.finish),
    (rr.LEAVING, "task ended", "last"): (leaving, Bench.finish),
    (rr.LEAVING, "leave", "in hand"): (leaving, Bench.leave),
}


@pytest.mark.parametrize("cell", rr.WORKER.cells, ids="-".join)
def test_each_row_of_the_table_is_stepped(
    cell: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, scene = SCENES[cell]
    bench = Bench()
    before(bench)
    assert bench.session.state == cell[0]
    stepped: Counter[tuple[str, str, str]] = Counter()
    monkeypatch.setattr(rr.WORKER, "stepped", stepped)
    scene(bench)
    assert stepped[cell]
    assert bench.session.state == rr.WORKER.cells[cell]


# Registration


def test_worker_registers_as_soon_as_it_starts() -> None:
    (register,) = sent(Worker(7).start(0.0, 0.0))
    assert register.command == wire.TRACKEXEC
    assert register.args == (b"\x08", b"7")
    assert len(register.id) == 4


@pytest.mark.parametrize("answered", [False, True])
def test_worker_says_every_few_seconds_that_it_is_there_as_the_original_would(
    answered: bool,
) -> None:
    bench = Bench()
    bench.register()
    bench.document(b"claim-1")
    if answered:
        bench.answer()
    for _ in range(5):
        before = bench.now
        assert bench.session.tick(before + REGISTER_INTERVAL - 0.1, 0.0) == []
        again = bench.last
        assert again.args == (b"\x08", b"2")
        assert bench.now == before + REGISTER_INTERVAL


class OriginalServer:
    """Takes workers' registrations as the original's server does, whose only thread for
    connections ends when a message is not as it expects."""

    def __init__(self) -> None:
        self.slots: dict[bytes, int] = {}

    def hear(self, peer: bytes, frames: tuple[bytes, ...]) -> list[bytes]:
        stack = [*frames]
        assert stack.pop(0) == b""
        assert stack.pop(0) == b"LMQv100"
        assert stack.pop(0) == wire.TRACKEXEC
        id = stack.pop(0)
        assert stack.pop(0) == wire.REGISTER
        # Exactly one argument; then the empty frame, then addresses.
        self.slots[peer] = int(stack.pop(0))
        assert stack == [b""]
        return [b"", b"LMQv100", wire.RESPONSE, id, b""]


def test_server_that_takes_exactly_one_argument_of_register_is_told_no_more() -> None:
    server, worker = OriginalServer(), Worker(3)
    worker.start(0.0, 0.0)
    task = encode(Message(wire.TRACKEXEC, b"q", (wire.DOCUMENT, b"d", b"0", b"x"), (), (C,)))
    now = 0.0
    for _ in range(4):
        now += REGISTER_INTERVAL
        # A client's document is in hand, as a broker of ours would send it, too.
        worker.hear(b"", task, now, 0.0)
        effects = [*worker.tick(now, 0.0), *worker.joined(b"", now), *worker.register(now)]
        for one in effects:
            if isinstance(one, Send):
                worker.hear(b"", server.hear(b"w", one.frames), now, 0.0)
    assert server.slots == {b"w": 3}
    assert worker.state == rr.REGISTERED


def test_worker_whose_connection_broke_tells_a_broker_of_ours_what_it_has() -> None:
    bench = Bench()
    bench.answer()
    bench.document(b"claim-1")
    bench.document(b"q", (C,))
    (again,) = sent(bench.session.joined(b"", 1.0))
    assert wire.in_hand_of(again) == frozenset(
        {wire.key_of((), b"claim-1"), wire.key_of((C,), b"q")}
    )
    bench.finish()
    bench.finish()
    (again,) = sent(bench.session.joined(b"", 2.0))
    assert wire.in_hand_of(again) == frozenset()


def test_answer_to_anything_but_the_last_register_is_ignored() -> None:
    bench = Bench()
    bench.register()
    bench.hear(Message(wire.RESPONSE, b"other"))
    assert bench.session.state == rr.REGISTERING


def test_worker_that_is_called_registers_again() -> None:
    bench = Bench()
    bench.answer()
    (register,) = sent(bench.called())
    assert register.args == (b"\x08", b"2")
    assert bench.session.state == rr.REGISTERING


def test_client_cannot_call_a_worker() -> None:
    bench = Bench()
    bench.answer()
    bench.hear(Message(wire.EXEC, b"x", (wire.REGISTER,), (), (C,)))
    assert bench.session.state == rr.REGISTERED


def test_deregister_has_the_id_worker() -> None:
    bench = Bench()
    bench.answer()
    (goodbye,) = sent(bench.session.deregister(0.0))
    assert encode(goodbye) == (b"", b"LMQv100", b"\x03", b"WORKER", b"\x09", b"")
    assert bench.session.next_tick_at() is None


def test_leaving_worker_deregisters_and_leaves_when_nothing_is_in_hand() -> None:
    bench = Bench()
    leaving_twice(bench)
    assert not any(isinstance(one, Leave) for one in bench.finish())
    effects = bench.session.failed(bench.claims.pop(), Released("leaving"), 0.0)
    assert isinstance(effects[-1], Leave)
    idle = Bench()
    idle.answer()
    goodbye, leave = idle.leave()
    assert shown([goodbye]) == ["EXEC DEREGISTER"]
    assert isinstance(leave, Leave)


# Tasks


def test_document_is_processed_then_answered_then_its_slot_is_given_back() -> None:
    bench = Bench()
    bench.answer()
    (process,) = (one for one in bench.document(b"claim-1") if isinstance(one, Process))
    assert process.work == Work(bench.claims[0], "doc", 0, b"payload")
    response, increment = sent(bench.finish())
    assert encode(response) == (b"", b"LMQv100", b"\x06", b"claim-1", b"0", b"", b"out", b"")
    assert (increment.command, increment.args) == (wire.EXEC, (b"\x07",))


def test_failed_document_gives_its_slot_back_too() -> None:
    bench = Bench()
    bench.answer()
    bench.document()
    how = Failed(Failure(cause="exit", message="it broke"))
    response, increment = sent(bench.session.failed(bench.claims[0], how, 0.0))
    assert response.args[:3] == (b"1", b"it broke", b"exit")
    assert increment.key == wire.INCREMENT


def test_answer_goes_back_the_way_the_request_came() -> None:
    bench = Bench()
    bench.answer()
    bench.document(b"q", (C, b"another broker"))
    response, _ = sent(bench.finish())
    assert response.hops == (b"another broker", C)


def test_exec_is_done_and_not_answered() -> None:
    bench = Bench()
    bench.answer()
    bench.hear(Message(wire.EXEC, b"q", (wire.DOCUMENT, b"d", b"0", b"x"), (), (C,)))
    assert shown(bench.finish()) == ["EXEC INCREMENT"]
    assert shown(bench.hear(Message(wire.EXEC, b"p", (wire.PING,), (), (C,)))) == ["EXEC INCREMENT"]


def test_ping_is_answered_with_its_id_and_nothing_more() -> None:
    bench = Bench()
    bench.answer()
    response, increment = sent(bench.ping())
    assert encode(response) == (C, b"", b"LMQv100", b"\x06", b"p", b"")
    assert increment.key == wire.INCREMENT
    assert bench.session.passed == {"TRACKEXEC PING": 1}


def test_probe_is_answered_and_takes_no_slot() -> None:
    bench = Bench()
    assert shown(bench.hear(Message(wire.PING, b"p"))) == ["PONG"]


@pytest.mark.parametrize(
    "args",
    [(), (b"else",), (wire.DOCUMENT,), (wire.DOCUMENT, b"d", b"x", b""), (wire.STREAM, b"h")],
)
def test_request_it_cannot_do_is_answered_as_failed_and_gives_its_slot_back(
    args: tuple[bytes, ...],
) -> None:
    bench = Bench()
    bench.answer()
    response, increment = sent(bench.hear(Message(wire.TRACKEXEC, b"q", args, (), (C,))))
    assert response.args[0] == b"65"
    assert increment.key == wire.INCREMENT


def test_worker_without_a_processor_puts_documents_back() -> None:
    bench = Bench(processor=False)
    bench.answer()
    response, increment = sent(bench.document())
    assert response.args[0] == b"75"
    assert increment.key == wire.INCREMENT


# STREAM


def ask_stream(bench: Bench) -> list[Message]:
    args = (wire.STREAM, b"STREAM_ID", b"1024")
    return sent(bench.hear(Message(wire.TRACKEXEC, b"s", args, (), (C,))))


def ask_more(
    bench: Bench, handle: bytes, want: bytes = b"0", host: bytes = b"STREAM_ID"
) -> Effects:
    args = (wire.MORE, host, handle, want)
    return bench.hear(Message(wire.TRACKEXEC, b"m", args, (), (C,)))


def test_stream_is_answered_part_by_part_and_takes_one_slot() -> None:
    bench = Bench()
    bench.answer()
    response, increment = ask_stream(bench)
    assert increment.key == wire.INCREMENT
    reader = streams.Reader()
    while not reader.take(part := streams.decode_part(response.args[0])):
        (response,) = sent(ask_more(bench, part.handle))
        assert (response.id, response.hops) == (b"m", (C,))
    assert part.state == streams.FINISHED
    assert bench.session.next_tick_at() == REGISTER_INTERVAL


@pytest.mark.parametrize(("want", "host"), [(b"1", b"STREAM_ID"), (b"?", b"STREAM_ID")])
def test_stream_of_which_no_more_is_wanted_is_forgotten(want: bytes, host: bytes) -> None:
    bench = Bench()
    bench.answer()
    handle = streams.decode_part(ask_stream(bench)[0].args[0]).handle
    for asked in (want, b"0"):
        (response,) = sent(ask_more(bench, handle, asked, host))
        assert streams.decode_part(response.args[0]).state == streams.ABORT


def test_stream_is_not_read_by_another_host() -> None:
    bench = Bench()
    bench.answer()
    handle = streams.decode_part(ask_stream(bench)[0].args[0]).handle
    (response,) = sent(ask_more(bench, handle, host=b"OTHER"))
    assert streams.decode_part(response.args[0]).state == streams.ABORT
    (response,) = sent(ask_more(bench, handle))
    assert streams.decode_part(response.args[0]).state != streams.ABORT


def test_stream_is_kept_as_long_as_its_host_says_that_it_reads_it() -> None:
    bench = Bench()
    bench.answer()
    handle = streams.decode_part(ask_stream(bench)[0].args[0]).handle
    ongoing = Message(wire.TRACKEXEC, b"o", (wire.ONGOING, b"STREAM_ID"), (), (C,))
    for now in range(10, 100, 10):
        bench.now = float(now)
        bench.session.tick(bench.now, 0.0)
        (response,) = sent(bench.hear(ongoing))
        assert response.args == (b"0",)
    bench.now += 15.0
    bench.session.tick(bench.now, 0.0)
    assert sent(bench.hear(ongoing))[0].args == (b"1",)
    (response,) = sent(ask_more(bench, handle))
    assert streams.decode_part(response.args[0]).state == streams.ABORT


# A server without a broker


def test_server_answers_clients_as_a_worker_does_and_gives_no_slots_back() -> None:
    server, bench = Server(), Bench()
    bench.answer()
    for args in ((wire.PING,), (b"else",)):
        asked = encode(Message(wire.TRACKEXEC, b"q", args))
        (answer,) = (one for one in server.hear(C, asked, 0.0, 0.0) if isinstance(one, Send))
        (other, _) = sent(bench.hear(Message(wire.TRACKEXEC, b"q", args, (), (C,))))
        assert answer == Send(C, encode(other)[1:])


def test_server_processes_documents_and_leaves_when_nothing_is_in_hand() -> None:
    server = Server()
    document = Message(wire.TRACKEXEC, b"q", (wire.DOCUMENT, b"d", b"0", b"x"))
    (process,) = server.hear(C, encode(document), 0.0, 0.0)
    assert isinstance(process, Process)
    assert server.leave(0.0) == []
    effects = server.finished(process.work.claim, (Result(b"y"),), 0.0)
    frames = (b"", b"LMQv100", b"\x06", b"q", b"0", b"", b"y", b"")
    assert Send(C, frames) in effects
    assert isinstance(effects[-1], Leave)


# Whatever comes

PARTS = st.sampled_from(
    [b"", b"", wire.VERSION, *sorted(wire.COMMANDS), *sorted(wire.KEYS), b"1024", b"0", b"q", C]
)


@given(st.lists(st.lists(PARTS, max_size=10), max_size=12), st.booleans())
def test_whatever_frames_come_a_worker_goes_on(came: list[list[bytes]], listens: bool) -> None:
    bench, server = Bench(), Server()
    bench.answer()
    for frames in came:
        try:
            effects: list[Effect] = (
                server.hear(C, frames, 0.0, 0.0)
                if listens
                else bench.session.hear(b"", frames, 0.0, 0.0)
            )
        except RemoteProtocolError:
            continue
        assert all(isinstance(one, Send | Say | Process) for one in effects)
