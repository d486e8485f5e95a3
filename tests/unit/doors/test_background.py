"""A call in a thread of its own: what it leaves to whoever waits for it."""

import os
import sys
from collections.abc import Iterator

import pytest

from queuedriver.doors.transports.addresses import Background


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty")
def test_what_has_ended_can_be_taken_at_once_and_its_descriptor_closed() -> None:
    for _ in range(2000):
        fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        call = Background(lambda: "found", fd)
        while not call.ended:
            pass
        assert call.take() == "found"
        # Nothing is announced any more: by then the number may be another file's.
        os.close(fd)
