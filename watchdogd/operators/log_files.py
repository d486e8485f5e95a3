"""Reads what drivers and watchdogs write on each host: logs, stacks, events."""

import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import NamedTuple

import msgspec

from queuedriver.disk.filesystem import Directory, open_fd, regular_size
from queuedriver.disk.processes import process_ticks
from queuedriver.disk.runtime import read_stacks
from queuedriver.driving.live_status import Board
from queuedriver.errors import NotFound, is_trouble, leads_nowhere
from queuedriver.format.records import decode
from queuedriver.format.units import visible
from watchdogd import control
from watchdogd.driver_ids import LOGS, board_path, local_directory
from watchdogd.events import FILE, Event
from watchdogd.operators.hosts import Chosen, no_answer

# What loads for all drivers of a stage has a log, too; and so has each element of Slurm's, of which
# what its watchdog prints is kept beside the copies, as if it were of a host.
LOG = re.compile(r"(?P<driver>(?P<stage>.+)-(?:(?P<slot>[0-9]+)|load)|[0-9]+_[0-9]+)\.log")
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Bytes that are read at once; and of the events of each host, the last.
WINDOW, _MOST_EVENTS = 64 << 10, 512 << 10
_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# Seconds that a driver may take to write its stacks, and how often one looks whether it has.
_PATIENCE, _LOOK_AGAIN = 1.0, 0.02


class Piece(NamedTuple):
    """A piece of a log."""

    # Where it begins, where what comes next begins, and how much there is, in bytes.
    start: int
    end: int
    size: int
    data: bytes
    # It tells this file from the one after a rotation.
    inode: int

    @property
    def before(self) -> int:
        """Return where the piece before it may begin."""
        return max(0, self.start - WINDOW)

    def with_text(self, text: str, *, ended: bool) -> "Piece":
        """Return its lines that have a text, in capitals or not; one whose end is not written yet
        is for the next piece, unless who writes has `ended`."""
        if not text:
            return self
        whole = self.data[: self.data.rfind(b"\n") + 1]
        if (not whole and len(self.data) == WINDOW) or (ended and self.end == self.size):
            whole = self.data
        lines = [one + b"\n" for one in whole.split(b"\n") if has_text(one, text)]
        return self._replace(data=b"".join(lines), end=self.start + len(whole))


def has_text(line: bytes, text: str) -> bool:
    """Return whether a line has a text, in capitals or not."""
    return not text or text.casefold() in line.decode(errors="backslashreplace").casefold()


def printed(data: bytes) -> str:
    """Return what a program printed, as text to be read: colours are left out, of a line that was
    written over only what stood there last is left."""
    text = _COLOURS.sub("", data.decode(errors="backslashreplace"))
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(visible(line.rstrip("\r").rpartition("\r")[2], "\t") for line in lines)


# Logs


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


# Stacks


def stacks_of(chosen: Chosen, host: str, driver: str) -> str:
    """Ask a driver that a watchdog of this host keeps for its stacks, and return them: it writes
    them and goes on. Another driver the signal would end."""
    for seen in chosen.hosts.alive:
        local, known = seen.report.local, {one.name: one.id for one in seen.report.drivers}
        if driver not in known or not (seen.here and local) or seen.report.host != host:
            continue
        with closing(Board.open(board_path(local, known[driver]))) as board:
            shown = board.read()
        if not shown.dump or process_ticks(shown.pid) != shown.ticks:
            continue
        before = read_stacks(shown.dump) or ""
        os.kill(shown.pid, signal.SIGUSR2)
        ends_at = time.monotonic() + _PATIENCE
        while (text := read_stacks(shown.dump) or "") == before and time.monotonic() < ends_at:
            time.sleep(_LOOK_AGAIN)
        if text != before:
            return text[len(before) :]
    raise NotFound(f"{driver}@{host} has no process on this host, or does not answer")


# Events


def recent_events(chosen: Chosen, most: int) -> list[Event]:
    """Return so many events of all hosts, the newest first."""
    found = [one for data in _ends(chosen) for one in _decoded(data)]
    # Within one file the order stands.
    found.reverse()
    found.sort(key=lambda event: event.at, reverse=True)
    return found[:most]


def _ends(chosen: Chosen) -> Iterator[bytes]:
    """Yield the end of what each host wrote: on this host its own file, else the copy."""
    local = set()
    for host in chosen.hosts.seen:
        if host.here and host.report.local:
            with suppress(OSError), closing(Directory.open(host.report.local)) as directory:
                if end := _end(directory, FILE):
                    yield end
                    local.add(f"{control.host_file(host.report.host)}.jsonl")
    path = os.path.join(chosen.pipeline.root, control.CONTROL, control.EVENTS)
    with suppress(FileNotFoundError), closing(Directory.open(path, inside=2)) as copies:
        for name in sorted(copies.names()):
            if name.endswith(".jsonl") and name not in local:
                yield _end(copies, name)


def _end(directory: Directory, name: str) -> bytes:
    """Read the end of a file; nothing of what is no file, or may not be read."""
    try:
        fd = directory.open_read(name)
    except OSError as error:
        if is_trouble(error):
            raise
        return b""
    with open_fd(fd):
        size = regular_size(fd) or 0
        return os.pread(fd, _MOST_EVENTS, max(0, size - _MOST_EVENTS)) if size else b""


def _decoded(data: bytes) -> Iterator[Event]:
    """Yield the events of whole lines; the first may be cut."""
    for line in data.split(b"\n"):
        with suppress(msgspec.DecodeError):
            yield decode(line, Event)
