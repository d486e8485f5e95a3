"""Scale0's sessions: configuration, turns, heartbeats, clocks and versions, requests, groups."""

import contextlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Doubted, Failed, Postponed, Released
from queuedriver.doors.scale0.broker import (
    BROKER,
    BUSY,
    CONFIGURED,
    LISTED,
    MAX_TURNS,
    PATIENCE,
    UNKNOWN,
    Broker,
)
from queuedriver.doors.scale0.settings import BrokerSettings
from queuedriver.doors.words import (
    Answer,
    Asked,
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
from queuedriver.errors import QueueError, RemoteProtocolError
from queuedriver.format.records import Failure

# The time of day at which everything here happens.
WALL = 1_763_500_000.0
TWO = ("ocr=in:out", "scan=in2:out2")
ONE = ("ocr=in:out",)


def told(**given: Any) -> BrokerSettings:
    return BrokerSettings(**{"service": TWO, **given})


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
    return broker.hear(peer.encode(), frames_of(command, body, **options), now, WALL + now)


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


def lost(why: str, claim: str = "host-1-00000000000001abcd", times: int = 1) -> list[Effect]:
    """What the loss of a worker with one thing in hand ends."""
    message = f"its worker was lost ({why}) while it had the document"
    return [End(claim, Failed(Failure(cause="worker-lost", message=message)))] * times


def state_of(broker: Broker, peer: str = "w") -> str:
    worker = broker.workers.get(peer.encode())
    return UNKNOWN if worker is None else worker.state


def is_ready(broker: Broker, service: str = "ocr", now: float = 0.0) -> bool:
    return broker.pick(service, now) is not None


def ready(broker: Broker, peer: str, now: float = 0.0, services: Sequence[str] = ("ocr",)) -> None:
    """A start-up, or another READY of one that is up."""
    if state_of(broker, peer) == UNKNOWN:
        assert commands(tell(broker, peer, "CHECKCONFIG", now)) == ["CONFIG"]
    assert commands(tell(broker, peer, "READY", now, services=list(services))) == ["READYOK"]


def a_broker(*workers: str, **given: Any) -> Broker:
    broker = told(**given).session("host-1")
    assert isinstance(broker, Broker)
    for name in workers:
        ready(broker, name)
    return broker


def version(broker: Broker) -> str:
    """Its configuration's."""
    ((_, _, options),) = sent(tell(broker, "asks", "PING"))
    ((_, _, config),) = sent(tell(broker, "asks", "CHECKCONFIG"))
    tell(broker, "asks", "DISCONNECTERROR", error_code=503)
    assert options["error_message"]
    return str(config["config_version"])


def work(claim: str = "host-1-00000000000001abcd", service: str = "ocr", attempt: int = 0) -> Work:
    return Work(claim, "doc", attempt, b"payload", service)


def dealt(broker: Broker, work: Work, now: float = 0.0) -> Send | End:
    worker = broker.pick(work.service, now)
    assert worker is not None
    return broker.deal(worker, work, now)


def deal(broker: Broker, work: Work, now: float = 0.0) -> tuple[str, dict[str, object]]:
    """To whom, with which options."""
    ((peer, command, options),) = sent([dealt(broker, work, now)])
    assert command == "WORKREQUEST"
    return peer, options


def tick(broker: Broker, now: float) -> Effects:
    """What time brings, but for the probes of the busy."""
    return others(broker.tick(now, WALL))


ID = "host-1:00000000000001abcd"


# Connections


def test_worker_that_starts_up_is_listed_only_after_its_ready() -> None:
    broker = a_broker()
    seen = []
    for command, options in (
        ("CHECKCONFIG", {"config_type": "JSON"}),
        ("READY", {"services": ["ocr"]}),
    ):
        assert not is_ready(broker)
        effects = tell(broker, "w", command, **options)
        seen += [command, *commands(effects)]
    assert seen == ["CHECKCONFIG", "CONFIG", "READY", "READYOK"]
    assert is_ready(broker)


def test_start_up_says_the_four_lines_at_level_1() -> None:
    broker = a_broker()
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
    broker = a_broker(service=ONE, group=("tcp://a:1", "tcp://b:1"), preferred="tcp://a:1")
    ((_, _, config),) = sent(tell(broker, "w", "CHECKCONFIG"))
    found = config.pop("config_version")
    assert config == {
        "identity": "w",
        "services": ["ocr"],
        "group_config": {"brokers": ["tcp://a:1", "tcp://b:1"]},
        "preferred_broker": "tcp://a:1",
    }
    # Brokers of a group agree on it, and another configuration has another.
    group = ("tcp://a:1", "tcp://b:1")
    same = a_broker(service=("ocr=other",), group=group, preferred="tcp://a:1")
    assert found == version(same)
    assert found != version(a_broker())


def test_worker_that_has_the_configuration_is_told_that_it_is_unchanged() -> None:
    broker = a_broker()
    effects = tell(broker, "w", "CHECKCONFIG", config_version=version(broker))
    assert sent(effects) == [("w", "CONFIG", {"unchanged": True})]
    assert sent(tell(broker, "w", "CHECKCONFIG", config_version="v0"))[0][2]["identity"] == "w"


@pytest.mark.parametrize("config_type", ["XML", "ZFL", "json"])
def test_other_than_json_is_refused(config_type: str) -> None:
    broker = a_broker()
    assert code(tell(broker, "w", "CHECKCONFIG", config_type=config_type)) == 501
    assert commands(tell(broker, "w", "READY", services=["ocr"])) == ["FORCENEGOTIATE"]


@pytest.mark.parametrize("command", ["READY", "PING"])
def test_worker_that_did_not_ask_for_its_configuration_is_told_to_negotiate(command: str) -> None:
    broker = a_broker()
    assert commands(tell(broker, "w", command, services=["ocr"])) == ["FORCENEGOTIATE"]
    assert not is_ready(broker)


def test_readyok_tells_how_often_to_ping_which_may_be_longer_than_the_broker_s_not_shorter() -> (
    None
):
    broker = a_broker()
    for asked, granted in ((60.0, 60.0), (0.1, 5.0), (-1.0, 5.0), (1e9, 3600.0)):
        tell(broker, "w", "CHECKCONFIG")
        effects = tell(broker, "w", "READY", services=["ocr"], heartbeat_interval=asked)
        assert sent(effects) == [
            (
                "w",
                "READYOK",
                {"heartbeat_interval": granted, "time": WALL, "config_version": version(broker)},
            )
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
            one for one in broker.hear(b"w", [b"", *frames], 0.0, WALL) if isinstance(one, Send)
        ]
        assert answer.frames[:2] == (b"", command)
    broker.hear(b"w", [b"", *frames_of("CHECKCONFIG")], 0.0, WALL)
    broker.hear(b"w", [b"", *frames_of("READY", services=["ocr"])], 0.0, WALL)
    request = dealt(broker, work())
    assert isinstance(request, Send)
    assert request.frames[:2] == (b"", b"WORKREQUEST")


def fill(broker: Broker) -> None:
    """List as many workers as may be."""
    names = (f"w{number}" for number in itertools.count())
    while commands(tell(broker, next(names), "CHECKCONFIG")) == ["CONFIG"]:
        pass


def test_broker_that_is_full_refuses_or_sends_elsewhere() -> None:
    alone = a_broker()
    fill(alone)
    assert code(tell(alone, "x", "CHECKCONFIG")) == 503
    # Who is there already may begin anew.
    assert commands(tell(alone, "w0", "CHECKCONFIG")) == ["CONFIG"]
    group = ("tcp://me:1", "tcp://other:1")
    broker = a_broker(group=group, advertise="tcp://me:1")
    fill(broker)
    ((_, _, told),) = sent(tell(broker, "x", "CHECKCONFIG"))
    assert (told["error_code"], told["broker"]) == (301, "tcp://other:1")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "tcp://127.0.0.1:8081"),
        ({"listen": ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")}, "tcp://127.0.0.1:1"),
        ({"listen": ("tcp://127.0.0.1:1",), "advertise": "tcp://me:1"}, "tcp://me:1"),
    ],
)
def test_needbroker_is_answered_with_301_to_where_workers_reach_this_broker_or_with_503(
    given: dict[str, Any], address: str
) -> None:
    broker = a_broker(**given)
    ((_, _, told),) = sent(tell(broker, "x", "NEEDBROKER", identity="x", services=["ocr"]))
    assert (told["error_code"], told["broker"]) == (301, address)
    fill(broker)
    assert code(tell(broker, "x", "NEEDBROKER", identity="x", services=["ocr"])) == 503
    broker.leave(0.0)
    assert code(tell(broker, "w1", "NEEDBROKER")) == 503


