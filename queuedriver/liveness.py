"""Who drives a queue, and who of them is dead.

A registration is `.queuedriver/drivers/<id>.json`, written aside and renamed, so it is read
whole. On the same host a process is there or it is not: certain, at once. Of another host only its
beat is known: dead means that it has not changed for the lease, on the *observer's own* monotonic
clock. No two clocks are ever compared.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Literal

import msgspec

from queuedriver import names
from queuedriver.filesystem import Directory
from queuedriver.records import read_record

DRIVERS = "drivers"
# 60 s for the slowest attribute cache, and four beats missed.
LEASE = 180.0
# Salts of earlier lives that a registration remembers, for sweeping what they left.
PAST = 64
# A few kB, and every driver reads those of all others again and again; in bytes.
_MAX_REGISTRATION = 1 << 20
# The last word of a driver that ended by an error of its own: what it had is charged, or a document
# that brings it about would be given back for ever.
CRASHED = "crashed"
# More than any kernel counts to.
_NO_PID = 1 << 31
# Instead of ticks: the process is there, and that is all that may be known of it.
HIDDEN = -1

Verdict = Literal["alive", "left", "dead", "rebooted", "lost"]


class Identity(msgspec.Struct, frozen=True):
    """One process of one boot of one host. `ticks` tells it from a later one with its pid."""

    host: str
    machine: str
    boot: str
    namespace: int
    pid: int
    ticks: int


class Counters(msgspec.Struct, frozen=True):
    """What a driver spent its time on, in milliseconds, and what came of it."""

    work: int = 0
    wait: int = 0
    block: int = 0
    overhead: int = 0
    documents: int = 0
    failed: int = 0
    discarded: int = 0
    lost_races: int = 0


class Registration(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a driver says of itself."""

    id: str
    salt: str
    past: tuple[str, ...] = ()
    identity: Identity
    processor: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    # What it opened them as (`landmarks.identity`), and those of its earlier lives that were opened
    # as others, by salt.
    output_ids: tuple[str, ...] = ()
    past_output_ids: dict[str, tuple[str, ...]] = {}
    started_at: float
    beat: int = 0
    beat_at: float = 0.0
    lease: float = LEASE
    state: str = "starting"
    why: str = ""
    counters: Counters = Counters()
    # Documents per second over the last minute.
    rate: float = 0.0
    # The file of the runtime directory that faulthandler writes before it ends a hung driver.
    dump: str = ""
    # It deals documents to workers elsewhere: that it ends says nothing about any document.
    broker: bool = False
    last_word: str = ""
    last_why: str = ""

    def made_for(self, salt: str) -> tuple[str, ...]:
        """Return what the outputs were opened as by the life that has this salt."""
        return self.past_output_ids.get(salt, self.output_ids)


class Observer:
    """Judges registrations; remembers since when the beats of other hosts stand still."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, lease: float | None = None
    ) -> None:
        self.me = identify(os.getpid())
        # An operator's, who knows better than the drivers how long silence may be life.
        self.lease = lease
        self._monotonic = monotonic
        self._seen: dict[str, tuple[object, float]] = {}

    def judge(self, registration: Registration) -> Verdict:
        """Whether the driver that registered is there."""
        them = registration.identity
        ticks = process_ticks(them.pid) if self.is_here(registration) else None
        key = f"{registration.id}-{registration.salt}"
        unchanged = self.unchanged_for(key, registration.beat)
        if self.lease is not None:
            registration = msgspec.structs.replace(registration, lease=self.lease)
        return judge(registration, self.me, ticks, unchanged)

    def is_here(self, registration: Registration) -> bool:
        """Whether its process can be seen from here, so that nobody has to wait for its silence."""
        them = registration.identity
        return (them.boot, them.namespace) == (self.me.boot, self.me.namespace)

    def unchanged_for(self, key: str, value: object) -> float:
        """For how long this has been the same, as far as this observer knows."""
        now = self._monotonic()
        before = self._seen.get(key)
        if before is None or before[0] != value:
            self._seen[key] = (value, now)
            return 0.0
        return now - before[1]

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)


def judge(
    registration: Registration, me: Identity, ticks: int | None, unchanged_for: float
) -> Verdict:
    """What follows from the facts. `ticks` is the start of the process with that pid here."""
    them = registration.identity
    if registration.last_word:
        return "dead" if registration.last_word == CRASHED else "left"
    same = (them.boot, them.namespace) == (me.boot, me.namespace)
    if same and ticks != HIDDEN:
        return "alive" if ticks == them.ticks else "dead"
    if me.machine and (them.machine, them.host) == (me.machine, me.host) and them.boot != me.boot:
        return "rebooted"
    return "lost" if unchanged_for >= registration.lease else "alive"


def whose(
    token: names.Token, known: Mapping[str, tuple[Registration, Verdict]]
) -> tuple[Registration | None, Verdict | None]:
    """Who has a claim, and whether that driver is alive; None of one that never registered."""
    registration, verdict = known.get(token.driver, (None, None))
    if registration is not None and token.salt != registration.salt:
        # An earlier life, and two lives of one id are never at once.
        return (registration, "lost") if token.salt in registration.past else (None, None)
    return registration, verdict


@cache
def _host() -> tuple[str, str, str, int]:
    return (
        socket.gethostname(),
        _line("/etc/machine-id"),
        _line("/proc/sys/kernel/random/boot_id"),
        os.stat("/proc/self/ns/pid").st_ino,
    )


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except OSError:
        return ""


def identify(pid: int) -> Identity:
    """A process of this host."""
    return Identity(*_host(), pid, process_ticks(pid) or 0)


def process_ticks(pid: int) -> int | None:
    """When a process of this host started, in clock ticks since boot; None if gone or a zombie."""
    if not 0 < pid < _NO_PID:
        # Whoever wrote it down was no driver: as a path or a signal's target it means other things.
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return HIDDEN if _is_hidden(pid) else None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _is_hidden(pid: int) -> bool:
    """Whether it is there, and another user's that /proc does not show us (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        pass
    return False


def host_id(host: str | None = None) -> str:
    """The host's name in the alphabet of driver ids, with room for `-<slot>`."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", host or socket.gethostname()).strip("_")
    return plain[: names.MAX_DRIVER_ID - 8] or "host"


def draw_salt() -> str:
    """Four random digits that tell one life of a driver id from the next."""
    return os.urandom(2).hex()


def read_registration(drivers: Directory, driver: str) -> Registration | None:
    """What a driver says of itself; None when it never registered, or unreadably."""
    return read_record(drivers, f"{driver}.json", Registration, _MAX_REGISTRATION)


def read_registrations(drivers: Directory) -> list[Registration]:
    """All drivers that registered, by id."""
    ids = sorted(name[:-5] for name in drivers.names() if _is_registration(name))
    found = (read_registration(drivers, driver) for driver in ids)
    return [one for one, driver in zip(found, ids, strict=True) if one and one.id == driver]


def _is_registration(name: str) -> bool:
    return name.endswith(".json") and name[0] != "."
