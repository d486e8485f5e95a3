"""A worker of fuq: runs a broker's tasks as child processes.

The children outlive a connection: while the broker is away they go on, and are reported to it when
it is back.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable

from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.fuq import runner as tasks
from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.client import KillAll, Start
from queuedriver.doors.fuq.runner import CannotRun, Running, Site
from queuedriver.doors.fuq.settings import WorkerSettings
from queuedriver.doors.fuq.wire import Task
from queuedriver.doors.words import Effect, Leave, Recent, soonest
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError
from queuedriver.options import Options

# How long the broker has to take our last reports, when nothing else keeps us; in seconds.
_FAREWELL = 2.0
_MOST_SAID = 1000


def run_worker(
    asked: WorkerSettings, say: Callable[[str], None] = lambda words: None, *, last: bool = False
) -> Leave:
    """Run tasks until told to leave. QueueError when it cannot even start. `last`: the process is
    about to end."""
    with contextlib.ExitStack() as at_end:
        limits = Limits(Options(grace=asked.options.grace), last=last)
        at_end.callback(limits.close)
        loop = _Loop(asked, limits, say)
        at_end.callback(loop.close)
        limits.install()
        return loop.run()


def _root(path: str, *, make: bool = False) -> str:
    """Return a directory's real name: what jobs say of it is compared with that."""
    if make:
        os.makedirs(path, mode=0o700, exist_ok=True)
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise ConfigError(f"{path!r} is no directory; make it, or name another")
    return real


class _Loop:
    """Hears, runs, reports."""

    def __init__(self, asked: WorkerSettings, limits: Limits, say: Callable[[str], None]) -> None:
        allowed = tasks.parse_allow(asked.allow)
        self._site = Site(allowed, _root(asked.root), _root(asked.log_root, make=True))
        self._session = asked.session(asked.nproc or len(os.sched_getaffinity(0)))
        self._caller = asked.transport()
        self._limits = limits
        self._timeout = math.inf if asked.options.timeout is None else asked.options.timeout
        self._say = say
        told = self._act, self._say_once, asked.level
        self._talk = Conversation(self._session, self._caller, *told)
        # By a descriptor that says when it has ended.
        self._running: dict[int, Running] = {}
        self._end: Leave | None = None
        # What was said and is not worth saying again, while there is no other broker.
        self._said: Recent[str, None] = Recent(_MOST_SAID)
        self._greeted = False
        # When, once we are to leave, even our last reports do not keep us any more.
        self._farewell_until: float | None = None

    def run(self) -> Leave:
        """Run tasks until there is a reason to leave; return it."""
        while True:
            now = time.monotonic()
            self._talk.turn(now, time.time())
            self._see_broker()
            self._consider_leaving(now)
            if self._end is not None:
                return self._end
            self._rest(now)

    def close(self) -> None:
        """Let nothing that was started outlive us."""
        for one in self._running.values():
            one.abandon()
        self._running.clear()
        self._talk.close()

    def _see_broker(self) -> None:
        """Note whether the broker that was wanted is there."""
        if self._session.greeted and not self._greeted:
            self._caller.well()
            self._said.clear()
            self._talk.say(1, "the broker is there")
        self._greeted = self._session.greeted

    def _say_once(self, words: str) -> None:
        if words not in self._said:
            self._said[words] = None
            self._say(words)

    # Tasks

    def _act(self, effect: Effect) -> None:
        if type(effect) is Start:
            self._start(effect.task)
        elif type(effect) is KillAll:
            for one in self._running.values():
                one.kill()
        elif type(effect) is Leave:
            self._end = effect

    def _start(self, task: Task) -> None:
        try:
            one = tasks.start(task, self._site)
        except CannotRun as error:
            # Once: each of its tasks may be offered again and again.
            job = task.description
            self._talk.say(0, f"job {job.job_id} ({job.name}) is refused: {error}")
            self._talk.carry_out(self._session.refused(task, str(error)), time.monotonic())
        else:
            self._running[one.pidfd] = one

    def _rest(self, now: float) -> None:
        """Wait for the broker, a signal or the end of a task; report what has ended."""
        running = self._running.values()
        ends = (one.began + self._timeout for one in running if not one.overdue)
        grace_until = self._limits.deadline() if running else None
        until = soonest(self._farewell_until, grace_until, *ends)
        woken = sleep([self._talk], [self._limits.wake_fd, *self._running], until)
        if self._limits.wake_fd in woken:
            self._limits.clear()
        for fd in woken:
            if fd in self._running:
                update = self._running.pop(fd).collect()
                self._talk.carry_out(self._session.ended(update), time.monotonic())
        for one in running:
            if not one.overdue and time.monotonic() >= one.began + self._timeout:
                one.overdue = True
                one.kill()

    # The end

    def _consider_leaving(self, now: float) -> None:
        """Leave when told to: what runs may end, and is given back when its time is up."""
        limits = self._limits
        if limits.leaving_at is None or self._end is not None:
            return
        if self._session.max_nproc:
            self._talk.carry_out(self._session.lower(wire.STOP_ALL, limits.why), now)
        if limits.reason() is not None:
            for one in list(self._running.values()):
                del self._running[one.pidfd]
                one.abandon()
                why = "the client was asked to leave"
                self._talk.carry_out(self._session.refused(one.task, why), now)
        if self._running or self._end is not None:
            return
        # Whom nobody listens to need not wait as long.
        self._farewell_until = self._farewell_until or now + _FAREWELL
        if now >= self._farewell_until:
            self._end = Leave(limits.why)
