"""A queue as the drivers of the original program leave it is understood by ours."""

import os
from pathlib import Path

import pytest

from queuedriver import Document, Driver, Left, Options, Queue
from queuedriver.claims.document import Target
from queuedriver.claims.liveness import Observer
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.closing import is_drained
from queuedriver.format.records import LEASE
from queuedriver.format.settings import DEFAULT_PUBLISH, Publication, Settings
from tests.openings import open_queue


class Original:
    """Two stages of the original, with what its drivers 7 and 12 had in hand when they died."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("start", "values", "output"):
            (root / name).mkdir()
        self.put("start", "waits.ready", "failed-once.failed", "in-hand.7.working")
        self.put("start", "given-up.failed_twice", "given-up.too.failed_twice", content="")
        # A name that it takes for nobody's: what its watchdog makes of an abandoned document.
        self.put("start", "abandoned")
        self.put("values", "in-hand.7.writing.xml", content="<half")
        self.put("values", "earlier.ready", "earlier too.12.working")

    def put(self, queue: str, *names: str, content: str = "text") -> None:
        for name in names:
            (self.root / queue / name).write_text(content)

    def ls(self, queue: str) -> list[str]:
        listed = os.listdir(self.root / queue)
        return sorted(name for name in listed if name[0] != "." and name != "discarded")

    def run(self, start: str, output: str, failing: str = "") -> Left:
        def process(document: Document) -> bytes:
            if document.docid == failing:
                raise ValueError(failing)
            return document.read().upper()

        driver = Driver(self.root / start, process, self.root / output, options=Options(poll=True))
        return driver.run()

    def recover(self, start: str, output: str) -> None:
        """What any driver of ours does there once the lease is over."""
        now = [0.0]
        target = Target(output, Directory.open(self.root / output), Publication(DEFAULT_PUBLISH))
        settings = Settings(outputs=(f"../{output}",))
        opened = Queue.open(self.root / start)
        queue = open_queue(opened, (target,), settings, observer=Observer(lambda: now[0]))
        try:
            assert queue.recoverer.recover() == 0
            now[0] = LEASE
            queue.recoverer.recover()
        finally:
            queue.close()
            opened.close()
            target.directory.close()


@pytest.fixture
def original(tmp_path: Path) -> Original:
    return Original(tmp_path)


def test_every_name_of_the_original_is_counted_for_what_it_is(original: Original) -> None:
    with Queue.open(original.root / "start") as queue:
        listing = queue.listing(0)
    counts = (listing.ready, listing.failed, listing.working, listing.failed_twice)
    assert counts == (1, 1, 1, 2)
    assert listing.foreign == 1
    # What it gave up is over: a queue is drained with it.
    assert listing.unfinished == 3
    with Queue.open(original.root / "values") as queue:
        listing = queue.listing(0)
    assert (listing.ready, listing.working, listing.writing, listing.foreign) == (1, 1, 1, 0)


def test_claim_of_the_original_is_taken_over_after_the_lease(original: Original) -> None:
    original.recover("start", "values")
    assert "in-hand.ready" in original.ls("start")
    assert "in-hand.7.working" not in original.ls("start")
    # Half an output is not published, nor does it hold up the next stage for ever.
    assert not [name for name in original.ls("values") if "in-hand" in name]
    assert original.ls("values/.queuedriver/orphans") == ["in-hand.7.writing.xml"]


def test_done_cascades_through_stages_of_the_original(original: Original) -> None:
    original.recover("start", "values")
    original.recover("values", "output")
    # The original's way to close a queue.
    original.put("start", "done", content="")
    assert original.run("start", "values").word == "done"
    assert "done" in original.ls("values")
    assert original.run("values", "output").word == "done"
    through = ["earlier too", "earlier", "failed-once", "in-hand", "waits"]
    published = sorted([f"{docid}.ready" for docid in through] + ["done"])
    assert original.ls("output") == published
    assert {(original.root / "output" / f"{docid}.ready").read_text() for docid in through} == {
        "TEXT"
    }
    left = ["abandoned", "done", "given-up.failed_twice", "given-up.too.failed_twice"]
    assert original.ls("start") == left
    assert (original.root / "start/given-up.failed_twice").read_text() == ""


def test_done_does_not_cascade_while_the_original_may_still_work(original: Original) -> None:
    original.put("start", "done", content="")
    for name in ("waits.ready", "failed-once.failed"):
        (original.root / "start" / name).unlink()
    with Queue.open(original.root / "start") as queue:
        assert not is_drained(queue.directory)


def test_failure_in_the_original_counts_as_one(original: Original) -> None:
    original.recover("start", "values")
    original.put("start", "done", content="")
    assert original.run("start", "values", failing="failed-once").counters.discarded == 1
    with Queue.open(original.root / "start") as queue:
        assert queue.discarded() == ["failed-once"]
        report = queue.report("failed-once")
    assert report is not None
    assert [one.attempt for one in report.attempts] == [1]
    assert (original.root / "start/discarded/failed-once").read_text() == "text"
