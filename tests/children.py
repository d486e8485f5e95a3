"""Ends of the processes that a test has started with a registry of its own."""

import time

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
