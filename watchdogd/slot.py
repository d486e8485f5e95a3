"""One driver's place in a stage: what there is to see of it, and what is done to it.

The policy decides; a slot gathers the facts for it, carries out what it says, and remembers.
"""

import math
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from queuedriver.disk.processes import signal_name
from queuedriver.disk.runtime import EndedFor, note_crash, note_ending, unnote_ending
from queuedriver.driving.live_status import Board, Glimpse
from queuedriver.driving.recycling import resident_memory
from queuedriver.errors import QueueError
from watchdogd.children import Child, Exit
from watchdogd.events import Kind
from watchdogd.messages import Usage
from watchdogd.orders import Order
from watchdogd.pipeline.model import Stage
from watchdogd.policy import (
    HUNG,
    LATE,
    MEMORY,
    START_UP,
    Ask,
    Asked,
    Life,
    Past,
    Rest,
    Seen,
    Start,
    Withdraw,
    cause,
    decide,
    remember,
)

# What the recoverer is told of a driver that the watchdog ended; for any other reason the document
# is not to blame.
_CAUSES: dict[str, EndedFor] = {HUNG: "hung", MEMORY: "memory"}
_SIGNALS = {
    "leave": signal.SIGTERM,
    "hurry": signal.SIGTERM,
    "stacks": signal.SIGUSR2,
    "terminate": signal.SIGTERM,
    "kill": signal.SIGKILL,
}
# Nobody looked for so long: then this host, or all of us, stood still, and no document is to blame.
_STOPPED = 10.0
# From the first wish to the second; nearer together the driver takes them for one.
_SECOND_WISH = 0.2
BLANK = Glimpse(0, 0, "starting", "", 0.0, "", 0.0, 0, 0, 0, 0, 0, 0, 0, 0, "", 0, "", 0)


class Tell(Protocol):
    """Tells of an event: its word, the slot, what there is to say, and other fields of it."""

    def __call__(self, kind: Kind, slot: "Slot", message: str, **more: object) -> None: ...


class Totals(NamedTuple):
    """What came of all the lives of a slot; times in nanoseconds."""

    documents: int = 0
    failed: int = 0
    discarded: int = 0
    work: int = 0
    wait: int = 0
    block: int = 0
    overhead: int = 0

    def plus(self, glimpse: Glimpse) -> "Totals":
        return Totals(*(one + getattr(glimpse, key) for key, one in self._asdict().items()))

    def minus(self, glimpse: Glimpse) -> "Totals":
        return Totals(*(one - getattr(glimpse, key) for key, one in self._asdict().items()))


