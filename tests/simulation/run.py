"""One run of a scene: who acts in it, and what becomes of those that are killed.

Everything that is done to a queue is done by the product's own code. What is here starts it, where
a shell, watchdogd's loop or a person would.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from queuedriver import driver as driver_module
from queuedriver import names, operator, startup
from queuedriver.document import Document
from queuedriver.driver import Driver
from queuedriver.errors import AlreadyThere, QueueError, TryLater
from queuedriver.filesystem import Directory
from queuedriver.grounds import open_targets
from queuedriver.lane import Lane, Owner
from queuedriver.liveness import Observer, draw_salt
from queuedriver.options import Options
from queuedriver.outputs import Output
from queuedriver.queue import Queue
from queuedriver.startup import Crew
from tests.simulation.happenings import Happenings, Interruption
from tests.simulation.reckoning import Ledger, kept_for_a_week, left_over, reckon
from tests.simulation.scene import (
    INPUT,
    OUTPUTS,
    Scene,
    again,
    entries,
    find,
    initial,
    output,
    settings_of,
    template,
)
from tests.simulation.seams import installed, seam
from tests.simulation.world import Host, Process, Violation, World
from watchdogd.rescue import Rescuer

# Seconds between two looks of a watchdog for drivers that are dead.
_LOOK = 200.0
# After so many rounds of undisturbed recovery nothing may be left.
_ROUNDS = 4
# More than a week.
_LONG = 8 * 86400.0
# How long who submits, or operates, waits before it tries (again).
_MOMENT = 0.02
_TRIES = 50


class Run:
    """One run of a scene."""

    def __init__(self, scene: Scene, schedule: Sequence[Interruption]) -> None:
        self.scene = scene
        self.world = world = World(template(scene).copy(), scene.noreplace)
        self.happenings = happenings = Happenings(world, schedule)
        self.ledger = Ledger([initial(docid) for docid in scene.docids])
        self._ready: set[Process] = set()
        self._ends = itertools.count(1)
        happenings.on_killed = self._replace
        happenings.on_restart = self._restart
        happenings.on_consume = self._consume
        happenings.on_claim = self._note_claim
        for number, name in enumerate("AB"):
            # No two clocks agree.
            world.host(name, offset=scene.skew * number)

    def __call__(self) -> None:
        """Play it to the end; a Violation says what was broken."""
        with installed(self.world), seam(driver_module, "assemble", self._assemble):
            try:
                self._begin()
                self._play()
                self._finish()
                reckon(self.world.disk, self.happenings.count, self.ledger)
            finally:
                self.world.close()

    def _play(self) -> None:
        self.world.play()
        while self.world.wake_paused():
            self.world.play()

    def _finish(self) -> None:
        """Whatever was left has to be dealt with by those who come later, as long as they are left
        in peace; and what is kept for a week, by whoever comes after that."""
        disk = self.world.disk
        self._come_later_until(lambda: left_over(disk, self.happenings.count), "left over")
        if kept_for_a_week(disk):
            self.world.pass_time(_LONG)
            self._come_later_until(lambda: kept_for_a_week(disk), "kept for ever")

    def _come_later_until(self, left_by_now: Callable[[], list[str]], wrong: str) -> None:
        in_peace = 0
        while left := left_by_now():
            if in_peace == _ROUNDS:
                raise Violation(f"{wrong}: {', '.join(left)}")
            happened = self.happenings.count.total()
            self._come_later()
            in_peace += happened == self.happenings.count.total()

    # Who acts

    def _begin(self) -> None:
        self._start(ready=True)
        if self.scene.submitted:
            self.world.start("put", self.world.hosts["A"], self._submit)
        if self.scene.retried:
            self.world.start("retry", self.world.hosts["B"], self._retry)

    def _start(self, ready: bool) -> None:
        for number, host in enumerate(self.scene.drivers, 1):
            self._drive(f"driver {number}", f"d{number}", self.world.hosts[host], ready)
        for host in self.scene.watchdogs:
            self._watch(self.world.hosts[host])

    def _drive(self, name: str, driver: str, host: Host, ready: bool = False) -> None:
        options = self.scene.options
        processor = self._work_all if options.batch > 1 else self._work

        def act() -> object:
            return Driver(INPUT, processor, OUTPUTS, id=driver, options=options).run()

        process = self.world.start(name, host, act)
        if ready:
            self._ready.add(process)

    def _work(self, document: Document) -> object:
        """The processor: does what the docid says."""
        kind = document.docid.partition("-")[0]
        if kind == "poison":
            self.happenings.die()
        data = document.read()
        self.ledger.worked[data] += 1
        match kind:
            case "bad":
                raise ValueError("this one never works")
            case "later" if self.ledger.worked[data] == 1:
                raise TryLater(after=0.0, reason="not the first time")
            case "none":
                return None
            case "many":
                return [
                    Output(output(data, 0)),
                    Output(output(data, 1), docid=f"{document.docid}.x"),
                    Output(output(data, 2), queue="second"),
                ]
        return output(data, 0)

    def _work_all(self, documents: Sequence[Document]) -> list[object]:
        return [self._work(document) for document in documents]

    def _watch(self, host: Host) -> None:
        """What watchdogd has done every now and then: recover what dead drivers left."""
        world = self.world

        def act() -> None:
            rescuer = Rescuer()
            while world.is_busy():
                # It tries again when the file system is well again, as the eyes do.
                with suppress(OSError):
                    rescuer.recover("in", INPUT)
                world.sleep(_LOOK)

        world.start(f"watchdog {host.name}", host, act, works=False, after=_LOOK)

    def _submit(self) -> None:
        with Queue.open(INPUT) as queue:
            for docid in self.scene.submitted:
                submission = again(docid)
                self.ledger.unsure.append(submission)
                for _ in range(_TRIES):
                    self.world.sleep(_MOMENT)
                    with suppress(AlreadyThere):
                        queue.submit(docid, submission.data, durable=self.scene.options.durable)
                        self.ledger.sure(submission)
                        break

    def _retry(self) -> None:
        with Queue.open(INPUT) as queue, operator.journal_of(queue) as journal:
            for docid in self.scene.retried:
                for _ in range(_TRIES):
                    self.world.sleep(_MOMENT)
                    (result,) = operator.retry(queue, [docid], journal)
                    if result.came == "done":
                        break

    def _come_later(self) -> None:
        """All who were there have left. A driver on another host; then a watchdog, which looks
        until every lease has expired."""
        number = next(self._ends)
        host = self.world.host("C")
        self._drive(f"later driver {number}", f"e{number}", host)
        self._play()
        rescuer = Rescuer()

        def act() -> None:
            for _ in range(2):
                with suppress(OSError, QueueError):
                    rescuer.recover("in", INPUT)
                self.world.sleep(200.0)

        self.world.start(f"later watchdog {number}", host, act)
        self._play()

    # What becomes of the killed

    def _replace(self, process: Process, which: int) -> None:
        """Somebody was killed; the choice says whether another driver is started in its place."""
        if process.name.startswith("watchdog"):
            self._watch(process.host)
        elif process.name.startswith("driver") and which % 2:
            self._drive(process.name, f"d{process.name[-1]}", process.host)

    def _restart(self) -> None:
        self._start(ready=False)

    @contextmanager
    def _assemble(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        driver: str,
        options: Options,
        observer: Observer,
        held: set[str],
    ) -> Iterator[Crew]:
        """A driver's start takes most of a short run. Those that are there from the beginning are
        given what it would have come to; those that start later do it all."""
        if self.world.process not in self._ready:
            with startup.assemble(inputs, outputs, driver, options, observer, held) as crew:
                yield crew
            return
        with self.world.unseen():
            targets = open_targets(outputs, options.publish)
            archive = Directory.open(options.archive) if options.archive else None
            salt = draw_salt()
            owner = Owner(driver, salt, observer.me.host, held)
            queue, settings = Queue.open(inputs[0]), settings_of(self.scene)
            lane = Lane(queue, targets, settings, owner, observer, options.order, archive)
        yield Crew(driver, salt, {}, [lane], targets, observer)

    # What the world tells us

    def _consume(self) -> None:
        """Somebody who takes outputs, durably, and does not give them back."""
        disk = self.world.disk
        for path in OUTPUTS:
            directory = find(disk, path)
            for name, inode in list(entries(directory).items()):
                if name.endswith(f".{names.READY}"):
                    disk.change((directory, name, None))
                    self.ledger.take(path, inode.data)
            disk.sync(directory)

    def _note_claim(self, data: bytes) -> None:
        self.ledger.claims[data] += 1
