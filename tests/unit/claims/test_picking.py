"""In which order a driver tries what waits: nothing starves, and what is foreign is left alone."""

import errno
import multiprocessing
import os
import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims import picking
from queuedriver.claims.attempts import Attempts
from queuedriver.claims.counts import Counts
from queuedriver.claims.picking import BLOCK, Lookahead, Order, Picker, count
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names

if TYPE_CHECKING:
    from tests.conftest import Bench

TOKEN = "d-0605d3a1f2b0c05a17"
FUTURE = "ffffffffff"
# Later than any block is kept.
LONG = 3600.0


class Entry:
    """A line of a listing."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number

    def inode(self) -> int:
        return self.number


class Shown:
    """A directory that shows whatever names it is told, and counts who looks at them."""

    def __init__(
        self,
        found: Callable[[], Iterable[str]],
        number: Callable[[int, str], int] = lambda place, name: place,
    ) -> None:
        self.found = found
        self.number = number
        self.looked_at = 0

    def scan(self) -> AbstractContextManager[Iterator[Entry]]:
        return nullcontext(self._entries())

    def _entries(self) -> Iterator[Entry]:
        for place, name in enumerate(self.found()):
            self.looked_at += 1
            yield Entry(name, self.number(place, name))

    def picker(self, me: str = "me", others: Iterable[str] = ()) -> Picker:
        return picker_of(cast(Directory, self), me, others)


def picker_of(directory: Directory, me: str = "me", others: Iterable[str] = ()) -> Picker:
    alive = (*others, me)
    return Picker(directory, "fair", me, lambda anew: alive)


def a_pass(
    picker: Picker, take: Callable[[str], object] = str, now: float = 0.0, lasts: float = 0.0
) -> list[str]:
    """The names that one pass offers; `take` is what the driver does with each, and `lasts` how
    long that takes."""
    offered = []
    while found := picker.names(1, now):
        assert len(found) == 1
        now += lasts
        if names.parse(found[0]) is None:
            picker.foreign(found[0])
        else:
            offered += found
            take(found[0])
    return offered


def many(number: int) -> Iterator[str]:
    return (f"{one:08}.ready" for one in range(number))


def number_in_name(place: int, name: str) -> int:
    """A number that stays the same whatever else is listed."""
    return int(name.partition(".")[0])


# What is seen


def test_each_state_is_counted_and_only_what_waits_is_offered(bench: "Bench") -> None:
    there = {
        "ready": ["a.ready", "b c.ready"],
        "failed": ["d.failed", "e.failed2"],
        "later": ["f.ff.later", f"g.failed.{FUTURE}.later"],
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
    picker = picker_of(queue)
    offered = a_pass(picker)
    assert sorted(offered) == ["a.ready", "b c.ready", "d.failed", "e.failed2", "f.ff.later"]
    for seen in (picker.counts, count(queue, 256.0)):
        assert {state: getattr(seen, state) for state in there} == {
            state: len(listed) for state, listed in there.items()
        }
        assert (seen.next_due, seen.due, seen.claimed) == (0xFFFFFFFFFF, 1, 3)
        assert seen.unfinished == 11
    assert {*picker.counts.claims} == {*there["working"], *there["written"]}


def test_a_queue_with_names_that_only_look_like_items_is_seen_to_be_empty(bench: "Bench") -> None:
    queue = bench.directory("in")
    with open(os.path.join(os.fsencode(queue.path), b"caf\xe9.ready"), "wb"):
        pass
    for number in range(20):
        bench.put(f"in/{number}.ready.ready")
        bench.put(f"in/.{number}.ready")
    # Most of them are in the shares of others, who may never come.
    picker = picker_of(queue, "me", map(str, range(7)))
    assert a_pass(picker) == a_pass(picker) == []
    assert (picker.counts.unfinished, picker.counts.foreign) == (0, 21)


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
    counts = Counts()
    for name in listed:
        counts.see(name, names.parse(name), 256.0)
    assert counts.only_later is only_later


def test_counts_of_several_queues_add_up() -> None:
    one, two = Counts(ready=1, later=1, next_due=9), Counts(ready=2, due=1)
    three = Counts(later=2, next_due=7)
    assert sum((one, two, three), Counts()) == Counts(ready=3, later=3, due=1, next_due=7)


def test_a_queue_of_many_claims_remembers_some() -> None:
    shown = Shown(lambda: (f"{number}.{TOKEN}.working" for number in range(20_000)))
    picker = shown.picker()
    assert a_pass(picker) == []
    assert picker.counts.working == 20_000
    assert len(picker.counts.claims) == 10_000


# Fair


def test_a_pass_offers_everything_once_and_what_failed_at_its_end(bench: "Bench") -> None:
    queue = bench.directory("in")
    for number in range(50):
        bench.put(f"in/{number}.ready")
        bench.put(f"in/{number}.failed{number % 3 + 2}")
    picker = picker_of(queue)
    offered = a_pass(picker, queue.remove)
    assert len(offered) == len(set(offered)) == 100
    assert all(name.endswith(".ready") for name in offered[:50])
    assert not any(name.endswith(".ready") for name in offered[50:])
    assert a_pass(picker) == []
    assert picker.counts.unfinished == 0


def test_a_batch_gets_several_at_a_time(bench: "Bench") -> None:
    for number in range(10):
        bench.put(f"in/{number}.ready")
        bench.put(f"in/{number}.failed")
    picker = picker_of(bench.directory("in"))
    sizes = [len(picker.names(4, 0.0)) for _ in range(7)]
    assert sizes == [4, 4, 2, 4, 4, 2, 0]


def test_what_fails_during_a_pass_is_tried_at_its_end_or_in_the_next(bench: "Bench") -> None:
    queue = bench.directory("in")
    for docid in ("a", "b", "c"):
        bench.put(f"in/{docid}.ready")
    bench.put("in/old.failed")
    picker = picker_of(queue)

    def fail(name: str) -> None:
        if name.endswith(".ready"):
            queue.rename(name, name.replace(".ready", ".failed"))
        else:
            queue.remove(name)

    offered = a_pass(picker, fail) + a_pass(picker, fail)
    assert sorted(offered[:3]) == ["a.ready", "b.ready", "c.ready"]
    assert sorted(offered[3:]) == ["a.failed", "b.failed", "c.failed", "old.failed"]


def test_new_arrivals_do_not_keep_an_old_item_from_its_turn(bench: "Bench") -> None:
    queue = bench.directory("in")
    old = {f"old-{number}.ready" for number in range(20)}
    failed = {f"old-{number}.failed" for number in range(20, 40)}
    for name in old | failed:
        bench.put(f"in/{name}")
    picker = picker_of(queue)
    arrived = 0
    offered: list[str] = []

    def take(name: str) -> None:
        # For each that is done two others come.
        nonlocal arrived
        queue.remove(name)
        for _ in range(2 if arrived < 2000 else 0):
            arrived += 1
            bench.put(f"in/new-{arrived}.ready")

    for _ in range(20):
        if (old | failed) <= set(offered):
            break
        offered += a_pass(picker, take)
    assert (old | failed) <= set(offered)


def test_each_item_has_its_turn_though_each_takes_long_and_new_ones_are_listed_first() -> None:
    waiting = [f"old-{number}.ready" for number in range(60)]
    waiting += [f"bad-{number}.failed" for number in range(5)]
    waiting += [f"due-{number}.ff.later" for number in range(5)]
    old = set(waiting)
    picker = Shown(lambda: list(waiting)).picker()
    offered: set[str] = set()

    def take(name: str) -> None:
        waiting.remove(name)
        waiting.insert(0, f"new-{len(offered)}.ready")
        offered.add(name)

    for number in range(300):
        passed = a_pass(picker, take, now=number * LONG, lasts=LONG)
        # A block that is old is dropped, and the pass goes on to its end.
        assert len(passed) <= 2
    assert old <= offered


def test_a_pass_over_many_ends_though_each_takes_longer_than_a_block_is_kept() -> None:
    waiting = [f"{number}.ready" for number in range(5 * BLOCK)]
    waiting[BLOCK] = "bad.failed"
    waiting[2 * BLOCK] = "due.ff.later"
    picker = Shown(lambda: list(waiting)).picker()
    offered = [a_pass(picker, now=number * 10 * LONG, lasts=LONG) for number in range(3)]
    assert [len(one) for one in offered] == [7, 6, 6]
    assert all(one[-1] == "bad.failed" for one in offered)
    assert len({name for one in offered for name in one}) == 17


def test_before_each_long_document_the_queue_is_listed_anew() -> None:
    picker = Shown(partial(many, 2000)).picker()
    offered = [a_pass(picker, now=number * 10 * LONG, lasts=LONG) for number in range(9)]
    # But for the first, when few names are read at once.
    assert [len(one) for one in offered] == [2, *[1] * 8]


def test_what_is_postponed_is_offered_with_the_new_when_it_is_due() -> None:
    listed = ["a.64.later", "b.failed.c8.later", f"c.{FUTURE}.later", "d.ready"]
    picker = Shown(lambda: listed).picker()
    # The one that failed before comes last.
    assert a_pass(picker) == ["d.ready", "a.64.later", "b.failed.c8.later"]
    assert (picker.counts.later, picker.counts.due) == (3, 2)
    assert picker.counts.next_due == int(FUTURE, 16)


@pytest.mark.slow
def test_memory_does_not_depend_on_how_much_waits() -> None:
    peaks = []
    for number in (4 * BLOCK, 20 * BLOCK):
        picker = Shown(partial(many, number)).picker()
        tracemalloc.start()
        while picker.names(1, 0.0):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_a_claim_costs_no_more_where_a_million_wait() -> None:
    looked_at = []
    for number in (10_000, 1_000_000):
        shown = Shown(partial(many, number))
        picker = shown.picker()
        for _ in range(1000):
            assert picker.names(1, 0.0)
        looked_at.append(shown.looked_at)
    assert looked_at == [1024, 1024]


class Ailing(Directory):
    """A directory whose file system fails in the middle of a listing."""

    well = True

    def scan(self) -> AbstractContextManager[Iterator["os.DirEntry[str]"]]:
        return nullcontext(self._entries())

    def _entries(self) -> Iterator["os.DirEntry[str]"]:
        with super().scan() as entries:
            for number, entry in enumerate(entries):
                if number == 2 and not self.well:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                yield entry


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
    picker = picker_of(queue)
    assert picker.names(1, 0.0)
    for name in bench.ls():
        queue.remove(name)
    bench.put("in/d.ready")
    picker.restart()
    assert a_pass(picker) == ["d.ready"]


# Shares


def shares(shown: Shown, drivers: int) -> list[list[str]]:
    """What each of so many drivers tries first."""
    ids = [f"host-{number}" for number in range(drivers)]
    return [a_pass(shown.picker(me, ids)) for me in ids]


@given(st.sets(st.text("abcé~1", min_size=1, max_size=6), max_size=60), st.integers(1, 9))
def test_the_shares_of_the_drivers_are_apart_and_are_everything(
    docids: set[str], drivers: int
) -> None:
    # Whether inode numbers tell them apart, or are all the same.
    listed = [f"{docid}.ready" for docid in docids]
    for shown in (Shown(lambda: listed), Shown(lambda: listed, lambda place, name: 7)):
        found = shares(shown, drivers)
        everything = sorted(name for share in found for name in share)
        assert everything == sorted(f"{docid}.ready" for docid in docids)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 8, 100])
@pytest.mark.parametrize("drivers", [2, 3, 8])
def test_shares_of_files_made_one_after_the_other_are_even(drivers: int, stride: int) -> None:
    listed = [f"{number}.ready" for number in range(1000)]
    spaced = Shown(lambda: (name for one in listed for name in [one, *[".x"] * (stride - 1)]))
    sizes = [len(share) for share in shares(spaced, drivers)]
    assert sum(sizes) == len(listed)
    assert max(sizes) - min(sizes) <= 8


def test_each_of_thousands_of_drivers_has_its_share() -> None:
    ids = [f"host-{number:04}" for number in range(5000)]
    listed = [f"{number}.ready" for number in range(20_000)]
    sizes = [len(a_pass(Shown(lambda: listed).picker(me, ids))) for me in ids[::200]]
    assert 2 <= min(sizes) <= max(sizes) <= 6


def test_without_inode_numbers_shares_go_by_name() -> None:
    shown = Shown(lambda: [f"{one}.ready" for one in range(1000)], lambda place, name: 0)
    sizes = [len(share) for share in shares(shown, 4)]
    assert min(sizes) > 200


def test_what_becomes_due_is_shared_too() -> None:
    shown = Shown(lambda: [f"{number}.ff.later" for number in range(400)])
    sizes = [len(share) for share in shares(shown, 4)]
    assert sum(sizes) == 400
    assert max(sizes) - min(sizes) <= 8


def test_what_failed_belongs_to_everybody() -> None:
    shown = Shown(lambda: [f"{number}.failed" for number in range(20)])
    assert [len(share) for share in shares(shown, 3)] == [20, 20, 20]


def test_who_is_known_to_be_gone_has_no_share_any_more() -> None:
    alive = ["a", "b", "me"]
    shown = Shown(lambda: [f"{number}.ready" for number in range(300)])
    picker = Picker(cast(Directory, shown), "fair", "me", lambda anew: alive)
    assert 90 <= len(a_pass(picker)) <= 110
    alive.remove("a")
    assert 140 <= len(a_pass(picker)) <= 160
    assert picker.sharers == 2


def test_who_has_nothing_of_its_own_left_helps_until_nothing_is_left(bench: "Bench") -> None:
    queue = bench.directory("in")
    for number in range(100):
        bench.put(f"in/{number}.ready")
    # The others are alive, and busy with something long.
    picker = picker_of(queue, "me", ["a", "z"])
    own = a_pass(picker, queue.remove)
    assert picker.counts.left == 100 - len(own)
    # The owner has its head start: a pass without anything.
    assert a_pass(picker, queue.remove) == []
    offered = own + a_pass(picker, queue.remove)
    assert sorted(offered) == sorted(f"{number}.ready" for number in range(100))


class Acquaintances:
    """The drivers that live, of which some are known only to those who ask anew."""

    def __init__(self, known: Iterable[str], new: Iterable[str]) -> None:
        self.known = set(known)
        self.new = set(new)

    def __call__(self, anew: bool) -> set[str]:
        if anew:
            self.known |= self.new
        return self.known


class Clock:
    """Stands for `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(picking, "time", clock)
    return clock


@pytest.mark.parametrize("paused", [True, False])
def test_who_came_while_there_was_nothing_to_do_has_its_share_of_what_comes(
    clock: Clock, paused: bool
) -> None:
    listed: list[str] = []
    shown = cast(Directory, Shown(lambda: listed))
    picker = Picker(shown, "fair", "me", Acquaintances(["me"], ["a", "b"]))
    assert paused or a_pass(picker) == []
    clock.now = 1.0
    listed += many(300)
    assert 90 <= len(a_pass(picker, now=1.0)) <= 110


def test_who_is_idle_asks_who_has_come_once_a_second_at_most(clock: Clock) -> None:
    asked: list[bool] = []

    def alive(anew: bool) -> list[str]:
        asked.append(anew)
        return ["me"]

    picker = Picker(cast(Directory, Shown(lambda: [])), "fair", "me", alive)
    for _ in range(100):
        clock.now += 0.05
        a_pass(picker, now=clock.now)
    assert len(asked) == 100
    assert 4 <= asked.count(True) <= 5


def test_who_loses_a_race_to_somebody_new_leaves_him_his_share() -> None:
    listed = [f"{number}.ready" for number in range(BLOCK + 1000)]
    directory = cast(Directory, Shown(lambda: listed, number_in_name))
    others = Acquaintances(["me"], [])
    picker = Picker(directory, "fair", "me", others)
    ahead = picker.names(64, 0.0)
    others.new.add("a")
    ahead.pop()
    picker.lost(ahead)
    # What had been taken from the listing is not tried, either; the pass goes on with our share.
    assert ahead == []
    assert 2016 <= len(a_pass(picker)) <= 2056
    assert picker.counts.given == picker.counts.got + 1
    own = a_pass(picker)
    assert 2500 <= len(own) <= 2600
    assert sorted([*own, *a_pass(cast(Shown, directory).picker("a", ["me"]))]) == sorted(listed)


def test_helping_stops_when_the_races_are_lost() -> None:
    listed = [f"{number}.ready" for number in range(100)]
    shown = Shown(lambda: listed, number_in_name)
    picker = shown.picker("me", ["a"])
    mine = a_pass(picker)
    listed = [name for name in listed if name not in mine]
    assert a_pass(picker) == []
    helped = a_pass(picker, lambda name: picker.lost([]))
    assert len(helped) == 1


def test_who_loses_a_race_for_its_own_leaves_others_theirs() -> None:
    listed = [f"{number}.ready" for number in range(100)]
    shown = Shown(lambda: listed, number_in_name)
    own = a_pass(shown.picker("me", ["a"]))
    picker = shown.picker("me", ["a"])
    assert a_pass(picker, lambda _: picker.lost([])) == own[:1]
    assert set(a_pass(picker)) == set(own)
    # But not for ever: its own may be what is gone, of a listing that is old.
    for _ in range(2):
        assert len(a_pass(picker, lambda _: picker.lost([]))) == 1
    assert set(a_pass(picker)) == set(listed)


def test_what_a_busy_driver_leaves_does_not_wait_for_ever_though_more_comes() -> None:
    old = [f"old-{number}.ready" for number in range(40)]
    waiting = list(old)
    picker = Shown(lambda: list(waiting)).picker("me", ["a"])
    offered: set[str] = set()
    for number in range(200):
        # The other driver is alive, and has been at one document for hours. We never run dry.
        waiting += [f"new-{number}-{one}.ready" for one in range(10)]
        for name in a_pass(picker, now=number / 10):
            waiting.remove(name)
            offered.add(name)
    assert set(old) <= offered


def test_a_driver_that_waits_for_others_names_is_not_kept_by_one_it_may_not_have() -> None:
    listed = [f"{number}.ready" for number in range(100)]
    shown = Shown(lambda: listed, number_in_name)
    picker = shown.picker("me", ["a"])
    mine = a_pass(picker)
    listed = [name for name in listed if name == mine[0] or name not in mine]
    assert a_pass(picker, lambda name: picker.refused()) == mine[:1]
    assert picker.counts.refused == 1
    assert len(a_pass(picker)) == len(listed)


def race(path: str, me: str, ids: list[str], acquainted: bool, begin: Any, told: Any) -> None:
    """One driver of several: takes what it can get, and tells how much that was."""
    queue = Directory.open(path)
    picker = Picker(queue, "fair", me, Acquaintances(ids if acquainted else [me], ids))
    got = lost = empty = 0
    begin.wait()
    while empty < 3:
        found = picker.names(64, time.monotonic())
        empty = 0 if found else empty + 1
        while found:
            name = found.pop()
            working = name.replace(".ready", f".{me}-0605d3a1f2b0c05a17.working")
            try:
                queue.rename(name, working)
            except FileNotFoundError:
                lost += 1
                picker.lost(found)
                continue
            got += 1
            queue.remove(working)
    told.put((got, lost))
    queue.close()


@pytest.mark.parametrize("acquainted", [True, False])
def test_drivers_at_one_queue_lose_few_races(tmp_path: Path, acquainted: bool) -> None:
    documents, drivers = 6000, 4
    for number in range(documents):
        (tmp_path / f"doc{number:05}.ready").touch()
    fork = multiprocessing.get_context("fork")
    begin, told = fork.Barrier(drivers), fork.Queue()
    ids = [f"host-{number}" for number in range(drivers)]
    racers = [
        fork.Process(target=race, args=(str(tmp_path), me, ids, acquainted, begin, told))
        for me in ids
    ]
    for one in racers:
        one.start()
    ends = [told.get(timeout=60) for _ in racers]
    for one in racers:
        one.join()
    assert sum(got for got, _ in ends) == documents
    assert sum(lost for _, lost in ends) <= documents * 0.02


class Aged:
    """A queue as one host sees it, whose listing is a while old."""

    def __init__(self, names: dict[str, int], clock: Clock, old: float) -> None:
        self._names, self._clock, self._old = names, clock, old
        self._listed_at, self._listed = -1e9, list[Entry]()

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(st_mtime_ns=len(self._names))

    def scan(self) -> AbstractContextManager[Iterator[Entry]]:
        if self._clock.now > self._listed_at + self._old:
            self._listed = [Entry(*one) for one in self._names.items()]
            self._listed_at = self._clock.now
        return nullcontext(iter(self._listed))


@pytest.mark.parametrize("seed", range(3))
def test_drivers_of_two_hosts_lose_few_races_though_their_listings_are_old(
    clock: Clock, seed: int
) -> None:
    """Each knows only those who were there when it began: nothing has been to do since."""
    documents, lost, chance = 2000, 0, random.Random(seed)
    there = {f"doc{number:07}.ready": number for number in range(documents)}
    ids = [f"host{number % 2}-{number}" for number in range(8)]
    hosts = [cast(Directory, Aged(there, clock, 0.1)) for _ in range(2)]
    nothing = cast(Attempts, SimpleNamespace(docids=frozenset))
    ahead: list[tuple[float, int, Lookahead]] = []
    for number, me in enumerate(ids):
        directory, knows = hosts[number % 2], Acquaintances(ids[: number + 1], ids)
        waiting = Lookahead(directory, nothing, Picker(directory, "fair", me, knows))
        ahead.append((60 + chance.uniform(0, 0.05), number, waiting))
    heapify(ahead)
    while there:
        clock.now, number, waiting = heappop(ahead)
        if not (waiting.names or waiting.list_more(clock.now)):
            waiting.wake()
            takes = chance.uniform(0, 0.05)
        elif there.pop(waiting.names.pop(), None) is None:
            lost += 1
            waiting.picker.lost(waiting.names)
            takes = 0.001
        else:
            takes = chance.uniform(0.008, 0.016)
        heappush(ahead, (clock.now + takes, number, waiting))
    assert lost <= 0.03 * documents


def test_the_names_of_others_cost_a_handful_of_bytecodes_each() -> None:
    shown = Shown(partial(many, BLOCK))
    ids = [f"host-{number}" for number in range(8)]
    # What a process works out once, be it that no test before this one did.
    shown.picker("host-3", ids).names(1, 0.0)
    picker = shown.picker("host-3", ids)
    spent: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != picking.__file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        spent[event] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        own = 0
        while picker.names(1, 0.0):
            own += 1
    finally:
        sys.settrace(before)
    assert 8 * own == pytest.approx(BLOCK, abs=64)
    assert spent["opcode"] / own < 260
    assert spent["call"] / own < 1.5


# By age, by name


def aged(bench: "Bench", ages: dict[str, int]) -> Directory:
    queue = bench.directory("in")
    for name, age in ages.items():
        path = bench.put(f"in/{name}")
        os.utime(path, ns=(age, age))
    return queue


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
    picker = Picker(aged(bench, ages), order)
    assert a_pass(picker) == expected
    assert (picker.counts.ready, picker.counts.foreign) == (4, 1)


def test_of_the_same_age_the_name_decides(bench: "Bench") -> None:
    queue = aged(bench, {f"{number:03}.ready": 7 for number in range(30)})
    assert a_pass(Picker(queue, "age")) == [f"{number:03}.ready" for number in range(30)]


@pytest.mark.parametrize("order", ["age", "name"])
def test_a_batch_is_in_order(bench: "Bench", order: Order) -> None:
    queue = aged(bench, {f"{number}.ready": number for number in range(10)})
    assert Picker(queue, order).names(4, 0.0) == [f"{number}.ready" for number in range(4)]


@pytest.mark.parametrize("order", ["age", "name"])
def test_who_loses_a_race_in_an_exact_order_tries_the_next_without_listing_anew(
    bench: "Bench", order: Order
) -> None:
    picker = Picker(aged(bench, {f"{number}.ready": number for number in range(9)}), order)
    assert picker.names(1, 0.0) == ["0.ready"]
    # It would be the first again.
    bench.put("in/00.ready")
    os.utime(bench.root / "in/00.ready", ns=(0, 0))
    for number in range(1, 5):
        picker.lost([])
        assert picker.names(1, 0.0) == [f"{number}.ready"]


@pytest.mark.parametrize("order", ["age", "name"])
def test_an_order_is_kept_over_what_comes_in_while_it_lasts(bench: "Bench", order: Order) -> None:
    queue = bench.directory("in")
    for number in range(10, 20):
        bench.put(f"in/{number}.ready")
    picker = Picker(queue, order)
    assert picker.names(1, 0.0) == ["10.ready"]
    path = bench.put("in/00.ready")
    os.utime(path, ns=(0, 0))
    # A choice made long ago is no choice: that pass is over, and the queue is listed anew.
    assert picker.names(1, LONG) == []
    assert picker.names(1, LONG) == ["00.ready"]


@pytest.mark.parametrize("order", ["fair", "age", "name"])
def test_items_that_vanish_are_no_trouble(bench: "Bench", order: Order) -> None:
    queue = bench.directory("in")
    for number in range(20):
        bench.put(f"in/{number}.ready")
        bench.put(f"in/{number}.failed")
    picker = Picker(queue, order)
    assert picker.names(1, 0.0)
    for name in bench.ls():
        queue.remove(name)
    a_pass(picker)
    assert a_pass(picker) == []
    assert picker.counts.unfinished == 0


@pytest.mark.parametrize("order", ["age", "name"])
def test_in_an_exact_order_what_failed_has_its_turn_though_more_comes_all_the_time(
    bench: "Bench", order: Order
) -> None:
    waiting = {f"new-{number:04}.ready": number + 2 for number in range(600)}
    queue = aged(bench, {"bad-1.failed": 1, "bad-2.failed2": 0, **waiting})
    picker = Picker(queue, order)
    offered: list[str] = []
    while len(offered) < 3000 and "bad-2.failed2" not in offered:
        for name in picker.names(1, 0.0):
            offered.append(name)
            # For each that is done another comes, and it comes first.
            queue.remove(name)
            path = bench.put(f"in/before-{9999 - len(offered):04}.ready")
            os.utime(path, ns=(0, 0))
    # First of the eighth listing.
    assert offered[-2:] == ["bad-1.failed", "bad-2.failed2"]
    assert len(offered) == 7 * 256 + 2


@pytest.mark.parametrize("order", ["age", "name"])
def test_in_an_exact_order_what_fails_all_the_time_leaves_a_turn_to_what_is_new(
    bench: "Bench", order: Order
) -> None:
    failed = {f"bad-{number:03}.failed": number for number in range(300)}
    queue = aged(bench, {"new-1.ready": 1, "new-2.ready": 2, **failed})
    picker = Picker(queue, order)
    offered: list[str] = []
    while len(offered) < 3 * 256:
        for name in picker.names(1, 0.0):
            offered.append(name)
            if name.endswith(".failed"):
                queue.rename(name, name)
            else:
                queue.remove(name)
                bench.put(f"in/{name.replace('.ready', 'x.ready')}")
    turns = [name.partition("-")[0] for name in offered]
    assert turns == [*["new"] * 2, *["bad"] * 254] * 3


@pytest.mark.parametrize("order", ["age", "name"])
def test_in_an_exact_order_what_failed_comes_between_long_documents_now_and_then(
    bench: "Bench", order: Order
) -> None:
    waiting = {f"new-{number}.ready": number for number in range(9)}
    queue = aged(bench, {"bad.failed": 0, **waiting})
    picker = Picker(queue, order)
    # Each lasts longer than what is listed before it is worth anything.
    offered = [a_pass(picker, queue.remove, LONG * turn, LONG) for turn in range(10)]
    assert [*chain(*offered)] == [*[*waiting][:7], "bad.failed", *[*waiting][7:]]
