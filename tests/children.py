"""What tests of a registry of children share: the end of one, and too few descriptors."""

import fcntl
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.holdings import open_files
from tests.waiting import until
from watchdogd.children import Child, Children, Exit


def end_of(children: Children, child: Child) -> Exit:
    """Wait until a child has ended, and is reaped."""

    def ended() -> bool:
        children.reap(time.monotonic())
        return child.exit is not None

    until(ended, f"the end of process {child.pid}")
    assert child.exit is not None
    return child.exit


@contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    """While this lasts, so many files can be opened and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A number that is free below the limit, for each that it may have; the rest is taken.
    top = max(int(number) for number, _ in open_files()) + 32
    taken = [fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3) for _ in range(top)]
    for fd in taken[:free]:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken[free:]:
            os.close(fd)