# Heartbeats, clocks, versions


def test_pong_has_both_times_and_the_version() -> None:
    broker = a_broker("w")
    right = version(broker)
    effects = tell(broker, "w", "PING", 1.0, time=WALL - 3, config_version=right)
    assert sent(effects) == [
        ("w", "PONG", {"time": WALL - 3, "broker_time": WALL + 1, "config_version": right})
    ]


@pytest.mark.parametrize("started", [False, True])
def test_worker_that_misses_three_heartbeats_is_dropped_listed_or_not(started: bool) -> None:
    broker = a_broker()
    tell(broker, "w", "CHECKCONFIG")
    if started:
        ready(broker, "w")
    tell(broker, "w", "PING", 10.0)
    assert broker.next_tick_at() is not None
    broker.tick(24.0, WALL)
    assert state_of(broker) == (LISTED if started else CONFIGURED)
    # It is not dealt to any more, whenever it is looked who is silent.
    assert not is_ready(broker, now=25.0)
    broker.tick(25.0, WALL)
    assert state_of(broker) == UNKNOWN
    assert broker.next_tick_at() is None
    assert commands(tell(broker, "w", "PING", 26.0)) == ["FORCENEGOTIATE"]


def test_worker_that_asked_for_a_longer_interval_may_be_silent_for_longer() -> None:
    broker = a_broker()
    tell(broker, "w", "CHECKCONFIG")
    tell(broker, "w", "READY", services=["ocr"], heartbeat_interval=60)
    broker.tick(179.0, WALL)
    assert is_ready(broker, now=179.9)
    broker.tick(180.0, WALL)
    assert state_of(broker) == UNKNOWN


