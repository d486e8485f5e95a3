"""What processes that were killed left, and nobody would ever look at again: one table.

    kind         where           kept      unless                            then
    scrap        where files     1 day                                       removed
                 are written
                 aside
    plan         claims/         7 days    its N has a claim                 removed
    report       attempts/       7 days    its document is in the queue, or  removed
                                           waits for it in discarded/
    incoming     incoming/       1 day     somebody writes to it             to orphans/
      of the dead                1 hour    its process is there              to orphans/
    output       the queue       1 day     its N has a claim upstream        to orphans/
      late                       10 min    the same, or nobody upstream      to orphans/
                                           knows its driver
    orphan       orphans/        7 days    its N has a claim upstream        removed
    journal      journal/        90 days; or 7, the oldest first, while all  removed
                                 of them take more than 1 GiB

A start, a driver now and then, and `check` take rows of it. How old a file is, the clock of its own
file system says: no two clocks are compared. Whatever is wrong with one row keeps nobody from the
others, or from driving.
"""

import itertools
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from typing import NamedTuple

from queuedriver.claims.attempts import ATTEMPTS, Attempts, interrupted, parse
from queuedriver.claims.handoff import CLAIMS, ORPHANS
from queuedriver.claims.liveness import DRIVERS, host_id, process_ticks
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import FILE
from queuedriver.disk.upstreams import FEEDS, read_feeds
from queuedriver.format import names
from queuedriver.format.names import INCOMING, JOURNAL

# Seconds.
MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# For whoever may still want to publish an orphan, or finish what a plan or a report belongs to; and
# a dead registration for whoever wants to know.
WEEK = 7 * DAY
# What `Directory.write_aside` and `Directory.probe` leave when they are killed, which takes them
# milliseconds: one of yesterday is nobody's any more.
SCRAPS = (".aside-", ".probe-")
SCRAP_KEPT = DAY
# Longer than any driver writes on after its claim has ended, but for one that was stopped.
LATE = 10 * MINUTE
JOURNAL_KEPT = 90 * DAY
# Of what is younger than this, history is wanted, whatever its size.
JOURNAL_RECENT = WEEK
JOURNALS_MAX = 1 << 30
# How often a driver that runs looks.
SWEEP_EVERY = 15 * MINUTE
# A start should not take longer because a million documents wait: what is beyond so many names,
# later looks find when some have gone.
_NAMES = 10_000
# How `Queue.submit` names what is not in the queue yet.
SUBMISSION = re.compile(r"(?P<host>[A-Za-z0-9_]+)-(?P<pid>[0-9]+)-[0-9]+-[0-9a-f]{8}")
# Where something is written aside, in every queue, and in those that are driven.
_PRIVATE_SCRAPS = ("", names.PRIVATE)
_DRIVEN_SCRAPS = (
    names.DISCARDED,
    *(f"{names.PRIVATE}/{x}" for x in (DRIVERS, CLAIMS, FEEDS, ATTEMPTS)),
)


class Swept:
    """A queue that is swept, and what is known of it: asked at most once, by two listings, as one
    alone may miss what is being renamed."""

    def __init__(self, queue: Directory, driven: Directory) -> None:
        self.queue = queue
        # The input queue of whoever sweeps: this one, or one whose outputs come here.
        self._driven = driven

    @cached_property
    def claims(self) -> set[str]:
        """The N of every claim in the queue of whoever sweeps."""
        return {item.token for item in _items_twice(self._driven) if item.claimed}

    @cached_property
    def docids(self) -> set[str]:
        """The docids of all items."""
        return {item.docid for item in _items_twice(self.queue)}

    @cached_property
    def upstream(self) -> tuple[set[str], set[str]] | None:
        """The N of every claim in the queues that feed this one, and the drivers that registered
        there; None where one of them cannot be read."""
        claims, drivers = set(self.claims), set[str]()
        for path in read_feeds(self.queue):
            if path is None:
                return None
            try:
                with closing(Directory.open(path)) as feed:
                    claims |= {item.token for item in _items_twice(feed) if item.claimed}
                    drivers |= _registered(feed)
            except OSError:
                return None
        return claims, drivers


def _items_twice(directory: Directory) -> Iterator[names.Item]:
    for _ in range(2):
        yield from (item for _, item in names.walk(directory) if item is not None)


