"""Hosts, processes and a clock, and who of them moves next.

Processes are greenlets, so the real code runs as it is, and can be left standing within any system
call. Each runs until it sleeps or ends; then it is the next one's turn. Time passes only when all
sleep. So a run in which nothing happens is one fixed sequence of steps; what happens, and at which
step, is a schedule (`happenings.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from greenlet import getcurrent, greenlet

from queuedriver.errors import QueueError
from queuedriver.format.records import Identity
from tests.simulation.disk import Disk
from tests.simulation.kernel import Kernel, Open

# An instant of the simulated clock.
NOON = 1_700_000_000.0
# More steps than any run takes that comes to an end.
MOST_STEPS = 30_000
NEVER = float("inf")
# While nothing is done, who sleeps sleeps longer from time to time, so that a lease passes soon.
_FIRST_LATE = 0.5
_LATEST = 100.0
# So many times nothing is done before those go on that stood still: some leases.
_PATIENCE = 8


class Violation(BaseException):
    """A promise was broken. Nothing that a process catches."""


class Killed(BaseException):
    """Ends the greenlets of the dead when a run is over. They never notice while it lasts."""


@dataclass(eq=False)
class Host:
    """A machine with its own clock; a boot of it."""

    name: str
    offset: float = 0.0
    boot: int = 1
    # Names that were looked for here, and were not there.
    missed: set[tuple[int, str]] = field(default_factory=set)

    def reboot(self) -> None:
        self.boot += 1
        self.missed.clear()


@dataclass(eq=False)
class Process:
    """A process of a host."""

    name: str
    host: Host
    boot: int
    pid: int
    # Whether it is one of those whose end is waited for; others serve them.
    works: bool = True
    files: dict[int, Open] = field(default_factory=dict)
    alive: bool = True
    paused: bool = False
    # Whether what it does are no steps: nothing happens at them, nobody is told.
    unseen: bool = False
    asides: int = 0
    # With the end of this thread the process ends.
    main: "Task | None" = None
    # How it ended, if not by a kill.
    outcome: object = None


@dataclass(eq=False)
class Task:
    """A thread of a process."""

    process: Process
    act: Callable[[], None] = field(repr=False)
    # From its first step to its last.
    runs_in: greenlet | None = None
    # Until when it sleeps; None while it would run.
    wake_at: float | None = None
    # All that it has been told by the system, as one number: what it does next follows from that.
    history: int = 0

    def go_on(self) -> None:
        if self.runs_in is not None:
            self.runs_in.switch()
        else:
            self.runs_in = _idle.pop() if _idle else greenlet(_serve)
            self.runs_in.switch(self.act)


# Greenlets whose threads have ended: to make one takes ten times as long as to use it again.
_idle: list[greenlet] = []


def _serve(act: Callable[[], None]) -> None:
    """What a greenlet does: one thread after the other."""
    me = getcurrent()
    hub = me.parent
    assert hub is not None
    while True:
        act()
        _idle.append(me)
        act = hub.switch()


class World:
    """One run of some processes over one disk."""

    def __init__(self, disk: Disk, noreplace: bool = True) -> None:
        self.disk = disk
        self.kernel = Kernel(disk, noreplace)
        self.kernel.stop_at = MOST_STEPS
        self.kernel.at_stop = self._too_long
        self.now = 0.0
        # Whether one call makes all survive a power cut.
        self.syncs_as_one = False
        self.hosts: dict[str, Host] = {}
        self.tasks: list[Task] = []
        # Who runs.
        self.task: Task
        self.locks: dict[str, Process] = {}
        # How much work has been done: while there is some, time is short.
        self.done = 0
        # Told who leaves by itself.
        self.on_leaving: Callable[[Process], None] = lambda process: None
        # Who is to run next, whoever's turn it is.
        self.chosen: Task | None = None
        self.over = False
        self._reason: BaseException = Killed()
        self._hub = getcurrent()
        self._dead: list[Task] = []
        self._turn = 0
        self._pids = 100
        self._late = 0.0
        self._idle = 0
        self._done_before = -1
        # While what is done is unseen: how it was before.
        self._taken: float = 0
        self._remembers = False

    # Processes

    def host(self, name: str, offset: float = 0.0) -> Host:
        return self.hosts.setdefault(name, Host(name, offset))

    def start(
        self,
        name: str,
        host: Host,
        act: Callable[[], object],
        works: bool = True,
        after: float = 0.0,
    ) -> Process:
        self._pids += 1
        process = Process(name, host, host.boot, self._pids, works)
        task = self.start_thread(process, act)
        task.wake_at = self.now + after
        return process

    def start_thread(self, process: Process, act: Callable[[], object]) -> Task:
        def run() -> None:
            try:
                process.outcome = act() or process.outcome
            except (QueueError, OSError) as error:
                process.outcome = error
            except BaseException:
                if self.over:
                    return
                raise
            finally:
                task.runs_in = None
            self.tasks.remove(task)
            if task is process.main:
                self.on_leaving(process)
                self.kill(process)

        task = Task(process, run)
        self.tasks.append(task)
        if process.main is None:
            process.main = task
        return task

    def kill(self, process: Process) -> None:
        """SIGKILL: nothing of it runs again, and nothing of it is undone."""
        process.alive = False
        for file in process.files.values():
            self.disk.close(file.inode)
        process.files.clear()
        gone = [task for task in self.tasks if task.process is process]
        self._dead += gone
        self.tasks = [task for task in self.tasks if task.process is not process]

    @property
    def process(self) -> Process:
        return self.task.process

    def processes(self) -> list[Process]:
        return list({task.process: None for task in self.tasks})

    def others(self) -> list[Task]:
        """Who could move in place of whoever runs."""
        return [
            task
            for task in self.tasks
            if task is not self.task and not task.process.paused and task.wake_at != NEVER
        ]

    def is_busy(self) -> bool:
        """Whether anybody is at work, or may be soon."""
        return any(task.process.works and not task.process.paused for task in self.tasks)

    def identity(self, process: Process) -> Identity:
        host = process.host
        boot = f"{host.name}-{process.boot}"
        return Identity(host.name, host.name, boot, 1, process.pid, process.pid)

    def ticks(self, pid: int) -> int | None:
        """When the process started that has this pid on the host of whoever asks."""
        here = self.process.host
        for task in self.tasks:
            process = task.process
            if process.pid == pid and process.host is here and process.alive:
                return pid
        return None

    # Time

    def sleep(self, seconds: float) -> None:
        self.task.wake_at = self.now + max(seconds, 0.0)
        self.yield_()

    def yield_(self) -> None:
        """Who runs stops here, until it is its turn again."""
        if self.over:
            raise Killed
        self._hub.switch()

    def play(self) -> None:
        """Until all are done, or nobody can go on."""
        while self.is_busy() and (task := self._pick()) is not None:
            task.wake_at = None
            self.task = task
            self.kernel.files = task.process.files
            self.kernel.pid = task.process.pid
            if self.disk.remembers:
                self.kernel.missed = task.process.host.missed
            if task.process.unseen:
                self._hide()
            task.go_on()
            if self.over:
                raise self._reason
            if task.process.unseen:
                self._show_again()

    def _hide(self) -> None:
        """No number of steps makes more of this; and nobody is shown a listing of in between."""
        self._taken, self.kernel.taken = self.kernel.taken, -NEVER
        self._remembers, self.disk.remembers = self.disk.remembers, False

    def _show_again(self) -> None:
        self.kernel.taken, self.disk.remembers = self._taken, self._remembers

    def show(self) -> None:
        """From here on, what the process does that runs are steps."""
        if self.process.unseen:
            self._show_again()
            self.process.unseen = False

    def wake_paused(self) -> bool:
        """Let those go on that stood still; whether there were any."""
        woken = [task for task in self.tasks if task.process.paused]
        for task in woken:
            task.process.paused = False
        return bool(woken)

    def stop(self, reason: BaseException) -> BaseException:
        """The run ends here, amid whatever is going on. What is returned is for whoever runs to
        raise; whatever comes of that on its way out of the process, `play` raises the reason."""
        self.over = self.kernel.stopped = True
        self.kernel.stop_at = 0
        self._reason = reason
        return Killed()

    def close(self) -> None:
        """Take everything down."""
        self.stop(Killed())
        for task in (*self.tasks, *self._dead):
            if task.runs_in is not None:
                task.runs_in.throw(Killed)

    def _pick(self) -> Task | None:
        if (chosen := self.chosen) is not None:
            self.chosen = None
            if chosen in self.tasks and not chosen.process.paused:
                return chosen
        tasks = self.tasks
        count = len(tasks)
        soonest, first = None, NEVER
        for index in range(self._turn + 1, self._turn + 1 + count):
            task = tasks[index % count]
            if task.process.paused:
                continue
            if task.wake_at is None or task.wake_at <= self.now:
                self._turn = index % count
                return task
            if task.wake_at < first:
                soonest, first = task, task.wake_at
        if soonest is None:
            return None
        self.pass_time(first + self._lateness() - self.now)
        self._turn = tasks.index(soonest)
        return soonest

    def _lateness(self) -> float:
        """How much longer all have slept than they meant to."""
        if self.done != self._done_before:
            self._done_before = self.done
            self._idle, self._late = 0, 0.0
        else:
            self._idle += 1
            self._late = min(_LATEST, self._late * 10 + _FIRST_LATE)
        if self._idle > _PATIENCE:
            # On their own host those that stand still are taken for alive, until they move again.
            self.wake_paused()
        return self._late

    def pass_time(self, seconds: float) -> None:
        self.now += max(seconds, 0.0)
        self.disk.now = int((NOON + self.now) * 1e9)

    def broken(self, promise: str) -> BaseException:
        """For whoever finds it, to raise: the run ends here."""
        return self.stop(Violation(promise))

    def _too_long(self, *_: object) -> object:
        if self.over:
            raise Killed
        raise self.broken("it does not come to rest")

    def state(self) -> tuple[object, ...]:
        """All that decides what will happen if nothing more does, but for what is on the disk."""
        threads = tuple(
            (one.process.pid, one.history, one.wake_at, one.process.paused) for one in self.tasks
        )
        idle = self._late, self._idle, self.done - self._done_before
        locks = tuple((path, one.pid, one.alive) for path, one in self.locks.items())
        boots = tuple(host.boot for host in self.hosts.values())
        return threads, self.task.process.pid, self._turn, self.now, idle, locks, boots
