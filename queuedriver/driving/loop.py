"""What drivers and brokers have in common: how they look, pause, and wait for a file system that is
not well (`Loop`), when they look for what dead ones left (`Rounds`), and how they come and go
(`Life`).

What they do with what waits is their own: a driver processes it (`driver.py`), a broker deals it.
"""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from queuedriver.claims.charging import give_back_later
from queuedriver.claims.counts import Pass
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import CRASHED, PAST, Heartbeat, draw_salt
from queuedriver.disk.processes import process_ticks
from queuedriver.driving.backpressure import BackPressure
from queuedriver.driving.breaker import Breaker
from queuedriver.driving.closing import close_if_fed, read_controls
from queuedriver.driving.lifetime import OUT_OF_TIME, Recycling, TimeLeft
from queuedriver.driving.limits import QUIT_FILE, Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.driving.plan import Quit, Seen, Wait, is_time_to_watch, plan
from queuedriver.driving.setup import Opened
from queuedriver.driving.wake import Waker, Woken
from queuedriver.errors import NotFound, NotPermitted, QueueError, is_trouble
from queuedriver.format import names
from queuedriver.format.records import Counters, Registration
from queuedriver.options import Options

# How often what need not be looked at before each document is looked at, in seconds: the control
# files of a queue before every short document would cost a tenth of it. A look is a handful of
# requests to the server of a network file system, which has the looks of all drivers to answer.
LOOK_EVERY = 0.1
NETWORK_LOOK_EVERY = 0.5
# How often a driver looks for dead ones while it is busy, and while it waits.
_RECOVER_BUSY = 5.0
_RECOVER_IDLE = 1.0
# How often a busy driver lists the queue for claims of drivers that never registered: they are
# known by standing still, so two looks within their lease are needed. A listing of a million names
# takes half a second.
_RECOVER_LISTED = 60.0
# So many drivers of a queue do that; of a crowd the others need not.
_LISTERS = 64


class Rounds:
    """The looks for what dead drivers left in some queues."""

    def __init__(self, queues: Sequence[InputQueue], now: float) -> None:
        self._queues = queues
        # When to look for dead drivers, and when a busy one lists the queues for it.
        self._look_at = 0.0
        self._list_at = now + _RECOVER_LISTED

    def look(self, now: float, *, idle: bool = False) -> None:
        """Recover what the dead left if it is time; while idle more often, and by the last pass."""
        if now < self._look_at - (_RECOVER_BUSY - _RECOVER_IDLE if idle else 0.0):
            return
        self._look_at = now + _RECOVER_BUSY
        of_few = any(queue.waiting.picker.part < _LISTERS for queue in self._queues)
        listed = not idle and of_few and now >= self._list_at
        if listed:
            self._list_at = now + _RECOVER_LISTED
        for queue in self._queues:
            counts, recoverer = queue.waiting.picker.counts, queue.recoverer
            if idle and counts.claims:
                recoverer.recover(counts.claims)
            elif idle and not counts.unfinished:
                recoverer.forget_ended()
            elif listed or (not idle and recoverer.newly_dead()):
                recoverer.recover()