def _registered(queue: Directory) -> set[str]:
    with suppress(FileNotFoundError):
        drivers = queue.subdirectory(os.path.join(names.PRIVATE, DRIVERS))
        try:
            return {name.removesuffix(".json") for name in drivers.names()}
        finally:
            drivers.close()
    return set()


Excuse = Callable[[Swept, Directory, str], bool]
Act = Callable[[Swept, Directory, str], None]


class Leftover(NamedTuple):
    """A row of the table."""

    kind: str
    # What `check` says of one.
    what: str
    # Which directory of a queue; "" is the queue itself.
    where: str
    # After how many seconds nobody wants it any more.
    kept: float
    # Whether a file is one, by its name.
    is_one: Callable[[str], bool]
    # Whether it is wanted all the same.
    excuse: Excuse
    act: Act
    # Its age is since it came here, not since it was written.
    by_arrival: bool = False


# Excuses


def _none(_swept: Swept, _where: Directory, _name: str) -> bool:
    return False


def _plan_is_wanted(swept: Swept, _where: Directory, name: str) -> bool:
    return name.removesuffix(".json") in swept.claims


def _report_is_wanted(swept: Swept, where: Directory, name: str) -> bool:
    file = parse(name)
    if file is None or file.docid in swept.docids:
        return True
    discarded = swept.queue.subdirectory(names.DISCARDED)
    try:
        return any(one == file for _, one in interrupted(where, discarded))
    finally:
        discarded.close()


def _submitter_lives(_swept: Swept, _where: Directory, name: str) -> bool:
    found = SUBMISSION.fullmatch(name)
    dead = found and found["host"] == host_id() and process_ticks(int(found["pid"])) is None
    return not dead


def _has_claim_upstream(swept: Swept, _where: Directory, name: str) -> bool:
    item = names.parse(name)
    return swept.upstream is None or (item is not None and item.token in swept.upstream[0])


def _has_claim_or_is_a_strangers(swept: Swept, where: Directory, name: str) -> bool:
    item = names.parse(name)
    if item is None or _has_claim_upstream(swept, where, name) or swept.upstream is None:
        return True
    return names.parse_token(item.token).driver not in swept.upstream[1]


# Acts


def remove(_swept: Swept, where: Directory, name: str) -> None:
    where.remove(name)


def to_orphans(swept: Swept, where: Directory, name: str) -> None:
    """Under its own name: whoever publishes it after all looks for that."""
    orphans = swept.queue.subdirectory(os.path.join(names.PRIVATE, ORPHANS), create=True)
    try:
        with suppress(FileNotFoundError, FileExistsError):
            where.rename_new(name, name, orphans)
    finally:
        orphans.close()


# The table


def _is_scrap(name: str) -> bool:
    return name.startswith(SCRAPS)


def _is_plan(name: str) -> bool:
    return name.endswith(".json") and name[0] != "."


def _is_report(name: str) -> bool:
    return parse(name) is not None


def _is_any(name: str) -> bool:
    return True


def _is_output(name: str) -> bool:
    if f".{names.WRITING}" not in name:
        return False
    item = names.parse(name)
    return item is not None and item.state == names.WRITING


def _inside(name: str) -> str:
    return f"{names.PRIVATE}/{name}"


_SCRAP = "a file that somebody began to write"
_OUTPUT = "an output that is being written, and no queue that feeds this one knows of its claim"

# Of every queue that a driver reads from or writes to.
OF_ANY = (
    *(Leftover("scrap", _SCRAP, x, DAY, _is_scrap, _none, remove) for x in _PRIVATE_SCRAPS),
    Leftover(
        "old-orphan",
        "an output that was moved aside, and nobody has asked for",
        _inside(ORPHANS),
        WEEK,
        _is_any,
        _has_claim_upstream,
        remove,
        by_arrival=True,
    ),
)
# Of a queue by its own drivers.
OF_DRIVEN = (
    *OF_ANY,
    *(Leftover("scrap", _SCRAP, x, DAY, _is_scrap, _none, remove) for x in _DRIVEN_SCRAPS),
    Leftover(
        "leftover-plan",
        "a plan of outputs whose claim is gone",
        _inside(CLAIMS),
        WEEK,
        _is_plan,
        _plan_is_wanted,
        remove,
    ),
    Leftover(
        "leftover-attempt",
        "what is remembered of a document that is nowhere in the queue",
        _inside(ATTEMPTS),
        WEEK,
        _is_report,
        _report_is_wanted,
        remove,
    ),
    Leftover(
        "leftover-incoming",
        "a document that has been about to be submitted: submit it again",
        _inside(INCOMING),
        DAY,
        _is_any,
        _none,
        to_orphans,
    ),
    Leftover(
        "leftover-incoming",
        "a document whose submitter ended before it was in the queue: submit it again",
        _inside(INCOMING),
        HOUR,
        _is_any,
        _submitter_lives,
        to_orphans,
    ),
    Leftover("late-output", _OUTPUT, "", DAY, _is_output, _has_claim_upstream, to_orphans),
    Leftover(
        "late-output", _OUTPUT, "", LATE, _is_output, _has_claim_or_is_a_strangers, to_orphans
    ),
)


