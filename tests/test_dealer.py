"""How tests are dealt to processes: one that dies costs the test in which it died, and no other."""

import os
import subprocess
import sys
from pathlib import Path

_CONFTEST = """
from tests.conftest import pytest_xdist_make_scheduler
"""
_TESTS = """
import os
import time

import pytest


@pytest.mark.parametrize("number", range(12))
def test_number(number):
    time.sleep(0.05)
    if number == 5:
        os._exit(1)


def test_longest():
    # The other process is replaced and has its turn meanwhile.
    time.sleep(3)
"""


def test_process_that_dies_costs_one_test_and_the_others_all_end(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_some.py").write_text(_TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 12 passed" in ended.stdout
    assert "crashed while running 'test_some.py::test_number[5]'" in ended.stdout
