"""Claims at hand: many at once, each ended once, or left until the file system is well again."""

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from queuedriver.claims.hands import Hands, Job
from queuedriver.claims.lane import Lane, Owner
from queuedriver.claims.liveness import Observer
from queuedriver.claims.outcomes import Failed, Failure, Postponed, Released
from queuedriver.claims.picking import Candidate
from queuedriver.disk.filesystem import Directory, Room
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.errors import ConfigError, FileSystemTrouble, PermanentError, TryLater
from queuedriver.format import names
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue

if TYPE_CHECKING:
    from tests.conftest import Bench


class Ailing(Directory):
    """A directory whose renames fail when told to."""

    fails = ""

    def rename(self, old: str, new: str) -> None:
        self._fail(new)
        super().rename(old, new)

    def rename_new(self, old: str, new: str, to: Directory | None = None) -> None:
        self._fail(new)
        super().rename_new(old, new, to)

    def _fail(self, name: str) -> None:
        if self.fails and name.endswith(self.fails):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class Pair:
    """Two hands over one lane."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.inside = Ailing.open(bench.directory("in").path)
        self.held: set[str] = set()
        self.tally = Tally()
        self.hands = Hands(names.Mint("d", "5a17"), self.held, self.tally)
        owner = Owner("d", "5a17", "alpha", self.held)
        self.lane = Lane(Queue(self.inside), (bench.target(),), Settings(), owner, Observer())
        self.limits = Limits()

    def close(self) -> None:
        self.lane.close()
        self.limits.close()

    def claim(self, docid: str = "doc") -> Job:
        self.bench.put(f"in/{docid}.ready")
        job = self.hands.claim(self.lane, Candidate(f"{docid}.ready", docid, 0))
        assert job is not None
        return job

    def states(self) -> dict[str, str]:
        found = [item for name in self.bench.ls() if (item := names.parse(name))]
        return {item.docid: item.state for item in found}


@pytest.fixture
def pair(bench: "Bench") -> Iterator[Pair]:
    pair = Pair(bench)
    yield pair
    pair.close()


def test_claims_at_hand_end_in_any_order(pair: Pair) -> None:
    jobs = {docid: pair.claim(docid) for docid in ("a", "b", "c")}
    assert len(pair.held) == 3
    for docid in ("b", "c", "a"):
        jobs[docid].outputs.take(docid.encode(), pair.limits)
        pair.hands.complete(jobs[docid], 1)
        pair.hands.put_down(jobs[docid])
        assert not pair.hands.holds(jobs[docid])
    assert pair.bench.ls("out") == ["a.ready", "b.ready", "c.ready"]
    assert (pair.states(), pair.held, pair.hands.published) == ({}, set(), 3)


def test_lost_race_is_no_claim(pair: Pair) -> None:
    assert pair.hands.claim(pair.lane, Candidate("doc.ready", "doc", 0)) is None
    assert (pair.held, pair.tally.lost_races) == (set(), 1)


def test_claim_that_fails_is_not_held(pair: Pair) -> None:
    pair.bench.put("in/doc.ready")
    pair.inside.fails = ".working"
    with pytest.raises(OSError, match="error"):
        pair.hands.claim(pair.lane, Candidate("doc.ready", "doc", 0))
    assert pair.held == set()


@pytest.mark.parametrize(
    ("how", "state", "failed"),
    [
        (Failed(Failure(cause="exit", message="no good")), "failed", 1),
        (Released("leaving"), "ready", 0),
        (Postponed(100.0, "busy"), "later", 0),
    ],
)
def test_claim_is_set_back_as_was_decided(
    pair: Pair, how: Failed | Released | Postponed, state: str, failed: int
) -> None:
    job = pair.claim()
    job.outputs.take(b"half", pair.limits)
    pair.hands.end_by(job, how)
    assert (pair.states(), pair.tally.failed) == ({"doc": state}, failed)
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
    pair.hands.set_back(pair.claim(), error)
    assert pair.states() == states
    assert pair.lane.queue.discarded() == discarded


def test_program_that_cannot_start_costs_its_document_nothing(pair: Pair) -> None:
    with pytest.raises(ConfigError):
        pair.hands.set_back(pair.claim(), ConfigError("no such program"))
    assert pair.states() == {"doc": "ready"}


class Full(Directory):
    """On a disk without room."""

    __slots__ = ()

    def room(self) -> Room:
        return Room(1000, read_only=False)


def test_failure_on_a_full_disk_is_the_disks(pair: Pair) -> None:
    pair.lane.handoff.targets[0].directory.__class__ = Full
    with pytest.raises(FileSystemTrouble, match="full"):
        pair.hands.end_by(pair.claim(), Failed(Failure(cause="exit", message="write error")))
    assert (pair.states(), pair.tally.failed) == ({"doc": "ready"}, 0)


def test_claims_that_cannot_be_given_back_are_when_all_is_well_again(pair: Pair) -> None:
    jobs = [pair.claim(docid) for docid in ("a", "b")]
    pair.inside.fails = ".ready"
    for job in jobs:
        with pytest.raises(OSError, match="error"):
            pair.hands.end_by(job, Released("leaving"))
        pair.hands.put_down(job)
    assert pair.states() == {"a": "working", "b": "working"}
    with pytest.raises(OSError, match="error"):
        pair.hands.clean()
    pair.inside.fails = ""
    pair.hands.clean()
    pair.hands.clean()
    assert pair.states() == {"a": "ready", "b": "ready"}


def test_claim_that_was_taken_back_is_revoked_and_publishes_nothing(pair: Pair) -> None:
    job = pair.claim()
    job.outputs.take(b"result", pair.limits)
    os.rename(pair.bench.root / "in" / job.claim.name, pair.bench.root / "in/doc.ready")
    assert pair.hands.complete(job, 1).revoked
    assert (pair.states(), pair.bench.ls("out")) == ({"doc": "ready"}, [])
    pair.hands.end_by(job, Released("leaving"))
    assert pair.states() == {"doc": "ready"}


def test_memory_that_the_driver_took_for_others_is_not_told_of_a_document(pair: Pair) -> None:
    pair.hands.set_back(pair.claim(), PermanentError("never"))
    report = pair.lane.queue.report("doc")
    assert report is not None
    assert report.failure.peak_memory is None
