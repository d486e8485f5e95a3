"""Claims of an open queue: many at once, each ended once, or left until all is well again."""

import errno
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuedriver.claims import input_queue
from queuedriver.claims.charging import give_back_later
from queuedriver.claims.handoff import Claim, hand_over
from queuedriver.claims.outcomes import DONE, Ending, Failed, Postponed, Released, from_exception
from queuedriver.disk.filesystem import Directory, Room
from queuedriver.driving.limits import Limits
from queuedriver.errors import FileSystemTrouble, PermanentError, TryLater
from queuedriver.format import names
from queuedriver.format.records import Failure
from queuedriver.format.settings import Settings
from tests.faults import Renames

if TYPE_CHECKING:
    from tests.conftest import Bench


class Ailing(Directory):
    """A directory whose renames fail when told to."""

    fails = ""
    # Says so of this name alone.
    only = ""
    number = errno.EIO

    def rename(self, old: str, new: str) -> None:
        self._fail(old, new)
        super().rename(old, new)

    def rename_new(self, old: str, new: str, to: Directory | None = None) -> None:
        self._fail(old, new)
        super().rename_new(old, new, to)

    def _fail(self, old: str, new: str) -> None:
        if self.only == old or (self.fails and new.endswith(self.fails)):
            raise OSError(self.number, os.strerror(self.number))


