"""Pingpong: frames byte for byte, and who is listed, busy, silent or gone."""

import contextlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Doubted, Failed, Postponed, Released, Setback
from queuedriver.doors.pingpong import protocol
from queuedriver.doors.pingpong.protocol import (
    BROKER,
    BUSY,
    LISTED,
    OWING,
    UNKNOWN,
    WORDS,
    Broker,
    Said,
    Worker,
    decode,
)
from queuedriver.doors.pingpong.settings import BrokerSettings, WorkerSettings
from queuedriver.doors.words import (
    Close,
    Effects,
    End,
    Leave,
    Process,
    Processed,
    Reconnect,
    Result,
    Say,
    Send,
    Work,
)
from queuedriver.errors import LocalProtocolError, QueueError, RemoteProtocolError
from queuedriver.format.records import Failure

PONG = (b"", b"PONG")
EXIT = (b"", b"EXIT")
READY = [b"", b"READY"]
PING = [b"", b"PING"]
DISCONNECT = [b"", b"DISCONNECT"]


class Small(Broker):
    max_workers = 10


def result(data: bytes = b"out") -> list[bytes]:
    return [b"", data]


def work(claim: str = "c1", payload: bytes = b"in") -> Work:
    return Work(claim, "doc", 1, payload)


def a_broker(job_timeout: float | None = None, **workers: float) -> Broker:
    """One that lists these workers since these instants."""
    broker = Broker(job_timeout=job_timeout)
    for name, at in workers.items():
        assert hear(broker, name, READY, at) == [Send(name.encode(), PONG)]
    return broker


def hear(broker: Broker, name: str, frames: list[bytes], now: float) -> Effects:
    return broker.hear(name.encode(), frames, now, 0.0)


def is_ready(broker: Broker, now: float = 0.0) -> bool:
    return broker.pick("", now) is not None


def dealt(broker: Broker, document: Work, now: float) -> Send:
    worker = broker.pick("", now)
    assert worker is not None
    sent = broker.deal(worker, document, now)
    assert isinstance(sent, Send)
    return sent


def dealt_to(broker: Broker, now: float, claim: str = "c1") -> str:
    sent = dealt(broker, work(claim), now)
    assert sent.frames == (b"", b"in")
    return sent.peer.decode()


def done(claim: str = "c1", data: bytes = b"out") -> End:
    return End(claim, Processed((Result(data),)))


def ends(effects: Effects) -> list[tuple[str, object]]:
    """What was ended, and how; of a failure only its kind and its words."""
    found = []
    for one in effects:
        if isinstance(one, End):
            how: object = one.how
            if isinstance(how, Failed | Doubted):
                how = type(how), how.failure.message
            found.append((one.claim, how))
    return found


def lost(why: str, claim: str = "c1") -> list[tuple[str, object]]:
    """What the loss of a worker with one document ends."""
    return [(claim, (Failed, f"its worker was lost ({why}) while it had the document"))]


# What was lost on its way is charged to nobody before the third time.
ON_ITS_WAY = [("c1", (Doubted, "it was lost on its way to its worker, or back"))]


# Frames


