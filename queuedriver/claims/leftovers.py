"""What processes that were killed left, and nobody would ever look at again: one table.

    kind         where           kept      unless                            then
    scrap        where files     1 day                                       removed
                 are written
                 aside
    plan         claims/         7 days    its N has a claim                 removed
    attempt      attempts/       -         its document is in the queue, or  removed
                                           it is a report
    report       attempts/       7 days    its document is in the queue, or  removed
                                           waits for it in discarded/
    incoming     incoming/       1 day                                       to orphans/
    output       the queue       1 day     its N has a claim upstream        to orphans/
      late                       10 min    the same, or nobody upstream      to orphans/
                                           knows its driver
    orphan       orphans/        7 days    its N has a claim upstream        removed
    journal      journal/        90 days; or 7, the oldest first, while all  removed
                                 of them take more than 1 GiB

A start, a driver now and then, and `check` take rows of it; whoever recovers, the one of attempts.
How old a file is, the clock of its own file system says; `check`, which must write nothing, goes by
ours. Whatever is wrong with one row keeps nobody from the others, or from driving.
"""

import itertools
import operator
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Literal, NamedTuple

from queuedriver.claims.attempts import ATTEMPTS, Attempts, attempts_in, interrupted, parse
from queuedriver.claims.handoff import CLAIMS, ORPHANS_INSIDE, planned_by
from queuedriver.claims.liveness import DRIVERS, registered_ids
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import FILE
from queuedriver.disk.neighbours import FEEDS, read_feeds
from queuedriver.format import names
from queuedriver.format.names import INCOMING, JOURNAL
from queuedriver.format.records import MAX_RECORD, Record, read_record

# Seconds.
MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# For whoever may still want to publish an orphan, or finish what a plan or a report belongs to.
WEEK = 7 * DAY
# What `write_aside`, `check_writable` and `_now` leave when they are killed, which takes them
# milliseconds: one of yesterday is nobody's any more.
SCRAPS = (".aside-", ".probe-")
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
_NAMES = 4096


def _inside(name: str) -> str:
    return f"{names.PRIVATE}/{name}"


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
        return claims_in(self._driven)

    @cached_property
    def docids(self) -> set[str]:
        """The docids of all items."""
        return {item.docid for _ in range(2) for _, item in names.items(self.queue)}

    @cached_property
    def upstream(self) -> tuple[set[str], set[str]] | None:
        """The N of every claim in the queues that feed this one, and the drivers that registered
        there; None where one of them cannot be read."""
        claims, drivers = set(self.claims), set[str]()
        for path in read_feeds(self.queue):
            if path is None:
                return None
            try:
                with Directory.open(path) as feed:
                    claims |= claims_in(feed)
                    with suppress(FileNotFoundError), feed.subdirectory(_inside(DRIVERS)) as known:
                        drivers |= registered_ids(known)
            except OSError:
                return None
        return claims, drivers


def claims_in(queue: Directory) -> set[str]:
    """Return the N of every claim in a queue, by two listings."""
    return {item.token for _ in range(2) for _, item in names.claims(queue.names())}


# Excuses


def _never(_swept: Swept, _where: Directory, _name: str) -> bool:
    return False


def _plan_is_wanted(swept: Swept, _where: Directory, name: str) -> bool:
    return planned_by(name) in swept.claims


def _attempt_is_wanted(swept: Swept, where: Directory, name: str) -> bool:
    file = parse(name)
    if file is None or file.docid in swept.docids:
        return True
    record = read_record(where, name, Record, MAX_RECORD)
    if record is None or not record.discarded_at or not record.attempts:
        return False
    # Not to see a document in `discarded/` proves nothing.
    with swept.queue.subdirectory(names.DISCARDED) as discarded:
        return not Attempts(where, discarded).is_reported(file, record.attempts[-1].token)


def _report_is_wanted(swept: Swept, where: Directory, name: str) -> bool:
    file = parse(name)
    if file is None or file.docid in swept.docids:
        return True
    with swept.queue.subdirectory(names.DISCARDED) as discarded:
        return any(one == file for _, one in interrupted(where, discarded))


def _has_claim_upstream(swept: Swept, _where: Directory, name: str) -> bool:
    item = names.parse(name)
    return swept.upstream is None or (item is not None and item.token in swept.upstream[0])


def _has_claim_or_is_a_strangers(swept: Swept, where: Directory, name: str) -> bool:
    item = names.parse(name)
    if item is None or _has_claim_upstream(swept, where, name) or swept.upstream is None:
        return True
    return names.parse_token(item.token).driver not in swept.upstream[1]


# The table


