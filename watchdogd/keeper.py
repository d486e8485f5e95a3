"""Keeps the drivers of one stage on this host: how many, which of them, and with what.

A slot is wanted while its number is not above those that the stage's size counts. Drivers that are
to be replaced leave one at a time, each when the one before works again.
"""

import time
from collections import deque
from collections.abc import Mapping

from watchdogd import places
from watchdogd.adoption import find
from watchdogd.children import Children, Exit
from watchdogd.events import Kind
from watchdogd.messages import QueueSeen
from watchdogd.nursery import Born, Nursery, Stillborn
from watchdogd.orders import Order, order_of, read
from watchdogd.pace import SECOND_CHANCE, Pace
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.policy import HUNG, degraded, hard_limit
from watchdogd.sizes import Load, Size, memory_of
from watchdogd.slot import Slot, Tell, Totals
from watchdogd.stage_words import StageFacts, stage_facts

_LATER, _CONFIG = 75, 78
# Of a driver that has none declared and is not there to be measured: a process of Python has more.
_LEAST_MEMORY = 20_000_000
# Documents that were ended for being late: more of them than a stage ever has at a time.
_REMEMBERED = 1000
# What took longer to load than this is kept so long when its queues are done, for they may be
# reopened, in seconds.
_DEAR = 1.0
_KEPT = 300.0
# After a change that all drivers of a queue must agree on: longer than those of other hosts have.
_SETTLING = 60.0


class Starts:
    """How many drivers may still be started in this turn of the loop."""

    def __init__(self, left: int) -> None:
        self.left = left
        # A driver would have been started, had there been any left.
        self.put_off = False


