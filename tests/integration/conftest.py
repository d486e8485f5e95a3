"""What the tests of running watchdogs share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.watchdogs import Yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """A directory with a pipeline, whose watchdogs end with the test."""
    with Yard(tmp_path) as yard:
        yield yard
