"""The two commands of the README, on machines whose Python will not do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
COMMANDS = ["sample_queues/try", "tests/run"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The scripts alone, in a checkout without a .venv."""
    for name in [".ci/venv.sh", "pyproject.toml", *COMMANDS]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def first_command(script: Path, python: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", script],
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def executable(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_python_without_ensurepip_is_named_with_what_mends_it(checkout: Path, command: str) -> None:
    (checkout / "ensurepip.py").write_text("raise ModuleNotFoundError('ensurepip')\n")
    python = executable(
        checkout / "bare-python", f"PYTHONPATH='{checkout}' exec '{sys.executable}' \"$@\""
    )
    ran = first_command(checkout / command, python)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"{python} has no ensurepip")
    assert version in ran.stderr.splitlines()[1]
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_python_that_is_too_old_is_refused_before_anything_is_made(
    checkout: Path, command: str
) -> None:
    ran = first_command(checkout / command, executable(checkout / "old-python", "exit 1"))
    assert ran.returncode == 1
    assert ran.stderr.startswith("Python 3.11 or newer is needed")
    assert not (checkout / ".venv").exists()


def test_readme_names_the_commands_and_continuous_integration_calls_its_second() -> None:
    readme = (ROOT / "README.rst").read_text()
    assert all(f"\n    sh {command}\n" in readme for command in COMMANDS)
    assert "\nexec sh tests/run\n" in (ROOT / ".ci/run").read_text()
