"""A program that runs beside a driver, in a process group of its own, and how it ends.

    turn       one poll(2) over the child, its stderr, and what else is listened to
    obeys      turns until the end, or until the document's time-out or the driver's leaving
    end        TERM to the group, a grace, KILL to the group; then reap
    reap       KILL to the group, and only then collect the leader: until it is collected, the
               number of the group cannot be given to strangers

What leaves its process group (setsid) outlives `reap`. `disk.processes.kill_marked` finds it by its
environment when its driver has died.
"""

import contextlib
import math
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

from queuedriver.disk.processes import KILL_WAIT, ZOMBIE, signal_name, statuses_of_group
from queuedriver.driving.limits import Limits

# How much of the end of stderr goes into a report, in bytes: more than a person reads, and no more
# than memory and disk give away without noticing. It is also what a pipe holds.
TAIL = 64 * 1024
# One poll at most, in seconds: the system call takes milliseconds in an int.
_LONGEST_POLL = 3600.0


class Tail:
    """The last of what was written, however much that was."""

    def __init__(self) -> None:
        # A thread may read while another tells what was read.
        self._lock = threading.RLock()
        self._data = bytearray()
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        surplus = max(len(self._data) - TAIL, 0)
        # Moves nothing: a bytearray begins further on.
        del self._data[:surplus]
        self._dropped += surplus

    def clear(self) -> None:
        with self._lock:
            self._data.clear()
            self._dropped = 0

    def text(self) -> str | None:
        with self._lock:
            text = self._data.decode("utf-8", "backslashreplace") or None
        return f"… {self._dropped} bytes left out …\n{text}" if self._dropped else text

    def after(self, words: str) -> str:
        """Return words, and the last line with anything on it, or its beginning: that is usually
        why a program gave up."""
        lines = self._data[-2000:].decode("utf-8", "backslashreplace").split("\n")
        last = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        return f"{words}: {last}" if last else words


