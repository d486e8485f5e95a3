"""What the tests of the contracts share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.watchdog_events import EVENTS
from tests.contract.watchdog_scene import Scene


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A host for one row of the contract; nothing of it outlives the test."""
    event = EVENTS[request.node.originalname.removeprefix("test_")]
    with Scene(tmp_path, event) as scene:
        yield scene
