"""Finds the logs of each host that can be read from here, and reads a piece of one."""

import os
import re
import stat
from contextlib import closing
from typing import NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import NotFound, leads_nowhere
from watchdogd import control
from watchdogd.driver_ids import LOGS, local_directory
from watchdogd.operators.hosts import Chosen, no_answer

# What loads for all drivers of a stage has a log, too; and so has each element of Slurm's, of which
# what its watchdog prints is kept beside the copies, as if it were of a host.
LOG = re.compile(r"(?P<driver>(?P<stage>.+)-(?:(?P<slot>[0-9]+)|load)|[0-9]+_[0-9]+)\.log")
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Bytes that are read at once.
WINDOW = 64 << 10


class Piece(NamedTuple):
    """A piece of a log."""

    # Where it begins, where what comes next begins, and how much there is, in bytes.
    start: int
    end: int
    size: int
    data: bytes
    # It tells this file from the one after a rotation.
    inode: int


def places_of(chosen: Chosen) -> dict[str, str]:
    """Return where the logs of each host are: on this host itself, else their copies below the
    root."""
    copies = os.path.join(chosen.pipeline.root, control.CONTROL, control.LOGS)
    hosts = chosen.hosts
    found = {}
    for seen in hosts.seen:
        local = os.path.join(seen.report.local, LOGS)
        readable = seen.here and seen.report.local and os.access(local, os.R_OK | os.X_OK)
        copied = os.path.join(copies, control.host_file(seen.report.host))
        found[seen.report.host] = local if readable else copied
    # Its watchdog may never have come as far as to say anything.
    if chosen.hung:
        return {name: path for name, path in found.items() if not path.startswith(copies)}
    own = os.path.join(local_directory(chosen.pipeline.root, hosts.own_name), LOGS)
    if os.path.isdir(own):
        found.setdefault(hosts.own_name, own)
    known = {control.host_file(name) for name in found}
    return found | {name: os.path.join(copies, name) for name in set(listed(copies)) - known}


def listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def read_piece(chosen: Chosen, host: str, driver: str, start: int | None, inode: int = 0) -> Piece:
    """Read what a driver has printed from a place on, at most a window; None: its end. Where
    another file is there than the one that was read last, from its beginning. NotFound for a host
    or a driver that has no log; FileSystemTrouble where it is below a root that does not answer."""
    directory, name = places_of(chosen).get(host), f"{driver}.log"
    if directory is None and chosen.hung:
        raise no_answer(chosen.given)
    none = NotFound(f"{driver} on {host} has no log; there is one once it has started")
    if directory is None or LOG.fullmatch(name) is None:
        raise none
    try:
        with closing(Directory.open(directory, inside=2)) as opened:
            # Looked up in what is there: no name that somebody sends becomes a path.
            if name not in opened.names():
                raise none
            log = opened.open_read(name)
    except OSError as error:
        # Nothing is there, or a link.
        raise none if leads_nowhere(error) else error from None
    with open_fd(log) as fd:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(f"the log of {driver} on {host} is no file")
        size = found.st_size
        if start is None:
            start = max(0, size - WINDOW)
        elif start > size or inode not in (0, found.st_ino):
            start = 0
        data = os.pread(fd, WINDOW, start)
    if len(data) == WINDOW:
        # No line, and no letter, is cut where more comes.
        data = data[: data.rfind(b"\n") + 1] or data
    return Piece(start, start + len(data), size, data, found.st_ino)
