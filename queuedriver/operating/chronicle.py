"""Reads the journals of a queue, all at once: their lines merged in the order of their times.

Files may be appended to, rotated and removed meanwhile, by any number of writers; a line that was
cut, or is not ours, is skipped and counted.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import FILE, INSIDE
from queuedriver.format.event import MAX_LINE, Event, decode

_CHUNK = 1 << 20
# A file rotated away before this many seconds before an instant has nothing from after it: the
# slack is for a clock that was set back.
_CLOCK_SLACK = 3600.0
# Listings of one reading. Two are enough but for files that rotate meanwhile; a network file system
# may go on listing a name that is gone for a minute.
_PASSES = 20
# Of one file no more is read than this, its end: several times what a writer lets it grow to; in
# bytes. What is longer is another program's, or nobody's.
_MOST = 256 << 20
# What every JSON writer leaves as it is.
_PLAIN = re.compile(r"[A-Za-z0-9 ._-]+")


class Reading(NamedTuple):
    """Events in the order of their times; lines that did not parse; files that did not open."""

    events: list[Event]
    skipped: int
    unreadable: list[str]


def read_history(directory: str, docid: str) -> Reading:
    """All that happened to one document, also under a docid it was given on the way.

    Lines are decoded only when they hold the longest plain part of the docid.
    """
    needle = max(_PLAIN.findall(docid), key=len, default="").encode()
    return _read(directory, 0.0, needle, lambda event: docid in (event.docid, event.renamed))


def read_extended(directory: str, stem: str) -> Reading:
    """All that happened to documents whose docids are this stem and an extension."""
    needle = max(_PLAIN.findall(stem), key=len, default="").encode()
    return _read(directory, 0.0, needle, lambda event: event.docid.startswith(f"{stem}."))


def read_origins(directory: str, name: str) -> Reading:
    """How a file of this name came to be published from here."""
    needle = max(_PLAIN.findall(name), key=len, default="").encode()
    return _read(directory, 0.0, needle, lambda event: name in (event.outputs or ()))


def read_events(directory: str, since: float = 0.0) -> Reading:
    """All that happened at or after an instant (seconds since the epoch)."""
    return _read(directory, since, b"", lambda event: event.at >= since)


def _read(directory: str, since: float, needle: bytes, wanted: Callable[[Event], bool]) -> Reading:
    events: list[Event] = []
    skipped = 0
    unreadable: list[str] = []
    for path, fd in _files(directory, since, unreadable):
        try:
            for line in _lines(fd, needle):
                event = decode(line)
                if event is None:
                    skipped += 1
                elif wanted(event):
                    events.append(event)
        except OSError:
            unreadable.append(path)
    # Hosts' clocks differ; within one writer's file the order stands, because the sort is stable.
    events.sort(key=lambda event: event.at)
    return Reading(events, skipped, unreadable)


def _files(path: str, since: float, unreadable: list[str]) -> Iterator[tuple[str, int]]:
    """Each journal file once, open. What is not named like ours is not ours."""
    try:
        directory = Directory.open(path, inside=INSIDE)
    except FileNotFoundError:
        return
    except (NotADirectoryError, PermissionError):
        unreadable.append(path)
        return
    try:
        yield from _files_in(directory, since, unreadable)
    finally:
        directory.close()


def _files_in(
    directory: Directory, since: float, unreadable: list[str]
) -> Iterator[tuple[str, int]]:
    seen = set()
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
            try:
                status = os.fstat(fd)
                identity = (status.st_dev, status.st_ino)
                if stat.S_ISREG(status.st_mode) and identity not in seen:
                    seen.add(identity)
                    fresh = True
                    if status.st_size > _MOST:
                        # Whoever reads is told that this is not all of it.
                        os.lseek(fd, status.st_size - _MOST, os.SEEK_SET)
                        unreadable.append(path)
                    yield path, fd
            finally:
                os.close(fd)
        if not fresh:
            return


def _lines(fd: int, needle: bytes) -> Iterator[bytes]:
    """The lines that hold the needle, without their ends."""
    for block in _blocks(fd):
        at = block.find(needle)
        while 0 <= at < len(block):
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            end = end if end >= 0 else len(block)
            if end > start:
                yield block[start:end]
            at = block.find(needle, end + 1)


def _blocks(fd: int) -> Iterator[bytes]:
    """Whole lines, many at once, in bounded memory."""
    rest = b""
    while chunk := os.read(fd, _CHUNK):
        block = rest + chunk
        end = block.rfind(b"\n") + 1
        if end:
            yield block[:end]
        # Of a line that is too long, enough is kept for it to be found too long.
        rest = block[end : end + MAX_LINE + 1]
    if rest:
        yield rest
