"""Scale0's worker and frontend: what they say, and when they give up."""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Failed, Released
from queuedriver.doors.scale0.client import Client
from queuedriver.doors.scale0.worker import (
    ASKING,
    CHECKING,
    CLOSED,
    GREETING,
    READY,
    WORKER,
    WORKING,
    Worker,
)
from queuedriver.doors.words import (
    Effect,
    Effects,
    Ended,
    Leave,
    Process,
    Reconnect,
    Result,
    Say,
    Send,
    Work,
)
from queuedriver.errors import LocalProtocolError, RemoteProtocolError
from queuedriver.format.records import Failure

WALL = 1_763_500_000.0
HERE = "tcp://here:8081"


def frames_of(command: str, body: bytes | None = None, **options: Any) -> list[bytes]:
    made = [command.encode(), json.dumps(options).encode()]
    return made if body is None else [*made, body]


def hear(worker: Worker, command: str, now: float = 0.0, **options: Any) -> Effects:
    body = b"in" if command == "WORKREQUEST" else None
    return worker.hear(b"", frames_of(command, body, **options), now, WALL + now)


def sent(effects: Sequence[Effect]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (one.frames[0].decode(), json.loads(one.frames[1]))
        for one in effects
        if isinstance(one, Send)
    ]


def commands(effects: Sequence[Effect]) -> list[str]:
    return [command for command, _ in sent(effects)]


def others(effects: Sequence[Effect]) -> list[Effect]:
    return [one for one in effects if not isinstance(one, Send | Say)]


def a_worker(*group: str, **options: Any) -> Worker:
    worker = Worker("w", HERE, group=group, **options)
    assert commands(worker.start(0.0, WALL)) == ["CHECKCONFIG"]
    return worker


def a_listed_worker(*group: str, now: float = 0.0, **options: Any) -> Worker:
    worker = a_worker(*group, **options)
    configure(worker, now)
    return worker


def configure(worker: Worker, now: float = 0.0) -> None:
    assert commands(hear(worker, "CONFIG", now, services=["ocr"], config_version="v1")) == ["READY"]
    assert others(hear(worker, "READYOK", now, heartbeat_interval=5.0)) == []


def a_busy_worker(now: float = 0.0) -> Worker:
    worker = a_listed_worker(now=now)
    effects = hear(worker, "WORKREQUEST", now, work_request_identifier="b:1", docid="doc")
    assert effects == [Process(Work("b:1", "doc", 0, b"in"))]
    return worker


def sleep_until(worker: Worker, end: float) -> list[tuple[float, Effect]]:
    """What it does by itself until then."""
    seen: list[tuple[float, Effect]] = []
    while (at := worker.next_tick_at()) is not None and at <= end:
        effects = worker.tick(at, WALL + at)
        seen += [(at, effect) for effect in effects]
        if any(isinstance(effect, Reconnect | Leave) for effect in effects):
            break
        assert worker.next_tick_at() != at
    return seen


# The two start-ups


def test_start_up_with_the_broker_down_fails_with_an_error() -> None:
    worker = a_worker()
    ((at, effect),) = sleep_until(worker, 1000.0)
    assert at == 5.0
    assert isinstance(effect, Leave)
    assert effect.exit_code == 69
    assert "CHECKCONFIG" in effect.why
    assert HERE in effect.why
    assert worker.next_tick_at() is None


def test_start_up_with_the_broker_up_says_the_four_lines_in_their_order() -> None:
    worker = Worker("w", HERE)
    effects = worker.start(0.0, WALL)
    effects += hear(worker, "CONFIG", services=["ocr"], config_version="v1")
    effects += hear(worker, "READYOK")
    assert [one.words for one in effects if isinstance(one, Say) and one.level == 1] == [
        "C --- CHECKCONFIG ---> B",
        "B --- CONFIG ---> C",
        "C --- READY ---> B",
        "B --- READYOK ---> C",
    ]
    assert sent(effects) == [
        ("CHECKCONFIG", {"config_type": "JSON", "work_in_hand": []}),
        ("READY", {"services": ["ocr"], "time": WALL, "config_version": "v1"}),
    ]


