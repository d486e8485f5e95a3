"""One driver's place: the facts it gathers, what it asks, and what it remembers. The processes are
real, and do nothing; the tests write their boards."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queuedriver.disk.runtime import read_ending, stacks_file
from queuedriver.driving.live_status import Board, Counting, Totals
from tests.children import end_of
from tests.waiting import until
from watchdogd.children import Child, Children, Exit, Rung
from watchdogd.driver_orders import Order, StageOrders, decode, encode
from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.policy import HUNG, LATE, MEMORY, Past, Seen, leaves_within
from watchdogd.slot import Slot

STAGE = Stage(
    name="one", inputs=("in",), outputs=(), drivers=Drivers(1, 1), kind="call", work="m:f"
)
PIPELINE = Pipeline(name="p", file="/here/p.toml", root="/here/queues", stages=(STAGE,), adopt=True)
IDLE = ("/bin/sleep", "3600")
# Has begun to ignore it once it says so.
DEAF = ("/bin/sh", "-c", "trap '' TERM; : > \"$1\"; while :; do sleep 0.05; done", "sh")
LATER = 1_000_000.0


class Place:
    """A slot, the board of its driver as that driver has it, and what was told."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "rose-one-1.board")
        self.told: list[tuple[str, str]] = []
        # Of what was told last.
        self.more: dict[str, Any] = {}
        order = StageOrders(STAGE, PIPELINE, "rose", str(directory)).of(1)
        self.slot = Slot("one", 1, order, self._say)
        self.slot.unwanted = ""
        self.theirs = Board.create(self.path)
        self.children = Children()
        self.processes: list[Child] = []

    def _say(
        self, kind: str, message: str = "", *, stage: str = "", driver: str = "", **more: Any
    ) -> None:
        assert (stage, driver) == ("one", "one-1")
        self.told.append((kind, message))
        self.more = more

    def live(self, *argv: str, now: float = 100.0, stage: Stage = STAGE) -> None:
        """A driver of this stage begins here."""
        process = self.children.start(argv or IDLE, os.environ)
        self.processes.append(process)
        self.theirs = Board.create(self.path)
        self.slot.begin(process, Board.open(self.path), stage, now)

    def ended(self) -> Exit:
        assert self.slot.run is not None
        process = self.slot.run.child
        self.processes.remove(process)
        return end_of(self.children, process)

    def die(self, now: float = 200.0) -> None:
        self.slot.died(self.ended(), STAGE, now)

    def look(self, now: float, elapsed: float = 1.0, *, fs_ok: bool = True) -> float | None:
        return self.slot.look(now, elapsed, fs_ok)

    def follow(self, now: float, learned: float | None = None, *, fs_ok: bool = True) -> None:
        """Do what is to be done; nothing is started."""
        self.slot.follow(self.slot.seen(learned, fs_ok=fs_ok, idle=""), now)

    def adopt(self, order: Order | None, stage: Stage = STAGE) -> Child:
        """A driver that does nothing is taken over, 100 s after the start of the host."""
        process = self.children.start(IDLE, os.environ)
        self.processes.append(process)
        self.slot.adopt(process, Board.open(self.path), order, stage, 100.0)
        return process

    @property
    def rung(self) -> str:
        assert self.slot.run is not None
        return self.slot.run.child.rung

    @property
    def seen(self) -> Seen:
        return self.slot.seen(None, fs_ok=True, idle="")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for process in place.processes:
        process.signal_group(signal.SIGKILL)
        end_of(place.children, process)


# Lives


def test_driver_that_is_ready_says_how_long_that_took_once(place: Place) -> None:
    place.live(now=100.0)
    assert place.look(101.0) is None
    place.theirs.ready(102.5)
    assert place.look(103.0) == 2.5
    assert place.look(104.0) is None
    assert [kind for kind, _ in place.told] == ["started", "ready"]


