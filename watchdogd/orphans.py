"""Ends what a driver left running: no orphan outlives the driver that it came from.

Orphans become children of the watchdog (it is their subreaper). The environment that a driver was
started with names its life; its forks keep that, whatever group and session they go to. One whose
life has ended is ended too; what was started with another environment is found by the mark that
processors give their children (`MARKER`), by whoever recovers the driver.
"""

import contextlib
import itertools
import os
import signal
from collections.abc import Collection

from queuedriver.liveness import process_ticks

VARIABLE = "WATCHDOGD_LIFE"
_numbers = itertools.count(1)
# Of an environment: more than this belongs to nobody's orphan.
_MOST = 1 << 20


def new_life() -> str:
    """A name for the life of a driver, or of a template and all its forks, of this watchdog."""
    return f"{_prefix()}{next(_numbers)}"


def _prefix() -> str:
    # With the start of this process: an earlier watchdog may have had its pid.
    pid = os.getpid()
    return f"{pid}.{process_ticks(pid)}/"


def life_of(pid: int) -> str:
    """The life that a process belongs to; empty when it is none of ours."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read(_MOST).split(b"\0")
    except OSError:
        return ""
    begins = f"{VARIABLE}=".encode()
    found = next((one[len(begins) :] for one in variables if one.startswith(begins)), b"")
    life = os.fsdecode(found)
    return life if life.startswith(_prefix()) else ""


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
