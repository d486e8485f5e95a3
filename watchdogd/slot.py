"""One driver's place in a stage: what there is to see of it, and what is done to it.

    Run     one driver's life there: its process, its board, and what was seen of the two
    Slot    the place: what the next driver is told, and what is remembered of those before

The policy decides; a slot gathers the facts for it, carries out what it says, and remembers.
"""

import math
import random
import signal
import time
from collections import Counter
from contextlib import suppress

from msgspec.structs import replace

from queuedriver.disk.processes import resident_memory, signal_name
from queuedriver.disk.runtime import EndedFor, note_crash, note_ending, unnote_ending
from queuedriver.driving.live_status import Board, Glimpse, Totals
from queuedriver.driving.measurements import Counted
from queuedriver.errors import QueueError
from watchdogd import policy
from watchdogd.children import Child, Exit
from watchdogd.driver_orders import Order
from watchdogd.events import Kind, Say
from watchdogd.helper_messages import Usage
from watchdogd.pipeline.model import Stage

# What the recoverer is told of a driver that the watchdog ended; for any other reason the document
# is not to blame.
_CAUSES: dict[str, EndedFor] = {policy.HUNG: "hung", policy.MEMORY: "memory"}
# Nobody looked for so long: then this host, or all of us, stood still, and no document is to blame.
_STOPPED = 10.0
# From the first wish to the second; nearer together the driver takes them for one.
_SECOND_WISH = 0.2
# How often the memory of a driver is looked at that has nothing to do, in seconds.
_IDLE_MEMORY_EVERY = 5.0
BLANK = Glimpse()
# What of drivers has not been measured yet.
NO_USAGE = Usage()


class Run:
    """One driver's life in a slot."""

    def __init__(
        self, child: Child, board: Board | None, order: Order, stage: Stage, now: float
    ) -> None:
        self.child = child
        # None: it could not be made, and so no driver begins.
        self.board = board
        self.order = order
        # The stage that it was begun for; what it was not told is as the file has it now. It is
        # judged by this: it keeps to the limits that it was told.
        self.stage = stage
        self.started_at = now
        self.glimpse = BLANK
        # What the helper has measured of it and of what it has started; its bytes, with those, but
        # for what it shares with others; and when its own were looked at.
        self.usage = NO_USAGE
        self.memory = self._own_memory = 0
        self._measured_at = -math.inf
        # Since when its board has had a last word; 0: it has none.
        self.left_at = 0.0
        # What it was told when it was to leave, and until when.
        self.told_to_leave: tuple[str, float] | None = None
        # What people were told: that it has begun, and the rung it was on.
        self.is_told = False
        self.rung_told = "run"
        # For how long the file system stood still while it loaded, or had this document.
        self._stall = 0.0

    def look(self, now: float, elapsed: float, *, fs_ok: bool) -> bool:
        """Read the board, and what the process takes; return whether it has become ready. `elapsed`
        are the seconds since the last look."""
        if self.board is None:
            return False
        before, glimpse = self.glimpse, self.board.read()
        self.glimpse = glimpse
        if (before.ready_at, before.began_at) != (glimpse.ready_at, glimpse.began_at):
            self._stall = 0.0
        elif not fs_ok or elapsed > _STOPPED:
            self._stall += elapsed
        if glimpse.word and not self.left_at:
            self.left_at = now
        # One that looks for documents counts the time all the while.
        worked = glimpse.totals.work != before.totals.work
        is_idle = glimpse.ready_at and not glimpse.began_at and not worked
        if not is_idle or now >= self._measured_at + _IDLE_MEMORY_EVERY:
            self._measure(now)
        self.memory = self._own_memory + self.usage.memory
        return bool(glimpse.ready_at and not before.ready_at)

    def _measure(self, now: float) -> None:
        self._measured_at = now
        # One that has ended will be reaped; or it is a set-uid program, or we have too many files
        # open. Before it has signed it may be a fork that has nothing of its own yet.
        with suppress(OSError):
            taken = resident_memory(self.child.pid) if self.glimpse.pid else 0
            self._own_memory = max(0, taken - self.glimpse.shared)

    def seen(self, seen: policy.Seen, learned: float | None) -> policy.Seen:
        """Return these facts of a slot with those of the run."""
        glimpse, child = self.glimpse, self.child
        return replace(
            seen,
            alive=True,
            started_at=self.started_at + (0.0 if glimpse.ready_at else self._stall),
            ready_at=glimpse.ready_at,
            began_at=glimpse.began_at + self._stall if glimpse.began_at else 0.0,
            hard=policy.hard_limit(self.stage, learned),
            state=glimpse.state,
            left_at=self.left_at,
            memory=self.memory,
            rung=child.rung,
            asked_for=child.why,
            asked_at=child.asked_at,
            due_at=child.due_at,
        )

    @property
    def at_hand(self) -> str:
        return f" with {self.glimpse.docid!r} at hand" if self.glimpse.docid else ""

    def leaves(self, why: str, until: float) -> None:
        """Note that it has been told to leave, by us or by the kernel."""
        self.told_to_leave = why, until
        self.child.rung, self.child.why, self.child.due_at = "leave", why, until

    def note_ending(self, why: str) -> None:
        """Leave word of why it is ended, for whoever recovers what it has at hand."""
        cause_of_end = _CAUSES.get(why, "ended")
        words = f"the watchdog ended the driver: {why}" if cause_of_end != "hung" else ""
        # Where the runtime directory is full, it will pass for a crash.
        with suppress(OSError, QueueError):
            note_ending(self.glimpse.dump, cause_of_end, words)

    def withdraw(self, now: float) -> None:
        """Take back what was asked and noted of a driver that has gone on by itself. One that was
        told to leave before that is not told again: it would give back what it has at hand."""
        self.child.ask("run", "", now)
        self.rung_told = "run"
        if self.told_to_leave is not None:
            self.leaves(*self.told_to_leave)
        with suppress(OSError, QueueError):
            unnote_ending(self.glimpse.dump)


