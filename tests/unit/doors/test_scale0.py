"""Scale0's sessions: configuration, turns, heartbeats, clocks and versions, requests, groups."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Failed, Postponed, Released
from queuedriver.doors.scale0.broker import Broker
from queuedriver.doors.scale0.tables import (
    BROKER,
    BUSY,
    CONFIGURED,
    LISTED,
    UNKNOWN,
    Options,
)
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
from queuedriver.errors import ConfigError, RemoteProtocolError
from queuedriver.format.records import Failure

# The time of day at which everything here happens.
WALL = 1_763_500_000.0
OPTIONS = Options(services=("ocr", "scan"), config_version="v1")


def frames_of(command: str, body: bytes | None = None, **options: object) -> list[bytes]:
    made = [command.encode(), json.dumps(options).encode()]
    return made if body is None else [*made, body]


def tell(
    broker: Broker,
    peer: str,
    command: str,
    now: float = 0.0,
    *,
    body: bytes | None = None,
    **options: Any,
) -> Effects:
    return broker.receive(peer.encode(), frames_of(command, body, **options), now, WALL + now)


def sent(effects: Sequence[Effect]) -> list[tuple[str, str, dict[str, object]]]:
    """To whom, which command, with which options."""
    return [
        (one.peer.decode(), one.frames[0].decode(), json.loads(one.frames[1]))
        for one in effects
        if isinstance(one, Send)
    ]


def others(effects: Sequence[Effect]) -> list[Effect]:
    """What is done but sending and saying."""
    return [one for one in effects if not isinstance(one, Send | Say)]


def commands(effects: Sequence[Effect]) -> list[str]:
    return [command for _, command, _ in sent(effects)]


def code(effects: Sequence[Effect]) -> object:
    """Of the one DISCONNECTERROR."""
    ((_, command, options),) = sent(effects)
    assert command == "DISCONNECTERROR"
    assert options["error_message"]
    return options["error_code"]


def ready(broker: Broker, peer: str, now: float = 0.0, services: Sequence[str] = ("ocr",)) -> None:
    """A start-up, or another READY of one that is up."""
    if broker._state(peer.encode()) == UNKNOWN:
        assert commands(tell(broker, peer, "CHECKCONFIG", now)) == ["CONFIG"]
    assert commands(tell(broker, peer, "READY", now, services=list(services))) == ["READYOK"]


def a_broker(*workers: str, options: Options = OPTIONS, job_timeout: float | None = None) -> Broker:
    broker = Broker("host-1", options, job_timeout)
    for name in workers:
        ready(broker, name)
    return broker


def work(claim: str = "host-1-00000000000001abcd", service: str = "ocr", attempt: int = 0) -> Work:
    return Work(claim, "doc", attempt, b"payload", service)


def deal(broker: Broker, work: Work, now: float = 0.0) -> tuple[str, dict[str, object]]:
    """To whom, with which options."""
    effects = broker.deal(work, now)
    ((peer, command, options),) = sent(effects)
    assert command == "WORKREQUEST"
    return peer, options


ID = "host-1:00000000000001abcd"


# Connections


def test_worker_that_starts_up_is_listed_only_after_its_ready() -> None:
    broker = Broker("host-1", OPTIONS)
    seen = []
    for command, options in (
        ("CHECKCONFIG", {"config_type": "JSON"}),
        ("READY", {"services": ["ocr"]}),
    ):
        assert not broker.ready("ocr")
        effects = tell(broker, "w", command, **options)
        seen += [command, *commands(effects)]
    assert seen == ["CHECKCONFIG", "CONFIG", "READY", "READYOK"]
    assert broker.ready("ocr")


def test_start_up_says_the_four_lines_at_level_1() -> None:
    broker = Broker("host-1", OPTIONS)
    effects = tell(broker, "w", "CHECKCONFIG", config_type="JSON")
    effects += tell(broker, "w", "READY", services=["ocr"])
    # Another READY is not another start-up.
    effects += tell(broker, "w", "READY", services=["ocr"])
    assert [one.words for one in effects if isinstance(one, Say) and one.level == 1] == [
        "C --- CHECKCONFIG ---> B",
        "B --- CONFIG ---> C",
        "C --- READY ---> B",
        "B --- READYOK ---> C",
    ]


def test_config_tells_identity_services_group_preference_and_version() -> None:
    options = Options(
        services=("ocr",), group=("tcp://a:1", "tcp://b:1"), preferred_broker="tcp://a:1"
    )
    ((_, _, config),) = sent(tell(Broker("b", options), "w", "CHECKCONFIG"))
    version = config.pop("config_version")
    assert config == {
        "identity": "w",
        "services": ["ocr"],
        "group_config": {"brokers": ["tcp://a:1", "tcp://b:1"]},
        "preferred_broker": "tcp://a:1",
    }
    # Brokers of a group agree on it, and another configuration has another.
    assert version == options.config().config_version
    assert version != Options(services=("scan",)).config().config_version


def test_worker_that_has_the_configuration_is_told_that_it_is_unchanged() -> None:
    effects = tell(a_broker(), "w", "CHECKCONFIG", config_version="v1")
    assert sent(effects) == [("w", "CONFIG", {"unchanged": True})]
    assert sent(tell(a_broker(), "w", "CHECKCONFIG", config_version="v0"))[0][2]["identity"] == "w"


@pytest.mark.parametrize("config_type", ["XML", "ZFL", "json"])
def test_other_than_json_is_refused(config_type: str) -> None:
    broker = a_broker()
    assert code(tell(broker, "w", "CHECKCONFIG", config_type=config_type)) == 501
    assert commands(tell(broker, "w", "READY", services=["ocr"])) == ["FORCENEGOTIATE"]


@pytest.mark.parametrize("command", ["READY", "PING"])
def test_worker_that_did_not_ask_for_its_configuration_is_told_to_negotiate(command: str) -> None:
    broker = a_broker()
    assert commands(tell(broker, "w", command, services=["ocr"])) == ["FORCENEGOTIATE"]
    assert not broker.ready("ocr")


def test_readyok_tells_how_often_to_ping_which_may_be_longer_than_the_broker_s_not_shorter() -> (
    None
):
    broker = a_broker()
    for asked, granted in ((60.0, 60.0), (0.1, 5.0), (-1.0, 5.0), (1e9, 3600.0)):
        tell(broker, "w", "CHECKCONFIG")
        effects = tell(broker, "w", "READY", services=["ocr"], heartbeat_interval=asked)
        assert sent(effects) == [
            ("w", "READYOK", {"heartbeat_interval": granted, "time": WALL, "config_version": "v1"})
        ]


def test_empty_frame_in_front_comes_back() -> None:
    broker = a_broker()
    for frames, command in (
        (frames_of("CHECKCONFIG"), b"CONFIG"),
        (frames_of("READY", services=["ocr"]), b"READYOK"),
        (frames_of("PING"), b"PONG"),
        (frames_of("HELLO"), b"DISCONNECTERROR"),
    ):
        (answer,) = [
            one for one in broker.receive(b"w", [b"", *frames], 0.0, WALL) if isinstance(one, Send)
        ]
        assert answer.frames[:2] == (b"", command)
    broker.receive(b"w", [b"", *frames_of("CHECKCONFIG")], 0.0, WALL)
    broker.receive(b"w", [b"", *frames_of("READY", services=["ocr"])], 0.0, WALL)
    (request,) = broker.deal(work(), 0.0)
    assert isinstance(request, Send)
    assert request.frames[:2] == (b"", b"WORKREQUEST")


def test_broker_that_is_full_refuses_or_sends_elsewhere() -> None:
    alone = a_broker("w", options=Options(services=("ocr",), max_workers=1))
    assert code(tell(alone, "x", "CHECKCONFIG")) == 503
    group = ("tcp://me:1", "tcp://other:1")
    options = Options(services=("ocr",), max_workers=1, group=group, broker="tcp://me:1")
    ((_, _, told),) = sent(tell(a_broker("w", options=options), "x", "CHECKCONFIG"))
    assert (told["error_code"], told["broker"]) == (301, "tcp://other:1")


def test_needbroker_is_answered_with_301_to_this_broker_or_with_503() -> None:
    options = Options(services=("ocr",), broker="tcp://me:1", max_workers=1)
    broker = a_broker(options=options)
    ((_, _, told),) = sent(tell(broker, "x", "NEEDBROKER", identity="x", services=["ocr"]))
    assert (told["error_code"], told["broker"]) == (301, "tcp://me:1")
    ready(broker, "w")
    assert code(tell(broker, "x", "NEEDBROKER", identity="x", services=["ocr"])) == 503
    broker.leave(0.0)
    assert code(tell(broker, "x", "NEEDBROKER")) == 503


# Heartbeats, clocks, versions


def test_pong_has_both_times_and_the_version() -> None:
    effects = tell(a_broker("w"), "w", "PING", 1.0, time=WALL - 3, config_version="v1")
    assert sent(effects) == [
        ("w", "PONG", {"time": WALL - 3, "broker_time": WALL + 1, "config_version": "v1"})
    ]


@pytest.mark.parametrize("started", [False, True])
def test_worker_that_misses_three_heartbeats_is_dropped_listed_or_not(started: bool) -> None:
    broker = a_broker()
    tell(broker, "w", "CHECKCONFIG")
    if started:
        ready(broker, "w")
    tell(broker, "w", "PING", 10.0)
    assert broker.next_tick_at() is not None
    assert broker.tick(24.9) == []
    assert broker.tick(25.0) == [Lost(b"w", (), "silent")]
    assert not broker.ready("ocr")
    assert broker.next_tick_at() is None
    assert commands(tell(broker, "w", "PING", 26.0)) == ["FORCENEGOTIATE"]


def test_worker_that_asked_for_a_longer_interval_may_be_silent_for_longer() -> None:
    broker = a_broker()
    tell(broker, "w", "CHECKCONFIG")
    tell(broker, "w", "READY", services=["ocr"], heartbeat_interval=60)
    assert broker.tick(179.9) == []
    assert broker.tick(180.0) == [Lost(b"w", (), "silent")]


@pytest.mark.parametrize("command", ["READY", "PING"])
@pytest.mark.parametrize("off", [-30.5, 30.5, 1e18])
def test_worker_whose_clock_is_way_off_is_disconnected(command: str, off: float) -> None:
    broker = a_broker("w")
    assert code(tell(broker, "w", command, time=WALL + off, services=["ocr"])) == 409
    assert not broker.ready("ocr")
    assert commands(tell(broker, "w", "PING")) == ["FORCENEGOTIATE"]


@pytest.mark.parametrize("off", [-29.5, 0.0, 29.5])
def test_clock_within_the_limit_changes_nothing(off: float) -> None:
    broker = a_broker("w")
    assert commands(tell(broker, "w", "PING", time=WALL + off)) == ["PONG"]


def test_clock_decides_neither_liveness_nor_order() -> None:
    """The broker's wall clock jumps by a day: who is listed, and in which order, stays."""
    broker = a_broker("a", "b")
    broker.receive(b"a", frames_of("PING"), 14.0, WALL + 86_400)
    broker.receive(b"b", frames_of("PING"), 14.0, WALL - 86_400)
    assert broker.tick(15.0) == []
    assert deal(broker, work(), 15.0)[0] == "a"


