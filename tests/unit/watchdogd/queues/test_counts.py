"""What is in a queue is counted right, and not counted again while nothing can have changed."""

import itertools
import json
import os
from pathlib import Path

import pytest

from watchdogd.helper_messages import QueueSeen
from watchdogd.queues.counts import View, look_at_all

N = "rose-1-0605d3a1f2b0c05a17"
ITEMS = (
    "a.ready",
    "b.ready",
    "c.failed",
    "d.failed2",
    f"e.{N}.working",
    f"f.failed.{N}.working",
    f"g.{N}.written",
    f"h.{N}.writing.xml",
    "i.100.later",
    "j.failed.200.later",
)


def at_once() -> float:
    """The clock of one for whom listing takes no time."""
    return 0.0


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    path = tmp_path / "queue"
    path.mkdir()
    return path


def trusted(queue: Path) -> View:
    """A view that has no reason to list the queue again."""
    view = View(str(queue), at_once)
    for now in (0.0, 1.0, 2.0, 3.5):
        view.look(now, clock=0.0)
    return view


def add_unnoticed(queue: Path, name: str) -> None:
    """As on a file system that does not say that a directory has changed."""
    before = queue.stat()
    (queue / name).touch()
    os.utime(queue, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_each_state_is_counted_and_so_is_what_is_none(queue: Path) -> None:
    for name in (*ITEMS, "scan.pdf", "PAUSE", "done"):
        (queue / name).touch()
    for name in ("one", "one.report.json", ".two.report", "three"):
        (queue / "discarded").mkdir(exist_ok=True)
        (queue / "discarded" / name).touch()
    (queue / ".queuedriver").mkdir()
    assert View(str(queue), at_once).look(now=0.0, clock=0x150) == QueueSeen(
        ready=2,
        failed=2,
        later=2,
        due=1,
        working=2,
        written=1,
        writing=1,
        discarded=2,
        foreign=1,
        next_due=0x200,
        done=True,
        paused=True,
    )


def test_change_is_seen_at_the_next_look(queue: Path) -> None:
    view = trusted(queue)
    for number, name in enumerate(ITEMS):
        (queue / name).touch()
        seen = view.look(now=4.0 + number, clock=0.0)
        assert seen.unfinished == number + 1
    (queue / "QUIT").touch()
    assert view.look(now=20.0, clock=0.0).quit


def test_queue_that_has_not_changed_is_not_listed_again(queue: Path) -> None:
    view = trusted(queue)
    add_unnoticed(queue, "a.ready")
    assert view.look(now=4.0, clock=0.0).ready == 0
    # But not for ever: some file systems do not tell.
    assert view.look(now=3.5 + 30.0, clock=0.0).ready == 1


def test_clock_that_is_coarse_hides_no_change(queue: Path) -> None:
    # Stamps of two seconds: what comes within them leaves the directory's time as it is.
    view = View(str(queue), at_once)
    for now in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5):
        view.look(now, clock=0.0)
        add_unnoticed(queue, f"{now}.ready")
    assert view.look(now=3.0, clock=0.0).ready == 6


def test_postponed_item_is_due_when_its_time_has_come_though_nothing_changes(queue: Path) -> None:
    (queue / "a.64.later").touch()
    view = trusted(queue)
    assert view.look(now=4.0, clock=99.0).due == 0
    assert view.look(now=5.0, clock=100.0).due == 1


def test_discarded_documents_are_counted_when_they_change(queue: Path) -> None:
    view = trusted(queue)
    (queue / "discarded").mkdir()
    (queue / "discarded/a").touch()
    assert view.look(now=4.0, clock=0.0).discarded == 1
    (queue / "discarded/b").touch()
    (queue / "x.ready").touch()
    assert view.look(now=5.0, clock=0.0).discarded == 2


def test_who_waits_is_told_what_was_discarded_however_long_it_takes_to_list(queue: Path) -> None:
    # A host so busy that each listing takes a second.
    view = View(str(queue), itertools.count().__next__)
    (queue / "discarded").mkdir()
    assert view.look(now=0.0, clock=0.0).discarded == 0
    (queue / "discarded/a").touch()
    (queue / "x.ready").touch()
    assert view.look(now=2.0, clock=0.0).discarded == 0
    assert view.look(now=3.0, clock=0.0, anew=True).discarded == 1


def test_empty_queue_is_drained_by_its_second_look_and_not_before(queue: Path) -> None:
    view = View(str(queue), at_once)
    assert not view.look(now=0.0, clock=0.0).drained
    assert not view.look(now=0.04, clock=0.0).drained
    assert view.look(now=0.06, clock=0.0).drained
    (queue / "scan.pdf").touch()
    # Changed: again two looks, which a file that is no item does not hinder.
    assert not view.look(now=1.0, clock=0.0).drained
    assert view.look(now=2.0, clock=0.0).drained


