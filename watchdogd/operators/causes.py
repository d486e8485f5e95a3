"""Discarded documents by what they failed of: the groups that people act on.

Documents are of one group when they failed in one stage and in one way, with one exception, one
message but for numbers, quoted names and paths, and in one function of the user's code. What that
is `outcomes.cause_key` decides, here as for a stage that stops itself.
"""

import heapq
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import NamedTuple

import msgspec

from queuedriver.claims.outcomes import cause_key, first_line
from queuedriver.errors import NotFound
from queuedriver.format import names
from queuedriver.format.records import Failure, Report
from queuedriver.format.units import format_duration, visible
from queuedriver.operating.queue import Queue
from watchdogd.pipeline.model import Pipeline, Stage

# In each key: raised when documents are grouped otherwise than before, so that a key that somebody
# noted down then is known to be an old one.
VERSION = 1
_DIGITS = 10
# Of each group so many documents are named.
_NAMED = 3
# In so many equal times is told how many there were.
_TIMES = 24
# No clock shows a later instant; a report may say any.
_NEVER = 1e12
# Of what was said against each of thousands so much is kept, in characters.
_SHOWN = 400
# Of a document whose report is lost.
_NO_REPORT = Failure(cause="no-report", message="its report is missing")

# So many reports are read in a second or two.
MOST = 10_000


class Case(msgspec.Struct, frozen=True):
    """A discarded document, and why it was."""

    stage: str
    # By its name in the pipeline.
    queue: str
    # As it is called in `discarded/`.
    docid: str
    # In seconds since the epoch; with the docid it says which document of that name this is. 0
    # where the report is lost.
    discarded_at: float
    cause: str
    # What it has in common with all of its group.
    common: str
    # The first line of what was said against it.
    message: str
    # That of its group.
    key: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Discarded documents of one stage that failed of one thing."""

    key: str
    stage: str
    cause: str
    common: str
    # What was said against the newest, with its numbers and names.
    message: str
    count: int
    # When the first and the last of them were discarded, in seconds since the epoch.
    first_at: float
    last_at: float
    # The newest first.
    docids: tuple[str, ...]


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The discarded documents of some stages that were asked for, and their groups."""

    # The newest first.
    cases: tuple[Case, ...]
    # The largest first.
    groups: tuple[Group, ...]
    # How many documents were looked at, the newest there are, and how many there are in all.
    read: int
    total: int

    @property
    def words(self) -> str:
        """Return over how many documents this is: never silently over a part."""
        if self.read < self.total:
            return f"grouped over the latest {self.read:,} of {self.total:,}"
        return f"grouped over all {self.total:,}"

    def as_json(self, pipeline: str) -> dict[str, object]:
        """Return it for programs: how much of it there is, the groups and the documents."""
        facts = {"total": self.total, "read": self.read, "matching": len(self.cases)}
        return {"pipeline": pipeline, **facts, "groups": self.groups, "documents": self.cases}

    def of_group(self, key: str) -> tuple[Case, ...]:
        """Return the documents of one group."""
        return tuple(one for one in self.cases if one.key == key)


def case_of(stage: str, queue: str, docid: str, report: Report | None) -> Case:
    """Return one discarded document with the key of its group."""
    failure = report.failure if report is not None else _NO_REPORT
    # Thousands have the same.
    common = sys.intern(cause_key(failure))
    at = report.discarded_at if report is not None else 0.0
    key = group_key(stage, common)
    return Case(stage, queue, docid, at, failure.cause, common, first_line(failure)[:_SHOWN], key)


@lru_cache(maxsize=1024)
def group_key(stage: str, common: str) -> str:
    """Return what a group is called: the same wherever and whenever its documents are looked at."""
    # Late: only who looks at what was discarded needs it.
    from hashlib import blake2b

    text = f"{stage}\0{common}".encode(errors="backslashreplace")
    return f"{VERSION}-{blake2b(text).hexdigest()[:_DIGITS]}"


def says(docid: str, report: Report | None, cause: str, text: str) -> bool:
    """Return whether a document failed of this cause, and the text is in its docid or in what its
    report says, in capitals or not; empty ones ask for nothing."""
    failure = report.failure if report is not None else _NO_REPORT
    if cause and cause != failure.cause:
        return False
    said = (docid, failure.message, failure.traceback, failure.stderr_tail)
    return not text or any(text.casefold() in one.casefold() for one in said if one)


