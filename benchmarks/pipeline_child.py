"""What the stages of benchmarks/pipeline.py do: copy the document, and note when.

Each process has a file in PIPELINE_TIMES, which is mapped, so that noting takes no system call:
the queue, the first and the latest document, and how many. The first document of each waits until
there is a file `go`, so that none begins before all can.
"""

import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from queuedriver.claims.document import Document

_NOTE = struct.Struct("<qqq64p")
_GO = "go"


class Noted(NamedTuple):
    """Of one process; instants in ns on the monotonic clock."""

    first: int
    last: int
    documents: int
    queue: str


class _Times:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        fd = os.open(f"{directory}/{os.getpid()}.times", os.O_RDWR | os.O_CREAT)
        os.truncate(fd, mmap.PAGESIZE)
        self._map = mmap.mmap(fd, mmap.PAGESIZE)
        os.close(fd)
        self._first = 0
        self._count = 0

    def note(self, queue: str) -> None:
        if not self._count:
            # That it has arrived.
            _NOTE.pack_into(self._map, 0, 0, 0, 0, queue.encode())
            while not os.path.exists(f"{self._directory}/{_GO}"):
                time.sleep(0.001)
            self._first = time.monotonic_ns()
        self._count += 1
        now = time.monotonic_ns()
        _NOTE.pack_into(self._map, 0, self._first, now, self._count, queue.encode())


def noted(directory: Path) -> Iterator[Noted]:
    """What the processes have noted so far."""
    for path in directory.glob("*.times"):
        data = path.read_bytes()
        if len(data) >= _NOTE.size:
            first, last, documents, queue = _NOTE.unpack_from(data)
            if queue:
                yield Noted(first, last, documents, queue.decode())


def go(directory: Path) -> None:
    (directory / _GO).touch()


_times: _Times | None = None


def process(document: Document) -> bytes:
    global _times  # noqa: PLW0603 - one for each process, made when there is something to note
    if _times is None:
        _times = _Times(os.environ["PIPELINE_TIMES"])
    _times.note(document.queue)
    return document.read()