@pytest.mark.parametrize(
    ("said", "frames"),
    [
        (protocol.READY, (b"", b"READY")),
        (protocol.PING, (b"", b"PING")),
        (protocol.PONG, (b"", b"PONG")),
        (protocol.EXIT, (b"", b"EXIT")),
        (protocol.DISCONNECT, (b"", b"DISCONNECT")),
        (protocol.BACK, (b"",)),
        (protocol.payload(b"a document"), (b"", b"a document")),
        (protocol.payload(b""), (b"", b"")),
        (protocol.payload(b"PONG"), (b"", b"", b"PONG")),
        (protocol.payload(b"READY"), (b"", b"", b"READY")),
        (protocol.payload(b"ERROR"), (b"", b"", b"ERROR")),
        (protocol.payload(b"PONG "), (b"", b"PONG ")),
        (protocol.error(65, "no page"), (b"", b"ERROR", b"65", b"no page")),
        (protocol.error(-9, "ä"), (b"", b"ERROR", b"-9", "ä".encode())),
    ],
)
def test_every_message_is_exactly_these_frames(
    said: tuple[bytes, ...], frames: tuple[bytes, ...]
) -> None:
    assert said == frames


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (protocol.READY, Said("READY")),
        (protocol.PING, Said("PING")),
        (protocol.PONG, Said("PONG")),
        (protocol.EXIT, Said("EXIT")),
        (protocol.DISCONNECT, Said("DISCONNECT")),
        (protocol.BACK, Said("joined again")),
        (protocol.error(65, "no page"), Said("ERROR", b"no page", 65)),
        (protocol.error(-9, "ä"), Said("ERROR", "ä".encode(), -9)),
    ],
)
def test_every_message_means_one_thing(frames: tuple[bytes, ...], said: Said) -> None:
    assert decode(frames) == said


@given(st.binary(max_size=20) | st.sampled_from([*sorted(WORDS), b"ERROR"]))
def test_any_payload_comes_back_as_itself_and_only_a_word_has_a_frame_more(data: bytes) -> None:
    frames = protocol.payload(data)
    assert decode(frames) == Said("payload", data)
    assert len(frames) == (3 if data in WORDS or data == b"ERROR" else 2)


def test_payload_that_is_no_word_may_have_the_frame_too() -> None:
    assert decode([b"", b"", b"plain"]) == Said("payload", b"plain")


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"READY"],
        [b"PING", b""],
        [b"x", b"PING"],
        [b"", b"ERROR"],
        [b"", b"ERROR", b"65"],
        [b"", b"ERROR", b"many", b"x"],
        [b"", b"ERROR", b"1" * 5000, b"x"],
        [b"", b"PING", b""],
        [b"", b"", b"x", b""],
        [b"", b"a", b"b"],
        [b""] * 64,
    ],
)
def test_what_is_no_message_is_an_error_of_the_peer(frames: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(frames)


def test_text_of_an_error_is_bounded_and_need_not_be_utf_8() -> None:
    said = decode([b"", b"ERROR", b"1", b"\xff" * 100_000])
    assert (said.event, len(said.data)) == ("ERROR", 8192)
    assert len(protocol.error(1, "ä" * 100_000)[3]) <= 8192
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    ((_, how),) = ends(hear(broker, "w", [b"", b"ERROR", b"1", b"\xff" * 100_000], 1.0))
    assert how == (Failed, "\N{REPLACEMENT CHARACTER}" * 8192)


any_frames = st.lists(
    st.sampled_from([b"", b"65", b"75", b"x", b"ERROR", *sorted(WORDS)]) | st.binary(max_size=4),
    max_size=6,
)


@given(st.lists(any_frames, max_size=30))
def test_whatever_a_broker_says_is_effects_or_its_error(messages: list[list[bytes]]) -> None:
    worker = Worker()
    worker.start(0.0, 0.0)
    for frames in messages:
        with contextlib.suppress(RemoteProtocolError):
            worker.hear(b"", frames, 0.0, 0.0)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), any_frames), max_size=30))
@example([(b"a", READY), (b"a", READY)])
def test_whatever_comes_each_claim_ends_once_and_is_in_one_worker_s_hands(
    messages: list[tuple[bytes, list[bytes]]],
) -> None:
    broker = Broker(job_timeout=5.0)
    in_hand: dict[str, bytes] = {}
    for at, (peer, frames) in enumerate(messages):
        effects: Effects = []
        with contextlib.suppress(RemoteProtocolError):
            effects = broker.hear(peer, frames, float(at), 0.0)
        for effect in effects:
            if isinstance(effect, End):
                assert in_hand.pop(effect.claim) == peer
        for effect in broker.tick(float(at), 0.0):
            if isinstance(effect, End):
                del in_hand[effect.claim]
        assert in_hand == {
            claim: name for name, one in broker.workers.items() for claim in one.in_hand
        }
        if is_ready(broker, float(at)):
            sent = dealt(broker, work(f"c{at}"), float(at))
            assert sent.peer not in in_hand.values()
            in_hand[f"c{at}"] = sent.peer


# The constants


def test_constants_have_the_originals_values() -> None:
    for told in (WorkerSettings(), BrokerSettings(input="in", outputs=("out",))):
        assert (told.broker_timeout, told.n_timeouts, told.worker_expire_seconds) == (1.0, 3, 3.0)
        told.check()


@pytest.mark.parametrize(
    "told",
    [
        {"n_timeouts": 4},
        {"broker_timeout": 1.5},
        {"worker_expire_seconds": 2.9},
        {"broker_timeout": float("nan")},
        {"broker_timeout": 0.0},
        {"broker_timeout": 3.0, "n_timeouts": 1},
        {"n_timeouts": 0},
    ],
)
def test_constants_that_make_both_sides_give_each_other_up_are_refused(
    told: dict[str, Any],
) -> None:
    with pytest.raises(QueueError):
        BrokerSettings(input="in", outputs=("out",), **told).check()
    with pytest.raises(QueueError):
        WorkerSettings(**told).check()


# The broker lists workers


@pytest.mark.parametrize("frames", [READY, result(), [b"", b"ERROR", b"1", b"late"]])
def test_any_message_of_an_unknown_worker_is_answered_with_pong_and_lists_it_unless_it_is_ping(
    frames: list[bytes],
) -> None:
    broker = Broker()
    assert hear(broker, "w", frames, 0.0) == [Send(b"w", PONG)]
    assert is_ready(broker)
    assert dealt_to(broker, 0.0) == "w"


@pytest.mark.parametrize("frames", [READY, PING, result(), [b"", b"ERROR", b"1", b"late"]])
def test_worker_first_heard_of_by_a_ping_is_listed_by_its_next_message(frames: list[bytes]) -> None:
    broker = Broker()
    assert hear(broker, "w", PING, 0.0) == [Send(b"w", PONG)]
    assert not is_ready(broker)
    assert hear(broker, "w", frames, 1.0) == [Send(b"w", PONG)]
    assert dealt_to(broker, 1.0) == "w"


def test_result_for_a_broker_that_died_is_never_taken_for_that_of_another_document() -> None:
    """The worker says PING, then hears of the document; when both have happened its broker is dead,
    and the next one hears the PING."""
    worker, first, second = Worker(), a_broker(w=0.0), Broker()
    worker.start(0.0, 0.0)
    worker.hear(b"", PONG, 0.0, 0.0)
    document = dealt(first, work("c1", b"first"), 0.9)
    (ping,) = worker.tick(1.0, 0.0)
    assert isinstance(ping, Send)
    worker.hear(b"", document.frames, 1.0, 0.0)
    hear(second, "w", [*ping.frames], 1.2)
    if is_ready(second, 1.2):
        dealt(second, work("c2", b"second"), 1.2)
    (late,) = worker.finished("1", (Result(b"of the first"),), 2.0)
    assert isinstance(late, Send)
    assert ends(hear(second, "w", [*late.frames], 2.0)) == []
    assert dealt_to(second, 2.0, "c2") == "w"


def test_worker_whose_connection_broke_says_nothing_that_its_broker_does_not_expect() -> None:
    """With a READY on the same socket, a PONG from before would be taken for its answer, and each
    result for that of another document ever after."""
    worker = Worker()
    assert worker.joined(b"", 0.0) == []
    worker.start(0.0, 0.0)
    worker.hear(b"", PONG, 0.0, 0.0)
    (said,) = worker.joined(b"", 1.0)
    assert said == Send(b"", (b"",))
    broker = a_broker(w=0.0)
    assert hear(broker, "w", [b""], 0.1) == []
    assert hear(broker, "stranger", [b""], 0.1) == []
    assert dealt_to(broker, 0.5) == "w"
    assert not is_ready(broker)


