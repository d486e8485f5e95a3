"""Reads which watchdogs there are, by what each said last, and what all are asked."""

import os
import pwd
import shlex
import time
from collections.abc import Collection
from contextlib import closing
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from queuedriver.claims.liveness import identify
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import FileSystemTrouble, is_trouble
from queuedriver.format.records import Identity
from queuedriver.format.units import format_instant
from watchdogd import control
from watchdogd import report as reports
from watchdogd.helper_messages import Controls
from watchdogd.pipeline.model import Pipeline
from watchdogd.report import Alien, HostReport, Standing, last_report, local_reports

# A host's document may be long; longer is somebody else's file.
_MAX_DOCUMENT = 16 << 20
# Of a thousand nodes whose elements last minutes there are those of an hour.
_MOST_DOCUMENTS = 10_000


class SeenHost(NamedTuple):
    """A watchdog, and what can be known of it from here."""

    report: HostReport
    standing: Standing
    # Whether it runs, or ran, on this very host: its local directory is here.
    here: bool

    @property
    def alive(self) -> bool:
        return self.standing == "alive"


class Hosts(NamedTuple):
    """Watchdogs of one root, and the documents that could not be read, with the reasons."""

    seen: tuple[SeenHost, ...] = ()
    unreadable: tuple[str, ...] = ()
    # Those of Slurm's that have ended are not missed; what they did stands in the history.
    ended: tuple[SeenHost, ...] = ()

    @property
    def writers(self) -> list[str]:
        """Return the hosts that may have written a history lately."""
        return [one.report.host for one in (*self.seen, *self.ended)]

    @property
    def alive(self) -> tuple[SeenHost, ...]:
        return tuple(one for one in self.seen if one.alive)

    @property
    def state(self) -> Literal["running", "not running", "unknown"]:
        """Return whether the pipeline is looked after, as far as can be known from here."""
        if self.alive:
            return "running"
        unsure = any(one.standing in ("silent", "hung") for one in self.seen)
        return "unknown" if unsure or self.unreadable else "not running"

    @property
    def own_name(self) -> str:
        """Return what this host is called by its own watchdog, or else by the system."""
        return next((one.report.host for one in self.seen if one.here), os.uname().nodename)

    def meant(self, host: str | None) -> "Hosts":
        """Return those of one host; all when none was named."""
        if host is None:
            return self
        return self._replace(seen=tuple(one for one in self.seen if one.report.host == host))


class Chosen(NamedTuple):
    """A pipeline that commands are about, and its watchdogs."""

    pipeline: Pipeline
    hosts: Hosts
    # The file as it is best typed again, and the option that does; empty when it is found anyway.
    given: str
    option: str
    # What is wrong with the file, when the watchdogs' older understanding of it is all there is.
    error: str = ""
    # Neither it nor what is below its root may be looked at: that does not answer.
    hung: bool = False

    @property
    def start(self) -> str:
        """Return what to type to start it."""
        return f"watchdogd run {shlex.quote(self.given)}"

    def command(self, words: str) -> str:
        """Return what to type for this pipeline."""
        return f"watchdogd {words}{self.option}"


def no_answer(file: str) -> FileSystemTrouble:
    """Return the error of whatever needs what does not answer."""
    return FileSystemTrouble(f"{file}, or what is below its root, does not answer")


def hosts_here(file: str) -> Hosts:
    """Read what the watchdogs of a file on this host say of themselves, whatever has become of
    their root. `file` is the absolute path of the pipeline's file, as text."""
    me, now = identify(os.getpid()), time.time()
    return Hosts(tuple(_seen(one, me, now, copied=False) for one in local_reports(file)))


def read_hosts(root: str, here: Hosts = Hosts()) -> Hosts:  # noqa: B008 - it cannot be changed
    """Read what the watchdogs of all hosts said; those of this host say it here before it is copied
    to where all hosts see it. Where nothing ever ran there are none."""
    newer = {one.report.host: one for one in here.seen if one.report.root == root}
    try:
        directory = Directory.open(os.path.join(root, reports.HOSTS), inside=2)
    except (FileNotFoundError, NotADirectoryError):
        return Hosts(tuple(newer.values()))
    seen = {}
    unreadable = []
    me, now = identify(os.getpid()), time.time()
    with closing(directory):
        trusted = {0, os.geteuid(), directory.status().st_uid}
        for name in sorted(islice(directory.names(), _MOST_DOCUMENTS)):
            if not name.endswith(".json") or name.startswith("."):
                continue
            try:
                one = _seen(reports.decode(directory.read(name, _MAX_DOCUMENT)), me, now)
                if one.here and not _is_its_own(one.report, trusted):
                    one = one._replace(report=msgspec.structs.replace(one.report, local=""))
                # Of two that are the same, the one of this host: it is missed sooner.
                seen[one.report.host] = max(
                    newer.pop(one.report.host, one), one, key=lambda one: one.report.at
                )
            except FileNotFoundError:
                continue
            except (Alien, OSError) as error:
                if isinstance(error, OSError) and is_trouble(error):
                    raise
                why = getattr(error, "strerror", error)
                unreadable.append(f"{os.path.join(directory.path, name)}: {why}")
    return Hosts((*seen.values(), *newer.values()), tuple(unreadable))


def _seen(report: HostReport, me: Identity, now: float, *, copied: bool = True) -> SeenHost:
    them = report.identity
    # After a reboot its directory is still here.
    here = reports.is_seen(them, me) or reports.is_of_host(them, me)
    ticks, turned = reports.ticks_of(report, me), time.monotonic()
    how = reports.standing(report, me, ticks, now, turned, copied=copied)
    return SeenHost(report, how, here)


def _is_its_own(report: HostReport, trusted: Collection[int]) -> bool:
    """Tell whether the local directory that a report names belongs to one of these users, and says
    the same of itself: others may write reports, and would have us read and signal what they
    like."""
    try:
        owner = os.stat(report.local).st_uid
    except OSError:
        return False
    said = last_report(report.local)
    same = said is not None and (said.host, said.root) == (report.host, report.root)
    return same and owner in trusted


def read_controls(root: str, host: str = "") -> Controls:
    """Read what is asked of all hosts, and of this one if one is named."""
    try:
        directory = Directory.open(os.path.join(root, control.CONTROL), inside=1)
    except (FileNotFoundError, NotADirectoryError):
        return Controls()
    with closing(directory):
        return control.read(directory, host)


def paused_by(path: str) -> str:
    """Return by whom and since when a queue or a control directory is paused, as far as its PAUSE
    tells."""
    try:
        found = os.lstat(os.path.join(path, control.PAUSE))
    except OSError:
        return ""
    return f"by {user(found.st_uid)} since {format_instant(found.st_mtime)}"


def user(uid: int) -> str:
    """Return what a user is called."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
