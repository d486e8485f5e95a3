"""In which order a driver tries what waits: nothing starves, and what is foreign is left alone."""

import errno
import os
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.picking import Candidate, Listing, Order, Picker, Share, look
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names

if TYPE_CHECKING:
    from tests.conftest import Bench

TOKEN = "d-0605d3a1f2b0c05a17"


def a_pass(picker: Picker, take: Callable[[Candidate], None] | None = None) -> list[str]:
    """The names that one pass offers; `take` is what the driver does with each."""
    offered = []
    while (candidate := picker.next()) is not None:
        offered.append(candidate.name)
        if take is not None:
            take(candidate)
    return offered


def taking(directory: Directory) -> Callable[[Candidate], None]:
    return lambda candidate: directory.unlink(candidate.name)


def part(docid: str, of: int) -> int:
    return zlib.crc32(docid.encode()) % of


# What is seen


def test_each_state_is_counted_and_only_what_waits_is_offered(bench: "Bench") -> None:
    there = {
        "ready": ["a.ready", "b c.ready"],
        "failed": ["d.failed", "e.failed2"],
        "later": ["f.ff.later", "g.failed.ffffffffff.later"],
        "working": [f"h.{TOKEN}.working", "i.7.working"],
        "written": [f"j.failed.{TOKEN}.written"],
        "writing": [f"k.{TOKEN}.writing", f"l.{TOKEN}.writing.xml"],
        "failed_twice": ["m.failed_twice"],
        "foreign": ["scan.pdf", "a.ready.ready", "notes", "x.tmp"],
    }
    queue = bench.directory("in")
    for listed in [*there.values(), ["done", "PAUSE", "QUIT", ".hidden", ".x.ready"]]:
        for name in listed:
            bench.put(f"in/{name}")
    (bench.root / "in/discarded").mkdir()
    picker = Picker(queue, clock=lambda: 256.0)
    offered = a_pass(picker)
    assert sorted(offered) == ["a.ready", "b c.ready", "d.failed", "e.failed2", "f.ff.later"]
    for listing in (picker.listing, look(queue, 256.0)):
        assert {state: getattr(listing, state) for state in there} == {
            state: len(listed) for state, listed in there.items()
        }
        assert listing.next_due == 0xFFFFFFFFFF
        assert sorted(listing.foreign_names) == sorted(there["foreign"])
        assert {name for name, _ in listing.claimed} == {*there["working"], *there["written"]}
        assert listing.unfinished == 11


@given(
    st.lists(
        st.sampled_from(["scan.pdf", "a.ready.ready", "a.failed1", ".a.ready", "done", "b.working"])
        | st.text(alphabet=st.characters(codec="utf-8"), max_size=30)
    )
)
def test_foreign_names_are_never_offered(listed: list[str]) -> None:
    listing = Listing()
    offered = [name for name in listed if listing.see(name or ".", 1e12) is not None]
    for name in offered:
        item = names.parse(name)
        assert item is not None
        assert item.state in ("ready", "failed", "later")


def test_names_that_are_not_utf8_are_foreign(bench: "Bench") -> None:
    queue = bench.directory("in")
    with open(os.path.join(os.fsencode(queue.path), b"caf\xe9.ready"), "wb"):
        pass
    picker = Picker(queue)
    assert a_pass(picker) == []
    assert picker.listing.foreign == 1


@pytest.mark.parametrize(
    ("listed", "only_later"),
    [
        ([], False),
        (["a.ffff.later"], True),
        (["a.ffff.later", "b.fffe.later"], True),
        (["a.ffff.later", "b.ready"], False),
        (["a.ffff.later", "b.failed"], False),
        (["a.ffff.later", f"b.{TOKEN}.working"], False),
        (["a.ffff.later", f"b.{TOKEN}.writing"], False),
        (["a.ffff.later", "scan.pdf"], True),
        # It is due: somebody is at work on it by now.
        (["a.f.later"], False),
        (["a.ffff.later", "b.f.later"], False),
    ],
)
def test_only_later_says_that_nothing_can_be_done_yet(listed: list[str], only_later: bool) -> None:
    listing = Listing()
    for name in listed:
        listing.see(name, 256.0)
    assert listing.only_later is only_later


