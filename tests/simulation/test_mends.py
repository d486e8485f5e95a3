"""What came of the simulation's findings, where that is seen best without it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queuedriver.document import Document
from queuedriver.driver import Driver
from queuedriver.errors import CannotUse, FileSystemTrouble, TakenBack
from queuedriver.filesystem import Directory
from queuedriver.landmarks import landmark
from queuedriver.options import Options
from queuedriver.outcome import Released, from_exception
from tests.simulation.seams import seam


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
