"""Short documents of a durable queue share their syncs, and still keep to what limits a driver.

Time is told: a document takes little of it, a sync much, and what is asked of the disk is counted.
So the groups are the same on a machine that is busy with others.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from queuedriver.claims.document import Document
from queuedriver.disk import filesystem
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.driver import Driver
from queuedriver.driving.group import MOST
from queuedriver.driving.loop import Left
from queuedriver.format.names import QUIT
from queuedriver.options import Options

DOCUMENTS = 8 * MOST
# Seconds.
SHORT, SYNC = 25e-6, 0.001


class Bench:
    """A durable queue of documents, and what a driver asks of its disk."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, as_one: bool) -> None:
        self.root = root
        self.now, self.flies = 0.0, False
        self.done = 0
        self.syncs: Counter[str] = Counter()
        # Told the number of each document that is processed.
        self.on_document: Callable[[int], object] = lambda number: None
        for name in ("in", "out"):
            (root / name).mkdir()
        for number in range(DOCUMENTS):
            (root / "in" / f"doc{number:04}.ready").write_bytes(b"x" * 1024)
        sync, sync_all, sync_files = Directory.sync, Directory.sync_all, Directory.sync_files
        ends = [str(root / "in"), str(root / "out")]

        def note(directory: Directory, count: int) -> None:
            self.syncs[os.path.basename(directory.path)] += count
            # Heartbeats and settings are beside the documents.
            if directory.path in ends:
                self.syncs["any"] += count
                self.now += count * SYNC

        def synced(directory: Directory) -> None:
            note(directory, 1)
            sync(directory)

        def synced_all(directory: Directory) -> None:
            note(directory, 1)
            sync_all(directory)

        def synced_files(directory: Directory, wanted: Iterable[str]) -> list[str]:
            names = list(wanted)
            note(directory, len(names))
            return sync_files(directory, names)

        monkeypatch.setattr(Directory, "sync", synced)
        monkeypatch.setattr(Directory, "sync_all", synced_all)
        monkeypatch.setattr(Directory, "sync_files", synced_files)
        monkeypatch.setattr(filesystem, "syncs_as_one", lambda _: as_one)

    def clock(self) -> float:
        # When there is nothing left to do, time flies.
        self.now += float(self.flies)
        return self.now

    def process(self, document: Document) -> bytes:
        self.now += SHORT
        self.done += 1
        self.flies = self.done == DOCUMENTS
        self.on_document(self.done)
        return document.read()

    def drive(self, **given: int | bool | str) -> Left:
        options = Options(durable=True, **given)  # type: ignore[arg-type]
        ends = self.root / "in", self.process, self.root / "out"
        return Driver(*ends, options=options, clock=self.clock).run()

    def published(self) -> int:
        return len(list((self.root / "out").glob("*.ready")))


@pytest.mark.parametrize(("as_one", "of_files"), [(True, 1), (False, MOST)])
def test_short_documents_of_a_durable_queue_share_their_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_one: bool, of_files: int
) -> None:
    """Three of directories; and one of all files together, or of each."""
    bench = Bench(tmp_path, monkeypatch, as_one=as_one)
    before = Counter[int]()
    bench.on_document = lambda number: before.update({number: bench.syncs["any"]})
    assert bench.drive(drain=True).word == "drained"
    assert bench.published() == DOCUMENTS
    # What the first ones cost tells the driver that documents are short; then all is steady.
    first, last = 2 * MOST, 6 * MOST
    groups = (last - first) / MOST
    assert before[last] - before[first] == groups * (3 + of_files)


def test_short_documents_of_a_durable_queue_share_the_sync_of_their_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, as_one=True)
    before = Counter[int]()
    bench.on_document = lambda number: before.update({number: bench.syncs["archive"]})
    assert bench.drive(drain=True, archive=str(tmp_path / "archive")).word == "drained"
    assert len(list((tmp_path / "archive").glob("doc*"))) == DOCUMENTS
    first, last = 2 * MOST, 6 * MOST
    assert before[last] - before[first] == (last - first) / MOST


def test_documents_that_wait_for_a_sync_count_for_the_limit_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, as_one=True)
    # So many that they are not counted anew for each document; and no whole number of groups.
    limit = 100

    def leave(number: int) -> None:
        if number == limit:
            (tmp_path / "in" / QUIT).touch()

    bench.on_document = leave
    assert bench.drive(max_output_items=limit).word == "quit"
    assert bench.published() == limit


def test_documents_that_wait_for_a_sync_count_for_how_many_a_driver_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, as_one=True)
    ended = bench.drive(max_documents=20)
    assert ended.word == "recycled"
    # Spread by a tenth.
    assert 18 <= ended.counters.documents <= 22
    assert bench.published() == ended.counters.documents
