"""The warden: outlives a watchdog that was killed, and ends what that one left running.

    python -P …/watchdogd/programs/warden.py PID BEGINS LOCAL [adopt]

When a watchdog dies, the kernel asks its drivers to leave, which they do after the document at
hand, or when its grace is over. One that cannot hear that, because C code holds the interpreter's
lock or because the processor ignores SIGTERM, would go on for as long as its document does, with
nobody to look after it. For those there is SIGKILL, a little after the grace of their stage; and
for whatever else was started on behalf of this watchdog, known by the life in its environment.
Where the next watchdog is to adopt the drivers, these are left alone, with all that they need.

It waits for the end of the watchdog's process, and for nothing else: be there a helper or none, and
whatever the file system of the queues does, of which it touches nothing. Until it has something to
do it has imported next to nothing: it costs memory on every host, and acts on almost none. So it is
not started as a module, either, which takes what finds modules.
"""

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    import psutil
else:
    # Python's own makes an enumeration of the numbers, and brings along what that takes.
    import _signal as signal

# Seconds from one look to the next: what leaves meanwhile may leave others behind.
_LOOK_EVERY = 1.0
_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main(parent: int, begins: str, local: str, adopts: bool) -> None:
    """Wait for the watchdog's end; then end all that it has started, each in its time."""
    for number in _DEAF_TO:
        # A service manager may send them to everybody; what is for us comes by the parent's end.
        signal.signal(number, signal.SIG_IGN)
    try:
        watchdog = os.pidfd_open(parent)
        # Once it is not our parent any more, its number may be another's.
        if os.getppid() == parent:
            select.select([watchdog], [], [])
    except ProcessLookupError:
        # It has ended already.
        pass
    _end_all(begins, local, adopts, time.monotonic())


def _end_all(begins: str, local: str, adopts: bool, died_at: float) -> None:
    from watchdogd.children import climb_takes, marked
    from watchdogd.driver_orders import GRACE
    from watchdogd.policy import leaves_within

    last_end = died_at
    while left := [
        (one, environ)
        for one, environ in marked([begins], but={os.getpid()})
        # What drivers are forked from, and what either has started, has that of its stage.
        if not (adopts and GRACE in environ)
    ]:
        now = time.monotonic()
        due = now + _LOOK_EVERY
        for one, environ in left:
            # As for a driver that its living watchdog has told to leave.
            ends_at = died_at + leaves_within(_seconds(environ.get(GRACE, "")))
            last_end = max(last_end, ends_at)
            if now >= ends_at:
                _end(one, local)
            else:
                due = min(due, ends_at)
        # Who is still there waits in the kernel, and nobody can do anything about it.
        if now >= last_end + climb_takes("kill"):
            return
        time.sleep(due - now)


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


def _end(one: "psutil.Process", local: str) -> None:
    from contextlib import suppress

    import psutil

    _say_why(one.pid, local)
    with suppress(psutil.Error, ProcessLookupError, PermissionError):
        leads = os.getpgid(one.pid) == one.pid
        one.kill()
        if leads:
            os.killpg(one.pid, signal.SIGKILL)


def _say_why(pid: int, local: str) -> None:
    """Tell whoever recovers what it leaves not to charge its document for this."""
    try:
        from queuedriver.disk.runtime import note_ending
        from watchdogd.driver_ids import dump_of

        note_ending(dump_of(local, pid), "ended", "its watchdog was killed")
    except Exception as error:  # noqa: BLE001 - an installation that is gone, a disk that is full
        print(f"process {pid} will pass for crashed: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], bool(sys.argv[4]))
