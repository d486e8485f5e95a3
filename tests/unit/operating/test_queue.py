"""What is submitted is in the queue, whole and once; what waits there is never clobbered."""

import io
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuedriver.cli.put import check_file
from queuedriver.disk import filesystem
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.closing import close_if_fed, is_drained, reopen_if_fed
from queuedriver.errors import (
    AlreadyThere,
    BadArgument,
    BadDocid,
    CannotUse,
    NotFound,
    QueueClosed,
)
from queuedriver.format import names
from queuedriver.format.records import Failure, Report, encode_report
from queuedriver.operating.queue import Queue, Submitted
from tests.holdings import open_files
from tests.openings import registrations

if TYPE_CHECKING:
    from tests.conftest import Bench

TOKEN = "d-0605d3a1f2b0c05a17"


def aside(bench: "Bench", queue: str = "in") -> list[str]:
    """What is left in the place where documents wait to be let in."""
    path = bench.root / queue / ".queuedriver/incoming"
    return sorted(os.listdir(path)) if path.exists() else []


# Open


def test_a_queue_is_a_directory_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no queue .* mkdir it"):
        Queue.open(tmp_path / "in")
    with Queue.open(tmp_path / "in", create=True) as queue:
        assert queue.name == "in"
    (tmp_path / "file").touch()
    for create in (False, True):
        with pytest.raises(CannotUse, match="not a directory"):
            Queue.open(tmp_path / "file", create)


def test_a_path_that_is_not_utf8_cannot_be_a_queue(tmp_path: Path) -> None:
    # Settings and registrations are JSON, and name it.
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(path)
    with pytest.raises(CannotUse, match="UTF-8"):
        Queue.open(os.fsdecode(path))


def test_to_look_changes_nothing(bench: "Bench") -> None:
    with Queue.open(bench.directory("in").path) as queue:
        assert queue.listing(0.0).unfinished == 0
        assert [*queue.items(), *queue.find("a"), *queue.discarded()] == []
        assert queue.report("a") is None
        assert queue.settings() is None
        assert registrations(queue) == []
        assert queue.feeds() == []
        assert queue.controls() == (False, False, False)
        assert not is_drained(queue.directory)
    assert os.listdir(bench.root / "in") == []


def test_a_closed_queue_has_given_its_descriptors_back(bench: "Bench") -> None:
    directory = bench.directory("in")
    before = open_files()
    with Queue.open(directory.path) as queue:
        queue.submit("a", b"1")
        queue.add_feed("/elsewhere")
    assert open_files() <= before


# Submit


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_submitted_waits_with_its_contents(bench: "Bench", durable: bool) -> None:
    queue = bench.queue()
    source = bench.put("source", b"from a path")
    contents: dict[str, bytes | str | Path | io.BytesIO] = {
        "bytes": b"from bytes",
        "path": source,
        "name": str(source),
        "stream": io.BytesIO(b"from a stream"),
        "empty": b"",
    }
    for docid, content in contents.items():
        submitted = queue.submit(docid, content, durable=durable)
        assert submitted == (docid, f"{docid}.ready")
    assert bench.ls() == [f"{one}.ready" for one in ("bytes", "empty", "name", "path", "stream")]
    assert bench.read("in/bytes.ready") == b"from bytes"
    assert bench.read("in/path.ready") == bench.read("in/name.ready") == b"from a path"
    assert bench.read("in/stream.ready") == b"from a stream"
    assert bench.read("in/empty.ready") == b""
    assert source.exists()
    assert aside(bench) == []


def test_what_waits_is_not_clobbered_unless_it_is_to_be_replaced(bench: "Bench") -> None:
    queue = bench.queue()
    queue.submit("a", b"first")
    with pytest.raises(AlreadyThere, match=r"'a' waits .* --replace") as caught:
        queue.submit("a", b"second")
    assert caught.value.exit_code == 73
    assert bench.read("in/a.ready") == b"first"
    assert aside(bench) == []
    queue.submit("a", b"third", replace=True)
    assert bench.read("in/a.ready") == b"third"
    assert aside(bench) == []


@pytest.mark.parametrize("name", [f"a.{TOKEN}.working", f"a.{TOKEN}.written", "a.failed"])
def test_a_document_may_be_submitted_again_while_it_is_worked_on(bench: "Bench", name: str) -> None:
    bench.put(f"in/{name}", b"first")
    bench.queue().submit("a", b"second", replace=True)
    assert bench.read(f"in/{name}") == b"first"
    assert bench.read("in/a.ready") == b"second"


