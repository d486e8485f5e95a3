"""What the tests of `watchdogd` share: a pipeline's file, and the command for it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import pipelines
from tests.cli.queues import Called


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline of three stages."""
    return pipelines.make(tmp_path)


@pytest.fixture
def watch(capsys: pytest.CaptureFixture[str], file: Path) -> Callable[..., Called]:
    """`watchdogd`, told which pipeline."""
    return lambda *args: pipelines.call(capsys, *args, "-p", file)
