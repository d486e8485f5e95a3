"""What processes that were killed left, and nobody would ever look at again: swept at a start.

    .aside-…, .probe-…   a file that was being written aside, or to see whether that is possible:
                         a matter of milliseconds, so one of yesterday is nobody's any more
    journal/*.jsonl      not written to for 90 days; or for 7, the oldest first, while all of them
                         take more than 1 GiB. A writer whose file is removed begins another

How old a file is, the clock of its own file system says: no two clocks are compared.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from queuedriver import names
from queuedriver.feeds import FEEDS
from queuedriver.filesystem import Directory
from queuedriver.handoff import ATTEMPTS, CLAIMS
from queuedriver.journal import FILE
from queuedriver.liveness import DRIVERS
from queuedriver.queue import JOURNAL

# What `Directory.write_aside` and `Directory.probe` leave when they are killed.
SCRAPS = (".aside-", ".probe-")
# Seconds.
_DAY = 86400.0
SCRAP_KEPT = _DAY
JOURNAL_KEPT = 90 * _DAY
# Of what is younger than this, history is wanted, whatever its size.
JOURNAL_RECENT = 7 * _DAY
JOURNALS_MAX = 1 << 30
# A start should not take longer because a million documents wait: what is beyond so many names,
# `check --repair` finds.
_NAMES = 10_000

_WRITTEN_ASIDE = (
    names.DISCARDED,
    names.PRIVATE,
    *(os.path.join(names.PRIVATE, one) for one in (DRIVERS, CLAIMS, ATTEMPTS, FEEDS)),
)


def sweep(queue: Directory, others: Sequence[Directory]) -> None:
    """Sweep a queue, and the scraps in directories that its drivers write to."""
    for directory in (queue, *others):
        sweep_scraps(directory)
    for name in _WRITTEN_ASIDE:
        _inside(queue, name, sweep_scraps)
    for other in others:
        _inside(other, names.PRIVATE, sweep_scraps)
    _inside(queue, os.path.join(names.PRIVATE, JOURNAL), sweep_journals)


def sweep_scraps(directory: Directory) -> None:
    """Remove what was begun long ago."""
    # Whatever is wrong here keeps nobody from driving; who drives will find out.
    with suppress(OSError):
        listed = itertools.islice(directory.names(), _NAMES)
        if scraps := [name for name in listed if name.startswith(SCRAPS)]:
            old = (name for name, age, _ in _aged(directory, scraps) if age > SCRAP_KEPT)
            _remove(directory, old)


def sweep_journals(directory: Directory) -> None:
    """Remove what is so old that nobody will ask, and what is old where there is too much."""
    with suppress(OSError):
        journals = [name for name in directory.names() if FILE.fullmatch(name)]
        oldest_first = sorted(_aged(directory, journals), key=lambda one: -one[1])
        surplus = sum(size for _, _, size in oldest_first) - JOURNALS_MAX
        gone = []
        for name, age, size in oldest_first:
            if age > JOURNAL_KEPT or (surplus > 0 and age > JOURNAL_RECENT):
                gone.append(name)
                surplus -= size
        _remove(directory, gone)


def _aged(directory: Directory, listed: Sequence[str]) -> Iterator[tuple[str, float, int]]:
    """Each file with its age in seconds and its size."""
    now = _now(directory) if listed else 0
    for name in listed:
        with suppress(FileNotFoundError):
            found = directory.status(name)
            if found.regular:
                yield name, (now - found.mtime_ns) / 1e9, found.size


def _now(directory: Directory) -> int:
    """What time it is there, in nanoseconds."""
    probe = f".probe-{os.getpid()}-{os.urandom(4).hex()}"
    directory.write_new(probe, b"")
    try:
        return directory.status(probe).mtime_ns
    finally:
        directory.remove(probe)


def _remove(directory: Directory, gone: Iterable[str]) -> None:
    for name in gone:
        # Another user's, in a sticky directory, is for that user to remove.
        with suppress(PermissionError):
            directory.remove(name)


def _inside(directory: Directory, name: str, do: Callable[[Directory], None]) -> None:
    # Not made yet; or something else has its name, which whoever needs it will say.
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        inner = directory.subdirectory(name)
        try:
            do(inner)
        finally:
            inner.close()
