"""The drivers of one stage on this host: started with what, and replaced when.

A slot is wanted while its number is not above those that the stage's size counts. A driver that was
told other things than it would be now is stale: another takes its place, one at a time, each when
the one before works, or all at once in what must not differ between them. Drivers begin anew, or
(`preload`) as forks of one process that has loaded what they have in common.
"""

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from queuedriver.disk.filesystem import open_fd
from queuedriver.driving.lifetime import OUT_OF_TIME, TimeLeft, time_left
from queuedriver.driving.live_status import Board, Totals
from queuedriver.driving.measurements import Counted
from queuedriver.errors import BUG, ConfigError
from watchdogd.children import Child, Children, Exit, climb_takes, code_of
from watchdogd.driver_ids import board_path, driver_id, slots_with_boards
from watchdogd.driver_orders import Order, StageOrders, encode, keep, read, with_own
from watchdogd.events import Kind, Say
from watchdogd.helper import QueueView, StageInputs
from watchdogd.logs import open_log
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.policy import CRASH_LOOPED, HUNG, is_degraded, leaves_within
from watchdogd.sizes import Load, Size, memory_of
from watchdogd.slot import NO_USAGE, Slot
from watchdogd.stage_words import StageFacts
from watchdogd.template import Templates
from watchdogd.throughput import Throughput

# What took longer to load than this is kept so long when its queues are done, for they may be
# reopened, in seconds.
_DEAR = 1.0
_KEPT = 300.0
COMMAND = (sys.executable, "-P", "-m", "watchdogd.programs.driver")


def ends_within(stage: Stage) -> float:
    """Return the seconds that the worst driver of a stage may take to leave once it is told: the
    grace of its document, and then the whole ladder."""
    return leaves_within(stage.grace) + climb_takes("stacks")


class Context(msgspec.Struct, eq=False):
    """What all stages of one watchdog have in common."""

    host: str
    # The directory of this watchdog on this host.
    local: str
    view: QueueView
    say: Say
    children: Children
    # When all are to be gone, in seconds since the epoch; None: nobody has said so.
    until: float | None = None
    # All are told to leave: nothing is started any more.
    leaving: bool = False
    # A drain is over: nothing is to be done any more, whatever is seen in a queue.
    finished: bool = False


class Starts(msgspec.Struct, eq=False):
    """How many drivers may still be started: in this turn of the loop, which hears nothing
    meanwhile; and at once on this host, beside those that start now."""

    in_turn: int
    at_once: int
    # A driver was not started for want of either.
    put_off: bool = False

    def take(self, *, first: bool) -> bool:
        """Return whether one more driver may be started. The first that starts of its stage does
        not wait for those of other stages, which may take for ever."""
        is_free = self.in_turn > 0 and (first or self.at_once > 0)
        self.in_turn -= is_free
        self.at_once -= is_free
        self.put_off |= not is_free
        return is_free