def sweep(queue: Directory, others: Sequence[Directory]) -> None:
    """Sweep a queue, and what its drivers leave in the directories that they write to."""
    with suppress(OSError):
        _settle(queue)
    for directory, rows in ((queue, OF_DRIVEN), *((other, OF_ANY) for other in others)):
        swept = Swept(directory, queue)
        for where, of_one in itertools.groupby(rows, lambda row: row.where):
            with suppress(OSError):
                _sweep_rows(swept, where, list(of_one))
    with suppress(OSError), opened(queue, _inside(JOURNAL)) as journals:
        sweep_journals(journals)


def _settle(queue: Directory) -> None:
    """Put reports beside their documents before any is taken for a leftover."""
    with (
        opened(queue, _inside(ATTEMPTS)) as noted,
        opened(queue, names.DISCARDED) as discarded,
    ):
        Attempts(noted, discarded).settle()


def _sweep_rows(swept: Swept, where: str, rows: Sequence[Leftover]) -> None:
    with opened(swept.queue, where) as directory:
        listed = list(itertools.islice(directory.names(), _NAMES))
        for row in rows:
            for name in _old(directory, row, [name for name in listed if row.is_one(name)]):
                # Another user's, in a sticky directory, is for that user to remove.
                with suppress(PermissionError, IsADirectoryError, FileNotFoundError):
                    if not row.excuse(swept, directory, name):
                        row.act(swept, directory, name)


@contextmanager
def opened(queue: Directory, where: str) -> Iterator[Directory]:
    """Open a directory of the queue. Raise OSError where nobody has made it yet."""
    if not where:
        yield queue
        return
    directory = queue.subdirectory(where)
    try:
        yield directory
    finally:
        directory.close()


def _old(directory: Directory, row: Leftover, listed: Sequence[str]) -> list[str]:
    """Return which files have been here for longer than they are kept."""
    aged = _aged(directory, listed, by_arrival=row.by_arrival)
    return [name for name, age, _ in aged if age > row.kept]


def sweep_journals(directory: Directory) -> None:
    """Remove what is so old that nobody will ask, and what is old where there is too much."""
    journals = [name for name in directory.names() if FILE.fullmatch(name)]
    oldest_first = sorted(_aged(directory, journals), key=lambda one: -one[1])
    surplus = sum(size for _, _, size in oldest_first) - JOURNALS_MAX
    for name, age, size in oldest_first:
        if age > JOURNAL_KEPT or (surplus > 0 and age > JOURNAL_RECENT):
            with suppress(PermissionError):
                directory.remove(name)
            surplus -= size


def _aged(
    directory: Directory, listed: Collection[str], *, by_arrival: bool = False
) -> Iterator[tuple[str, float, int]]:
    """Yield each regular file with its age in seconds and its size."""
    now = _now(directory) if listed else 0
    for name in listed:
        with suppress(FileNotFoundError):
            found = directory.status(name)
            if stat.S_ISREG(found.st_mode):
                since = found.st_mtime_ns
                if by_arrival:
                    since = max(since, found.st_ctime_ns)
                yield name, (now - since) / 1e9, found.st_size


def _now(directory: Directory) -> int:
    """Return what time it is there, in nanoseconds."""
    probe = f".probe-{os.getpid()}-{os.urandom(4).hex()}"
    directory.write_new(probe, b"")
    try:
        return directory.status(probe).st_mtime_ns
    finally:
        directory.remove(probe)