def test_totals_go_on_from_life_to_life(place: Place) -> None:
    for _ in range(2):
        place.live()
        place.theirs.count(Totals(1, 5, 2, 3, 4, 6, 7))
        place.look(101.0)
        os.kill(place.processes[0].pid, signal.SIGKILL)
        place.die()
    totals = place.slot.totals
    assert (totals.documents, totals.failed, totals.discarded) == (10, 12, 14)
    assert (totals.work, totals.overhead) == (2, 8)
    assert [kind for kind, _ in place.told] == ["started", "exited", "restarted", "exited"]


def test_what_documents_waited_and_took_outlives_their_drivers_and_starts_are_counted(
    place: Place,
) -> None:
    counting = Counting()
    counting.waited(0.3, 2)
    counting.took([2.0])
    counting.failed("hung", discarded=True)
    for _ in range(2):
        place.live()
        place.theirs.measured(counting.numbers)
        place.look(101.0)
        os.kill(place.processes[0].pid, signal.SIGKILL)
        place.die()
    assert place.slot.counted == counting.counted.plus(counting.counted)
    assert (place.slot.starts, place.slot.starts_after) == (2, {"first": 1, "crashed": 1})


def no_start(place: Place, why: str, code: int) -> None:
    child = Child()
    child.failure, child.exit = why, Exit(code=code)
    place.slot.begin(child, Board.open(place.path), STAGE, 100.0)
    place.slot.died(child.exit, STAGE, 100.0)


def test_start_that_comes_to_nothing_is_told_and_remembered(place: Place) -> None:
    no_start(place, "the module does not import", 78)
    assert place.slot.hopeless
    assert place.told[0] == ("exited", "it did not start: the module does not import")
    assert place.told[1][0] == "crash-looped"
    assert not place.slot.leftovers
    place.slot.forget()
    assert place.slot.past == Past()
    # This time it is no fault of the stage's.
    no_start(place, "fork: Resource temporarily unavailable", 75)
    assert (place.slot.past.state, place.slot.past.unhealthy) == ("backoff", 0)


def test_driver_that_is_told_to_leave_while_it_starts_is_not_told_of_as_if_it_were_amiss(
    place: Place,
) -> None:
    place.live()
    place.slot.unwanted = "stop"
    place.follow(101.0)
    place.die()
    assert place.told[-1] == ("exited", "it was told to leave while it started")
    # A person who sits before it is told of those that a signal has ended.
    assert place.more == {"exit_code": None, "signal": None}


def test_fork_is_told_of_once_it_has_come(place: Place) -> None:
    child = Child()
    place.slot.begin(child, Board.open(place.path), STAGE, 100.0)
    place.look(101.0)
    assert (place.slot.rest.state, place.told) == ("starting", [])
    child.pid = place.children.start(IDLE, os.environ).pid
    place.look(102.0)
    assert place.told == [("started", f"process {child.pid}")]
    place.children.close()


def test_fork_that_is_wanted_no_more_before_it_has_come_is_not_told_of(place: Place) -> None:
    child = Child()
    place.slot.begin(child, Board.open(place.path), STAGE, 100.0)
    place.slot.unwanted = "scale"
    place.follow(101.0)
    assert place.rung == "leave"
    child.exit = Exit(code=0)
    place.slot.died(child.exit, STAGE, 102.0)
    assert (place.told, place.slot.past) == ([], Past())


def test_leftovers_wait_until_somebody_was_ready_who_looks_for_them(place: Place) -> None:
    place.live()
    os.kill(place.processes[0].pid, signal.SIGKILL)
    place.die()
    assert place.slot.leftovers
    place.live()
    place.theirs.left("failed", "no module", 78)
    os.kill(place.processes[0].pid, signal.SIGKILL)
    place.die()
    assert place.slot.leftovers
    place.live()
    place.theirs.ready(100.5)
    place.theirs.left("quit", "", 0)
    os.kill(place.processes[0].pid, signal.SIGKILL)
    place.die()
    assert not place.slot.leftovers


# Whom a life is held against: what was asked last, whether it is wanted again, and what it was that
# made it end → whether the next start waits.


