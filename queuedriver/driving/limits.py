"""How long a document may take, and how a driver is asked to leave.

Signals only record (`signals.py`), with one exception: within `run`, while code of the user's runs
in this process, the alarm and the second signal raise Interrupted into it. Processors that wait for
other processes poll `wake_fd` and ask `reason` instead.

    soft limit   the interval timer, repeated each second: a handler may swallow the first
    hard limit   faulthandler's own thread, which needs no GIL: dumps all stacks and exits. Arming
                 it for each document costs more than a rename, so it is armed for longer than
                 needed, and again only when less than the limit remains: a document is ended
                 between 1 and 1.25 times its hard limit.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from io import FileIO
from types import FrameType, FunctionType, MethodType
from typing import Any

from queuedriver.claims.outcomes import Released, Setback, may_be_a_stop, says_stopped
from queuedriver.driving.lifetime import OUT_OF_TIME, end_of, time_left
from queuedriver.driving.live_status import Board
from queuedriver.driving.signals import Handler, Signals
from queuedriver.errors import Interrupted
from queuedriver.format.units import MAX_DURATION
from queuedriver.options import Options

# Why a driver leaves.
ASKED = "it was asked to"
QUIT_FILE = "there is a QUIT file"

_HARD_MARGIN = 1.25
_REPEAT = 1.0
# Seconds within which a signal to a program and one to its driver are one stop; and between looks.
_SAME_STOP = 0.5
_STOP_LOOK = 0.01
_SOON = 0.001
# Which signals ask a driver to leave.
_WISHES = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NO_LIMITS = Options()


class Limits(Signals):
    """The time-outs of one driver, and what signals it got."""

    def __init__(
        self,
        options: Options = _NO_LIMITS,
        dump: FileIO | None = None,
        board: Board | None = None,
        *,
        last: bool = False,
    ) -> None:
        super().__init__()
        # When the driver is to be gone, in seconds since the epoch.
        self.until = until = options.until
        # Whether the process ends with the driver.
        self._last = last
        # Whether a signal that asks to leave is being handled.
        self._asking = False
        self.timeout = timeout = options.timeout
        self.hard: float | None = None
        if timeout is not None and dump is not None:
            self.hard = timeout + options.hard_after
        self.grace = options.grace
        self.dump = dump
        # Where a watchdog reads since when a document is at hand.
        self._board = board
        # The last word on leaving, and why.
        self.word, self.why = "quit", ASKED
        self.began_at = 0.0
        # Whether code of the user's runs, the only kind that Interrupted may be raised into.
        self._armed = False
        # Calls a Python function of the user's: with one flag, as long as nothing limits it.
        is_limited = timeout is not None or until is not None
        self.run: Callable[..., Any] = self._run_limited if is_limited else self._run
        self._hard_until = 0.0

    def install(self) -> None:
        """Take the signals over; main thread only."""
        # Ignored by whoever started us: nohup means that a hang-up is not for us.
        asking = [one for one in _WISHES if signal.getsignal(one) is not signal.SIG_IGN]
        handlers: dict[int, Handler] = dict.fromkeys(asking, self._asked_to_leave)
        self.take(handlers | {signal.SIGALRM: self._alarm, signal.SIGUSR1: self._ignore})
        _installed.add(self)

    def restore(self, *, last: bool = False) -> None:
        """Give the signals back, if they were taken over: in a thread they never are."""
        # An alarm set by another thread after this would end the process.
        with self._changing:
            if not self._before:
                return
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.idle()
            _installed.discard(self)
            super().restore(last=last)

    def close(self) -> None:
        self.restore(last=self._last)
        super().close()

    def leave(self, word: str, why: str) -> None:
        """Ask to leave as the first signal does, by other means (a QUIT file); from any thread."""
        with self._changing:
            if self.leaving_at is not None:
                return
            self.word, self.why = word, why
            self.leaving_at = time.monotonic()
            self._limit()
        self.wake()

    def begin(self) -> None:
        """Begin a document, or a batch of them, now; or anew, as it had to wait so far."""
        now = time.monotonic()
        if self._board is not None:
            self._board.clock(now)
        if self.timeout is not None:
            self.begun(now)

    def begun(self, now: float) -> None:
        """Count the time-outs of the document at hand from this instant."""
        self.began_at = now
        if self.hard is not None and self.dump and self._hard_until - now < self.hard:
            lasts = self.hard * _HARD_MARGIN
            faulthandler.dump_traceback_later(lasts, exit=True, file=self.dump)
            self._hard_until = now + lasts

    def allow(self, seconds: float) -> None:
        """Allow so long for what is not the document's doing, unless it begins before. For whoever
        watches; a processor that waits sees to its own time-out itself."""
        if self._board is not None:
            self._board.clock(time.monotonic() + seconds)

    def idle(self) -> None:
        """Limit nothing during a wait: an idle driver is not a hung one."""
        if self._hard_until:
            faulthandler.cancel_dump_traceback_later()
            self._hard_until = 0.0

    def deadline(self) -> float | None:
        """Return when the document at hand must stop, on the monotonic clock."""
        return min(self._ends().values(), default=None)

    def reason(self) -> str | None:
        """Return why the document at hand must stop now; None when it may go on."""
        now = time.monotonic()
        return next((why for why, at in self._ends().items() if now >= at), None)

    def fair(self, ending: Setback) -> Setback:
        """Return the ending that is fair to a document: whoever stops a driver may have stopped all
        that it runs at the same time, as Slurm does, a terminal, or `kill` of a group; a program
        that ended by it, or because of it, does not charge the document."""
        if not may_be_a_stop(ending):
            return ending
        # It may have reached the program a moment before us.
        until = time.monotonic() + (_SAME_STOP if says_stopped(ending) else 0.0)
        while self.asked_at is None and time.monotonic() < until:
            time.sleep(_STOP_LOOK)
        if self.asked_at is None:
            return ending
        return Released(
            "it failed when the driver was asked to leave, and what it runs may have been"
        )

    def _ends(self) -> dict[str, float]:
        """Return why the document at hand must stop, and when: what ranks higher first."""
        ends = {}
        if self.leaving_at is not None:
            ends["leaving"] = self.leaving_at + (0.0 if self.hurried else self.grace)
        if self.until is not None:
            ends_at = time.monotonic() + time_left(self.until, time.time())
            if self.word == OUT_OF_TIME and not self.hurried:
                # It leaves because of that, and what is at hand was expected to be done by then.
                ends["leaving"] = ends_at
            ends["leaving"] = min(ends_at, ends.get("leaving", ends_at))
        if self.timeout is not None:
            ends["timeout"] = self.began_at + self.timeout
        return ends

    def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        self._armed = True
        try:
            return function(*arguments)
        finally:
            self._armed = False

    def _run_limited(self, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            self._armed = True
            self._set_timer()
            if self.hurried:
                raise Interrupted("leaving")
            return function(*arguments)
        finally:
            self._armed = False
            if self._before:
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _limit(self) -> None:
        """Set a deadline from now on: for what runs, or is just about to, and what follows."""
        self.run = self._run_limited
        self._set_timer()

    def _interrupt(self, reason: str, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code in _BORDER:
            # On the way in, or out. Raised here it would leave the flag up, and the next one would
            # hit the driver at work on its queues.
            signal.setitimer(signal.ITIMER_REAL, _SOON, _REPEAT)
            return
        raise Interrupted(reason)

    def _set_timer(self) -> None:
        deadline = self.deadline()
        # Where no handler is installed, in a thread, the alarm would end the process.
        if deadline is not None and self._before:
            # 0 would switch the timer off, and it counts to some hundred years.
            left = min(max(deadline - time.monotonic(), 1e-6), MAX_DURATION)
            signal.setitimer(signal.ITIMER_REAL, left, _REPEAT)

    def _asked_to_leave(self, number: int, frame: FrameType | None) -> None:
        if self.leaving_at is None:
            self.word = "reload" if number == signal.SIGHUP else "quit"
        hurries = self.ask(time.monotonic())
        if self._asking:
            # Of a flood of signals each is handled within the one before: the first does the rest.
            return
        self._asking = True
        try:
            if hurries and self._armed:
                self._interrupt("leaving", frame)
            hurried = None
            while hurried != self.hurried:
                # Once more where another one hurried us meanwhile.
                hurried = self.hurried
                self._limit()
        finally:
            self._asking = False

    def _ignore(self, number: int, frame: FrameType | None) -> None:
        """Do nothing: the default action of SIGUSR1 would end us."""

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self._armed and (reason := self.reason()) is not None:
            if self.leaving_at is None and self.until is not None and reason == "leaving":
                # Beats say so, for the case that the function does not obey.
                self.word, self.why = OUT_OF_TIME, end_of(self.until)
                self.leaving_at = time.monotonic()
            self._interrupt(reason, frame)


# Whose signals a fork of this process must not take for its own.
_installed: set[Limits] = set()


_fork = threading.local()


def _before_fork() -> None:
    # What is sent to the child at once waits until it is the child's own to handle.
    if _installed:
        _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WISHES)


def _in_parent() -> None:
    if (mask := _fork.__dict__.pop("mask", None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child() -> None:
    """Let a child that the user's code forks end by SIGTERM, as its parent there expects."""
    for limits in list(_installed):
        limits._armed = False
        # Held by a thread that is not here.
        limits._changing = threading.Lock()
        _installed.discard(limits)
        Signals.restore(limits)
    _in_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


def framed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that has a frame of its own, by which it is known that it runs: what is
    written in C has none, and is to be interrupted all the same."""
    called = vars(type(function)).get("__call__")
    if isinstance(function, FunctionType | MethodType) or isinstance(called, FunctionType):
        return function

    def call(*arguments: object) -> Any:
        return function(*arguments)

    return call


# Between the driver's code and the user's.
_BORDER = frozenset(
    method.__code__ for method in (Limits._run, Limits._run_limited, Limits._set_timer)
)