def test_document_that_was_lost_on_its_way_is_noticed_by_the_pings_of_its_worker() -> None:
    broker = a_broker(w=0.0)
    assert dealt_to(broker, 0.5) == "w"
    assert hear(broker, "w", [b""], 0.55) == []
    # It may have said the first before it had the document.
    assert [hear(broker, "w", PING, at) for at in (0.6, 1.6)] == [[Send(b"w", PONG)]] * 2
    assert ends(hear(broker, "w", PING, 2.6)) == ON_ITS_WAY
    # It may have it after all: nothing else is dealt to it before it says READY.
    assert hear(broker, "w", PING, 3.6) == []
    assert not is_ready(broker)
    assert hear(broker, "w", READY, 6.0) == [Send(b"w", PONG)]
    assert dealt_to(broker, 6.0, "c2") == "w"
    assert hear(broker, "w", PING, 6.1) == [Send(b"w", PONG)]


def test_worker_that_pings_beside_its_work_keeps_its_document() -> None:
    broker = a_broker(w=0.0)
    assert dealt_to(broker, 0.5) == "w"
    pings = [hear(broker, "w", PING, 0.6 + second) for second in range(100)]
    assert pings == [[Send(b"w", PONG)]] * 100
    assert hear(broker, "w", result(), 101.0)[0] == done()


@pytest.mark.parametrize("frames", [READY, PING, result(), [b"", b"ERROR", b"1", b"late"]])
def test_every_message_of_a_listed_worker_is_answered_with_pong_and_nothing_else(
    frames: list[bytes],
) -> None:
    broker = a_broker(w=0.0)
    assert hear(broker, "w", frames, 1.0) == [Send(b"w", PONG)]
    assert dealt_to(broker, 1.0) == "w"
    assert not is_ready(broker)


def test_document_goes_to_the_worker_heard_of_longest_ago() -> None:
    broker = a_broker(a=0.0, b=0.1, c=0.2)
    hear(broker, "a", PING, 0.3)
    assert [dealt_to(broker, 0.4, claim) for claim in ("1", "2", "3")] == ["b", "c", "a"]


def test_payload_that_equals_a_word_is_dealt_with_one_more_empty_frame() -> None:
    broker = a_broker(w=0.0)
    assert dealt(broker, work(payload=b"EXIT"), 0.0) == Send(b"w", (b"", b"", b"EXIT"))


def test_worker_that_leaves_gets_nothing_more() -> None:
    broker = a_broker(w=0.0)
    assert not [one for one in hear(broker, "w", DISCONNECT, 0.1) if not isinstance(one, Say)]
    assert not is_ready(broker)


def test_worker_for_whom_there_is_no_room_gets_no_pong() -> None:
    broker = Small()
    for number in range(broker.max_workers):
        hear(broker, f"a{number}", READY, 0.0)
    assert not any(isinstance(effect, Send) for effect in hear(broker, "b", READY, 0.0))
    broker.tick(3.0, 0.0)
    assert hear(broker, "b", PING, 3.0) == [Send(b"b", PONG)]


# Silence


def listed(broker: Broker) -> list[bytes]:
    return list(broker.workers)


def test_silent_worker_is_dealt_nothing_from_its_expiry_on_and_dropped_within_a_second() -> None:
    broker = a_broker(w=10.0)
    assert is_ready(broker, 12.999)
    assert not is_ready(broker, 13.0)
    now = 10.0
    while listed(broker):
        now = broker.next_tick_at() or now + 1.0
        broker.tick(now, 0.0)
    assert 13.0 <= now <= 14.0
    assert broker.next_tick_at() is None


@pytest.mark.parametrize("frames", [READY, PING, result()])
def test_any_message_puts_the_expiry_off(frames: list[bytes]) -> None:
    broker = a_broker(w=10.0)
    hear(broker, "w", frames, 12.0)
    assert is_ready(broker, 14.999)
    broker.tick(14.999, 0.0)
    assert listed(broker) == [b"w"]
    assert not is_ready(broker, 15.0)


