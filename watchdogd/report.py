"""What a watchdog says of itself, its stages and its drivers, for whoever looks, on any host.

It is saved on a local disk, and copied by the helper to where all hosts see it; `status` reads
those of all hosts. It is found by whoever looks while neither the root nor the pipeline's file
answers:

    <local>/report.json                   the report
    <local>/.report.json                  the one before: the next is written over it
    <root>/.watchdogd/hosts/<host>.json   the copy
    <state>/files/<key>-<host>            a link to the local directory; the key tells a file's path

The path of the pipeline's file is only text here: to resolve a link in it could hang for ever.
Instants are in seconds since the epoch, as the host's own clock has them; durations in seconds,
sizes in bytes.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from queuedriver.disk.filesystem import c_name, libc, open_fd, write_all
from queuedriver.disk.processes import HIDDEN, process_ticks
from queuedriver.driving.measurements import FILES, Counted
from queuedriver.format.records import Identity, encode
from queuedriver.format.records import decode as decode_json
from queuedriver.format.units import format_count
from watchdogd import control
from watchdogd.driver_ids import digits_of, state_directory

if TYPE_CHECKING:
    from watchdogd.slot import Slot
    from watchdogd.stage_drivers import StageDrivers
    from watchdogd.supervisor import Supervisor

VERSION = 1
HOSTS = os.path.join(control.CONTROL, control.HOSTS)
# After so long without a new document a watchdog of another host is called silent, and one whose
# process is here hung. It says something every four or five seconds on its own disk, from where it
# is copied with the next look at all queues, which may take many.
SILENT_AFTER = 180.0
HUNG_AFTER = 60.0

_FILE = "report.json"
_FILES = "files"
_DIGITS = 16
# A report is padded to a multiple of so many bytes: the next one fits where it was.
_ROOM = 16 << 10
_HERE = -100
_EXCHANGE = 2

# How a driver spent its time: fields of what it says, and of its report in milliseconds.
SHARES = ("work", "wait", "block", "overhead")
_NANOSECONDS = 1_000_000

# running, draining, waiting-fs, stopping while it lives; stopped is the last word of one that left.
State = Literal["running", "draining", "waiting-fs", "stopping", "stopped"]
# stopped and gone: for certain; hung: there, and says nothing; silent: of another host.
Standing = Literal["alive", "hung", "stopped", "gone", "silent"]


class DriverReport(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a stage, and the driver in it."""

    # For people: parse-2. The id is that of its registrations and claims.
    name: str
    id: str
    stage: str
    # starting ready busy draining stopped backoff crash-looped hung waiting-fs tripped unkillable.
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
    # With all that it has started: bytes, and seconds of processor time.
    memory: int = 0
    cpu: float = 0.0
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
    # Its word (stage_words.py), and why.
    state: str = ""
    why: str = ""
    # Documents per second over the last minute.
    rate: float = 0.0
    # Per document, and until a driver is ready; None while it is not known.
    service: float | None = None
    startup: float | None = None
    # After how long a document counts as hung, as far as that is learned; and what is done to
    # documents, in digits: of anything else that says nothing.
    hard_limit: float | None = None
    processing: str = ""
    # All its drivers together, and the parent they are forked from.
    memory: int = 0
    # What all its drivers have counted since the watchdog runs, those that are gone included; and
    # how often one was started, by how the one before had ended.
    counted: Counted = Counted()
    starts: dict[str, int] = {}
    # The files in the folder of an intake that it has not taken, by FILES of the measurements. None
    # of what is no intake.
    files: dict[str, int] | None = None


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """One watchdog at one moment."""

    version: int = VERSION
    host: str
    pid: int
    identity: Identity
    started_at: float
    at: float
    # The same on the monotonic clock of its host; 0 when it was not said.
    turned_at: float = 0.0
    # The file, the pipeline's name in it, and where its queues are.
    pipeline: str = ""
    name: str = ""
    root: str = ""
    # Its local directory on its host: logs, events, boards.
    local: str = ""
    state: State = "running"
    # What the file system of the root says that is not well.
    trouble: str = ""
    # Why the file was not taken when it was last re-read; "" when it was.
    reload_error: str = ""
    # Serials of the requests in `.watchdogd/` that were dealt with: whoever made one can wait.
    served: tuple[str, ...] = ()
    # What ended the watchdog itself, and where its report is; "" when it left as it was asked.
    crash: str = ""
    # Why it left, of itself, before all was through (drain); "" when it did not.
    hopeless: str = ""
    # What people should know and do, a sentence each.
    notes: tuple[str, ...] = ()
    # What this host has.
    processors: int = 0
    stages: tuple[StageReport, ...] = ()
    drivers: tuple[DriverReport, ...] = ()


