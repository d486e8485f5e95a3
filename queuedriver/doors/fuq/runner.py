"""A worker of fuq: runs a broker's tasks as child processes.

A job names a program; the client's own list says which file that is, and nothing else is ever run:
no shell, no search along PATH. It gets the task's number as its last argument, nothing on stdin, an
environment of a few words, and a process group of its own. Directories are looked for beneath the
client's roots, one part after another, and no symlink is followed on the way.

The children outlive a connection: while the broker is away they go on, and are reported to it when
it is back.
"""

import contextlib
import functools
import math
import os
import shlex
import time
from collections.abc import Callable, Mapping

import msgspec

from queuedriver.claims.outcomes import Failed, says_stopped
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.client import Start
from queuedriver.doors.fuq.settings import WorkerSettings
from queuedriver.doors.fuq.wire import JobStatusUpdate, Task
from queuedriver.doors.words import Effect, Leave, Recent, soonest
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError
from queuedriver.format.records import Failure
from queuedriver.jobs.jobfile import NAME
from queuedriver.options import Options
from queuedriver.processors.child import Child, Ended
from queuedriver.processors.program import prepare, spawn

# How long the broker has to take our last reports, when nothing else keeps us; in seconds.
_FAREWELL = 2.0
_MOST_SAID = 1000
# Jobs, of some KB each, of which it is remembered how they are run.
_MOST_JOBS = 16
# How many logs of one name are kept apart, as in the original.
_MOST_LOGS = 10_000
# Bytes of the end of a log that go into the report.
LOG_TAIL = 64 * 1024
# Read back when it is reported; nobody else reads it unless its owner lets them.
_LOG = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def run_worker(
    asked: WorkerSettings, say: Callable[[str], None] = lambda words: None, *, last: bool = False
) -> Leave:
    """Run tasks until told to leave. QueueError when it cannot even start. `last`: the process is
    about to end. From the first task on the process is in the root directory, and stays there."""
    prepare()
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
        allowed = parse_allow(asked.allow)
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
            while self._end is None and self._rest():
                pass
            if self._end is not None:
                return self._end

    def close(self) -> None:
        """Let nothing that was started outlive us."""
        for one in self._running.values():
            one.child.kill()
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
        elif type(effect) is Leave:
            self._end = effect

    def _start(self, task: Task) -> None:
        try:
            one = start(task, self._site)
        except CannotRun as error:
            # Once: each of its tasks may be offered again and again.
            job = task.description
            self._talk.say(0, f"job {job.job_id} ({job.name}) is refused: {error}")
            self._talk.carry_out(self._session.refused(task, str(error)), time.monotonic())
        else:
            self._running[one.child.pidfd] = one

    def _rest(self) -> bool:
        """Wait for the broker, a signal or the end of a task; report what has ended. Return whether
        that was all there was to see, and to consider."""
        until = self._farewell_until
        if self._running and self._limits.leaving_at is not None:
            until = soonest(until, self._limits.deadline())
        if self._timeout < math.inf:
            running = [one for one in self._running.values() if not one.overdue]
            until = soonest(until, *(one.began + self._timeout for one in running))
        woken = sleep([self._talk], [self._limits.wake_fd, *self._running], until)
        if self._limits.wake_fd in woken:
            self._limits.clear()
        ended = [self._running.pop(fd) for fd in woken if fd in self._running]
        for one in ended:
            self._report(one)
        for one in self._running.values() if self._timeout < math.inf else ():
            if not one.overdue and time.monotonic() >= one.began + self._timeout:
                one.overdue = True
                one.child.kill()
        return 0 < len(ended) == len(woken) and self._limits.leaving_at is None

    def _report(self, one: "Running") -> None:
        """Report a task that has ended; not if what stops us may have ended it, too."""
        update = one.collect()
        asked = self._limits.asked_at is not None
        if asked and not one.overdue and says_stopped(_failed(update)):
            # Lost to the broker when we leave, and charged: a task that stops its clients, and
            # itself, would else be dealt for ever.
            job = one.task.description
            why = "ended when the client was asked to leave, and counts as lost"
            self._talk.say(0, f"a task of job {job.job_id} ({job.name}) {why}")
            return
        self._talk.carry_out(self._session.ended(update), time.monotonic())

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
                del self._running[one.child.pidfd]
                one.abandon()
                why = "the client was asked to leave"
                self._talk.carry_out(self._session.refused(one.task, why), now)
        if self._running or self._end is not None:
            return
        # Whom nobody listens to need not wait as long.
        self._farewell_until = self._farewell_until or now + _FAREWELL
        if now >= self._farewell_until:
            self._end = Leave(limits.why)


# Tasks


class CannotRun(Exception):
    """This client cannot run this task; another may."""


class Site(msgspec.Struct, frozen=True):
    """What a client lets jobs do."""

    # Programs by the name that a job calls them.
    allow: Mapping[str, str]
    root: str
    log_root: str


