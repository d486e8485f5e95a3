"""What drivers take with all that they have started, from one table of the host's processes.

Whoever imports this waits for psutil: that is done when there is a driver to be looked at.
"""

from collections.abc import Collection
from contextlib import suppress

import psutil

from watchdogd.helper_messages import Usage

# So many programs may have started one another. A bound, for where a number was used anew while the
# table was read, parents may stand in a circle.
_DEEPEST = 50


def usage_of(drivers: Collection[int]) -> dict[int, Usage]:
    """Measure these processes, as far as they are there, each with all that it has started."""
    table = {one.pid: one for one in psutil.process_iter(["ppid"])}
    memory, cpu = {pid: 0 for pid in drivers if pid in table}, dict.fromkeys(drivers, 0.0)
    for pid, one in table.items():
        driver = pid
        for _ in range(_DEEPEST):
            if driver not in memory and driver in table:
                driver = table[driver].info["ppid"]
        if driver in memory:
            # It is gone by now, or another user's.
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = one.cpu_times()
                # With those of its children that have ended.
                cpu[driver] += times.user + times.system
                cpu[driver] += times.children_user + times.children_system
                memory[driver] += one.memory_info().rss if pid != driver else 0
    return {pid: Usage(memory=memory[pid], cpu=round(cpu[pid], 2)) for pid in memory}