@pytest.mark.parametrize("docid", ["", ".a", "a/b", "../a", "a\0", "a.ready", "done", 161 * "x"])
def test_a_bad_docid_gets_nothing_in(bench: "Bench", docid: str) -> None:
    queue = bench.queue()
    with pytest.raises(BadDocid):
        queue.submit(docid, b"1")
    with pytest.raises(BadDocid):
        list(queue.submit_many([(docid, b"1")]))
    assert bench.ls() == []
    assert aside(bench) == []


def test_a_source_that_cannot_be_read_leaves_nothing(bench: "Bench") -> None:
    queue = bench.queue()

    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise OSError(5, "broken")

    with pytest.raises(FileNotFoundError):
        queue.submit("a", bench.root / "nowhere")
    with pytest.raises(OSError, match="broken"):
        queue.submit("a", Broken())
    assert bench.ls() == []
    assert aside(bench) == []


def test_a_document_for_later_waits_until_it_is_due(bench: "Bench") -> None:
    queue = bench.queue()
    assert queue.submit("a", b"1", due=255.0) == ("a", "a.ff.later")
    # Never before: what is not a whole second is rounded up.
    assert queue.submit("b", b"1", due=255.1).name == "b.100.later"
    assert queue.submit("c", b"1", due=0.0).name == "c.0.later"


@pytest.mark.parametrize("due", [-1.0, float("nan"), float("inf"), 1e20])
def test_an_instant_that_no_name_can_tell_gets_nothing_in(bench: "Bench", due: float) -> None:
    queue = bench.queue()
    with pytest.raises(BadArgument, match="no instant"):
        queue.submit("a", b"1", due=due)
    with pytest.raises(BadArgument, match="no instant"):
        list(queue.submit_many([("a", b"1")], due=due))
    assert bench.ls() == []
    assert aside(bench) == []


# Submit many