def survey_of(cases: Iterable[Case], read: int, total: int) -> Survey:
    """Group documents."""
    newest = sorted(cases, key=lambda one: one.discarded_at, reverse=True)
    members: dict[str, list[Case]] = {}
    for one in newest:
        members.setdefault(one.key, []).append(one)
    groups = sorted(map(_group, members.values()), key=lambda one: (-one.count, -one.last_at))
    return Survey(cases=tuple(newest), groups=tuple(groups), read=read, total=total)


def trends(survey: Survey) -> dict[str, list[float]]:
    """Return how many documents of each group were discarded in each of some equal times, from the
    first to the last of all."""
    known = [one for one in survey.cases if 0.0 < one.discarded_at < _NEVER]
    first = min((one.discarded_at for one in known), default=0.0)
    each = (max((one.discarded_at for one in known), default=0.0) - first) / _TIMES or 1.0
    found = {one.key: [0.0] * _TIMES for one in survey.groups}
    for one in known:
        found[one.key][min(int((one.discarded_at - first) / each), _TIMES - 1)] += 1
    return found


def _group(members: Sequence[Case]) -> Group:
    newest = members[0]
    shared = ("key", "stage", "cause", "common", "message")
    return Group(
        **{name: getattr(newest, name) for name in shared},
        count=len(members),
        first_at=members[-1].discarded_at,
        last_at=newest.discarded_at,
        docids=tuple(one.docid for one in members[:_NAMED]),
    )


# What there is, the newest first, and not more of it than is asked for


class Wanted(NamedTuple):
    """A choice among what was discarded; None: all."""

    cause: str | None = None
    # It is in the docid, or in what the report says, in capitals or not.
    text: str | None = None
    group: str | None = None
    docid: str | None = None
    # Seconds until now.
    since: float | None = None

    @property
    def words(self) -> str:
        """Return what is said of it after what it is a choice of."""
        said = dict(zip(self._fields[:-1], self[:-1], strict=True))
        words = "".join(f", {key} {visible(one)}" for key, one in said.items() if one)
        last = "" if self.since is None else f", in the last {format_duration(self.since)}"
        return words + last


_ALL = Wanted()


def survey(
    pipeline: Pipeline, stages: Iterable[Stage] = (), wanted: Wanted = _ALL, most: int | None = MOST
) -> Survey:
    """Group what some stages have discarded, or all, and somebody wants. `most` of it is read, the
    newest; None: all there is."""
    began_at = time.time() - wanted.since if wanted.since is not None else 0.0
    # Each queue once, with the first stage that takes from it.
    stage_of = {
        queue: one.name for one in [*(stages or pipeline.stages)][::-1] for queue in one.inputs
    }
    queues: dict[str, Queue] = {}
    with ExitStack() as opened:
        for name in sorted(stage_of):
            # One that is not made yet has discarded nothing.
            with suppress(NotFound):
                queues[name] = opened.enter_context(Queue.open(pipeline.path(name)))
        every = [
            (name, one)
            for name, queue in queues.items()
            for one in queue.each_discarded()
            if wanted.docid in (None, one)
        ]
        latest = every
        if most is not None and len(every) > most:
            latest = heapq.nlargest(
                most, every, key=lambda one: _discarded_at(queues[one[0]], one[1])
            )
        cases = [
            case
            for name, queue in queues.items()
            for docid, report in queue.reports(places=[one for at, one in latest if at == name])
            # One that has left since it was listed has no report either.
            if (report or queue.directory.present(os.path.join(names.DISCARDED, docid)))
            and says(docid, report, wanted.cause or "", wanted.text or "")
            and (case := case_of(stage_of[name], name, docid, report))
            and case.discarded_at >= began_at
            and wanted.group in (None, case.key)
        ]
    return survey_of(cases, len(latest), len(every))


def _discarded_at(queue: Queue, docid: str) -> float:
    """Return about when a document was discarded: when its report was written, which is not read
    for that."""
    for name in (docid + names.REPORT, docid):
        with suppress(FileNotFoundError):
            return queue.directory.status(os.path.join(names.DISCARDED, name)).st_mtime
    return 0.0
