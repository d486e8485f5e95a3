"""The stages of a pipeline on this host: which there are, how many drivers each gets, and how they
end. Instants are monotonic, and arguments."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence

from queuedriver.driving.lifetime import end_of, time_left
from queuedriver.format.units import format_count
from watchdogd.balance import complete, move, moved
from watchdogd.children import END_TAKES, climb_takes
from watchdogd.driver_ids import slots_with_boards
from watchdogd.events import Kind
from watchdogd.helper import StageInputs
from watchdogd.host import physical_memory, processors
from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.report import StageReport
from watchdogd.sizes import Load, Room, coming, sizes
from watchdogd.slot import Slot
from watchdogd.stage_drivers import Context, StageDrivers, Starts, ends_within
from watchdogd.template import CLEANING_TAKES
from watchdogd.throughput import Throughput

# Drivers that are started in one turn of the loop, which hears nothing meanwhile.
_STARTS = 8
# Drivers that start at once on a host: so many for each of its processors, or as many as in a turn.
_STARTS_EACH = 2
# What an intake does that has files which settle, or has not looked yet.
_TAKING = ("starting", "busy", "backoff", "waiting-fs")
# How soon it is seen that one of them is ready, for the next, in seconds.
_SOON = 0.1
# How many looks in a row must see all stages drained: what one look does not see in one queue may
# have come there from another that was looked at before.
_LOOKS = 2
# How soon a look that saw nothing left is followed by the next, in seconds.
_LOOK_AGAIN = 0.1
# At the end: how long the helper may take for its last look, then the commands of `on_event`, and
# then a terminal that stands still for the last words, in seconds.
LAST_LOOK = 5.0
LAST_COMMANDS = 10.0
LAST_WORDS = 5.0


def leaving_takes(stages: Iterable[Stage]) -> float:
    """Return the seconds that a watchdog with these stages may take to end, once it is told to
    leave: each stage leaves when the one before has gone, and the worst driver of each climbs the
    whole ladder."""
    takes = 0.0
    for stage in stages:
        takes += ends_within(stage)
        if stage.preload:
            # What drivers were forked from stays for as long as they do.
            takes += CLEANING_TAKES + climb_takes("terminate")
    # Orphans are ended before the last look, and again when all the rest is over.
    return takes + END_TAKES + LAST_LOOK + LAST_COMMANDS + END_TAKES + LAST_WORDS


class Stages:
    """The stages of a watchdog, by name and in the order of the file."""

    def __init__(self, pipeline: Pipeline, context: Context) -> None:
        self.pipeline = pipeline
        # What all drivers together may take, as of when the file was read.
        self.room = Room()
        # All are to leave at once, not one stage after the other.
        self.hurried = False
        self.context = context
        self._view = context.view
        self._say = context.say
        # By name, in the order of the file; then those that it no longer has, until their drivers
        # have left.
        self._all: dict[str, StageDrivers] = {}
        # What the watchdog before this one said last of its stages, by name.
        self.before: Mapping[str, StageReport] = {}
        # What was told of how many drivers operators want instead of what the file says.
        self._told_asked: dict[str, int | None] = {}
        # How many drivers the balancer gives each stage; empty before the first look.
        self._split: dict[str, int] = {}
        self._moved_at = -math.inf
        # What was told of each stage.
        self._told: dict[str, list[tuple[Kind, str]]] = {}

    # All of them

    @property
    def everyone(self) -> list[StageDrivers]:
        """Return the drivers of all stages, of those that are parting, too."""
        return list(self._all.values())

    @property
    def managed(self) -> dict[str, StageDrivers]:
        """Return the drivers of the stages that the file has, by name."""
        return {name: one for name, one in self._all.items() if not one.parting}

    @property
    def slots(self) -> list[Slot]:
        """Return all slots; of stages that are parting, those whose drivers have not left."""
        return [
            slot
            for one in self._all.values()
            for slot in (one.living if one.parting else one.slots)
        ]

    @property
    def fds(self) -> list[int]:
        """Return the descriptors to poll: one is readable when a driver has come."""
        return [fd for one in self.everyone for fd in one.templates.fds]

    @property
    def settled(self) -> bool:
        """Return whether nothing runs any more, nor is about to."""
        return all(one.settled for one in self.everyone)

    @property
    def inputs(self) -> list[StageInputs]:
        """Return what is known of the queues of all stages; workers have what their broker deals,
        and no queues."""
        return [one.inputs for one in self.managed.values() if one.stage.inputs]

    @property
    def intakes(self) -> list[StageDrivers]:
        """Return those that bring documents from folders."""
        return [one for one in self.managed.values() if one.stage.intake is not None]

    @property
    def taking(self) -> bool:
        """Return whether intakes may bring more by and by, for all that is known."""
        slots = [slot for one in self.intakes for slot in one.slots if slot.wanted]
        return any(slot.rest.state in _TAKING for slot in slots)

    @property
    def done(self) -> bool:
        """Return whether everything is through."""
        return self.context.finished or all(one.done for one in self.inputs)

    @property
    def time_left(self) -> float:
        """Return the seconds until all drivers are to give back what they have at hand."""
        until = self.context.until
        return math.inf if until is None else time_left(until, time.time())

    @property
    def out_of_time(self) -> str:
        """Return why no driver lives, and none will begin: the time of all is up, or will be before
        anything is done; "" while that is not so."""
        if self.time_left <= 0 and self.context.until is not None:
            return end_of(self.context.until)
        whys = [one.late for one in self.managed.values()]
        return whys[0] if whys and all(whys) and self.settled else ""

    @property
    def alive(self) -> list[Stage]:
        """Return the stages of which something runs, or is about to, each as those have it that may
        take longest to leave."""
        return [
            max((one.stage, *(slot.run.stage for slot in one.slots if slot.run)), key=ends_within)
            for one in self.everyone
            if not one.settled
        ]

    def reap(self, now: float) -> int:
        """Take note of drivers that have come or ended; return how many have ended."""
        return sum(one.reap(now) for one in self.everyone)

    def turn(self, now: float, elapsed: float, fs_ok: bool) -> float:
        """Look at every driver and do what is to be done; return when the next turn is due."""
        self._resize(now, balancing=fs_ok and not self.context.leaving)
        at_once = max(_STARTS, _STARTS_EACH * processors())
        starts = Starts(_STARTS, at_once - sum(one.starting for one in self.everyone))
        due = [one.turn(now, elapsed, fs_ok, starts) for one in self.everyone]
        if self.hurried:
            due += [slot.hurry(now) for slot in self.slots if slot.run is not None]
        if starts.put_off:
            due.append(now + (_SOON if starts.in_turn else 0.0))
        for name in [name for name, one in self._all.items() if one.parting and one.settled]:
            del self._all[name]
        self._tell_changes()
        return min(due, default=math.inf)

    def _tell_changes(self) -> None:
        """Tell what a stage is now, and was not when it was last told."""
        told, self._told = self._told, {name: one.news for name, one in self.managed.items()}
        for name, news in self._told.items():
            before = {kind for kind, _ in told.get(name, ())}
            for kind, message in news:
                if kind not in before:
                    self._say(kind, message, stage=name)
            if {"paused", "stage-tripped"} & (before - {kind for kind, _ in news}):
                self._say("resumed", stage=name)

    def restart(self, target: str, serial: str) -> bool:
        """Replace the drivers of a stage, one of them, or (empty) all; return whether there are
        any of this name, as far as that is known."""
        # Before the first look nobody knows how many there are to be.
        known = not (target and self._split)
        for name, drivers in self.managed.items():
            whole = target in ("", name)
            slots = [slot for slot in drivers.slots if slot.name == target]
            if whole or slots:
                drivers.restart(serial, None if whole else slots)
                known = True
        return known

    @property
    def hopeless(self) -> str:
        """Return which stage can never go on by itself, and why; empty while there is none."""
        for name, drivers in self.managed.items():
            wanted = [slot for slot in drivers.slots if slot.wanted]
            if not drivers.done and wanted and all(slot.hopeless for slot in wanted):
                return f"stage {name}: {wanted[0].past.why}"
        return ""

    @property
    def abandoned(self) -> list[str]:
        """Return the queues with claims that no driver here may recover soon."""
        return [
            queue
            for drivers in self.managed.values()
            if drivers.unattended
            for queue in drivers.stage.inputs
            if (seen := self._view.queues.get(queue)) is not None and (seen.working or seen.written)
        ]

    # Which there are

    def set_stages(self, pipeline: Pipeline, now: float) -> None:
        """Keep the stages of a pipeline, and let the drivers of others leave."""
        before = self._all
        # First of all what may fail: then nothing has changed.
        new = {
            stage.name: self._new(stage, pipeline, now)
            for stage in pipeline.stages
            if stage.name not in before
        }
        for stage in pipeline.stages:
            if (old := before.get(stage.name)) is not None:
                old.parting = False
                old.change(stage, pipeline)
        every = {**before, **new}
        self._all = {stage.name: every.pop(stage.name) for stage in pipeline.stages}
        for drivers in every.values():
            drivers.parting = True
        self._all |= every
        self.pipeline = pipeline
        memory, host = physical_memory(), pipeline.host
        self.room = Room(memory=min(host.memory or memory, memory), cpus=host.cpus)

    def _new(self, stage: Stage, pipeline: Pipeline, now: float) -> StageDrivers:
        drivers = StageDrivers(stage, pipeline, self.context)
        if (before := self.before.get(stage.name)) is not None:
            drivers.pace = Throughput(before.processing, before.hard_limit)
        drivers.pace.follow(stage)
        drivers.adopt_living(now)
        return drivers

    def dismiss_strangers(self, now: float) -> None:
        """Let drivers of an earlier watchdog leave whose stages the file no longer has."""
        there = dict(slots_with_boards(self.context.local, self.context.host))
        for name in [name for name in there if name not in self._all]:
            # That it has drivers is all that is known of it.
            stage = Stage(
                name=name, inputs=(), outputs=(), drivers=Drivers(0, 0), kind="call", work=""
            )
            drivers = self._new(stage, self.pipeline, now)
            drivers.parting = True
            self._all[name] = drivers

    # How many drivers each has

    def _resize(self, now: float, *, balancing: bool) -> None:
        """Have the stages' sizes be what they are to be by all that is known now."""
        loads, room = self.loads(), self.room
        if self._view.known:
            self._split = complete(self._split, loads, room)
            if balancing:
                self._balance(loads, room, now)
        asked = self._view.controls.scale
        for name, size in sizes(loads, room, self._split).items():
            drivers = self._all[name]
            if asked.get(name) != self._told_asked.get(name):
                more = f"; {size.scarce}" if size.scarce else ""
                words = f"from {drivers.size.drivers} to {size.drivers} drivers{more}"
                self._say("scaled", words, stage=name)
            drivers.resize(size)
        self._told_asked = {name: asked.get(name) for name in self._all}

    def _balance(self, loads: Sequence[Load], room: Room, now: float) -> None:
        """Move one driver to where the work is, if that is worth it."""
        waited, every = now - self._moved_at, self.pipeline.host.rebalance_every
        found = move(loads, room, self._split, waited, every)
        if found is None:
            return
        self._moved_at, self._split = now, moved(self._split, found)
        whence = f" from {found.taken_from}" if found.taken_from else ""
        where = f" to {found.to}" if found.to else ""
        self._say("moved", f"a driver{whence}{where}: {found.why}", stage=found.to or "")

    @property
    def notes(self) -> list[str]:
        """Return what people should know of the numbers of drivers."""
        return [
            f"{name} has {format_count(one.size.drivers, 'driver')}; {one.size.scarce}"
            for name, one in self.managed.items()
            if one.size.scarce
        ]

    def loads(self) -> list[Load]:
        """Return what decides how many drivers each stage is to have."""
        unfinished = {name: one.unfinished for name, one in self._view.queues.items()}
        upstream = coming(self.pipeline, unfinished)
        told, asked = self._unwanted(), self._view.controls.scale
        return [
            one.load(upstream.get(name, 0), asked.get(name), told[name])
            for name, one in self._all.items()
        ]

    def _unwanted(self) -> dict[str, str]:
        """Return why each stage is to have no drivers; empty where it is to have some. They stop
        from the first to the last: what one finishes, the next may still begin."""
        found, turn_of_next = {}, self.context.leaving
        for name, one in self._all.items():
            # Nothing more is to come in.
            is_first = one.stage.intake is not None
            stops = self.context.leaving and (turn_of_next or self.hurried or one.done or is_first)
            found[name] = "parting" if one.parting else "stop" if stops else ""
            turn_of_next = turn_of_next and (one.parting or one.settled)
        return found


class Drain:
    """The end of a watchdog that leaves by itself (`run --drain`): when all is through, or can
    never be. No queue is closed: more may come tomorrow."""

    def __init__(self) -> None:
        # When the helper is to look again.
        self.look_at = math.inf
        # Why it was given up; empty while it was not.
        self.hopeless = ""
        self._looks = 0

    def see(self, stages: Stages, trouble: str, now: float) -> bool:
        """Take note of a look; return whether all is through."""
        inputs = stages.inputs
        nothing_left = all(one.empty for one in inputs) and not (trouble or stages.taking)
        is_drained = all(one.drained for one in inputs) and not stages.taking
        self._looks = self._looks + 1 if is_drained else 0
        over = nothing_left and self._looks >= _LOOKS
        if nothing_left and not over:
            self.look_at = now + _LOOK_AGAIN
        return over