@pytest.mark.parametrize("command", ["READY", "PING"])
def test_other_version_is_told_to_negotiate_and_the_second_time_disconnected(command: str) -> None:
    broker = a_broker("w")
    options: dict[str, Any] = {"config_version": "v0", "services": ["ocr"]}
    assert commands(tell(broker, "w", command, **options)) == ["FORCENEGOTIATE"]
    # It is not listed any more.
    assert not broker.ready("ocr")
    assert commands(tell(broker, "w", "CHECKCONFIG", config_version="v0")) == ["CONFIG"]
    assert code(tell(broker, "w", command, **options)) == 426
    assert commands(tell(broker, "w", "PING")) == ["FORCENEGOTIATE"]


def test_version_that_was_put_right_is_forgiven() -> None:
    broker = a_broker("w")
    for _ in range(3):
        assert commands(tell(broker, "w", "PING", config_version="v0")) == ["FORCENEGOTIATE"]
        tell(broker, "w", "CHECKCONFIG", config_version="v0")
        tell(broker, "w", "READY", services=["ocr"], config_version="v1")
        assert broker.ready("ocr")


# Turns


def test_one_ready_is_one_request() -> None:
    broker = a_broker("w")
    ready(broker, "w")
    for claim in ("h-1", "h-2"):
        assert broker.ready("ocr")
        assert deal(broker, work(claim))[0] == "w"
    assert not broker.ready("ocr")
    for serial in (1, 2):
        tell(broker, "w", "WORKREPLY", body=b"", work_request_identifier=f"host-1:{serial}")
    assert not broker.ready("ocr")
    ready(broker, "w")
    assert broker.ready("ocr")


