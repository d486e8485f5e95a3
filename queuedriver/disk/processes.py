"""The processes of this host: when they began, what dead drivers left running, and what a living
one takes.

Each child of a driver has `MARKER` in its environment, and inherits it to whatever it starts; so
what left its process group is found all the same. psutil is imported where somebody
asks what it alone can tell: a driver that need not know should not wait for it.
"""

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

# In the environment of every child, with "<driver id>-<salt>".
MARKER = "QUEUEDRIVER_DRIVER"
# From KILL to the end, in seconds. Only a process inside a file system that does not answer needs
# more, and waiting for it takes as long as that file system does.
KILL_WAIT = 10.0
# From one look for the marked to the next, in seconds.
_LOOK_AGAIN = 0.005
# Instead of ticks: the process is there, and that is all that may be known of it.
HIDDEN = -1
# More than any kernel counts to.
_NO_PID = 1 << 31
# Bytes that the kernel counts memory by.
_PAGE = os.sysconf("SC_PAGE_SIZE")
# psutil's word for a process that has ended and was not collected.
ZOMBIE = "zombie"


def signal_name(number: int) -> str:
    """Return what people call a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def process_ticks(pid: int) -> int | None:
    """Return when a process of this host started, in clock ticks since boot; None when it is gone
    or a zombie."""
    if not 0 < pid < _NO_PID:
        # Whoever wrote it down was no driver: as a path or a signal's target it means other things.
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        try:
            os.kill(pid, 0)
        except PermissionError:
            # It is there, and another user's that /proc does not show us (hidepid).
            return HIDDEN
        except ProcessLookupError:
            pass
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def kill_marked(marks: Collection[str]) -> int:
    """Kill all that the children of dead drivers left on this host; return how many that were.

    `marks` is what the drivers put into their environment. Returns when they are gone, or after
    KILL_WAIT: a process that hangs in a file system ends when that file system answers.
    """
    words = {os.fsencode(f"{MARKER}={mark}") for mark in marks}
    until = time.monotonic() + KILL_WAIT
    killed: set[int] = set()
    # Looked for until none is found, not waited for: one of them may fork between our look and its
    # end, and one that is our own child is for its parent's code to collect.
    while doomed := [pid for pid in _others() if _has_any(pid, words)]:
        killed.update(pid for pid in doomed if _kill(pid, words))
        if time.monotonic() >= until:
            break
        time.sleep(_LOOK_AGAIN)
    return len(killed)


def _others() -> Iterator[int]:
    """Return the processes of this host but this one."""
    me = str(os.getpid())
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and name != me)


def _has_any(pid: int, words: set[bytes]) -> bool:
    """Tell whether a process was started with any of these words in its environment; not so of one
    that is gone, or is another user's and so no child of a driver of ours."""
    # By hand: psutil takes longer to import than most queues to drain, and each driver that ran
    # programs looks once, when it leaves.
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return not words.isdisjoint(file.read().split(b"\0"))
    return False


def _kill(pid: int, words: set[bytes]) -> bool:
    """Kill a process that has any of these words in its environment, and no other that has its
    number by now; tell whether it was there."""
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _has_any(pid, words):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def statuses_of_group(group: int) -> Iterator[str]:
    """Return the state, in psutil's words, of each process of a process group."""
    import psutil

    for one in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getpgid(one.pid) == group:
                yield one.status()


def tree_memory() -> int:
    """Return how many bytes of memory this process, its children and theirs have in use."""
    import psutil

    me = psutil.Process()
    memory = 0
    for one in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            memory += one.memory_info().rss
    return memory


def resident_memory(process: int | str = "self") -> int:
    """Return how many bytes of memory a process of this host has in use."""
    with open(f"/proc/{process}/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE
