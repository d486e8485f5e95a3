"""The stages of a pipeline on this host: who keeps each, and how many drivers it gets."""

import math
from collections.abc import Mapping
from itertools import chain

from msgspec.structs import replace

from queuedriver.format.units import format_count, format_size
from queuedriver.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.adoption import stages_with_boards
from watchdogd.balance import Load, Room, fits, initial, move
from watchdogd.events import Kind, Say
from watchdogd.flow import coming
from watchdogd.host import physical_memory
from watchdogd.keeper import Keeper
from watchdogd.slot import Slot
from watchdogd.snapshot import QueueSeen, Snapshot


class Stages:
    """All drivers of this watchdog. Instants are monotonic, and arguments."""

    def __init__(self, host: str, local: str, say: Say) -> None:
        self.keepers: dict[str, Keeper] = {}
        self._host = host
        self._local = local
        self._say = say
        self._pipeline: Pipeline | None = None
        # Stages that the file no longer has, until their drivers have left.
        self._parting: list[Keeper] = []
        self._queues: Mapping[str, QueueSeen] = {}
        self._moved_at = -math.inf
        # Who gives a driver to whom, while it has not left.
        self._giving: tuple[Keeper, str] | None = None
        # What was told of each stage.
        self._told: dict[str, list[tuple[Kind, str]]] = {}

    # All of them

    @property
    def everyone(self) -> list[Keeper]:
        """Those that are on their way out, too."""
        return [*self.keepers.values(), *self._parting]

    @property
    def slots(self) -> list[Slot]:
        """All there are; of those on their way out, the drivers that have not left."""
        staying = chain.from_iterable(one.slots for one in self.keepers.values())
        return [*staying, *chain.from_iterable(one.living for one in self._parting)]

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when a driver has come, or ended."""
        return list(chain.from_iterable(one.fds for one in self.everyone))

    @property
    def pids(self) -> set[int]:
        return set(chain.from_iterable(one.pids for one in self.everyone))

    @property
    def lives(self) -> set[str]:
        """What all that runs is known by."""
        return set(chain.from_iterable(one.lives for one in self.everyone))

    @property
    def settled(self) -> bool:
        """Whether nothing runs any more, nor is about to."""
        return all(one.settled for one in self.everyone)

    @property
    def done(self) -> bool:
        """Whether everything is through."""
        return all(one.done for one in self.keepers.values())

    @property
    def empty(self) -> bool:
        """Whether the last look saw nothing that is still to be done."""
        return all(one.empty for one in self.keepers.values())

    @property
    def drained(self) -> bool:
        """Whether every queue was seen twice without an item, and unchanged between."""
        return all(one.drained for one in self.keepers.values())

    def finish(self) -> None:
        """Start nothing any more: a drain is over."""
        for one in self.keepers.values():
            one.finish()

    @property
    def grace(self) -> float:
        """How long the documents at hand may take when all are told to leave."""
        return max((one.stage.grace for one in self.everyone), default=0.0)

    def reap(self, now: float) -> int:
        """Take note of drivers that have come, and of those that have ended; how many have."""
        return sum(one.reap(now) for one in self.everyone)

    def turn(self, now: float, elapsed: float, fs_ok: bool) -> float:
        """Look at every driver and do what is to be done; when to come back at the latest."""
        due = [one.turn(now, elapsed, fs_ok) for one in self.everyone]
        self._parting = [one for one in self._parting if not one.settled]
        self._replace_unkillable()
        self._tell_changes()
        return min((at for at in due if at is not None), default=math.inf)

    def _tell_changes(self) -> None:
        """What a stage is now, and was not when it was last told."""
        told, self._told = self._told, {name: one.news for name, one in self.keepers.items()}
        for name, news in self._told.items():
            before = {kind for kind, _ in told.get(name, ())}
            for kind, message in news:
                if kind not in before:
                    self._say(kind, message, stage=name)
            if {"paused", "stage-tripped"} & (before - {kind for kind, _ in news}):
                self._say("resumed", stage=name)

    def _replace_unkillable(self) -> None:
        """What waits in the kernel keeps its memory, its id and its document until it ends; another
        driver does its work meanwhile, if there is memory for both."""
        for keeper in self.keepers.values():
            if keeper.stand_ins >= keeper.unkillable:
                keeper.stand_in(keeper.unkillable)
                continue
            before = keeper.stand_ins
            keeper.stand_in(before + 1)
            loads = self.loads()
            if not fits(loads, self.room, {load.stage: load.now for load in loads}):
                keeper.stand_in(before)

    def learn(self, snapshot: Snapshot, now: float) -> None:
        """The latest look at the queues."""
        self._queues = snapshot.queues
        for name, keeper in self.keepers.items():
            keeper.learn(snapshot.queues, snapshot.timeouts.get(name), now)

    def leave(self) -> None:
        """From the first stage to the last, each driver finishes what it has at hand."""
        for keeper in self.keepers.values():
            keeper.want(0, "stop")

    def hurry(self, now: float) -> float:
        """What is at hand is given back at once; when to come back for those that need time."""
        slots = chain.from_iterable(one.living for one in self.everyone)
        return min((slot.hurry(now) for slot in slots), default=math.inf)

    def restart(self, target: str) -> bool:
        """Replace the drivers of a stage, one of them, or (empty) all; whether that is known."""
        known = not target
        for name, keeper in self.keepers.items():
            whole = target in ("", name)
            slots = [slot for slot in keeper.slots if slot.name == target]
            if whole or slots:
                keeper.restart(None if whole else slots)
                known = True
        return known

    @property
    def hopeless(self) -> str:
        """Which stage can never go on by itself, and why; empty while there is none."""
        for name, keeper in self.keepers.items():
            wanted = [slot for slot in keeper.slots if slot.wanted]
            if not keeper.done and wanted and all(slot.hopeless for slot in wanted):
                return f"stage {name}: {wanted[0].past.why}"
        return ""

    @property
    def abandoned(self) -> list[str]:
        """Queues with claims that no driver here may recover soon."""
        return [
            queue
            for keeper in self.keepers.values()
            if keeper.unattended
            for queue in keeper.stage.inputs
            if (seen := self._queues.get(queue)) is not None and (seen.working or seen.written)
        ]

    # Which there are

    def man(self, pipeline: Pipeline, now: float) -> None:
        """A keeper for each stage that the pipeline has, and none for others."""
        self._pipeline = pipeline
        grace = self.grace
        before, self.keepers = self.keepers, {}
        is_reload = bool(before)
        for stage in pipeline.stages:
            keeper = before.pop(stage.name, None)
            if keeper is None:
                keeper = Keeper(stage, pipeline, self._host, self._local, self._tell)
                keeper.adopt_living(now)
                if is_reload:
                    # It may take over the queues of one that is parting, here or on other hosts.
                    keeper.unsettle(now + grace)
            else:
                keeper.change(stage, pipeline, now)
            self.keepers[stage.name] = keeper
        for keeper in before.values():
            keeper.want(0, "unmanaged")
            self._parting.append(keeper)

    def dismiss_strangers(self, now: float) -> None:
        """Drivers of an earlier watchdog whose stages the file no longer has: they leave."""
        if self._pipeline is None:
            return
        for name in stages_with_boards(self._local, self._host) - self.keepers.keys():
            # That it has drivers is all that is known of it.
            stage = Stage(
                name=name, inputs=(), outputs=(), drivers=Drivers(0, 0), kind="call", work=""
            )
            keeper = Keeper(stage, self._pipeline, self._host, self._local, self._tell)
            keeper.adopt_living(now)
            keeper.want(0, "unmanaged")
            self._parting.append(keeper)
            if keeper.living:
                for other in self.keepers.values():
                    other.unsettle(now + stage.grace)

    def _tell(self, kind: Kind, slot: Slot, message: str, **more: object) -> None:
        self._say(kind, message, stage=slot.stage, driver=slot.name, **more)

    # How many drivers each has

    def begin(self) -> None:
        """As many drivers as there are to be before anything is known of the work."""
        counts = initial(self.loads(), self.room)
        for name, keeper in self.keepers.items():
            keeper.want(min(max(counts[name], keeper.wanted, keeper.least), keeper.most))

    def scale(self, wanted: Mapping[str, int | None]) -> None:
        """What operators want instead of what the file says."""
        changed = [
            name for name, keeper in self.keepers.items() if wanted.get(name) != keeper.asked
        ]
        # What one gives up, another may have.
        for name in sorted(changed, key=lambda name: wanted.get(name) or 0):
            keeper = self.keepers[name]
            keeper.asked = asked = wanted.get(name)
            if asked is None:
                keeper.scaled, keeper.scarce = None, ""
            else:
                keeper.scaled, keeper.scarce = self._fitting(name, asked)
            count = min(max(keeper.wanted, keeper.least), keeper.most)
            more = f"; {keeper.scarce}" if keeper.scarce else ""
            self._say("scaled", f"from {keeper.wanted} to {count} drivers{more}", stage=name)
            keeper.want(count)

    def _fitting(self, name: str, asked: int) -> tuple[int, str]:
        """How many of so many drivers there is room for, beside those that others have; and why
        not for more."""
        room, count = self.room, asked
        loads = self.loads()
        split = {load.stage: max(load.now, load.min) for load in loads}
        memory = self.keepers[name].memory
        # The file need not say what a driver takes. Nobody else is bound by what it does not say.
        for place, load in enumerate(loads):
            if load.stage == name and not load.memory_more:
                loads[place] = replace(load, memory=memory, memory_more=memory)
        while count > 1 and not fits(loads, room, {**split, name: count}):
            count -= 1
        if count == asked:
            return count, ""
        takes, has = format_size(memory), format_size(room.memory or 0)
        if room.cpus is not None:
            takes += f" and {self.keepers[name].stage.cpus:g} CPUs"
            has += f" and {room.cpus:g} CPUs"
        return count, f"there is no room for {asked:,}: one takes {takes}, of {has} for all"

    @property
    def notes(self) -> list[str]:
        """What people should know."""
        return [
            f"{name} has {format_count(one.wanted, 'driver')}; {one.scarce}"
            for name, one in self.keepers.items()
            if one.scarce
        ]

    @property
    def room(self) -> Room:
        """What all drivers together may take."""
        memory = physical_memory()
        if self._pipeline is None:
            return Room(memory=memory)
        host = self._pipeline.host
        return Room(memory=min(host.memory or memory, memory), cpus=host.cpus)

    def loads(self) -> list[Load]:
        """What there is to do in each stage, and what a driver of it takes."""
        if self._pipeline is None:
            return []
        upstream = coming(self._pipeline, self._queues)
        return [one.load(self._queues, upstream[name]) for name, one in self.keepers.items()]

    def balance(self, now: float) -> None:
        """Move one driver to where the work is, if that is worth it."""
        if self._pipeline is None or not self._given():
            return
        every = self._pipeline.host.rebalance_every
        found = move(self.loads(), self.room, self._moved_at, now, every)
        if found is None:
            return
        self._moved_at = now
        if found.taken_from:
            giver = self.keepers[found.taken_from]
            giver.want(giver.wanted - 1)
            self._giving = (giver, found.to) if found.to else None
        elif found.to:
            taker = self.keepers[found.to]
            taker.want(taker.wanted + 1)
        whence = f" from {found.taken_from}" if found.taken_from else ""
        where = f" to {found.to}" if found.to else ""
        self._say("moved", f"a driver{whence}{where}: {found.why}", stage=found.to or "")

    def _given(self) -> bool:
        """Whether the last move is complete: only when the one has left is there room for the
        other."""
        if self._giving is None:
            return True
        giver, to = self._giving
        if len(giver.living) > giver.wanted:
            return False
        self._giving = None
        if taker := self.keepers.get(to):
            taker.want(min(taker.wanted + 1, taker.most))
        return True
