"""A program that runs beside a driver, in a process group of its own, and how it ends.

    turn       one poll(2) over the child, its stderr and whatever the caller adds to `poll`
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
import time
from typing import NamedTuple, Self

from queuedriver.disk.processes import KILL_WAIT, ZOMBIE, statuses_of_group

# How much of the end of stderr goes into a report, in bytes: more than a person reads, and no more
# than memory and disk give away without noticing. It is also what a pipe holds.
TAIL = 64 * 1024
# Between TERM and KILL, in seconds: what supervisors of long standing give.
GRACE = 5.0
# One poll at most, in seconds: the system call takes milliseconds in an int.
_LONGEST_POLL = 3600.0


class Tail:
    """The last of what was written, however much that was."""

    __slots__ = ("_data", "_dropped")

    def __init__(self) -> None:
        self._data = bytearray()
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > 2 * TAIL:
            self._cut()

    def clear(self) -> None:
        self._data.clear()
        self._dropped = 0

    def text(self) -> str | None:
        self._cut()
        if not self._data:
            return None
        text = self._data.decode("utf-8", "backslashreplace")
        return f"… {self._dropped} bytes left out …\n{text}" if self._dropped else text

    def last_line(self) -> str:
        """The last line with anything on it, or its beginning."""
        lines = self._data[-2000:].decode("utf-8", "backslashreplace").split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

    def _cut(self) -> None:
        surplus = max(len(self._data) - TAIL, 0)
        del self._data[:surplus]
        self._dropped += surplus


class Ended(NamedTuple):
    """How a child ended."""

    # As subprocess has it: below zero, the signal that ended it. None: somebody else collected it.
    code: int | None
    max_rss: int
    # Whether nothing of its process group is left alive.
    alone: bool

    @property
    def signal(self) -> str | None:
        if self.code is None or self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"

    @property
    def exit_code(self) -> int | None:
        return self.code if self.code is None or self.code >= 0 else None

    @property
    def words(self) -> str:
        if self.code is None:
            return "ended, and its exit status is lost"
        return f"was ended by {self.signal}" if self.signal else f"ended with exit code {self.code}"

    @property
    def peak_memory(self) -> int | None:
        """In bytes; None when it is not known.

        Until a spawned child execs it runs in our memory, and the kernel counts that as its own.
        """
        ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return self.max_rss * 1024 if self.max_rss > ours else None


class Child:
    """One running program, the leader of its own process group."""

    __slots__ = ("_pidfd", "_reaped", "_spoke", "_stderr", "_tail", "pid", "poll")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._reaped = False
        self._stderr = -1
        # Whether the last turn found something on stderr; then there may be more.
        self._spoke = False
        self._tail = Tail()
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:
            self.signal(signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        # First the child and then its stderr: one poll that says it ended, and says nothing of
        # stderr, has looked at stderr after the end.
        self.poll = select.poll()
        self.poll.register(self._pidfd, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._reaped:
            self.signal(signal.SIGKILL)
            if self.ends_within(KILL_WAIT):
                self.reap()
            else:
                self._abandon()

    def keep(self, stderr: int, tail: Tail) -> None:
        """From now on every wait also reads this pipe, so that the child never blocks on it.

        The caller holds the pipe's other end open as long: a pipe at its end would wake each poll.
        """
        self._stderr = stderr
        self._tail = tail
        self.poll.register(stderr, select.POLLIN)

    def turn(self, until: float | None) -> dict[int, int]:
        """Wait for something to happen, at most until then; what was ready, as poll(2) says it."""
        wait = None
        if until is not None:
            left = min(max(until - time.monotonic(), 0.0), _LONGEST_POLL)
            wait = math.ceil(left * 1000)
        ready = dict(self.poll.poll(wait))
        self._spoke = self._stderr in ready
        if self._spoke:
            self._tail.add(os.read(self._stderr, TAIL))
        return ready

    def ended(self, ready: dict[int, int]) -> bool:
        """Whether this turn saw the end of the child."""
        return self._pidfd in ready

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end. The caller has taken everything of its own out of `poll`."""
        until = time.monotonic() + seconds
        while not self.ended(self.turn(until)):
            if time.monotonic() >= until:
                return False
        return True

    def signal(self, number: int) -> None:
        """Signal the whole process group. Only before `reap`."""
        # Denied is everything that runs as somebody else (sudo): it ends by itself or not at all.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self, grace: float) -> Ended | None:
        """Ask it to end, and then see to it. None when not even SIGKILL ends it."""
        self.signal(signal.SIGTERM)
        # One that is stopped gets its TERM only now.
        self.signal(signal.SIGCONT)
        if not self.ends_within(grace):
            self.signal(signal.SIGKILL)
            if not self.ends_within(KILL_WAIT):
                self._abandon()
                return None
        return self.reap()

    def reap(self) -> Ended:
        """Collect a child that has ended, and kill what is left of its group."""
        self._reaped = True
        self.signal(signal.SIGKILL)
        try:
            _, status, usage = os.wait4(self.pid, 0)
        except ChildProcessError:
            code, max_rss = None, 0
        else:
            code, max_rss = os.waitstatus_to_exitcode(status), usage.ru_maxrss
        os.close(self._pidfd)
        alone = _group_ends(self.pid)
        if self._spoke:
            self._read_what_is_left()
        return Ended(code, max_rss, alone)

    def _abandon(self) -> None:
        # It hangs in a file system. What it writes there is under a name that nobody publishes.
        self._reaped = True
        os.close(self._pidfd)

    def _read_what_is_left(self) -> None:
        # Not to its end: a process that left the group may hold stderr open for ever.
        poll = select.poll()
        poll.register(self._stderr, select.POLLIN)
        for _ in range(4):
            if not poll.poll(0):
                return
            self._tail.add(os.read(self._stderr, TAIL))


def _group_ends(group: int) -> bool:
    """Wait for the rest of a killed process group; return False when something of it stays alive.

    It takes a moment after the signal, as a rule.
    """
    until = time.monotonic() + KILL_WAIT
    while _group_lives(group):
        if time.monotonic() >= until:
            return False
        time.sleep(0.002)
    return True


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Somebody else's are members, too: alive, or zombies.
        pass
    # Zombies whose new parent does not collect them still count as members of the group.
    return any(status != ZOMBIE for status in statuses_of_group(group))
