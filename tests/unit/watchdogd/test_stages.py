"""How many drivers the stages get, and what is told of them. No driver runs here."""

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queuedriver.driving.lifetime import OUT_OF_TIME
from queuedriver.driving.live_status import Board, Totals
from tests.waiting import until
from watchdogd import driver_ids
from watchdogd.children import Child, Children, Exit
from watchdogd.helper import QueueView
from watchdogd.helper_messages import Controls, Look, QueueSeen
from watchdogd.pipeline.model import Drivers, Host, Pipeline, Stage
from watchdogd.policy import HUNG
from watchdogd.slot import Slot
from watchdogd.stage_drivers import Context
from watchdogd.stages import Drain, Stages

MB = 10**6


class House:
    """The stages of one host, and what was told of them."""

    def __init__(
        self, directory: Path, *stages: Stage, ends_at: float | None = None, **host: Any
    ) -> None:
        self.directory = directory
        (directory / "boards").mkdir(exist_ok=True)
        self.told: list[tuple[str, str, str]] = []
        self.children = Children()
        self.host = host
        self.view = QueueView()
        say, children = self._say, self.children
        context = Context("rose", str(directory), self.view, say, children, ends_at)
        self.stages = Stages(self._pipeline(stages), context)
        self.queues: dict[str, QueueSeen] = {}
        self.numbers: dict[str, int | None] = {}
        self.man(*stages)

    def _say(
        self, kind: str, message: str = "", *, stage: str = "", driver: str = "", **_: object
    ) -> None:
        self.told.append((kind, driver or stage, message))

    def _pipeline(self, stages: tuple[Stage, ...]) -> Pipeline:
        return Pipeline(
            name="p",
            file=str(self.directory / "p.toml"),
            root=str(self.directory / "queues"),
            stages=stages,
            host=Host(**self.host),
        )

    def man(self, *stages: Stage) -> None:
        self.stages.set_stages(self._pipeline(stages), 100.0)

    def see(self, **queues: QueueSeen) -> None:
        self.queues = queues
        self._look()

    def _look(self) -> None:
        controls = Controls(scale=self.numbers)
        self.view.take(Look(queues=self.queues, controls=controls), 100.0)

    def begin(self) -> None:
        """Look for the first time, and do what follows."""
        self._look()
        self.turn()

    def scale(self, **numbers: int | None) -> None:
        """Let an operator ask for so many drivers; None: as the file says."""
        self.numbers |= numbers
        self.begin()

    def turn(self) -> None:
        """Nothing is started while the file system is not well."""
        self.stages.turn(101.0, 1.0, fs_ok=False)

    def live(self, name: str, now: float) -> tuple[Slot, Board]:
        """A process that does nothing but be there, ready since so long (0: not yet), and its
        board."""
        slot = next(slot for slot in self.stages.slots if slot.name == name)
        path = str(self.directory / "boards" / f"{slot.next_order.id}.board")
        theirs = Board.create(path)
        process = self.children.start(("/bin/sleep", "3600"), os.environ)
        begun_for = self.stages.pipeline.stage(slot.stage)
        assert begun_for is not None
        slot.begin(process, Board.open(path), begun_for, now)
        theirs.ready(now)
        return slot, theirs

    def kill_in_vain(self, name: str) -> None:
        """A driver that is there, though it was killed long ago: until it is reaped, nobody can
        tell a process that has ended from one that cannot."""
        slot, _ = self.live(name, 50.0)
        assert slot.run is not None
        slot.run.child.ask("stuck", HUNG, 60.0)
        slot.run.child.send(signal.SIGKILL)
        self.turn()
        assert slot.rest.state == "unkillable"
        # What stood in its place already counts from the next turn on.
        self.turn()

    def reap(self) -> bool:
        """Take note of those that have ended; whether any has."""
        self.children.reap(102.0)
        return bool(self.stages.reap(102.0))

    def reap_all(self) -> None:
        until(lambda: self.reap() or not self.living)
        self.turn()

    @property
    def living(self) -> bool:
        return any(slot.run for slot in self.stages.slots)

    @property
    def here(self) -> list[str]:
        """The drivers that are to be there."""
        return [slot.name for slot in self.stages.slots if slot.wanted]

    @property
    def wanted(self) -> dict[str, int]:
        return {name: one.size.drivers for name, one in self.stages.managed.items()}

    def kinds(self) -> list[tuple[str, str]]:
        found = [(kind, about) for kind, about, _ in self.told]
        self.told.clear()
        return found


