"""What came of the simulation's findings, where that is seen best without it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from queuedriver.claims.document import Document
from queuedriver.claims.liveness import CRASHED, Observer, identify
from queuedriver.claims.outcomes import Released, from_exception
from queuedriver.claims.recovery import Recoverer
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.neighbours import landmark
from queuedriver.driving.driver import Driver
from queuedriver.errors import CannotUse, FileSystemTrouble, TakenBack
from queuedriver.format import names
from queuedriver.format.records import LEASE, Registration
from queuedriver.options import Options
from tests.simulation.seams import seam

if TYPE_CHECKING:
    from tests.conftest import Bench

NOON = 1_700_000_000.0


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    opened = Directory.open(tmp_path)
    yield opened
    opened.close()


def test_a_document_that_is_not_there_any_more_is_not_charged(directory: Directory) -> None:
    document = Document("doc", 0, "in", directory, "doc.d-1.working")
    for look in (document.read, document.open, lambda: document.path):
        with pytest.raises(TakenBack) as caught:
            look()
        assert isinstance(from_exception(caught.value), Released)


def test_a_driver_that_cannot_start_does_not_go_on_showing_life(tmp_path: Path) -> None:
    """Its feed is noted before it registers: whatever fails, there are no beats yet."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out" / ".queuedriver").mkdir(parents=True)
    (tmp_path / "out" / ".queuedriver" / "feeds").touch()
    with pytest.raises((CannotUse, OSError)):
        Driver(tmp_path / "in", bytes, tmp_path / "out", options=Options(drain=True)).run()
    assert not [*(tmp_path / "in" / ".queuedriver" / "drivers").glob("*.json")]


def test_a_landmark_that_cannot_be_seen_is_not_noted_as_missing(directory: Directory) -> None:
    made = landmark(directory, create=True)

    def read(self: Directory, name: str, limit: int = 0) -> bytes:
        raise FileNotFoundError(2, "as a network file system may say for a while", name)

    with ExitStack() as unseen:
        unseen.enter_context(seam(Directory, "read", read))
        assert landmark(directory) == ""
        with pytest.raises(FileSystemTrouble):
            landmark(directory, create=True)
    assert landmark(directory, create=True) == made


def test_an_output_that_an_old_listing_did_not_show_is_moved_aside_a_lease_later(
    bench: "Bench",
) -> None:
    """A queue that is fed from there is not drained while it is there; and a driver that lives on
    its own host for months is the only one to look."""
    now = NOON
    queue = bench.open()
    drivers = queue.drivers
    recoverer = Recoverer(queue, Observer(), clock=lambda: now)
    me = identify(os.getpid())
    dead = Registration(
        id="gone", salt="dead", identity=me, started_at=now, beat_at=now, last_word=CRASHED
    )
    drivers.write_aside("gone.json", msgspec.json.encode(dead))
    recoverer.recover()
    # It was there all the time, and could not be seen.
    bench.put(f"out/{names.writing_name('doc', bench.token('gone', 'dead'))}")

    def looks() -> bool:
        wanted = recoverer.newly_dead()
        recoverer.recover()
        return wanted

    assert not looks()
    assert len(bench.ls("out")) == 1
    now += LEASE
    assert looks()
    assert bench.ls("out") == []
    # Twice is enough: whoever is dead stays in the list of drivers for a week.
    now += LEASE
    assert not looks()
