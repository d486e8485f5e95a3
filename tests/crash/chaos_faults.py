"""Who is there to be killed, and who is killed next: from a seed, at random.

    kill    SIGKILL                       pause   SIGSTOP, and SIGCONT within a second
    term    SIGTERM                       sleep   SIGSTOP, and SIGCONT when it was taken for dead

A process is found by the environment that all of a run have, and signalled by a pidfd: its number
alone may be somebody else's by then.
"""

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from queuedriver.disk.processes import MARKER
from tests.crash.chaos_host import MODULE
from tests.crash.chaos_stages import HOST

Role = Literal["driver", "command", "server", "watchdog", "helper", "template", "warden",
               "operator", "host", "other"]  # fmt: skip
Kind = Literal["kill", "term", "pause", "sleep"]

# Drivers most of all: they have the documents. Watchdogs less: each takes its drivers along. Eyes
# rarely: while there are none nothing is started, and others come after 5 s at the soonest.
VICTIMS: dict[Role, int] = {
    "driver": 56,
    "command": 12,
    "server": 7,
    "watchdog": 4,
    "template": 9,
    "helper": 1,
    "warden": 2,
    "operator": 3,
}
KINDS: dict[Kind, int] = {"kill": 64, "term": 10, "pause": 20, "sleep": 6}
# Seconds that a process stands still.
_PAUSES: dict[Kind, tuple[float, float]] = {"pause": (0.02, 1.0), "sleep": (3.5, 7.0)}
# Seconds without anything done after which a strike comes all the same: there may be nothing to do.
_IDLE = 2.0
_SIGNALS: dict[Kind, signal.Signals] = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "pause": signal.SIGSTOP,
    "sleep": signal.SIGSTOP,
}


class Victim(NamedTuple):
    """A process of the run."""

    pid: int
    role: Role
    host: str
    # Its arguments, for people.
    words: str


class Faults:
    """Strikes when its time has come, and something was done since it last did: where everybody is
    killed as soon as they start, nothing is ever at stake. Instants are monotonic."""

    def __init__(
        self, mark: bytes, seed: int, every: float, done: Callable[[], int], now: float
    ) -> None:
        # How often which kind of fault befell which role.
        self.counts: Counter[tuple[Kind, Role]] = Counter()
        self._mark = mark
        self._dice = random.Random(f"{seed} faults")
        self._every = every
        # Grows with everything that is done.
        self._done = done
        self._done_before = 0
        self._next_at = now
        # Those that stand still, and until when.
        self._paused: list[tuple[float, int]] = []

    def turn(self, now: float) -> None:
        """Wake those who have slept long enough, and strike if it is time."""
        self._wake(now)
        if now < self._next_at:
            return
        done = self._done()
        if done == self._done_before and now < self._next_at + _IDLE:
            return
        self._done_before = done
        self._next_at = now + self._dice.expovariate(1 / self._every)
        (kind,) = self._dice.choices(list(KINDS), list(KINDS.values()))
        found = [one for one in victims(self._mark) if one.role in VICTIMS]
        there = [role for role in VICTIMS if any(one.role == role for one in found)]
        if there:
            (role,) = self._dice.choices(there, [VICTIMS[one] for one in there])
            self._strike(self._dice.choice([one for one in found if one.role == role]), kind, now)

    def calm(self) -> None:
        """No more faults: all go on."""
        self._wake(float("inf"))

    def freeze(self, host: str, now: float) -> None:
        """A whole host stands still until it was taken for dead, as when it is moved to another."""
        for one in victims(self._mark):
            if one.host == host and one.role not in ("host", "operator"):
                self._strike(one, "sleep", now)

    @property
    def kills(self) -> int:
        return sum(count for (kind, _), count in self.counts.items() if kind == "kill")

    def _strike(self, victim: Victim, kind: Kind, now: float) -> None:
        pidfd = send(victim.pid, self._mark, _SIGNALS[kind])
        if pidfd is None:
            return
        self.counts[kind, victim.role] += 1
        if kind in _PAUSES:
            self._paused.append((now + self._dice.uniform(*_PAUSES[kind]), pidfd))
        else:
            os.close(pidfd)

    def _wake(self, now: float) -> None:
        due = [one for one in self._paused if one[0] <= now]
        self._paused = [one for one in self._paused if one[0] > now]
        for _, pidfd in due:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            os.close(pidfd)


def send(pid: int, mark: bytes, number: signal.Signals) -> int | None:
    """Signal a process of the run; its pidfd. None: it is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        # Only now: before, its number might have become another's.
        if mark in _environ(pid):
            signal.pidfd_send_signal(pidfd, number)
            return pidfd
    except ProcessLookupError:
        pass
    os.close(pidfd)
    return None


def end(pid: int, mark: bytes) -> None:
    """Kill a process of the run."""
    pidfd = send(pid, mark, signal.SIGKILL)
    if pidfd is not None:
        os.close(pidfd)


def victims(mark: bytes) -> Iterator[Victim]:
    """All processes of the run, by the environment that they have in common."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        pid = int(name)
        environ = _environ(pid)
        if mark not in environ:
            continue
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            comm = Path(f"/proc/{pid}/comm").read_bytes().strip()
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if state in (b"Z", b"X"):
            continue
        begins = f"{HOST}=".encode()
        host = next((one[len(begins) :] for one in environ if one.startswith(begins)), b"")
        is_program = any(one.startswith(f"{MARKER}=".encode()) for one in environ)
        words = b" ".join(arguments).decode(errors="replace")
        yield Victim(pid, role_of(arguments, comm, is_program), host.decode(), words)


def role_of(arguments: list[bytes], comm: bytes, is_program: bool) -> Role:
    """What a process is to the run; `is_program`: a driver started it for its documents."""
    if is_program:
        return "server" if any(one.endswith(b"chaos_stages.py") for one in arguments) else "command"
    if b"watchdogd.programs.template" in arguments:
        # A fork of the template has its arguments, and a name of its own.
        return "driver" if b"-" in comm and b" " not in comm else "template"
    if any(one.endswith(b"/programs/warden.py") for one in arguments):
        return "warden"
    roles: dict[bytes, Role] = {
        b"watchdogd.programs.driver": "driver",
        b"watchdogd.programs.io_helper": "helper",
        b"watchdogd": "watchdog",
        b"queuedriver": "operator",
        MODULE.encode(): "host",
    }
    found = (roles[one] for one in arguments if one in roles)
    return next(found, "other")


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
