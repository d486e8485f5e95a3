"""Ends what a driver left running: no orphan outlives the driver that it came from.

Orphans become children of the watchdog (it is their subreaper). The environment that a driver was
started with names its life; its forks keep that, whatever group and session they go to. One whose
life has ended is ended too; what was started with another environment is found by the mark that
processors give their children (`MARKER`), by whoever recovers the driver.
"""

import contextlib
import itertools
import math
import os
import signal
import time
from collections.abc import Collection

from queuedriver.claims.liveness import process_ticks
from watchdogd.lives import LIFE, read_environment
from watchdogd.process import reap_strangers

_COME = 2.0
_EVERY = 0.1
# Looks that find nobody, until there is nobody.
_QUIET = 2
_numbers = itertools.count(1)


def new_life() -> str:
    """A name for the life of a driver, or of a template and all its forks, of this watchdog."""
    return f"{begin_of_lives()}{next(_numbers)}"


def begin_of_lives() -> str:
    """What all that this watchdog starts has in common."""
    # With the start of this process: an earlier watchdog may have had its pid.
    pid = os.getpid()
    return f"{pid}.{process_ticks(pid)}/"


def life_of(pid: int) -> str:
    """The life that a process belongs to; empty when it is none of ours."""
    life = read_environment(pid).get(LIFE, "")
    return life if life.startswith(begin_of_lives()) else ""


class Orphans:
    """When to look for them: for a while after a driver has ended. The children of an orphan are
    orphans when that has been ended, and so on. Instants are monotonic, and arguments."""

    def __init__(self) -> None:
        self._until = -math.inf

    def expect(self, now: float) -> None:
        """A driver has ended."""
        self._until = now + _COME

    def tend(self, ours: Collection[int], living: Collection[str], now: float) -> float:
        """End those that have come; when to come back."""
        if now >= self._until:
            return math.inf
        end_orphans(ours, living)
        return now + _EVERY

    def end_all(self, ours: Collection[int]) -> None:
        """Whatever drivers left running, and what that leaves; waits for its end."""
        ends_at = time.monotonic() + _COME
        quiet = 0
        while quiet < _QUIET and time.monotonic() < ends_at:
            # Those that were ended have to be reaped; then there are those that they leave.
            quiet = 0 if end_orphans(ours, ()) else quiet + 1
            time.sleep(_EVERY / 5)
            reap_strangers(ours)


def end_orphans(ours: Collection[int], living: Collection[str]) -> int:
    """Kill every child of this process whose life has ended; how many there were. `ours` are the
    processes that are looked after by others, `living` the lives that go on."""
    count = 0
    for pid in _children():
        if pid in ours or not (life := life_of(pid)) or life in living:
            continue
        # It is our child, and only we reap it: its number is its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def _children() -> list[int]:
    """Those of this process. Not every kernel lists them by themselves."""
    me = str(os.getpid()).encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # After the name of the program, which may be anything: its state, its parent.
            if file.read().rpartition(b")")[2].split()[1] == me:
                found.append(int(name))
    return found