@pytest.mark.parametrize("command", ["READY", "PING"])
@pytest.mark.parametrize("off", [-30.5, 30.5, 1e18])
def test_worker_whose_clock_is_way_off_is_disconnected(command: str, off: float) -> None:
    broker = a_broker("w")
    assert code(tell(broker, "w", command, time=WALL + off, services=["ocr"])) == 409
    assert not is_ready(broker)
    assert commands(tell(broker, "w", "PING")) == ["FORCENEGOTIATE"]


@pytest.mark.parametrize("off", [-29.5, 0.0, 29.5])
def test_clock_within_the_limit_changes_nothing(off: float) -> None:
    broker = a_broker("w")
    assert commands(tell(broker, "w", "PING", time=WALL + off)) == ["PONG"]


def test_worker_whose_words_waited_while_its_broker_was_stopped_has_no_wrong_clock() -> None:
    broker = a_broker("w")
    tell(broker, "w", "READY", time=WALL, services=["ocr"])
    broker.was_deaf(60.0, 61.0)
    # What it said meanwhile.
    assert commands(tell(broker, "w", "PING", 61.0, time=WALL + 5)) == ["PONG"]
    assert commands(tell(broker, "w", "PING", 61.2, time=WALL + 10)) == ["PONG"]
    # Nothing comes out of the future.
    assert code(tell(broker, "w", "PING", 62.0, time=WALL + 93)) == 409


