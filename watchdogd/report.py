"""What a watchdog says of itself, its stages and its drivers, for whoever looks, on any host. Pure.

`report.json` in the watchdog's local directory, which its helper copies to
`<root>/.watchdogd/hosts/<host>.json`: `status` reads those of all hosts. Instants are in seconds
since the epoch, as the host's own clock has them; durations in seconds, sizes in bytes.
"""

import json
import os
import re
from typing import Literal

import msgspec

from queuedriver.claims.liveness import HIDDEN
from queuedriver.format.records import Identity
from queuedriver.format.records import decode as decode_json

VERSION = 1
_FILE = "report.json"
HOSTS = os.path.join(".watchdogd", "hosts")
# After so long without a new document a watchdog of another host is called silent. Only `status`
# says so, and only by the clocks: nothing is decided by it.
SILENT_AFTER = 180.0

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

# running, draining, waiting-fs, stopping while it lives; stopped is the last word of one that left.
State = Literal["running", "draining", "waiting-fs", "stopping", "stopped"]
# stopped and gone: for certain; silent: of another host, by the clocks.
Standing = Literal["alive", "stopped", "gone", "silent"]


class DriverReport(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a stage, and the driver in it."""

    # For people: parse-2. The id is that of its registrations and claims.
    name: str
    id: str
    stage: str
    # starting ready busy draining stopped backoff crash-looped hung waiting-fs unkillable, blocked.
    state: str
    why: str = ""
    # 0 while no process is there.
    pid: int = 0
    # The document at hand, or its first of several.
    document: str = ""
    # Of the document at hand; else of the state.
    since: float = 0.0
    # When it will be tried again; 0 when that is not a matter of time.
    until: float = 0.0
    started_at: float = 0.0
    # How often it was started after the first time.
    restarts: int = 0
    # Of all its lives since the watchdog runs.
    documents: int = 0
    failed: int = 0
    discarded: int = 0
    memory: int = 0
    # Milliseconds.
    work: int = 0
    wait: int = 0
    block: int = 0
    overhead: int = 0


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stage on one host."""

    name: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    # How many drivers it is to have here now, and between what the watchdog may choose.
    wanted: int = 0
    min: int = 0
    max: int = 0
    # "" while all is well; else degraded, paused, done.
    state: str = ""
    why: str = ""
    # Documents per second over the last minute.
    rate: float = 0.0
    # Per document, and until a driver is ready; None while it is not known.
    service: float | None = None
    startup: float | None = None
    # All its drivers together, and the parent they are forked from.
    memory: int = 0


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """One watchdog at one moment."""

    version: int = VERSION
    host: str
    pid: int
    identity: Identity
    started_at: float
    at: float
    # Counts the documents published: a watchdog of another host lives while this changes.
    beat: int = 0
    # The file, the pipeline's name in it, and where its queues are.
    pipeline: str = ""
    name: str = ""
    root: str = ""
    # Its local directory on its host: logs, events, boards.
    local: str = ""
    adopt: bool = False
    state: State = "running"
    # What the file system of the root says that is not well.
    trouble: str = ""
    # Why the file was not taken when it was last re-read; "" when it was.
    reload_error: str = ""
    # Serials of the requests in `.watchdogd/` that were dealt with: whoever made one can wait.
    served: tuple[str, ...] = ()
    # What ended the watchdog itself, and where its report is; "" when it left as it was asked.
    crash: str = ""
    # What people should know and do, a sentence each.
    notes: tuple[str, ...] = ()
    # What this host gives the pipeline; None when there is no bound.
    memory: int | None = None
    cpus: float | None = None
    stages: tuple[StageReport, ...] = ()
    drivers: tuple[DriverReport, ...] = ()


def path(local: str) -> str:
    """Return where the watchdog of a local directory keeps its report."""
    return os.path.join(local, _FILE)


def save(report: HostReport) -> None:
    """Write a report to the local directory, whole or not at all."""
    aside = os.path.join(report.local, f".{_FILE}")
    with open(aside, "wb") as file:
        file.write(encode(report))
    os.replace(aside, path(report.local))


class Alien(Exception):
    """A document that is not one of ours, or of a later version."""


def encode(report: HostReport) -> bytes:
    """The document; what no JSON can hold, bytes of a name that are no text, is made visible."""
    try:
        return msgspec.json.encode(report)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(report), ensure_ascii=False)
        return _LONE_SURROGATE.sub(lambda one: rf"\\u{ord(one[0]):04x}", text).encode()


def decode(data: bytes) -> HostReport:
    """What a watchdog said, or Alien."""
    try:
        found = decode_json(data, HostReport)
    except msgspec.DecodeError as error:
        raise Alien(str(error)) from None
    if "\0" in found.local + found.root + found.pipeline:
        raise Alien("a path in it has a NUL")
    if found.version != VERSION:
        raise Alien(f"it is of version {found.version}, and this is for version {VERSION}")
    return found


def standing(report: HostReport, me: Identity, ticks: int | None, now: float) -> Standing:
    """Whether the watchdog is there, as far as one can know who looks once. `ticks` is when the
    process that has its pid here started; None when there is none."""
    if report.state == "stopped":
        return "stopped"
    them = report.identity
    if (them.boot, them.namespace) == (me.boot, me.namespace) and ticks != HIDDEN:
        return "alive" if ticks == them.ticks else "gone"
    if me.machine and (them.machine, them.host) == (me.machine, me.host) and them.boot != me.boot:
        return "gone"
    return "silent" if now - report.at > SILENT_AFTER else "alive"