class Pair:
    """An open queue whose directory fails when told to."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.inside = Ailing.open(bench.directory("in").path)
        self.queue = bench.open(directory=self.inside)
        self.limits = Limits()

    def close(self) -> None:
        self.limits.close()
        self.inside.close()

    def claim(self, docid: str = "doc") -> Claim:
        self.bench.put(f"in/{docid}.ready")
        (claim,) = self.queue.claim([f"{docid}.ready"])
        return claim

    def end(self, claim: Claim, ending: Ending) -> str:
        """End a claim; what became of it."""
        self.queue.end([claim], [ending])
        return claim.fate

    def states(self) -> dict[str, str]:
        found = [item for name in self.bench.ls() if (item := names.parse(name))]
        return {item.docid: item.state for item in found}


@pytest.fixture
def pair(bench: "Bench", monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    pair = Pair(bench)
    monkeypatch.setattr(input_queue, "os", Renames(pair.inside.rename))
    yield pair
    pair.close()


def test_claims_at_hand_end_in_any_order(pair: Pair) -> None:
    claims = {docid: pair.claim(docid) for docid in ("a", "b", "c")}
    for docid in ("b", "c", "a"):
        claims[docid].outputs.take(docid.encode(), pair.limits)
        assert pair.end(claims[docid], DONE) == "published"
    assert pair.bench.ls("out") == ["a.ready", "b.ready", "c.ready"]
    assert (pair.states(), pair.queue.published) == ({}, 3)


def test_lost_race_is_no_claim(pair: Pair) -> None:
    assert list(pair.queue.claim(["doc.ready"])) == []
    assert pair.queue.lost_races == 1


def test_names_are_claimed_the_last_first_and_what_was_tried_is_off_the_list(pair: Pair) -> None:
    for docid in ("a", "b", "c"):
        pair.bench.put(f"in/{docid}.ready")
    waiting = ["a.ready", "b.ready", "gone.ready", "scan.pdf", "c.ready"]
    assert [claim.docid for claim in islice(pair.queue.claim(waiting), 2)] == ["c", "b"]
    assert waiting == ["a.ready"]


@pytest.mark.parametrize("troubled", ["b.failed", "b.ready"])
def test_a_document_that_failed_or_was_troubled_is_claimed_alone(pair: Pair, troubled: str) -> None:
    pair.queue.waiting.troubled = {"b"}
    for name in ("a.ready", troubled, "c.ready"):
        pair.bench.put(f"in/{name}")
    pair.queue.waiting.names += ["a.ready", troubled, "c.ready"]
    claims = [pair.queue.claim_some(8, 0.0) for _ in range(3)]
    assert [[claim.docid for claim in together] for together in claims] == [["c"], ["b"], ["a"]]
    assert not claims[1][0].outputs.plain


def test_claims_of_a_batch_are_given_back_at_once_when_the_next_cannot_be_made(pair: Pair) -> None:
    for docid in ("a", "b", "c"):
        pair.bench.put(f"in/{docid}.ready")
    pair.queue.waiting.names += ["a.ready", "b.ready", "c.ready"]
    pair.inside.only = "a.ready"
    with pytest.raises(OSError, match="error"):
        pair.queue.claim_some(8, 0.0)
    assert pair.states() == {"a": "ready", "b": "ready", "c": "ready"}
    assert pair.queue.later == []


def test_claim_that_fails_is_raised(pair: Pair) -> None:
    pair.bench.put("in/doc.ready")
    pair.inside.fails = ".working"
    with pytest.raises(OSError, match="error"):
        list(pair.queue.claim(["doc.ready"]))


@pytest.mark.parametrize(
    ("how", "state", "fate"),
    [
        (Failed(Failure(cause="exit", message="no good")), "failed", "failed"),
        (Released("leaving"), "ready", "released"),
        (Postponed(100.0, "busy"), "later", "later"),
    ],
)
def test_claim_is_set_back_as_was_decided(pair: Pair, how: Ending, state: str, fate: str) -> None:
    claim = pair.claim()
    claim.outputs.take(b"half", pair.limits)
    assert pair.end(claim, how) == fate
    assert pair.states() == {"doc": state}
    assert pair.bench.ls("out") == []


@pytest.mark.parametrize(
    ("error", "states", "discarded"),
    [
        (ValueError("no good"), {"doc": "failed"}, []),
        (TryLater(100.0), {"doc": "later"}, []),
        (PermanentError("never"), {}, ["doc"]),
    ],
)
def test_claim_is_set_back_as_the_exception_says(
    pair: Pair, error: Exception, states: dict[str, str], discarded: list[str]
) -> None:
    pair.end(pair.claim(), from_exception(error))
    assert pair.states() == states
    assert pair.bench.queue().discarded() == discarded


class Full(Directory):
    """On a disk without room."""

    __slots__ = ()

    def room(self) -> Room:
        return Room(1000, read_only=False)


def test_failure_on_a_full_disk_is_the_disks(pair: Pair) -> None:
    pair.queue.targets[0].directory.__class__ = Full
    claim = pair.claim()
    with pytest.raises(FileSystemTrouble, match="full"):
        pair.end(claim, Failed(Failure(cause="exit", message="write error")))
    assert (pair.states(), claim.fate) == ({"doc": "ready"}, "released")
    # It is not tried again before there is more room than it had.
    with pytest.raises(FileSystemTrouble, match="full"):
        pair.queue.check_well()
    pair.queue.targets[0].directory.__class__ = Directory
    pair.queue.check_well()


def test_claims_that_cannot_be_given_back_are_when_all_is_well_again(pair: Pair) -> None:
    claims = [pair.claim(docid) for docid in ("a", "b")]
    pair.inside.fails = ".ready"
    for claim in claims:
        with pytest.raises(OSError, match="error"):
            pair.end(claim, Released("leaving"))
    assert pair.states() == {"a": "working", "b": "working"}
    with pytest.raises(OSError, match="error"):
        give_back_later(pair.queue.later)
    pair.inside.fails = ""
    give_back_later(pair.queue.later)
    give_back_later(pair.queue.later)
    assert pair.states() == {"a": "ready", "b": "ready"}


def test_claim_that_was_taken_back_is_revoked_and_publishes_nothing(pair: Pair) -> None:
    claim = pair.claim()
    claim.outputs.take(b"result", pair.limits)
    os.rename(pair.bench.root / "in" / claim.name, pair.bench.root / "in/doc.ready")
    assert pair.end(claim, DONE) == "revoked"
    assert (pair.states(), pair.bench.ls("out")) == ({"doc": "ready"}, [])


# What is in the way of one item, or of one output


def test_an_item_that_cannot_be_moved_is_left_and_the_others_are_claimed(pair: Pair) -> None:
    for docid in ("a", "b"):
        pair.bench.put(f"in/{docid}.ready")
    pair.inside.only, pair.inside.number = "b.ready", errno.EBUSY
    waiting = ["a.ready", "b.ready"]
    assert [claim.docid for claim in pair.queue.claim(waiting)] == ["a"]
    assert pair.bench.ls()[-1] == "b.ready"
    (event,) = pair.queue.journal.pending
    assert (event.event, event.docid) == ("refused", "b")


def test_an_output_that_somebody_removed_costs_its_document_nothing(pair: Pair) -> None:
    claim = pair.claim()
    path = claim.outputs.reserve()
    assert pair.end(claim, DONE) == "released"
    assert (pair.states(), os.path.exists(path)) == ({"doc": "ready"}, False)


def test_a_failure_is_not_charged_where_the_output_was_moved_away(pair: Pair) -> None:
    claim = pair.claim()
    os.rename(pair.bench.root / "out", pair.bench.root / "out.monday")
    with pytest.raises(FileSystemTrouble, match="moved away"):
        pair.end(claim, Failed(Failure(cause="exit", message="cp: cannot create")))
    assert pair.states() == {"doc": "ready"}


# The usual document


def test_a_usual_document_is_handed_over_by_three_calls(pair: Pair) -> None:
    claim = pair.claim()
    claim.outputs.take(b"result", pair.limits)
    assert claim.outputs.blind
    assert hand_over(claim)
    assert (claim.fate, claim.published) == ("published", ("doc.ready",))
    assert (pair.states(), pair.bench.ls("out")) == ({}, ["doc.ready"])


@pytest.mark.parametrize("how", ["path", "stdout", "text"])
def test_the_usual_output_of_a_program_is_handed_over_by_three_calls_once_it_was_looked_for(
    pair: Pair, how: str
) -> None:
    claim = pair.claim()
    if how == "path":
        Path(claim.outputs.reserve()).write_bytes(b"result")
    elif how == "stdout":
        os.close(claim.outputs.open_reserved())
    else:
        claim.outputs.take("result", pair.limits)
    assert claim.outputs.make_blind()
    assert hand_over(claim)
    assert (claim.fate, claim.published) == ("published", ("doc.ready",))
    assert (pair.states(), pair.bench.ls("out")) == ({}, ["doc.ready"])


@pytest.mark.parametrize("how", ["missing", "a directory", "another ending", "two", "nothing"])
def test_any_other_output_of_a_program_takes_the_general_path(pair: Pair, how: str) -> None:
    claim = pair.claim()
    if how != "nothing":
        path = Path(claim.outputs.reserve(ext="pdf" if how == "another ending" else None))
        if how == "a directory":
            path.mkdir()
        elif how != "missing":
            path.write_bytes(b"result")
    if how == "two":
        Path(claim.outputs.reserve("other")).write_bytes(b"more")
    noted = list(claim.outputs.noted)
    assert not claim.outputs.make_blind()
    assert claim.outputs.noted == noted


@pytest.mark.parametrize("settings", [{"durable": True}, {"archive": "x"}, {"existing": "replace"}])
def test_a_document_is_not_as_usual_where_more_is_to_be_done(
    bench: "Bench", settings: dict[str, Any]
) -> None:
    queue = bench.open(
        archive=settings.get("archive"), settings=Settings(outputs=("../out",), **settings)
    )
    limits = Limits()
    claim = bench.claim(queue)
    claim.outputs.take(b"result", limits)
    limits.close()
    assert not claim.outputs.need_plan
    assert not claim.outputs.blind


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("where", ["working", "ready", "written"])
def test_what_stops_the_hand_over_is_sorted_out_by_the_general_path(
    pair: Pair, where: str, taken: bool
) -> None:
    """Whichever of the three calls does not work, be it that its reply was lost."""
    claim = pair.claim()
    claim.outputs.take(b"result", pair.limits)
    root, (writing,) = pair.bench.root, pair.bench.ls("out")
    match where:
        case "working":
            # Committed, as far as the server knows; or taken back.
            name = claim.written_name if taken else "doc.ready"
            os.rename(root / "in" / claim.name, root / "in" / name)
        case "ready":
            pair.bench.put("out/doc.ready", b"another")
        case "written":
            os.rename(root / "in" / claim.name, root / "in" / claim.written_name)
            claim.name = claim.written_name
            os.rename(root / "out" / writing, root / "out/doc.ready")
            os.unlink(root / "in" / claim.name)
    assert not hand_over(claim)
    assert pair.end(claim, DONE) == ("revoked" if where == "working" and not taken else "published")
    assert pair.states() == ({"doc": "ready"} if claim.fate == "revoked" else {})


def test_memory_that_the_driver_took_for_others_is_not_told_of_a_document(pair: Pair) -> None:
    pair.end(pair.claim(), from_exception(PermanentError("never")))
    report = pair.bench.queue().report("doc")
    assert report is not None
    assert report.failure.peak_memory is None


# How long documents have waited


def test_document_has_waited_since_the_file_system_last_changed_its_name(bench: "Bench") -> None:
    """What it waited before it was given back is not counted, nor what its sender says of it."""
    queue, file = bench.open(), bench.put("in/a.ready")
    os.utime(file, (0, 0))
    file.rename(file.with_name("a.1.failed"))
    since = file.with_name("a.1.failed").stat().st_ctime
    before = time.time() - since
    waited = queue.waiting.waited("a.1.failed")
    assert waited is not None
    assert max(0.0, before) <= waited <= max(0.0, time.time() - since)


def test_document_that_was_postponed_has_waited_since_it_was_due(bench: "Bench") -> None:
    due = int(time.time()) + 1000
    name = names.later_name("a", 0, due)
    bench.put(f"in/{name}")
    assert bench.open().waiting.waited(name) == 0.0


def test_nobody_knows_how_long_a_document_has_waited_that_is_gone(bench: "Bench") -> None:
    assert bench.open().waiting.waited("a.ready") is None


def test_a_document_that_ended_without_an_output_has_ended_whatever_becomes_of_others(
    pair: Pair,
) -> None:
    claims = [pair.claim(docid) for docid in ("a", "b")]
    claims[1].outputs.take(b"x", pair.limits)
    pair.inside.fails = ".written"
    with pytest.raises(OSError, match="error"):
        pair.queue.end(claims, [DONE, DONE])
    assert [claim.fate for claim in claims] == ["finished", "released"]
    assert [event.event for event in pair.queue.journal.pending] == ["released", "finished"]
    assert pair.states() == {"b": "ready"}


def test_what_is_in_the_archive_has_ended_whatever_the_archive_says_then(bench: "Bench") -> None:
    queue = bench.open(archive="old", settings=Settings(durable=True))
    assert queue.archive is not None
    claim = bench.claim(queue)
    os.close(queue.archive.fd)
    queue.archive.fd = os.open(bench.root / "old", os.O_PATH)
    with pytest.raises(OSError, match="Bad file descriptor"):
        queue.end([claim], [DONE])
    assert claim.fate == "finished"
    assert bench.ls("old") == ["doc"]


# Why attempts failed


def test_what_is_done_between_two_failures_of_a_batch_is_told_between_them(pair: Pair) -> None:
    claims, told = [pair.claim(docid) for docid in ("a", "b", "c")], list[str]()
    pair.queue.charged = lambda queue, failure: told.append("failed")
    pair.queue.worked = lambda seconds, documents: told.append("done")
    failed = Failed(Failure(cause="exit", message="7"))
    pair.queue.end(claims, [failed, DONE, failed])
    assert told[:3] == ["failed", "done", "failed"]


def test_causes_of_attempts_that_were_charged_are_told_and_of_no_others(bench: "Bench") -> None:
    queue, told = bench.open(settings=Settings(retries=1)), list[tuple[str, bool]]()
    queue.failed = lambda cause, *, discarded: told.append((cause, discarded))
    failed = Failed(Failure(cause="exit", message="7"))
    bench.put("in/a.ready")
    for ending in (Released(""), failed, failed):
        (name,) = [one for one in bench.ls() if names.parse(one)]
        (claim,) = queue.claim([name])
        queue.end([claim], [ending])
    assert told == [("exit", False), ("exit", True)]