class Alien(Exception):
    """A document that is not one of ours, or of a later version."""


def decode(data: bytes) -> HostReport:
    """Return what a watchdog said; Alien for anything else."""
    try:
        found = decode_json(data, HostReport)
    except msgspec.DecodeError as error:
        raise Alien(str(error)) from None
    if "\0" in found.local + found.root + found.pipeline:
        raise Alien("a path in it has a NUL")
    if found.version != VERSION:
        raise Alien(f"it is of version {found.version}, and this is for version {VERSION}")
    if any(one.counted.shape != Counted().shape for one in found.stages):
        raise Alien("it counts by other causes or durations than this version")
    return found


def ticks_of(report: HostReport, me: Identity) -> int | None:
    """Return when the process that has a watchdog's pid here started; None when there is none, and
    HIDDEN when its process would not be seen from here."""
    them = report.identity
    return process_ticks(them.pid) if is_seen(them, me) else HIDDEN


def is_seen(them: Identity, me: Identity) -> bool:
    """Return whether a process would be seen from here, if it is there."""
    return (them.boot, them.namespace) == (me.boot, me.namespace)


def is_of_host(them: Identity, me: Identity) -> bool:
    """Return whether a process is, or was, on this very host, perhaps before it was booted."""
    return bool(me.machine) and (them.machine, them.host) == (me.machine, me.host)


def standing(
    report: HostReport,
    me: Identity,
    ticks: int | None,
    now: float,
    monotonic: float,
    *,
    copied: bool = True,
) -> Standing:
    """Return whether the watchdog is there, as far as one can know who looks once. `ticks` is what
    `ticks_of` says of its process. `monotonic` is now on the clock of this host that nobody steps.
    `copied`: this is not the report on its own disk."""
    if report.state == "stopped":
        return "stopped"
    them, age = report.identity, now - report.at
    if ticks != HIDDEN:
        if ticks != them.ticks:
            return "gone"
        age = monotonic - report.turned_at if report.turned_at else age
        return "hung" if age > (SILENT_AFTER if copied else HUNG_AFTER) else "alive"
    if is_of_host(them, me) and them.boot != me.boot:
        return "gone"
    return "silent" if age > SILENT_AFTER else "alive"


# What a watchdog says