def test_busy_worker_does_not_expire_and_is_tried_each_second() -> None:
    broker = a_broker(w=0.0)
    broker.tick(0.0, 0.0)
    dealt_to(broker, 0.5)
    now = 0.0
    probes = 0
    while now < 1000:
        now = broker.next_tick_at() or 1001.0
        effects = broker.tick(now, 0.0)
        assert effects in ([], [Send(b"w", PONG)])
        probes += len(effects)
    assert probes == 1000
    assert hear(broker, "w", result(), now) == [done(), Send(b"w", PONG)]
    # From here its silence counts again.
    assert is_ready(broker, now + 2.9)
    assert not is_ready(broker, now + 3.0)


# Documents


def test_result_is_one_output_without_a_name_and_lists_the_worker_again() -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    assert not is_ready(broker)
    assert hear(broker, "w", result(b"the bytes"), 60.0) == [
        done(data=b"the bytes"),
        Send(b"w", PONG),
    ]
    assert dealt_to(broker, 60.0, "c2") == "w"


def test_result_that_equals_a_word_is_a_result() -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    assert hear(broker, "w", [b"", b"", b"READY"], 1.0)[0] == done(data=b"READY")


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (b"65", Failed(Failure(cause="permanent", message="t", permanent=True, exit_code=65))),
        (b"75", Postponed(60.0, "t")),
        (b"1", Failed(Failure(cause="exit", message="t", exit_code=1))),
        (b"0", Failed(Failure(cause="exit", message="t", exit_code=0))),
        (b"-9", Failed(Failure(cause="exit", message="t", exit_code=-9))),
    ],
)
def test_error_sets_the_document_back_as_its_code_says(code: bytes, how: Setback) -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    effects = hear(broker, "w", [b"", b"ERROR", code, b"t"], 1.0)
    assert effects == [End("c1", how), Send(b"w", PONG)]
    assert is_ready(broker)


def test_ping_of_a_busy_worker_is_answered_and_gets_it_no_second_document() -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    assert hear(broker, "w", PING, 1.0) == [Send(b"w", PONG)]
    assert not is_ready(broker)
    assert hear(broker, "w", result(), 2.0)[0] == done()


def test_ready_of_a_busy_worker_gives_its_document_back_in_doubt_and_lists_it() -> None:
    """Of one whose connection broke, and that never had the document, it says just that."""
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    effects = hear(broker, "w", READY, 1.0)
    assert ends(effects) == ON_ITS_WAY
    assert effects[-1] == Send(b"w", PONG)
    assert dealt_to(broker, 1.0, "c2") == "w"


def test_busy_worker_that_leaves_gives_its_document_back_uncharged() -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    effects = hear(broker, "w", DISCONNECT, 1.0)
    assert ends(effects) == [("c1", Released("its worker left"))]
    assert not [one for one in effects if isinstance(one, Send)]
    assert not is_ready(broker)
    # It has nothing in hand: a PING of its next life makes it known as any other's.
    assert hear(broker, "w", PING, 2.0) == [Send(b"w", PONG)]


def test_nonsense_of_a_busy_worker_leaves_its_document_in_its_hands() -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    for frames in ([], [b"x"], [b"", b"ERROR"], [b"", b"PONG"], [b"", b"EXIT"]):
        with pytest.raises(RemoteProtocolError):
            hear(broker, "w", frames, 1.0)
    assert hear(broker, "w", result(), 2.0)[0] == done()


# Lost workers


def test_unreachable_worker_is_lost_with_its_document() -> None:
    broker = a_broker(idle=0.0, w=0.0)
    assert ends(broker.gone(b"idle", 0.0)) == []
    dealt_to(broker, 0.0)
    effects = broker.gone(b"w", 1.0)
    assert ends(effects) == lost("unroutable")
    # Whoever looks on is told without having asked.
    assert [one.level for one in effects if isinstance(one, Say)] == [0]
    assert broker.gone(b"w", 1.0) == []


