"""What the tests of the contracts share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.door_events import ROWS
from tests.contract.door_scene import LINKS, PROTOCOLS, Door
from tests.contract.watchdog_events import EVENTS
from tests.contract.watchdog_scene import Scene


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A host for one row of the contract; nothing of it outlives the test."""
    event = EVENTS[request.node.originalname.removeprefix("test_")]
    with Scene(tmp_path, event) as scene:
        yield scene


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every row of a front door for every protocol, by both links."""
    if "door" in metafunc.fixturenames:
        row = ROWS[metafunc.function.__name__.removeprefix("test_")]
        cases = [
            pytest.param((protocol, link), id=f"{protocol}-{link}")
            for protocol in PROTOCOLS
            if protocol not in row.absent
            for link in LINKS
        ]
        metafunc.parametrize("door", cases, indirect=True)


@pytest.fixture
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    """A front door for one row of the contract; nothing of it outlives the test."""
    protocol, link = request.param
    row = ROWS[request.node.originalname.removeprefix("test_")]
    if reason := row.not_yet.get(protocol):
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=reason))
    with Door(tmp_path, protocol, link, row) as door:
        yield door
    assert door.was_asked or protocol not in row.differs, "no test looks at what differs"
