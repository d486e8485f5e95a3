"""What this host has and what drivers take of it, how watchdogd is started on it, and whether its
file systems answer."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from queuedriver.disk.filesystem import open_fd
from watchdogd.helper_messages import Usage

_CGROUP = "/sys/fs/cgroup"
# Seconds of silence after which a file system counts as hung, whoever waits for it. A helper that
# is well says something every 1.2 s, and every half second amid a long look.
SILENCE = 2.0
# From one look through all processes of the host to the next, in seconds, and while there is
# nothing to do for the drivers; and at least so many times what it takes of a processor.
_MEASURE_EVERY = 5.0
_MEASURE_IDLE_EVERY = 60.0
_MEASURE_WORTH = 500
# So many programs may have started one another. A bound, for where a number was used anew while the
# table was read, parents may stand in a circle.
_DEEPEST = 50


def program() -> list[str]:
    """Return how this very installation is started, wherever it is."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "watchdogd")
    if os.access(beside, os.X_OK):
        return [beside]
    return [os.path.abspath(sys.executable), "-m", "watchdogd"]


def processors() -> int:
    """Return how many processors this process, and what it starts, may use."""
    return len(os.sched_getaffinity(0))


def physical_memory() -> int:
    """Return how many bytes the processes of this host, or of this container, may have at most."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _limits():
        with suppress(OSError, ValueError), open(path) as file:
            memory = min(memory, int(file.read()))
    return memory


def _limits() -> list[str]:
    """Return where the kernel says how much the groups that this process is in may have."""
    paths = []
    with suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            group = line.rstrip("\n").partition("::")[2]
            while group:
                paths.append(f"{_CGROUP}{group}/memory.max")
                group = group.rpartition("/")[0]
    return [*paths, f"{_CGROUP}/memory.max"]


def answers(look: Callable[[], object], limit: float = SILENCE) -> bool:
    """Tell whether a look at files comes to an end, be it an error, within so many seconds: a child
    looks first. One that hangs is left behind."""
    # Mostly there is no watchdog here, or nobody asks.
    from watchdogd.linux import is_readable

    child = os.fork()
    if not child:
        with suppress(BaseException):
            # Whoever reads what we print must not wait for what is left behind.
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            look()
        os._exit(0)
    with open_fd(os.pidfd_open(child)) as pidfd:
        ended = is_readable(pidfd, limit)
    if not ended:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0 if ended else os.WNOHANG)
    return ended


def usage_of(drivers: Collection[int]) -> dict[int, Usage]:
    """Measure these processes, as far as they are there, each with all that it has started."""
    # There is nothing to wait for before there is a driver.
    import psutil

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


class Meter:
    """Measures what the drivers take, now and then; `now` is monotonic."""

    def __init__(self, measure: Callable[[tuple[int, ...]], dict[int, Usage]] = usage_of) -> None:
        self.drivers: tuple[int, ...] = ()
        self._measure = measure
        # What was measured, when, of whom, and how long it took.
        self._usage: dict[int, Usage] = {}
        self._at = -math.inf
        self._of: tuple[int, ...] = ()
        self._took = 0.0
        # Seconds to the next time.
        self._pause = 0.0

    def read(self, now: float, *, idle: bool) -> dict[int, Usage]:
        """Return what the drivers took when they were last measured. While they are `idle`, that is
        less and less often."""
        if not idle or self.drivers != self._of:
            self._pause = _MEASURE_EVERY
        if self.drivers and now - self._at >= max(self._pause, _MEASURE_WORTH * self._took):
            began_at = time.process_time()
            self._usage = self._measure(self.drivers)
            self._took = time.process_time() - began_at
            self._at, self._of = now, self.drivers
            self._pause = min(2 * self._pause, _MEASURE_IDLE_EVERY)
        return self._usage