def test_document_that_could_not_be_sent_is_charged_to_nobody() -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    released = Released("its worker was gone before it was sent")
    assert ends(broker.undelivered(b"w", "c1", 0.0)) == [("c1", released)]
    assert not is_ready(broker)
    # It never had anything: it owes nothing.
    assert hear(broker, "w", PING, 1.0) == [Send(b"w", PONG)]


def test_document_that_takes_longer_than_its_time_out_is_lost() -> None:
    broker = a_broker(job_timeout=10.0, w=5.0)
    dealt_to(broker, 5.0)
    assert broker.tick(14.9, 0.0) == [Send(b"w", PONG)]
    effects = broker.tick(15.9, 0.0)
    assert ends(effects) == lost("overdue")
    assert [one.peer for one in effects if isinstance(one, Close)] == [b"w"]


def test_overdue_worker_is_not_listed_by_its_ping() -> None:
    broker = a_broker(job_timeout=10.0, w=0.0)
    dealt_to(broker, 0.0)
    broker.tick(10.0, 0.0)
    assert hear(broker, "w", PING, 11.0) == []
    assert not is_ready(broker)
    assert hear(broker, "w", READY, 12.0) == [Send(b"w", PONG)]
    assert is_ready(broker)


def test_late_result_is_answered_and_dropped_and_lists_the_worker() -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    broker.gone(b"w", 1.0)
    assert hear(broker, "w", result(), 2.0) == [Send(b"w", PONG)]
    assert dealt_to(broker, 2.0, "c2") == "w"


def test_result_of_a_document_that_was_given_up_is_never_taken_for_that_of_another() -> None:
    broker = a_broker(w=0.0)
    dealt_to(broker, 0.0)
    broker.gone(b"w", 1.0)
    # It works on, and pings meanwhile.
    assert hear(broker, "w", PING, 2.0) == []
    assert not is_ready(broker)
    assert ends(hear(broker, "w", result(b"of c1"), 3.0)) == []
    dealt_to(broker, 4.0, "c2")
    assert hear(broker, "w", result(b"of c2"), 5.0)[0] == done("c2", b"of c2")


def test_worker_given_up_whose_document_never_came_is_listed_again_by_its_own_patience() -> None:
    """Nobody answers its PING, so it reconnects and says READY."""
    broker, worker = Broker(), Worker()
    broker.hear(b"w", READY, 0.0, 0.0)
    worker.start(0.0, 0.0)
    worker.hear(b"", PONG, 0.0, 0.0)
    dealt_to(broker, 0.0)  # lost on its way
    broker.gone(b"w", 0.0)
    now = 0.0
    while not is_ready(broker, now):
        now = worker.next_tick_at() or now
        effects = worker.tick(now, 0.0)
        if isinstance(effects[0], Reconnect):
            effects = worker.start(now, 0.0)
        for effect in effects:
            assert isinstance(effect, Send)
            broker.hear(b"w", effect.frames, now, 0.0)
    assert now == 3.0


def test_memory_of_those_given_up_is_bounded() -> None:
    broker = Small()
    for at in range(100):
        name = f"w{at}"
        hear(broker, name, READY, 0.0)
        dealt_to(broker, 0.0)
        broker.gone(name.encode(), 0.0)
    assert len(broker._aside) == 10


# A broker that leaves


def test_broker_that_leaves_says_exit_to_the_idle_at_once_and_to_the_busy_after_their_result() -> (
    None
):
    broker = a_broker(busy=0.0, idle=0.0)
    assert dealt_to(broker, 0.0) == "busy"
    assert broker.leave(1.0) == [Send(b"idle", EXIT)]
    assert not is_ready(broker)
    assert hear(broker, "busy", PING, 1.5) == [Send(b"busy", PONG)]
    assert hear(broker, "busy", result(), 2.0) == [
        done(),
        Send(b"busy", EXIT),
    ]
    assert hear(broker, "late", READY, 3.0) == [Send(b"late", EXIT)]
    assert not is_ready(broker)
    assert broker.workers == {}


