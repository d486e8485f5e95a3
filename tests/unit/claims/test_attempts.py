"""What is remembered of a document's attempts is its own, and becomes its report in any case."""

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuedriver.claims import attempts as module
from queuedriver.claims.attempts import Attempts, File, Noted, parse
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.records import Attempt, Report
from tests.unit.format.test_records import an_attempt

if TYPE_CHECKING:
    from tests.conftest import Bench


class Desk:
    """A queue with documents that are claimed, and what is remembered of them."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.queue = bench.directory("in")
        self.attempts = Attempts(bench.directory("attempts"), bench.directory("discarded"))

    def another(self) -> Attempts:
        return Attempts(self.attempts.directory, self.attempts.discarded)

    def claim(self, docid: str = "doc") -> tuple[str, int, str]:
        """The name of a claimed document, its inode and its N."""
        token = self.bench.token()
        name = names.working_name(docid, 0, token)
        return name, self.bench.put(f"in/{name}").stat().st_ino, token

    def discard(self, docid: str = "doc", message: str = "bad", at: float = 2.0) -> str:
        name, inode, token = self.claim(docid)
        one = an_attempt(docid, token, message, ended_at=at)
        noted = self.attempts.note(inode, one, discarded_from="in")
        place = self.attempts.discard(self.queue, name, token, noted.file)
        assert place is not None
        return place

    def report(self, place: str) -> Report:
        found = module.read_report(self.attempts.discarded, place)
        assert found is not None
        return found

    def ls(self) -> list[str]:
        return sorted(os.listdir(self.bench.root / "discarded"))


@pytest.fixture
def desk(bench: "Bench") -> Desk:
    return Desk(bench)


def tokens(attempts: tuple[Attempt, ...]) -> list[str]:
    return [one.token for one in attempts]


# Remember


def test_each_file_has_all_attempts_before_it_oldest_first(desk: Desk) -> None:
    written = [
        an_attempt(token=desk.bench.token(), attempt=attempt, counted=counted)
        for attempt, counted in [(0, True), (1, False), (1, False), (1, True)]
    ]
    for number, one in enumerate(written, 1):
        noted = desk.attempts.note(7, one)
        assert noted.file == File("doc", 7, number)
        assert noted.record.attempts == tuple(written[:number])
    assert desk.another().of("doc", 7) == tuple(written)
    assert module.attempts_of(desk.attempts.directory, "doc") == tuple(written)
    assert desk.bench.ls("attempts") == [f"doc.7.{number}.json" for number in (1, 2, 3, 4)]


def test_attempts_at_other_documents_are_none_of_ours_were_they_of_this_docid(desk: Desk) -> None:
    desk.attempts.note(7, an_attempt(token="d-1"))
    desk.attempts.note(8, an_attempt(token="d-2"))
    assert tokens(desk.attempts.of("doc", 7)) == ["d-1"]
    assert desk.attempts.of("doc", 9) == desk.attempts.of("other", 7) == ()
    desk.attempts.forget("doc", 7)
    assert tokens(module.attempts_of(desk.attempts.directory, "doc")) == ["d-2"]


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_the_first_word_on_an_attempt_stands(desk: Desk, counted: bool, last: bool) -> None:
    first = an_attempt(message="first", counted=counted)
    second = an_attempt(message="second", counted=not counted)
    noted = desk.attempts.note(7, first, discarded_from="in" if last else "")
    assert desk.another().note(7, second, discarded_from="" if last else "in") == noted
    assert bool(noted.record.discarded_at) == last
    assert len(desk.bench.ls("attempts")) == 1


class Racing(Directory):
    """A directory in which somebody else writes a file just before we do."""

    def write_first(self, name: str, data: bytes, durable: bool = False) -> None:
        rival, self.rival = self.rival, None
        if rival is not None:
            Attempts(self, self).note(7, rival)
        super().write_first(name, data, durable)

    rival: Attempt | None = None


def test_of_two_who_note_a_strike_at_once_neither_loses_its_word(desk: Desk) -> None:
    """A file that is read, changed and replaced would lose one of the two."""
    racing = Racing.open(desk.bench.root / "attempts")
    racing.rival = an_attempt(token="d-1", counted=False)
    try:
        noted = Attempts(racing, racing).note(7, an_attempt(token="d-2", counted=False))
    finally:
        racing.close()
    assert noted.file.number == 2
    assert tokens(desk.attempts.of("doc", 7)) == ["d-1", "d-2"]


def test_what_a_network_file_system_hides_is_not_written_over(desk: Desk) -> None:
    class Hiding(Directory):
        def read(self, name: str, limit: int = 0) -> bytes:
            raise FileNotFoundError(2, "remembered as missing", name)

    desk.attempts.note(7, an_attempt(token="d-1"))
    hiding = Hiding.open(desk.bench.root / "attempts")
    try:
        Attempts(hiding, hiding).note(7, an_attempt(token="d-2"))
    finally:
        hiding.close()
    assert desk.bench.ls("attempts") == ["doc.7.1.json", "doc.7.2.json"]
    assert b"d-1" in desk.bench.read("attempts/doc.7.1.json")


def test_documents_whose_names_begin_alike_keep_their_attempts_apart(desk: Desk) -> None:
    docids = ["a", "a.b", "a.b.json", "a.1", "a.7.1", "a~1", "a.", "a.7", "é\n"]
    for docid in docids:
        desk.attempts.note(7, an_attempt(docid))
    for docid in docids:
        assert [one.docid for one in desk.attempts.of(docid, 7)] == [docid]
    desk.attempts.forget("a", 7)
    assert desk.another().docids() == set(docids) - {"a"}


def test_all_attempts_move_with_their_document_to_another_docid(desk: Desk) -> None:
    for token in ("d-1", "d-2"):
        desk.attempts.note(7, an_attempt(token=token))
    for _ in range(2):
        desk.attempts.move("doc", 7, "doc~2")
        assert desk.attempts.of("doc", 7) == ()
        assert tokens(desk.attempts.of("doc~2", 7)) == ["d-1", "d-2"]


@pytest.mark.parametrize(
    "name",
    [".aside-1-1-abcdef12", "doc.json", "doc", ".doc.7.1.json", "doc.7.01.json", "doc.7.json"],
)
def test_what_is_no_file_of_ours_is_of_no_document(name: str) -> None:
    assert parse(name) is None


def test_the_name_of_a_file_says_whose_it_is() -> None:
    for file in (File("a.b c", 7, 1), File("a.7.1.json", 1 << 63, 0)):
        assert parse(str(file)) == file


def test_a_damaged_file_is_left_out_and_what_comes_after_it_is_found(desk: Desk) -> None:
    desk.attempts.note(7, an_attempt(token="d-1"))
    desk.bench.put("attempts/doc.7.2.json", b"{")
    (desk.bench.root / "attempts/doc.7.3.json").symlink_to("nowhere")
    (desk.bench.root / "attempts/doc.7.4.json").mkdir()
    assert desk.attempts.note(7, an_attempt(token="d-2")).file.number == 5
    assert tokens(desk.attempts.of("doc", 7)) == ["d-1", "d-2"]
    desk.attempts.forget("doc", 7)
    assert desk.bench.ls("attempts") == ["doc.7.4.json"]


class Counting(Directory):
    """A directory that counts how often it was listed."""

    listings = 0

    def names(self) -> Iterator[str]:
        type(self).listings += 1
        return super().names()


def test_a_failure_costs_the_same_however_many_documents_have_failed(bench: "Bench") -> None:
    bench.directory("attempts")
    counting = Counting.open(bench.root / "attempts")
    attempts = Attempts(counting, bench.directory("discarded"))
    try:
        for number in range(20):
            one = an_attempt(f"doc{number}", bench.token())
            attempts.note(7, one)
            assert attempts.of(one.docid, 7) == (one,)
            attempts.move(one.docid, 7, f"{one.docid}~2")
            attempts.forget(f"{one.docid}~2", 7)
    finally:
        counting.close()
    assert bench.ls("attempts") == []
    assert Counting.listings == 0


def test_docids_are_listed_again_only_when_something_has_changed(bench: "Bench") -> None:
    Counting.listings = 0
    bench.directory("attempts")
    counting = Counting.open(bench.root / "attempts")
    discarded = bench.directory("discarded")
    attempts, other = (
        Attempts(counting, discarded),
        Attempts(bench.directory("attempts"), discarded),
    )
    try:
        for _ in range(3):
            assert attempts.docids() == frozenset()
        assert Counting.listings == 1
        other.note(7, an_attempt())
        os.utime(bench.root / "attempts", ns=(0, time.time_ns() + 10**9))
        assert attempts.docids() == {"doc"}
        # What we note ourselves is known at once, however coarse the file system's clock is.
        attempts.note(7, an_attempt("x"))
        assert "x" in attempts._docids
    finally:
        counting.close()


# Discard


def test_a_discarded_document_has_its_attempts_for_its_report(desk: Desk) -> None:
    name, inode, token = desk.claim()
    desk.attempts.note(inode, an_attempt(token="d-1", message="first"))
    last = an_attempt(token=token, message="last", ended_at=3.0)
    noted = desk.attempts.note(inode, last, discarded_from="in")
    file = desk.bench.root / "attempts" / str(noted.file)
    written = file.stat().st_ino
    assert desk.attempts.discard(desk.queue, name, token, noted.file) == "doc"
    assert desk.ls() == ["doc", "doc.report.json"]
    # It is the very file that was synced before the document was moved.
    assert (desk.bench.root / "discarded/doc.report.json").stat().st_ino == written
    report = desk.report("doc")
    assert tokens(report.attempts) == ["d-1", token]
    assert (report.failure.message, report.queue, report.discarded_at) == ("last", "in", 3.0)
    assert desk.bench.ls("in") == desk.bench.ls("attempts") == []


def interrupt(desk: Desk, after: int) -> tuple[Noted, str]:
    """A discard that ended after so many of its steps; and what was claimed."""
    name, inode, token = desk.claim()
    noted = desk.attempts.note(inode, an_attempt(token=token), discarded_from="in")
    if after > 1:
        desk.queue.rename_new(name, "doc", desk.attempts.discarded)
    if after > 2:
        desk.attempts.directory.rename_over(
            str(noted.file), "doc.report.json", desk.attempts.discarded
        )
    return noted, name


@pytest.mark.parametrize("after", [1, 2, 3])
def test_who_recovers_an_interrupted_discard_finishes_it(desk: Desk, after: int) -> None:
    noted, name = interrupt(desk, after)
    token = noted.record.attempts[-1].token
    other = desk.another()
    # Whoever recovers sees another cause; the first word stands, however many come.
    for _ in range(3):
        if desk.queue.present(name):
            again = other.note(noted.file.inode, an_attempt(token=token, message="crashed"))
            assert again == noted
            other.discard(desk.queue, name, token, again.file)
        other.settle()
    assert desk.ls() == ["doc", "doc.report.json"]
    assert desk.report("doc").failure.message == "bad"
    assert desk.bench.ls("attempts") == desk.bench.ls("in") == []


def test_who_comes_too_late_to_discard_leaves_nothing_behind(desk: Desk) -> None:
    noted, name = interrupt(desk, 3)
    # It had looked before the other wrote; and now finds neither the file nor the document.
    token = noted.record.attempts[-1].token
    late = an_attempt(token=token, message="late")
    again = desk.another().note(noted.file.inode, late, discarded_from="in")
    assert desk.another().discard(desk.queue, name, token, again.file) is None
    assert desk.report("doc").failure.message == "bad"
    assert desk.bench.ls("attempts") == []


def test_a_discard_whose_reply_was_lost_is_one(desk: Desk) -> None:
    noted, name = interrupt(desk, 2)
    token = noted.record.attempts[-1].token
    assert desk.attempts.discard(desk.queue, name, token, noted.file) == "doc"
    assert desk.ls() == ["doc", "doc.report.json"]


def test_a_claim_that_was_taken_back_is_not_discarded(desk: Desk) -> None:
    noted, name = interrupt(desk, 1)
    token = noted.record.attempts[-1].token
    os.rename(desk.bench.root / "in" / name, desk.bench.root / "in/doc.ready")
    assert desk.attempts.discard(desk.queue, name, token, noted.file) is None
    desk.attempts.settle()
    assert desk.bench.ls("in") == ["doc.ready"]
    assert desk.ls() == []


def test_an_interrupted_discard_is_told_from_a_document_that_only_has_its_name(desk: Desk) -> None:
    interrupt(desk, 1)
    desk.bench.put("discarded/doc", b"put here by hand")
    desk.attempts.settle()
    assert desk.ls() == ["doc"]


def test_the_report_of_an_interrupted_discard_is_read_where_it_is(desk: Desk) -> None:
    noted, _ = interrupt(desk, 2)
    directory, discarded = desk.attempts.directory, desk.attempts.discarded
    before = desk.ls(), desk.bench.ls("attempts")
    report = module.find_report(discarded, directory, "doc")
    assert report is not None
    assert report.attempts == noted.record.attempts
    assert (desk.ls(), desk.bench.ls("attempts")) == before


def test_a_report_goes_with_its_document_under_its_second_name(desk: Desk) -> None:
    first = desk.discard(message="first", at=2.0)
    second = desk.discard(message="second", at=3.0)
    assert first == "doc"
    assert names.first_docid(second) == "doc"
    assert [desk.report(one).failure.message for one in (first, second)] == ["first", "second"]


@pytest.mark.parametrize("after", [2, 3])
def test_an_interrupted_discard_under_a_second_name_is_settled(desk: Desk, after: int) -> None:
    desk.discard(message="first")
    name, inode, token = desk.claim()
    noted = desk.attempts.note(inode, an_attempt(token=token), discarded_from="in")
    second = names.second_docid("doc", token)
    desk.queue.rename_new(name, second, desk.attempts.discarded)
    if after == 2:
        desk.another().settle()
    else:
        desk.another().discard(desk.queue, name, token, noted.file)
    assert tokens(desk.report(second).attempts) == [token]
    assert desk.report("doc").failure.message == "first"
    assert desk.bench.ls("attempts") == []


def test_of_two_discarded_documents_of_one_docid_the_newer_is_told(desk: Desk) -> None:
    late = desk.discard(message="late", at=9.0)
    early = desk.discard(message="early", at=3.0)
    directory, discarded = desk.attempts.directory, desk.attempts.discarded
    assert module.places_of(discarded, directory, {"doc"}) == {"doc": [late, early]}
    # Asked for by its own name it is nobody's second.
    both = {"doc", early}
    assert module.places_of(discarded, directory, both) == {"doc": ["doc"], early: [early]}


class Unsteady(Attempts):
    """On a file system that makes up inode numbers as files are looked at."""

    inodes_last = False


def test_strikes_are_remembered_where_the_inode_number_of_a_document_changes(desk: Desk) -> None:
    attempts = Unsteady(desk.attempts.directory, desk.attempts.discarded)
    for inode in (7, 8):
        attempts.note(inode, an_attempt(token=f"d-{inode}", counted=False))
    assert tokens(attempts.of("doc", 9)) == ["d-7", "d-8"]
    attempts.move("doc", 10, "doc~2")
    assert tokens(attempts.of("doc~2", 11)) == ["d-7", "d-8"]
    attempts.forget("doc~2", 12)
    assert desk.bench.ls("attempts") == []


@pytest.mark.parametrize("retried", [False, True])
def test_a_report_finds_its_document_where_the_inode_number_of_that_changes(
    desk: Desk, retried: bool
) -> None:
    attempts = Unsteady(desk.attempts.directory, desk.attempts.discarded)
    if retried:
        # By somebody who is killed amid it.
        desk.discard()
        attempts.discarded.rename("doc.report.json", "report")
        file = desk.bench.root / "attempts" / str(File("doc", 1, 0))
        os.rename(desk.bench.root / "discarded/report", file)
    else:
        name, inode, token = desk.claim()
        attempts.note(inode + 1, an_attempt(token=token), discarded_from="in")
        desk.queue.rename_new(name, "doc", attempts.discarded)
    attempts.settle()
    assert desk.ls() == ["doc", "doc.report.json"]
    assert desk.bench.ls("attempts") == []


# Retry


def test_a_retried_document_waits_as_if_it_never_had_been_tried(desk: Desk) -> None:
    desk.discard()
    file = desk.attempts.restore(desk.queue, "doc", "doc.ready")
    assert desk.bench.ls("in") == ["doc.ready"]
    assert desk.ls() == []
    # What it is tried at from now on is its own, and nobody else's to remove.
    inode = (desk.bench.root / "in/doc.ready").stat().st_ino
    desk.attempts.note(inode, an_attempt(token="d-2"))
    desk.attempts.remove(file)
    assert tokens(desk.attempts.of("doc", inode)) == ["d-2"]


def test_a_retry_that_was_interrupted_leaves_what_an_interrupted_discard_does(desk: Desk) -> None:
    desk.discard()
    inode = (desk.bench.root / "discarded/doc").stat().st_ino
    kept = File("doc", inode, 0)
    desk.attempts.discarded.rename("doc.report.json", "report")
    os.rename(desk.bench.root / "discarded/report", desk.bench.root / "attempts" / str(kept))
    desk.another().settle()
    assert desk.ls() == ["doc", "doc.report.json"]
    assert desk.bench.ls("attempts") == []


def test_a_document_that_cannot_be_retried_keeps_its_report(desk: Desk) -> None:
    desk.discard()
    desk.bench.put("in/doc.ready", b"another")
    with pytest.raises(FileExistsError):
        desk.attempts.restore(desk.queue, "doc", "doc.ready")
    assert desk.ls() == ["doc", "doc.report.json"]
    assert desk.bench.ls("attempts") == []


def test_what_is_no_document_cannot_be_retried(desk: Desk) -> None:
    with pytest.raises(FileNotFoundError):
        desk.attempts.restore(desk.queue, "doc", "doc.ready")


@pytest.mark.parametrize("name", ["doc", "doc.report.json"])
def test_a_report_that_is_damaged_is_none(desk: Desk, tmp_path: Path, name: str) -> None:
    desk.discard()
    (tmp_path / "discarded/doc.report.json").write_bytes(b"nonsense")
    assert module.find_report(desk.attempts.discarded, desk.attempts.directory, name) is None


def test_a_process_with_too_many_open_files_does_not_look_for_ever(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"), bench.directory("discarded"))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            attempts.of("doc", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
