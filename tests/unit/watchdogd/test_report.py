"""What a watchdog says of itself, and what follows from it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.liveness import HIDDEN
from queuedriver.format.records import Identity
from watchdogd.messages import QueueSeen
from watchdogd.report import (
    HUNG_AFTER,
    SILENT_AFTER,
    Alien,
    DriverReport,
    HostReport,
    StageFacts,
    StageReport,
    Standing,
    decode,
    encode,
    stage_facts,
    standing,
)

ME = Identity("rose", "machine", "boot", 1, 2, 3)
REPORT = HostReport(
    host="rose",
    pid=100,
    identity=Identity("rose", "machine", "boot", 1, 100, 5),
    started_at=1000.0,
    at=2000.0,
    stages=(StageReport(name="parse", wanted=2, service=0.25),),
    drivers=(
        DriverReport(name="parse-1", id="rose-parse-1", stage="parse", state="busy", document="a"),
    ),
)


def replaced(**fields: object) -> HostReport:
    return msgspec.structs.replace(REPORT, **fields)


def test_what_was_said_is_read() -> None:
    assert decode(encode(REPORT)) == REPORT


@given(st.text(st.characters()))
def test_any_name_of_a_document_can_be_said(name: str) -> None:
    one = msgspec.structs.replace(REPORT.drivers[0], document=name)
    data = encode(replaced(drivers=(one,)))
    assert b"\n" not in data
    decode(data)


def test_bytes_that_are_no_text_are_made_visible() -> None:
    one = msgspec.structs.replace(REPORT.drivers[0], document='a\udcff"b')
    assert decode(encode(replaced(drivers=(one,)))).drivers[0].document == 'a\\udcff"b'


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"host": 1}', b"\xff\xfe", b'{"version":1}'])
def test_what_no_watchdog_said_is_refused(data: bytes) -> None:
    with pytest.raises(Alien):
        decode(data)


def test_a_later_version_is_refused_by_its_number() -> None:
    with pytest.raises(Alien, match="version 2"):
        decode(encode(replaced(version=2)))


def test_fields_of_a_later_release_are_passed_over() -> None:
    data = encode(REPORT)[:-1] + b', "mood": "good"}'
    assert decode(data) == REPORT


OTHER_BOOT = Identity("rose", "machine", "earlier", 1, 100, 5)
ELSEWHERE = Identity("fern", "another", "boot-2", 7, 100, 5)


@pytest.mark.parametrize(
    ("fields", "ticks", "age", "expected"),
    [
        # Its process is there, or it is not: certain, whatever the clocks say.
        ({}, 5, 0.0, "alive"),
        ({}, 5, HUNG_AFTER - 1, "alive"),
        # It says something every 2 s while it turns.
        ({}, 5, HUNG_AFTER + 1, "hung"),
        ({}, None, 0.0, "gone"),
        ({}, None, 1e6, "gone"),
        ({}, 6, 0.0, "gone"),
        # Another user's, which is not shown: only its document tells.
        ({}, HIDDEN, 0.0, "alive"),
        ({}, HIDDEN, SILENT_AFTER + 1, "silent"),
        # Its last word.
        ({"state": "stopped"}, 5, 0.0, "stopped"),
        ({"identity": OTHER_BOOT}, None, 0.0, "gone"),
        ({"identity": ELSEWHERE}, None, SILENT_AFTER - 1, "alive"),
        ({"identity": ELSEWHERE}, None, SILENT_AFTER + 1, "silent"),
        # A clock that is ahead of ours.
        ({"identity": ELSEWHERE}, None, -1000.0, "alive"),
    ],
)
def test_who_lives_is_known_as_far_as_it_can_be(
    fields: dict[str, object], ticks: int | None, age: float, expected: Standing
) -> None:
    assert standing(replaced(**fields), ME, ticks, REPORT.at + age) == expected


# A stage's word

WELL = QueueSeen()
PAUSED = QueueSeen(paused=True)
QUIT = QueueSeen(quit=True)
TRIPPED = QueueSeen(tripped="stopped by itself: no such file")


@pytest.mark.parametrize(
    ("inputs", "more", "word"),
    [
        ([WELL], {}, ("", "")),
        ([WELL], {"degraded": "exit code 1"}, ("degraded", "exit code 1")),
        ([PAUSED], {"degraded": "exit code 1"}, ("degraded", "exit code 1")),
        ([PAUSED], {}, ("paused", "")),
        ([WELL], {"paused": True}, ("paused", "")),
        ([PAUSED], {"done": True}, ("paused", "")),
        # One input of two: there is still something to claim.
        ([PAUSED, WELL], {}, ("", "")),
        # What is not seen yet may have no PAUSE.
        ([PAUSED, None], {}, ("", "")),
        ([QUIT, WELL], {}, ("quit", "")),
        ([QUIT], {"done": True}, ("quit", "")),
        ([TRIPPED, WELL], {}, ("tripped", TRIPPED.tripped)),
        ([QUIT, TRIPPED], {}, ("quit", "")),
        ([WELL], {"done": True}, ("done", "")),
        ([], {}, ("", "")),
    ],
)
def test_stage_has_the_word_of_the_first_that_holds(
    inputs: list[QueueSeen | None], more: dict[str, Any], word: tuple[str, str]
) -> None:
    usual: dict[str, Any] = {"degraded": "", "paused": False, "done": False}
    assert stage_facts(inputs, **(usual | more)).word == word


def test_every_word_of_a_stage_is_on_the_page_of_states() -> None:
    page = (Path(__file__).parents[3] / "docs/states.rst").read_text()
    _, table = page.split(".. _states-of-stages:")
    rows = [line.split()[0] for line in table.splitlines() if line.startswith("``")]
    assert rows[: len(StageFacts._fields)] == [f"``{word}``" for word in StageFacts._fields]
