"""The watchdog: one loop that keeps the drivers of a pipeline alive on this host. Read this first.

    stages.py    all stages: how many drivers each gets
    keeper.py    the drivers of one stage: started with what, replaced when
    slot.py      one driver's place: what there is to see of it, what is done to it
    policy.py    when a driver is started, asked to leave, ended; pure
    balance.py   which stage gets the next driver; pure
    helper.py    the process that does all input and output where the queues are
    requests.py  what files ask of a watchdog
    children.py  every process that is started, and how each has ended

The loop sleeps in one poll over the socket of the helper and the pipe of the signals, of which one
tells that a child has ended. It touches no file below the root of the pipeline and waits for
nothing else, so that it goes on, and says so, while that file system hangs.
"""

import math
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

from watchdogd.bulletin import Bulletin
from watchdogd.children import Children
from watchdogd.control import QUIT
from watchdogd.helper import Helper
from watchdogd.herald import Herald
from watchdogd.kernel import become_subreaper
from watchdogd.messages import Errands, Read, Request
from watchdogd.notify import Notifier
from watchdogd.pipeline.model import Pipeline
from watchdogd.report import HostReport, State, host_report, in_a_line, last_word
from watchdogd.report_file import last_report, save
from watchdogd.requests import Requests
from watchdogd.signals import Signals
from watchdogd.stages import Stages
from watchdogd.will import Will

