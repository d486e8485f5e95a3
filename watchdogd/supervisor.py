"""The watchdog: one loop that keeps the drivers of a pipeline alive on this host. Read this first.

    stages.py         all stages: which there are, how many drivers each has; when a drain is over
    sizes.py          how many, by what is known now; balance.py: where the work is; both pure
    stage_drivers.py  the drivers of one stage: started with what, replaced when
    slot.py           one driver's place: what there is to see of it, what is done to it
    policy.py         when a driver is started, asked to leave, ended; pure
    helper.py         the process that does all input and output where the queues are
    requests.py       what signals and files ask of a watchdog
    children.py       every process that is started, and how each has ended

The loop sleeps in one poll over the socket of the helper and the pipe of the signals, of which one
tells that a child has ended. It touches no file below the root of the pipeline and waits for
nothing else, so that it goes on, and says so, while that file system hangs. What fails for one of
its sources is noted, and the others go on.

A wish of people is a file below the root (control.py). The helper reads it with its next look
(programs/io_helper.py, helper_messages.Controls), its watchdog takes that in (helper.py), and from
then on it is a fact in the view (helper.QueueView) that whoever decides asks. A number of drivers:
Stages.loads hands it to sizes.py, and StageDrivers.resize says which slots are wanted; Slot.follow
does the rest. A restart or a reload is served once (requests.py, `_serve` here): it changes what
drivers are told (driver_orders.py), and StageDrivers replaces those that were told something else.
"""

import math
import os
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from queuedriver.claims.liveness import identify
from watchdogd.events import Events
from watchdogd.helper import Helper
from watchdogd.helper_messages import Errands, Read, Request
from watchdogd.linux import become_subreaper, return_unused_memory
from watchdogd.pipeline.model import Pipeline
from watchdogd.report import (
    HostReport,
    State,
    host_report,
    in_a_line,
    last_report,
    last_word,
    note_file,
    save,
)
from watchdogd.requests import Reload, Requests, Signals
from watchdogd.stage_drivers import Context
from watchdogd.stages import LAST_LOOK, Drain, Stages, leaving_takes
from watchdogd.systemd import Notifier

# A look at everything at least so often, whatever is said to be due; all times in seconds.
_LONGEST_SLEEP = 5.0
# What failed is tried again.
_TRY_AGAIN = 1.0
# How often the helper is asked to recover what dead drivers of idle slots left.
_RECOVER_EVERY = 5.0
# How often the report is saved while nothing is done, while documents are, and while a driver's
# state changes; as a share of that, so much sooner with a turn that is made anyway, or later with
# one of its own. Who listens whether another watchdog is there does so for 20 s (lock.py).
_REPORT_IDLE_EVERY = 4.0
_REPORT_EVERY = 2.0
_REPORT_CHANGES_EVERY = 0.2
_MORE_OR_LESS = 0.25


