"""What a test leaves open is told of that test, and not of one that runs when it is found."""

from pathlib import Path

from tests.inner_runs import run

_CONFTEST = """
from tests.conftest import pytest_collection_finish, pytest_runtest_teardown
"""
_TESTS = """
import subprocess


class Thing:
    pass


def left(what):
    thing = Thing()
    thing.itself, thing.what = thing, what


def test_file():
    left(open(__file__))


def test_process():
    left(subprocess.Popen(["sleep", "0.1"]))


def test_nothing():
    pass
"""


def test_whoever_leaves_something_open_fails_of_it_and_nobody_else(tmp_path: Path) -> None:
    ended = run(tmp_path, _CONFTEST, _TESTS, "-W", "error")
    assert "3 passed, 2 errors" in ended.stdout, ended.stdout + ended.stderr
    assert "ERROR test_some.py::test_file" in ended.stdout
    assert "ERROR test_some.py::test_process" in ended.stdout