def _driver(slot: "Slot", now: float) -> DriverReport:
    """Return one slot. `now` is monotonic; readers of other hosts get instants since the epoch."""
    epoch = time.time() - now
    glimpse, totals, rest, run = slot.glimpse, slot.totals, slot.rest, slot.run
    return DriverReport(
        name=slot.name,
        id=slot.next_order.id,
        stage=slot.stage,
        state=rest.state,
        # What it waited for before it had a document does not matter any more.
        why=rest.why or ("" if glimpse.docid else glimpse.why),
        pid=run.child.pid if run else 0,
        document=glimpse.docid,
        since=epoch + (min(glimpse.began_at, now) if glimpse.began_at else slot.since),
        until=0.0 if run or math.isinf(rest.until) else epoch + rest.until,
        started_at=epoch + run.started_at if run else 0.0,
        restarts=max(0, slot.starts - 1),
        documents=totals.documents,
        failed=totals.failed,
        discarded=totals.discarded,
        memory=slot.memory,
        cpu=run.usage.cpu if run else 0.0,
        **{share: getattr(totals, share) // _NANOSECONDS for share in SHARES},
    )


def _stage(drivers: "StageDrivers") -> StageReport:
    """Return one stage on this host."""
    pace = drivers.pace
    state, why = drivers.facts.word
    return StageReport(
        name=drivers.stage.name,
        inputs=drivers.stage.inputs,
        outputs=drivers.stage.outputs,
        wanted=drivers.size.drivers,
        min=min(drivers.stage.drivers.min, drivers.size.drivers),
        max=max(drivers.stage.drivers.max, drivers.size.drivers),
        state=state,
        why=why,
        rate=pace.rate,
        service=pace.service,
        startup=pace.startup,
        hard_limit=pace.hard_limit,
        processing=pace.processing,
        memory=sum(slot.memory for slot in drivers.living) + drivers.templates.shared,
        counted=drivers.counted,
        starts=drivers.starts,
        files=_files(drivers) if drivers.stage.intake is not None else None,
    )


def _files(drivers: "StageDrivers") -> dict[str, int]:
    return most(dict(zip(FILES, slot.glimpse.files, strict=True)) for slot in drivers.slots)


def most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the largest count of each word: who looks into one folder sees the same files."""
    found = Counter[str]()
    for one in counts:
        found |= Counter(one)
    return dict(found)


def last_word(watchdog: "Supervisor", crash: str = "") -> HostReport:
    """Return what a watchdog knew when it began: after an error the rest may be what is wrong."""
    pipeline = watchdog.pipeline
    return HostReport(
        host=watchdog.context.host,
        pid=os.getpid(),
        identity=watchdog.identity,
        started_at=watchdog.started_at,
        at=time.time(),
        turned_at=time.monotonic(),
        pipeline=pipeline.file,
        name=pipeline.name,
        root=pipeline.root,
        local=watchdog.context.local,
        state="stopped",
        crash=crash,
    )


def host_report(watchdog: "Supervisor", now: float) -> HostReport:
    """Return all there is to say of a watchdog at this moment."""
    # Late: whoever only reads reports needs none of it.
    from watchdogd.host import processors

    helper = watchdog.helper
    return replace(
        last_word(watchdog),
        state=watchdog.state,
        trouble=helper.trouble(now),
        reload_error=watchdog.reload.error,
        served=watchdog.reload.served,
        notes=(
            *helper.notes,
            *watchdog.reload.notes,
            *watchdog.stages.notes,
            *helper.view.controls.notes,
        ),
        processors=processors(),
        stages=tuple(_stage(drivers) for drivers in watchdog.stages.managed.values()),
        drivers=tuple(_driver(slot, now) for slot in watchdog.stages.slots),
    )


def in_a_line(watchdog: "Supervisor") -> str:
    """Return the state of a watchdog for a service manager."""
    living = sum(slot.run is not None for slot in watchdog.stages.slots)
    waiting = sum(one.waiting for one in watchdog.helper.view.queues.values())
    return f"{watchdog.state}: {format_count(living, 'driver')}, {waiting:,} waiting"


# The report as a file


def save(report: HostReport) -> None:
    """Save a report, whole or not at all. It is written where the one before the last was, so that
    a full disk has room for it, and takes the place of the last in one moment."""
    path, aside = (os.path.join(report.local, name) for name in (_FILE, f".{_FILE}"))
    data = encode(report)
    # On a full disk, or one that fails, people know less; the drivers do not mind.
    with suppress(OSError):
        # Somebody may have removed it.
        os.makedirs(report.local, mode=0o700, exist_ok=True)
        with open_fd(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)) as fd:
            write_all(fd, data.ljust(-(-len(data) // _ROOM) * _ROOM))
            os.ftruncate(fd, os.lseek(fd, 0, os.SEEK_CUR))
        exchange = getattr(libc(), "renameat2", None)
        # The first one has nothing to change places with; and some systems cannot do it.
        if exchange is None or exchange(_HERE, c_name(aside), _HERE, c_name(path), _EXCHANGE):
            os.replace(aside, path)


def read_saved(local: str) -> bytes:
    """Read the report of a local directory, without its padding."""
    path = os.path.join(local, _FILE)
    while True:
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            data = file.read()
            after = os.fstat(file.fileno())
        # It may have been the spare one meanwhile.
        if os.stat(path).st_ino == after.st_ino and before.st_mtime_ns == after.st_mtime_ns:
            return data.rstrip()


def last_report(local: str) -> HostReport | None:
    """Return the latest report of a local directory; None where none is understood."""
    with suppress(OSError, Alien):
        return decode(read_saved(local))
    return None


def note_file(file: str, host: str, local: str) -> None:
    """Note which local directory the watchdog of a pipeline's file has on this host, unless that is
    noted."""
    # Beside it. To ask which file system the state is on may take as long as that hangs.
    directory = os.path.join(os.path.dirname(local), _FILES)
    link = os.path.join(directory, f"{digits_of(file, _DIGITS)}-{control.host_file(host)}")
    with suppress(OSError):
        if os.readlink(link) == local:
            return
    os.makedirs(directory, mode=0o700, exist_ok=True)
    aside = f"{link}.{os.getpid()}"
    os.symlink(local, aside)
    os.replace(aside, link)


def local_reports(file: str) -> list[HostReport]:
    """Return what the watchdogs of a pipeline's file on this host say of themselves, whatever has
    become of their root. `file` is the absolute path by which they were given it."""
    return [one for one in _reports(f"{digits_of(file, _DIGITS)}-") if one.pipeline == file]


def known_files(directory: str) -> list[str]:
    """Return the pipelines' files in a directory that watchdogs of this host were given."""
    files = {one.pipeline for one in _reports()}
    return sorted(file for file in files if os.path.dirname(file) == directory)


def _reports(begins: str = "") -> list[HostReport]:
    """Return what watchdogs of this host say, of the files whose links begin like this."""
    directory = os.path.join(state_directory(), _FILES)
    with suppress(FileNotFoundError):
        links = [name for name in sorted(os.listdir(directory)) if name.startswith(begins)]
        reports = [last_report(os.path.join(directory, link)) for link in links]
        return [one for one in reports if one is not None]
    return []
