"""Scale0's frames: commands, options in JSON, bodies, and what is none of these."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Failed, Postponed, Released, Setback
from queuedriver.doors.scale0.wire import (
    Group,
    Options,
    Part,
    decode,
    encode,
    frontend_identity,
    frontend_name,
    pack,
    reply_of,
    unpack,
)
from queuedriver.doors.words import Result, setback
from queuedriver.errors import RemoteProtocolError
from queuedriver.format.records import Failure

EVENTS: list[tuple[Options, bytes, dict[str, object]]] = [
    (Options(config_type="JSON"), b"CHECKCONFIG", {"config_type": "JSON"}),
    (
        Options(
            identity="w",
            services=("ocr",),
            group_config=Group(brokers=("tcp://a:1",)),
            preferred_broker="tcp://a:1",
            config_version="v1",
        ),
        b"CONFIG",
        {
            "identity": "w",
            "services": ["ocr"],
            "group_config": {"brokers": ["tcp://a:1"]},
            "preferred_broker": "tcp://a:1",
            "config_version": "v1",
        },
    ),
    (Options(unchanged=True), b"CONFIG", {"unchanged": True}),
    (
        Options(identity="w", services=("s",)),
        b"NEEDBROKER",
        {"identity": "w", "services": ["s"]},
    ),
    (
        Options(services=("s", "t"), heartbeat_interval=2.5, time=1.5, config_version="v"),
        b"READY",
        {"services": ["s", "t"], "heartbeat_interval": 2.5, "time": 1.5, "config_version": "v"},
    ),
    (Options(heartbeat_interval=5.0), b"READYOK", {"heartbeat_interval": 5.0}),
    (Options(time=1.5, config_version=7), b"PING", {"time": 1.5, "config_version": 7}),
    (
        Options(time=1.5, broker_time=2.5, config_version="v"),
        b"PONG",
        {"time": 1.5, "broker_time": 2.5, "config_version": "v"},
    ),
    (
        Options(error_code=301, error_message="go", broker="tcp://b:1"),
        b"DISCONNECTERROR",
        {"error_code": 301, "error_message": "go", "broker": "tcp://b:1"},
    ),
    (Options(), b"FORCENEGOTIATE", {}),
]


@pytest.mark.parametrize(("event", "command", "options"), EVENTS)
@pytest.mark.parametrize("envelope", [False, True])
def test_message_is_a_command_and_its_options_in_json(
    event: Options, command: bytes, options: dict[str, object], envelope: bool
) -> None:
    frames = encode(command.decode(), event, envelope=envelope)
    assert frames[:-1] == ((b"", command) if envelope else (command,))
    assert json.loads(frames[-1]) == options
    message = decode(frames)
    assert (message.command, message.options) == (command.decode(), event)
    assert message.envelope == envelope


@pytest.mark.parametrize("command", [b"WORKREQUEST", b"WORKREPLY"])
@pytest.mark.parametrize("key", ["work_request_identifier", "work_request_indentifier"])
def test_both_spellings_of_the_identifier_are_understood(command: bytes, key: str) -> None:
    message = decode([command, json.dumps({key: "b:1"}).encode(), b"body"])
    assert message.options.identifier == "b:1"


def test_work_has_a_body_that_nobody_looks_into() -> None:
    frames = encode(
        "WORKREQUEST", Options(service="s", work_request_identifier="b:1"), b"\x00{not json"
    )
    assert frames[0] == b"WORKREQUEST"
    assert frames[2] == b"\x00{not json"
    assert decode(frames).body == b"\x00{not json"


def test_options_nobody_knows_are_skipped_and_none_at_all_are_an_empty_object() -> None:
    assert decode([b"PING", b'{"colour": [1, {"x": null}]}']).options == Options()
    assert decode([b"PING"]).options == decode([b"PING", b""]).options == Options()


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([], 501),
        ([b""], 501),
        ([b"", b""], 501),
        ([b"HELLO", b"{}"], 501),
        ([b"ready", b"{}"], 501),
        ([b"\xff" * 1000], 501),
        ([b"__init__", b"{}"], 501),
        ([b"READY", b"ocr,scan"], 400),
        ([b"READY", b'{"services": "ocr"}'], 400),
        ([b"PING", b"[]"], 400),
        ([b"PING", b"{}", b"more"], 400),
        ([b"WORKREPLY", b"{}", b"a", b"b"], 400),
        ([b"PING", b'{"time": "noon"}'], 400),
        ([b"PING", b'{"time": 1e999}'], 400),
        ([b"PING", b'{"time": NaN}'], 400),
        ([b"PING", b'{"config_version": %d}' % 10**400], 400),
        ([b"PING", b'{"config_version": 1' + b"0" * 10_000 + b"}"], 400),
        ([b"WORKREPLY", b'{"status": 1%s}' % (b"0" * 100), b""], 400),
        ([b"WORKREPLY", b'{"outputs": [{"size": -1}]}', b""], 400),
        ([b"PING", b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"], 400),
        ([b"PING", b'{"x": "' + b"x" * (1 << 20) + b'"}'], 400),
        ([b"PING", b"\xff\xfe"], 400),
        ([b"PING", b'{"config_version": "\xff"}'], 400),
    ],
)
def test_what_is_no_message_is_an_error_with_its_code(frames: list[bytes], code: int) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        decode(frames)
    assert raised.value.code == code


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
KEYS = [
    "config_type", "config_version", "work_in_hand", "identity", "services", "group_config",
    "unchanged", "heartbeat_interval", "time", "work_request_identifier", "message_id", "service",
    "status", "outputs", "error_code", "error_message", "broker",
]  # fmt: skip


@st.composite
def any_frames(draw: st.DrawFn) -> list[bytes]:
    command = draw(
        st.sampled_from([row[1] for row in EVENTS] + [b"WORKREQUEST", b"WORKREPLY", b""])
    )
    options = draw(st.dictionaries(st.sampled_from(KEYS), json_values, max_size=4))
    encoded = draw(st.just(json.dumps(options).encode()) | st.binary(max_size=8))
    frames = [command, encoded, *draw(st.lists(st.binary(max_size=3), max_size=2))]
    return [b"", *frames] if draw(st.booleans()) else frames


@given(any_frames())
def test_any_frames_are_a_message_or_an_error_of_the_peer(frames: list[bytes]) -> None:
    with contextlib.suppress(RemoteProtocolError):
        message = decode(frames)
        again = decode(encode(message.command, message.options, None, message.envelope))
        assert (again.command, again.options) == (message.command, message.options)


# Identifiers


@given(st.binary(min_size=1, max_size=60))
def test_frontend_of_any_identity_is_found_again_by_its_name(identity: bytes) -> None:
    name = frontend_name(identity)
    assert ":" not in name
    assert name.isascii()
    assert frontend_identity(f"{name}:message:1") == identity


def test_frontend_with_a_plain_identity_is_called_by_it() -> None:
    assert frontend_name(b"web-1.example") == "web-1.example"
    assert frontend_name(b"\x00ab") == "~006162"


@pytest.mark.parametrize("identifier", ["~xyz:1", "ä:1"])
def test_identifier_of_nobody_is_an_error_of_the_peer(identifier: str) -> None:
    with pytest.raises(RemoteProtocolError):
        frontend_identity(identifier)


# Outputs


@given(
    st.lists(st.builds(Result, st.binary(max_size=9), st.none() | st.text(max_size=5)), max_size=5)
)
def test_outputs_come_back_with_their_names_and_bytes(results: list[Result]) -> None:
    outputs, body = pack(results)
    frames = encode("WORKREPLY", Options(work_request_identifier="b:1", outputs=outputs), body)
    message = decode(frames)
    assert unpack(message.options, message.body) == tuple(results)


def test_one_output_without_a_name_is_the_plain_body() -> None:
    assert pack([Result(b"bytes")]) == (None, b"bytes")
    assert unpack(Options(), b"bytes") == (Result(b"bytes"),)


@pytest.mark.parametrize("size", [0, 4, 6])
def test_sizes_that_are_not_the_body_s_are_an_error_of_the_peer(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        unpack(Options(outputs=(Part(size=size),)), b"12345")


@pytest.mark.parametrize(
    ("how", "status", "understood"),
    [
        (
            Failed(Failure(cause="permanent", message="why", permanent=True)),
            65,
            Failed(Failure(cause="permanent", message="why", permanent=True, exit_code=65)),
        ),
        (
            Failed(Failure(cause="exception", message="why")),
            1,
            Failed(Failure(cause="exit", message="why", exit_code=1)),
        ),
        (Postponed(5.0, "why"), 75, Postponed(60.0, "why")),
        (Released("why"), 75, Postponed(60.0, "why")),
    ],
)
def test_failure_travels_as_status_and_text(how: Setback, status: int, understood: Setback) -> None:
    reply = reply_of("b:1", how)
    assert (reply.identifier, reply.status, reply.error_message) == ("b:1", status, "why")
    assert setback(reply.status, reply.error_message) == understood