@pytest.mark.parametrize("tells", [True, False])
def test_many_documents_are_synced_at_once_only_where_it_is_told_what_could_not_be_written(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    asked: list[str] = []
    sync_all, sync_files = Directory.sync_all, Directory.sync_files

    def synced_all(directory: Directory) -> None:
        asked.append("all")
        sync_all(directory)

    def synced_files(directory: Directory, wanted: Iterable[str]) -> list[str]:
        asked.append("each")
        return sync_files(directory, wanted)

    monkeypatch.setattr(Directory, "sync_all", synced_all)
    monkeypatch.setattr(Directory, "sync_files", synced_files)
    monkeypatch.setattr(filesystem, "syncs_as_one", lambda _: tells)
    entered = list(bench.queue().submit_many((f"doc{number}", b"x") for number in range(5)))
    assert len(entered) == 5
    assert asked == ["all" if tells else "each"]


@pytest.mark.parametrize("durable", [True, False])
def test_many_documents_enter_in_their_order(bench: "Bench", durable: bool) -> None:
    queue = bench.queue()
    documents = [(f"{number:04}", b"%d" % number) for number in range(600)]
    submitted = list(queue.submit_many(documents, durable=durable))
    assert [one.docid for one in submitted] == [docid for docid, _ in documents]
    assert bench.ls() == [f"{docid}.ready" for docid, _ in documents]
    assert bench.read("in/0599.ready") == b"599"
    assert aside(bench) == []


def test_one_that_waits_already_keeps_no_other_out_and_is_named_at_the_end(
    bench: "Bench",
) -> None:
    queue = bench.queue()
    queue.submit("b", b"first")
    entered: list[Submitted] = []
    with pytest.raises(AlreadyThere, match=r"'b' and 1 other wait in .* already"):
        entered.extend(queue.submit_many([("a", b"2"), ("b", b"2"), ("c", b"2"), ("c", b"3")]))
    assert [one.docid for one in entered] == ["a", "c"]
    assert bench.read("in/b.ready") == b"first"
    assert bench.read("in/c.ready") == b"2"
    assert aside(bench) == []


def test_a_source_that_fails_half_way_leaves_what_entered_and_no_more(bench: "Bench") -> None:
    queue = bench.queue()

    def documents() -> Iterator[tuple[str, bytes]]:
        for number in range(300):
            yield f"{number:04}", b"1"
        raise RuntimeError("no more")

    entered: list[Submitted] = []
    with pytest.raises(RuntimeError, match="no more"):
        # As far as it gets.
        entered.extend(queue.submit_many(documents()))
    assert bench.ls() == [one.name for one in entered]
    assert len(entered) == 256
    assert aside(bench) == []


def test_a_reader_that_stops_half_way_leaves_nothing_aside(bench: "Bench") -> None:
    queue = bench.queue()
    submitting = queue.submit_many((f"{number}", b"1") for number in range(1000))
    next(submitting)
    submitting.close()  # type: ignore[attr-defined]
    assert aside(bench) == []


# Closed


def test_nothing_enters_a_queue_that_is_done_unless_it_is_opened_again(bench: "Bench") -> None:
    queue = bench.queue()
    queue.set_control(names.DONE, wanted=True)
    with pytest.raises(QueueClosed, match="--reopen"):
        queue.submit("a", b"1")
    with pytest.raises(QueueClosed):
        list(queue.submit_many([("a", b"1")]))
    assert bench.ls() == ["done"]
    queue.submit("a", b"1", reopen=True)
    assert bench.ls() == ["a.ready"]


# Control


@pytest.mark.parametrize("name", sorted(names.CONTROLS))
def test_controls_are_files_that_come_and_go(bench: "Bench", name: str) -> None:
    queue = bench.queue()
    for _ in range(2):
        queue.set_control(name, wanted=True)
        assert bench.ls() == [name]
        assert sum(queue.controls()) == 1
    for _ in range(2):
        queue.set_control(name, wanted=False)
        assert queue.controls() == (False, False, False)
    assert bench.ls() == []


def test_controls_are_told_apart(bench: "Bench") -> None:
    queue = bench.queue()
    bench.put("in/PAUSE")
    controls = queue.controls()
    assert (controls.done, controls.paused, controls.quit) == (False, True, False)


def test_what_is_no_control_file_is_not_made(bench: "Bench") -> None:
    with pytest.raises(BadArgument):
        bench.queue().set_control("a.ready", wanted=True)
    assert bench.ls() == []


# Look


def test_a_document_is_found_in_whatever_state(bench: "Bench") -> None:
    queue = bench.queue()
    listed = ["a.ready", "a.failed2", f"a.{TOKEN}.working", "a.ff.later", f"a.{TOKEN}.writing.x"]
    for name in [*listed, "a.b.ready", "a"]:
        bench.put(f"in/{name}")
    assert sorted(name for name, _ in queue.find("a")) == sorted(listed)
    assert len(list(queue.items())) == 6


def test_discarded_documents_are_listed_without_their_reports(bench: "Bench") -> None:
    queue = bench.queue()
    for name in ("b", "b.report.json", "a c", f".{TOKEN}.report", ".aside-1", "lone.report.json"):
        bench.put(f"in/discarded/{name}", b"{}")
    assert queue.discarded() == ["a c", "b"]
    assert queue.report("b") is None
    assert queue.report("../discarded/b") is None


# Feeds


def feeding(bench: "Bench", *feeds: str) -> Queue:
    output = bench.queue("out")
    for name in feeds:
        output.add_feed(bench.queue(name).path)
    return output


def test_feeds_are_remembered_by_their_way_from_here(bench: "Bench") -> None:
    output = feeding(bench, "a", "é b", "a")
    assert sorted(output.feeds()) == [str(bench.root / "a"), str(bench.root / "é b")]
    # The whole tree may be mounted elsewhere.
    os.rename(bench.root, bench.root.with_name("elsewhere"))
    with Queue.open(bench.root.with_name("elsewhere") / "out") as moved:
        assert str(bench.root.with_name("elsewhere") / "a") in moved.feeds()


def test_a_queue_is_done_when_all_that_feed_it_are_done_and_drained(bench: "Bench") -> None:
    output = feeding(bench, "a", "b")
    assert not close_if_fed(output.directory)
    bench.put("a/done")
    assert not close_if_fed(output.directory)
    bench.put("b/done")
    waiting = bench.put("b/x.ready")
    assert not close_if_fed(output.directory)
    waiting.rename(bench.root / f"b/x.{TOKEN}.written")
    assert not close_if_fed(output.directory)
    assert bench.ls("out") == []
    (bench.root / f"b/x.{TOKEN}.written").unlink()
    bench.put("b/scan.pdf")
    bench.put("b/discarded/x")
    bench.put("b/y.failed_twice")
    assert close_if_fed(output.directory)
    assert bench.ls("out") == ["done"]
    assert close_if_fed(output.directory)


def test_a_queue_that_is_closed_twice_by_its_feeds_does_not_seem_to_change(bench: "Bench") -> None:
    # Those after it are looking just now whether it is drained, which takes that nothing changes.
    output = feeding(bench, "a")
    bench.put("a/done")
    assert close_if_fed(output.directory)
    before = (bench.root / "out").stat().st_mtime_ns
    assert close_if_fed(output.directory)
    assert (bench.root / "out").stat().st_mtime_ns == before


def test_a_queue_is_reopened_that_only_its_feeds_have_closed(bench: "Bench") -> None:
    output = feeding(bench, "a")
    bench.put("a/done")
    assert close_if_fed(output.directory)
    assert reopen_if_fed(output.directory)
    assert bench.ls("out") == []
    assert not reopen_if_fed(output.directory)
    # What somebody has closed stays closed, also where its feeds were done before.
    bench.put("out/done")
    assert close_if_fed(output.directory)
    assert not reopen_if_fed(output.directory)
    assert bench.ls("out") == ["done"]
    (bench.root / "out/done").unlink()
    (bench.root / "out/done").symlink_to("/dev/zero")
    assert not reopen_if_fed(output.directory)


def test_a_feed_that_cannot_be_seen_keeps_a_queue_open(bench: "Bench") -> None:
    output = feeding(bench, "a", "b")
    bench.put("a/done")
    os.rename(bench.root / "b", bench.root / "away")
    assert not close_if_fed(output.directory)


@pytest.mark.parametrize("kind", ["torn", "symlink"])
def test_a_note_of_a_feed_that_cannot_be_read_keeps_a_queue_open(bench: "Bench", kind: str) -> None:
    output = feeding(bench, "a")
    bench.put("a/done")
    note = bench.root / "out/.queuedriver/feeds/00000000.json"
    if kind == "torn":
        note.write_bytes(b'{"pa')
    else:
        note.symlink_to("nowhere")
    assert not close_if_fed(output.directory)


def test_one_listing_alone_does_not_prove_a_queue_drained(bench: "Bench") -> None:
    queue = bench.queue()
    bench.put("in/done")
    late = []

    def pause(seconds: float) -> None:
        # What the first listing missed, as it was being renamed.
        assert seconds >= 0.05
        late.append(bench.put("in/x.ready"))

    assert not is_drained(queue.directory, pause)
    late[0].unlink()
    assert is_drained(queue.directory, lambda seconds: None)

    def come_and_go(seconds: float) -> None:
        bench.put("in/x.ready").unlink()

    os.utime(bench.root / "in", ns=(0, 0))
    assert not is_drained(queue.directory, come_and_go)


# Files to submit


def test_what_cannot_be_submitted_is_said_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    check_file(tmp_path / "file")
    check_file(tmp_path / "link")
    with pytest.raises(NotFound, match="no file"):
        check_file(tmp_path / "nowhere")
    with pytest.raises(BadArgument, match="is a directory"):
        check_file(tmp_path)
    with pytest.raises(BadArgument, match=r"gives with -$"):
        check_file(tmp_path / "fifo")


# How much is opened for a look at many


_COUNTED = """
import sys
opened = 0
def count(event, args):
    global opened
    opened += event == "open"
from queuedriver.operating.document_view import explain, gather, list_places
from queuedriver.operating.queue import Queue
sys.addaudithook(count)
with Queue.open(sys.argv[1]) as queue:
    listed = lambda: [*list_places(queue, ["discarded"])]
    for look in (listed, lambda: explain(gather(queue, "d1"))):
        look()
        opened = 0
        look()
        print(opened)
"""


def opened_for_a_look(queue: Path, discarded: int) -> tuple[int, int]:
    """How many files `list` and `why` open where so many documents were discarded."""
    (queue / "discarded").mkdir(parents=True)
    (queue / ".queuedriver/attempts").mkdir(parents=True)
    report = Report(
        docid="d",
        queue=str(queue),
        discarded_at=1.0,
        driver="a",
        host="h",
        failure=Failure(cause="exit", message="no"),
        attempts=(),
    )
    for number in range(discarded):
        (queue / f"discarded/d{number}").touch()
        (queue / f"discarded/d{number}.report.json").write_bytes(encode_report(report))
    code = [sys.executable, "-c", _COUNTED, str(queue)]
    listed, why = subprocess.run(code, check=True, capture_output=True, text=True).stdout.split()
    return int(listed), int(why)


def test_a_look_at_many_discarded_documents_opens_their_reports_and_no_directory_again(
    tmp_path: Path,
) -> None:
    few, many = (opened_for_a_look(tmp_path / str(count), count) for count in (10, 200))
    # One more for each document that is listed; none for the others of the one that is asked for.
    assert (many[0] - few[0], many[1] - few[1]) == (190, 0)