def stage(name: str, drivers: int | tuple[int, int] = 1, **facts: Any) -> Stage:
    least, most = (drivers, drivers) if isinstance(drivers, int) else drivers
    said = {"inputs": (f"to_{name}",), "outputs": (f"from_{name}",), "work": "m:f", **facts}
    return Stage(name=name, drivers=Drivers(least, most), kind="call", **said)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (QueueSeen(done=True, drained=True), "its input queues are closed"),
        (QueueSeen(quit=True), "told to quit"),
    ],
)
def test_driver_that_is_not_started_says_why(tmp_path: Path, seen: QueueSeen, why: str) -> None:
    house = House(tmp_path, stage("one"))
    house.see(to_one=seen)
    house.turn()
    (slot,) = house.stages.slots
    assert (slot.rest.state, slot.rest.why) == ("stopped", why)


def no_start(slot: Slot, why: str, code: int) -> None:
    """A start that comes to nothing."""
    child = Child()
    child.failure, child.exit = why, Exit(code=code)
    slot.begin(child, None, stage("one"), 100.0)
    slot.died(child.exit, stage("one"), 100.0)


# How many


def test_stages_get_what_the_file_says_and_those_that_may_choose_the_least(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", 2), stage("two", (1, 4)), stage("three", 0))
    house.see(to_one=QueueSeen(ready=9), to_two=QueueSeen(ready=9))
    house.begin()
    assert house.wanted == {"one": 2, "two": 1, "three": 0}


def test_operators_outdo_the_file_until_they_say_auto(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", 2), stage("two", (1, 4)))
    house.begin()
    house.scale(one=3, two=0)
    assert house.wanted == {"one": 3, "two": 0}
    assert house.here == ["one-1", "one-2", "one-3"]
    assert house.kinds() == [("scaled", "one"), ("scaled", "two")]
    house.scale(one=3, two=0)
    assert house.kinds() == []
    house.scale(one=None, two=None)
    assert house.wanted == {"one": 2, "two": 1}


@pytest.mark.parametrize(
    ("scale", "wanted"),
    [
        ({"one": 50}, {"one": 8, "two": 2}),
        # What one gives up, another may have, whatever their order.
        ({"one": 50, "two": 0}, {"one": 10, "two": 0}),
        ({"one": 0, "two": 50}, {"one": 0, "two": 10}),
        # What is asked for and cannot be is one at least: the file was admitted with that.
        ({"one": 1}, {"one": 1, "two": 2}),
    ],
)
def test_no_stage_is_scaled_beyond_the_room_there_is(
    tmp_path: Path, scale: dict[str, int], wanted: dict[str, int]
) -> None:
    stages = (stage("one", 1, memory=100 * MB), stage("two", 2, memory=100 * MB))
    house = House(tmp_path, *stages, memory=1000 * MB)
    house.begin()
    house.scale(**scale)
    assert house.wanted == wanted
    words = " ".join(message for kind, _, message in house.told if kind == "scaled")
    assert ("there is no room for 50" in words) == (50 in scale.values())


def test_number_for_a_stage_whose_drivers_add_nothing_is_bounded_by_what_it_declares(
    tmp_path: Path,
) -> None:
    shared: dict[str, Any] = {"memory": 600 * MB, "preload": True, "memory_per_driver": 0}
    house = House(tmp_path, stage("one", **shared), stage("two", memory=100 * MB), memory=1000 * MB)
    house.begin()
    house.scale(one=3, two=9)
    assert house.wanted == {"one": 3, "two": 4}
    (load, _) = house.stages.loads()
    assert load.memory == (600 * MB, 0)


def test_number_for_a_stage_that_declares_no_memory_is_bounded_all_the_same(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, stage("one"), stage("two"), memory=1000 * MB)
    house.begin()
    house.scale(one=9999)
    # A driver that is not there takes what any takes at least.
    assert house.wanted == {"one": 50, "two": 1}
    (note,) = house.stages.notes
    assert "no room for 9,999: one takes 20 MB, of 1 GB for all" in note
    slot = house.stages.slots[0]
    slot.begin(Child(), None, stage("one"), 100.0)
    assert slot.run is not None
    slot.run.memory = 100 * MB
    house.turn()
    assert house.wanted == {"one": 10, "two": 1}
    house.scale(one=3)
    assert (house.wanted, house.stages.notes) == ({"one": 3, "two": 1}, [])


def test_number_that_is_asked_for_before_anything_has_begun_is_had(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one"), stage("two", 0), stage("three"), memory=1000 * MB)
    house.numbers = {"one": 3, "two": 9999, "three": 0}
    house.begin()
    # Each takes 20 MB at least.
    assert house.wanted == {"one": 3, "two": 47, "three": 0}


def test_stage_that_the_file_no_longer_has_is_forgotten_once_it_is_empty(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one"), stage("two"))
    house.begin()
    house.man(stage("two"))
    assert house.wanted == {"two": 1}
    assert [one.stage.name for one in house.stages.everyone] == ["two", "one"]
    house.turn()
    assert [one.stage.name for one in house.stages.everyone] == ["two"]


def test_stage_that_comes_back_before_its_driver_has_left_has_that_driver_once(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, stage("one"), stage("two"))
    house.begin()
    slot, _ = house.live("one-1", 100.0)
    run = slot.run
    house.man(stage("two"))
    house.turn()
    assert house.here == ["two-1"]
    house.man(stage("one"), stage("two"))
    house.turn()
    assert house.here == ["one-1", "two-1"]
    assert [slot.run for slot in house.stages.slots if slot.run is not None] == [run]
    house.reap_all()


def test_stages_stop_from_the_first_to_the_last(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one"), stage("two", 2), stage("three"))
    house.begin()
    for name in ("one-1", "two-1", "two-2", "three-1"):
        house.live(name, 100.0)
    house.stages.context.leaving = True
    seen = []
    while house.living:
        house.turn()
        seen += [house.here] if house.here not in seen else []
        house.reap()
    house.turn()
    assert seen == [["two-1", "two-2", "three-1"], ["three-1"], []]
    assert house.stages.settled


def test_end_of_a_watchdog_takes_as_long_as_drivers_that_were_told_a_longer_grace(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, stage("one", 2, grace=3600.0), stage("two", grace=60.0))
    house.begin()
    house.live("one-1", 100.0)
    house.live("two-1", 100.0)
    house.man(stage("one", 2, grace=1.0), stage("two", grace=120.0))
    assert [one.grace for one in house.stages.alive] == [3600.0, 120.0]
    for name in ("one-1", "two-1"):
        end(house, name)


def test_end_of_a_watchdog_takes_as_long_as_stages_that_the_file_has_no_more(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, stage("one", grace=3600.0), stage("two"))
    house.begin()
    house.live("one-1", 100.0)
    house.man(stage("two"))
    assert [one.grace for one in house.stages.alive] == [3600.0]
    end(house, "one-1")


def test_driver_that_leaves_for_want_of_time_tells_of_what_is_left_and_a_clock_set_back_undoes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    house = House(tmp_path, stage("one"), ends_at=now + 3600)
    house.begin()
    assert house.stages.managed["one"].late == ""
    leave_for_want_of_time(house, "one-1")
    assert house.stages.managed["one"].late == house.stages.out_of_time == "an hour is too short"
    monkeypatch.setattr(time, "time", lambda: now - 60)
    assert house.stages.managed["one"].late == house.stages.out_of_time == ""


@pytest.mark.parametrize("ends_in", [None, 7200.0])
def test_driver_whose_own_time_was_too_short_says_nothing_of_that_of_others(
    tmp_path: Path, ends_in: float | None
) -> None:
    ends_at = None if ends_in is None else time.time() + ends_in
    house = House(tmp_path, stage("one"), ends_at=ends_at)
    house.begin()
    # It was adopted: its time is that of the watchdog before this one.
    leave_for_want_of_time(house, "one-1", until=time.time() + 3600)
    assert house.stages.managed["one"].late == house.stages.out_of_time == ""


def leave_for_want_of_time(house: House, name: str, **told: float) -> None:
    slot, theirs = house.live(name, 100.0)
    assert slot.run is not None
    slot.run.order = replace(slot.run.order, **told)
    theirs.left(OUT_OF_TIME, "an hour is too short", 0)
    end(house, name)


def test_driver_that_loads_may_take_as_long_as_the_file_says_by_now(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", startup_timeout=2.0))
    house.see(to_one=QueueSeen(ready=9))
    house.begin()
    slot, _ = house.live("one-1", 0.0)
    house.man(stage("one", startup_timeout=500.0))
    assert slot.run is not None
    slot.run.started_at = 100.0
    house.stages.turn(110.0, 1.0, fs_ok=True)
    assert slot.rest.until == 600.0
    end(house, "one-1")


def test_all_stages_stop_at_once_when_they_are_hurried_or_have_nothing_to_do(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, stage("one"), stage("two"), stage("three"))
    house.see(to_two=QueueSeen(done=True, drained=True))
    house.begin()
    for name in ("one-1", "two-1", "three-1"):
        house.live(name, 100.0)
    house.stages.context.leaving = True
    house.turn()
    assert house.here == ["three-1"]
    house.stages.hurried = True
    house.turn()
    assert house.here == []
    while house.living:
        house.reap_all()


# How they are started


def test_loop_is_heard_between_a_few_starts_and_goes_on_with_the_others_at_once(
    tmp_path: Path,
) -> None:
    # There can be no directory for their logs, so none is born; each was a start all the same.
    (tmp_path / "logs").touch()
    house = House(tmp_path, stage("one", 5), stage("two", 15))
    house.see(to_one=QueueSeen(ready=9), to_two=QueueSeen(ready=9))
    started, due = set(), 101.0
    while due <= 101.0:
        due = house.stages.turn(101.0, 1.0, fs_ok=True)
        told = [name for kind, name in house.kinds() if kind == "exited"]
        started |= set(told)
        assert len(told) == 8 or due > 101.0
        assert len(told) <= 8
    assert len(started) == 20


def test_host_has_a_few_drivers_to_load_at_once_and_no_stage_waits_for_another(
    tmp_path: Path,
) -> None:
    most = max(8, 2 * len(os.sched_getaffinity(0)))
    (tmp_path / "logs").touch()
    house = House(tmp_path, stage("one", most + 3), stage("two"))
    house.see(to_one=QueueSeen(ready=9), to_two=QueueSeen(ready=9))
    house.begin()
    boards = [house.live(f"one-{number}", 0.0)[1] for number in range(1, most + 1)]

    def started(now: float) -> set[str]:
        """Those that were tried: there can be no directory for their logs."""
        house.stages.turn(now, 1.0, fs_ok=True)
        return {name for kind, name in house.kinds() if kind == "exited"}

    assert started(101.0) == {"two-1"}
    # It is soon seen that one of them is ready.
    assert house.stages.turn(101.0, 1.0, fs_ok=True) == 101.1
    boards[0].ready(101.0)
    started(101.2)
    assert started(101.2) - {"two-1"} == {f"one-{most + 1}"}
    house.stages.context.leaving = True
    while house.living:
        house.turn()
        house.reap()


def test_nothing_is_started_once_all_are_to_leave(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one"), stage("two"))
    house.see(to_one=QueueSeen(ready=9), to_two=QueueSeen(ready=9))
    house.stages.context.leaving = True
    assert house.stages.turn(101.0, 1.0, fs_ok=True) > 101.0
    assert house.kinds() == []


# Time limits


def test_document_that_the_learned_limit_has_ended_is_given_longer_the_next_time(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, stage("one"))
    house.stages.managed["one"].pace.hard_limit = 600.0
    house.begin()

    def state_after(seconds: float, docid: str) -> str:
        """Of a driver that has had this document for so long."""
        slot, board = house.live("one-1", 100.0)
        board.began(docid, 200.0)
        # First its stacks are asked for.
        for now in (200.0, 200.1):
            house.stages.turn(now + seconds, 1.0, fs_ok=True)
        state = slot.rest.state
        slot.run.child.send(signal.SIGKILL) if slot.run else None
        house.reap_all()
        return state

    assert state_after(599.0, "large") == "busy"
    assert state_after(601.0, "large") == "hung"
    assert state_after(5999.0, "large") == "busy"
    assert state_after(601.0, "small") == "hung"
    assert state_after(6001.0, "large") == "hung"


def test_what_another_function_took_limits_no_document(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one"))
    pace = house.stages.managed["one"].pace
    pace.hard_limit = 600.0

    def limit() -> float | None:
        return pace.limit_of("a")

    house.man(stage("one", retries=7))
    assert limit() == 600.0
    house.begin()
    _, board = house.live("one-1", 100.0)
    house.man(stage("one", retries=7, work="m:slow"))
    assert (limit(), [*pace.durations]) == (None, [])
    # The driver that was told the other one goes on for a while.
    board.count(Totals(1, 50, 0, 0, 0, 0, 0))
    house.turn()
    assert (limit(), [*pace.durations]) == (None, [])
    end(house, "one-1")
    _, board = house.live("one-1", 100.0)
    house.turn()
    board.count(Totals(1, 50, 0, 0, 0, 0, 0))
    house.turn()
    assert limit() == 600.0
    end(house, "one-1")


# Those that not even SIGKILL ends


def test_unkillable_driver_is_replaced_by_another_beside_it_until_it_ends(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", 2), stage("two"))
    house.see(to_one=QueueSeen(ready=9))
    house.begin()
    house.kill_in_vain("one-1")
    assert house.here == ["one-1", "one-2", "one-3", "two-1"]
    assert house.wanted == {"one": 2, "two": 1}
    house.reap_all()
    assert house.here == ["one-1", "one-2", "two-1"]


def test_unkillable_driver_keeps_no_other_from_being_replaced(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", 2))
    house.begin()
    other, _ = house.live("one-2", 100.0)
    house.kill_in_vain("one-1")
    house.stages.restart("one", "again")
    house.turn()
    assert other.unwanted == "restart"
    house.reap_all()


def test_unkillable_drivers_do_not_pile_up(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", 2))
    house.begin()
    for number in range(1, 5):
        house.kill_in_vain(f"one-{number}")
    # As many as there are to be stand in, and no more.
    assert house.here == ["one-1", "one-2", "one-3", "one-4"]
    house.scale(one=1)
    assert house.here == ["one-1", "one-2"]
    while house.living:
        house.reap_all()


def test_unkillable_driver_keeps_the_memory_that_it_has(tmp_path: Path) -> None:
    stages = (stage("one", 2, memory=300 * MB), stage("two", (1, 8), memory=100 * MB))
    house = House(tmp_path, *stages, memory=1000 * MB)
    house.begin()
    house.kill_in_vain("one-1")
    assert house.here == ["one-1", "one-2", "one-3", "two-1"]
    house.kill_in_vain("one-2")
    # For four of them there is no room, and the other stage gets none of it.
    assert house.here == ["one-1", "one-2", "one-3", "two-1"]
    house.scale(two=8)
    assert house.wanted == {"one": 2, "two": 1}
    while house.living:
        house.reap_all()


# What can never go on


def test_pipeline_is_hopeless_when_a_stage_has_no_driver_that_could_live(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", 2), stage("two"))
    house.see(to_one=QueueSeen(ready=1))
    house.begin()
    first, second, other = house.stages.slots
    no_start(first, "no module", 78)
    assert house.stages.hopeless == ""
    no_start(second, "no module", 78)
    assert house.stages.hopeless.startswith("stage one: no module")
    # One that may yet be tried is not.
    no_start(other, "no memory", 75)
    assert "two" not in house.stages.hopeless


def test_stage_that_is_through_or_scaled_to_none_makes_nothing_hopeless(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one"))
    house.begin()
    no_start(house.stages.slots[0], "no module", 78)
    assert house.stages.hopeless
    house.see(to_one=QueueSeen(done=True, drained=True))
    assert not house.stages.hopeless
    assert house.stages.done
    house.see(to_one=QueueSeen(ready=1))
    house.scale(one=0)
    assert not house.stages.hopeless


def test_queues_with_claims_and_nobody_to_see_to_them_are_abandoned(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one"), stage("two"))
    house.see(to_one=QueueSeen(working=1), to_two=QueueSeen(ready=5), from_two=QueueSeen(written=1))
    assert house.stages.abandoned == ["to_one"]


def test_driver_that_is_not_ready_sees_to_no_claims_of_the_dead(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one"))
    house.see(to_one=QueueSeen(working=1))
    house.begin()
    _, board = house.live("one-1", 0.0)
    house.turn()
    # Perhaps it never will be: its settings may differ from those of the claims.
    assert house.stages.abandoned == ["to_one"]
    board.ready(100.0)
    house.turn()
    assert house.stages.abandoned == []
    end(house, "one-1")


# The end of a drain


def test_drain_is_over_once_two_looks_in_a_row_saw_nothing_left(tmp_path: Path) -> None:
    house, drain = House(tmp_path, stage("one")), Drain()
    empty, left = QueueSeen(drained=True), QueueSeen(later=1)

    def look(seen: QueueSeen, trouble: str = "") -> bool:
        house.see(to_one=seen)
        return drain.see(house.stages, trouble, 100.0)

    assert not look(left)
    assert drain.look_at == math.inf
    assert not look(empty)
    # The next look is soon.
    assert 100.0 < drain.look_at < 101.0
    assert not look(left)
    assert not look(empty)
    assert not look(empty, "Stale file handle")
    assert look(empty)


# What is told


def test_stage_that_has_stopped_itself_is_told_of_once_and_needs_no_more_drivers(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, stage("one"))
    house.begin()
    house.see(to_one=QueueSeen(ready=9, tripped="stopped by itself: 20 documents"))
    house.turn()
    assert house.kinds() == [("stage-tripped", "one")]
    house.turn()
    assert house.kinds() == []
    assert [load.backlog for load in house.stages.loads()] == [0]
    house.see(to_one=QueueSeen(ready=9))
    house.turn()
    assert house.kinds() == [("resumed", "one")]


def test_document_copied_into_a_closed_queue_is_told_each_time_with_what_to_type(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, stage("one"))
    house.begin()
    for _ in range(2):
        house.see(to_one=QueueSeen(done=True, drained=True))
        house.turn()
        assert house.kinds() == [("drained", "one")]
        house.see(to_one=QueueSeen(ready=1, done=True, late=True))
        house.turn()
        house.turn()
        ((kind, name, message),) = house.told
        house.told.clear()
        assert (kind, name) == ("closed-queue", "one")
        path = tmp_path / "queues/to_one"
        assert message.startswith(f"documents came into {path}, which is closed: ")
        assert f"queuedriver reopen {path}" in message


def test_what_becomes_of_a_stage_is_told_once(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", max_unhealthy=1), stage("two"))
    house.begin()
    house.see(to_one=QueueSeen(ready=1, paused=True), to_two=QueueSeen())
    house.turn()
    assert house.kinds() == [("paused", "one")]
    house.turn()
    assert house.kinds() == []
    house.see(to_one=QueueSeen(ready=1), to_two=QueueSeen())
    house.turn()
    assert house.kinds() == [("resumed", "one")]
    no_start(house.stages.slots[0], "it is broken", 78)
    house.kinds()
    house.turn()
    assert house.kinds() == [("degraded", "one")]
    house.see(to_one=QueueSeen(ready=1), to_two=QueueSeen(done=True, drained=True))
    house.turn()
    assert house.kinds() == [("drained", "two")]
    house.see(to_one=QueueSeen(ready=1), to_two=QueueSeen(ready=1))
    house.turn()
    house.see(to_one=QueueSeen(ready=1), to_two=QueueSeen(done=True, drained=True))
    house.turn()
    assert house.kinds() == [("drained", "two")]


def test_restart_of_nobody_is_not_known(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", 2))
    house.begin()
    assert [house.stages.restart(one, "r1") for one in ("", "one", "one-2")] == [True] * 3
    assert [house.stages.restart(one, "r1") for one in ("two", "one-3", "on")] == [False] * 3


# Those that were told other things


def leaving(house: House) -> list[str]:
    """The drivers that are to be replaced now: what is seen in a turn counts from the next on."""
    house.turn()
    house.turn()
    return [slot.name for slot in house.stages.slots if slot.unwanted == "restart"]


def full(tmp_path: Path, drivers: int) -> House:
    """A stage whose drivers all live."""
    house = House(tmp_path, stage("one", drivers))
    house.see(to_one=QueueSeen(ready=9))
    house.begin()
    for slot in house.stages.slots:
        house.live(slot.name, 50.0)
    assert leaving(house) == leaving(house) == []
    return house


def end(house: House, name: str) -> None:
    slot = next(slot for slot in house.stages.slots if slot.name == name)
    # One that was asked to leave may have gone by now.
    if slot.run is not None:
        slot.run.child.send(signal.SIGKILL)
    while slot.run is not None:
        house.reap_all()


def replace_one(house: House, name: str) -> None:
    end(house, name)
    house.live(name, 110.0)


def test_stale_drivers_are_replaced_one_after_the_other(tmp_path: Path) -> None:
    house = full(tmp_path, 3)
    house.man(stage("one", 3, work="m:g"))
    for name in ("one-1", "one-2", "one-3"):
        assert leaving(house) == [name]
        end(house, name)
        # Not before its successor works.
        assert leaving(house) == []
        house.live(name, 110.0)
    assert leaving(house) == leaving(house) == []
    for name in ("one-1", "one-2", "one-3"):
        end(house, name)


def test_only_the_driver_that_was_replaced_holds_up_the_others(tmp_path: Path) -> None:
    house = full(tmp_path, 3)
    assert house.stages.restart("one", "r1")
    assert leaving(house) == ["one-1"]
    # Another one crashes meanwhile: it comes back as it would be told now.
    end(house, "one-3")
    replace_one(house, "one-1")
    assert leaving(house) == ["one-2"]
    replace_one(house, "one-2")
    assert leaving(house) == []
    for name in ("one-1", "one-2"):
        end(house, name)


def test_drivers_whose_settings_must_not_differ_are_replaced_together(tmp_path: Path) -> None:
    house = full(tmp_path, 3)
    house.man(stage("one", 3, retries=7))
    assert leaving(house) == ["one-1", "one-2", "one-3"]
    for name in ("one-1", "one-2", "one-3"):
        end(house, name)


def test_restart_of_one_driver_replaces_no_other(tmp_path: Path) -> None:
    house = full(tmp_path, 2)
    assert house.stages.restart("one-2", "r1")
    assert leaving(house) == ["one-2"]
    replace_one(house, "one-2")
    # A reload of the same file, later.
    house.man(stage("one", 2))
    assert leaving(house) == []
    for name in ("one-1", "one-2"):
        end(house, name)


# Those that were there before


def test_board_of_a_process_that_is_gone_or_is_another_adopts_nobody(tmp_path: Path) -> None:
    (tmp_path / "boards").mkdir()
    for number, (pid, ticks) in enumerate([(0, 0), (os.getpid(), 1), (2**22 + 1, 7)], 1):
        name = f"{driver_ids.driver_id('rose', 'one', number)}.board"
        Board.create(str(tmp_path / "boards" / name)).sign(pid, ticks)
    (tmp_path / "boards" / "rose-one-4.board").write_text("no board")
    (tmp_path / "boards" / "rose-gone-1.board.new").write_text("half a board")
    house = House(tmp_path, stage("one", 4))
    house.stages.dismiss_strangers(100.0)
    assert house.told == []
    assert house.stages.settled


def test_what_was_recovered_where_no_driver_lived_counts_for_its_stage(tmp_path: Path) -> None:
    house = House(tmp_path, stage("one", 1), stage("two", 1))
    (queue,) = house.stages.managed["one"].stage.inputs
    house.view.failed[queue].failed("crashed", discarded=True)
    counted = {name: sum(one.counted.failed) for name, one in house.stages.managed.items()}
    assert counted == {"one": 1, "two": 0}