class Supervisor:
    """One pipeline on this host."""

    def __init__(
        self,
        pipeline: Pipeline,
        context: Context,
        helper: Helper,
        events: Events,
        signals: Signals,
        notifier: Notifier,
        *,
        drain: bool = False,
    ) -> None:
        self.context = context
        self.identity = identify(os.getpid())
        self.started_at = time.time()
        self.helper = helper
        self.stages = Stages(pipeline, context)
        if (before := last_report(context.local)) is not None:
            self.stages.before = {stage.name: stage for stage in before.stages}
        self.drain = Drain() if drain else None
        self.reload = Reload()
        # Told of each turn of the loop.
        self.watch: Callable[[Supervisor, float], None] = lambda _, __: None
        self._children = context.children
        self._events = events
        self._signals = signals
        self._notifier = notifier
        self._requests = Requests()
        self._turned_at = time.monotonic()
        self._recover_at = 0.0
        # What the last report said of the drivers, None before the first; the work that they had
        # done by then; and when it was saved.
        self._reported: tuple[list[tuple[str, str]] | None, list[int], float]
        self._reported = None, [], -math.inf
        # What failed in the last turn.
        self._troubles: dict[str, str] = {}

    # The loop

    def run(self) -> None:
        """Go on until it is told to leave, or (drain) everything is through."""
        become_subreaper()
        self._events.say("watchdog-started", f"process {os.getpid()}")
        self.stages.set_stages(self.pipeline, time.monotonic())
        self.stages.dismiss_strangers(time.monotonic())
        return_unused_memory()
        while not self._over:
            now = time.monotonic()
            due = self._turn(now)
            self.watch(self, now)
            self._sleep(due)
        self._end()

    @property
    def _over(self) -> bool:
        through = bool(self.drain) and self.stages.done
        return (self.context.leaving or through) and self.stages.settled

    def _turn(self, now: float) -> float:
        """Look at everything and act; return when to come back at the latest."""
        due = [now + _LONGEST_SLEEP]
        for name, source in (
            # First: how long it has been silent counts from what it has said by now.
            ("queues", self._listen),
            ("helper", self.helper.tend),
            ("requests", self._obey),
            ("children", self._reap),
            ("drivers", self._drive),
            ("leftovers", self._recover),
            ("events", self._events.tend),
            ("warden", self._guard),
            ("report", self._publish),
            # Last: a look for orphans is not to keep a driver from being started.
            ("orphans", self._children.tend),
        ):
            try:
                due.append(source(now))
                self._troubles.pop(name, None)
            except (OSError, ImportError) as error:
                # What is imported late is not there for a moment while it is installed anew.
                due.append(now + _TRY_AGAIN)
                if self._troubles.get(name) != str(error):
                    self._troubles[name] = str(error)
                    self._events.say("note", f"{name}: {error}; it is tried again")
        return min(due)

    def _sleep(self, due: float) -> None:
        poll = select.poll()
        for fd in (self._signals.wake_fd, self.helper.fd, *self._children.fds, *self.stages.fds):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, due - time.monotonic()) * 1000)
        self._signals.clear()

    # Facts

    def _listen(self, now: float) -> float:
        """Take what the helper has seen of the queues and of the control files."""
        if self.helper.listen(now) and (view := self.helper.view).known:
            self._serve(self._requests.news(view.controls), now)
            if self.drain and self.drain.see(self.stages, view.trouble, now):
                self.context.finished = True
                self._leave()
        if self.helper.answered(now):
            # A service that waits for its file system has been started all the same.
            self._notifier.started()
        if self.drain and now >= self.drain.look_at:
            self.drain.look_at = math.inf
            self.helper.ask(Errands(look=True))
        return self.drain.look_at if self.drain else math.inf

    def _reap(self, now: float) -> float:
        self._children.reap(now)
        if self.stages.reap(now):
            # What they left, or that there is nothing left, is worth knowing now.
            self.helper.ask(Errands(look=True))
        return math.inf

    def _guard(self, now: float) -> float:
        return self._children.guard(self.context.local, now, adopts=self.pipeline.adopt)

    # Wishes

    def _obey(self, now: float) -> float:
        """Do what signals and control files ask for."""
        if self._signals.leaving_at or self._requests.quit:
            self._leave("it was asked to" if self._signals.leaving_at else "there is a QUIT file")
        if why := self.stages.out_of_time:
            self._leave(why)
        time_left = self.stages.time_left
        self.stages.hurried = (
            self._signals.hurried or self._requests.quit == "now" or time_left <= 0
        )
        if self._signals.reload:
            self._signals.reload = False
            self._read_again(now)
        if (read := self.helper.take_read()) is not None:
            self._take(read, now)
        return now + time_left if time_left > 0 else math.inf

    def _take(self, read: Read, now: float) -> None:
        """Go on with what the pipeline's file says now; a bad one changes nothing."""
        if read.pipeline is not None:
            try:
                self.stages.set_stages(read.pipeline, now)
            except OSError as error:
                read = Read(error=str(error))
        if read.pipeline is None:
            self._events.say("reload-refused", read.error)
        else:
            self.helper.change(read.pipeline)
            self._events.command = read.pipeline.on_event
            self._events.say("reloaded", read.pipeline.file)
        self.reload.answer(read)
        self._notifier.ready()
        # Whoever waits for it hears of it at once.
        self._reported = None, [], -math.inf

    def _serve(self, requests: Sequence[Request], now: float) -> None:
        # One reading for all: there may be as many as were made in an hour.
        if reloads := [one.serial for one in requests if one.kind == "reload"]:
            self._read_again(now, *reloads)
        for one in requests:
            if one.kind == "restart" and not self.stages.restart(one.target, one.serial):
                self._events.say("note", f"to restart: no stage or driver is called {one.target!r}")

    def _read_again(self, now: float, *serials: str) -> None:
        # Else nothing is started any more, by this file or by another.
        if not self.context.leaving:
            self._notifier.reloading(now)
            self.reload.ask(*serials)
            self.helper.read_again()

    def _leave(self, why: str = "") -> None:
        """Let each driver finish what it has at hand, stages from the first to the last."""
        if self.context.leaving:
            return
        self.context.leaving = True
        self._notifier.stopping()
        self._notifier.extend(leaving_takes(self.stages.alive))
        if why:
            self._events.say("note", f"leaving: {why}; a second signal hurries the documents")

    # Acts

    def _drive(self, now: float) -> float:
        """Start, ask and end drivers."""
        elapsed, self._turned_at = now - self._turned_at, now
        due = self.stages.turn(now, elapsed, self.helper.well(now))
        if self.drain and not self.context.leaving and (hopeless := self.stages.hopeless):
            # There is no use in waiting for a stage that can never go on by itself.
            self.drain.hopeless = hopeless
            self._leave("a stage cannot go on")
        return due

    def _recover(self, now: float) -> float:
        """Have recovered what dead drivers left where no driver lives: the living see to it."""
        if now >= self._recover_at and self.helper.well(now):
            self._recover_at = now + _RECOVER_EVERY
            if left := self.stages.abandoned:
                self.helper.ask(Errands(recover=tuple(left)))
        return math.inf

    # What it tells

    @property
    def pipeline(self) -> Pipeline:
        """Return the pipeline as the file has it now."""
        return self.stages.pipeline

    @property
    def state(self) -> State:
        """Return its own state in a word."""
        if self.context.leaving:
            return "stopping"
        if self.helper.was_well is False:
            return "waiting-fs"
        return "draining" if self.drain else "running"

    def _publish(self, now: float) -> float:
        """Save a report now and then, and soon after something has changed; tell the service
        manager that the loop is well."""
        states = [(slot.name, slot.rest.state) for slot in self.stages.slots]
        work = [slot.glimpse.totals.work for slot in self.stages.slots]
        before, done, at = self._reported
        every = _REPORT_IDLE_EVERY if work == done else _REPORT_EVERY
        every = min(every, (self._notifier.interval or math.inf) / 3)
        wait = every if states == before else _REPORT_CHANGES_EVERY
        if now < at + wait * (1 - _MORE_OR_LESS):
            return at + wait * (1 + _MORE_OR_LESS)
        self._reported = states, work, now
        self._notifier.beat()
        self._notifier.status(in_a_line(self))
        save(host_report(self, now))
        with suppress(OSError):
            # Somebody may have removed it. Without it `status` knows nothing while the root hangs.
            note_file(self.pipeline.file, self.context.host, self.context.local)
        if states != before:
            # Else it is copied with one of the next looks, and wakes nobody.
            self.helper.ask(Errands(report=True))
        pids = [slot.run.child.pid for slot in self.stages.slots if slot.run is not None]
        self.helper.measure(tuple(filter(None, pids)))
        return now + every * (1 + _MORE_OR_LESS)

    # The end

    def _end(self) -> None:
        """Take the last look, for whoever counts, and say the last word."""
        self._events.say("watchdog-stopped", f"process {os.getpid()}")
        self._children.end_orphans()
        killed = any(slot.leftovers for slot in self.stages.slots)
        hopeless = self.drain.hopeless if self.drain else ""
        report = replace(host_report(self, time.monotonic()), state="stopped", hopeless=hopeless)
        self._farewell(report, self.pipeline.inputs if killed else ())

    def crashed(self, words: str) -> None:
        """Leave word of what has ended the loop; nothing else of this watchdog is relied on."""
        self._events.say("watchdog-stopped", f"process {os.getpid()}: {words}")
        self._farewell(last_word(self, words))

    def _farewell(self, report: HostReport, recover: tuple[str, ...] = ()) -> None:
        save(report)
        self.helper.ask(Errands(report=True, recover=recover, look=True, farewell=True))
        self.helper.listen_to_the_end(LAST_LOOK)