class Leftover(NamedTuple):
    """A row of the table."""

    kind: str
    # Which directory of a queue; "" is the queue itself.
    where: str
    # For how many seconds somebody may want it.
    kept: float
    # Whether a file is one, by its name.
    is_one: Callable[[str], object]
    # Whether it is wanted all the same.
    excuse: Callable[[Swept, Directory, str], bool]
    act: Literal["remove", "set aside"]
    # Its age is since it came here, not since it was written.
    by_arrival: bool = False

    @property
    def what(self) -> str:
        """Return what `check` says of one."""
        return _WHAT[self.kind]


def _is_scrap(name: str) -> bool:
    return name.startswith(SCRAPS)


_is_any = re.compile(r"(?s).+").fullmatch
_is_plan = re.compile(r"(?s)[^.].*\.json").fullmatch
_is_output = re.compile(rf"(?s).+\.{names.WRITING}(?:\..+)?").fullmatch

_WHAT = {
    "scrap": "a file that somebody began to write",
    "old-orphan": "an output that was moved aside, and nobody has asked for",
    "leftover-plan": "a plan of outputs whose claim is gone",
    "leftover-attempt": "what is remembered of a document that is nowhere in the queue",
    "leftover-incoming": "a document that was never quite submitted: submit it again",
    "late-output": "an output being written, and no queue that feeds this one knows of its claim",
}
# Of every queue that a driver reads from or writes to.
OF_ANY = (
    *(Leftover("scrap", one, DAY, _is_scrap, _never, "remove") for one in ("", names.PRIVATE)),
    Leftover(
        "old-orphan", ORPHANS_INSIDE, WEEK, _is_any, _has_claim_upstream, "remove", by_arrival=True
    ),
)
# Of a queue by its own drivers.
OF_DRIVEN = (
    *OF_ANY,
    *(
        Leftover("scrap", one, DAY, _is_scrap, _never, "remove")
        for one in (names.DISCARDED, *map(_inside, (DRIVERS, CLAIMS, FEEDS, ATTEMPTS)))
    ),
    Leftover("leftover-plan", _inside(CLAIMS), WEEK, _is_plan, _plan_is_wanted, "remove"),
    Leftover("leftover-attempt", _inside(ATTEMPTS), WEEK, parse, _report_is_wanted, "remove"),
    Leftover("leftover-incoming", _inside(INCOMING), DAY, _is_any, _never, "set aside"),
    Leftover("late-output", "", DAY, _is_output, _has_claim_upstream, "set aside"),
    Leftover("late-output", "", LATE, _is_output, _has_claim_or_is_a_strangers, "set aside"),
)
_WHERE = operator.attrgetter("where")
ENDED = Leftover("leftover-attempt", _inside(ATTEMPTS), 0.0, parse, _attempt_is_wanted, "remove")


def sweep(queue: Directory, others: Sequence[Directory]) -> None:
    """Sweep a queue, and what its drivers leave in the directories that they write to."""
    # Reports come beside their documents before any is taken for a leftover.
    with suppress(OSError), attempts_in(queue) as attempts:
        attempts.settle()
    for directory, rows in ((queue, OF_DRIVEN), *((other, OF_ANY) for other in others)):
        swept = Swept(directory, queue)
        for _, of_one_place in itertools.groupby(sorted(rows, key=_WHERE), _WHERE):
            with suppress(OSError):
                sweep_rows(swept, [*of_one_place])
    with suppress(OSError), queue.subdirectory(_inside(JOURNAL)) as journals:
        _sweep_journals(journals)


def sweep_rows(swept: Swept, rows: Sequence[Leftover], most: int | None = _NAMES) -> None:
    """Sweep the leftovers of some rows, all of one directory, among so many names; None: where the
    first may all stay."""
    with swept.queue.subdirectory(rows[0].where) as where:
        # Once: of a queue in which many wait it takes longer than all else.
        listed = list(itertools.islice(where.names(), most))
        if not rows[0].where:
            # In a queue nearly all wait, and no row is of those.
            listed = [name for name in listed if not name.endswith(".ready")]
        for row in rows:
            _sweep_row(swept, row, where, list(filter(row.is_one, listed)))


def _sweep_row(swept: Swept, row: Leftover, where: Directory, listed: Collection[str]) -> None:
    for name, age, _ in _aged(where, listed, by_arrival=row.by_arrival):
        # Another user's, in a sticky directory, is for that user to remove.
        with suppress(PermissionError, IsADirectoryError, FileNotFoundError, FileExistsError):
            if age < row.kept or row.excuse(swept, where, name):
                pass
            elif row.act == "remove":
                where.remove(name)
            else:
                # Under its own name: whoever publishes it after all looks for that.
                with swept.queue.subdirectory(ORPHANS_INSIDE, create=True) as orphans:
                    where.rename_new(name, name, orphans)


def _sweep_journals(directory: Directory) -> None:
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