def test_worker_offers_the_services_it_was_told_to_else_all_that_there_are() -> None:
    worker = a_worker(services=("scan",), heartbeat_interval=60.0)
    ((_, options),) = sent(hear(worker, "CONFIG", services=["ocr", "scan"], config_version="v1"))
    assert (options["services"], options["heartbeat_interval"]) == (["scan"], 60.0)


def test_worker_that_has_the_configuration_takes_unchanged_for_it() -> None:
    worker = a_listed_worker()
    ((_, options),) = sent(hear(worker, "FORCENEGOTIATE"))
    assert options["config_version"] == "v1"
    ((command, options),) = sent(hear(worker, "CONFIG", unchanged=True))
    assert (command, options["config_version"]) == ("READY", "v1")


def test_unchanged_to_one_that_has_none_is_an_error_of_the_broker() -> None:
    with pytest.raises(RemoteProtocolError):
        hear(a_worker(), "CONFIG", unchanged=True)


# Heartbeats and silence


def test_worker_pings_at_the_interval_that_the_broker_granted_though_it_is_quiet() -> None:
    worker = a_listed_worker()
    seen = [(at, *sent([effect])) for at, effect in sleep_until(worker, 12.0)]
    assert seen == [
        (5.0, ("PING", {"time": WALL + 5, "config_version": "v1"})),
        (10.0, ("PING", {"time": WALL + 10, "config_version": "v1"})),
    ]


def test_worker_whose_broker_is_silent_for_three_heartbeats_reconnects_and_checks_its_config() -> (
    None
):
    worker = a_listed_worker()
    hear(worker, "PONG", 4.0)
    at, effect = sleep_until(worker, 1000.0)[-1]
    assert (at, effect) == (19.0, Reconnect("the broker is silent", HERE))
    assert worker.next_tick_at() is None
    assert commands(worker.start(at, WALL)) == ["CHECKCONFIG"]


def test_worker_that_was_listed_once_tries_for_ever() -> None:
    worker = a_listed_worker()
    now = 0.0
    for _ in range(50):
        now, effect = sleep_until(worker, 1e6)[-1]
        assert isinstance(effect, Reconnect)
        assert effect.to == HERE
        worker.start(now, WALL)
    configure(worker, now)


def test_busy_worker_does_not_take_its_own_silence_for_the_broker_s() -> None:
    worker = a_busy_worker()
    assert others(worker.tick(1000.0, WALL + 1000)) == []
    assert commands(worker.finished("b:1", (Result(b"x"),), 1000.0)) == ["WORKREPLY", "READY"]
    assert [at for at, _ in sleep_until(worker, 1004.9)] == []


def test_readyok_that_does_not_come_is_asked_for_once_more_then_elsewhere() -> None:
    worker = a_worker()
    hear(worker, "CONFIG", services=["ocr"], config_version="v1")
    hear(worker, "PONG", 4.9)
    assert commands(worker.tick(5.0, WALL)) == ["READY"]
    hear(worker, "PONG", 9.9)
    seen = sleep_until(worker, 100.0)
    assert seen[-1][0] == 10.0
    assert isinstance(seen[-1][1], Reconnect)


# Documents


def test_reply_of_one_output_is_the_plain_body_and_ready_follows() -> None:
    effects = a_busy_worker().finished("b:1", (Result(b"out"),), 7.0)
    reply, ready = effects
    assert isinstance(reply, Send)
    assert reply.frames == (b"WORKREPLY", b'{"work_request_identifier":"b:1"}', b"out")
    assert sent([ready])[0][1]["time"] == WALL + 7


def test_reply_of_several_outputs_names_them_with_their_sizes() -> None:
    reply = a_busy_worker().finished("b:1", (Result(b"ab", "x"), Result(b"c", "y")), 1.0)[0]
    assert isinstance(reply, Send)
    assert json.loads(reply.frames[1])["outputs"] == [
        {"size": 2, "name": "x"},
        {"size": 1, "name": "y"},
    ]
    assert reply.frames[2] == b"abc"


