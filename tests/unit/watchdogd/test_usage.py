"""What drivers take is measured with all that they have started."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.waiting import until
from watchdogd.usage import usage_of

# Starts a program that takes so many bytes and some time, and waits.
_DRIVER = '''
import subprocess, sys, time
program = """
import time
big = bytearray({size})
sum(range(3 * 10**6))
print(flush=True)
time.sleep(3600)
"""
ran = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
ran.stdout.readline()
print("ready", flush=True)
time.sleep(3600)
'''


@pytest.fixture
def drivers() -> Iterator[list[int]]:
    """Two, of which the programs take 50 MB and next to nothing."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _DRIVER.replace("{size}", str(size))],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for size in (50_000_000, 1)
    ]
    for one in started:
        assert one.stdout is not None
        one.stdout.readline()
    yield [one.pid for one in started]
    for one in started:
        os.killpg(one.pid, 9)
        one.communicate()


@pytest.mark.parametrize("adopted", [False, True])
def test_programs_count_for_the_driver_that_started_them(drivers: list[int], adopted: bool) -> None:
    # Of adopted drivers the watchdog is not the parent.
    watchdog = 1 if adopted else os.getpid()
    large, small = (usage_of(drivers, watchdog)[pid] for pid in drivers)
    assert large.memory - small.memory > 40_000_000
    assert large.memory < 200_000_000
    assert min(large.cpu, small.cpu) > 0


def test_driver_that_is_gone_has_nothing(drivers: list[int]) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert usage_of([gone.pid, drivers[0]], os.getpid()).keys() == {drivers[0]}
    os.kill(drivers[0], 9)
    until(lambda: usage_of([drivers[0]], os.getpid()).get(drivers[0]) is not None)