def test_request_goes_to_the_oldest_ready_of_those_that_offer_its_service() -> None:
    broker = a_broker()
    ready(broker, "a", 0.0, ["ocr"])
    ready(broker, "b", 1.0, ["ocr", "scan"])
    ready(broker, "c", 2.0, ["scan"])
    # Heartbeats change no turn.
    tell(broker, "a", "PING", 3.0)
    picked = [
        deal(broker, work(f"h-{n}", service), 3.0)[0]
        for n, service in enumerate(["scan", "ocr", "scan"])
    ]
    assert picked == ["b", "a", "c"]
    assert not broker.ready("ocr")
    assert not broker.ready("scan")


def test_services_that_the_broker_has_not_are_passed_over_and_none_at_all_is_refused() -> None:
    broker = a_broker()
    ready(broker, "w", services=["ocr", "unheard-of"])
    assert broker.ready("ocr")
    assert not broker.ready("unheard-of")
    assert code(tell(broker, "w", "READY", services=["unheard-of"])) == 501


def test_new_checkconfig_takes_the_turns_back() -> None:
    broker = a_broker("w")
    tell(broker, "w", "CHECKCONFIG")
    assert not broker.ready("ocr")
    ready(broker, "w")
    deal(broker, work())
    assert not broker.ready("ocr")