@pytest.mark.parametrize("name", ITEMS)
def test_queue_with_any_item_is_not_drained(queue: Path, name: str) -> None:
    (queue / name).touch()
    view = View(str(queue), at_once)
    assert not any(view.look(now, clock=0.0).drained for now in (0.0, 1.0, 2.0, 10.0, 50.0))


def test_change_between_two_looks_is_noticed_though_both_saw_it_empty(queue: Path) -> None:
    view = View(str(queue), at_once)
    view.look(now=0.0, clock=0.0)
    (queue / "a.ready").touch()
    (queue / "a.ready").unlink()
    assert not view.look(now=1.0, clock=0.0).drained
    assert view.look(now=2.0, clock=0.0).drained


def test_queue_that_may_be_drained_is_looked_at_again_at_once(queue: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (queue / "done").touch()
    paused: list[float] = []
    clock = iter([0.0, 0.0, 0.06])
    views = {"queue": View(str(queue), at_once), "other": View(str(other), at_once)}
    seen = look_at_all(views, lambda: next(clock), lambda: 0.0, paused.append)
    assert seen["queue"].drained
    # Nobody waits for what may still be submitted to.
    assert not seen["other"].drained
    assert paused == [0.05]


@pytest.fixture
def dear(queue: Path) -> View:
    """A view of a queue whose listing takes a tenth of a second; it was listed at 0.0."""
    clock = itertools.count(step=0.1)
    view = View(str(queue), monotonic=lambda: next(clock))
    view.look(now=0.0, clock=0.0)
    return view


def test_what_takes_long_to_list_is_listed_rarely_and_its_controls_are_seen(
    queue: Path, dear: View
) -> None:
    (queue / "a.ready").touch()
    (queue / "PAUSE").touch()
    seen = dear.look(now=9.9, clock=0.0)
    assert (seen.ready, seen.paused) == (0, True)
    assert dear.look(now=10.1, clock=0.0).ready == 1


def test_what_takes_long_to_list_is_listed_for_whoever_waits(queue: Path, dear: View) -> None:
    (queue / "a.ready").touch()
    assert dear.look(now=0.1, clock=0.0, anew=True).ready == 1


def test_what_was_drained_before_a_change_is_not_said_to_be(queue: Path, dear: View) -> None:
    assert dear.look(now=1.0, clock=0.0, anew=True).drained
    (queue / "a.ready").touch()
    assert not dear.look(now=2.0, clock=0.0).drained


def test_stage_that_stops_itself_is_seen_though_the_queue_is_as_it_was(queue: Path) -> None:
    view = trusted(queue)
    assert not view.look(now=4.0, clock=0.0).tripped
    private = queue / ".queuedriver"
    private.mkdir(exist_ok=True)
    trip = {"key": "k", "cause": "exception", "message": "no", "since": 1.0, "failures": 20}
    (private / "breaker.json").write_text(json.dumps({**trip, "driver": "d"}))
    assert "20 documents in a row" in view.look(now=4.5, clock=0.0).tripped
    (private / "breaker.json").unlink()
    assert not view.look(now=5.0, clock=0.0).tripped


def test_document_copied_into_a_queue_that_was_closed_and_empty_is_seen_until_it_is_through(
    queue: Path,
) -> None:
    view = View(str(queue), at_once)
    (queue / "done").touch()
    (queue / "usual.ready").touch()
    # That something is left in a queue that was closed is as it should be.
    assert not view.look(now=0.0, clock=0.0).late
    (queue / "usual.ready").unlink()
    assert [view.look(now, clock=0.0).late for now in (1.0, 2.0)] == [False, False]
    (queue / "copied.ready").touch()
    assert [view.look(now, clock=0.0).late for now in (3.0, 4.0)] == [True, True]
    (queue / "copied.ready").unlink()
    assert not view.look(now=5.0, clock=0.0).late
    (queue / "again.ready").touch()
    assert view.look(now=6.0, clock=0.0).late
    # Reopened: it takes more.
    (queue / "done").unlink()
    assert not view.look(now=7.0, clock=0.0).late


def test_document_that_a_driver_took_from_a_closed_queue_between_two_looks_is_seen(
    queue: Path,
) -> None:
    view = View(str(queue), at_once)

    def late(second: int) -> bool:
        # The clock that stamps directories may be a coarse one.
        os.utime(queue, (second, second))
        return view.look(float(second), clock=0.0).late

    (queue / "done").touch()
    assert [late(1), view.look(2.0, clock=0.0).late] == [False, False]
    for second in (3, 4):
        (queue / "copied.ready").touch()
        (queue / "copied.ready").unlink()
        assert late(second)
    assert not view.look(5.0, clock=0.0).late
    # Other things come and go, too.
    (queue / "PAUSE").touch()
    assert not late(6)
    (queue / "PAUSE").unlink()
    assert not late(7)
    (queue / "scan.pdf").touch()
    assert not late(8)


def test_queue_that_is_gone_is_said_to_be(queue: Path) -> None:
    view = trusted(queue)
    queue.rmdir()
    with pytest.raises(FileNotFoundError):
        view.look(now=4.0, clock=0.0)