class Keeper:
    """The drivers of one stage."""

    def __init__(
        self,
        stage: Stage,
        pipeline: Pipeline,
        host: str,
        local: str,
        tell: Tell,
        children: Children,
    ) -> None:
        self.stage = stage
        self.slots: list[Slot] = []
        # The file has it no more: it goes when its drivers have left.
        self.parting = False
        self.size = Size()
        # A closed queue of it into which something was copied.
        self.late = ""
        # Its inputs are done and drained, or a drain is over.
        self.done = self._finished = False
        # What the last look saw of its inputs: no item; none for the second time.
        self.empty = self.drained = False
        self._pipeline = pipeline
        self._host = host
        self._local = local
        self._tell = tell
        self._children = children
        self._work = True
        # When the latest look was, and the latest that saw something to do or to come.
        self._looked_at = self._not_done_at = 0.0
        # The latest look at its inputs; None: not seen yet.
        self._seen: list[QueueSeen | None] = []
        self._paused = False
        # The documents that the learned limit has ended.
        self._second_chances: deque[str] = deque(maxlen=_REMEMBERED)
        self.pace = Pace()
        self._nursery = Nursery(stage, pipeline, local, children)
        self._unsettled_until = 0.0
        # The last slot whose driver was replaced while the others went on.
        self._rolled: Slot | None = None

    # How many

    def resize(self, size: Size) -> None:
        """Have a driver in each slot that the size counts, and let the others leave; those that are
        stale leave, too, for another."""
        self.size = size
        self._make_slots(size.slots)
        needed = "done" if self._is_let_go else ""
        for slot in self.slots:
            slot.unwanted = needed if slot.number <= size.slots else size.why
        for slot in self._outdated():
            slot.unwanted = "restart"

    @property
    def _is_let_go(self) -> bool:
        """Whether its queues were done for so long that nobody will reopen them soon."""
        is_dear = bool(self.stage.preload) or (self.pace.startup or 0.0) > _DEAR
        return self.done and self._looked_at - self._not_done_at >= (_KEPT if is_dear else 0.0)

    def _outdated(self) -> list[Slot]:
        """Return the stale drivers that are to leave now: one at a time, each when the one before
        has a successor that works; and all at once when drivers must not differ so."""
        stale = [slot for slot in self.slots if slot.wanted and slot.is_stale]
        if any(slot.order.settled != slot.next_order.settled for slot in stale):
            return stale
        rolled = self._rolled
        if rolled is not None and rolled.wanted and (rolled.is_stale or not _works(rolled)):
            return [rolled] if rolled.is_stale else []
        self._rolled = stale[0] if stale else None
        return stale[:1]

    def _make_slots(self, count: int) -> None:
        for number in range(len(self.slots) + 1, count + 1):
            self.slots.append(Slot(self.stage.name, number, self._order(number), self._tell))

    def _order(self, number: int, restart: str = "") -> Order:
        """Return what a driver in this slot is told now."""
        name = self.stage.name
        return order_of(
            self.stage,
            self._pipeline,
            self._local,
            places.driver_id(self._host, name, number),
            places.short_name(name, number),
            restart,
        )

    @property
    def living(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.process is not None]

    @property
    def unattended(self) -> bool:
        """Whether what a dead driver left waits for nobody: the living look for it between their
        documents, which may take hours."""
        return not self.living or any(
            slot.leftovers and slot.process is None for slot in self.slots
        )

    @property
    def settled(self) -> bool:
        """Whether nothing runs here any more that could be ended, nor is about to."""
        living = any(slot.rest.state != "unkillable" for slot in self.living)
        coming = any(slot.coming for slot in self.slots)
        return not (living or coming) and self._nursery.settled

    # What the queues say

    def learn(self, queues: Mapping[str, QueueSeen], paused: bool, now: float) -> None:
        """Take the latest look at the inputs; `paused`: the whole pipeline is."""
        self._paused = paused
        self._seen = [queues.get(name) for name in self.stage.inputs]
        seen = [one for one in self._seen if one is not None]
        self._looked_at = now
        # A look from before a reload does not know of every queue.
        all_seen = len(seen) == len(self.stage.inputs) > 0
        self.empty = all_seen and not any(one.unfinished for one in seen)
        self.drained = all_seen and all(one.drained for one in seen)
        self.done = self._finished or (self.drained and all(one.done for one in seen))
        if not self.done:
            self._not_done_at = now
        late = (name for name in self.stage.inputs if name in queues and queues[name].late)
        self.late = next(late, "")
        self._work = self.facts.has_drivers

    def finish(self) -> None:
        """Start nothing any more: a drain is over."""
        self._finished = self.done = True
        self._work = False

    def _hard_limit(self, slot: Slot) -> float | None:
        """Return how long what it has at hand may take; that may be large, and then it did not hang
        but needs longer."""
        hard = hard_limit(self.stage, self.pace.hard_limit)
        if hard is None or slot.glimpse.docid not in self._second_chances:
            return hard
        return hard * SECOND_CHANCE

    def _has_work(self, slot: Slot) -> bool:
        # One that left as it was told may know more than the look before; one that crashed not.
        told = slot.past.state == "stopped"
        return self._work and not (told and slot.ended_at >= self._looked_at)

    # Turn

    def turn(self, now: float, elapsed: float, fs_ok: bool, starts: Starts) -> float | None:
        """Look at every driver, and do about it what the policy says; return when to come back."""
        nursery_due = self._nursery.due_at(now)
        due = [] if nursery_due is None else [nursery_due]
        for slot in self.slots:
            before = slot.glimpse
            if (took := slot.look(now, elapsed, fs_ok)) is not None:
                self.pace.started(took)
            self.pace.learn(before, slot.glimpse, now)
            if slot.process is None and slot.wanted and not starts.left:
                starts.put_off = True
                continue
            seen = slot.seen(self._hard_limit(slot), fs_ok, self._has_work(slot))
            until = slot.follow(self.stage, seen, now, lambda slot: self._start(slot, starts))
            if until is not None:
                due.append(until)
        if not self.living and not (self._work and any(slot.wanted for slot in self.slots)):
            self._reload_nursery(now)
        totals = self.totals
        spent = (totals.work + totals.overhead) / 1e9
        self.pace.count(now, totals.documents + totals.failed, spent)
        return min(due, default=None)

    # Restart

    def restart(self, serial: str, slots: list[Slot] | None = None) -> None:
        """Replace drivers, one at a time; those that were given up get another chance at once. With
        all of them (None) what they share is loaded anew."""
        if slots is None:
            self._nursery.restart(serial, time.monotonic())
        for slot in self.slots if slots is None else slots:
            slot.forget()
            slot.next_order = self._order(slot.number, serial)

    # Start

    def _start(self, slot: Slot, starts: Starts) -> None:
        starts.left -= 1
        now = time.monotonic()
        slot.order = slot.next_order
        outcome = self._nursery.start(slot.order, now)
        if outcome is None:
            slot.coming = True
        else:
            self._take(slot, outcome, now)

    def _reload_nursery(self, now: float) -> None:
        """Let go of what is loaded; the next start loads it anew."""
        self._nursery.stop(now)
        for slot in self.slots:
            slot.coming = False

    def _take(self, slot: Slot, outcome: Born | Stillborn, now: float) -> None:
        if isinstance(outcome, Born):
            slot.born(outcome.process, outcome.board, now)
        else:
            slot.not_born(outcome.why, outcome.exit_code, self.stage, now)

    # End

    def reap(self, now: float) -> int:
        """Take note of drivers that have come, and of those that have ended; how many have."""
        count = 0
        for outcome in self._nursery.receive(now):
            slot = next(slot for slot in self.slots if slot.name == outcome.name)
            self._take(slot, outcome, now)
        for slot in self.slots:
            if slot.process is None or (ended := slot.process.exit) is None:
                continue
            if ended.code == _CONFIG and now < self._unsettled_until:
                # Its settings differ from those that drivers of another host still have.
                ended = Exit(code=_LATER)
            life = slot.died(ended, self.stage, now)
            if life.ended_for == HUNG and self.stage.timeout == "auto":
                self._second_chances.append(slot.glimpse.docid)
            count += 1
        return count

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when a fork has come."""
        return self._nursery.fds

    @property
    def shared_memory(self) -> int:
        """Bytes that its drivers have in common."""
        return self._nursery.shared_memory

    # Those that lived before this watchdog did

    def adopt_living(self, now: float) -> None:
        """Drivers of an earlier watchdog that are still there. With adoption they are ours from now
        on; else they leave, and their slots are theirs until they have."""
        for number, process, board in find(
            self._children, self._local, self._host, self.stage.name
        ):
            self._make_slots(number)
            slot = self.slots[number - 1]
            order = read(self._local, slot.driver)
            slot.adopted(process, board, order, now)
            if not slot.order.parent:
                # How many there are to be is not known before the first look.
                slot.unwanted = ""

    # Reload

    def unsettle(self, until: float) -> None:
        """Until then its queues may have drivers with other settings, which are about to leave."""
        self._unsettled_until = max(self._unsettled_until, until + _SETTLING)

    def change(self, stage: Stage, pipeline: Pipeline, now: float) -> None:
        """What the file says of this stage now. Drivers are replaced only when that concerns them,
        and all at once only when they must not differ in it."""
        old, settled = self.stage, self._order(0).settled
        self.stage, self._pipeline = stage, pipeline
        self.done = self.done and old.inputs == stage.inputs
        self._nursery.renew(stage, pipeline, now)
        if self._order(0).settled != settled:
            self.unsettle(now + old.grace)
        for slot in self.slots:
            order = self._order(slot.number, slot.next_order.restart)
            # Those that were given up get another chance: what was mended may be elsewhere.
            if order != slot.next_order or slot.past.state == "crash-looped":
                slot.forget()
            slot.next_order = order

    # Facts

    @property
    def facts(self) -> StageFacts:
        """Return what holds of this stage."""
        return stage_facts(
            self._seen,
            parting=self.parting,
            degraded=self.degraded,
            paused=self._paused,
            done=self.done,
        )

    @property
    def degraded(self) -> str:
        """Why so few drivers are left that people should know; empty while it is well."""
        wanted = [slot for slot in self.slots if slot.wanted]
        if not degraded([slot.rest.state for slot in wanted]):
            return ""
        return next(slot.rest.why for slot in wanted if slot.rest.state == "crash-looped")

    @property
    def news(self) -> list[tuple[Kind, str]]:
        """What people should be told of the stage itself, once."""
        found: list[tuple[Kind, str]] = []
        facts = self.facts
        if facts.degraded:
            found.append(("degraded", facts.degraded))
        if facts.paused:
            found.append(("paused", ""))
        if facts.tripped:
            found.append(("stage-tripped", facts.tripped))
        if facts.done:
            found.append(("drained", ""))
        if self.late:
            path = self._pipeline.path(self.late)
            words = "which is closed: they are processed; if more is to come, queuedriver reopen"
            found.append(("closed-queue", f"documents came into {path}, {words} {path}"))
        if self._nursery.note:
            found.append(("note", self._nursery.note))
        return found

    def load(
        self, queues: Mapping[str, QueueSeen], coming: int, asked: int | None, unwanted: str
    ) -> Load:
        """Return what decides how many drivers this stage is to have."""
        stage = self.stage
        first, more = memory_of(stage)
        if asked is not None and not more:
            # The file need not say what a driver takes; but whoever asks for more than it says is
            # bound by what is there to be measured.
            first = more = max(_LEAST_MEMORY, max((slot.memory for slot in self.slots), default=0))
        seen = [queues[name] for name in stage.inputs if name in queues]
        has_work = self.facts.has_work
        backlog = sum(one.working + (0 if one.paused else one.waiting) for one in seen)
        there = [slot for slot in self.slots if slot.process is not None or slot.coming]
        return Load(
            stage=stage.name,
            backlog=backlog if has_work else 0,
            coming=coming if has_work else 0,
            service=self.pace.service,
            startup=self.pace.startup or 0.0,
            min=stage.drivers.min,
            max=stage.drivers.max,
            asked=asked,
            unwanted=unwanted,
            alive=len(there),
            last=max((slot.number for slot in there if slot.wanted), default=0),
            stuck=tuple(slot.number for slot in there if slot.rest.state == "unkillable"),
            memory=first,
            memory_more=more,
            cpus=stage.cpus,
        )

    @property
    def totals(self) -> Totals:
        """Of all drivers of this stage on this host, since the watchdog runs."""
        sums = [sum(one) for one in zip(*(slot.totals for slot in self.slots), strict=True)]
        return Totals(*sums)


def _works(slot: Slot) -> bool:
    return slot.process is not None and bool(slot.glimpse.ready_at)
