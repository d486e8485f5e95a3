"""One run of a scene: who acts in it, and what becomes of those that are killed.

Everything that is done to a queue is done by the product's own code. What is here starts it, where
a shell, watchdogd's loop or a person would.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from queuedriver import Document, Output, TryLater
from queuedriver.format import names
from tests.simulation import product
from tests.simulation.happenings import Happenings, Interruption
from tests.simulation.outsiders import Outsiders
from tests.simulation.reckoning import Ledger, kept_for_a_week, left_over, reckon
from tests.simulation.scene import (
    INPUT,
    Scene,
    again,
    find,
    initial,
    kind_of,
    output,
    template,
)
from tests.simulation.seams import installed
from tests.simulation.tools import Copy, write
from tests.simulation.world import Host, Process, Violation, World

# Seconds between two looks of a watchdog for drivers that are dead.
_LOOK = 200.0
# After so many rounds of undisturbed recovery nothing may be left.
_ROUNDS = 4
# More than a week.
_LONG = 8 * 86400.0
# Where processors write what is an answer by its path.
_SCRATCH = "/tmp"
# How long who submits, or operates, waits before it tries (again).
_MOMENT = 0.02
_TRIES = 50


class Run:
    """One run of a scene."""

    def __init__(self, scene: Scene, schedule: Sequence[Interruption]) -> None:
        self.scene = scene
        self.world = world = World(template(scene).copy(), scene.noreplace)
        world.syncs_as_one = scene.syncs_as_one
        self.happenings = happenings = Happenings(world, schedule)
        self.ledger = Ledger([initial(docid) for docid in scene.docids])
        self._ends = itertools.count(1)
        drivers = find(world.disk, f"{INPUT}/{names.PRIVATE}/drivers")
        world.kernel.on_create = lambda directory: world.show() if directory is drivers else None
        happenings.on_killed = self._replace
        happenings.on_restart = self._restart
        happenings.on_death = lambda process, kind: self.ledger.die(process, kind, world.disk)
        happenings.on_claim = lambda data: self.ledger.claim(data, world.process)
        for number, name in enumerate("AB"):
            # No two clocks agree.
            world.host(name, offset=scene.skew * number)
        self.outsiders = Outsiders(world, scene, self.ledger)
        happenings.acts = self.outsiders.acts

    def __call__(self) -> None:
        """Play it to the end; a Violation says what was broken."""
        with installed(self.world):
            try:
                self._begin()
                self._play()
                self._finish()
                self.reckon()
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
        self._come_later_until(self.left_over, "left over")
        if kept_for_a_week(disk):
            self.world.pass_time(_LONG)
            self._come_later_until(lambda: kept_for_a_week(disk), "kept for ever")

    def left_over(self) -> list[str]:
        """What nobody may leave behind."""
        return left_over(self.scene, self.world.disk, self.happenings.count)

    def reckon(self) -> None:
        """A Violation unless each submission ended in one way, once."""
        reckon(self.world.disk, self.happenings.count, self.ledger)

    def _come_later_until(self, left_by_now: Callable[[], list[str]], wrong: str) -> None:
        in_peace, asked = 0, False
        while left := self._left(left_by_now):
            if in_peace == _ROUNDS and not asked:
                in_peace, asked = 0, True
                self._recover_elsewhere()
            elif in_peace == _ROUNDS:
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
        work = self._work_all if options.batch > 1 else self._work
        processor = product.Processor(work, self._program)

        def act() -> object:
            return product.drive(INPUT, processor, self.scene.outputs, driver, options)

        process = self.world.start(name, host, act)
        # A start takes most of a short run. Of those that are there from the beginning it is not
        # seen before they register; of those that start later, all of it is.
        process.unseen = ready

    def _program(self, docid: str) -> Copy | None:
        """The program that does what a docid says, where it is for one."""
        if kind_of(docid) not in ("tool", "large"):
            return None
        return Copy(self.world.kernel, initial(docid), self._note_work, self._noting_faults)

    def _work(self, document: Document) -> object:
        """The processor: does what the docid says."""
        kind = kind_of(document.docid)
        if kind == "poison":
            self.happenings.die()
        data = document.read()
        self._note_work(data)
        match kind:
            case "bad":
                raise ValueError("this one never works")
            case "later" if self.ledger.worked[data] == 1:
                raise TryLater(after=0.0, reason="not the first time")
            case "none":
                return None
            case "path":
                path = f"{_SCRATCH}/{document.docid}-{self.world.process.pid}"
                with self._noting_faults(data):
                    write(self.world.kernel, path, output(data, 0))
                return Path(path)
            case "many":
                return [
                    Output(output(data, 0)),
                    Output(output(data, 1), docid=f"{document.docid}.x"),
                    Output(output(data, 2), queue="second"),
                ]
        return output(data, 0)

    @contextmanager
    def _noting_faults(self, data: bytes) -> Iterator[None]:
        """What a program is told by the system, and nobody else, may be charged to its document."""
        try:
            yield
        except OSError as error:
            if self.happenings.made_up(error):
                self.ledger.deaths[data, "crash"] += 1
            raise

    def _note_work(self, data: bytes) -> None:
        self.ledger.worked[data] += 1

    def _work_all(self, documents: Sequence[Document]) -> list[object]:
        return [self._work(document) for document in documents]

    def _watch(self, host: Host) -> None:
        """What watchdogd has done every now and then: recover what dead drivers left."""
        world = self.world

        def act() -> None:
            watchdog = product.Watchdog(INPUT)
            while world.is_busy():
                watchdog.look()
                world.sleep(_LOOK)

        world.start(f"watchdog {host.name}", host, act, works=False, after=_LOOK)

    def _submit(self) -> None:
        durable = bool(self.scene.options.durable)
        for number, docid in enumerate(self.scene.submitted):
            submission = again(docid, number)
            self.ledger.unsure.append(submission)
            for _ in range(_TRIES):
                self.world.sleep(_MOMENT)
                if product.submit(INPUT, docid, submission.data, durable):
                    self.ledger.sure(submission)
                    break

    def _retry(self) -> None:
        for docid in self.scene.retried:
            for _ in range(_TRIES):
                self.world.sleep(_MOMENT)
                if product.retry(INPUT, docid):
                    break

    def _come_later(self) -> None:
        """All who were there have left. A driver on another host; then a watchdog, which looks
        until every lease has expired."""
        number = next(self._ends)
        host = self.world.host("C")
        self._drive(f"later driver {number}", f"e{number}", host)
        self._play()
        watchdog = product.Watchdog(INPUT)

        def act() -> None:
            for _ in range(2):
                watchdog.look()
                self.world.sleep(200.0)

        self.world.start(f"later watchdog {number}", host, act)
        self._play()

    def _left(self, left_by_now: Callable[[], list[str]]) -> list[str]:
        """Look when all is in its place again: somebody may still have moved a directory away."""
        self.outsiders.end()
        return left_by_now()

    def _recover_elsewhere(self) -> None:
        """Whoever looks after the queue is told what cannot be recovered, and does not know in
        which directories it was to be: of all that there are, they try one after the other."""

        def act() -> None:
            for outputs in self.outsiders.outputs():
                product.recover(INPUT, outputs)

        self.world.start("operator", self.world.hosts["A"], act)
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
        self.outsiders.restart()