def asked(rung: Rung, why: str) -> Callable[[Place], None]:
    def asked(place: Place) -> None:
        assert place.slot.run is not None
        place.slot.run.child.ask(rung, why, 150.0)

    return asked


def unwanted(why: str) -> Callable[[Place], None]:
    def unwanted(place: Place) -> None:
        place.slot.unwanted = why

    return unwanted


@pytest.mark.parametrize(
    ("before", "unhealthy"),
    [
        ([], 1),
        ([asked("kill", HUNG)], 1),
        ([asked("kill", MEMORY)], 1),
        ([asked("kill", LATE)], 1),
        ([asked("kill", MEMORY), unwanted("scale")], 1),
        ([unwanted("scale"), asked("leave", "scale")], 0),
        ([unwanted("stop"), asked("leave", "scale")], 0),
        ([unwanted("stop"), asked("kill", LATE)], 0),
        ([unwanted("stop"), asked("hurry", "stop")], 0),
        # Scaled down, and up again before it has left.
        ([asked("leave", "scale")], 0),
        ([unwanted("restart"), asked("leave", "scale")], 0),
        ([unwanted("restart"), asked("kill", LATE)], 0),
        ([unwanted("restart"), asked("kill", HUNG)], 1),
    ],
)
def test_only_who_ended_by_fault_of_its_own_is_unhealthy(
    place: Place, before: list[Callable[[Place], None]], unhealthy: int
) -> None:
    place.live()
    for step in before:
        step(place)
    with contextlib.suppress(ProcessLookupError):
        os.kill(place.processes[0].pid, signal.SIGKILL)
    place.die()
    assert place.slot.past.unhealthy == unhealthy


# Facts


def test_hard_limit_stands_still_while_the_file_system_does(place: Place) -> None:
    place.live(now=100.0)
    place.look(100.0)
    # Loading, too.
    place.look(110.0, 10.0, fs_ok=False)
    assert place.slot.seen(None, fs_ok=False, idle="").started_at == 110.0
    place.theirs.ready(111.0)
    place.theirs.began("a", 112.0)
    place.look(113.0)
    place.look(118.0, 5.0, fs_ok=False)
    place.look(121.0, 3.0, fs_ok=False)
    assert place.seen.began_at == 120.0
    # The next document has a clock of its own.
    place.theirs.began("b", 130.0)
    place.look(131.0)
    assert place.seen.began_at == 130.0


def test_no_document_is_blamed_for_the_time_that_the_host_stood_still(place: Place) -> None:
    place.live()
    place.theirs.ready(101.0)
    place.theirs.began("a", 102.0)
    place.look(103.0)
    place.look(3703.0, 3600.0)
    assert place.seen.began_at == 3702.0


def test_memory_is_what_it_has_more_than_at_its_fork(place: Place) -> None:
    place.live()
    place.look(101.0)
    # What is shared is not known yet.
    assert place.slot.memory == 0
    place.theirs.sign(place.processes[0].pid, 1)
    place.look(101.0)
    assert place.slot.memory > 0
    # More than it will ever have: it still grows, just started.
    place.theirs.sign(place.processes[0].pid, 1, shared=1 << 40)
    place.look(105.0)
    assert place.slot.memory == 0


# Asked


def test_hurried_driver_gets_a_second_wish_once_it_has_had_the_first(place: Place) -> None:
    place.live()
    # Not before the policy has asked it to leave.
    assert place.slot.hurry(150.0) == float("inf")
    asked("leave", "scale")(place)
    again = place.slot.hurry(150.1)
    assert 150.1 < again < 151.0
    place.slot.hurry(again)
    assert (place.rung, place.seen.asked_at) == ("hurry", again)
    # Once.
    assert place.slot.hurry(again + 1) == float("inf")