def test_failure_is_a_reply_with_a_status_and_its_text() -> None:
    how = Failed(Failure(cause="permanent", message="no page", permanent=True))
    (_, options), (command, _) = sent(a_busy_worker().failed("b:1", how, 1.0))
    assert options == {"work_request_identifier": "b:1", "status": 65, "error_message": "no page"}
    assert command == "READY"


def test_second_request_waits_until_the_first_is_done() -> None:
    worker = a_busy_worker()
    assert hear(worker, "WORKREQUEST", work_request_identifier="b:2", docid="two") == []
    effects = worker.finished("b:1", (Result(b""),), 1.0)
    assert commands(effects) == ["WORKREPLY"]
    assert others(effects) == [Process(Work("b:2", "two", 0, b"in"))]
    assert commands(worker.finished("b:2", (Result(b""),), 2.0)) == ["WORKREPLY", "READY"]


def test_request_from_before_the_checkconfig_is_dropped() -> None:
    worker = a_worker()
    assert others(hear(worker, "WORKREQUEST", work_request_identifier="b:1")) == []
    configure(worker)


def test_end_of_a_request_that_is_not_in_hand_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        a_busy_worker().finished("b:2", (), 0.0)
    with pytest.raises(LocalProtocolError):
        a_listed_worker().failed("b:1", Released("x"), 0.0)


def test_worker_that_is_told_to_negotiate_says_what_it_has_and_finishes_it_first() -> None:
    worker = a_busy_worker()
    assert sent(hear(worker, "FORCENEGOTIATE"))[0][1]["work_in_hand"] == ["b:1"]
    assert commands(hear(worker, "CONFIG", unchanged=True)) == []
    assert commands(worker.finished("b:1", (Result(b""),), 1.0)) == ["WORKREPLY", "READY"]


def test_worker_that_finishes_while_it_negotiates_says_ready_after_the_config() -> None:
    worker = a_busy_worker()
    hear(worker, "FORCENEGOTIATE")
    assert commands(worker.finished("b:1", (Result(b""),), 1.0)) == ["WORKREPLY"]
    assert commands(hear(worker, "CONFIG", unchanged=True)) == ["READY"]


def test_worker_that_is_told_to_negotiate_again_and_again_leaves() -> None:
    worker = a_listed_worker()
    effects: Effects = []
    for _ in range(9):
        effects = hear(worker, "FORCENEGOTIATE")
    assert isinstance(others(effects)[0], Leave)


# Leaving


def test_worker_that_leaves_says_so_at_once_or_after_its_reply() -> None:
    bye = ["DISCONNECTERROR"]
    effects = a_listed_worker().leave(1.0)
    assert (commands(effects), others(effects)) == (bye, [Leave("asked to leave")])
    worker = a_busy_worker()
    assert worker.leave(1.0) == []
    effects = worker.finished("b:1", (Result(b""),), 2.0)
    assert (commands(effects), others(effects)) == (["WORKREPLY", *bye], [Leave("asked to leave")])


def test_worker_that_is_interrupted_gives_back_what_it_has() -> None:
    worker = a_busy_worker()
    worker.leave(1.0)
    effects = worker.failed("b:1", Released("a second signal"), 2.0)
    assert commands(effects) == ["DISCONNECTERROR"]
    assert others(effects) == [Leave("asked to leave")]


@pytest.mark.parametrize(
    ("code", "exit_code"), [(400, 70), (409, 78), (444, 70), (501, 78), (503, 69)]
)
def test_worker_that_is_disconnected_for_an_error_leaves_and_says_why(
    code: int, exit_code: int
) -> None:
    effects = hear(a_worker(), "DISCONNECTERROR", error_code=code, error_message="the reason")
    (effect,) = others(effects)
    assert isinstance(effect, Leave)
    assert effect.exit_code == exit_code
    assert "the reason" in effect.why