@pytest.mark.parametrize(("now", "off"), [(62.0, -91.0), (68.0, -41.0)])
def test_worker_whose_clock_is_wrong_is_told_so_though_its_broker_was_stopped(
    now: float, off: float
) -> None:
    broker = a_broker("w")
    broker.was_deaf(60.0, 61.0)
    assert code(tell(broker, "w", "PING", now, time=WALL + now + off)) == 409


def test_clock_decides_neither_liveness_nor_order() -> None:
    """The broker's wall clock jumps by a day: who is listed, and in which order, stays."""
    broker = a_broker("a", "b")
    broker.hear(b"a", frames_of("PING"), 14.0, WALL + 86_400)
    broker.hear(b"b", frames_of("PING"), 14.0, WALL - 86_400)
    assert tick(broker, 15.0) == []
    assert deal(broker, work(), 15.0)[0] == "a"


@pytest.mark.parametrize("command", ["READY", "PING"])
def test_other_version_is_told_to_negotiate_and_the_second_time_disconnected(command: str) -> None:
    broker = a_broker("w")
    options: dict[str, Any] = {"config_version": "v0", "services": ["ocr"]}
    assert commands(tell(broker, "w", command, **options)) == ["FORCENEGOTIATE"]
    # It is not listed any more.
    assert not is_ready(broker)
    assert commands(tell(broker, "w", "CHECKCONFIG", config_version="v0")) == ["CONFIG"]
    assert code(tell(broker, "w", command, **options)) == 426
    assert commands(tell(broker, "w", "PING")) == ["FORCENEGOTIATE"]


def test_version_that_was_put_right_is_forgiven() -> None:
    broker = a_broker("w")
    right = version(broker)
    for _ in range(3):
        assert commands(tell(broker, "w", "PING", config_version="v0")) == ["FORCENEGOTIATE"]
        tell(broker, "w", "CHECKCONFIG", config_version="v0")
        tell(broker, "w", "READY", services=["ocr"], config_version=right)
        assert is_ready(broker)


# Turns


def test_one_ready_is_one_request() -> None:
    broker = a_broker("w")
    ready(broker, "w")
    for claim in ("h-1", "h-2"):
        assert is_ready(broker)
        assert deal(broker, work(claim))[0] == "w"
    assert not is_ready(broker)
    for serial in (1, 2):
        tell(broker, "w", "WORKREPLY", body=b"", work_request_identifier=f"host-1:{serial}")
    assert not is_ready(broker)
    ready(broker, "w")
    assert is_ready(broker)


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
    assert not is_ready(broker)
    assert not is_ready(broker, "scan")


def test_services_that_the_broker_has_not_are_passed_over_and_none_at_all_is_refused() -> None:
    broker = a_broker()
    ready(broker, "w", services=["ocr", "unheard-of"])
    assert is_ready(broker)
    assert not is_ready(broker, "unheard-of")
    assert code(tell(broker, "w", "READY", services=["unheard-of"])) == 501


def test_ready_without_services_is_refused_as_one_without_a_service_of_ours() -> None:
    broker = a_broker("w")
    assert code(tell(broker, "w", "READY")) == 501


def test_worker_has_no_more_turns_than_it_may() -> None:
    broker = a_broker("w")
    for _ in range(MAX_TURNS + 10):
        ready(broker, "w")
    for serial in range(MAX_TURNS):
        deal(broker, work(f"h-{serial}"))
    assert not is_ready(broker)


def test_new_checkconfig_takes_the_turns_back() -> None:
    broker = a_broker("w")
    tell(broker, "w", "CHECKCONFIG")
    assert not is_ready(broker)
    ready(broker, "w")
    deal(broker, work())
    assert not is_ready(broker)


# Documents


def test_document_is_known_by_broker_and_serial_and_its_reply_is_published() -> None:
    broker = a_broker("w")
    peer, options = deal(broker, work(), 1.0)
    assert peer == "w"
    assert options["work_request_identifier"] == ID
    assert (options["service"], options["docid"]) == ("ocr", "doc")
    assert (options["time"], options["config_version"]) == (WALL + 1, version(broker))
    effects = tell(broker, "w", "WORKREPLY", 500.0, body=b"text", work_request_identifier=ID)
    assert effects == [End(work().claim, Processed((Result(b"text"),)))]
    # The same reply again is for nothing.
    assert tell(broker, "w", "WORKREPLY", 500.0, body=b"text", work_request_identifier=ID) == []


def test_body_of_a_document_is_its_bytes() -> None:
    effect = dealt(a_broker("w"), work())
    assert isinstance(effect, Send)
    assert effect.frames[2] == b"payload"


def test_reply_may_carry_several_outputs_or_none() -> None:
    broker = a_broker("w")
    deal(broker, work())
    outputs = [{"name": "a", "size": 2}, {"size": 3}]
    effects = tell(
        broker, "w", "WORKREPLY", body=b"12345", work_request_identifier=ID, outputs=outputs
    )
    assert effects == [End(work().claim, Processed((Result(b"12", "a"), Result(b"345"))))]
    ready(broker, "w")
    deal(broker, work())
    effects = tell(broker, "w", "WORKREPLY", body=b"", work_request_identifier=ID, outputs=[])
    assert effects == [End(work().claim, Processed(()))]


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
    assert effects == [End(work().claim, how)]


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


# Lost workers


def test_busy_worker_is_exempt_from_silence_and_tried_each_second() -> None:
    broker = a_broker("w")
    deal(broker, work(), 0.0)
    probes = [commands(broker.tick(float(now), WALL)) for now in range(100)]
    assert probes == [["PONG"]] * 100
    assert others(broker.gone(b"w", 100.0)) == lost("unroutable")


def test_document_that_takes_longer_than_its_time_out_is_lost() -> None:
    broker = a_broker("w", job_timeout=7.0)
    deal(broker, work(), 1.0)
    assert tick(broker, 7.0) == []
    assert tick(broker, 8.0)[:1] == lost("overdue")
    assert tell(broker, "w", "WORKREPLY", 9.0, body=b"", work_request_identifier=ID) == []


def test_worker_that_leaves_or_is_disconnected_gives_its_document_back_uncharged() -> None:
    released = [End(work().claim, Released("its worker left"))]
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
    effects = broker.hear(b"w", frames, 1.0, WALL)
    assert others(effects) == lost("left")
    assert code(effects) in (400, 501)
    assert commands(tell(broker, "w", "PING")) == ["FORCENEGOTIATE"]


def test_worker_that_begins_anew_says_what_it_has_and_the_rest_is_lost() -> None:
    broker = a_broker("w")
    ready(broker, "w")
    deal(broker, work("h-1"))
    deal(broker, work("h-2"))
    effects = tell(broker, "w", "CHECKCONFIG", work_in_hand=["host-1:2"])
    ((claim, how),) = [(one.claim, one.how) for one in effects if isinstance(one, End)]
    assert claim == "h-1"
    assert isinstance(how, Doubted)
    assert commands(effects) == ["CONFIG"]
    effects = tell(broker, "w", "WORKREPLY", body=b"", work_request_identifier="host-1:2")
    assert others(effects) == [End("h-2", Processed((Result(b""),)))]
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
    assert broker.hear(b"w", reply, 1.0, WALL) == [End("c1", Answer(b"web", tuple(reply)))]
    assert broker.hear(b"w", reply, 1.0, WALL) == []


def test_worker_gets_the_body_of_a_frontend_as_it_came() -> None:
    broker = a_broker("w")
    effect = dealt(broker, request_work(asked(ask(broker))))
    assert isinstance(effect, Send)
    assert effect.frames[2] == b"body"


def test_frontend_with_an_empty_frame_gets_it_back_with_every_answer() -> None:
    broker = a_broker("w")
    asks = [b"", *frames_of("WORKREQUEST", b"", service="ocr", message_id="1")]
    (effect,) = broker.hear(b"\x00\x01", asks, 0.0, WALL)
    assert isinstance(effect, Asked)
    deal(broker, request_work(effect.request))
    reply = frames_of("WORKREPLY", b"", work_request_identifier="~0001:1")
    assert broker.hear(b"w", reply, 1.0, WALL) == [End("c1", Answer(b"\x00\x01", (b"", *reply)))]
    refusal = broker.refusal(effect.request, "no worker came in time", late=True)
    assert refusal is not None
    assert (refusal.peer, refusal.frames[:2]) == (b"\x00\x01", (b"", b"DISCONNECTERROR"))


def test_request_is_answered_by_a_broker_that_was_restarted_since() -> None:
    request = asked(ask(a_broker("w")))
    broker = a_broker("w")
    deal(broker, request_work(request))
    reply = frames_of("WORKREPLY", b"", work_request_identifier="web:m1")
    assert broker.hear(b"w", reply, 1.0, WALL) == [End("c1", Answer(b"web", tuple(reply)))]


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


def test_request_that_is_given_up_is_refused_with_503_in_time_and_with_444_after_losses() -> None:
    broker = a_broker()
    request = asked(ask(broker))
    assert broker.request_patience == PATIENCE
    for late, expected in ((True, 503), (False, 444)):
        answer = broker.refusal(request, "why", late=late)
        assert answer is not None
        told = json.loads(answer.frames[1])
        assert (answer.peer, answer.frames[0]) == (b"web", b"DISCONNECTERROR")
        assert (told["error_code"], told["message_id"]) == (expected, "m1")
        assert told["error_message"] == "why"


def test_request_whose_worker_is_lost_is_charged_as_a_document_is() -> None:
    broker = a_broker("w")
    request = asked(ask(broker))
    deal(broker, request_work(request, "c1", 0))
    assert others(broker.gone(b"w", 1.0)) == lost("unroutable", "c1")


def test_request_whose_worker_left_is_given_back_uncharged() -> None:
    broker = a_broker("w")
    deal(broker, request_work(asked(ask(broker))), 5.0)
    effects = tell(broker, "w", "DISCONNECTERROR", 6.0, error_code=503)
    assert others(effects) == [End("c1", Released("its worker left"))]


def test_request_that_never_reached_its_worker_is_given_back_uncharged() -> None:
    broker = a_broker("w")
    deal(broker, request_work(asked(ask(broker))), 5.0)
    (given_back,) = others(broker.undelivered(b"w", "c1", 5.0))
    assert isinstance(given_back, End)
    assert isinstance(given_back.how, Released)
    assert state_of(broker) == UNKNOWN


def test_request_that_was_kept_twice_is_not_given_to_its_worker_again() -> None:
    broker = a_broker("w")
    ready(broker, "w")
    request = asked(ask(broker))
    deal(broker, request_work(request, "c1"))
    effect = dealt(broker, request_work(request, "c2"))
    assert isinstance(effect, End)
    assert isinstance(effect.how, Failed)
    reply = frames_of("WORKREPLY", b"", work_request_identifier="web:m1")
    (answer,) = others(broker.hear(b"w", reply, 1.0, WALL))
    assert isinstance(answer, End)
    assert answer.claim == "c1"


@pytest.mark.parametrize(
    "request_on_disk",
    [
        Request(b"web:m1", (b"torn",), "ocr"),
        Request(b"\xff:m1", tuple(frames_of("WORKREQUEST", b"")), "ocr"),
    ],
)
def test_file_that_is_no_request_of_ours_is_discarded_and_its_worker_keeps_its_turn(
    request_on_disk: Request,
) -> None:
    broker = a_broker("w")
    effect = dealt(broker, request_work(request_on_disk))
    assert isinstance(effect, End)
    assert isinstance(effect.how, Failed)
    assert effect.how.failure.permanent
    assert is_ready(broker)
    broker.refusal(request_on_disk, "why")


