"""Intakes in the simulated world: the real code, two of them, over a producer in its steps.

The producer writes a file in two halves with a pause in between, longer than a file has to settle;
writes the same name again, over what may be there yet; and writes another one. What is done to the
intakes, a schedule says: they are killed, stand still, are taken for dead; listings are old, a name
is remembered as missing, the reply to a call is lost; what has entered is removed from the folder.
When all is over each drop that was closed has entered once, and whole, but one that its producer
has written over himself.
"""

import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from queuedriver.format import names
from queuedriver.intake import examining, folder, intake, ledger
from queuedriver.intake.handover import Handover
from queuedriver.intake.intake import Intake
from queuedriver.intake.options import IntakeOptions
from tests.simulation.disk import Disk
from tests.simulation.happenings import Happenings, Interruption
from tests.simulation.kernel import Kernel
from tests.simulation.scene import entries, find
from tests.simulation.seams import installed, seam
from tests.simulation.world import Host, Process, Violation, World

FOLDER, QUEUE = "/drops", "/q"
# Seconds that a file has to stand still; what the producer pauses for in the middle of one.
_SETTLE = 2.0
_PAUSE = 7.0
# So many times those who come later look, undisturbed; how long for each.
_ROUNDS = 3
_ROUND = 300.0
# So many turns the first intakes make when the producer is through.
_TURNS = 12
_WRITES = os.O_WRONLY | os.O_RDWR
# Which drop is written to which name, and whether over what is there.
DROPS = (("f", False), ("f", True), ("g", False))
KINDS = {
    **{"switch": 30, "crash": 16, "pause": 6, "wake": 3, "silence": 8},
    **{"lose": 8, "stale": 8, "consume": 6, "tidy": 6},
}

# Of what, which attribute, and what stands for it.
Changes = Sequence[tuple[object, str, object]]


class Scene(NamedTuple):
    """Who takes from the folder, and how."""

    name: str
    after: str = "move"
    # Whether the queue is on another file system.
    two: bool = False
    hosts: tuple[str, ...] = ("A", "B")


SCENES = {
    one.name: one
    for one in (
        Scene("one file system"),
        Scene("two file systems", two=True),
        Scene("two on one host", two=True, hosts=("A", "A")),
        Scene("leave", after="leave"),
        Scene("leave on one host", after="leave", hosts=("A", "A")),
    )
}


def content(drop: int) -> bytes:
    return b"<drop %d of %s>" % (drop, DROPS[drop][0].encode())