def test_worker_that_is_disconnected_gives_up_what_it_has_not_begun() -> None:
    worker = a_busy_worker()
    told: dict[str, Any] = {"error_code": 301, "broker": "tcp://there:1", "error_message": "x"}
    assert others(hear(worker, "DISCONNECTERROR", **told)) == [
        Reconnect("the broker says 301: x", "tcp://there:1")
    ]
    assert sent(worker.start(2.0, WALL))[0][1]["work_in_hand"] == []


def test_worker_that_was_listed_once_waits_for_a_broker_that_takes_nobody() -> None:
    worker = a_listed_worker()
    now = 0.0
    for _ in range(3):
        told: dict[str, Any] = {"error_code": 503, "error_message": "this broker leaves"}
        assert others(hear(worker, "DISCONNECTERROR", now, **told)) == [
            Reconnect("the broker says 503: this broker leaves", HERE)
        ]
        assert worker.start(now, WALL) == []
        assert worker.next_tick_at() == now + 5.0
        now += 5.0
        assert commands(worker.tick(now, WALL)) == ["CHECKCONFIG"]
    configure(worker, now)


# Groups


def test_worker_is_sent_to_another_broker() -> None:
    worker = a_listed_worker()
    (effect,) = others(hear(worker, "DISCONNECTERROR", error_code=301, broker="tcp://there:1"))
    assert isinstance(effect, Reconnect)
    assert effect.to == "tcp://there:1"
    assert commands(worker.start(1.0, WALL)) == ["CHECKCONFIG"]


def test_worker_that_is_sent_round_in_circles_leaves() -> None:
    worker = a_worker()
    for _ in range(8):
        (effect,) = others(hear(worker, "DISCONNECTERROR", error_code=301, broker="tcp://x:1"))
        assert isinstance(effect, Reconnect)
        worker.start(0.0, WALL)
    (effect,) = others(hear(worker, "DISCONNECTERROR", error_code=301, broker="tcp://x:1"))
    assert isinstance(effect, Leave)


def test_worker_that_is_sent_to_no_address_leaves() -> None:
    (effect,) = others(hear(a_worker(), "DISCONNECTERROR", error_code=301, broker="no address"))
    assert isinstance(effect, Leave)


def test_worker_with_another_version_asks_for_the_configuration_as_if_it_had_none() -> None:
    worker = a_listed_worker()
    (effect,) = others(hear(worker, "DISCONNECTERROR", error_code=426))
    assert isinstance(effect, Reconnect)
    assert "config_version" not in sent(worker.start(1.0, WALL))[0][1]


def test_start_up_with_the_broker_down_asks_the_others_of_the_group_then_fails() -> None:
    worker = a_worker(HERE, "tcp://b:1", "tcp://c:1", services=("ocr",))
    for expected in ("tcp://b:1", "tcp://c:1"):
        at, effect = sleep_until(worker, 1000.0)[-1]
        assert isinstance(effect, Reconnect)
        assert effect.to == expected
        assert sent(worker.start(at, WALL)) == [
            ("NEEDBROKER", {"identity": "w", "services": ["ocr"]})
        ]
    _, effect = sleep_until(worker, 1000.0)[-1]
    assert isinstance(effect, Leave)
    assert effect.exit_code == 69


def test_broker_that_would_have_us_is_asked_for_the_configuration() -> None:
    worker = a_worker("tcp://b:1")
    at, _ = sleep_until(worker, 1000.0)[-1]
    worker.start(at, WALL)
    effects = hear(worker, "DISCONNECTERROR", at, error_code=301, broker="tcp://b:1")
    assert commands(effects) == ["CHECKCONFIG"]
    configure(worker, at)


def test_each_time_its_broker_is_gone_the_others_are_asked_from_the_first_on() -> None:
    worker = a_listed_worker("tcp://b:1", "tcp://c:1")
    at, seen = 0.0, []
    for _ in range(3):
        for _ in ("silent", "no answer"):
            at, effect = sleep_until(worker, 1e6)[-1]
            assert isinstance(effect, Reconnect)
            seen.append(effect.to)
            worker.start(at, WALL)
        hear(worker, "DISCONNECTERROR", at, error_code=301)
        configure(worker, at)
    assert seen == [HERE, "tcp://b:1"] + 2 * ["tcp://b:1", "tcp://b:1"]


def test_broker_that_would_not_have_us_is_not_asked_again() -> None:
    worker = a_worker("tcp://b:1", "tcp://c:1")
    at, _ = sleep_until(worker, 1000.0)[-1]
    worker.start(at, WALL)
    (effect,) = others(hear(worker, "DISCONNECTERROR", at, error_code=503))
    assert isinstance(effect, Reconnect)
    assert effect.to == "tcp://c:1"
    worker.start(at, WALL)
    (effect,) = others(hear(worker, "DISCONNECTERROR", at, error_code=503))
    assert isinstance(effect, Leave)


def test_worker_learns_the_group_and_the_preferred_broker_from_its_configuration() -> None:
    worker = a_worker()
    group = {"brokers": [HERE, "tcp://b:1"]}
    options: dict[str, Any] = {"services": ["ocr"], "group_config": group, "config_version": "v1"}
    hear(worker, "CONFIG", preferred_broker="tcp://best:1", **options)
    hear(worker, "READYOK")
    seen = []
    for _ in range(3):
        at, effect = sleep_until(worker, 1e6)[-1]
        assert isinstance(effect, Reconnect)
        seen.append(effect.to)
        seen += commands(worker.start(at, WALL))
    assert seen == [HERE, "CHECKCONFIG", "tcp://b:1", "NEEDBROKER", "tcp://best:1", "CHECKCONFIG"]


# Whatever comes

messages = st.builds(
    lambda command, options: frames_of(command, b"" if "WORK" in command else None, **options),
    st.sampled_from(
        [
            *("CONFIG", "READYOK", "PONG", "WORKREQUEST", "FORCENEGOTIATE", "DISCONNECTERROR"),
            *("CHECKCONFIG", "READY", "WORKREPLY", "NOTHING"),
        ]
    ),
    st.fixed_dictionaries(
        {
            "error_code": st.sampled_from([301, 400, 426, 503]),
            "unchanged": st.booleans(),
            "work_request_identifier": st.sampled_from(["", "b:1", "b:2"]),
            "services": st.just(["ocr"]),
            "broker": st.sampled_from(["", "tcp://b:1", "x"]),
        }
    ),
)


@given(st.lists(messages | st.sampled_from(["finish", "tick", "leave"]), max_size=40))
def test_whatever_comes_one_document_is_processed_at_a_time(
    steps: list[list[bytes] | str],
) -> None:
    worker = a_worker("tcp://b:1")
    processing: list[str] = []
    now = 0.0
    left = False
    for step in steps:
        effects: Effects = []
        if step == "finish":
            if processing:
                effects = worker.finished(processing.pop(), (Result(b""),), now)
        elif step == "leave":
            effects = worker.leave(now)
        elif step == "tick":
            now = max(now, worker.next_tick_at() or now)
            effects = worker.tick(now, WALL)
        elif isinstance(step, list):
            with contextlib.suppress(RemoteProtocolError):
                effects = worker.hear(b"", step, now, WALL)
        for effect in effects:
            assert not left
            if isinstance(effect, Process):
                processing.append(effect.work.claim)
                assert len(processing) == 1
            elif isinstance(effect, Leave):
                left = True
            elif isinstance(effect, Reconnect):
                processing.clear()
                assert commands(worker.start(now, WALL)) or worker.next_tick_at() == now + 5.0


# Frontends


def answer(id: str, **options: Any) -> list[bytes]:
    return frames_of("WORKREPLY", b"out", work_request_identifier=f"web:{id}", **options)


def test_request_names_its_service_and_id_and_its_reply_is_its_end() -> None:
    client = Client("ocr", "p-")
    id, effects = client.ask("scan.pdf", b"body", 0.0)
    (effect,) = effects
    assert isinstance(effect, Send)
    assert id == b"p-1"
    assert json.loads(effect.frames[1]) == {
        "service": "ocr",
        "message_id": "p-1",
        "docid": "scan.pdf",
    }
    assert effect.frames[2] == b"body"
    assert client.hear(b"", answer("p-1"), 1.0, WALL) == [Ended(b"p-1", (Result(b"out"),))]
    assert client.hear(b"", answer("p-1"), 1.0, WALL) == []
    assert client.next_tick_at() is None


def test_unanswered_request_is_repeated_the_same_and_given_up_in_the_end() -> None:
    client = Client("", timeout=12.0)
    id, first = client.ask("d", b"body", 0.0)
    seen = []
    while (at := client.next_tick_at()) is not None:
        seen += [(at, effect) for effect in client.tick(at, WALL)]
    assert seen == [(5.0, *first), (10.0, *first), (12.0, Ended(id, why="there was no answer"))]


def test_request_that_is_repeated_late_is_not_repeated_at_once_again() -> None:
    client = Client("")
    client.ask("d", b"", 0.0)
    assert len(client.tick(100.0, WALL)) == 1
    assert client.next_tick_at() == 105.0


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        (
            frames_of("DISCONNECTERROR", message_id="1", error_code=503, error_message="none"),
            "503: none",
        ),
        (frames_of("DISCONNECTERROR", message_id="1", error_code=444), "444: "),
        (answer("1", status=65, error_message="no page"), "no page"),
        (answer("1", status=1), "its worker did not say why"),
        (
            answer("1", outputs=[{"size": 1}]),
            "the sizes of the outputs are not those of the body (3 bytes)",
        ),
    ],
)
def test_error_is_the_end_of_a_request_and_says_why(frames: list[bytes], why: str) -> None:
    client = Client("")
    client.ask("d", b"", 0.0)
    assert client.hear(b"", frames, 1.0, WALL) == [Ended(b"1", why=why)]
    # It may come twice, as the request may have been repeated.
    assert client.hear(b"", frames, 1.0, WALL) == []
    assert client.next_tick_at() is None


def test_answer_to_nothing_is_dropped_and_what_is_no_answer_is_an_error() -> None:
    client = Client("")
    assert client.hear(b"", answer("9"), 0.0, WALL) == []
    assert client.hear(b"", frames_of("DISCONNECTERROR", error_code=400), 0.0, WALL) == []
    for frames in ([b"READYOK"], [], [b"WORKREPLY", b"[]"]):
        with pytest.raises(RemoteProtocolError):
            client.hear(b"", frames, 0.0, WALL)


# The table of workers


def made(state: str, group: tuple[str, ...], started: bool, other: bool) -> Worker:
    """A worker that may be in a state: listed before or not, with or without others to go to, and
    in one of two ways."""
    worker = Worker("w", HERE, group=group, heartbeat_interval=1.0)
    if state == CLOSED and not (started or other):
        return worker
    worker.start(0.0, WALL)
    if started or state in (READY, WORKING):
        configure(worker)
    if state in (CLOSED, ASKING):
        without_a_broker(worker, state, group, started, other)
    elif state in (CHECKING, GREETING):
        if started and other:
            hear(worker, "WORKREQUEST", work_request_identifier="b:1")
        if started:
            hear(worker, "FORCENEGOTIATE")
        if state == GREETING:
            hear(worker, "CONFIG", services=["ocr"], config_version="v1")
    elif state == WORKING:
        hear(worker, "WORKREQUEST", work_request_identifier="b:1")
    return worker


def without_a_broker(
    worker: Worker, state: str, group: tuple[str, ...], started: bool, other: bool
) -> None:
    if state == CLOSED and started and other:
        hear(worker, "DISCONNECTERROR", error_code=503)
        if group:
            worker.start(0.0, WALL)
            hear(worker, "DISCONNECTERROR", error_code=503)
    else:
        worker.tick(15.0, WALL)
        if state == ASKING and started:
            worker.start(15.0, WALL)
            worker.tick(20.0, WALL)
        if state == ASKING and group:
            worker.start(20.0, WALL)