class Slot:
    """A place that a driver lives in, one life after another."""

    def __init__(self, stage: str, number: int, order: Order, tell: Tell) -> None:
        self.stage = stage
        self.number = number
        self.driver = order.id
        self.name = order.name
        # What a driver that is started now is told; and what the living one was told.
        self.next_order = order
        self.order = order
        # Why the process is to leave, or there is to be none: scale, stop, unmanaged, restart.
        self.unwanted = "scale"
        # A start was asked of the stage's template, and has not come about yet.
        self.coming = False
        self.process: Child | None = None
        self.glimpse = BLANK
        self.memory = 0
        # What the helper has measured of the process, and of what it has started.
        self.usage = Usage()
        self.past = Past()
        self.rest = Rest("stopped", "", None)
        # Since when it has been in this state, on the monotonic clock.
        self.since = time.monotonic()
        self.started_at = 0.0
        self.ended_at = 0.0
        self.starts = 0
        self.earlier = Totals()
        # A dead driver's claims are still to be recovered: by the next one here, or by the helper.
        self.leftovers = False
        self._tell = tell
        self._asked: Asked | None = None
        self._told_to_leave: Asked | None = None
        self._board: Board | None = None
        self._left_at = 0.0
        # For how long the file system stood still while the driver loaded, or had this document.
        self._stall = 0.0
        self._stalled: tuple[float, float] = (0.0, 0.0)

    @property
    def wanted(self) -> bool:
        """Whether there is to be a driver here."""
        return self.unwanted in ("", "restart")

    @property
    def is_stale(self) -> bool:
        """Whether a driver lives here that was told other things than it would be now."""
        return self.process is not None and self.order != self.next_order

    @property
    def totals(self) -> Totals:
        """Of all lives, this one too."""
        return self.earlier.plus(self.glimpse) if self.process else self.earlier

    @property
    def hopeless(self) -> bool:
        """Whether only an operator can get a driver to live here again."""
        return self.process is None and math.isinf(self.past.not_before)

    # Look

    def look(self, now: float, elapsed: float, fs_ok: bool) -> float | None:
        """What the driver says of itself, and what it takes; `elapsed` is since the last look.
        How long its start took, when it has become ready since."""
        if self.process is None or self._board is None:
            return None
        before, self.glimpse = self.glimpse, self._board.read()
        glimpse = self.glimpse
        stage_of_life = (glimpse.ready_at, glimpse.began_at)
        if stage_of_life != self._stalled:
            self._stalled, self._stall = stage_of_life, 0.0
        elif not fs_ok or elapsed > _STOPPED:
            self._stall += elapsed
        if glimpse.word and not self._left_at:
            self._left_at = now
        try:
            # Before it has signed it may be a fork that has nothing of its own yet.
            taken = resident_memory(self.process.pid) if glimpse.pid else 0
            self.memory = max(0, taken - glimpse.shared) + self.usage.memory
        except OSError:
            # It has ended, and will be reaped; or it is a set-uid program, or we have too
            # many files open.
            pass
        if not glimpse.ready_at or before.ready_at:
            return None
        took = glimpse.ready_at - self.started_at
        self._tell("ready", self, f"after {took:.2f} s")
        return took

    def seen(self, hard: float | None, fs_ok: bool, work: bool) -> Seen:
        """Return the facts, as the policy wants them."""
        glimpse = self.glimpse
        return Seen(
            wanted=not self.unwanted,
            alive=self.process is not None,
            past=self.past,
            started_at=self.started_at + (0.0 if glimpse.ready_at else self._stall),
            ready_at=glimpse.ready_at,
            began_at=glimpse.began_at + self._stall if glimpse.began_at else 0.0,
            hard=hard,
            state=glimpse.state,
            left_at=self._left_at,
            memory=self.memory,
            asked=self._asked,
            fs_ok=fs_ok,
            work=work,
        )

    # Act

    def follow(
        self,
        stage: Stage,
        seen: Seen,
        now: float,
        start: Callable[["Slot"], None],
    ) -> float | None:
        """Do what the policy says; when it wants to be asked again at the latest."""
        if self.coming:
            # Wanted or not: it is asked to leave once it is here.
            return None
        action = decide(seen, stage, now)
        if isinstance(action, Start):
            if self.past.state == "crash-looped":
                self._tell("trial", self, self.past.why)
            self._show(Rest("starting", action.why, None), now)
            start(self)
            return None
        if isinstance(action, Ask):
            self.ask(action, now)
            return now
        if isinstance(action, Withdraw):
            self._withdraw()
            return now
        if action.state == "unkillable" != self.rest.state:
            self._tell("unkillable", self, action.why)
        self._show(action, now)
        return action.until

    def ask(self, action: Ask, now: float) -> None:
        """Ask something of the living driver. Why it dies is said before it does."""
        process = self.process
        if process is None:
            return
        self._asked = Asked(action.step, action.why, now)
        if action.step == "leave":
            self._told_to_leave = self._asked
        if action.step in ("stacks", "kill"):
            at_hand = f" with {self.glimpse.docid!r} at hand" if self.glimpse.docid else ""
            if action.step == "kill" or action.why == HUNG:
                self._tell(
                    "hung" if action.step == "stacks" else "killed", self, action.why + at_hand
                )
            self._note_ending(action.why)
        if action.step in ("terminate", "kill"):
            process.signal_group(_SIGNALS[action.step])
        else:
            process.send(_SIGNALS[action.step])

    def _withdraw(self) -> None:
        """Take back what was asked and noted of a driver that has gone on by itself. One that was
        told to leave before that is not told again: it would give back what it has at hand."""
        self._asked = self._told_to_leave
        with suppress(OSError, QueueError):
            unnote_ending(self.glimpse.dump)

    def hurry(self, now: float) -> float:
        """What it has at hand is to be given back: a second wish, once it has had the first. When
        to come back for that."""
        asked = self._asked
        if asked is None or asked.step != "leave":
            return math.inf
        second_at = asked.at + _SECOND_WISH
        if now < second_at:
            return second_at
        self.ask(Ask("hurry", "stop"), now)
        return now

    def _note_ending(self, why: str) -> None:
        cause_of_end = _CAUSES.get(why, "ended")
        words = f"the watchdog ended the driver: {why}" if cause_of_end != "hung" else ""
        # Where the runtime directory is full, it will pass for a crash.
        with suppress(OSError, QueueError):
            note_ending(self.glimpse.dump, cause_of_end, words)

    def _show(self, rest: Rest, now: float) -> None:
        if rest.state != self.rest.state:
            self.since = now
        self.rest = rest

    # Lives

    def born(self, process: Child, board: Board, now: float) -> None:
        """A driver lives here from now on."""
        self.process, self._board = process, board
        self.coming = False
        self.glimpse = BLANK
        self.started_at = now
        self.starts += 1
        self._asked = self._told_to_leave = None
        self._left_at = self._stall = 0.0
        self._stalled = (0.0, 0.0)
        self.memory, self.usage = 0, Usage()
        self._show(Rest("starting", "", None), now)
        kind: Kind = "started" if self.starts == 1 else "restarted"
        self._tell(kind, self, f"process {process.pid}", pid=process.pid)

    def adopted(self, process: Child, board: Board, order: Order | None, now: float) -> None:
        """A driver lives here since before this watchdog did; None: nobody knows its order."""
        self.process, self._board = process, board
        if order is not None:
            # That it was restarted once is no reason to do so again.
            self.next_order = replace(self.next_order, restart=order.restart)
        self.order = order or self.next_order
        self.glimpse = board.read()
        self.started_at = self.glimpse.ready_at or now
        self.starts += 1
        self.earlier = Totals().minus(self.glimpse)
        if order is not None and order.parent:
            # The kernel has told it that its watchdog died; a second signal would take the document
            # at hand away from it.
            self._asked = self._told_to_leave = Asked("leave", "its watchdog has died", now)
        self._tell("adopted", self, f"process {process.pid}")

    def not_born(self, why: str, exit_code: int, stage: Stage, now: float) -> None:
        """A start that came to nothing."""
        self.coming = False
        self._tell("exited", self, f"it did not start: {why}", exit_code=exit_code)
        self._remember(
            Life(started_at=now, ended_at=now, exit_code=exit_code, word="failed", why=why), stage
        )

    def died(self, ended: Exit, stage: Stage, now: float) -> Life:
        """Its process is gone: what kind of life that was."""
        if self._board is not None:
            self.glimpse = self._board.read()
            self._board.close()
        self.earlier = self.earlier.plus(self.glimpse)
        life = self._life(ended, now)
        if not (life.ended_for or life.word) and (life.signal or life.exit_code is not None):
            # Where the runtime directory is full, nobody will know how it crashed.
            with suppress(OSError, QueueError):
                note_crash(self.glimpse.dump, life.exit_code, life.signal)
        # Who was never ready has not looked at what the one before left.
        self.leftovers = not life.word or (self.leftovers and not life.ready_at)
        self.process = self._board = self._asked = self._told_to_leave = None
        self.memory = 0
        if life.word == "recycled":
            self._tell("recycled", self, life.why)
        else:
            at_hand = f", with {self.glimpse.docid!r} at hand" if self.glimpse.docid else ""
            words = f"{life.word}: {life.why}" if life.word else cause(life)
            name = life.signal or None
            self._tell("exited", self, words + at_hand, exit_code=ended.code, signal=name)
        self._remember(life, stage)
        return life

    def _life(self, ended: Exit, now: float) -> Life:
        glimpse, asked = self.glimpse, self._asked
        code = ended.code
        if code is None and ended.signal is None and glimpse.word:
            # Adopted: nobody tells us how it ended, but it said so itself.
            code = glimpse.exit_code
        ended_for = ""
        if self.unwanted == "restart":
            ended_for = "restart"
        elif asked is not None:
            # Told to leave, and wanted again before it had: that is held against nobody.
            at_fault = asked.why in (HUNG, MEMORY, START_UP) or (asked.why == LATE and self.wanted)
            ended_for = asked.why if at_fault else self.unwanted or "scale"
        return Life(
            started_at=self.started_at,
            ready_at=glimpse.ready_at,
            ended_at=now,
            documents=glimpse.documents,
            claimed=glimpse.claimed,
            word=glimpse.word,
            why=glimpse.why if glimpse.word else "",
            exit_code=code,
            signal=signal_name(ended.signal) if ended.signal is not None else "",
            ended_for=ended_for,
        )

    def _remember(self, life: Life, stage: Stage) -> None:
        before, self.past = self.past, remember(self.past, life, stage, random.uniform(-1, 1))
        self.ended_at = life.ended_at
        if self.past.state == "crash-looped" != before.state:
            self._tell("crash-looped", self, self.past.why)

    def forget(self) -> None:
        """An operator says that what kept it from running is mended."""
        self.past = Past()