class Loop:
    """Looks and pauses over queues that are open and registered for."""

    def __init__(
        self,
        found: Opened,
        limits: Limits,
        tally: Tally,
        options: Options,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.state, self.why = "ready", ""
        self.queues = found.queues
        self.limits = limits
        self.tally = tally
        self.options = options
        self.clock = clock or time.monotonic
        # From the loop's clock to the time of day, in seconds.
        self.clocks = 0.0
        # When to look next at what need not be looked at before each document.
        self.look_at = 0.0
        self._look_every = NETWORK_LOOK_EVERY if found.network else LOOK_EVERY
        self.pressure = BackPressure(
            options,
            found.targets,
            found.observer,
            lambda: self.crowd,
        )
        paths = [queue.path for queue in self.queues]
        self.waker = Waker(paths, options.poll, limits.wake_fd, is_worth_waking_for)
        self.limited = (options.max_output_items or options.max_output_bytes) is not None
        self.recycling = Recycling(options, time.monotonic())
        self.breaker = Breaker(self.queues, options.trip_after, self.clock, self._look_soon)
        self.breaker.beats = (found.beats,)
        # Nothing is read unless it is wanted.
        took = (one for queue in self.queues for one in queue.journal.lately())
        self._time_left = TimeLeft.of(options, took)
        for queue in self.queues:
            queue.worked = self._worked
            queue.took = self._took
            queue.failed = self.tally.measured.failed
        # Whether all inputs are closed; and those that are not paused, in their order.
        self._done = False
        self.unpaused = list(self.queues)
        # Whether documents may be claimed, as far as the last look could tell.
        self.go = False
        self.resting = True
        self.trouble, self.troubles = "", 0
        self._idle_turns = 0
        # Whether hints were asked for, be there any or not.
        self._watching = False
        self._rounds = Rounds(self.queues, self.clock())

    # Its life

    def run(self) -> Quit:
        """Look and work, or pause, until there is a reason to leave; return it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Get ready for the first turn."""

    def farewell(self, end: Quit) -> None:
        """Tell whoever works for it how it ended."""

    def close(self) -> None:
        """Let go of what is at hand, and count it."""
        self.count()
        self.waker.close()

    @property
    def crowd(self) -> int:
        """Return how many drivers take from the same queues, as far as is known."""
        return max(queue.waiting.picker.sharers for queue in self.queues)

    @property
    def published(self) -> int:
        """Return how many outputs have become visible."""
        return sum(queue.published + len(queue.handed_over) for queue in self.queues)

    # Look

    def look(self) -> None:
        """Look at what need not be looked at before each document."""
        now = self.clock()
        self.look_at = now + self._look_every
        self.clocks = time.time() - now
        if not self.trouble:
            controls = [read_controls(queue.directory) for queue in self.queues]
            self._done = all(one.done for one in controls)
            looks = zip(self.queues, controls, strict=True)
            self.unpaused = [queue for queue, one in looks if not one.paused]
            self.count()
            for queue in self.queues:
                queue.journal.flush_if_due(now)
            if any(one.quit for one in controls):
                self.limits.leave("quit", QUIT_FILE)
            if enough := self.recycling.due(now, self.tally.documents):
                self.limits.leave("recycled", enough)
            if self._time_left is not None and (over := self._time_left.over(time.time())):
                self.limits.leave(OUT_OF_TIME, over)
            self._rounds.look(now)
            self.breaker.look(now)
            self.look_at = now + self._look_every
        self.go = self._may_work() and not self.breaker.stops

    def _look_soon(self) -> None:
        self.look_at = 0.0

    def _may_work(self) -> bool:
        return not (self.wish()[0] or self.trouble or not self.unpaused)

    def counters(self) -> Counters:
        """Return the counters with what was handed over a moment ago; from any thread."""
        took = [seconds for queue in self.queues for _, _, seconds in queue.handed_over[:]]
        return self.tally.counters(sum(took), len(took))

    def count(self) -> None:
        """Note and count the usual documents that were handed over since this was called last."""
        for queue in self.queues:
            queue.note_handed_over()
        self.tally.lost_races = sum(queue.lost_races for queue in self.queues)

    def _took(self, took: Sequence[float]) -> None:
        """Take note of the seconds that documents took which were done."""
        if self._time_left is not None:
            self._time_left.learn(took)
        if self.tally.board is not None:
            self.tally.measured.took(took)

    def _worked(self, seconds: float, documents: int) -> None:
        self.tally.worked(seconds, documents)
        self.breaker.worked()

    def wish(self) -> tuple[str, str]:
        """Return the last word on leaving, and why; "" while there is nothing to leave for."""
        leaving = self.limits.leaving_at is not None
        return (self.limits.word, self.limits.why) if leaving else ("", "")

    def seen(self) -> Seen:
        """Return the facts of which `plan` makes a pause, or an end."""
        leaving, leaving_why = self.wish()
        now, trip, trial_at = self.clock(), self.breaker.trip, self.breaker.trial_at
        # What is paused waits for people, and keeps a drain from its end.
        passed = sum((queue.waiting.picker.counts for queue in self.unpaused), Pass())
        all_go = len(self.unpaused) == len(self.queues)
        waits = ((self.limited and self.go) or trip is not None) and self.waits(now)
        full = self.pressure.full(self.published) if waits and not trip else ""
        stuck = {name for queue in self.queues for name in queue.recoverer.stuck}
        return Seen(
            candidate=waits,
            passed=passed,
            empty_for=min(queue.waiting.empty_for(now) for queue in self.queues),
            done=self._done and all_go,
            linger=self.options.linger,
            paused=not self.unpaused,
            tripped=trip.words(self.breaker.path, trial_at + self.clocks) if trip else "",
            trial_in=trial_at - now,
            holding=self.breaker.holds,
            leaving=leaving,
            leaving_why=leaving_why,
            full=full,
            no_consumer_for=self.pressure.no_consumer_for() if full else 0.0,
            trouble=self.trouble,
            troubles=self.troubles,
            drain=self.options.drain and all_go,
            idle_turns=self._idle_turns,
            hinted=self.waker.hinted,
            stuck=len(stuck.intersection(passed.claims)),
            now=time.time(),
        )

    def waits(self, now: float) -> bool:
        return any(queue.waiting.names or queue.waiting.list_more(now) for queue in self.unpaused)

    # Pause

    def rest(self) -> Quit | None:
        """Pause, as there is nothing to do now. Return why to leave, if that is it."""
        decision = plan(self.seen())
        if isinstance(decision, Quit):
            return decision
        if decision is not None:
            self.pause(decision)
        return None

    def may_try(self) -> bool:
        """Tell whether one document is to be tried of a stage that has stopped itself."""
        if not (self.breaker.due(self.clock()) and self._may_work()):
            return False
        # Who has found out that all is well has said so.
        self.look()
        return self.breaker.due(self.clock()) and self._may_work()

    def begin_work(self) -> None:
        """Watch nothing any more: a driver's own renames would come back to it as hints."""
        self.resting = False
        self._watch_no_more()
        self._idle_turns = self.troubles = 0
        self.state, self.why = "busy", ""

    def pause(self, decision: Wait) -> None:
        """Sleep: first some naps, then with a watch on the inputs, for which one looks once more
        when it has begun: what came before was not hinted. Room in the outputs is not hinted."""
        blocked = decision.state == "blocked"
        self.resting = True
        if not self.trouble:
            self.say(decision.state, decision.why)
        self.limits.idle()
        self.before_sleep()
        rested = is_time_to_watch(self._idle_turns, self.waker.loaded)
        if rested and not (blocked or self._watching or self.trouble):
            self._watching = True
            self.waker.arm()
            self._wake()
            return
        woken = self.wait(decision.seconds)
        self.tally.paused(blocked)
        if woken == "signal":
            self.limits.clear()
        if woken == "hint":
            # Hints may come faster than looks: none are wanted until there is nothing to do again.
            self._watch_no_more()
        if woken != "other":
            self._idle_turns = 0 if woken == "hint" else self._idle_turns + 1
            self.look_at = 0.0
        if self.trouble:
            self.mend()
            return
        self._wake()
        self._rounds.look(self.clock(), idle=True)

    def _wake(self) -> None:
        for queue in self.queues:
            queue.waiting.wake()

    def before_sleep(self) -> None:
        """Do what is not to wait for the end of a sleep, however short it will be."""
        self.count()
        for queue in self.queues:
            queue.journal.flush()
            if not self.trouble:
                check_there(queue)

    def wait(self, seconds: float) -> Woken:
        """Sleep until there is something to look at, but no longer."""
        return self.waker.wait(seconds)

    def _watch_no_more(self) -> None:
        if self._watching:
            self._watching = False
            self.waker.disarm()

    def say(self, state: str, why: str) -> None:
        """Show what the driver does, and why."""
        self.state, self.why = state, why
        self.tally.show(state, why)

    # Trouble with the file system

    def on_trouble(self, error: OSError) -> None:
        """Pause for what may pass; raise what will not."""
        self.go = False
        for queue in self.queues:
            queue.waiting.restart()
        check_passes(self.queues, error)
        self.trouble = str(error)
        self.say("waiting-fs", self.trouble)

    def mend(self) -> None:
        """Open everything anew, and write a little everywhere, to see whether all is well again."""
        self.troubles += 1
        try:
            for queue in self.queues:
                queue.reopen()
                queue.check_well()
            for queue in self.queues:
                give_back_later(queue.later)
            for queue in self.queues:
                queue.recoverer.sweep_own()
        except OSError as error:
            self.trouble = str(error)
            self.say(self.state, self.trouble)
            return
        self.trouble, self.look_at = "", 0.0
        self._idle_turns = 0
        # What is watched may be what was mounted before.
        self._watch_no_more()


def check_there(queue: InputQueue) -> None:
    """NotFound where a queue is not at its path any more: what is held open is a ghost, empty for
    ever, and without a complaint."""
    if queue.directory.moved():
        raise NotFound(f"the queue {queue.path} is gone, or another is in its place")


def check_passes(queues: Sequence[InputQueue], error: OSError) -> None:
    """Raise what will not pass by itself, of what befell somebody who drives these queues."""
    if isinstance(error, FileNotFoundError):
        for queue in queues:
            check_there(queue)
    if isinstance(error, PermissionError):
        where = ", ".join(queue.path for queue in queues)
        raise NotPermitted(
            f"driving {where}: {error}; mend the permissions, then start it again"
        ) from error
    # A directory of ours that was removed by hand is made again by opening everything anew.
    if not (is_trouble(error) or isinstance(error, FileNotFoundError)):
        raise error


def is_worth_waking_for(name: str) -> bool:
    """Tell whether a name that appears in an input is worth waking for. Our own claims are not."""
    is_claim = name.endswith((".working", ".written"))
    return not is_claim and (name in names.CONTROLS or names.parse(name) is not None)


class Left(NamedTuple):
    """The end of a driver: its last word, why, and the exit code that says so."""

    word: str
    why: str
    exit_code: int
    counters: Counters


class Life:
    """How drivers and brokers come and go."""

    def __init__(self, options: Options, board: Board | None) -> None:
        self.options = options.check()
        # The id it got, once it runs, and since when; in seconds since the epoch.
        self.id, self.since = "", 0.0
        # What could not be noted in the journals, once it has left.
        self.unnoted: tuple[str, ...] = ()
        # Where a watchdog sees what it does, and the process that is; 0: none, or it need not live.
        self._board = board
        self.supervisor = 0
        self._tally = Tally(board)
        self._loop: Loop | None = None

    def _register(
        self, found: Opened, processor: str, limits: Limits, *, broker: bool = False
    ) -> Heartbeat:
        """Say that it is there, and go on saying it. Inside `opened`, so that nobody else does."""
        self.id, self.since = found.mint.driver, self.since or found.since
        mints.add(found.mint)
        queues, supervisor = found.queues, self.supervisor
        output_ids = queues[0].opened_as
        past = tuple(found.past)[:PAST]
        registration = Registration(
            id=self.id,
            salt=found.mint.salt,
            past=past,
            left=found.left[:PAST],
            identity=found.observer.me,
            processor=processor,
            inputs=tuple(queue.path for queue in queues),
            outputs=tuple(target.directory.path for target in found.targets),
            output_ids=output_ids,
            past_output_ids={
                salt: found.past[salt] for salt in past if found.past[salt] != output_ids
            },
            started_at=time.time(),
            dump=str(limits.dump.name) if limits.dump is not None else "",
            broker=broker,
            network=found.network,
            batch=self.options.batch,
            supervisor=supervisor,
            supervisor_ticks=(supervisor and process_ticks(supervisor)) or 0,
        )

        def look() -> None:
            # The loop looks between documents, and a document may take hours.
            if any(queue.directory.present(names.QUIT) for queue in queues):
                limits.leave("quit", QUIT_FILE)
            if limits.leaving_at is not None and not registration.leaving:
                # It may be ended before it has left, and that will not be the document's doing.
                registration.leaving = limits.why
                beats.write()

        directories = [queue.drivers for queue in queues]
        durable = any(queue.durable for queue in queues)
        beats = Heartbeat(registration, directories, self._report, look, durable)
        beats.start()
        return beats

    def _lead(self, found: Sequence[Opened], limits: Limits, make_loop: Callable[[], Loop]) -> Quit:
        """Loop over queues that are open and registered for, at the latest when the loop is made,
        until there is a reason to leave; return it."""
        end = Quit(CRASHED, "it ended by an error", 70)
        loop: Loop | None = None
        try:
            loop = make_loop()
            is_first = self._loop is None
            # Signals, and the time-outs made of them, are the main thread's alone.
            if is_first and threading.current_thread() is threading.main_thread():
                limits.install()
            loop.begin()
            if is_first:
                self._tally.start()
            self._loop = loop
            if self._board is not None:
                self._board.ready(time.monotonic())
            end = loop.run()
            loop.farewell(end)
            for one in found:
                finish(one, end)
        except QueueError as error:
            end = Quit("failed", str(error), error.exit_code)
            raise
        finally:
            if loop is not None:
                loop.close()
            # One that could not even register has no last word.
            for one in found:
                self.unnoted += say_goodbye(one, end)
        return end

    def _report(self) -> tuple[str, str, Counters]:
        """Return what it does right now; asked by another thread."""
        loop = self._loop
        if loop is None:
            return "starting", "", self._tally.counters()
        return loop.state, loop.why, loop.counters()

    def _left(self, end: Quit) -> Left:
        """Return how it left, with the exit code that says what became of its documents."""
        code = end.exit_code or int(self.options.drain and self._tally.discarded > 0)
        return Left(end.word, end.why, code, self._tally.counters())


def finish(found: Opened, end: Quit) -> None:
    """Forget what has ended, where all has; and close the outputs of inputs that are done: an
    output is done when all that feed it are."""
    with contextlib.suppress(OSError):
        for queue in found.queues if end.word in ("done", "drained") else ():
            queue.recoverer.forget_ended()
    for target in found.targets if end.word == "done" else ():
        if target.publication.is_queue:
            close_if_fed(target.directory)


def say_goodbye(found: Opened, end: Quit) -> tuple[str, ...]:
    """Say the last word, so that nobody takes our absence for a crash; on a file system that is
    not well, it has to be noticed without. Return what could not be noted in the journals."""
    with contextlib.suppress(OSError):
        found.beats.leave(end.word, end.why)
    found.beats.stop()
    for queue in found.queues:
        queue.note_handed_over()
        queue.journal.close()
    return tuple(queue.journal.unnoted for queue in found.queues if queue.journal.unnoted)


# Those of this process. A fork that goes on as a driver must never form an N that we form, too.
mints: "weakref.WeakSet[names.Mint]" = weakref.WeakSet()


def _draw_anew() -> None:
    for mint in mints:
        mint.renew(draw_salt())


os.register_at_fork(after_in_child=_draw_anew)