# A broker that leaves


def test_broker_that_leaves_sends_the_idle_away_at_once_and_the_busy_after_their_reply() -> None:
    broker = a_broker("busy", "idle")
    assert deal(broker, work())[0] == "busy"
    assert [(peer, told["error_code"]) for peer, _, told in sent(broker.leave(1.0))] == [
        ("idle", 503)
    ]
    assert not is_ready(broker)
    assert commands(tell(broker, "busy", "PING")) == ["PONG"]
    effects = tell(broker, "busy", "WORKREPLY", body=b"x", work_request_identifier=ID)
    assert others(effects) == [End(work().claim, Processed((Result(b"x"),)))]
    assert code(effects) == 503
    assert code(tell(broker, "late", "CHECKCONFIG")) == 503
    assert code(ask(broker)) == 503


def test_broker_of_a_group_that_leaves_sends_its_workers_to_the_others_in_turn() -> None:
    group = ("tcp://me:1", "tcp://a:1", "tcp://b:1")
    broker = a_broker("w1", "w2", group=group, advertise="tcp://me:1")
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
    broker = a_broker(job_timeout=6.0)
    in_hand: dict[str, bytes] = {}
    kept: dict[bytes, Request] = {}
    for at, (peer, frames) in enumerate(messages):
        now = float(at)
        effects: Effects = []
        with contextlib.suppress(RemoteProtocolError):
            effects = broker.hear(peer, frames, now, WALL)
        for effect in [*effects, *broker.tick(now, WALL)]:
            if isinstance(effect, End):
                assert effect.claim in in_hand
                del in_hand[effect.claim]
            elif isinstance(effect, Asked):
                kept[effect.request.key] = effect.request
        if is_ready(broker, now=now):
            claim = f"h-{at % 8}-{at % 8}" if at % 2 else f"r-{at}"
            request = next(iter(kept.values()), None) if not at % 2 else None
            if claim in in_hand or (not at % 2 and request is None):
                continue
            effect = dealt(broker, Work(claim, "doc", 0, b"", "ocr", request), now)
            if isinstance(effect, Send):
                in_hand[claim] = effect.peer
    had = {claim: worker.name for worker in broker.workers.values() for claim in worker.in_hand}
    assert had == in_hand
    for worker in broker.workers.values():
        assert sorted(worker.sent.values()) == sorted(worker.in_hand)
        assert (worker.state == BUSY) == bool(worker.in_hand)


# The table


def as_it_leaves(broker: Broker) -> Broker:
    """A broker that leaves as soon as somebody has its answer."""
    broker.leaving = True
    return broker


def does(command: str, **options: Any) -> Callable[[Broker], object]:
    return lambda broker: tell(broker, "w", command, 1.0, **options)


def does_leaving(command: str, **options: Any) -> Callable[[Broker], object]:
    return lambda broker: tell(as_it_leaves(broker), "w", command, 1.0, **options)


def loses(why: str) -> Callable[[Broker], object]:
    if why == "undelivered":
        return lambda broker: broker.undelivered(b"w", work().claim, 1.0)
    if why == "unroutable":
        return lambda broker: broker.gone(b"w", 1.0)
    # Long after anybody's patience.
    return lambda broker: broker.tick(1e6, WALL)


def replies(**options: Any) -> Callable[[Broker], object]:
    return does("WORKREPLY", body=b"", work_request_identifier=ID, **options)


def more_in_hand(broker: Broker) -> object:
    ready(broker, "w")
    deal(broker, work("host-1-2"))
    return replies()(broker)


def has_turns(broker: Broker) -> object:
    ready(broker, "w")
    return replies()(broker)


