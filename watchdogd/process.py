"""The only place that starts processes, and the only one that ends them.

A process is known by its pidfd: a pid alone is used again. Nothing here waits: the supervisor polls
the pidfds and reaps what is ready.
"""

import fcntl
import os
import select
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from queuedriver.claims.liveness import process_ticks
from queuedriver.disk.processes import signal_name
from watchdogd.launch import launch
from watchdogd.logs import open_log

_HELPER_LOG = 1_000_000


class Exit(NamedTuple):
    """How a process ended; both are None of one that was not our child."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"ended by {signal_name(self.signal)}"
        return "ended" if self.code is None else f"exit code {self.code}"


class Process:
    """A process that runs, or has ended and is not reaped yet."""

    def __init__(self, pid: int, pidfd: int, *, adopted: bool = False) -> None:
        self.pid = pid
        self.pidfd = pidfd
        # Whether it is a stranger's child, or nobody's: then nobody tells us its exit status.
        self.adopted = adopted
        # What its forks are known by, wherever they go; empty: nothing (see orphans.py).
        self.life = ""

    @classmethod
    def adopt(cls, pid: int, ticks: int) -> "Process | None":
        """A process that runs already and began at this moment; None when it does not."""
        try:
            process = cls(pid, os.pidfd_open(pid), adopted=True)
        except OSError:
            return None
        # Only now: before, its pid might have become another's.
        if process_ticks(pid) == ticks:
            return process
        process.close()
        return None

    def send(self, number: signal.Signals) -> bool:
        """To it alone; whether it is still there."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def signal_group(self, number: signal.Signals) -> None:
        """To it, and to its group once it leads one: until then that is our own."""
        if not self.send(number):
            return
        try:
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def reap(self) -> Exit | None:
        """How it ended; None while it runs. Afterwards its pid may be anybody's."""
        if self.adopted:
            return Exit() if _ended(self.pidfd) else None
        try:
            found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                # What it leaves of its group ends with it. Until it is reaped, the group's number
                # is nobody else's.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            # Whoever started us ignores SIGCHLD, or it never was our child.
            self.adopted = True
            return self.reap()
        if found is None:
            return None
        if found.si_code == os.CLD_EXITED:
            return Exit(code=found.si_status)
        return Exit(signal=found.si_status)

    def await_end(self, seconds: float) -> None:
        """Wait until it has ended, and reap it; but no longer than this."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if poll.poll(seconds * 1000):
            self.reap()

    def close(self) -> None:
        os.close(self.pidfd)


def spawn(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    order: bytes = b"",
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    keep: Collection[int] = (),
) -> Process:
    """Start a program in a process group of its own. What it is to read first is `order`; what is
    not given of the rest is /dev/null; `keep` are descriptors that it is to have as well. One that
    cannot be executed is a process that says so and ends."""
    opened: list[int] = []
    try:
        if stdin is None:
            stdin = _readable(order)
            opened.append(stdin)
        null = os.open(os.devnull, os.O_RDWR)
        opened.append(null)
        given = (stdin, null if stdout is None else stdout, null if stderr is None else stderr)
        # None of them may be among 0 to 2, where one would be overwritten before it is copied.
        moved = []
        for fd in given:
            moved.append(_above(fd))
            opened.append(moved[-1])
        pid = launch(argv, environ, moved, keep)
    finally:
        for fd in opened:
            os.close(fd)
    # It cannot be reaped by anybody else, so the pid is still its own.
    try:
        return Process(pid, os.pidfd_open(pid))
    except OSError:
        # Too many files are open: nobody could look after it.
        os.kill(pid, signal.SIGKILL)
        raise


def spawn_for_helper(
    argv: Sequence[str], stdin: int, stdout: int, stderr_path: str
) -> tuple[int, int]:
    """The same for helpers and hooks, whose complaints are appended to a file: pid and pidfd."""
    log = open_log(stderr_path, _HELPER_LOG, 1)
    try:
        process = spawn(argv, os.environ, stdin=stdin, stdout=stdout, stderr=log)
    finally:
        os.close(log)
    return process.pid, process.pidfd


def reap_strangers(ours: Collection[int]) -> None:
    """Orphans of our drivers become our children when their parents end: let their remains go."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in ours:
            # One of ours is reaped by its pidfd; until then it hides who is behind it.
            return
        os.waitid(os.P_PID, found.si_pid, os.WEXITED | os.WNOHANG)


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _readable(data: bytes) -> int:
    """A descriptor from which this can be read."""
    fd = os.memfd_create("order", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


def _above(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