# Documents


def test_document_is_known_by_broker_and_serial_and_its_reply_is_published() -> None:
    broker = a_broker("w")
    peer, options = deal(broker, work(), 1.0)
    assert peer == "w"
    assert options["work_request_identifier"] == ID
    assert (options["service"], options["docid"], options["config_version"]) == ("ocr", "doc", "v1")
    effects = tell(broker, "w", "WORKREPLY", 500.0, body=b"text", work_request_identifier=ID)
    assert effects == [Done(work().claim, (Result(b"text"),))]
    # The same reply again is for nothing.
    assert tell(broker, "w", "WORKREPLY", 500.0, body=b"text", work_request_identifier=ID) == []


def test_body_of_a_document_is_its_bytes() -> None:
    (effect,) = a_broker("w").deal(work(), 0.0)
    assert isinstance(effect, Send)
    assert effect.frames[2] == b"payload"


def test_reply_may_carry_several_outputs_or_none() -> None:
    broker = a_broker("w")
    deal(broker, work())
    outputs = [{"name": "a", "size": 2}, {"size": 3}]
    effects = tell(
        broker, "w", "WORKREPLY", body=b"12345", work_request_identifier=ID, outputs=outputs
    )
    assert effects == [Done(work().claim, (Result(b"12", "a"), Result(b"345")))]
    ready(broker, "w")
    deal(broker, work())
    effects = tell(broker, "w", "WORKREPLY", body=b"", work_request_identifier=ID, outputs=[])
    assert effects == [Done(work().claim, ())]


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (65, Failed(Failure(cause="permanent", message="why", permanent=True, exit_code=65))),
        (75, Postponed(60.0, "why")),
        (1, Failed(Failure(cause="exit", message="why", exit_code=1))),
    ],
)
def test_status_of_a_reply_sets_the_document_back(status: int, how: Failed | Postponed) -> None:
    broker = a_broker("w")
    deal(broker, work())
    effects = tell(
        broker, "w", "WORKREPLY", work_request_identifier=ID, status=status, error_message="why"
    )
    assert effects == [SetBack(work().claim, how)]


def test_reply_that_matches_nothing_is_dropped_quietly() -> None:
    broker = a_broker("w", "x")
    deal(broker, work())
    for peer, identifier in (("w", "host-1:other"), ("x", ID), ("stranger", ID), ("w", "")):
        assert tell(broker, peer, "WORKREPLY", body=b"", work_request_identifier=identifier) == []
    assert others(tell(broker, "w", "WORKREPLY", body=b"", work_request_identifier=ID)) != []


def test_late_reply_of_a_broker_s_earlier_life_matches_nothing() -> None:
    """Identifiers are of claims, which are never the same twice."""
    broker = a_broker("w")
    deal(broker, work("host-1-00000000000002beef"))
    assert tell(broker, "w", "WORKREPLY", body=b"", work_request_identifier=ID) == []


