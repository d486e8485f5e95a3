"""What processes that were killed left, and nobody would ever look at again: swept at a start.

    .aside-…, .probe-…    a file that was being written aside, or to see whether that is possible:
                          a matter of milliseconds, so one of yesterday is nobody's any more
    claims/N.json         the plan of a claim that was taken back, after 7 days
    attempts/*.json       the report of a document that was not discarded after all, after 7 days
    journal/*.jsonl       not written to for 90 days; or for 7, the oldest first, while all of them
                          take more than 1 GiB. A writer whose file is removed begins another

How old a file is, the clock of its own file system says: no two clocks are compared.
"""

import itertools
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress

from queuedriver.claims.attempts import ATTEMPTS, Attempts, interrupted, parse
from queuedriver.claims.handoff import CLAIMS
from queuedriver.claims.liveness import DRIVERS
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import FILE
from queuedriver.disk.upstreams import FEEDS
from queuedriver.format import names
from queuedriver.operating.queue import JOURNAL

# What `Directory.write_aside` and `Directory.probe` leave when they are killed.
SCRAPS = (".aside-", ".probe-")
# Seconds.
_DAY = 86400.0
SCRAP_KEPT = _DAY
# What was written down for the end of a claim: for as long, whoever finds it alive may want it.
CLAIM_KEPT = 7 * _DAY
JOURNAL_KEPT = 90 * _DAY
# Of what is younger than this, history is wanted, whatever its size.
JOURNAL_RECENT = 7 * _DAY
JOURNALS_MAX = 1 << 30
# A start should not take longer because a million documents wait: what is beyond so many names,
# `check --repair` finds.
_NAMES = 10_000

_WRITTEN_ASIDE = (
    names.PRIVATE,
    names.DISCARDED,
    *(os.path.join(names.PRIVATE, one) for one in (DRIVERS, ATTEMPTS, FEEDS)),
)


def sweep(queue: Directory, others: Sequence[Directory]) -> None:
    """Sweep a queue, and the scraps in directories that its drivers write to."""
    for directory in (queue, *others):
        sweep_scraps(directory)
    for name in _WRITTEN_ASIDE:
        _inside(queue, name, sweep_scraps)
    _inside(queue, os.path.join(names.PRIVATE, CLAIMS), lambda plans: sweep_plans(plans, queue))
    _inside(
        queue,
        names.DISCARDED,
        lambda discarded: _inside(
            queue,
            os.path.join(names.PRIVATE, ATTEMPTS),
            lambda noted: sweep_attempts(Attempts(noted, discarded), queue),
        ),
    )
    for other in others:
        _inside(other, names.PRIVATE, sweep_scraps)
    _inside(queue, os.path.join(names.PRIVATE, JOURNAL), sweep_journals)


def sweep_scraps(directory: Directory) -> None:
    """Remove what was begun long ago."""
    # Whatever is wrong here keeps nobody from driving; who drives will find out.
    with suppress(OSError):
        _remove(directory, _old(directory, _kept))


def sweep_plans(plans: Directory, queue: Directory) -> None:
    """Remove what was begun long ago, and the plans of claims that are nowhere."""
    with suppress(OSError):
        old = _old(plans, lambda name: CLAIM_KEPT if name.endswith(".json") else _kept(name))
        claimed = _claimed(queue, [_token_of_plan(name) for name in old])
        _remove(plans, (name for name in old if _token_of_plan(name) not in claimed))


def sweep_attempts(attempts: Attempts, queue: Directory) -> None:
    """Remove what was begun long ago, and old reports of documents that are neither in the queue
    nor in `discarded/`. A listing may miss a document that is being renamed: so there are two."""
    with suppress(OSError):
        attempts.settle()
        directory = attempts.directory
        old = _old(directory, lambda name: CLAIM_KEPT if parse(name) else math.inf)
        files = {name: file for name in old if (file := parse(name)) is not None}
        docids = {file.docid for file in files.values()}
        for _ in range(2 if docids else 0):
            for name in queue.names():
                if (item := names.parse(name)) is not None:
                    docids.discard(item.docid)
        awaited = {str(file) for _, file in interrupted(directory, attempts.discarded)}
        _remove(
            directory,
            [name for name, one in files.items() if one.docid in docids and name not in awaited],
        )


def _claimed(queue: Directory, tokens: Collection[str]) -> set[str]:
    """Which of these have their claim. A listing may miss one that is being renamed, which happens
    once: so there are two."""
    found: set[str] = set()
    for _ in range(2 if tokens else 0):
        for name in queue.names():
            if name.endswith((f".{names.WORKING}", f".{names.WRITTEN}")):
                item = names.parse(name)
                if item is not None and item.token in tokens:
                    found.add(item.token)
    return found


def _token_of_plan(name: str) -> str:
    return name.removesuffix(".json")


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


def _kept(name: str) -> float:
    """How long: a scrap, or anything else."""
    return SCRAP_KEPT if name.startswith(SCRAPS) else math.inf


def _old(directory: Directory, kept: Callable[[str], float]) -> list[str]:
    """What has been here for longer than it is kept."""
    listed = itertools.islice(directory.names(), _NAMES)
    mortal = [name for name in listed if kept(name) < math.inf]
    return [name for name, age, _ in _aged(directory, mortal) if age > kept(name)]


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
