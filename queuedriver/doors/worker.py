"""A worker: takes what a broker deals, runs a processor on it, sends what comes of it.

One document at a time, in the main thread, so that time-outs and signals work as they do in a
driver; to have more, start more workers. While a document is processed nothing is heard or said,
and no protocol takes that for a death.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from io import FileIO

from queuedriver.claims import outcomes
from queuedriver.claims.outcomes import Failed, Postponed, Released, Setback
from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.settings import ZmqWorker, keys_of
from queuedriver.doors.transports.addresses import own_name
from queuedriver.doors.words import Effect, Leave, Process, Reconnect, Result, Work
from queuedriver.doors.workspace import Workspace
from queuedriver.driving.lifetime import Recycling, TimeLeft
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.errors import ConfigError
from queuedriver.processors.base import Processor

# Longest sleep in seconds, so that age and memory are looked at.
_LONGEST = 5.0
# How much later a document is to be tried that failed where the disk is full.
_DISK_PAUSE = 60.0
_STDERR = 2


def work(
    told: ZmqWorker,
    processor: Processor,
    say: Callable[[str], None],
    board: Board | None = None,
    *,
    last: bool = False,
) -> Leave:
    """Work until told to leave, by a signal or by the broker; a watchdog sees on the board what is
    done. `last`: the process is about to end; what asks it to leave once more changes nothing."""
    told.check_listen()
    # What is wrong with them is said before a processor loads.
    keys_of(told.curve)
    with contextlib.ExitStack() as at_end:
        return _Loop(told, processor, say, Tally(board), at_end, last=last).run()


class _Loop:
    """Hears, processes, says; one connection at a time."""

    def __init__(
        self,
        told: ZmqWorker,
        processor: Processor,
        say: Callable[[str], None],
        tally: Tally,
        at_end: contextlib.ExitStack,
        *,
        last: bool,
    ) -> None:
        options = told.options
        # Where its stacks go when it hangs beyond its hard limit, which ends it: no recoverer of
        # this host will ever look for them.
        dump = FileIO(_STDERR, "w", closefd=False) if options.timeout is not None else None
        self._limits = Limits(options, dump, last=last)
        at_end.callback(self._limits.close)
        self._workspace = Workspace(told.max_message)
        at_end.callback(self._workspace.close)
        self._limits.install()
        # For as long as we live: a broker knows us again after a reconnection.
        self._name = own_name()
        processor.start(f"worker-{self._name}")
        at_end.callback(processor.stop)
        self._told = told
        self._processor = processor
        self._tally = tally
        self._recycling = Recycling(options, time.monotonic())
        self._time_left = TimeLeft.of(options)
        self._session = told.session(self._name)
        # Connected only now: what a processor forks while it loads is to hold no connection of
        # ours, or a broker would not notice our end.
        transport = told.transport(self._name)
        self.talk = Conversation(self._session, transport, self._act, say, told.level)
        at_end.callback(self.talk.close)
        # What was dealt to us and not begun.
        self._work: deque[Work] = deque()
        self._leave: Leave | None = None
        # Why we leave, once we have said so.
        self._leaving = ""

    def run(self) -> Leave:
        self._tally.start()
        if self._tally.board is not None:
            self._tally.board.ready(time.monotonic())
        self._start()
        while True:
            self._consider_leaving()
            if self._leave is not None:
                return self._leave
            if self._work:
                self._process(self._work.popleft())
                if not self._work:
                    # What came meanwhile is heard at once, when we would sleep.
                    continue
            else:
                self._sleep()
            self.talk.turn(time.monotonic(), time.time())

    def _act(self, effect: Effect) -> None:
        """Do what is neither sent nor said."""
        if type(effect) is Process:
            self._work.append(effect.work)
        elif type(effect) is Leave:
            # What is not begun is the broker's again: the session knows of it no more.
            self._work.clear()
            self._leave = effect
        elif type(effect) is Reconnect:
            # The broker's last word comes together with the end of its connection.
            why = ": ".join(filter(None, (effect.why, self.talk.transport.missing())))
            self.talk.complain(f"{why} (connecting anew, until it answers)")
            # What is not begun is the broker's again.
            self._work.clear()
            self.talk.reopen(self._told.transport(self._name, effect.to))
            self._start()

    def _start(self) -> None:
        now = time.monotonic()
        self.talk.carry_out(self._session.start(now, time.time()), now)

    def _sleep(self) -> None:
        woken = sleep([self.talk], [self._limits.wake_fd], time.monotonic() + _LONGEST)
        self._tally.paused(blocked=False)
        if self._limits.wake_fd in woken:
            self._limits.clear()

    # Leaving

    def _consider_leaving(self) -> None:
        """Leave when told to, or used up: what is not begun goes back, and then we go."""
        limits, now = self._limits, time.monotonic()
        asked = limits.leaving_at
        why = limits.why if asked is not None else self._leaving
        why = why or self._recycling.due(now, self._tally.documents)
        if not why and self._time_left is not None:
            why = self._time_left.over(time.time())
        if not why:
            return
        self._give_back(why, now)
        if asked is not None and (limits.hurried or now >= asked + limits.grace):
            # Whom we have said goodbye to may be gone, and never answer.
            self._leave = self._leave or Leave(why)

    def _say_goodbye(self, why: str, now: float) -> None:
        if not self._leaving:
            self._leaving = why
            self.talk.carry_out(self._session.leave(now), now)

    def _give_back(self, why: str, now: float) -> None:
        """Say goodbye, and give back what is not begun."""
        self._say_goodbye(why, now)
        while self._work:
            work = self._work.popleft()
            self.talk.carry_out(self._session.failed(work.claim, Released(why), now), now)

    # Work

    def _process(self, work: Work) -> None:
        self._tally.began(work.docid)
        started = time.perf_counter()
        self._limits.begin()
        try:
            answer = self._answer(work)
        except ConfigError as error:
            # No document can be blamed for a program that cannot start: leave, and say so.
            self._work.appendleft(work)
            self._give_back(f"the worker cannot work: {error}", time.monotonic())
            raise
        self._limits.idle()
        now = time.monotonic()
        if self._limits.leaving_at is not None:
            # First, so that nothing more is dealt to us for it.
            self._say_goodbye(self._limits.why, now)
        if isinstance(answer, tuple):
            took = time.perf_counter() - started
            self._tally.worked(took, 1)
            if self._tally.board is not None:
                self._tally.measured.took((took,))
            if self._time_left is not None:
                self._time_left.learn([took])
            effects = self._session.finished(work.claim, answer, now)
        else:
            self._tally.worked(time.perf_counter() - started, 0)
            self._tally.failed += 1
            effects = self._session.failed(work.claim, answer, now)
        self.talk.carry_out(effects, now)
        self._tally.ended()

    def _answer(self, work: Work) -> tuple[Result, ...] | Setback:
        """Return what comes of one document."""
        workspace = self._workspace
        try:
            document, outputs = workspace.lay_out(work)
            self._processor.process(document, outputs, self._limits)
            return outputs.results()
        except ConfigError:
            raise
        except outcomes.ANYTHING as error:
            setback = self._limits.fair(outcomes.from_exception(error))
            if isinstance(setback, Failed) and (trouble := workspace.trouble()):
                return Postponed(_DISK_PAUSE, f"not its fault: {trouble}")
            return setback
        finally:
            workspace.clear()