def test_driver_has_its_grace_to_leave_and_then_goes_down_the_ladder(place: Place) -> None:
    place.live()
    place.theirs.ready(101.0)
    place.slot.unwanted = "scale"
    place.look(110.0)
    place.follow(110.0)
    assert (place.rung, place.seen.due_at) == ("leave", 110.0 + leaves_within(STAGE.grace))
    assert place.slot.run is not None
    for rung, kinds in (("stacks", []), ("terminate", []), ("kill", ["killed"])):
        before = len(place.told)
        place.slot.run.child.climb(200.0)
        place.look(201.0)
        place.follow(201.0)
        assert place.rung == rung
        assert place.slot.rest.state == "hung"
        assert [kind for kind, _ in place.told[before:]] == kinds


@pytest.mark.parametrize("next_one", [True, False])
def test_reason_for_its_end_is_noted_and_taken_back_if_it_goes_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_one: bool
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with stacks_file() as dump:
        name = str(dump.name)
        # Stacks are asked for by a signal that ends whoever has not prepared for it.
        place.live(
            "/bin/sh",
            "-c",
            'trap : USR2; : > "$0"; while :; do sleep 0.05; done',
            place.path + ".up",
        )
        until(Path(place.path + ".up").exists)
        place.theirs.stacks_go_to(name)
        place.theirs.ready(101.0)
        place.theirs.began("a", 102.0)
        place.look(140.0)
        place.follow(140.0, learned=30.0)
        assert ("hung", f"{HUNG} with 'a' at hand") in place.told
        ending = read_ending(name)
        assert ending is not None
        assert ending.cause == "hung"
        # Whether or not another document has come by then.
        place.theirs.count(Totals(0, 1, 0, 0, 0, 0, 0))
        if next_one:
            place.theirs.began("b", 151.0)
        place.look(152.0)
        place.follow(152.0, learned=30.0)
        assert place.rung == "run"
        assert read_ending(name) is None