# A look at everything at least so often, whatever is said to be due.
_LONGEST_SLEEP = 5.0
# How often the helper is asked to recover what dead drivers of idle slots left.
_RECOVER_EVERY = 5.0
# How long the end waits for the helper to see it.
_LAST_LOOK = 5.0
# How many looks in a row must see all stages drained before a drain is over.
_DRAINED_LOOKS = 2
# How soon one that saw nothing left is followed by the next, in seconds.
_LOOK_AGAIN = 0.1
# How many served requests are told of, each to whoever waits for it.
_MOST_SERVED = 10
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
        children: Children,
        helper: Helper,
        herald: Herald,
        signals: Signals,
        notifier: Notifier,
        *,
        drain: bool = False,
    ) -> None:
        self.host = host
        self.local = local
        self.drain = drain
        self._herald = herald
        self._children = children
        self.stages = Stages(pipeline, host, local, herald.say, children)
        if (before := last_report(local)) is not None:
            self.stages.hard_limits = {stage.name: stage.hard_limit for stage in before.stages}
        self.helper = helper
        self._requests = Requests()
        # The serials of the latest requests for a reload that were answered: somebody may wait.
        self.served: tuple[str, ...] = ()
        self.reload_error = ""
        self.started_at = time.time()
        self._signals = signals
        self._notifier = notifier
        # Told of each turn of the loop.
        self.watch: Callable[[Supervisor, float], None] = lambda _, __: None
        self._will = Will(local, herald.say, children, needed=not pipeline.adopt)
        # The serials of requests to read the pipeline's file that are not answered yet.
        self._reloads: list[str] = []
        self._bulletin = Bulletin(notifier)
        self._turned_at = time.monotonic()
        self._recover_at = 0.0
        self._is_ready = self._leaving = self._ended = False
        # What the check of this host found that people should know, of the file as it is now.
        self.remarks: tuple[str, ...] = ()
        # How often this watchdog has told how it is.
        self.beat = 0
        # How many looks in a row have seen all stages drained.
        self._drained_looks = 0
        # When the next look at drained stages is due.
        self._look_at = math.inf
        # Why a drain was given up.
        self.hopeless: str | None = None

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
        helper_due = self.helper.tend(now)
        self._listen(now)
        self._reap(now)
        self._obey(now)
        fs_ok = self.helper.well(now)
        self.stages.hurried = self._signals.hurried or self._requests.quit == "now"
        due = self.stages.turn(now, elapsed, fs_ok)
        if self.drain and not self._leaving and (hopeless := self.stages.hopeless):
            # There is no use in waiting for a stage that can never go on by itself.
            self.hopeless = hopeless
            self._leave("a stage that cannot go on")
        if now >= self._look_at:
            self._look_at = math.inf
            self.helper.ask(Errands(look=True))
        self._recover(now)
        self._publish(now)
        return min(
            due,
            now + _LONGEST_SLEEP,
            self._look_at,
            helper_due,
            self._herald.tend(now),
            self._bulletin.due_at,
            self._will.tend(now),
            # Last: a look for orphans is not to keep a driver from being started.
            self._children.tend(now),
        )

    def _sleep(self, due: float) -> None:
        poll = select.poll()
        fds = [self._signals.wake_fd, self.helper.fd, *self._children.fds, *self.stages.fds]
        for fd in fds:
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, due - time.monotonic()) * 1000)
        self._signals.clear()

    def _reap(self, now: float) -> None:
        self._children.reap(now)
        if self.stages.reap(now):
            # What they left, or that there is nothing left, is worth knowing now.
            self.helper.ask(Errands(look=True))

    # What the helper sees

    def _listen(self, now: float) -> None:
        if self.helper.listen(now) and self.helper.view.known:
            self._learn(now)
        if self.helper.answered(now) and not self._is_ready:
            # A service that waits for its file system has been started all the same.
            self._is_ready = True
            self._notifier.ready()

    def _learn(self, now: float) -> None:
        view = self.helper.view
        for request in self._requests.news(view.controls):
            self._serve(request, now)
        if self._requests.outdated:
            self.helper.ask(Errands(forget_controls=(QUIT,)))
        self.stages.learn(view, now)
        if self.drain and not self._leaving:
            self._see_empty(now)

    def _see_empty(self, now: float) -> None:
        """Leave when all stages were seen drained by two looks in a row: what one look does not see
        in one queue may have come there from another that was looked at before. No queue is closed:
        more may come tomorrow."""
        nothing_left = self.stages.empty and not self.helper.view.trouble
        self._drained_looks = self._drained_looks + 1 if self.stages.drained else 0
        if nothing_left and self._drained_looks >= _DRAINED_LOOKS:
            self.stages.finish()
            self._leave()
        elif nothing_left:
            self._look_at = now + _LOOK_AGAIN

    def _recover(self, now: float) -> None:
        """What dead drivers left where no driver lives: the living see to it by themselves."""
        if now >= self._recover_at and self.helper.well(now):
            self._recover_at = now + _RECOVER_EVERY
            if left := self.stages.abandoned:
                self.helper.ask(Errands(recover=tuple(left)))

    # What is asked of it

    def _obey(self, now: float) -> None:
        if self._signals.leaving_at or self._requests.quit:
            self._leave("a signal" if self._signals.leaving_at else "a QUIT file")
        if self._signals.reload:
            self._signals.reload = False
            self._read_again(now)
        if (read := self.helper.take_read()) is not None:
            self._renew(read, now)

    def _serve(self, request: Request, now: float) -> None:
        if request.kind == "reload":
            self._read_again(now, request.serial)
        elif not self.stages.restart(request.target, request.serial):
            self._herald.say("note", f"to restart: no stage or driver is called {request.target!r}")

    def _leave(self, why: str = "") -> None:
        """Stages from the first to the last: each driver finishes what it has at hand."""
        if self._leaving:
            return
        self._leaving = True
        self._notifier.stopping()
        self._notifier.extend(self.stages.grace + _MARGIN)
        if why:
            words = f"leaving because of {why}; a second signal hurries the documents"
            self._herald.say("note", words)
        self.stages.leaving = True

    # Reload

    def _read_again(self, now: float, serial: str = "") -> None:
        # Else nothing is started any more, by this file or by another.
        if not self._leaving:
            self._notifier.reloading(now)
            self._reloads += [serial] if serial else []
            self.helper.read_again()

    def _renew(self, read: Read, now: float) -> None:
        """Only what has changed is touched; a bad file touches nothing."""
        self.reload_error = read.error
        if read.pipeline is None:
            self._herald.say("reload-refused", read.error)
        else:
            self.stages.man(read.pipeline, now)
            self.remarks = read.notes
            self.helper.change(self.pipeline)
            self._herald.configure(self.pipeline.on_event)
            self._herald.say("reloaded", self.pipeline.file)
        self._notifier.ready()
        self.served = (*self.served, *self._reloads)[-_MOST_SERVED:]
        self._reloads.clear()
        self._bulletin.hasten(now)

    # What it tells

    @property
    def pipeline(self) -> Pipeline:
        """As the file has it now."""
        return self.stages.pipeline

    @property
    def state(self) -> State:
        """In one word."""
        if self._ended:
            return "stopped"
        if self._leaving:
            return "stopping"
        if self.helper.was_well is False:
            return "waiting-fs"
        return "draining" if self.drain else "running"

    def _publish(self, now: float) -> None:
        states = [(slot.name, slot.rest.state) for slot in self.stages.slots]
        if self._bulletin.is_due(states, now):
            self.beat += 1
            self._save(host_report(self, now))
            self.helper.ask(Errands(report=True))
        self._bulletin.beat(in_a_line(self), now)

    def _save(self, report: HostReport) -> None:
        # On a full disk, or one that fails, people know less; the drivers do not mind.
        with suppress(OSError):
            save(report)

    # The end

    def _over(self) -> bool:
        done = self._leaving or (self.drain and self.stages.done)
        return done and self.stages.settled

    def _end(self) -> None:
        """The last look, for whoever counts, and the last word."""
        self._ended = True
        self._herald.say("watchdog-stopped", f"process {os.getpid()}")
        self._children.end_orphans()
        killed = any(slot.leftovers for slot in self.stages.slots)
        queues = tuple(queue for stage in self.pipeline.stages for queue in stage.inputs)
        self.beat += 1
        self._save(host_report(self, time.monotonic()))
        left = queues if killed else ()
        self.helper.ask(Errands(report=True, recover=left, look=True, farewell=True))
        self.helper.listen_to_the_end(_LAST_LOOK)

    def crashed(self, words: str) -> None:
        """Leave word of what has ended the loop; nothing else of this watchdog is relied on."""
        self._herald.say("watchdog-stopped", f"process {os.getpid()}: {words}")
        self.beat += 1
        self._save(last_word(self, words))
        self.helper.ask(Errands(report=True, farewell=True))
        self.helper.listen_to_the_end(_LAST_LOOK)