# The worker


def an_idle_worker(now: float = 0.0) -> Worker:
    worker = Worker()
    assert worker.start(now, 0.0) == [Send(b"", (b"", b"READY"))]
    assert worker.hear(b"", PONG, now, 0.0) == []
    return worker


def a_busy_worker(now: float = 0.0) -> Worker:
    worker = an_idle_worker(now)
    assert worker.hear(b"", [b"", b"in"], now, 0.0) == [
        Process(Work("1", "document-1", 0, b"in")),
    ]
    return worker


def test_worker_pings_each_second_though_the_broker_is_quiet() -> None:
    worker = an_idle_worker()
    seen = []
    for tenth in range(1, 30):
        seen += [(tenth, effect) for effect in worker.tick(tenth / 10, 0.0)]
    assert seen == [(10, Send(b"", (b"", b"PING"))), (20, Send(b"", (b"", b"PING")))]


def test_worker_reconnects_after_n_timeouts_and_says_ready_first_for_ever() -> None:
    worker = an_idle_worker()
    now = 0.0
    for turn in range(1, 100):
        effects: Effects = []
        while not any(isinstance(effect, Reconnect) for effect in effects):
            now = worker.next_tick_at() or now
            effects = worker.tick(now, 0.0)
        assert now == 3.0 * turn
        assert worker.next_tick_at() is None
        assert worker.tick(now, 0.0) == []
        assert worker.start(now, 0.0) == [Send(b"", (b"", b"READY"))]


@pytest.mark.parametrize("frames", [PONG, (b"", b"in")])
def test_any_message_of_the_broker_resets_the_count_of_time_outs(frames: tuple[bytes, ...]) -> None:
    worker = an_idle_worker()
    for at in (1.0, 2.0):
        worker.tick(at, 0.0)
    worker.hear(b"", frames, 2.9, 0.0)
    effects = worker.tick(3.1, 0.0)
    assert not any(isinstance(effect, Reconnect) for effect in effects)


def test_busy_worker_neither_pings_nor_reconnects_and_its_timers_start_anew_afterwards() -> None:
    worker = a_busy_worker()
    assert worker.next_tick_at() is None
    assert worker.tick(500.0, 0.0) == []
    assert worker.finished("1", (Result(b"out"),), 1000.0) == [Send(b"", (b"", b"out"))]
    assert worker.next_tick_at() == 1001.0
    assert worker.tick(1001.0, 0.0) == [Send(b"", (b"", b"PING"))]
    assert isinstance(worker.tick(1003.0, 0.0)[0], Reconnect)


def test_document_that_equals_pong_is_processed() -> None:
    (effect,) = an_idle_worker().hear(b"", [b"", b"", b"PONG"], 0.0, 0.0)
    assert effect == Process(Work("1", "document-1", 0, b"PONG"))


def test_second_document_is_an_error_of_the_broker() -> None:
    worker = a_busy_worker()
    with pytest.raises(RemoteProtocolError):
        worker.hear(b"", [b"", b"another"], 1.0, 0.0)
    assert worker.finished("1", (Result(b"out"),), 2.0) == [Send(b"", (b"", b"out"))]


def test_document_from_before_the_ready_is_dropped_because_the_broker_counts_it_lost() -> None:
    worker = Worker()
    worker.start(0.0, 0.0)
    effects = worker.hear(b"", [b"", b"stale"], 0.1, 0.0)
    assert not any(isinstance(effect, Process | Send) for effect in effects)
    worker.hear(b"", PONG, 0.2, 0.0)
    assert isinstance(worker.hear(b"", [b"", b"fresh"], 0.3, 0.0)[0], Process)


def test_result_that_equals_a_word_is_sent_with_one_more_empty_frame() -> None:
    worker = a_busy_worker()
    assert worker.finished("1", (Result(b"PING"),), 1.0) == [Send(b"", (b"", b"", b"PING"))]


@pytest.mark.parametrize("results", [(), (Result(b"1"), Result(b"2"))])
def test_other_than_one_output_is_a_permanent_failure_that_says_so(
    results: tuple[Result, ...],
) -> None:
    (sent,) = a_busy_worker().finished("1", results, 1.0)
    assert isinstance(sent, Send)
    assert sent.frames[:3] == (b"", b"ERROR", b"65")
    assert f"{len(results)} outputs".encode() in sent.frames[3]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (Failed(Failure(cause="permanent", message="why", permanent=True)), b"65"),
        (Failed(Failure(cause="exception", message="why")), b"1"),
        (Postponed(5.0, "why"), b"75"),
        (Released("why"), b"75"),
    ],
)
def test_failure_is_an_error_with_its_code_and_text(
    how: Failed | Postponed | Released, code: bytes
) -> None:
    worker = a_busy_worker()
    assert worker.failed("1", how, 1.0) == [Send(b"", (b"", b"ERROR", code, b"why"))]
    assert worker.next_tick_at() == 2.0


def test_idle_worker_leaves_when_told_exit() -> None:
    assert an_idle_worker().hear(b"", EXIT, 1.0, 0.0) == [Leave("the broker says EXIT")]


def test_busy_worker_that_is_told_exit_leaves_after_its_result() -> None:
    worker = a_busy_worker()
    assert worker.hear(b"", EXIT, 1.0, 0.0) == []
    assert worker.finished("1", (Result(b"out"),), 2.0) == [
        Send(b"", (b"", b"out")),
        Leave("the broker says EXIT"),
    ]
    assert worker.next_tick_at() is None


def test_worker_that_is_asked_to_leave_says_disconnect_after_its_result() -> None:
    bye = [Send(b"", (b"", b"DISCONNECT")), Leave("asked to leave")]
    assert an_idle_worker().leave(1.0) == bye
    worker = a_busy_worker()
    assert worker.leave(1.0) == []
    assert worker.finished("1", (Result(b"out"),), 2.0) == [Send(b"", (b"", b"out")), *bye]


def test_interrupted_worker_gives_its_document_back_and_leaves() -> None:
    worker = a_busy_worker()
    worker.leave(1.0)
    assert worker.failed("1", Released("a second signal"), 2.0) == [
        Send(b"", (b"", b"DISCONNECT")),
        Leave("asked to leave"),
    ]


def test_connection_that_comes_back_while_a_document_is_in_hand_says_nothing() -> None:
    worker = a_busy_worker()
    assert worker.start(1.0, 0.0) == []
    assert worker.finished("1", (Result(b"out"),), 2.0) == [Send(b"", (b"", b"out"))]


def test_end_of_a_document_that_is_not_in_hand_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        an_idle_worker().finished("1", (), 0.0)
    with pytest.raises(LocalProtocolError):
        a_busy_worker().failed("7", Released("x"), 0.0)


# The tables


@pytest.mark.parametrize("state", [UNKNOWN, LISTED, BUSY, OWING])
@pytest.mark.parametrize("event", ["READY", "PING", "result", "ERROR", "DISCONNECT"])
def test_every_message_of_a_worker_has_a_row_in_every_state_and_the_broker_follows_it(
    state: str, event: str
) -> None:
    broker = Broker() if state == UNKNOWN else a_broker(w=0.0)
    if state in (BUSY, OWING):
        dealt_to(broker, 0.0)
    if state == OWING:
        broker.gone(b"w", 0.0)
    frames = {"result": result(), "ERROR": [b"", b"ERROR", b"1", b""]}
    effects = hear(broker, "w", frames.get(event, [b"", event.encode()]), 1.0)
    to = BROKER.cells[state, event, ""]
    worker = broker.workers.get(b"w")
    assert (worker.state if worker else broker._aside.get(b"w", UNKNOWN)) == to
    (row,) = [
        row
        for row in BROKER.rows
        if state in row.state.split(" | ") and (row.event, row.when) == (event, "")
    ]
    assert (Send(b"w", PONG) in effects) == row.action.startswith("PONG")