class StageDrivers:
    """The drivers of one stage."""

    def __init__(self, stage: Stage, pipeline: Pipeline, context: Context) -> None:
        self.slots: list[Slot] = []
        # The file has it no more: it goes when its drivers have left.
        self.parting = False
        self.size = Size()
        self._orders = StageOrders(stage, pipeline, context.host, context.local, context.until)
        self.templates = Templates(self._orders.load, context.local, context.children)
        self.pace = Throughput()
        self._context = context
        # When there last was something to do or to come.
        self._not_done_at = 0.0
        # So many seconds were too few for a document when a driver left for that, and what it said:
        # it may know of more documents than we. A clock that is set back makes them more.
        self._out_of_time = (-math.inf, "")
        # The last slot whose driver was replaced while the others went on.
        self._rolled: Slot | None = None

    @property
    def stage(self) -> Stage:
        """Return the stage as the file has it now."""
        return self._orders.stage

    # How many

    def resize(self, size: Size) -> None:
        """Have a driver in each slot that the size counts, and let the others leave; those that are
        stale leave, too, for another."""
        self.size = size
        self._make_slots(size.slots)
        needed = "done" if self._is_let_go else ""
        for slot in self.slots:
            slot.unwanted = needed if slot.number <= size.slots else size.why
        leaving, self._rolled = _outdated(self.slots, self._rolled)
        for slot in leaving:
            slot.unwanted = "restart"

    @property
    def _is_let_go(self) -> bool:
        """Return whether its queues were done for so long that nobody will reopen them soon."""
        is_dear = bool(self.stage.preload) or (self.pace.startup or 0.0) > _DEAR
        done_for = self._context.view.looked_at - self._not_done_at
        return self.done and done_for >= (_KEPT if is_dear else 0.0)

    def _make_slots(self, count: int) -> None:
        for number in range(len(self.slots) + 1, count + 1):
            order = self._orders.of(number)
            self.slots.append(Slot(self.stage.name, number, order, self._context.say))

    @property
    def living(self) -> list[Slot]:
        """Return those with a process, be it still to come."""
        return [slot for slot in self.slots if slot.run is not None]

    @property
    def unattended(self) -> bool:
        """Return whether what a dead driver left waits for nobody: the living look for it between
        their documents, which may take hours, once they are ready."""
        works = any(slot.works for slot in self.slots)
        return not works or any(slot.leftovers and slot.run is None for slot in self.slots)

    @property
    def settled(self) -> bool:
        """Return whether nothing runs here any more that could be ended, nor is about to."""
        living = any(slot.rest.state != "unkillable" for slot in self.living)
        return not living and self.templates.settled

    # What the queues say

    @property
    def inputs(self) -> StageInputs:
        """Return what is known of its queues by now."""
        return self._context.view.inputs(self._orders.stage.inputs)

    @property
    def done(self) -> bool:
        """Return whether its queues are done and drained, or a drain is over."""
        return self._context.finished or self.inputs.done

    def turn(self, now: float, elapsed: float, fs_ok: bool, starts: Starts) -> float:
        """Look at every driver, and do about it what the policy says; return when to come back."""
        context, stage, due = self._context, self.stage, math.inf
        view, idle = context.view, "stop" if context.leaving else self.facts.without_drivers
        if not self.done:
            self._not_done_at = now
        for slot in self.slots:
            if (run := slot.run) is not None:
                run.usage = view.usage.get(run.child.pid, NO_USAGE)
            before = slot.glimpse
            if (took := slot.look(now, elapsed, fs_ok)) is not None:
                self.pace.started(took)
            # What drivers that leave soon take says nothing of those to come.
            glimpse = slot.glimpse
            if glimpse.totals.documents != before.totals.documents and not slot.is_stale:
                self.pace.learn(before, glimpse, now)
            # One that left as it was told may know more than the look before; one that crashed not.
            knows_more = slot.past.state == "stopped" and slot.ended_at >= view.looked_at
            why_idle = idle or (slot.past.why if knows_more else "")
            seen = slot.seen(self.pace.limit_of(glimpse.docid), fs_ok, why_idle)
            due = min(due, slot.follow(seen, now))
            if slot.run is None and slot.rest.state == "starting":
                self._start(slot, now, starts)
                # What could not even be started is over by now, and is tried again later.
                self._take_end(slot, now)
        if self.pace.is_due(now):
            totals = self.totals
            spent = (totals.work + totals.overhead) / 1e9
            self.pace.count(now, totals.documents + totals.failed, spent)
        wanted = [slot for slot in self.slots if slot.wanted and not idle]
        # Drivers of it that live will be replaced one day; without any, the next start loads it.
        again = fs_ok and any(slot.run is not None for slot in wanted)
        needed = bool(wanted or self.living)
        # Last: why one could not load is for those that were to be forked from it.
        return min(due, self.templates.tend(stage, now, needed=needed, again=again))

    @property
    def starting(self) -> int:
        """Count the drivers that have begun and are not ready."""
        return sum(slot.is_starting for slot in self.slots)

    def _start(self, slot: Slot, now: float, starts: Starts) -> None:
        """Start a driver, or let it wait for its turn. What cannot be started has ended at once."""
        order, board, template = slot.next_order, None, None
        try:
            if self.templates.load is not None:
                template = self.templates.free(self.stage, now)
                if template is None:
                    return
            if not starts.take(first=not self.starting):
                return
            os.makedirs(os.path.dirname(order.board), mode=0o700, exist_ok=True)
            board = Board.create(order.board)
            keep(self._context.local, order)
            if template is not None:
                child = template.fork(encode(order), now)
            else:
                child = _start_anew(self._context.children, order)
        except (OSError, ConfigError) as error:
            # A board of another version that could not be replaced is none of ours, either.
            child = Child()
            child.failure = f"it cannot be started: {error}"
            child.exit = Exit(code=code_of(error) if isinstance(error, OSError) else BUG)
        slot.begin(child, board, self.stage, now)

    # End

    def reap(self, now: float) -> int:
        """Take note of drivers that have come, and of those that have ended; return how many."""
        self.templates.receive(now)
        return sum(self._take_end(slot, now) for slot in self.slots)

    def _take_end(self, slot: Slot, now: float) -> bool:
        run = slot.run
        if run is None or (ended := run.child.exit) is None:
            return False
        life = slot.died(ended, self.stage, now)
        until = self._context.until
        # One that was adopted has the time that an earlier watchdog was given.
        if life and life.word == OUT_OF_TIME and until is not None and run.order.until == until:
            self._out_of_time = time_left(until, time.time()), life.why
        if life and life.ended_for == HUNG and run.stage.timeout == "auto":
            self.pace.was_late(run.glimpse.docid)
        return True

    # Those that lived before this watchdog did

    def adopt_living(self, now: float) -> None:
        """Take over the drivers of an earlier watchdog that are still there. Those that outlive a
        watchdog are ours from now on; the others leave, and their slots are theirs until then."""
        for number, child, board in _find(self._context, self.stage.name):
            self._make_slots(number)
            slot = self.slots[number - 1]
            order = read(self._context.local, slot.next_order.id)
            slot.adopt(child, board, order, self.stage, now)
            if order is None or not order.parent:
                # How many there are to be is not known before the first look.
                slot.unwanted = ""

    # Other orders

    def restart(self, serial: str, slots: list[Slot] | None = None) -> None:
        """Replace drivers, one at a time; those that were given up get another chance at once. With
        all of them (None) what they share is loaded anew."""
        if slots is None:
            self._orders.restart = serial
            self.templates.load = self._orders.load
        for slot in self.slots if slots is None else slots:
            slot.forget()
            slot.next_order = self._orders.of(slot.number, serial)

    def change(self, stage: Stage, pipeline: Pipeline) -> None:
        """Take what the file says of this stage now. Only drivers whom that concerns are stale."""
        orders = self._orders
        self.pace.follow(stage)
        orders.stage, orders.pipeline = stage, pipeline
        self.templates.load = orders.load
        for slot in self.slots:
            if slot.run is not None:
                slot.run.stage = with_own(slot.run.stage, stage)
            order = orders.of(slot.number, slot.next_order.restart)
            if order != slot.next_order:
                slot.next_order = order
                slot.forget()
            elif slot.past.state == CRASH_LOOPED:
                # It gets another chance: what was mended may be elsewhere.
                slot.forget()

    # Facts

    @property
    def facts(self) -> StageFacts:
        """Return what holds of this stage."""
        inputs = self.inputs
        return inputs.facts._replace(
            parting=self.parting,
            degraded=self.degraded,
            paused=inputs.facts.paused or self._context.view.controls.paused,
            done=self.done,
            late=self.late,
        )

    @property
    def late(self) -> str:
        """Return why what a driver would begin now would not be done in time; "" while it would."""
        stage, until = self.stage, self._context.until
        if until is None:
            return ""
        too_few, why = self._out_of_time
        if time_left(until, time.time()) <= too_few:
            return why
        known = TimeLeft(until, None if stage.timeout == "auto" else stage.timeout, stage.grace)
        known.learn(self.pace.durations)
        return known.over(time.time(), self.pace.startup or 0.0)

    @property
    def degraded(self) -> str:
        """Return why so few drivers are left that people should know; empty while it is well."""
        if stuck := self.templates.stuck:
            return stuck
        looped = [slot for slot in self.slots if slot.rest.state == CRASH_LOOPED and slot.wanted]
        # Mostly there is none, and this is asked several times a turn.
        if looped and is_degraded(len(looped), sum(slot.wanted for slot in self.slots)):
            return looped[0].rest.why
        return ""

    @property
    def news(self) -> list[tuple[Kind, str]]:
        """Return what people should be told of the stage itself, once."""
        found = self.facts.news
        if late := self.inputs.late:
            path = self._orders.pipeline.path(late)
            words = "which is closed: they are processed; if more is to come, queuedriver reopen"
            found.append(("closed-queue", f"documents came into {path}, {words} {path}"))
        return found

    def load(self, coming: int, asked: int | None, unwanted: str) -> Load:
        """Return what decides how many drivers this stage is to have."""
        stage = self.stage
        measured = None if asked is None else max((slot.memory for slot in self.slots), default=0)
        has_work = self.facts.has_work
        return Load(
            stage=stage.name,
            known=None not in self.inputs.seen,
            backlog=self.inputs.backlog if has_work else 0,
            coming=coming if has_work else 0,
            service=self.pace.service,
            startup=self.pace.startup or 0.0,
            min=stage.drivers.min,
            max=stage.drivers.max,
            asked=asked,
            unwanted=unwanted,
            alive=len(self.living),
            last=max((slot.number for slot in self.living if slot.wanted), default=0),
            stuck=tuple(slot.number for slot in self.living if slot.rest.state == "unkillable"),
            memory=memory_of(stage, measured),
            cpus=stage.cpus,
        )

    @property
    def totals(self) -> Totals:
        """Of all drivers of this stage on this host, since the watchdog runs."""
        return Totals(*map(sum, zip(*(slot.totals for slot in self.slots), strict=True)))

    @property
    def counted(self) -> Counted:
        """Return what all its drivers on this host have counted since the watchdog runs, and what
        was recovered of them where none lived."""
        failed = self._context.view.failed
        every = [failed[name].counted for name in self.stage.inputs if name in failed]
        every += [slot.counted for slot in self.slots]
        # All in one sum: there are hundreds of numbers.
        rows = (one.numbers for one in every or [Counted()])
        return Counted.of([sum(numbers) for numbers in zip(*rows, strict=True)])

    @property
    def starts(self) -> dict[str, int]:
        """Count the starts of its drivers, by how the runs before had ended."""
        return dict(sum((slot.starts_after for slot in self.slots), Counter[str]()))