def parse_allow(given: tuple[str, ...]) -> dict[str, str]:
    """Return programs by their names, each said as `NAME=/path`; ConfigError for what can never
    be run."""
    if not given:
        raise ConfigError("no job could run anything: say what they may, as --allow sim=/opt/sim")
    found = {}
    for text in given:
        name, _, path = text.partition("=")
        if not name or not os.path.isabs(path):
            raise ConfigError(f"--allow {text}: write NAME=/absolute/path")
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise ConfigError(f"--allow {text!r}: {path!r} is no program that may be run")
        found[name] = path
    return found


class Running:
    """One task that runs."""

    def __init__(self, task: Task, child: Child, log: int) -> None:
        self.task = task
        self.child = child
        self.started = time.time()
        self.began = time.monotonic()
        self.overdue = False
        self._log = log

    def collect(self) -> JobStatusUpdate:
        """Return the report of a task that has ended."""
        # What is left of its group is killed, and no other task waits for the end of that.
        ended = self.child.reap(wait=False)
        seconds = time.monotonic() - self.began
        log = _tail(self._log)
        os.close(self._log)
        return JobStatusUpdate(
            self.task.description.job_id,
            self.task.task,
            success=ended.code == 0 and not self.overdue,
            status=_status(ended, self.overdue),
            exit_code=ended.code,
            started=self.started,
            seconds=seconds,
            log=log,
        )

    def abandon(self) -> None:
        """End it; nobody wants to know how it went."""
        self.child.end_at_once(wait=False)
        os.close(self._log)


def start(task: Task, site: Site) -> Running:
    """Run a task; CannotRun where this client may or can not."""
    job = task.description
    program, *arguments = _words_of(job.command)
    if program not in site.allow:
        raise CannotRun(f"it names {program!r}, which is not allowed here")
    path = site.allow[program]
    if not NAME.fullmatch(job.name):
        raise CannotRun(f"{job.name!r} is no name for a log")
    environment = {
        **_ENVIRONMENT,
        "FUQ_JOB": str(job.job_id),
        "FUQ_NAME": job.name,
        "FUQ_TASK": str(task.task),
    }
    with _beneath(site.root, job.working_dir, create=False) as directory:
        with _beneath(site.log_root, job.logging_dir, create=True) as logs:
            log = open_log(logs, job.name, task.task)
        try:
            # The directory that was found, whatever its name means by now. All else that we open
            # has a whole path, or had one when we began.
            os.fchdir(directory.fd)
            child = spawn(path, [path, *arguments, str(task.task)], environment, None, log, log)
        except (OSError, ValueError) as error:
            os.close(log)
            raise CannotRun(f"{path}: {error}") from None
        finally:
            os.chdir("/")
    return Running(task, child, log)


@functools.lru_cache(_MOST_JOBS)
def _words_of(command: str) -> list[str]:
    """Return the words of a job's command, the same object for all of its tasks."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CannotRun(f"its command cannot be split: {error}") from None
    if not words:
        raise CannotRun("it names nothing that could be run")
    return words


def open_log(directory: Directory, name: str, task: int) -> int:
    """Return a new file for what a task says; none that is there is ever touched."""
    base = f"{name}_{task}"
    for more in range(_MOST_LOGS + 1):
        try:
            return os.open(
                f"{base}-{more}.log" if more else f"{base}.log", _LOG, 0o600, dir_fd=directory.fd
            )
        except FileExistsError:
            continue
        except OSError as error:
            raise CannotRun(f"no log can be made in {directory.path}: {error.strerror}") from None
    raise CannotRun(f"there are {_MOST_LOGS} logs of {base} in {directory.path} already")


def _beneath(root: str, path: str, *, create: bool) -> Directory:
    whole, inside = _place_of(root, path)
    try:
        return Directory.open(whole, create, inside=inside)
    except (OSError, UnicodeEncodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no path"
        raise CannotRun(f"{whole} cannot be used: {why}") from None


@functools.lru_cache(_MOST_JOBS)
def _place_of(root: str, path: str) -> tuple[str, int]:
    """Return where a path of a job's is beneath a root, and how many of its parts are the job's; an
    absolute one has to begin with the root."""
    if os.path.isabs(path):
        inside = os.path.join(root, "")
        if path != root and not path.startswith(inside):
            raise CannotRun(f"{path} is not beneath {root}")
        path = path[len(inside) :]
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise CannotRun(f"{path!r} may not be used: it leads elsewhere")
    return os.path.join(root, *parts), len(parts)


def _tail(log: int) -> str:
    size = os.fstat(log).st_size
    data = os.pread(log, LOG_TAIL, max(0, size - LOG_TAIL))
    text = data.decode("utf-8", "replace")
    # What could not be read takes more room than it had.
    return text.encode()[-LOG_TAIL:].decode("utf-8", "ignore")


def _failed(update: JobStatusUpdate) -> Failed:
    """Return how a task failed, with its exit code as a shell has it."""
    code = update.exit_code or 0
    code = code if code >= 0 else 128 - code
    return Failed(Failure(cause="exit", message=update.status, exit_code=code))


def _status(ended: Ended, overdue: bool) -> str:
    if overdue:
        return "error encountered: it took longer than its time-out"
    if ended.code == 0:
        return "done"
    if ended.code is None:
        return "error encountered: its exit status is lost"
    signal = ended.signal and f"signal {ended.signal.removeprefix('signal ')}"
    return f"error encountered: {signal or f'exit status {ended.code}'}"
