"""Reads what happened last on all hosts, as their watchdogs wrote it down."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing, suppress

import msgspec

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import is_trouble
from queuedriver.format.records import decode
from watchdogd import control
from watchdogd.events import FILE, Event
from watchdogd.operators.hosts import Chosen

# Of each host no more than the end of its file is read, in bytes.
_MOST = 512 << 10


def recent_events(chosen: Chosen, most: int, since: float = 0.0) -> list[Event]:
    """Return so many events of all hosts since an instant, the newest first."""
    found = [one for data in _ends(chosen) for one in _decoded(data) if one.at >= since]
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
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return b""
        return os.pread(fd, _MOST, max(0, found.st_size - _MOST))


def _decoded(data: bytes) -> Iterator[Event]:
    """Yield the events of whole lines; the first may be cut."""
    for line in data.split(b"\n"):
        with suppress(msgspec.DecodeError):
            yield decode(line, Event)