def test_a_queue_of_millions_keeps_few_claims_and_foreign_names() -> None:
    listing = Listing()
    for number in range(20_000):
        listing.see(f"{number}.{TOKEN}.working", 0.0)
        listing.see(f"{number}.pdf", 0.0)
    assert (listing.working, listing.foreign) == (20_000, 20_000)
    assert len(listing.claimed) == 10_000
    assert len(listing.foreign_names) == 10


# Fair


def test_a_pass_offers_everything_once_and_what_failed_at_its_end(bench: "Bench") -> None:
    queue = bench.directory("in")
    for number in range(50):
        bench.put(f"in/{number}.ready")
        bench.put(f"in/{number}.failed{number % 3 + 2}")
    picker = Picker(queue)
    offered = a_pass(picker, taking(queue))
    assert len(offered) == len(set(offered)) == 100
    assert all(name.endswith(".ready") for name in offered[:50])
    assert not any(name.endswith(".ready") for name in offered[50:])
    assert a_pass(picker) == []
    assert picker.listing.unfinished == 0


def test_what_fails_during_a_pass_is_tried_at_its_end_or_in_the_next(bench: "Bench") -> None:
    queue = bench.directory("in")
    for docid in ("a", "b", "c"):
        bench.put(f"in/{docid}.ready")
    bench.put("in/old.failed")
    picker = Picker(queue)

    def fail(candidate: Candidate) -> None:
        if not candidate.attempt:
            queue.rename(candidate.name, f"{candidate.docid}.failed")
        else:
            queue.unlink(candidate.name)

    offered = a_pass(picker, fail) + a_pass(picker, fail)
    assert sorted(offered[:3]) == ["a.ready", "b.ready", "c.ready"]
    assert sorted(offered[3:]) == ["a.failed", "b.failed", "c.failed", "old.failed"]


def test_new_arrivals_do_not_keep_an_old_item_from_its_turn(bench: "Bench") -> None:
    queue = bench.directory("in")
    old = {f"old-{number}.ready" for number in range(20)}
    failed = {f"old-{number}.failed" for number in range(20, 40)}
    for name in old | failed:
        bench.put(f"in/{name}")
    picker = Picker(queue)
    arrived = 0
    offered: list[str] = []

    def take(candidate: Candidate) -> None:
        # For each that is done two others come.
        nonlocal arrived
        queue.unlink(candidate.name)
        for _ in range(2 if arrived < 2000 else 0):
            arrived += 1
            bench.put(f"in/new-{arrived}.ready")

    for _ in range(20):
        if (old | failed) <= set(offered):
            break
        offered += a_pass(picker, take)
    assert (old | failed) <= set(offered)


def test_what_is_postponed_is_offered_when_it_is_due_and_counted_until_then(
    bench: "Bench",
) -> None:
    queue = bench.directory("in")
    bench.put("in/a.64.later")
    bench.put("in/b.failed.c8.later")
    now = 99.0
    picker = Picker(queue, clock=lambda: now)
    assert a_pass(picker) == []
    assert (picker.listing.later, picker.listing.next_due) == (2, 0x64)
    now = 100.0
    assert a_pass(picker) == ["a.64.later"]
    now = 200.0
    # The one that failed before comes last.
    assert a_pass(picker) == ["a.64.later", "b.failed.c8.later"]


@pytest.mark.slow
def test_memory_does_not_depend_on_how_much_waits(bench: "Bench") -> None:
    peaks = []
    for number in (500, 4000):
        queue = bench.directory(str(number))
        for one in range(number):
            queue.write_new(f"{one:08}.ready", b"")
        picker = Picker(queue)
        tracemalloc.start()
        while picker.next() is not None:
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 30_000


class Ailing(Directory):
    """A directory whose file system fails in the middle of a listing."""

    well = True

    def names(self) -> Iterator[str]:
        for number, name in enumerate(super().names()):
            if number == 2 and not self.well:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            yield name


@pytest.mark.parametrize("order", ["fair", "age", "name"])
def test_trouble_while_listing_ends_the_pass_and_the_next_begins_anew(
    bench: "Bench", order: Order
) -> None:
    for number in range(5):
        bench.put(f"in/{number}.ready")
    queue = Ailing.open(bench.root / "in")
    queue.well = False
    picker = Picker(queue, order)
    with pytest.raises(OSError, match="Input/output error"):
        a_pass(picker)
    queue.well = True
    assert sorted(a_pass(picker)) == sorted(f"{number}.ready" for number in range(5))
    queue.close()


def test_a_pass_begun_anew_sees_what_is_there_now(bench: "Bench") -> None:
    queue = bench.directory("in")
    for docid in ("a", "b", "c"):
        bench.put(f"in/{docid}.ready")
    picker = Picker(queue)
    assert picker.next() is not None
    for name in bench.ls():
        queue.unlink(name)
    bench.put("in/d.ready")
    picker.restart()
    assert a_pass(picker) == ["d.ready"]


# Shares


@given(st.sets(st.text("abcé~1", min_size=1, max_size=6), max_size=60), st.integers(1, 9))
def test_the_shares_of_the_drivers_are_apart_and_are_everything(
    docids: set[str], drivers: int
) -> None:
    shares = [{docid for docid in docids if part(docid, drivers) == me} for me in range(drivers)]
    assert set().union(*shares) == docids
    assert sum(map(len, shares)) == len(docids)


@pytest.mark.parametrize("drivers", [2, 3, 8])
def test_drivers_start_with_their_own_share_and_do_not_meet(bench: "Bench", drivers: int) -> None:
    queue = bench.directory("in")
    docids = [f"doc {number}" for number in range(200)]
    for docid in docids:
        bench.put(f"in/{docid}.ready")
    everything: list[str] = []
    for me in range(drivers):
        picker = Picker(queue, share=lambda me=me: Share(me, drivers))  # type: ignore[misc]
        offered = a_pass(picker)
        assert offered == [name for name in offered if part(name[:-6], drivers) == me]
        assert picker.listing.left == 200 - len(offered)
        assert picker.listing.ready == 200
        everything += offered
    assert sorted(everything) == sorted(f"{docid}.ready" for docid in docids)


def test_who_has_nothing_of_its_own_left_helps_until_nothing_is_left(bench: "Bench") -> None:
    queue = bench.directory("in")
    for number in range(100):
        bench.put(f"in/{number}.ready")
    # The others are alive, and busy with something long.
    picker = Picker(queue, share=lambda: Share(0, 3))
    offered: list[str] = []
    for _ in range(200):
        offered += a_pass(picker, taking(queue))
    assert sorted(offered) == sorted(f"{number}.ready" for number in range(100))
    assert len(set(offered)) == 100


def test_helping_stops_at_the_first_race_that_is_lost(bench: "Bench") -> None:
    queue = bench.directory("in")
    others = [f"{number}" for number in range(100) if part(f"{number}", 2) == 1]
    for docid in others:
        bench.put(f"in/{docid}.ready")
    picker = Picker(queue, share=lambda: Share(0, 2))
    helped = 0
    for _ in range(3):
        while picker.next() is not None:
            helped += 1
            picker.lost()
    assert helped <= 3


def test_what_a_busy_driver_leaves_does_not_wait_for_ever_though_more_comes(
    bench: "Bench",
) -> None:
    queue = bench.directory("in")
    ours = [f"new-{number}" for number in range(3000) if part(f"new-{number}", 2) == 0]
    left = {f"old-{number}.ready" for number in range(40) if part(f"old-{number}", 2) == 1}
    for name in left:
        bench.put(f"in/{name}")
    # The other driver is alive, and has been at one document for hours. We get more than we can do.
    picker = Picker(queue, share=lambda: Share(0, 2))
    offered: set[str] = set()
    for docid in ours:
        bench.put(f"in/{docid}.ready")
        offered.update(a_pass(picker, taking(queue)))
        if left <= offered:
            break
    assert left <= offered


def test_what_failed_belongs_to_everybody(bench: "Bench") -> None:
    queue = bench.directory("in")
    for number in range(20):
        bench.put(f"in/{number}.failed")
    for me in range(3):
        picker = Picker(queue, share=lambda me=me: Share(me, 3))  # type: ignore[misc]
        assert len(a_pass(picker)) == 20


# By age, by name


@contextmanager
def aged(bench: "Bench", ages: dict[str, int]) -> Iterator[Directory]:
    queue = bench.directory("in")
    for name, age in ages.items():
        path = bench.put(f"in/{name}")
        os.utime(path, ns=(age, age))
    yield queue


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("name", ["a.ready", "b.ready", "c.ready", "é.ready", "b.failed", "a.failed2"]),
        ("age", ["é.ready", "c.ready", "b.ready", "a.ready", "b.failed", "a.failed2"]),
    ],
)
def test_an_order_is_exact_and_what_failed_comes_after(
    bench: "Bench", order: Order, expected: list[str]
) -> None:
    ages = {
        "a.ready": 40,
        "b.ready": 30,
        "c.ready": 20,
        "é.ready": 10,
        "b.failed": 2,
        "a.failed2": 1,
        "scan.pdf": 0,
    }
    with aged(bench, ages) as queue:
        picker = Picker(queue, order)
        assert a_pass(picker) == expected
        assert picker.listing.ready == 4
        assert picker.listing.foreign == 1


def test_of_the_same_age_the_name_decides(bench: "Bench") -> None:
    with aged(bench, {f"{number:03}.ready": 7 for number in range(30)}) as queue:
        assert a_pass(Picker(queue, "age")) == [f"{number:03}.ready" for number in range(30)]


@pytest.mark.parametrize("order", ["age", "name"])
def test_an_order_is_kept_over_what_comes_in_while_it_lasts(bench: "Bench", order: Order) -> None:
    queue = bench.directory("in")
    for number in range(10, 20):
        bench.put(f"in/{number}.ready")
    now = 0.0
    picker = Picker(queue, order, monotonic=lambda: now)
    assert picker.next() is not None
    path = bench.put("in/00.ready")
    os.utime(path, ns=(0, 0))
    # A choice made long ago is no choice: the listing is begun anew.
    now = 60.0
    offered = a_pass(picker) + a_pass(picker)[:1]
    assert offered[-1] == "00.ready"
    assert len(offered) <= 3


@pytest.mark.parametrize("order", ["fair", "age", "name"])
def test_items_that_vanish_are_no_trouble(bench: "Bench", order: Order) -> None:
    queue = bench.directory("in")
    for number in range(20):
        bench.put(f"in/{number}.ready")
        bench.put(f"in/{number}.failed")
    picker = Picker(queue, order)
    assert picker.next() is not None
    for name in bench.ls():
        queue.unlink(name)
    a_pass(picker)
    assert a_pass(picker) == []
    assert picker.listing.unfinished == 0


@pytest.mark.parametrize("order", ["age", "name"])
def test_in_an_exact_order_what_failed_has_its_turn_though_more_comes_all_the_time(
    bench: "Bench", order: Order
) -> None:
    waiting = {f"new-{number:04}.ready": number + 2 for number in range(600)}
    with aged(bench, {"bad-1.failed": 1, "bad-2.failed2": 0, **waiting}) as queue:
        picker = Picker(queue, order)
        offered: list[str] = []

        def take(candidate: Candidate) -> None:
            # For each that is done another comes, and it comes first.
            queue.unlink(candidate.name)
            path = bench.put(f"in/before-{9999 - len(offered):04}.ready")
            os.utime(path, ns=(0, 0))

        while len(offered) < 700 and (len(offered) < 10 or "bad-2.failed2" not in offered):
            candidate = picker.next()
            if candidate is not None:
                offered.append(candidate.name)
                take(candidate)
    # After as many as waited when it began.
    assert offered[600:602] == ["bad-1.failed", "bad-2.failed2"]


@pytest.mark.parametrize("order", ["age", "name"])
def test_in_an_exact_order_what_fails_all_the_time_leaves_a_turn_to_what_is_new(
    bench: "Bench", order: Order
) -> None:
    failed = {f"bad-{number:03}.failed": number for number in range(300)}
    with aged(bench, {"new-1.ready": 1, "new-2.ready": 2, **failed}) as queue:
        picker = Picker(queue, order)
        offered: list[str] = []
        while len(offered) < 604:
            candidate = picker.next()
            if candidate is None:
                continue
            offered.append(candidate.name)
            if candidate.attempt:
                queue.rename(candidate.name, names.waiting_name(candidate.docid, 1))
            else:
                queue.unlink(candidate.name)
                bench.put(f"in/{candidate.docid}x.ready")
    turns = [name.partition("-")[0] for name in offered]
    assert turns == [*["new"] * 2, *["bad"] * 300] * 2
