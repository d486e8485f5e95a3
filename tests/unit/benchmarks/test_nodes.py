"""Many nodes over a simulated file server: what the model says, and what it must go on saying."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import nodes_disk
from benchmarks.nodes import LAN, LONG, SHORT, Run
from benchmarks.nodes_disk import Line, RecordedDisk
from benchmarks.nodes_world import Crowds, Network
from queuedriver.claims import liveness, picking
from queuedriver.claims.liveness import NETWORK_BEAT
from queuedriver.disk.filesystem import Directory
from queuedriver.format.records import LEASE
from tests.simulation.disk import Entry, Inode, Listing
from tests.simulation.kernel import Scan


@pytest.mark.slow
def test_drivers_of_ten_nodes_ask_little_of_the_server_and_recover_the_loss_of_one() -> None:
    facts = Run(10, LAN, LONG)()
    assert facts.drivers == 80
    assert facts.done >= 0.8 * facts.wanted
    # A second and driver: of registrations that is one in three, of all two and a half requests.
    assert facts.registrations <= facts.drivers / 3
    assert facts.requests * facts.done <= 2.5 * facts.drivers
    # After the lease, and two looks of a neighbour, with a beat before.
    assert facts.back is not None
    assert LEASE - NETWORK_BEAT <= facts.back <= LEASE + 2 * 60 + NETWORK_BEAT


def test_no_more_is_done_than_the_server_answers() -> None:
    slow = Run(1, Network("slow", 0.0003, 1000.0), SHORT)()
    fast = Run(1, Network("fast", 0.0003, 4000.0), SHORT)()
    assert slow.busy > 0.95
    assert 15 <= slow.requests <= 40
    assert 3 * slow.done <= fast.done <= 5 * slow.done


def test_two_runs_are_the_same() -> None:
    one, two = (Run(2, LAN, SHORT)()._replace(real=0.0) for _ in range(2))
    assert one == two


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=60))
def test_what_was_listed_stays_as_it_was_and_is_what_a_copy_would_be(
    changes: list[tuple[str, bool]],
) -> None:
    disk, listings = RecordedDisk(), list[tuple[Listing, list[Entry]]]()
    with pytest.MonkeyPatch.context() as patched:
        # So that records are begun anew now and then.
        patched.setattr("benchmarks.nodes_disk._GONE", 3)
        for name, is_there in changes:
            disk.change((disk.root, name, disk.new() if is_there else None))
            listings.append((disk.listing(disk.root), [*Listing(disk.root).lines()]))
    for listing, lines in listings:
        assert [*listing.lines()] == lines
        assert [*listing] == [(line.name, line.number) for line in lines]
        assert len(listing) == len(lines)


# What stands for functions of the product, as thousands would call them with nearly the same


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a.ready", "b.d-1.working", "c.failed"]), st.integers(1, 1 << 40)
        )
    ),
    st.sampled_from([(0, 1), (1, 3), (7, 600), (599, 600)]),
)
def test_a_block_is_split_as_the_product_does(
    lines: list[tuple[str, int]], share: tuple[int, int]
) -> None:
    block = [Line(name, number, Inode(number)) for name, number in lines]
    dealt = picking._deal(*share)
    found: object = picking._split(cast(Any, block), *dealt)
    assert nodes_disk.split(block, *dealt) == found


class Shown:
    """The root of a simulated disk, as far as registrations are looked for in it."""

    def __init__(self) -> None:
        self.disk = RecordedDisk()

    def scan(self) -> Scan:
        return Scan(self.disk.listing(self.disk.root).lines())

    def names(self) -> list[str]:
        return [entry.name for entry in self.scan()]


@given(st.lists(st.tuples(st.sampled_from(["a.json", ".a.json", "b.json", "x"]), st.booleans())))
def test_who_has_registered_is_told_as_a_listing_of_now_would(
    changes: list[tuple[str, bool]],
) -> None:
    shown = Shown()
    directory = cast(Directory, shown)
    for name, is_there in changes:
        shown.disk.change((shown.disk.root, name, shown.disk.new() if is_there else None))
        assert nodes_disk.registered_ids(directory) == liveness.registered_ids(directory)


@given(st.lists(st.frozensets(st.sampled_from("abcdefgh")), max_size=20))
def test_a_crowd_is_in_the_order_that_it_would_have_by_itself(
    crowds: list[frozenset[str]],
) -> None:
    crowd_of = Crowds()
    assert all(crowd_of(ids) == liveness.crowd_of(ids) for ids in crowds)
