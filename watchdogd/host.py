"""What this host has, how watchdogd is started on it, and whether its file systems answer."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from queuedriver.disk.filesystem import open_fd

_CGROUP = "/sys/fs/cgroup"
# Seconds of silence after which a file system counts as hung, whoever waits for it. A helper that
# is well says something every 1.2 s, and every half second amid a long look.
SILENCE = 2.0


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