class Slot:
    """A place that a driver lives in, one run after another."""

    def __init__(self, stage: str, number: int, order: Order, say: Say) -> None:
        self.stage = stage
        self.number = number
        # What a driver that is started now is told.
        self.next_order = order
        # Why the process is to leave, or there is to be none, in a word (policy.UNWANTED).
        self.unwanted = "scale"
        self.run: Run | None = None
        self.past = policy.Past()
        self.rest = policy.Rest("stopped")
        # Since when it has been in this state, on the monotonic clock.
        self.since = time.monotonic()
        self.ended_at = 0.0
        # How often a driver was started, by how the run before had ended.
        self.starts_after = Counter[str]()
        self._ended_as = "first"
        self.earlier = Totals()
        self._counted_before = Counted()
        # A dead driver's claims are still to be recovered: by the next one here, or by the helper.
        self.leftovers = False
        self._say = say

    @property
    def name(self) -> str:
        """Return what people call it."""
        return self.next_order.name

    @property
    def glimpse(self) -> Glimpse:
        return self.run.glimpse if self.run else BLANK

    @property
    def memory(self) -> int:
        return self.run.memory if self.run else 0

    @property
    def wanted(self) -> bool:
        """Return whether there is to be a driver here."""
        return self.unwanted in ("", "restart")

    @property
    def is_stale(self) -> bool:
        """Return whether the driver here was told other things than it would be now."""
        if self.run is None or self.run.order is self.next_order:
            # Nearly always: to compare two orders takes longer than the rest of a look.
            return False
        return self.run.order != self.next_order

    @property
    def is_starting(self) -> bool:
        """Return whether a driver has begun here that is not ready, and has not left."""
        run = self.run
        return run is not None and not (run.glimpse.ready_at or run.glimpse.word)

    @property
    def works(self) -> bool:
        """Return whether a driver is here that has become ready."""
        return self.run is not None and bool(self.run.glimpse.ready_at)

    @property
    def totals(self) -> Totals:
        """The counters of all runs, the present one included."""
        return self.earlier.plus(self.run.glimpse.totals) if self.run else self.earlier

    @property
    def counted(self) -> Counted:
        """Return what the drivers of all runs have counted."""
        before = self._counted_before
        return before.plus(self.run.glimpse.counted) if self.run else before

    @property
    def starts(self) -> int:
        """Return how often a driver was started here, or taken over."""
        return self.starts_after.total()

    @property
    def hopeless(self) -> bool:
        """Return whether only an operator can get a driver to live here again."""
        return self.run is None and math.isinf(self.past.not_before)

    # Look

    def look(self, now: float, elapsed: float, fs_ok: bool) -> float | None:
        """Look at the driver, and tell of what has become of it; return how long its start took
        when it has become ready since."""
        run = self.run
        if run is None:
            return None
        is_ready = run.look(now, elapsed, fs_ok=fs_ok)
        self._tell_of(run)
        if not is_ready:
            return None
        took = run.glimpse.ready_at - run.started_at
        self._tell("ready", f"after {took:.2f} s")
        return took

    def seen(self, learned: float | None, fs_ok: bool, idle: str) -> policy.Seen:
        """Return the facts, as the policy wants them; `learned` is how long the document at hand
        may take by what others of the stage took."""
        seen = policy.Seen(
            unwanted=self.unwanted, alive=False, past=self.past, fs_ok=fs_ok, idle=idle
        )
        return self.run.seen(seen, learned) if self.run else seen

    # Act

    def follow(self, seen: policy.Seen, now: float) -> float:
        """Do what the policy says; return when it wants to be asked again at the latest. A start is
        shown, and left to the caller."""
        run = self.run
        action = policy.decide(seen, run.stage if run else self.next_order.stage, now)
        if isinstance(action, policy.Rest):
            if action.state == "unkillable" != self.rest.state:
                self._tell("unkillable", action.why)
            self._show(action, now)
            return action.until
        if isinstance(action, policy.Start):
            # It may have to wait for its turn.
            if self.past.state == policy.CRASH_LOOPED and self.rest.state != "starting":
                self._tell("trial", self.past.why)
            self._show(policy.Rest("starting", action.why), now)
            return math.inf
        if isinstance(action, policy.Withdraw) and run is not None:
            run.withdraw(now)
        elif isinstance(action, policy.Ask) and run is not None:
            self._ask(run, action, now)
        return now

    def _ask(self, run: Run, action: policy.Ask, now: float) -> None:
        """Ask something of the driver. Why it dies is noted before it does."""
        if action.step == "leave":
            run.child.ask("leave", action.why, now, policy.leaves_within(run.stage.grace))
            run.told_to_leave = action.why, run.child.due_at
        else:
            run.note_ending(action.why)
            run.child.ask(action.step, action.why, now)
            self._tell_of(run)

    def hurry(self, now: float) -> float:
        """Ask for what it has at hand to be given back: a second wish, once it has had the first;
        return when to come back for that."""
        run = self.run
        if run is None or run.child.rung != "leave":
            return math.inf
        second_at = run.child.asked_at + _SECOND_WISH
        if now < second_at:
            return second_at
        run.note_ending("stop")
        run.child.ask("hurry", "stop", now)
        return now

    def _tell(self, kind: Kind, message: str, **more: object) -> None:
        self._say(kind, message, stage=self.stage, driver=self.name, **more)

    def _tell_of(self, run: Run) -> None:
        """Tell that the process has come, and of the rungs on which it is ended."""
        child = run.child
        if child.pid and not run.is_told:
            run.is_told = True
            kind: Kind = "started" if self.starts == 1 else "restarted"
            self._tell(kind, f"process {child.pid}", pid=child.pid)
        if child.rung == run.rung_told:
            return
        run.rung_told, why = child.rung, policy.reason(child.rung, child.why)
        if child.rung == "stacks":
            if why == policy.HUNG:
                self._tell("hung", why + run.at_hand)
            elif why == policy.LATE:
                run.note_ending(why)
        elif child.rung == "kill":
            self._tell("killed", why + run.at_hand)

    def _show(self, rest: policy.Rest, now: float) -> None:
        if rest.state != self.rest.state:
            self.since = now
        self.rest = rest

    # Runs

    def begin(self, child: Child, board: Board | None, stage: Stage, now: float) -> None:
        """Have a driver of this stage live here from now on, be it still to come."""
        self.run = Run(child, board, self.next_order, stage, now)
        self.starts_after[self._ended_as] += 1
        self._show(policy.Rest("starting"), now)
        self._tell_of(self.run)

    def adopt(
        self, child: Child, board: Board, order: Order | None, stage: Stage, now: float
    ) -> None:
        """Take over a driver that an earlier watchdog has started with this order; None: nobody
        knows, and it passes for one of the stage as it is now."""
        if order is not None:
            # That it was restarted once is no reason to do so again.
            self.next_order = replace(self.next_order, restart=order.restart)
            stage = order.begun_for(stage)
        glimpse = board.read()
        told = self.next_order if order is None or order == self.next_order else order
        self.run = run = Run(child, board, told, stage, glimpse.ready_at or now)
        run.glimpse, run.is_told = glimpse, True
        self.starts_after["adopted"] += 1
        self.earlier = Totals().minus(glimpse.totals)
        self._counted_before = Counted().minus(glimpse.counted)
        if order is not None and order.parent:
            # The kernel has told it to leave. A second signal would take the document at hand away
            # from it.
            run.leaves("its watchdog has died", now + policy.leaves_within(stage.grace))
            run.rung_told = "leave"
        self._tell("adopted", f"process {child.pid}")

    def died(self, ended: Exit, stage: Stage, now: float) -> policy.Life | None:
        """Note that the process has ended, or never came; return what kind of run that was."""
        run, self.run = self.run, None
        if run is None:
            return None
        if run.board is not None:
            run.glimpse = run.board.read()
            run.board.close()
        self._tell_of(run)
        self.earlier = self.earlier.plus(run.glimpse.totals)
        self._counted_before = self._counted_before.plus(run.glimpse.counted)
        life = self._life(run, ended, now)
        self._ended_as = life.ended_for or life.word or "crashed"
        if run.child.pid:
            # Who was never ready has not looked at what the one before left.
            self.leftovers = not life.word or (self.leftovers and not life.ready_at)
            if not (life.ended_for or life.word) and (life.signal or life.exit_code is not None):
                # Where the runtime directory is full, nobody will know how it crashed.
                with suppress(OSError, QueueError):
                    note_crash(run.glimpse.dump, life.exit_code, life.signal)
        self._tell_end(run, life, ended)
        before, jitter = self.past.state, random.uniform(-1, 1)
        self.past = policy.remember(self.past, life, stage, jitter)
        self.ended_at = now
        if self.past.state == policy.CRASH_LOOPED != before:
            self._tell(policy.CRASH_LOOPED, self.past.why)
        return life

    def _tell_end(self, run: Run, life: policy.Life, ended: Exit) -> None:
        if life.word == "recycled":
            self._tell("recycled", life.why)
            return
        name: str | None = life.signal or None
        if run.told_to_leave and ended.signal == signal.SIGTERM and not life.ready_at:
            # It did not listen yet: the signal ended it, as it was to.
            words, name = "it was told to leave while it started", None
        elif run.child.pid:
            words = f"{life.word}: {life.why}" if life.word else policy.cause(life)
            words += run.at_hand and f",{run.at_hand}"
        elif not run.child.failure:
            # It is wanted no more.
            return
        else:
            words = f"it did not start: {run.child.failure}"
        self._tell("exited", words, exit_code=ended.code, signal=name)

    def _life(self, run: Run, ended: Exit, now: float) -> policy.Life:
        glimpse, child = run.glimpse, run.child
        code = ended.code
        if code is None and ended.signal is None and glimpse.word:
            # Adopted: nobody tells us how it ended, but it said so itself.
            code = glimpse.exit_code
        word, why = glimpse.word, glimpse.why if glimpse.word else ""
        if child.failure:
            word, why = "failed", child.failure
        ended_for = "restart" if self.unwanted == "restart" else ""
        if child.rung != "run":
            fault = policy.reason(child.rung, child.why)
            # Told to leave, and wanted again before it had: that is held against nobody.
            is_late = fault == policy.LATE and self.wanted and not ended_for
            is_at_fault = is_late or (fault in policy.SENTENCES and fault != policy.LATE)
            ended_for = fault if is_at_fault else self.unwanted or "scale"
        return policy.Life(
            started_at=run.started_at,
            ready_at=glimpse.ready_at,
            ended_at=now,
            documents=glimpse.totals.documents,
            claimed=glimpse.claimed,
            word=word,
            why=why,
            exit_code=code,
            signal=signal_name(ended.signal) if ended.signal is not None else "",
            ended_for=ended_for,
        )

    def forget(self) -> None:
        """Forget what kept it from running: an operator says that it is mended."""
        self.past = policy.Past()
