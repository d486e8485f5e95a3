"""When a driver looks for what dead ones left, and how: most looks cost a listing of the queue."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import Observer
from queuedriver.claims.recovery import Recoverer
from queuedriver.driving.loop import Rounds

if TYPE_CHECKING:
    from tests.conftest import Bench


class Noting(Recoverer):
    """A recoverer that notes what it is asked to do."""

    def __init__(self, queue: InputQueue) -> None:
        super().__init__(queue, Observer())
        self.asked: list[str] = []
        # Whether a driver has died.
        self.died = False

    def newly_dead(self) -> bool:
        return self.died

    def recover(self, claimed: Sequence[str] | None = None) -> int:
        self.asked.append("list the queue" if claimed is None else "look at the last pass")
        return 0

    def forget_ended(self) -> None:
        self.asked.append("forget")


class Site:
    """The rounds of one driver over a queue, from the instant 0 on."""

    def __init__(self, bench: "Bench") -> None:
        self.queue = bench.open()
        self.queue.recoverer = self.recoverer = Noting(self.queue)
        self.rounds = Rounds([self.queue], 0.0)

    def look(self, now: float, *, idle: bool = False) -> list[str]:
        self.recoverer.asked.clear()
        self.rounds.look(now, idle=idle)
        return list(self.recoverer.asked)


@pytest.fixture
def site(bench: "Bench") -> Site:
    return Site(bench)


def test_a_busy_driver_looks_for_dead_ones_every_five_seconds(site: Site) -> None:
    site.recoverer.died = True
    found = {now: site.look(now) for now in (0.0, 4.9, 5.0, 9.9, 10.1)}
    assert [now for now, asked in found.items() if asked] == [0.0, 5.0, 10.1]
    assert found[5.0] == ["list the queue"]


def test_a_busy_driver_lists_the_queue_once_a_minute_though_nobody_is_known_to_have_died(
    site: Site,
) -> None:
    instants = [5.0 * number for number in range(40)]
    assert [now for now in instants if site.look(now)] == [60.0, 120.0, 180.0]


def test_of_a_crowd_only_some_list_the_queue_though_nobody_is_known_to_have_died(
    site: Site,
) -> None:
    picker = site.queue.waiting.picker
    picker.sharers = 100
    picker.part = 63
    assert site.look(60.0) == ["list the queue"]
    picker.part = 64
    assert site.look(120.0) == []
    # Who is known to be dead is looked after by all.
    site.recoverer.died = True
    assert site.look(180.0) == ["list the queue"]


def test_an_idle_driver_looks_each_second_at_the_claims_that_its_last_pass_saw(site: Site) -> None:
    site.queue.waiting.picker.counts.claims.append("doc.1-x-y.working")
    found = {now: site.look(now, idle=True) for now in (0.0, 0.9, 1.0, 1.9, 2.0)}
    assert [now for now, asked in found.items() if asked] == [0.0, 1.0, 2.0]
    assert found[1.0] == ["look at the last pass"]


def test_an_idle_driver_of_an_empty_queue_forgets_what_has_ended_and_lists_nothing(
    site: Site,
) -> None:
    site.recoverer.died = True
    assert [site.look(now, idle=True) for now in (0.0, 60.0)] == [["forget"]] * 2
