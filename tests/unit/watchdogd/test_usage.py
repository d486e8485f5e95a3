"""What drivers take is measured with all that they have started."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.waiting import until
from watchdogd.helper_messages import Usage
from watchdogd.host import Meter, usage_of

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


def test_programs_count_for_the_driver_that_started_them(drivers: list[int]) -> None:
    large, small = (usage_of(drivers)[pid] for pid in drivers)
    assert large.memory - small.memory > 40_000_000
    assert large.memory < 200_000_000
    assert min(large.cpu, small.cpu) > 0


def test_driver_that_is_gone_has_nothing(drivers: list[int]) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert usage_of([gone.pid, drivers[0]]).keys() == {drivers[0]}
    os.kill(drivers[0], 9)
    until(lambda: usage_of([drivers[0]]).get(drivers[0]) is not None)


# How often


class Measured:
    """Counts how often somebody looks through all processes."""

    def __init__(self) -> None:
        self.count = 0
        self.meter = Meter(self._measure)
        self.meter.drivers = (1, 2)

    def _measure(self, drivers: tuple[int, ...]) -> dict[int, Usage]:
        self.count += 1
        return dict.fromkeys(drivers, Usage(memory=self.count))

    def look(self, seconds: range, *, idle: bool) -> int:
        """Look each second; return how often the processes were looked through."""
        before = self.count
        for second in seconds:
            self.meter.read(float(second), idle=idle)
        return self.count - before


def test_idle_drivers_are_measured_once_a_minute_and_busy_ones_every_few_seconds() -> None:
    measured = Measured()
    assert measured.look(range(100, 700), idle=False) == 120
    measured.look(range(700, 800), idle=True)
    assert measured.look(range(800, 1400), idle=True) == 10
    assert measured.look(range(1400, 1410), idle=False) == 2


def test_driver_that_has_come_is_measured_soon_though_all_are_idle() -> None:
    measured = Measured()
    measured.look(range(100, 400), idle=True)
    measured.meter.drivers = (1, 3)
    assert measured.look(range(400, 410), idle=True) == 1
    assert measured.meter.read(410.0, idle=True).keys() == {1, 3}


def test_nobody_is_measured_before_there_is_a_driver() -> None:
    measured = Measured()
    measured.meter.drivers = ()
    assert measured.look(range(100, 200), idle=False) == 0
