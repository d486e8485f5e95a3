"""What a start makes sure of, and what it costs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from queuedriver.claims.liveness import DRIVERS, Observer, Roster, host_id, identify
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.setup import free_id
from queuedriver.format.records import Identity, Registration
from queuedriver.operating.queue import Queue


class Counting(Directory):
    """Counts the files that are read from it, and from what is in it."""

    reads: ClassVar[int] = 0

    def read(self, name: str, limit: int = 16 << 20) -> bytes:
        Counting.reads += 1
        return super().read(name, limit)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(Counting.open(tmp_path)) as queue:
        yield queue


def register(queue: Queue, driver: str, identity: Identity) -> None:
    registration = Registration(id=driver, salt="5a17", identity=identity, started_at=0.0)
    drivers = queue.private.subdirectory(DRIVERS, create=True)
    drivers.write_aside(f"{driver}.json", msgspec.json.encode(registration))
    drivers.close()


def test_id_is_chosen_without_reading_what_everybody_else_registered(queue: Queue) -> None:
    me = identify(os.getpid())
    for number in range(50):
        register(queue, f"container{number}-1", msgspec.structs.replace(me, boot="b", host="far"))
    register(queue, f"{host_id()}-1", me)
    register(queue, f"{host_id()}-2", msgspec.structs.replace(me, ticks=0))
    drivers = queue.private.subdirectory(DRIVERS)
    Counting.reads = 0
    assert free_id([Roster(drivers, Observer())]) == f"{host_id()}-2"
    assert Counting.reads == 2
    drivers.close()
