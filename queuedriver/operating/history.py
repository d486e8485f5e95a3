"""Reads the journals of a queue, all at once: their lines merged in the order of their times.

Files may be appended to, rotated and removed meanwhile, by any number of writers; a line that was
cut, or is not ours, is skipped and counted.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.disk.journal import FILE, INSIDE
from queuedriver.format.event import MAX_LINE, Event, decode

# A file rotated away before this many seconds before an instant has nothing from after it: the
# slack is for a clock that was set back.
_CLOCK_SLACK = 3600.0
# Listings of one reading. Two are enough but for files that rotate meanwhile; a network file system
# may go on listing a name that is gone for a minute.
_PASSES = 20
# Of one file no more is read than this, its end: several times what a writer lets it grow to; in
# bytes. What is longer is another program's, or nobody's.
_MOST = 256 << 20
# Bytes that are read at once.
_BLOCK = 1 << 20
# What every JSON writer leaves as it is.
_PLAIN = re.compile(r"[A-Za-z0-9 ._-]+")


class Reading(NamedTuple):
    """Events in the order of their times; lines that did not parse; files that did not open."""

    events: list[Event]
    skipped: int
    unreadable: list[str]


def read_history(directory: str, docid: str) -> Reading:
    """Read all that happened to one document, also under a docid it was given on the way."""
    return _read(directory, lambda event: docid in (event.docid, event.renamed), docid)


def read_extended(directory: str, stem: str) -> Reading:
    """Read all that happened to documents whose docids are this stem and an extension."""
    return _read(directory, lambda event: event.docid.startswith(f"{stem}."), stem)


def read_origins(directory: str, name: str) -> Reading:
    """Read how a file of this name came to be published from here."""
    return _read(directory, lambda event: name in (event.outputs or ()), name)


def read_events(directory: str, since: float = 0.0) -> Reading:
    """Read all that happened at or after an instant (seconds since the epoch)."""
    return _read(directory, lambda event: event.at >= since, since=since)


def _read(
    directory: str, wanted: Callable[[Event], bool], text: str = "", since: float = 0.0
) -> Reading:
    """Read the events that are wanted. To decode a line takes far longer than to read it, so only
    those are that have the longest plain part of the text."""
    needle = max(_PLAIN.findall(text), key=len, default="").encode()
    found = Reading([], 0, [])
    skipped = 0
    for path, file in _files(directory, since, found.unreadable):
        try:
            for line in _lines(file, needle):
                event = decode(line)
                if event is None:
                    skipped += 1
                elif wanted(event):
                    found.events.append(event)
        except OSError:
            found.unreadable.append(path)
    # Hosts' clocks differ; within one writer's file the order stands, because the sort is stable.
    found.events.sort(key=lambda event: event.at)
    return found._replace(skipped=skipped)


def _lines(file: BinaryIO, needle: bytes) -> Iterator[bytes]:
    """Yield the lines that have the needle; of one too long its beginning."""
    while block := file.read(_BLOCK) + file.readline(MAX_LINE):
        if needle in block:
            yield from (line for line in block.split(b"\n") if needle in line and line)
        while not block.endswith(b"\n") and (block := file.readline(MAX_LINE)):
            pass


def _files(path: str, since: float, unreadable: list[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Yield each journal file once, open. What is not named like ours is not ours."""
    try:
        directory = Directory.open(path, inside=INSIDE)
    except FileNotFoundError:
        return
    except (NotADirectoryError, PermissionError):
        unreadable.append(path)
        return
    seen: set[tuple[int, int]] = set()
    with directory:
        # A file that is rotated after the listing has another name then: list until nothing is new.
        for _ in range(_PASSES):
            fresh = False
            for name in sorted(directory.names()):
                found = FILE.fullmatch(name)
                if not found or (found[2] and int(found[2], 16) / 1e6 < since - _CLOCK_SLACK):
                    continue
                path = os.path.join(directory.path, name)
                try:
                    fd = directory.open_read(name)
                except FileNotFoundError:
                    fresh = True
                    continue
                except OSError:
                    if path not in unreadable:
                        unreadable.append(path)
                    continue
                with open_fd(fd):
                    status = os.fstat(fd)
                    identity = (status.st_dev, status.st_ino)
                    if not stat.S_ISREG(status.st_mode) or identity in seen:
                        continue
                    seen.add(identity)
                    fresh = True
                    if status.st_size > _MOST:
                        # Whoever reads is told that this is not all of it.
                        os.lseek(fd, status.st_size - _MOST, os.SEEK_SET)
                        unreadable.append(path)
                    with open(fd, "rb", closefd=False) as file:
                        yield path, file
            if not fresh:
                return
