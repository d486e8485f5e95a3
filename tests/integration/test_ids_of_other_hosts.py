"""An id whose process cannot be seen from here is free once it has been silent for its lease."""

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest

from queuedriver import Driver, IdHeld, Options
from queuedriver.claims.liveness import DRIVERS, identify
from queuedriver.format.records import Identity, Registration
from tests.drivers import PATIENCE


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    (tmp_path / "in/.queuedriver" / DRIVERS).mkdir(parents=True)
    return tmp_path / "in"


def elsewhere() -> Identity:
    """A process of this host in a container of its own."""
    me = identify(os.getpid())
    return msgspec.structs.replace(me, namespace=me.namespace + 1)


def register(queue: Path, beat: int, lease: float) -> None:
    registration = Registration(
        id="rose-1", salt="abcd", identity=elsewhere(), started_at=1.0, beat=beat, lease=lease
    )
    path = queue / ".queuedriver" / DRIVERS / "rose-1.json"
    aside = path.with_suffix(".aside")
    aside.write_bytes(msgspec.json.encode(registration))
    aside.rename(path)


def drive(queue: Path) -> str:
    driver = Driver(queue, lambda _: None, id="rose-1", options=Options(drain=True))
    return driver.run().word


def test_container_that_was_started_anew_gets_its_id_after_the_lease(queue: Path) -> None:
    register(queue, beat=3, lease=1.0)
    began = time.monotonic()
    assert drive(queue) == "drained"
    assert time.monotonic() - began >= 1.0


def test_living_holder_is_known_by_its_next_beat(queue: Path) -> None:
    register(queue, beat=1, lease=PATIENCE)
    stop = threading.Event()

    def beat() -> None:
        number = 1
        while not stop.wait(0.05):
            number += 1
            register(queue, number, PATIENCE)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(IdHeld, match="rose-1"):
            drive(queue)
    finally:
        stop.set()
        thread.join()
