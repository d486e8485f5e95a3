"""`logs`: what drivers print, on this host and on others."""

import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from queuedriver.cli.program import say
from queuedriver.cli.render import escape, escape_name
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument, NotFound
from watchdogd import control, places
from watchdogd.cli.arguments import PIPELINE_FILE, Chosen, Target, choose, target
from watchdogd.cli.tail import Tail

LOGS = "logs"
_LOG = re.compile(r"(?P<driver>(?P<stage>.+)-[0-9]+)\.log")
_FOLLOW_EVERY = 0.25
# How often one looks for drivers that have started since.
_LIST_EVERY = 1.0


class Place(NamedTuple):
    """A directory with the logs of one host."""

    host: str
    path: str


def logs(
    what: list[str] | None = argument(
        "[STAGE|DRIVER]...", "A stage, or a driver as in parse-2; else all."
    ),
    follow: bool = flag("Go on as more is printed; Ctrl-C ends it.", "--follow", "-f"),
    lines: int = option("N", "How many lines of each driver.", "--lines", "-n", default=20),
    host: str | None = option("HOST", "Only of this host."),
    pipeline: str | None = PIPELINE_FILE,
) -> int:
    """Show what drivers print.

    Those of other hosts are copies that their watchdogs make every few seconds.
    """
    if lines < 0:
        raise BadArgument(f"-n {lines}: how many lines cannot be less than none")
    chosen = choose(pipeline)
    targets = [target(chosen, one) for one in what or ()]
    if host is not None:
        targets = [one._replace(host=one.host or host) for one in targets]
    watched = [one for one in places_of(chosen) if host in (None, one.host)]
    shown = _Shown(watched, targets)
    shown.find()
    if not shown.tails and not follow:
        where = ", ".join(escape_name(one.path) for one in watched) or "any place known here"
        raise NotFound(f"no such log in {where}; there is one once a driver has started")
    shown.show_last(lines)
    if follow:
        if not shown.tails:
            say("no log yet; waiting for a driver to start")
        shown.follow()
    return 0


def places_of(chosen: Chosen) -> list[Place]:
    """Where the logs of each host are: on this host itself, else their copies below the root."""
    copies = os.path.join(chosen.pipeline.root, control.CONTROL, control.LOGS)
    found = {}
    for seen in chosen.hosts.seen:
        name = seen.report.host
        local = os.path.join(seen.report.local, LOGS)
        mirrored = os.path.join(copies, control.host_file(name))
        readable = seen.here and seen.report.local and os.access(local, os.R_OK | os.X_OK)
        found[name] = Place(name, local if readable else mirrored)
    if not any(seen.here for seen in chosen.hosts.seen):
        # Its watchdog may never have come as far as to say anything.
        name = socket.gethostname()
        own = places.local_directory(chosen.pipeline.root, name)
        if os.path.isdir(os.path.join(own, LOGS)):
            found.setdefault(name, Place(name, os.path.join(own, LOGS)))
    known = {control.host_file(name) for name in found}
    for name in _listed(copies):
        if name not in known:
            found[name] = Place(name, os.path.join(copies, name))
    return list(found.values())


def _listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


class _Shown:
    """The logs that are shown, and which line is whose."""

    def __init__(self, watched: Sequence[Place], targets: Sequence[Target]) -> None:
        self.tails: dict[tuple[str, str], Tail] = {}
        self._watched = watched
        self._targets = targets
        self._several_hosts = len(watched) > 1
        # On a terminal nothing in a line may steer it; a file gets the bytes as they are.
        self._terminal = sys.stdout.isatty()

    def find(self) -> list[tuple[str, str]]:
        """Find the logs that are new, by host and driver."""
        found = []
        for place in self._watched:
            for name in _listed(place.path):
                log = _LOG.fullmatch(name)
                if log is None or not self._wanted(log["stage"], log["driver"], place.host):
                    continue
                key = (place.host, log["driver"])
                if key not in self.tails:
                    self.tails[key] = Tail(os.path.join(place.path, name))
                    found.append(key)
        return found

    def _wanted(self, stage: str, driver: str, host: str) -> bool:
        return not self._targets or any(
            one.host in ("", host)
            and driver == (one.driver or driver)
            # A stage may be called as another one's driver is.
            and (bool(one.driver) or stage == one.stage.name)
            for one in self._targets
        )

    def show_last(self, count: int) -> None:
        for key in sorted(self.tails, key=_in_order):
            self._show(key, self.tails[key].last(count))

    def follow(self) -> None:
        """Show what comes, until somebody has seen enough."""
        list_at = time.monotonic() + _LIST_EVERY
        while True:
            for key, tail in self.tails.items():
                self._show(key, tail.more())
            sys.stdout.flush()
            time.sleep(_FOLLOW_EVERY)
            if time.monotonic() >= list_at:
                list_at = time.monotonic() + _LIST_EVERY
                self.find()

    def _show(self, key: tuple[str, str], lines: Iterator[bytes] | list[bytes]) -> None:
        host, driver = key
        prefix = ""
        if not self._one_driver():
            # Names of files that others may have made, as any line may be.
            prefix = escape_name(f"{driver}@{host}" if self._several_hosts else driver) + " | "
        for line in lines:
            if self._terminal:
                print(prefix + escape(line.decode(errors="backslashreplace")))
            else:
                sys.stdout.buffer.write(prefix.encode() + line + b"\n")

    def _one_driver(self) -> bool:
        """Whether there can be but one: a prefix that comes and goes would puzzle."""
        if len(self._targets) != 1 or not self._targets[0].driver:
            return False
        return bool(self._targets[0].host) or not self._several_hosts


def _in_order(key: tuple[str, str]) -> tuple[str, str, int]:
    """By host, stage and slot: the tenth after the ninth."""
    stage, _, slot = key[1].rpartition("-")
    return key[0], stage, int(slot)