class Stderr(Tail):
    """A pipe for what a program writes on stderr, and the last that came through it.

    Both of its ends stay open here: a pipe at its end would wake each poll.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def read(self) -> None:
        """Read what is there by now."""
        with self._lock, contextlib.suppress(BlockingIOError):
            # Not for ever, where somebody writes faster than we read.
            for _ in range(16):
                self.add(os.read(self.reader, TAIL))

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


class Ended(NamedTuple):
    """The end of a child."""

    # As subprocess has it: below zero, the signal that ended it. None: it is not known.
    code: int | None = None
    # In bytes; None when it is not known.
    peak_memory: int | None = None
    # Whether nothing of its process group is left alive.
    alone: bool = True
    # Whether it did not end, not even by SIGKILL.
    hung: bool = False

    @property
    def signal(self) -> str | None:
        return None if self.code is None or self.code >= 0 else signal_name(-self.code)

    @property
    def exit_code(self) -> int | None:
        return None if self.signal else self.code

    @property
    def words(self) -> str:
        if self.code is None:
            return "ended, and its exit status is lost"
        return f"was ended by {self.signal}" if self.signal else f"ended with exit code {self.code}"


class Child:
    """One running program, the leader of its own process group."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._reaped = False
        self._stderr: Stderr | None = None
        try:
            # Readable once it has ended.
            self.pidfd = os.pidfd_open(pid)
        except OSError:
            _signal(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._poll = select.poll()
        self._poll.register(self.pidfd, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._reaped:
            self.end_at_once()

    def keep(self, stderr: Stderr) -> None:
        """Read this pipe in every wait from now on, so that the child never blocks on it."""
        self._stderr = stderr
        self._poll.register(stderr.reader, select.POLLIN)

    @contextlib.contextmanager
    def listening(self, limits: Limits, events: Mapping[int, int]) -> Iterator[None]:
        """Let each turn also see these descriptors, and what wakes the driver."""
        events = {limits.wake_fd: select.POLLIN, **events}
        for fd, event in events.items():
            self._poll.register(fd, event)
        try:
            yield
        finally:
            for fd in events:
                self.ignore(fd)

    def ignore(self, fd: int) -> None:
        """Let no further turn see a descriptor."""
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)

    def turn(self, until: float | None, limits: Limits | None = None) -> dict[int, int]:
        """Wait for something to happen, at most until then; return what was ready, as poll(2) says
        it. What woke the driver is cleared: whoever waits asks its limits then."""
        left = _LONGEST_POLL if until is None else max(until - time.monotonic(), 0.0)
        ready = dict(self._poll.poll(math.ceil(min(left, _LONGEST_POLL) * 1000)))
        if self._stderr is not None and self._stderr.reader in ready:
            self._stderr.read()
        if limits is not None and limits.wake_fd in ready:
            limits.clear()
        return ready

    def ended(self, ready: dict[int, int]) -> bool:
        """Return whether this turn saw the end of the child."""
        return self.pidfd in ready

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end; return whether it came. Nothing else may be listened to meanwhile."""
        until = time.monotonic() + seconds
        while not self.ended(self.turn(until)):
            if time.monotonic() >= until:
                return False
        return True

    def obeys(self, limits: Limits) -> str | None:
        """Wait for the end; return None when it came, or why it must come."""
        self._poll.register(limits.wake_fd, select.POLLIN)
        while not self.ended(self.turn(limits.deadline(), limits)):
            if (reason := limits.reason()) is not None:
                self.ignore(limits.wake_fd)
                return reason
        return None

    def end(self, grace: float) -> Ended:
        """Ask it to end, and then see to it."""
        peak_memory = self.peak_memory()
        _signal(self.pid, signal.SIGTERM)
        # One that is stopped gets its TERM only now.
        _signal(self.pid, signal.SIGCONT)
        return self.reap(peak_memory) if self.ends_within(grace) else self.end_at_once(peak_memory)

    def kill(self) -> None:
        """Kill it with its group, and do not wait for the end."""
        _signal(self.pid, signal.SIGKILL)

    def end_at_once(self, peak_memory: int | None = None, *, wait: bool = True) -> Ended:
        """Kill it with its group; then reap."""
        self.kill()
        if self.ends_within(KILL_WAIT):
            return self.reap(peak_memory, wait=wait)
        # It hangs in a file system. What it writes there is under a name that nobody publishes.
        self._reaped = True
        os.close(self.pidfd)
        return Ended(peak_memory=peak_memory, hung=True)

    def reap(self, peak_memory: int | None = None, *, wait: bool = True) -> Ended:
        """Collect a child that has ended, kill what is left of its group, and wait for the end of
        that. What was seen of its memory before goes into its end."""
        self._reaped = True
        _signal(self.pid, signal.SIGKILL)
        code = None
        with contextlib.suppress(ChildProcessError):
            _, status, usage = os.wait4(self.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            # Until a spawned child execs it runs in our memory, and the kernel counts that as its
            # own.
            if usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
                peak_memory = peak_memory or usage.ru_maxrss * 1024
        os.close(self.pidfd)
        alone = not wait or _group_ends(self.pid)
        if self._stderr is not None:
            # Not to its end: a process that left the group may hold it open for ever.
            self._stderr.read()
        return Ended(code, peak_memory, alone)

    def peak_memory(self) -> int | None:
        """Return the most memory it had in use so far, in bytes; None for one that has ended."""
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None


def _group_ends(group: int) -> bool:
    """Wait for the rest of a killed process group; return False when something of it stays alive.

    It takes a moment after the signal, as a rule.
    """
    until = time.monotonic() + KILL_WAIT
    # Zombies whose new parent does not collect them still count as members of the group.
    while _signal(group, 0) and any(one != ZOMBIE for one in statuses_of_group(group)):
        if time.monotonic() >= until:
            return False
        time.sleep(0.002)
    return True


def _signal(group: int, number: int) -> bool:
    """Signal a process group whose leader was not collected; return whether there is anything of
    it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError) as error:
        # Denied is everything that runs as somebody else (sudo): it ends by itself or not at all.
        return isinstance(error, PermissionError)
    return True
