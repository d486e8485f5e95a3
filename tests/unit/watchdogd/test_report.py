"""What a watchdog says of itself, and what follows from it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.disk.processes import HIDDEN
from queuedriver.format.records import Identity, encode
from watchdogd.report import (
    HUNG_AFTER,
    SILENT_AFTER,
    Alien,
    DriverReport,
    HostReport,
    StageReport,
    Standing,
    decode,
    standing,
)

ME = Identity("rose", "machine", "boot", 1, 2, 3)
REPORT = HostReport(
    host="rose",
    pid=100,
    identity=Identity("rose", "machine", "boot", 1, 100, 5),
    started_at=1000.0,
    at=2000.0,
    turned_at=500.0,
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
        # Its helper may be at the queues for long before it copies what it says every 2 s.
        ({}, 5, SILENT_AFTER - 1, "alive"),
        ({}, 5, SILENT_AFTER + 1, "hung"),
        ({}, None, 0.0, "gone"),
        ({}, None, 1e6, "gone"),
        ({}, 6, 0.0, "gone"),
        # Another user's, which is not shown: only its document tells.
        ({}, HIDDEN, 0.0, "alive"),
        ({}, HIDDEN, SILENT_AFTER + 1, "silent"),
        # Its last word.
        ({"state": "stopped"}, 5, 0.0, "stopped"),
        ({"identity": OTHER_BOOT}, HIDDEN, 0.0, "gone"),
        ({"identity": ELSEWHERE}, HIDDEN, SILENT_AFTER - 1, "alive"),
        ({"identity": ELSEWHERE}, HIDDEN, SILENT_AFTER + 1, "silent"),
        # A clock that is ahead of ours.
        ({"identity": ELSEWHERE}, HIDDEN, -1000.0, "alive"),
    ],
)
def test_who_lives_is_known_as_far_as_it_can_be(
    fields: dict[str, object], ticks: int | None, age: float, expected: Standing
) -> None:
    now, monotonic = REPORT.at + age, REPORT.turned_at + age
    assert standing(replaced(**fields), ME, ticks, now, monotonic) == expected
    # One that does not say when it turned by the other clock.
    assert standing(replaced(**fields, turned_at=0.0), ME, ticks, now, 9e9) == expected


@pytest.mark.parametrize("stepped", [-3600.0, 3600.0])
def test_clock_that_is_stepped_makes_no_watchdog_of_this_host_look_hung(stepped: float) -> None:
    now, turned_at = REPORT.at + stepped, REPORT.turned_at
    assert standing(REPORT, ME, 5, now, turned_at + 1, copied=False) == "alive"
    assert standing(REPORT, ME, 5, now, turned_at + 99, copied=False) == "hung"


def test_what_is_said_on_its_own_disk_is_missed_sooner() -> None:
    for age, expected in ((HUNG_AFTER - 1, "alive"), (HUNG_AFTER + 1, "hung")):
        now, monotonic = REPORT.at + age, REPORT.turned_at + age
        assert standing(REPORT, ME, 5, now, monotonic, copied=False) == expected
        assert standing(REPORT, ME, 5, now, monotonic) == "alive"