class IntakeRun:
    """One run of a scene."""

    def __init__(self, scene: Scene, schedule: Sequence[Interruption]) -> None:
        self.scene = scene
        disk = Disk()
        for path in (FOLDER, QUEUE, "/tmp"):
            disk.change((disk.root, path[1:], disk.new(directory=True)))
        self.world = world = World(disk)
        self.happenings = happenings = Happenings(world, schedule)
        # What is given back may be half a file: only what is in the queue is looked at.
        happenings.is_whole = lambda data: True
        happenings.acts = {"consume": self._consume, "tidy": self._tidy}
        happenings.on_killed = self._replace
        for number, name in enumerate("ABC"):
            world.host(name, offset=3600.0 * number)
        self.entered: Counter[bytes] = Counter()
        # What the producer has written over, and how far it is.
        self.gone: set[int] = set()
        self.closed: set[int] = set()

    def __call__(self) -> None:
        """Play it to the end; a Violation says what was broken."""
        with installed(self.world), ExitStack() as changed:
            for module in (folder, examining, ledger):
                changed.enter_context(seam(module, "writers", self._writers))
            # Of this host, for people.
            changed.enter_context(seam(intake, "note_told", lambda *_: None))
            if self.scene.two:
                changed.enter_context(
                    seam(Handover, "_enters_by_rename", lambda self, claim: False)
                )
            try:
                self._begin()
                self._play()
                in_peace = 0
                while in_peace < _ROUNDS:
                    happened = self.happenings.count.total()
                    self._come_later()
                    in_peace += happened == self.happenings.count.total()
                self._consume(0)
                self.reckon()
            finally:
                self.world.close()

    def _play(self) -> None:
        self.world.play()
        while self.world.wake_paused():
            self.world.play()

    # Who acts

    def _begin(self) -> None:
        for number, host in enumerate(self.scene.hosts, 1):
            self._take(f"intake {number}", self.world.hosts[host], ready=True)
        producer = self.world.start("producer", self.world.hosts["C"], self._produce)
        # Nothing happens to it: one that is killed half-way has made a drop of that half.
        producer.unseen = True

    def _take(self, name: str, host: Host, seconds: float = 0.0, ready: bool = False) -> None:
        """An intake that stays for so many seconds, or for a while after the producer."""
        world = self.world
        options = IntakeOptions(settle=_SETTLE, min_free=0, after=self.scene.after, poll=0.5)

        def act() -> None:
            one = Intake(FOLDER, QUEUE, options, id=name.replace(" ", "-"))
            with one.opened() as watcher:
                world.show()
                until, turns = world.now + seconds, 0 if seconds else _TURNS
                while world.now < until or turns > 0:
                    if not seconds:
                        # While it works time is short.
                        world.done += 1
                        turns -= len(self.closed) == len(DROPS)
                    try:
                        due = watcher.turn(1000.0 + world.now)
                    except OSError:
                        due = 0.0
                    world.sleep(min(max(due - 1000.0 - world.now, 0.5), 5.0))

        world.start(name, host, act).unseen = ready

    def _produce(self) -> None:
        kernel, world = self.world.kernel, self.world
        for drop, (name, over) in enumerate(DROPS):
            if over:
                # Just when the first has been taken, or is about to be, or waits.
                world.sleep(_SETTLE)
            folder = find(world.disk, FOLDER)
            there = entries(folder).get(name)
            if there is not None and not over:
                raise AssertionError("each name is new, or written over")
            if there is not None:
                self.gone.update(one for one in self.closed if there.data == content(one))
            if there is not None:
                world.disk.empty(there)
            flags = os.O_WRONLY | os.O_CREAT
            fd = kernel.open(f"{FOLDER}/{name}", flags)
            data = content(drop)
            _write(kernel, fd, data[: len(data) // 2])
            world.sleep(_PAUSE)
            _write(kernel, fd, data[len(data) // 2 :])
            kernel.close(fd)
            self.closed.add(drop)
            world.sleep(_SETTLE / 2)

    def _writers(self, fd: int) -> str:
        """Who has a file open for writing, as a lease tells."""
        inode = self.world.kernel.files[fd].inode
        opened = (
            file
            for process in self.world.processes()
            for file in process.files.values()
            if file.inode is inode and file.flags & _WRITES
        )
        return "some" if any(opened) else "none"

    def _replace(self, process: Process, which: int) -> None:
        """Somebody was killed; the choice says whether another is started in its place."""
        if process.name.startswith("intake") and which % 2:
            self._take(process.name, process.host)

    def _come_later(self) -> None:
        """All who were there have left: an intake comes that looks until every lease is over."""
        self._take("later", self.world.hosts["C"], _ROUND)
        self._play()

    # The account

    def _consume(self, which: int) -> str:
        queue = find(self.world.disk, QUEUE)
        for name, inode in list(entries(queue).items()):
            if name.endswith(f".{names.READY}"):
                self.entered[inode.data] += 1
                self.world.disk.change((queue, name, None))
        return "the pipeline takes all documents"

    def _tidy(self, which: int) -> str:
        folder, queue = (find(self.world.disk, path) for path in (FOLDER, QUEUE))
        entered = {*self.entered, *(inode.data for inode in entries(queue).values())}
        for name, inode in list(entries(folder).items()):
            if inode.data and inode.data in entered:
                self.world.disk.change((folder, name, None))
        return "what has entered is removed from the folder"

    def reckon(self) -> None:
        """A Violation unless each drop entered as it was to."""
        whole = {content(drop): drop for drop in range(len(DROPS))}
        for data, count in self.entered.items():
            if data not in whole:
                raise Violation(f"truncated: {data!r} entered")
            if count > 1:
                raise Violation(f"twice: {data!r} entered")
        for drop in sorted(self.closed - self.gone):
            if content(drop) not in self.entered:
                raise Violation(f"lost: {content(drop)!r} never entered")


def _write(kernel: Kernel, fd: int, data: bytes) -> None:
    while data:
        data = data[kernel.write(fd, data) :]


# Schedules


class IntakeSchedule(NamedTuple):
    """What is played, and what interrupts it."""

    scene: Scene
    interruptions: tuple[Interruption, ...]

    def run(self) -> IntakeRun:
        """A run of it, to be called."""
        return IntakeRun(self.scene, list(self.interruptions))


def draw(
    seed: int, scenes: Sequence[str] = tuple(SCENES), kinds: Mapping[str, int] = KINDS
) -> IntakeSchedule:
    """The schedule of a seed."""
    chance = random.Random(seed)
    scene = SCENES[chance.choice(list(scenes))]
    count = min(30, 1 + int(chance.expovariate(0.25)))
    length = chance.choice((60, 150, 400, 800))
    found = []
    for _ in range(count):
        kind = chance.choices(list(kinds), list(kinds.values()))[0]
        found.append(Interruption(chance.randint(1, length), kind, chance.randint(0, 11)))
    return IntakeSchedule(scene, tuple(sorted(found)))
