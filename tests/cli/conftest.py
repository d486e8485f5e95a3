"""What tests of the commands share: a pipeline's file, the commands, and where they are found."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import pipelines
from tests.cli.processes import ENVIRON
from tests.cli.queues import Called


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline of three stages."""
    return pipelines.make(tmp_path)


@pytest.fixture
def watch(capsys: pytest.CaptureFixture[str], file: Path) -> Callable[..., Called]:
    """`watchdogd`, told which pipeline."""
    return lambda *args: pipelines.call(capsys, *args, "-p", file)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """One in which the commands and `python3` are those under test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    python = shlex.quote(sys.executable)
    commands = {"queuedriver": "-m queuedriver", "watchdogd": "-m watchdogd", "python3": ""}
    for name, module in commands.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {python} {module} "$@"\n')
        program.chmod(0o755)
    path = f"{programs}:{ENVIRON['PATH']}"
    return {**ENVIRON, "PATH": path, "WATCHDOGD_STATE": str(tmp_path / "state")}