def test_document_nobody_may_be_given_waits() -> None:
    (effect,) = a_broker().deal(work(), 0.0)
    assert isinstance(effect, SetBack)
    assert isinstance(effect.how, Released)


# Lost workers


def test_busy_worker_is_exempt_from_silence_and_tried_each_second() -> None:
    broker = a_broker("w")
    deal(broker, work(), 0.0)
    now, probes = 0.0, 0
    while now < 100:
        now = broker.next_tick_at() or 100.0
        effects = broker.tick(now)
        assert others(effects) == []
        assert set(commands(effects)) <= {"PONG"}
        probes += len(effects)
    assert probes == 100
    assert others(broker.gone(b"w", now)) == [Lost(b"w", (work().claim,), "unroutable")]


def test_document_that_takes_longer_than_its_time_out_is_lost() -> None:
    broker = a_broker("w", job_timeout=7.0)
    deal(broker, work(), 1.0)
    assert others(broker.tick(7.9)) == []
    assert others(broker.tick(8.0)) == [Lost(b"w", (work().claim,), "overdue")]
    assert tell(broker, "w", "WORKREPLY", 9.0, body=b"", work_request_identifier=ID) == []


def test_worker_that_leaves_or_is_disconnected_gives_its_document_back_uncharged() -> None:
    released = [SetBack(work().claim, Released("its worker left"))]
    broker = a_broker("w")
    deal(broker, work())
    assert others(tell(broker, "w", "DISCONNECTERROR", error_code=503)) == released
    ready(broker, "w")
    deal(broker, work())
    assert others(tell(broker, "w", "PING", time=WALL - 1000)) == released


@pytest.mark.parametrize(
    "frames",
    [
        frames_of("WORKREPLY", b"123", work_request_identifier=ID, outputs=[{"size": 2}]),
        [b"WORKREPLY", b"not json", b""],
        [b"GARBAGE"],
        frames_of("CONFIG"),
    ],
)
def test_busy_worker_that_sends_nonsense_is_disconnected_and_charged(frames: list[bytes]) -> None:
    broker = a_broker("w")
    deal(broker, work())
    effects = broker.receive(b"w", frames, 1.0, WALL)
    assert others(effects) == [Lost(b"w", (work().claim,), "left")]
    assert code(effects) in (400, 501)
    assert commands(tell(broker, "w", "PING")) == ["FORCENEGOTIATE"]


def test_worker_that_begins_anew_says_what_it_has_and_the_rest_is_lost() -> None:
    broker = a_broker("w")
    ready(broker, "w")
    deal(broker, work("h-1"))
    deal(broker, work("h-2"))
    effects = tell(broker, "w", "CHECKCONFIG", work_in_hand=["host-1:2"])
    assert others(effects) == [Lost(b"w", ("h-1",), "left", doubted=True)]
    assert commands(effects) == ["CONFIG"]
    effects = tell(broker, "w", "WORKREPLY", body=b"", work_request_identifier="host-1:2")
    assert others(effects) == [Done("h-2", (Result(b""),))]
    # It lives: what it never had, it cannot have ended. One that does not say keeps all.
    ready(broker, "w")
    deal(broker, work("h-3"))
    assert others(tell(broker, "w", "CHECKCONFIG")) == []


# Frontends


def ask(broker: Broker, now: float = 0.0, id: str = "m1", service: str = "ocr") -> Effects:
    return tell(broker, "web", "WORKREQUEST", now, body=b"body", service=service, message_id=id)


def asked(effects: Effects) -> Request:
    (effect,) = effects
    assert isinstance(effect, Asked)
    return effect.request


def request_work(request: Request, claim: str = "c1", attempt: int = 0) -> Work:
    return Work(claim, "request-1", attempt, b"on disk", request.service, request)


def test_request_of_a_frontend_is_kept_dealt_and_its_reply_passed_on_unread() -> None:
    broker = a_broker("w")
    request = asked(ask(broker))
    assert (request.key, request.service, request.answered) == (b"web:m1", "ocr", True)
    peer, options = deal(broker, request_work(request))
    assert (peer, options["work_request_identifier"]) == ("w", "web:m1")
    reply = frames_of("WORKREPLY", b"\x00body", work_request_identifier="web:m1", status=65, x=[1])
    assert broker.receive(b"w", reply, 1.0, WALL) == [Answered("c1", b"web", tuple(reply))]
    assert broker.receive(b"w", reply, 1.0, WALL) == []