def _start_anew(children: Children, order: Order) -> Child:
    """Start a driver that loads everything itself."""
    # The last word is for people who list processes.
    argv, environ = (*COMMAND, order.name), {**os.environ, **order.stage.env}
    with open_fd(open_log(order.log, order.stage.log_size, order.stage.log_keep)) as log:
        # Until it has signed its board: nobody could find it any more.
        return children.start(argv, environ, order=encode(order), output=log, tied=True)


def _find(context: Context, stage: str) -> Iterator[tuple[int, Child, Board]]:
    """Yield the drivers of a stage that an earlier watchdog has started, and that live."""
    there = slots_with_boards(context.local, context.host)
    for number in [number for name, number in there if name == stage]:
        try:
            path = board_path(context.local, driver_id(context.host, stage, number))
            board = Board.open(path)
        except (OSError, ConfigError):
            continue
        glimpse = board.read()
        child = context.children.adopt(glimpse.pid, glimpse.ticks) if glimpse.pid else None
        if child is None:
            board.close()
        else:
            yield number, child, board


def _outdated(slots: Sequence[Slot], rolled: Slot | None) -> tuple[list[Slot], Slot | None]:
    """Return the stale drivers that are to leave now, and the slot that was rolled last: one at a
    time, each when the one before has a successor that works; and all at once when drivers must not
    differ so."""
    # One that cannot be killed would be waited for as long as the kernel waits.
    mortal = [slot for slot in slots if slot.wanted and slot.rest.state != "unkillable"]
    stale = [slot for slot in mortal if slot.is_stale]
    if any(slot.run and slot.run.order.settled != slot.next_order.settled for slot in stale):
        return stale, rolled
    if rolled is not None and rolled in mortal and (rolled.is_stale or not rolled.works):
        return [rolled] if rolled.is_stale else [], rolled
    return stale[:1], stale[0] if stale else None
