"""Every process of the watchdog's: started, told, reaped and ended here, and nowhere else.

    Child       one process: what it was asked, and how it ended
    Children    all of them, and what they leave running

Nothing here waits, and nobody is called back: SIGCHLD wakes the watchdog, `reap` writes down how a
child has ended, and its owner reads that. Only who reaps a child frees its number, so that a pid is
as good as a pidfd; one that is somebody else's child (adopted) is known by its pidfd.

Each child is on a rung of one ladder, for as long as that may take:

    run         nothing            for ever, or as long as its owner says, then terminate
    leave       TERM               as long as its owner says, then stacks
    hurry       TERM               5 s, then kill
    stacks      USR2               2 s, then terminate
    terminate   TERM to its group  5 s, then kill
    kill        KILL to its group  10 s, then stuck
    stuck       nothing            it waits in the kernel, as for a dead mount

What a child leaves of its process group ends with it. What went to another group or session is
known by the mark that each child has in its environment and all its forks inherit: its life.
Whoever belongs to a life that has ended is ended too: nothing outlives what started it.

From fork to exec, nobody waits for the disk that a program is on. posix_spawn and subprocess return
once the program has been found and mapped, which on a mount that hangs is never, and not even
SIGKILL ends who waits for it. Here the child does that alone. It has let go of everything of its
parent's by then, its locks above all, so that it is in nobody's way for as long as it hangs; and
what keeps it from executing is its exit code, and a line on its stderr.
"""

import itertools
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from queuedriver.disk.filesystem import open_fd
from queuedriver.disk.processes import process_ticks, signal_name
from queuedriver.errors import BUG, NotPermitted, exit_code_of
from watchdogd.linux import die_with_parent, is_readable
from watchdogd.logs import open_log

if TYPE_CHECKING:
    import psutil

# In the environment of each child: the life that it and all its forks belong to.
LIFE = "WATCHDOGD_LIFE"
WARDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "warden.py")
# Seconds from one start of a warden to the next: one that ends by itself was ended by somebody.
_WARDEN_EVERY = 10.0
_LOG_SIZE = 1_000_000
# Orphans are looked for at once after a child has ended, so many seconds later, and then twice as
# late each time, up to here: those that were ended may have been about to fork.
_LOOK_AGAIN = 0.1
_LONGEST_PAUSE = 1.0
# For how many seconds the end waits until all that was killed has gone.
END_TAKES = 2.0
_END_LOOK = 0.02
_ENDED = os.WEXITED | os.WNOHANG
# A child begins as if nobody had ever touched its signals.
_SIGNALS = [number for number in signal.valid_signals() if number < signal.SIGRTMIN]
_FIXED = (signal.SIGKILL, signal.SIGSTOP)
_STDERR = 2
_numbers = itertools.count(1)

Rung = Literal["run", "leave", "hurry", "stacks", "terminate", "kill", "stuck"]


class _Rung(NamedTuple):
    number: signal.Signals | None
    to_group: bool
    # Seconds; where the owner says no other.
    takes: float
    then: Rung


_LADDER: dict[Rung, _Rung] = {
    "run": _Rung(None, to_group=False, takes=math.inf, then="terminate"),
    "leave": _Rung(signal.SIGTERM, to_group=False, takes=math.inf, then="stacks"),
    "hurry": _Rung(signal.SIGTERM, to_group=False, takes=5.0, then="kill"),
    "stacks": _Rung(signal.SIGUSR2, to_group=False, takes=2.0, then="terminate"),
    "terminate": _Rung(signal.SIGTERM, to_group=True, takes=5.0, then="kill"),
    "kill": _Rung(signal.SIGKILL, to_group=True, takes=10.0, then="stuck"),
    "stuck": _Rung(None, to_group=False, takes=math.inf, then="stuck"),
}


def climb_takes(rung: Rung) -> float:
    """Return the seconds from this rung to the last, for what ends on none of them."""
    takes = 0.0
    while rung != "stuck":
        takes += _LADDER[rung].takes
        rung = _LADDER[rung].then
    return takes