def too_often(worker: Worker) -> None:
    worker._way.hops = 8
    hear(worker, "FORCENEGOTIATE")


def sent_on_too_often(worker: Worker) -> None:
    for _ in range(9):
        worker.start(0.0, WALL)
        hear(worker, "DISCONNECTERROR", error_code=301)


def two_requests(worker: Worker) -> None:
    hear(worker, "WORKREQUEST", work_request_identifier="b:2")
    worker.finished("b:1", (Result(b""),), 1.0)


def late(worker: Worker) -> Effects:
    return worker.tick(worker._answer_at, WALL)


def told_off(code: int) -> Callable[[Worker], object]:
    return lambda worker: hear(worker, "DISCONNECTERROR", error_code=code)


SCENES: dict[tuple[str, str], Callable[[Worker], object]] = {
    ("connected", ""): lambda worker: worker.start(0.0, WALL),
    ("connected", "503 before"): lambda worker: worker.start(0.0, WALL),
    ("connected", "our own broker does not answer"): lambda worker: worker.start(0.0, WALL),
    ("another broker", "too often"): sent_on_too_often,
    ("CONFIG", ""): lambda worker: hear(worker, "CONFIG", services=["ocr"], config_version="v"),
    ("CONFIG", "work in hand"): lambda worker: hear(worker, "CONFIG", unchanged=True),
    ("WORKREQUEST", ""): lambda worker: hear(worker, "WORKREQUEST", work_request_identifier="b:9"),
    ("processed", ""): lambda worker: worker.finished("b:1", (Result(b""),), 1.0),
    ("processed", "more in hand"): two_requests,
    ("time-out", ""): lambda worker: (
        worker._refused and worker.start(0.0, WALL),
        late(worker),
    ),
    ("time-out", "again"): lambda worker: (late(worker), late(worker)),
    ("time-out", "others, or it answered before"): late,
    ("DISCONNECTERROR", ""): told_off(400),
    ("DISCONNECTERROR", "301 to this broker"): told_off(301),
    ("DISCONNECTERROR", "301, 426, or 503 and others"): told_off(426),
    ("DISCONNECTERROR", "503, it answered before"): told_off(503),
    ("READYOK", ""): lambda worker: hear(worker, "READYOK"),
    ("PONG", ""): lambda worker: hear(worker, "PONG"),
    ("silence", ""): lambda worker: worker.tick(worker._silent_at, WALL),
    ("heartbeat_interval", ""): lambda worker: worker.tick(worker._ping_at, WALL),
    ("FORCENEGOTIATE", ""): lambda worker: hear(worker, "FORCENEGOTIATE"),
    ("FORCENEGOTIATE", "too often"): too_often,
    ("joined again", ""): lambda worker: worker.joined(b"", 1.0),
    ("leave", ""): lambda worker: (
        worker.leave(1.0),
        worker.failed("b:1", Released("interrupted"), 1.0),
    ),
    ("leave", "work in hand"): lambda worker: worker.leave(1.0),
}


@pytest.mark.parametrize("cell", WORKER.cells, ids="-".join)
def test_each_row_of_the_table_of_workers_is_stepped(
    cell: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, event, when = cell
    seen = []
    for group, started, other in itertools.product(((), ("tcp://b:1",)), (False, True), (0, 1)):
        monkeypatch.setattr(WORKER, "stepped", None)
        worker = made(state, group, started, bool(other))
        stepped: Counter[tuple[str, str, str]] = Counter()
        monkeypatch.setattr(WORKER, "stepped", stepped)
        if worker._state == state:
            with contextlib.suppress(RemoteProtocolError, LocalProtocolError):
                SCENES[event, when](worker)
        seen.append(stepped[cell])
    assert any(seen)