def test_worker_gets_the_body_of_a_frontend_as_it_came() -> None:
    broker = a_broker("w")
    (effect,) = broker.deal(request_work(asked(ask(broker))), 0.0)
    assert isinstance(effect, Send)
    assert effect.frames[2] == b"body"


def test_frontend_with_an_empty_frame_gets_it_back_with_every_answer() -> None:
    broker = a_broker("w")
    asks = [b"", *frames_of("WORKREQUEST", b"", service="ocr", message_id="1")]
    (effect,) = broker.receive(b"\x00\x01", asks, 0.0, WALL)
    assert isinstance(effect, Asked)
    deal(broker, request_work(effect.request))
    reply = frames_of("WORKREPLY", b"", work_request_identifier="~0001:1")
    assert broker.receive(b"w", reply, 1.0, WALL) == [Answered("c1", b"\x00\x01", (b"", *reply))]
    asks = [b"", *frames_of("WORKREQUEST", b"", service="ocr", message_id="2")]
    broker.receive(b"\x00\x01", asks, 0.0, WALL)
    (refusal,) = [one for one in broker.tick(30.0) if isinstance(one, Send)]
    assert refusal.frames[:2] == (b"", b"DISCONNECTERROR")


def test_request_is_answered_by_a_broker_that_was_restarted_since() -> None:
    request = asked(ask(a_broker("w")))
    broker = a_broker("w")
    deal(broker, request_work(request))
    reply = frames_of("WORKREPLY", b"", work_request_identifier="web:m1")
    assert broker.receive(b"w", reply, 1.0, WALL) == [Answered("c1", b"web", tuple(reply))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"service": "unheard-of", "message_id": "1"}, 501),
        ({"message_id": "1"}, 501),
        ({"service": "ocr"}, 400),
        ({"service": "ocr", "message_id": "x" * 300}, 400),
    ],
)
def test_request_that_cannot_be_done_is_refused_at_once(
    options: dict[str, Any], expected: int
) -> None:
    assert code(tell(a_broker("w"), "web", "WORKREQUEST", body=b"", **options)) == expected


def test_request_for_which_no_worker_comes_gets_503_after_the_time_out() -> None:
    broker = a_broker()
    request = asked(ask(broker, 1.0))
    assert broker.next_tick_at() == 31.0
    assert broker.tick(30.9) == []
    effects = broker.tick(31.0)
    assert code(effects) == 503
    assert sent(effects)[0][2]["message_id"] == "m1"
    assert broker.next_tick_at() is None
    # A worker that comes later does not see it: its frontend was told that it is not done.
    ready(broker, "w", 40.0)
    (answer,) = broker.deal(request_work(request), 40.0)
    assert isinstance(answer, Answered)
    assert (answer.claim, answer.peer, answer.frames[0]) == ("c1", b"web", b"DISCONNECTERROR")
    assert broker.ready("ocr")


def test_request_that_is_repeated_after_503_is_tried_anew() -> None:
    broker = a_broker()
    request = asked(ask(broker, 0.0))
    broker.tick(30.0)
    assert asked(ask(broker, 35.0)) == request
    assert broker.next_tick_at() == 65.0
    ready(broker, "w", 40.0)
    assert deal(broker, request_work(request), 40.0)[0] == "w"


def test_repetition_is_the_same_request_and_waits_no_longer_for_it() -> None:
    broker = a_broker()
    request = asked(ask(broker, 0.0))
    assert asked(ask(broker, 20.0)) == request
    assert broker.next_tick_at() == 30.0
    ready(broker, "w", 21.0)
    deal(broker, request_work(request), 21.0)
    # In a worker's hands, and when it is answered, too: then there is nothing to wait for.
    assert asked(ask(broker, 22.0)) == request
    tell(broker, "w", "WORKREPLY", 23.0, body=b"", work_request_identifier="web:m1")
    assert asked(ask(broker, 24.0)) == request
    assert commands(broker.tick(1000.0)) == []


def test_request_whose_workers_are_lost_gets_444_in_the_end() -> None:
    broker = a_broker("w", "x")
    request = asked(ask(broker))
    deal(broker, request_work(request, "c1", 0))
    assert broker.gone(b"w", 1.0) == [Lost(b"w", ("c1",), "unroutable")]
    deal(broker, request_work(request, "c2", 1), 2.0)
    lost, answer = broker.gone(b"x", 3.0)
    # It is not charged, for it is answered.
    assert lost == Lost(b"x", (), "unroutable")
    assert isinstance(answer, Answered)
    told = json.loads(answer.frames[1])
    assert (answer.claim, told["error_code"], told["message_id"]) == ("c2", 444, "m1")