class Exit(NamedTuple):
    """How a process ended; both are None of one that was not our child."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"ended by {signal_name(self.signal)}"
        return "ended" if self.code is None else f"exit code {self.code}"


class Child:
    """A process. Instants are monotonic."""

    def __init__(self, pid: int = 0, life: str = "", pidfd: int = -1, born_with: str = "") -> None:
        # 0: a fork that was asked for and is still to come.
        self.pid = pid
        # The mark of it and all its forks; and of a fork that of what it was forked from, whose
        # helpers it may need.
        self.life = life
        self.born_with = born_with
        # None while it runs, or is still to come.
        self.exit: Exit | None = None
        # What it was asked last, why, when, and when the next rung follows.
        self.rung: Rung = "run"
        self.why = ""
        self.asked_at = -math.inf
        self.due_at = math.inf
        # Why a fork never came.
        self.failure = ""
        # Of an adopted one.
        self.pidfd = pidfd

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to it alone; return whether that could be done. A program of another user
        (sudo) is not ours to signal."""
        if not self.pid or self.exit is not None:
            return False
        try:
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)
            else:
                os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it, and to its group once it leads one: until then that is our own."""
        if self.send(number):
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(self.pid) == self.pid:
                    os.killpg(self.pid, number)

    def ask(self, rung: Rung, why: str, now: float, takes: float | None = None) -> None:
        """Put it on a rung of the ladder, and send what belongs to that. Back on `run`, nothing is
        asked of it any more. One that is still to come is asked once it is there."""
        number, to_group, usual, _ = _LADDER[rung]
        self.rung, self.why, self.asked_at = rung, why, now
        self.due_at = now + (usual if takes is None else takes)
        if number is not None:
            (self.signal_group if to_group else self.send)(number)

    def climb(self, now: float) -> None:
        """Put it on the next rung."""
        self.ask(_LADDER[self.rung].then, self.why, now)


class Children:
    """All processes of this watchdog, and what they leave running."""

    def __init__(self) -> None:
        # Those that had not ended when they were last reaped, and forks that are still to come; and
        # while there are such, who was reaped and is not known yet.
        self._all: list[Child] = []
        self._strangers: dict[int, Exit] = {}
        # With what the lives begin that end with a child: of all that is started here, and each
        # life that was adopted. What else its watchdog has started may be needed by others yet.
        self._begins = {begin_of_lives()}
        # When orphans are looked for next, and how long after the look before.
        self._look_at = math.inf
        self._pause = 0.0
        self._warden: Child | None = None
        # Before, no other is started.
        self._warden_at = -math.inf

    # Begin

    def start(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        *,
        order: bytes = b"",
        stdin: int | None = None,
        output: int | None = None,
        directory: str = "",
        tied: bool = False,
    ) -> Child:
        """Start a program in a process group of its own. It reads `order` from its stdin, unless
        that is given, and prints to `output`, or /dev/null; what is given is above 2. It begins in
        `directory`, if given; if `tied`, the kernel tells it to leave when this process dies. One
        that cannot be executed is a process that says so and ends."""
        life = _new_life()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        opened = [null]
        try:
            if stdin is None:
                opened.append(stdin := _readable(order))
            output = null if output is None else output
            environ = {**environ, LIFE: life}
            pid = _launch(argv, environ, (stdin, output, output), directory, tied=tied)
        finally:
            for fd in opened:
                os.close(fd)
        self._all.append(child := Child(pid, life))
        return child

    def adopt(self, pid: int, ticks: int) -> Child | None:
        """Take over a process that began at this moment; return None when it does not run."""
        try:
            child = Child(pid, pidfd=os.pidfd_open(pid))
        except OSError:
            return None
        # Only now: before, its pid might have become another's.
        if process_ticks(pid) != ticks:
            os.close(child.pidfd)
            return None
        if life := _life_of(pid):
            child.life = life
            self._begins.add(life)
        self._all.append(child)
        return child

    def expect(self, parent: Child) -> Child:
        """Return the child that a fork of this one will be, which has to take on its life. Its
        owner says that it `came`, or sets its `exit`."""
        child = Child(life=_new_life(), born_with=parent.life)
        self._all.append(child)
        return child

    def came(self, child: Child, pid: int) -> None:
        """Say which process, a child of ours, an expected fork is. It may have ended by now, and
        been reaped among strangers."""
        child.pid = pid
        if not _is_ours(pid):
            child.exit = self._strangers.pop(pid, Exit())
        child.ask(child.rung, child.why, child.asked_at, child.due_at - child.asked_at)

    # End

    @property
    def running(self) -> list[Child]:
        """Return those that were started here, or came as forks, and are not reaped."""
        return [one for one in self._all if one.pid and one.pidfd < 0 and one.exit is None]

    @property
    def fds(self) -> list[int]:
        """Return what to poll: readable when an adopted child has ended. Else SIGCHLD tells."""
        return [child.pidfd for child in self._all if child.pidfd >= 0]

    def reap(self, now: float) -> bool:
        """Write down how children have ended; return whether any has."""
        there = [child for child in self._all if child.exit is None]
        self._reap_own()
        for child in there:
            if child.pidfd >= 0 and is_readable(child.pidfd):
                os.close(child.pidfd)
                child.exit = Exit()
        self._all = [child for child in there if child.exit is None]
        if all(child.pid for child in self._all):
            self._strangers.clear()
        if has_ended := len(self._all) < len(there):
            self._look_at, self._pause = now, _LOOK_AGAIN
        return has_ended

    def _reap_own(self) -> None:
        own = {child.pid: child for child in self.running}
        with suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, _ENDED | os.WNOWAIT)) is not None:
                pid, status = found.si_pid, found.si_status
                how = Exit(status) if found.si_code == os.CLD_EXITED else Exit(signal=status)
                if pid in own:
                    # What it leaves of its group ends with it. Until it is reaped, the group's
                    # number is nobody else's.
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
                    own[pid].exit = how
                else:
                    self._strangers[pid] = how
                os.waitid(os.P_PID, pid, _ENDED)
            return
        # There is no child at all any more: whoever started us ignores SIGCHLD.
        for child in self.running:
            child.exit = Exit()

    def tend(self, now: float) -> float:
        """Put those on the next rung whose time on theirs is over, and end orphans; return when to
        come back."""
        if now >= self._look_at:
            self._kill_orphans()
            self._look_at = now + self._pause if self._pause < _LONGEST_PAUSE else math.inf
            self._pause *= 2
        due = self._look_at
        for child in self._all:
            if now >= child.due_at:
                child.climb(now)
            due = min(due, child.due_at)
        return due

    def guard(self, local: str, now: float, *, adopts: bool) -> float:
        """Have a warden, a process that ends what this one leaves if it is killed, but for drivers
        that another `adopts`; return when to see to that again. OSError if none can be started,
        or the one before ended with an error: nobody else would hear of it."""
        ended = None if self._warden is None else self._warden.exit
        if self._warden is not None and ended is None:
            return math.inf
        if now >= self._warden_at:
            self._warden_at = now + _WARDEN_EVERY
            said = (str(os.getpid()), begin_of_lives(), local, "adopt" * adopts)
            argv = (sys.executable, "-P", WARDEN, *said)
            path = os.path.join(local, "warden.log")
            with open_fd(open_log(path, _LOG_SIZE, 1)) as log:
                self._warden = self.start(argv, os.environ, output=log)
            if ended is not None and ended.code:
                raise OSError(f"{ended}; see {path}")
        return self._warden_at

    def end_orphans(self) -> None:
        """End all that children left running, and what that leaves; wait a little for that, and for
        children that were killed."""
        ends_at = time.monotonic() + END_TAKES
        # While psutil is installed anew nobody can be looked for, which is no reason not to end.
        with suppress(ImportError):
            while self._kill_orphans() or any(child.rung == "kill" for child in self.running):
                if time.monotonic() >= ends_at:
                    return
                time.sleep(_END_LOOK)
                self._reap_own()

    def close(self) -> None:
        """End whatever still runs."""
        for child in self.running:
            child.ask("kill", "the watchdog leaves", time.monotonic())
        self.end_orphans()
        for fd in self.fds:
            os.close(fd)

    def _kill_orphans(self) -> int:
        """Kill those whose life has ended; return how many there were."""
        import psutil

        there = [child for child in self._all if child.exit is None]
        living = {life for child in there for life in (child.life, child.born_with)}
        count = 0
        for one, environ in marked(self._begins, {child.pid for child in there}):
            if environ[LIFE] not in living:
                # psutil signals no other process that has its number by now.
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    one.kill()
                    count += 1
        return count


def code_of(error: OSError) -> int:
    """Return the exit code of a start that failed. What is not permitted may be in a minute, as
    while Python is installed anew: that counts like any start that failed."""
    code = exit_code_of(error)
    return BUG if code is None or code == NotPermitted.exit_code else code


def _launch(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdio: Sequence[int],
    directory: str = "",
    *,
    tied: bool = False,
) -> int:
    """Start a program, found in PATH, in a process group of its own; return its pid. `stdio` are
    three descriptors above 2; it begins in `directory`, if given. If `tied`, the kernel tells it to
    leave when this process dies."""
    parent = os.getpid() if tied else 0
    # What is sent to the child at once is for the program, not for our handlers in it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with warnings.catch_warnings():
            # Threads: nothing that they may have locked is needed until exec.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            _execute(argv, environ, stdio, directory, parent)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # The child does so too: whoever is first.
    with suppress(OSError):
        os.setpgid(pid, pid)
    return pid


def _execute(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdio: Sequence[int],
    directory: str,
    parent: int,
) -> NoReturn:
    """Become the program; in the child."""
    code = BUG
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for one in _SIGNALS:
            if one not in _FIXED:
                signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        # At once, though exec would do so: it may take for ever.
        os.closerange(_STDERR + 1, os.sysconf("SC_OPEN_MAX"))
        if parent:
            die_with_parent(parent)
        if directory:
            os.chdir(directory)
        os.execvpe(argv[0], list(argv), dict(environ))
    except OSError as error:
        code = code_of(error)
        with suppress(OSError):
            os.write(_STDERR, f"{argv[0]} cannot be run: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def _new_life() -> str:
    # All are of one length: a fork puts its own in the place of the one that it was born with.
    return f"{begin_of_lives()}{next(_numbers):09}"


def _life_of(pid: int) -> str:
    """Return the life that a process belongs to; empty where it has none, or it cannot be seen."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for word in file.read().split(b"\0"):
            name, _, life = os.fsdecode(word).partition("=")
            if name == LIFE:
                return life
    return ""


def begin_of_lives() -> str:
    """Return what the lives of all that this watchdog starts have in common."""
    # With the start of this process: an earlier watchdog may have had its pid.
    pid = os.getpid()
    return f"{pid}.{process_ticks(pid)}/"


def marked(
    begins: Collection[str], but: Collection[int] = ()
) -> Iterator[tuple["psutil.Process", dict[str, str]]]:
    """Find the processes of this host whose life begins like one of these, but for those with these
    pids; with what they were started with."""
    # Late: nobody is to be looked for in most minutes, and it takes a while.
    import psutil

    for one in psutil.process_iter():
        if one.pid in but:
            continue
        # It is gone, or another user's and so none of ours.
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            environ = one.environ()
            if environ.get(LIFE, "").startswith((*begins,)):
                yield one, environ


def _is_ours(pid: int) -> bool:
    """Return whether this is a child of ours that is not reaped."""
    try:
        os.waitid(os.P_PID, pid, _ENDED | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _readable(data: bytes) -> int:
    """Return a descriptor from which this can be read."""
    fd = os.memfd_create("order", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd
