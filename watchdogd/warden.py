"""The warden: outlives a watchdog that was killed, and ends what that one left running.

    python -P -m watchdogd.warden PID BEGINS LOCAL

When a watchdog dies, the kernel asks its drivers to leave, which they do after the document at
hand, or when its grace is over. One that cannot hear that, because C code holds the interpreter's
lock or because the processor ignores SIGTERM, would go on for as long as its document does, with
nobody to look after it. For those there is SIGKILL, a little after the grace of their stage; and
for whatever else was started on behalf of this watchdog, known by its environment.

It touches nothing but /proc and the watchdog's local directory, and has imported next to nothing
before it has something to do: it costs memory on every host, and acts on almost none.
"""

import contextlib
import os
import select
import signal
import sys
import time

from watchdogd.lives import GRACE, LIFE, read_environment

# As for a driver that its living watchdog has told to leave.
_LEAVING_TAKES = 5.0
# Who is not gone so long after SIGKILL waits in the kernel, and nobody can do anything about it.
_KILL_TAKES = 10.0
# What leaves meanwhile may leave others behind.
_LOOK_EVERY = 5.0
_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Left:
    """A process that a dead watchdog has left, and the end of our patience with it."""

    # No NamedTuple: typing would be a sixth of this process's memory.
    __slots__ = ("ends_at", "pid", "pidfd")

    def __init__(self, pid: int, pidfd: int, ends_at: float) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.ends_at = ends_at


def main(parent: int, begins: str, local: str) -> None:
    """Wait for the watchdog's end; then for that of all that it has started."""
    for number in _DEAF_TO:
        # A service manager may send them to everybody; what is for us comes by the parent's end.
        signal.signal(number, signal.SIG_IGN)
    try:
        watchdog = os.pidfd_open(parent)
    except ProcessLookupError:
        pass
    else:
        # Once it is not our parent any more, its number may be another's.
        if os.getppid() == parent:
            select.select([watchdog], [], [])
        os.close(watchdog)
    died_at = time.monotonic()
    last_end = died_at
    while left := [*_look(begins, died_at)]:
        now = time.monotonic()
        last_end = max(last_end, *(one.ends_at for one in left))
        if now >= last_end + _KILL_TAKES:
            return
        for one in left:
            if now >= one.ends_at:
                _end(one, local)
        _await(left, now)


def _look(begins: str, died_at: float) -> "list[Left]":
    """All processes whose life belongs to the watchdog."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        pid = int(name)
        if not read_environment(pid).get(LIFE, "").startswith(begins):
            continue
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            # Only now: before, its number might have become another's.
            environment = read_environment(pid)
            if environment.get(LIFE, "").startswith(begins):
                ends_at = died_at + _seconds(environment.get(GRACE, "")) + _LEAVING_TAKES
                found.append(Left(pid, pidfd, ends_at))
            else:
                os.close(pidfd)
    return found


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


def _end(one: Left, local: str) -> None:
    _say_why(one.pid, local)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        leads = os.getpgid(one.pid) == one.pid
        signal.pidfd_send_signal(one.pidfd, signal.SIGKILL)
        if leads:
            os.killpg(one.pid, signal.SIGKILL)


def _say_why(pid: int, local: str) -> None:
    """Whoever recovers what it leaves is not to charge its document for this."""
    try:
        # Late: this process does without them as long as it can, and must not depend on them.
        from queuedriver.disk.runtime import note_ending
        from watchdogd.adoption import dump_of

        note_ending(dump_of(local, pid), "ended", "its watchdog was killed")
    except Exception as error:  # noqa: BLE001 - an installation that is gone, a disk that is full
        print(f"process {pid} will pass for crashed: {error}", file=sys.stderr, flush=True)


def _await(left: "list[Left]", now: float) -> None:
    """Until one of them has ended or is to be ended, or somebody new may be there."""
    poll = select.poll()
    for one in left:
        poll.register(one.pidfd, select.POLLIN)
    due = [one.ends_at for one in left if one.ends_at > now]
    poll.poll(min(_LOOK_EVERY, *(at - now for at in due), _LOOK_EVERY) * 1000)
    for one in left:
        os.close(one.pidfd)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
