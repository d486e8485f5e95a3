"""What this host has."""

import os
from contextlib import suppress

_CGROUP = "/sys/fs/cgroup"


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