def warned(command: str) -> Callable[[Broker], object]:
    def again(broker: Broker) -> object:
        broker.workers[b"w"].warned = True
        return does(command, config_version="v0", services=["ocr"])(broker)

    return again


def when_full(broker: Broker) -> object:
    fill(broker)
    return does("CHECKCONFIG")(broker)


_BOTH: dict[tuple[str, str], Callable[[Broker], object]] = {}
for _event in ("READY", "PING"):
    _BOTH |= {
        (_event, ""): does(_event, services=["ocr"]),
        (_event, "other version"): does(_event, services=["ocr"], config_version="v0"),
        (_event, "other version again"): warned(_event),
        (_event, "other time"): does(_event, services=["ocr"], time=0),
    }

# What makes each event of the table happen.
HAPPENS: dict[tuple[str, str], Callable[[Broker], object]] = {
    **_BOTH,
    ("CHECKCONFIG", ""): does("CHECKCONFIG"),
    ("CHECKCONFIG", "nothing in hand"): does("CHECKCONFIG", work_in_hand=[]),
    ("CHECKCONFIG", "not JSON"): does("CHECKCONFIG", config_type="XML"),
    ("CHECKCONFIG", "full"): when_full,
    ("CHECKCONFIG", "leaving"): does_leaving("CHECKCONFIG"),
    ("READY", "no such service"): does("READY", services=["none"]),
    ("READY", "leaving"): does_leaving("READY", services=["ocr"]),
    ("a request waits", ""): lambda broker: deal(broker, work("host-1-2")),
    ("WORKREPLY", ""): replies(),
    ("WORKREPLY", "it has turns"): has_turns,
    ("WORKREPLY", "more in hand"): more_in_hand,
    ("WORKREPLY", "not matched"): does("WORKREPLY", work_request_identifier="nobody:1"),
    ("NEEDBROKER", ""): does("NEEDBROKER"),
    ("DISCONNECTERROR", ""): does("DISCONNECTERROR", error_code=503),
    ("anything else", ""): does("HELLO"),
    ("silence", ""): loses("silent"),
    ("each second", ""): loses("nobody"),
    ("time-out", ""): loses("overdue"),
    ("unreachable", ""): loses("unroutable"),
    ("unreachable", "not sent"): loses("undelivered"),
    ("leaving", ""): lambda broker: broker.leave(1.0),
}


@pytest.mark.parametrize("cell", BROKER.cells, ids=" ".join)
def test_each_row_of_the_table_is_stepped(
    cell: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, event, when = cell
    broker = a_broker(job_timeout=1.0 if event == "time-out" else math.inf)
    if state != UNKNOWN:
        tell(broker, "w", "CHECKCONFIG")
    if state in (LISTED, BUSY):
        ready(broker, "w")
    if state == BUSY:
        deal(broker, work())
        if event == "a request waits":
            ready(broker, "w")
    assert state_of(broker) == state
    stepped: Counter[tuple[str, str, str]] = Counter()
    monkeypatch.setattr(BROKER, "stepped", stepped)
    HAPPENS[event, when](broker)
    assert stepped[cell]
    assert state_of(broker) == BROKER.cells[cell]


# What it is told


@pytest.mark.parametrize("interval", [0.0, -1.0, math.nan])
def test_interval_that_cannot_be_meant_is_refused(interval: float) -> None:
    with pytest.raises(QueueError):
        told(heartbeat_interval=interval).check()


@pytest.mark.parametrize("listen", ["tcp://*:8081", "tcp://0.0.0.0:8081", "tcp://[::]:8081"])
def test_broker_of_a_group_that_listens_everywhere_has_to_say_where_workers_reach_it(
    listen: str,
) -> None:
    group = ("tcp://a:8081", "tcp://b:8081")
    told(listen=(listen,)).check()
    with pytest.raises(QueueError, match="--advertise"):
        told(listen=(listen,), group=group).check()
    told(listen=(listen,), group=group, advertise="tcp://a:8081").check()