def test_full_runtime_directory_keeps_nobody_from_being_ended(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    place.live(stage=replace(STAGE, max_memory=1))
    place.theirs.stacks_go_to("x.stacks")
    place.look(101.0)
    place.theirs.sign(place.processes[0].pid, 1)
    place.look(102.0)
    place.follow(102.0)
    assert place.ended() == Exit(signal=signal.SIGKILL)
    place.slot.died(Exit(signal=signal.SIGKILL), STAGE, 200.0)


def test_driver_that_was_told_to_leave_is_not_told_again_when_its_hanging_is_over(
    place: Place,
) -> None:
    place.live()
    place.theirs.ready(101.0)
    place.theirs.began("a", 102.0)
    place.slot.unwanted = "scale"
    place.look(120.0)
    for now in (120.0, 140.0):
        place.follow(now, learned=30.0)
    assert place.rung == "stacks"
    # The file system does not answer: that it hangs is no fault of its document.
    place.look(141.0, fs_ok=False)
    place.follow(141.0, learned=30.0, fs_ok=False)
    # A second SIGTERM would take the document away from it; and its time goes on.
    assert (place.rung, place.seen.due_at) == ("leave", 120.0 + leaves_within(STAGE.grace))
    place.follow(141.0, learned=30.0, fs_ok=False)
    assert place.slot.rest.state == "draining"


# What a driver was told, though the file says something else by now


def at_hand(place: Place) -> None:
    place.theirs.sign(place.processes[0].pid, 1)
    place.theirs.ready(101.0)
    place.theirs.began("a", 102.0)
    place.look(103.0)


BEGUN = {"timeout": 60.0, "hard_after": 30.0, "grace": 300.0, "max_memory": 1 << 40}
NOW_IN_FILE = replace(STAGE, timeout=1.0, hard_after=1.0, grace=1.0, max_memory=1)


@pytest.mark.parametrize("adopted", [False, True])
def test_driver_is_judged_by_the_stage_that_it_was_begun_for(place: Place, adopted: bool) -> None:
    stage = replace(STAGE, **BEGUN)
    if adopted:
        place.adopt(StageOrders(stage, PIPELINE, "rose", "/local").of(1), NOW_IN_FILE)
    else:
        place.live(stage=stage)
    at_hand(place)
    place.follow(191.9)
    assert (place.slot.rest.state, place.slot.rest.until) == ("busy", 192.0)
    place.slot.unwanted = "restart"
    place.follow(191.9)
    assert (place.rung, place.seen.due_at) == ("leave", 191.9 + leaves_within(300.0))
    place.follow(192.0)
    assert place.rung == "stacks"


@pytest.mark.parametrize(
    ("begun", "now", "hard"),
    [("auto", "auto", 40.0), ("auto", 1.0, None), (None, 1.0, None), (60.0, "auto", 90.0)],
)
def test_adopted_driver_has_the_time_for_a_document_that_its_order_says(
    place: Place, begun: Any, now: Any, hard: float | None
) -> None:
    told = StageOrders(replace(STAGE, timeout=begun), PIPELINE, "rose", "/local").of(1)
    place.adopt(told, replace(STAGE, timeout=now))
    assert place.slot.seen(40.0, fs_ok=True, idle="").hard == hard


def test_adopted_driver_that_was_to_end_with_its_watchdog_has_the_grace_of_its_order(
    place: Place,
) -> None:
    stage, pipeline = replace(STAGE, **BEGUN), replace(PIPELINE, adopt=False)
    place.adopt(StageOrders(stage, pipeline, "rose", "/local").of(1), NOW_IN_FILE)
    assert (place.rung, place.seen.due_at) == ("leave", 100.0 + leaves_within(300.0))


# Adoption


@pytest.mark.parametrize("parent", [0, 4711])
def test_adopted_driver_counts_from_now_on_and_is_not_told_twice_to_leave(
    place: Place, tmp_path: Path, parent: int
) -> None:
    up = tmp_path / "up"
    process = place.children.start((*DEAF, str(up)), os.environ)
    place.processes.append(process)
    until(up.exists)
    order = replace(place.slot.next_order, parent=parent)
    place.theirs.ready(50.0)
    place.theirs.count(Totals(1, 5, 2, 3, 4, 6, 7))
    counting = Counting()
    counting.waited(0.01, 7)
    place.theirs.measured(counting.numbers)
    place.slot.adopt(process, Board.open(place.path), order, STAGE, 100.0)
    assert place.slot.totals.documents == 0
    place.theirs.count(Totals(1, 8, 2, 3, 4, 6, 7))
    counting.waited(0.01, 2)
    place.theirs.measured(counting.numbers)
    place.look(101.0)
    assert place.slot.totals.documents == 3
    assert place.slot.counted.waits.counts[0] == 2
    assert (place.seen.started_at, place.seen.ready_at) == (50.0, 50.0)
    # The kernel has told one that was to end with its watchdog.
    assert place.rung == ("leave" if parent else "run")
    place.slot.unwanted = "scale"
    place.follow(102.0)
    assert place.rung == "leave"


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ({}, False),
        # Replaced once by a request of an operator: that is no reason to do so again.
        ({"restart": "r1"}, False),
        ({"stage": replace(STAGE, work="other:f")}, True),
        ({"parent": 4711}, True),
    ],
)
def test_adopted_driver_is_stale_when_it_was_told_other_things(
    place: Place, change: dict[str, Any], stale: bool
) -> None:
    place.adopt(decode(encode(replace(place.slot.next_order, **change))))
    assert place.slot.is_stale is stale


def test_adopted_driver_of_which_nobody_knows_what_it_was_told_is_not_stale(place: Place) -> None:
    place.adopt(None)
    assert not place.slot.is_stale


def test_adopted_driver_has_said_itself_how_it_ended(place: Place) -> None:
    process = place.adopt(None)
    place.theirs.left("failed", "its queue is gone", 66)
    process.send(signal.SIGKILL)
    end_of(place.children, process)
    place.processes.remove(process)
    life = place.slot.died(Exit(), STAGE, time.monotonic())
    assert life is not None
    assert (life.word, life.exit_code, life.signal) == ("failed", 66, "")