def test_request_whose_worker_is_lost_waits_for_another_as_long_as_a_new_one() -> None:
    broker = a_broker("w")
    deal(broker, request_work(asked(ask(broker))), 5.0)
    broker.gone(b"w", 6.0)
    assert commands(broker.tick(35.9)) == []
    assert code(broker.tick(36.0)) == 503


def test_request_whose_worker_left_waits_for_another_and_is_not_charged() -> None:
    broker = a_broker("w")
    request = asked(ask(broker))
    deal(broker, request_work(request), 5.0)
    effects = tell(broker, "w", "DISCONNECTERROR", 6.0, error_code=503)
    assert others(effects) == [SetBack("c1", Released("its worker left"))]
    assert commands(broker.tick(35.9)) == []
    assert code(broker.tick(36.0)) == 503


def test_request_that_was_kept_twice_is_not_given_to_two_workers() -> None:
    broker = a_broker("w", "x")
    request = asked(ask(broker))
    deal(broker, request_work(request, "c1"))
    (effect,) = broker.deal(request_work(request, "c2"), 0.0)
    assert isinstance(effect, SetBack)
    assert isinstance(effect.how, Postponed)


def test_file_that_is_no_request_any_more_is_set_aside() -> None:
    broker = a_broker("w")
    (effect,) = broker.deal(request_work(Request(b"web:m1", (b"torn",), "ocr")), 0.0)
    assert isinstance(effect, SetBack)
    assert isinstance(effect.how, Failed)
    assert effect.how.failure.permanent
    assert broker.ready("ocr")


def test_too_many_requests_that_wait_are_refused() -> None:
    broker = a_broker(options=Options(services=("ocr",), max_requests=2))
    assert [type(ask(broker, id=id)[0]) for id in "ab"] == [Asked, Asked]
    assert code(ask(broker, id="c")) == 503
    broker.tick(30.0)
    for id in "defgh":
        ask(broker, 30.0, id=id)
        broker.tick(60.0 + ord(id))
    assert len(broker._requests._over) == 2


# A broker that leaves


def test_broker_that_leaves_sends_the_idle_away_at_once_and_the_busy_after_their_reply() -> None:
    broker = a_broker("busy", "idle")
    assert deal(broker, work())[0] == "busy"
    assert [(peer, told["error_code"]) for peer, _, told in sent(broker.leave(1.0))] == [
        ("idle", 503)
    ]
    assert not broker.ready("ocr")
    assert commands(tell(broker, "busy", "PING")) == ["PONG"]
    effects = tell(broker, "busy", "WORKREPLY", body=b"x", work_request_identifier=ID)
    assert others(effects) == [Done(work().claim, (Result(b"x"),))]
    assert code(effects) == 503
    assert code(tell(broker, "late", "CHECKCONFIG")) == 503
    assert code(ask(broker)) == 503


def test_broker_of_a_group_that_leaves_sends_its_workers_to_the_others_in_turn() -> None:
    group = ("tcp://me:1", "tcp://a:1", "tcp://b:1")
    options = Options(services=("ocr",), group=group, broker="tcp://me:1")
    broker = a_broker("w1", "w2", options=options)
    told = {options["broker"] for _, _, options in sent(broker.leave(1.0))}
    assert told == {"tcp://a:1", "tcp://b:1"}


# Whatever comes


