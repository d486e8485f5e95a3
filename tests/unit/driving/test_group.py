"""Finished documents of a durable queue wait for company, but not for long."""

import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from queuedriver.claims.handoff import Claim
from queuedriver.claims.picking import Lookahead, Picker
from queuedriver.driving.group import LONGEST, LONGEST_OF_ALL, MOST, Group
from queuedriver.driving.limits import Limits
from tests.waiting import until

if TYPE_CHECKING:
    from tests.conftest import Bench

# What a hand-over takes here, in seconds: far more than the documents, which take nothing.
SYNC = 0.002


class Desk:
    """A group, and the hand-overs that it made."""

    def __init__(self) -> None:
        self.handed_over: list[list[str]] = []
        self.error: OSError | None = None
        nothing = cast(Any, None)
        self.waiting = Lookahead(nothing, nothing, Picker(nothing))
        self.queue = SimpleNamespace(waiting=self.waiting)
        # Of its clock, which only what is said to take time moves on.
        self.now = 0.0
        # What the next hand-overs take.
        self.sync = SYNC
        self.group = Group(self.hand_over, lambda: self.now)
        self.group.__enter__()

    def claim(self, docid: str, attempt: int = 0) -> Claim:
        claim = SimpleNamespace(docid=docid, token=f"1-{docid}", attempt=attempt, of=self.queue)
        return cast(Claim, claim)

    def add(self, *docids: str, seconds: float = 0.0) -> None:
        for docid in docids:
            self.group.add(self.claim(docid), seconds)

    def settle(self) -> None:
        """Hand over so many short documents alone that the next ones will wait for company."""
        self.add(*(f"first{number}" for number in range(7)))
        self.handed_over.clear()

    def process(self) -> None:
        """Be in the processor for as long as something waits."""
        self.now += LONGEST

        def process(*_: object) -> None:
            until(lambda: not self.group.claims, "none waits")

        nothing = cast(Any, None)
        self.group.around(process)(nothing, nothing, cast(Limits, None))

    def hand_over(self, claims: Sequence[Claim], seconds: float) -> None:
        if self.error is not None:
            raise self.error
        self.now += self.sync
        self.handed_over.append([claim.docid for claim in claims])


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.group.__exit__()


def test_until_documents_are_known_to_be_short_each_is_handed_over_at_once(desk: Desk) -> None:
    desk.add(*"abcdefg")
    assert desk.handed_over == [[docid] for docid in "abcdefg"]


def test_short_documents_wait_for_one_sync(desk: Desk) -> None:
    desk.settle()
    desk.add("a", "b", "c")
    assert desk.handed_over == []
    desk.group.flush()
    assert desk.handed_over == [["a", "b", "c"]]


def test_no_more_wait_than_a_crash_may_cost(desk: Desk) -> None:
    desk.settle()
    docids = [f"d{number}" for number in range(3 * MOST)]
    desk.add(*docids)
    desk.group.flush()
    assert [docid for some in desk.handed_over for docid in some] == docids
    assert max(len(some) for some in desk.handed_over) <= MOST


def test_a_long_document_is_handed_over_at_once_and_what_waited_with_it(desk: Desk) -> None:
    desk.settle()
    desk.add("a", "b")
    desk.add("long", seconds=60.0)
    assert desk.handed_over == [["a", "b", "long"]]
    desk.add("c")
    assert desk.handed_over[1:] == [["c"]]


def test_a_document_that_seems_no_longer_than_the_slowest_sync_of_late_waits_with_the_others(
    desk: Desk,
) -> None:
    """Another process may have had the processor meanwhile, as it may have during a sync."""
    desk.settle()
    desk.sync = 3 * SYNC
    desk.add("slow to sync", "another")
    desk.group.flush()
    desk.sync = SYNC
    desk.add("a", "b")
    desk.group.flush()
    desk.handed_over.clear()
    desk.add("c", seconds=2 * SYNC)
    desk.add("d")
    assert desk.handed_over == []
    desk.add("longer", seconds=4 * SYNC)
    assert desk.handed_over == [["c", "d", "longer"]]


