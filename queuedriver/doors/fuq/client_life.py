"""The client of fuq, which `queuedriver worker fuq` is: runs a broker's tasks as child processes.

One poll(2) over the broker's connection, the children and the signals. The children outlive a
connection: while the broker is away they go on, and are reported to it when it is back.
"""

import contextlib
import math
import os
import random
import select
import time
from collections.abc import Callable
from functools import partial

from queuedriver.doors.conversation import PATIENCE
from queuedriver.doors.fuq import runner as tasks
from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.broker_life import security
from queuedriver.doors.fuq.client import Client, ClientEffects, KillAll, Start
from queuedriver.doors.fuq.runner import CannotRun, Running, Site
from queuedriver.doors.fuq.settings import WorkerSettings
from queuedriver.doors.fuq.wire import Task
from queuedriver.doors.transports.base import Arrival, Joined, Message
from queuedriver.doors.transports.tcp import Caller
from queuedriver.doors.words import Leave, Recent, Reconnect, Say, Send
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError

# Seconds between two attempts to connect: doubled each time, up to the longest, with jitter.
_FIRST_RETRY = 0.25
_LONGEST_RETRY = 30.0
_JITTER = 0.2
# How long the broker has to take our last reports, when nothing else keeps us; in seconds.
_FAREWELL = 2.0
_LONGEST_SLEEP = 60.0
_MOST_SAID = 1000


def run_worker(
    asked: WorkerSettings,
    say: Callable[[str], None] = lambda words: None,
    *,
    last: bool = False,
) -> Leave:
    """Run tasks until told to leave. QueueError when it cannot even start. `last`: the process is
    about to end."""
    nproc = asked.nproc if asked.nproc is not None else len(os.sched_getaffinity(0))
    site = Site(tasks.parse_allow(asked.allow), _root(asked.root), _root(asked.log_root, make=True))
    secret, context = security((asked.broker,), asked.tls, asked.secret_file, serving=False)
    session = Client(nproc, secret, lambda: os.urandom(32))

    def connect() -> Caller:
        return Caller(asked.broker, context)

    with contextlib.ExitStack() as at_end:
        limits = Limits(grace=asked.options.grace, last=last)
        at_end.callback(limits.close)
        limits.install()
        at_end.callback(partial(limits.restore, last=last))
        loop = _Loop(session, site, connect, limits, asked, say)
        at_end.callback(loop.close)
        return loop.run()


def _root(path: str, *, make: bool = False) -> str:
    """A directory, by its real name: what jobs say of it is compared with that."""
    if make:
        os.makedirs(path, mode=0o700, exist_ok=True)
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise ConfigError(f"{path!r} is no directory; make it, or name another")
    return real


class _Loop:
    def __init__(
        self,
        session: Client,
        site: Site,
        connect: Callable[[], Caller],
        limits: Limits,
        asked: WorkerSettings,
        say: Callable[[str], None],
    ) -> None:
        self._session = session
        self._site = site
        self._connect = connect
        self._limits = limits
        self._asked = asked
        self._timeout = asked.options.timeout
        self._say = say
        self._running: dict[int, Running] = {}
        self._caller: Caller | None = None
        self._connect_at = 0.0
        self._retry = _FIRST_RETRY
        self._end: Leave | None = None
        # Since when there is no broker that has greeted, and why there is none.
        self._missed_at: float | None = time.monotonic()
        self._missed_why = f"{asked.broker} does not answer"
        # What was said since there was one, and is not worth saying again.
        self._said: Recent[str, None] = Recent(_MOST_SAID)
        self._leaving = False
        # Since when nothing but our last reports keeps us.
        self._farewell_at: float | None = None

    def run(self) -> Leave:
        """Until there is a reason to leave."""
        while self._end is None:
            now = time.monotonic()
            self._keep_connected(now)
            self._converse(now)
            self._miss(now)
            self._collect()
            self._overdue(now)
            self._may_leave(now)
            if self._end is None:
                self._sleep(now)
        return self._end

    def close(self) -> None:
        """Nothing that was started outlives us."""
        for one in self._running.values():
            one.abandon()
        self._running.clear()
        if self._caller is not None:
            self._caller.close()

    # The connection

    def _keep_connected(self, now: float) -> None:
        if self._caller is None and now >= self._connect_at:
            self._caller = self._connect()

    def _disconnect(self, why: str, now: float) -> None:
        """Try again in a while."""
        if self._caller is None:
            return
        self._caller.close()
        self._caller = None
        self._session.disconnected()
        self._connect_at = now + self._retry * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._retry = min(self._retry * 2, _LONGEST_RETRY)
        self._missed_at, self._missed_why = self._missed_at or now, why

    def _miss(self, now: float) -> None:
        """Say that there is no broker, when that has been so for a while."""
        if self._missed_at is not None and now >= self._missed_at + PATIENCE:
            self._missed_at = math.inf
            self._say(f"no broker: {self._missed_why} (trying on)")

    def _converse(self, now: float) -> None:
        caller = self._caller
        if caller is None:
            return
        for arrival in caller.arrivals():
            self._hear(arrival, now)
            if self._caller is not caller or self._end is not None:
                return
        at = caller.next_tick_at()
        if at is not None and at <= now:
            caller.tick(now)
        self._carry_out(self._session.tick(now), now)

    def _hear(self, arrival: Arrival, now: float) -> None:
        if isinstance(arrival, Joined):
            self._carry_out(self._session.start(now), now)
        elif isinstance(arrival, Message):
            self._carry_out(self._session.receive(arrival.frames, now), now)
            if self._session.state == "CL_LOOP0":
                self._retry = _FIRST_RETRY
                if self._missed_at is not None:
                    self._missed_at = None
                    self._said.clear()
                    self._tell(Say(1, f"the broker at {self._asked.broker} is there"))
        else:
            self._disconnect(arrival.why, now)

    def _carry_out(self, effects: ClientEffects, now: float) -> None:
        todo = list(reversed(effects))
        while todo and self._end is None:
            effect = todo.pop()
            if isinstance(effect, Send):
                # Without a connection it is said again on the next.
                if self._caller is not None and not self._caller.send(b"", effect.frames):
                    self._disconnect("the connection was lost", now)
            elif isinstance(effect, Start):
                todo += reversed(self._start(effect.task))
            elif isinstance(effect, KillAll):
                for one in self._running.values():
                    one.kill()
            elif isinstance(effect, Reconnect):
                self._disconnect(effect.why, now)
            elif isinstance(effect, Leave):
                self._end = effect
            else:
                self._tell(effect)

    def _tell(self, said: Say) -> None:
        if said.level <= self._asked.level and said.words not in self._said:
            self._said[said.words] = None
            self._say(said.words)

    # Tasks

    def _start(self, task: Task) -> ClientEffects:
        try:
            one = tasks.start(task, self._site)
        except CannotRun as error:
            # Once: each of its tasks may be offered again and again.
            job = task.description
            self._tell(Say(0, f"job {job.job_id} ({job.name}) is refused: {error}"))
            return self._session.refused(task, str(error))
        self._running[one.pidfd] = one
        return []

    def _collect(self) -> None:
        """Report who has ended."""
        if not self._running:
            return
        ready = select.poll()
        for fd in self._running:
            ready.register(fd, select.POLLIN)
        for fd, _ in ready.poll(0):
            update = self._running.pop(fd).collect()
            self._carry_out(self._session.ended(update), time.monotonic())

    def _overdue(self, now: float) -> None:
        if self._timeout is None:
            return
        for one in self._running.values():
            if now >= one.began + self._timeout and not one.overdue:
                one.overdue = True
                one.kill()

    # The end

    def _may_leave(self, now: float) -> None:
        since = self._limits.leaving_at
        if since is None or self._end is not None:
            return
        if not self._leaving:
            self._leaving = True
            self._carry_out(self._session.lower(wire.STOP_ALL, self._limits.why), now)
        if self._limits.hurried or now >= since + self._asked.options.grace:
            for one in list(self._running.values()):
                del self._running[one.pidfd]
                one.abandon()
                why = "the client was asked to leave"
                self._carry_out(self._session.refused(one.task, why), now)
        if self._running or self._end is not None:
            return
        # Whom nobody listens to need not wait as long.
        self._farewell_at = self._farewell_at or now + _FAREWELL
        if now >= self._farewell_at:
            self._end = Leave(self._limits.why)

    def _sleep(self, now: float) -> None:
        if self._caller is not None and self._caller.pending():
            return
        instants = [now + _LONGEST_SLEEP, self._session.next_tick_at(), self._farewell_at]
        if self._missed_at is not None:
            instants.append(self._missed_at + PATIENCE)
        if self._caller is None:
            instants.append(self._connect_at)
        else:
            instants.append(self._caller.next_tick_at())
        if self._timeout is not None:
            instants += [
                one.began + self._timeout for one in self._running.values() if not one.overdue
            ]
        if self._leaving and self._limits.leaving_at is not None and self._running:
            instants.append(self._limits.leaving_at + self._asked.options.grace)
        until = min(at for at in instants if at is not None)
        poll = select.poll()
        poll.register(self._limits.wake_fd, select.POLLIN)
        for fd in (*self._running, *(self._caller.fds() if self._caller is not None else ())):
            poll.register(fd, select.POLLIN)
        woken = poll.poll(max(0.0, until - now) * 1000 + 1)
        if any(fd == self._limits.wake_fd for fd, _ in woken):
            self._limits.clear()
