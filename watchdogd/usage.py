"""What drivers take with all that they have started, from one table of the host's processes.

Whoever imports this waits for psutil: that is done when there is a driver to be looked at.
"""

from collections.abc import Collection
from contextlib import suppress

import psutil

from watchdogd.messages import Usage


def usage_of(drivers: Collection[int], watchdog: int) -> dict[int, Usage]:
    """Measure the trees of these processes, as far as they are there. Most are children of the
    watchdog's, and found by one look through all processes of the host."""
    below = _below(watchdog)
    found = {}
    for pid in drivers:
        with suppress(psutil.NoSuchProcess):
            driver = psutil.Process(pid)
            # Adopted ones are children of nobody here.
            programs = below[pid] if pid in below else driver.children(recursive=True)
            cpu = _cpu(driver) + sum(map(_cpu, programs))
            found[pid] = Usage(memory=sum(map(_memory, programs)), cpu=round(cpu, 2))
    return found


def _below(watchdog: int) -> dict[int, list[psutil.Process]]:
    """Return what each child of the watchdog's has started, itself left out."""
    below: dict[int, list[psutil.Process]] = {}
    tops: dict[int, int] = {}
    with suppress(psutil.NoSuchProcess):
        # Parents come before their children.
        for one in psutil.Process(watchdog).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                parent = one.ppid()
                top = tops[one.pid] = one.pid if parent == watchdog else tops.get(parent, one.pid)
                below.setdefault(top, [])
                if top != one.pid:
                    below[top].append(one)
    return below


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return int(process.memory_info().rss)
    return 0


def _cpu(process: psutil.Process) -> float:
    """Return the seconds of processor time of a process, and of those of its children that have
    ended."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0