@st.composite
def any_message(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    peer = draw(st.sampled_from([b"w", b"x"]))
    command = draw(
        st.sampled_from(
            [
                *("CHECKCONFIG", "READY", "PING", "WORKREPLY", "WORKREQUEST", "NEEDBROKER"),
                *("DISCONNECTERROR", "CONFIG", "PONG", "HELLO"),
            ]
        )
    )
    options: dict[str, object] = {
        "services": draw(st.sampled_from([["ocr"], ["scan", "ocr"], []])),
        "service": draw(st.sampled_from(["ocr", "none"])),
        "message_id": draw(st.sampled_from(["1", "2", ""])),
        "work_request_identifier": draw(
            st.sampled_from([*(f"host-1:{n}" for n in range(8)), "w:1", "x:2", ""])
        ),
        "status": draw(st.sampled_from([0, 0, 65, 75])),
        "error_code": 503,
    }
    options |= draw(
        st.sampled_from(
            [
                *({}, {}, {"time": WALL}, {"time": 0.0}, {"config_version": "v0"}),
                *({"outputs": [{"size": 1}]}, {"work_in_hand": []}, {"config_type": "XML"}),
            ]
        )
    )
    return peer, frames_of(command, b"", **options)


@given(st.lists(any_message(), max_size=40))
def test_whatever_comes_each_claim_ends_once_and_only_in_its_worker_s_hands(
    messages: list[tuple[bytes, list[bytes]]],
) -> None:
    broker = Broker("host-1", OPTIONS, job_timeout=6.0)
    in_hand: dict[str, bytes] = {}
    kept: dict[bytes, Request] = {}
    for at, (peer, frames) in enumerate(messages):
        now = float(at)
        effects: Effects = []
        with contextlib.suppress(RemoteProtocolError):
            effects = broker.receive(peer, frames, now, WALL)
        for effect in [*effects, *broker.tick(now)]:
            if isinstance(effect, Done | SetBack | Answered):
                assert effect.claim in in_hand
                del in_hand[effect.claim]
            elif isinstance(effect, Lost):
                for claim in effect.claims:
                    assert in_hand.pop(claim) == effect.worker
            elif isinstance(effect, Asked):
                kept[effect.request.key] = effect.request
        if broker.ready("ocr"):
            claim = f"h-{at % 8}-{at % 8}" if at % 2 else f"r-{at}"
            request = next(iter(kept.values()), None) if not at % 2 else None
            if claim in in_hand or (not at % 2 and request is None):
                continue
            for effect in broker.deal(Work(claim, "doc", 0, b"", "ocr", request), now):
                if isinstance(effect, Send):
                    in_hand[claim] = effect.peer
    assert set(broker._by_claim) == set(in_hand)
    assert len(broker._by_identifier) == len(in_hand)
    assert set(broker._peers) == set(broker._roster.names())


# The table


@pytest.mark.parametrize("state", [UNKNOWN, CONFIGURED, LISTED, BUSY])
@pytest.mark.parametrize(
    ("event", "when", "options"),
    [
        ("CHECKCONFIG", "", {}),
        ("CHECKCONFIG", "not JSON", {"config_type": "XML"}),
        ("READY", "", {"services": ["ocr"]}),
        ("READY", "other version", {"services": ["ocr"], "config_version": "v0"}),
        ("READY", "other time", {"services": ["ocr"], "time": 0}),
        ("READY", "no such service", {"services": []}),
        ("PING", "", {}),
        ("PING", "other version", {"config_version": "v0"}),
        ("PING", "other time", {"time": 0}),
        ("WORKREPLY", "not matched", {"work_request_identifier": "nobody:1"}),
        ("NEEDBROKER", "", {}),
        ("DISCONNECTERROR", "", {"error_code": 503}),
    ],
)
def test_broker_follows_its_table(
    state: str, event: str, when: str, options: dict[str, Any]
) -> None:
    broker = a_broker()
    if state != UNKNOWN:
        tell(broker, "w", "CHECKCONFIG")
    if state in (LISTED, BUSY):
        ready(broker, "w")
    if state == BUSY:
        deal(broker, work())
    assert broker._state(b"w") == state
    rows = {(row.event, row.when): row for row in BROKER.rows if row.state == state}
    # Who is not known is asked to negotiate, whatever else is wrong.
    row = rows.get((event, when)) or rows[event, ""]
    effects = tell(broker, "w", event, **options)
    assert broker._state(b"w") == row.to
    said = [*commands(effects), *(str(told.get("error_code")) for _, _, told in sent(effects))]
    for word in ("CONFIG", "READYOK", "PONG", "FORCENEGOTIATE", "409", "501", "301"):
        assert (word in said) == row.action.startswith(word)


# Options


@pytest.mark.parametrize(
    "options",
    [
        Options(heartbeat_interval=0),
        Options(liveness=0),
        Options(clock_limit=float("nan")),
        Options(request_timeout=-1),
        Options(max_turns=0),
        Options(services=()),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: Options) -> None:
    with pytest.raises(ConfigError):
        Broker("host-1", options)
