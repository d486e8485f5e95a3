"""The loop of a driver: look, plan, act.

    look    the control files, the room in the outputs, the next item that waits
    plan    Work, Wait, Block or Quit, and why (`plan.py`; pure)
    act     one turn of work (`turn.py`); or sleep; or leave

Signals only record (`limits.py`). What the file system cannot do right now pauses the loop and
charges no document. Everything that was asked of the driver is in `Options`.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from queuedriver.claims.lane import Lane
from queuedriver.claims.picking import Candidate
from queuedriver.driving.backpressure import BackPressure
from queuedriver.driving.limits import QUIT_FILE, Limits
from queuedriver.driving.live_status import Tally
from queuedriver.driving.plan import WORK, Block, Quit, Seen, Wait, is_time_to_watch, plan
from queuedriver.driving.recycling import Recycling
from queuedriver.driving.wake import Waker, Woken
from queuedriver.errors import NotFound, NotPermitted, is_trouble
from queuedriver.options import Options

# How often the control files are looked at while there is work: a look at each before every short
# document would cost a tenth of it.
_GLANCE_EVERY = 0.1
# How often a driver looks for dead ones while it is busy, and while it waits.
_RECOVER_BUSY = 5.0
_RECOVER_IDLE = 1.0
# How often a busy driver lists the queue for claims of drivers that never registered: they are
# known by standing still, so two looks within their lease are needed. A listing of a million names
# takes half a second.
_RECOVER_LISTED = 60.0

# The facts of most turns: there is an item, and nothing speaks against it.
_GO = Seen(candidate=True)


class Turns(Protocol):
    """What is done with an item."""

    @property
    def published(self) -> int:
        """How many outputs have become visible."""

    def work(self, lane: Lane, candidate: Candidate) -> Candidate | None:
        """Try it; an item that was seen meanwhile and is yet to try."""

    def clean(self) -> None:
        """The file system is well again."""


class Loop:
    """The driver's loop over lanes that are open and registered for."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        turn: Turns,
        limits: Limits,
        pressure: BackPressure,
        waker: Waker,
        tally: Tally,
        options: Options,
    ) -> None:
        self.state, self.why = "ready", ""
        self._lanes = lanes
        self._lane = lanes[0]
        self._turn = turn
        self._limits = limits
        self._pressure = pressure
        self._waker = waker
        self._tally = tally
        self._drain = options.drain
        self._recycling = Recycling(options, time.monotonic())
        self._candidate: Candidate | None = None
        self._paused = False
        self._leaving, self._leaving_why = "", ""
        self._trouble, self._troubles = "", 0
        self._idle_turns = 0
        # Whether hints were asked for, be there any or not.
        self._watching = False
        self._glance_at = 0.0
        self._recover_at = 0.0
        self._list_at = time.monotonic() + _RECOVER_LISTED

    def run(self) -> Quit:
        """Until there is a reason to leave."""
        while True:
            try:
                seen = self._look()
                # What `plan` says of most turns is known.
                decision = WORK if seen is _GO else plan(seen)
                if decision is WORK:
                    self._work()
                elif isinstance(decision, Quit):
                    return decision
                elif isinstance(decision, Wait | Block):
                    self._pause(decision)
            except OSError as error:
                self._suffer(error)

    # Look

    def _look(self) -> Seen:
        now = time.monotonic()
        if now >= self._glance_at and not self._trouble:
            self._glance(now)
        leaving, why = self._leaving, self._leaving_why
        if self._limits.leaving_at is not None:
            leaving, why = self._limits.word, self._limits.why
        if not (leaving or self._trouble or self._paused):
            if self._candidate is None:
                self._candidate = self._next(now)
            if self._candidate is not None and self._pressure.has_room(self._turn.published):
                return _GO
        return self._facts(now, leaving, why)

    def _facts(self, now: float, leaving: str, why: str) -> Seen:
        listings = [lane.picker.counts for lane in self._lanes]
        waiting = [listing for listing in listings if listing.unfinished]
        candidate = self._candidate is not None
        full = self._pressure.full(self._turn.published) if candidate else ""
        return Seen(
            candidate=candidate,
            unfinished=sum(listing.unfinished for listing in waiting),
            only_later=bool(waiting) and all(listing.only_later for listing in waiting),
            next_due=min((one.next_due for one in listings if one.next_due), default=0),
            empty_for=min(lane.empty_for(now) for lane in self._lanes),
            done=all(lane.controls.done for lane in self._lanes),
            paused=self._paused,
            leaving=leaving,
            leaving_why=why,
            full=full,
            no_consumer_for=self._pressure.no_consumer_for() if full else 0.0,
            trouble=self._trouble,
            troubles=self._troubles,
            drain=self._drain,
            idle_turns=self._idle_turns,
            hinted=self._waker.hinted,
            left=any(listing.left for listing in listings),
            withheld=sum(listing.refused for listing in listings),
            stuck=sum(
                name in lane.recoverer.stuck
                for lane in self._lanes
                if lane.recoverer.stuck
                for name, _ in lane.picker.counts.claims
            ),
            later=sum(listing.later for listing in listings),
            now=time.time(),
        )

    def _glance(self, now: float) -> None:
        """What need not be looked at before each document."""
        self._glance_at = now + _GLANCE_EVERY
        for lane in self._lanes:
            lane.controls = lane.queue.controls()
            lane.journal.flush_if_due(now)
        self._paused = any(lane.controls.paused for lane in self._lanes)
        self._leaving_why = self._recycling.due(now, self._tally.documents)
        self._leaving = "recycled" if self._leaving_why else ""
        if any(lane.controls.quit for lane in self._lanes):
            self._leaving, self._leaving_why = "quit", QUIT_FILE
        if now >= self._recover_at:
            self._recover_at = now + _RECOVER_BUSY
            listed = now >= self._list_at
            if listed:
                self._list_at = now + _RECOVER_LISTED
            for lane in self._lanes:
                if listed or lane.recoverer.newly_dead():
                    lane.recoverer.recover()

    def _next(self, now: float) -> Candidate | None:
        """The next item of the first queue that has one."""
        alone = len(self._lanes) == 1
        for lane in self._lanes:
            candidate = lane.next(now, alone)
            if candidate is not None:
                self._lane = lane
                return candidate
        return None

    # Act

    def _work(self) -> None:
        candidate, self._candidate = self._candidate, None
        assert candidate is not None  # noqa: S101 - plan says Work only when there is one
        self._watch_no_more()
        self._idle_turns = 0
        self.state = "busy"
        self._candidate = self._turn.work(self._lane, candidate)
        self._troubles = 0
        if self._tally.documents >= self._recycling.documents:
            self._glance_at = 0.0

    def _pause(self, decision: Wait | Block) -> None:
        """Sleep: first some naps, then with a watch on the inputs, for which one looks once more
        when it has begun: what came before was not hinted. Room in the outputs is not hinted."""
        blocked = type(decision) is Block
        if not self._trouble:
            self._say("blocked" if blocked else "ready", decision.why)
        self._limits.idle()
        self._settle_down()
        rested = is_time_to_watch(self._idle_turns, self._waker.loaded)
        if rested and not (blocked or self._watching or self._trouble):
            self._watching = True
            self._waker.arm()
            return
        woken = self._wait(decision.seconds)
        self._tally.paused(blocked)
        if woken == "signal":
            self._limits.clear()
        if woken == "hint":
            # Hints may come faster than looks: none are wanted until there is nothing to do again.
            self._watch_no_more()
        if woken != "other":
            self._idle_turns = 0 if woken == "hint" else self._idle_turns + 1
            self._glance_at = 0.0
        if self._trouble:
            self._mend()
            return
        for lane in self._lanes:
            lane.wake()
        self._recover_seen()

    def _settle_down(self) -> None:
        """Before a sleep, however short it will be."""
        for lane in self._lanes:
            lane.journal.flush()
            if not self._trouble and lane.queue.directory.gone():
                # What we hold open is a ghost: empty for ever, and without a complaint.
                raise NotFound(f"the queue {lane.queue.path} is gone, or another is in its place")

    def _wait(self, seconds: float) -> Woken:
        return self._waker.wait(seconds)

    def _watch_no_more(self) -> None:
        if self._watching:
            self._watching = False
            self._waker.disarm()

    def _say(self, state: str, why: str) -> None:
        self.state, self.why = state, why
        self._tally.show(state, why)

    def _recover_seen(self) -> None:
        """While idle there is time to see whose claims those are that the last pass saw."""
        now = time.monotonic()
        if now < self._recover_at - (_RECOVER_BUSY - _RECOVER_IDLE):
            return
        self._recover_at = now + _RECOVER_BUSY
        for lane in self._lanes:
            seen = lane.picker.counts
            if seen.claims:
                lane.recoverer.recover(seen.claims)
            elif not seen.unfinished:
                lane.recoverer.forget_ended()

    # Trouble with the file system

    def _suffer(self, error: OSError) -> None:
        """Pause for what may pass; raise what will not."""
        self._candidate = None
        for lane in self._lanes:
            lane.picker.restart()
            if isinstance(error, FileNotFoundError) and lane.queue.directory.gone():
                raise NotFound(f"the queue {lane.queue.path} is gone") from error
        if isinstance(error, PermissionError):
            where = ", ".join(lane.queue.path for lane in self._lanes)
            raise NotPermitted(
                f"driving {where}: {error}; mend the permissions, then start it again"
            ) from error
        # A directory of ours that was removed by hand is made again by opening everything anew.
        if not (is_trouble(error) or isinstance(error, FileNotFoundError)):
            raise error
        self._trouble = str(error)
        self._say("waiting-fs", self._trouble)

    def _mend(self) -> None:
        """Is the file system well again? Open everything anew, and write a little everywhere."""
        self._troubles += 1
        try:
            for lane in self._lanes:
                lane.reopen()
                lane.probe()
            self._turn.clean()
            for lane in self._lanes:
                lane.recoverer.sweep_own()
        except OSError as error:
            self._trouble = str(error)
            self._say(self.state, self._trouble)
            return
        self._trouble = ""
        self._idle_turns = 0
        # What is watched may be what was mounted before.
        self._watch_no_more()
