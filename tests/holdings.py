"""What the tests' own process has, descriptors and children: whether something of it stays."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


def open_files() -> set[tuple[str, str]]:
    """Return each descriptor of this process with what it leads to."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        # Closed by now: with it the others were listed.
        with suppress(FileNotFoundError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def child_processes() -> set[int]:
    """Return the processes that this one has started and not collected."""
    return {one.pid for one in psutil.Process().children()}


@contextmanager
def without_collections() -> Iterator[None]:
    """While this lasts, no descriptor is closed because nobody has it any more, be it of an earlier
    test."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
