"""How tests are dealt to processes: one that dies costs the test in which it died, and no other."""

import re
from pathlib import Path

from tests.inner_runs import run

_DEALER = "from tests.conftest import pytest_xdist_make_scheduler\n"
# Of the two processes that take the place of others, one is dealt tests while the other still
# gathers its own.
_ONE_IS_LATE = """
import os
import time
from pathlib import Path

HERE = Path(__file__).parent
WAITS_FOR = {"gw2": "gw3 gathers", "gw3": "gw2 runs"}


def pytest_collection_modifyitems():
    who = os.environ.get("PYTEST_XDIST_WORKER")
    (HERE / f"{who} gathers").touch()
    until = time.monotonic() + 60
    while who in WAITS_FOR and not (HERE / WAITS_FOR[who]).exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def pytest_runtest_setup():
    (HERE / (os.environ["PYTEST_XDIST_WORKER"] + " runs")).touch()
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


# Kills all processes of the tests in a moment, its own last.
_KILLS_ALL = """
import os
import signal
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range(40))
def test_number(number):
    time.sleep(0.05)
    if number == 9:
        of = os.getppid()
        here = {int(one) for one in Path(f"/proc/{of}/task/{of}/children").read_text().split()}
        for pid in [*here - {os.getpid()}, os.getpid()]:
            os.kill(pid, signal.SIGKILL)
"""


def test_process_that_dies_costs_one_test_and_the_others_all_end(tmp_path: Path) -> None:
    ended = run(tmp_path, _DEALER, _TESTS, "-n", "2")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 12 passed" in ended.stdout
    assert "crashed while running 'test_some.py::test_number[5]'" in ended.stdout


def test_processes_that_all_die_at_once_cost_a_test_each_and_the_others_all_end(
    tmp_path: Path,
) -> None:
    ended = run(tmp_path, _DEALER + _ONE_IS_LATE, _KILLS_ALL, "-n", "2")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    counted = re.search(r"(\d) failed, (\d+) passed", ended.stdout)
    assert counted, ended.stdout + ended.stderr
    failed, passed = map(int, counted.groups())
    # Who died between two tests is said to have died in the next.
    assert failed <= 2, ended.stdout
    assert failed + passed == 40, ended.stdout