@pytest.mark.parametrize(
    ("sync", "longest"), [(SYNC, LONGEST), (3 * LONGEST, 3 * LONGEST), (1.0, LONGEST_OF_ALL)]
)
def test_documents_wait_as_long_as_handing_over_takes_within_bounds(
    desk: Desk, sync: float, longest: float
) -> None:
    desk.settle()
    desk.sync = sync
    desk.add("a")
    desk.group.flush()
    desk.handed_over.clear()
    desk.add("b")
    desk.now += 0.9 * longest
    desk.add("c")
    assert desk.handed_over == []
    desk.now += 0.2 * longest
    desk.add("d")
    assert desk.handed_over == [["b", "c", "d"]]


def test_while_the_machine_has_no_thread_left_each_document_is_handed_over_at_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    desk.settle()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        desk.add("a", "b")
    assert desk.handed_over == [["a"], ["b"]]
    desk.add("c", "d")
    assert desk.handed_over == [["a"], ["b"]]


def test_what_waits_is_handed_over_while_the_next_document_takes_long(desk: Desk) -> None:
    desk.settle()
    desk.add("a", "b")
    desk.process()
    assert desk.handed_over == [["a", "b"]]
    assert not desk.group.claims


def test_while_the_loop_is_at_its_queues_nobody_else_hands_over(desk: Desk) -> None:
    desk.settle()
    desk.add("a")
    desk.now += LONGEST
    time.sleep(10 * LONGEST)
    assert desk.handed_over == []
    assert list(desk.group.claims) == ["1-a"]


@pytest.mark.parametrize("why", ["failed", "troubled", "another queue"])
def test_before_a_document_that_may_end_the_driver_the_others_are_safe(
    desk: Desk, why: str
) -> None:
    desk.settle()
    desk.add("a")
    following = desk.claim("next", attempt=int(why == "failed"))
    if why == "troubled":
        desk.waiting.troubled = {"next"}
    if why == "another queue":
        following.of = cast(Any, SimpleNamespace(waiting=desk.waiting))
    desk.group.before(following)
    assert desk.handed_over == [["a"]]


def test_an_ordinary_document_does_not_end_the_wait(desk: Desk) -> None:
    desk.settle()
    desk.add("a")
    desk.group.before(desk.claim("b"))
    assert desk.handed_over == []


def test_what_goes_wrong_in_the_thread_is_heard_with_the_next_document(desk: Desk) -> None:
    """Of all that could not be written a file system says so once; what is written meanwhile may be
    part of it, though who hands over next is told that all is well."""
    desk.settle()
    desk.add("a")
    desk.error = OSError("the disk is gone")
    desk.process()
    assert not desk.group.claims
    desk.error = None
    with pytest.raises(OSError, match="the disk is gone"):
        desk.add("b")
    # For whoever gives back what waits.
    assert [claim.docid for claim in desk.group.claims.values()] == ["b"]
    desk.group.claims.clear()
    desk.add("z", seconds=1.0)
    assert desk.handed_over == [["z"]]


def test_what_goes_wrong_in_the_thread_is_heard_at_rest(desk: Desk) -> None:
    desk.settle()
    desk.add("a")
    desk.error = OSError("the disk is gone")
    desk.process()
    with pytest.raises(OSError, match="the disk is gone"):
        desk.group.flush()
    desk.group.flush()
    assert desk.handed_over == []


def test_what_waits_is_given_back_when_the_file_system_is_not_well(
    bench: "Bench", desk: Desk
) -> None:
    queue = bench.open()
    desk.settle()
    for docid in ("a", "b"):
        desk.group.add(bench.claim(queue, docid), 0.0)
    assert len(desk.group.claims) == 2
    desk.group.give_back(OSError("stale"))
    assert not desk.group.claims
    assert desk.handed_over == []
    assert bench.ls() == ["a.ready", "b.ready"]
