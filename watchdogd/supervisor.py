"""The watchdog: one loop that keeps the drivers of a pipeline alive on this host. Read this first.

    stages.py    all stages: how many drivers each gets
    keeper.py    the drivers of one stage: started with what, replaced when
    slot.py      one driver's place: what there is to see of it, what is done to it
    policy.py    when a driver is started, asked to leave, ended; pure
    balance.py   which stage gets the next driver; pure
    lookout.py   the eyes: a process that does all input and output where the queues are
    process.py   the only place that starts processes

The loop sleeps in one poll over the pidfds of the drivers, the pipe of the eyes and that of the
signals. It touches no file below the root of the pipeline and waits for nothing else, so that it
goes on, and says so, while that file system hangs.
"""

import math
import os
import select
import time
from collections.abc import Callable

import msgspec

from queuedriver.pipeline.model import Pipeline
from queuedriver.units import format_count
from watchdogd.bulletin import Bulletin
from watchdogd.control import QUIT
from watchdogd.flow import through
from watchdogd.herald import Herald
from watchdogd.kernel import become_subreaper
from watchdogd.lookout import Lookout
from watchdogd.notify import Notifier
from watchdogd.orphans import end_orphans
from watchdogd.process import reap_strangers
from watchdogd.renewal import Outcome, Renewal
from watchdogd.report import State, encode
from watchdogd.sight import Sight
from watchdogd.signals import Signals
from watchdogd.snapshot import Errands, Request, Snapshot
from watchdogd.stages import Stages
from watchdogd.status import host_report

# A look at everything at least so often, whatever is said to be due.
_LONGEST_SLEEP = 5.0
# How often the eyes are asked to recover what dead drivers of idle slots left.
_RECOVER_EVERY = 5.0
# How long the end waits for the eyes to see it.
_LAST_LOOK = 5.0
# The children of an orphan are orphans when that has been ended, and so on.
_ORPHANS_COME = 2.0
_ORPHANS_EVERY = 0.1
# What leaving takes beyond the grace of the documents at hand: each way to end a driver has its
# time, and then there is the last look.
_MARGIN = 30.0


class Supervisor:
    """One pipeline on this host."""

    def __init__(
        self,
        pipeline: Pipeline,
        host: str,
        local: str,
        lookout: Lookout,
        herald: Herald,
        signals: Signals,
        notifier: Notifier,
        *,
        drain: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.host = host
        self.local = local
        self.drain = drain
        self._herald = herald
        self.stages = Stages(host, local, herald.say)
        self.sight = Sight()
        self.reload_error = ""
        self.started_at = time.time()
        self._lookout = lookout
        self._signals = signals
        self._notifier = notifier
        # Told of each turn of the loop.
        self.watch: Callable[[Supervisor, float], None] = lambda _, __: None
        self._renewal = Renewal(host)
        self._bulletin = Bulletin(notifier)
        self._served: set[Request] | None = None
        self._turned_at = time.monotonic()
        self._recover_at = 0.0
        self._leaving = self._hurried = self._ended = False
        self._was_ok: bool | None = None
        # What the check of this host found that people should know.
        self.known_at_start: tuple[str, ...] = ()
        self._may_quit = self._is_ready = False
        self.beat = 0

        self.notes: tuple[str, ...] = ()
        # The serials of the latest requests that were served.
        self.served: tuple[str, ...] = ()
        # Why a drain was given up.
        self.hopeless: str | None = None
        # Until when to look for what drivers that have ended left running.
        self._orphans_until = 0.0

    # The loop

    def run(self) -> None:
        """Until it is told to leave, or (drain) everything is through."""
        become_subreaper()
        self._herald.say("watchdog-started", f"process {os.getpid()}")
        self.stages.man(self.pipeline, time.monotonic())
        self.stages.dismiss_strangers(time.monotonic())
        while not self._over():
            now = time.monotonic()
            due = self._turn(now)
            self.watch(self, now)
            self._sleep(due)
        self._end()

    def _turn(self, now: float) -> float:
        """Look at everything and act; when to come back at the latest."""
        elapsed, self._turned_at = now - self._turned_at, now
        self._lookout.tend(now)
        self._listen(now)
        self._reap(now)
        self._obey(now)
        fs_ok = self.fs_ok(now)
        due = self.stages.turn(now, elapsed, fs_ok)
        if not self._leaving:
            if self.drain and (hopeless := self.stages.hopeless):
                # There is no use in waiting for a stage that can never go on by itself.
                self.hopeless = hopeless
                self._leave("a stage that cannot go on")
            elif fs_ok:
                self.stages.balance(now)
        elif self._hurried:
            due = min(due, self.stages.hurry(now))
        self._recover(now)
        self._publish(now)
        return min(
            due,
            now + _LONGEST_SLEEP,
            self._lookout.lost_at,
            now + _ORPHANS_EVERY if now < self._orphans_until else math.inf,
            self._herald.tend(now),
            self._bulletin.due_at,
        )

    def _sleep(self, due: float) -> None:
        poll = select.poll()
        fds = [self._signals.fd, self._lookout.fd, *self._herald.fds, *self.stages.fds]
        fds += self._renewal.fds
        for fd in fds:
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, due - time.monotonic()) * 1000)
        self._signals.clear()

    def fs_ok(self, now: float) -> bool:
        """Whether the file system of the queues answers, and is well."""
        return self.sight.known and not self.sight.trouble and not self._lookout.lost(now)

    def _reap(self, now: float) -> None:
        if self.stages.reap(now):
            # What they left, or that there is nothing left, is worth knowing now.
            self._lookout.send(Errands(look=True))
            self._orphans_until = now + _ORPHANS_COME
        reap_strangers(self._ours)
        if now < self._orphans_until:
            end_orphans(self._ours, self.stages.lives)

    @property
    def _ours(self) -> set[int]:
        """The processes that somebody here looks after."""
        return self.stages.pids | self._herald.pids | {self._lookout.pid}

    # What the eyes see

    def _listen(self, now: float) -> None:
        for message in self._lookout.receive(now):
            if message.note:
                self._herald.say("note", message=message.note)
            for one in message.recovered:
                what = f"{format_count(one.claims, 'claim')} of {one.queue}"
                gone = "".join(f"; {docid!r} is discarded" for docid in one.discarded)
                self._herald.say("recovered", what + gone, queue=one.queue, count=one.claims)
            if message.snapshot is not None:
                self._take(message.snapshot, now)
        ok = self.fs_ok(now)
        answered = self.sight.heard or self._lookout.lost(now)
        if answered and not self._is_ready:
            # A service that waits for its file system has been started all the same.
            self._is_ready = True
            self._notifier.ready()
        if ok != self._was_ok and answered:
            if not ok:
                self._herald.say("waiting-fs", self.trouble)
            elif self._was_ok is not None:
                self._herald.say("fs-well")
            self._was_ok = ok

    @property
    def trouble(self) -> str:
        """What is wrong with the file system of the queues; empty while it is well."""
        if self._lookout.lost(time.monotonic()):
            return f"{self.pipeline.root} does not answer"
        return self.sight.trouble

    def _take(self, snapshot: Snapshot, now: float) -> None:
        first = not self.sight.known
        for queue, count in self.sight.take(snapshot).items():
            what = f"{format_count(count, 'document')} of {queue}"
            self._herald.say("discarded", what, queue=queue, count=count)
        if not self.sight.known:
            return
        controls = self.sight.controls
        self._may_quit = self._may_quit or not controls.quit
        if first and controls.quit:
            # That this watchdog was started is the later wish.
            self._lookout.send(Errands(forget_controls=(QUIT,)))
        if self._served is None:
            # What was asked for before this watchdog began is none of its business.
            self._served = set(controls.requests)
        self.stages.learn(self.sight.snapshot, now)
        if not self._leaving:
            self.stages.scale(controls.scale)
            if first:
                self.stages.begin()
        queues = self.sight.queues
        still_open = [
            one for one in self.pipeline.sources if one in queues and not queues[one].done
        ]
        if self.drain and still_open and not snapshot.trouble:
            # Again with each look: eyes that were asked before may have ended before they did it.
            self._lookout.send(Errands(close=tuple(still_open)))

    # What is asked of it

    def _obey(self, now: float) -> None:
        controls = self.sight.controls
        quit_file = controls.quit if self._may_quit else ""
        if self._signals.leaving_at or quit_file:
            self._leave("a signal" if self._signals.leaving_at else "a QUIT file")
        if self._signals.hurried or quit_file == "now":
            self._hurried = True
        if self._signals.reload:
            self._signals.reload = False
            self._read_again(now)
        if (outcome := self._renewal.outcome(self.pipeline, now)) is not None:
            self._renew(outcome, now)
        for request in controls.requests:
            if self._served is not None and request not in self._served:
                self._served.add(request)
                self._serve(request, now)
        if self._served is not None:
            self._served &= set(controls.requests)

    def _serve(self, request: Request, now: float) -> None:
        if request.kind == "reload":
            self._read_again(now, request.serial)
            return
        if not self.stages.restart(request.target):
            self._herald.say("note", f"to restart: no stage or driver is called {request.target!r}")
        self._served_one(request.serial)

    def _served_one(self, serial: str) -> None:
        """Whoever asked may be waiting to hear of it."""
        self.served = (*self.served[-9:], serial)

    def _leave(self, why: str) -> None:
        """Stages from the first to the last: each driver finishes what it has at hand."""
        if self._leaving:
            return
        self._leaving = True
        self._notifier.stopping()
        self._notifier.extend(self.stages.grace + _MARGIN)
        self._herald.say("note", f"leaving because of {why}; a second signal hurries the documents")
        self.stages.leave()

    # Reload

    def _read_again(self, now: float, serial: str = "") -> None:
        # Else nothing is started any more, by this file or by another.
        if not self._leaving:
            self._notifier.reloading(now)
            self._renewal.ask(self.pipeline.file, now, serial)

    def _renew(self, outcome: Outcome, now: float) -> None:
        """Only what has changed is touched; a bad file touches nothing."""
        self.reload_error = outcome.error
        if outcome.pipeline is None:
            self._herald.say("reload-refused", outcome.error)
        else:
            self.pipeline = outcome.pipeline
            if not self._lookout.send(Errands(pipeline=self.pipeline)):
                # Eyes that do not hear it would look at the wrong queues; the next are told first.
                self._lookout.abandon()
            self._herald.configure(self.pipeline.on_event)
            self.stages.man(self.pipeline, now)
            if not self._leaving:
                self.stages.begin()
            self._herald.say("reloaded", self.pipeline.file)
        self._notifier.ready()
        for serial in outcome.serials:
            self._served_one(serial)
        self._bulletin.hasten(now)

    # What it tells

    @property
    def state(self) -> State:
        """In one word."""
        if self._ended:
            return "stopped"
        if self._leaving:
            return "stopping"
        if self._was_ok is False:
            return "waiting-fs"
        return "draining" if self.drain else "running"

    def _publish(self, now: float) -> None:
        states = [(slot.name, slot.rest.state) for slot in self.stages.slots]
        if self._bulletin.is_due(states, now):
            self.notes = (*self.known_at_start, *self.sight.controls.notes)
            if not self._lookout.lost(now):
                self._lookout.send(Errands(publish=msgspec.Raw(self._report(now))))
        self._bulletin.beat(self._words(), now)

    def _report(self, now: float) -> bytes:
        self.beat += 1
        return encode(host_report(self, now))

    def _words(self) -> str:
        """All of it in one line."""
        living = sum(slot.process is not None for slot in self.stages.slots)
        waiting = sum(one.waiting for one in self.sight.queues.values())
        return f"{self.state}: {format_count(living, 'driver')}, {waiting:,} waiting"

    # Claims that nobody else would recover

    def _recover(self, now: float) -> None:
        """What dead drivers left where no driver lives: the living see to it by themselves."""
        if now < self._recover_at or not self.fs_ok(now):
            return
        self._recover_at = now + _RECOVER_EVERY
        if left := self.stages.abandoned:
            self._lookout.send(Errands(recover=tuple(left)))

    # The end

    def _over(self) -> bool:
        if not self.stages.settled:
            return False
        return self._leaving or (self.drain and self.stages.done)

    @property
    def through(self) -> int:
        """How many documents have left the pipeline at its ends."""
        if self.drain:
            inputs = {name for stage in self.pipeline.stages for name in stage.inputs}
            then, now = (
                {name: one for name, one in queues.items() if name in inputs}
                for queues in (self.sight.queues_at_first, self.sight.queues)
            )
            return through(then, now, sum(self.discarded.values()))
        ends = set(self.pipeline.results)
        keepers = self.stages.keepers.values()
        return sum(one.totals.documents for one in keepers if ends.issuperset(one.stage.outputs))

    @property
    def discarded(self) -> dict[str, int]:
        """How many documents were discarded since this began, by queue; only where any were."""
        return self.sight.discarded

    def _end_all_orphans(self) -> None:
        """Whatever drivers left running, and what that leaves."""
        ends_at = time.monotonic() + _ORPHANS_COME
        quiet = 0
        while quiet < 2 and time.monotonic() < ends_at:
            # Those that were ended have to be reaped; then there are those that they leave.
            quiet = 0 if end_orphans(self._ours, ()) else quiet + 1
            time.sleep(_ORPHANS_EVERY / 5)
            reap_strangers(self._ours)

    def _end(self) -> None:
        """The last look, for whoever counts, and the last word."""
        self._ended = True
        self._herald.say("watchdog-stopped", f"process {os.getpid()}")
        self._end_all_orphans()
        now = time.monotonic()
        killed = any(slot.leftovers for slot in self.stages.slots)
        queues = tuple(queue for stage in self.pipeline.stages for queue in stage.inputs)
        self._lookout.send(
            Errands(
                publish=msgspec.Raw(self._report(now)),
                recover=queues if killed else (),
                look=True,
                farewell=True,
            )
        )
        # Looks that were asked for before may be answered first.
        ended = False
        ends_at = now + _LAST_LOOK
        while not ended and (now := time.monotonic()) < ends_at:
            poll = select.poll()
            if self._lookout.fd < 0:
                break
            poll.register(self._lookout.fd, select.POLLIN)
            poll.poll((ends_at - now) * 1000)
            for message in self._lookout.receive(time.monotonic()):
                if message.snapshot is not None:
                    self.sight.take(message.snapshot)
                ended = ended or message.farewell
