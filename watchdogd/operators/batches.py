"""Documents that an operator has put back together, and what became of each.

    .watchdogd/batches/<id>.json     which documents, by whom and when; written before the first is
                                     moved, and never changed

Which documents a batch has is settled when they are listed, before anybody confirms: each by its
queue, its name in `discarded/` and when it was discarded. One that arrives later is in none. What
became of them is not kept, but found in the queues and their journals whenever somebody asks; each
document is counted once.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Literal, NamedTuple, get_args

import msgspec

from queuedriver.claims.liveness import draw_salt
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, journal_path, read_events
from queuedriver.errors import NotFound
from queuedriver.format.records import MAX_RECORD, Event, encode, read_record
from queuedriver.format.settings import Settings, resolve
from queuedriver.operating import operations
from queuedriver.operating.document_view import results_of
from queuedriver.operating.operations import Result
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.operators.causes import Case, case_of
from watchdogd.pipeline.model import Pipeline, Stage

Kind = Literal["retry", "replay"]
# In the order in which they are told; the first three are always.
Fate = Literal[
    "through", "failed again", "waiting", "failed otherwise", "not put back", "not known"
]
FATES: tuple[Fate, ...] = get_args(Fate)
_ALWAYS = 3
# Older batches than so many are of no use to anybody.
_KEPT = 200
# By so many seconds the clocks of hosts may differ.
_CLOCKS = 3600.0
_NAME = re.compile(r"([0-9]{8}-[0-9]{6}-[0-9a-f]{4})\.json")
# Events with which a document has left its queue for its outputs.
_THROUGH = frozenset({"published", "finished", "recovered"})


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """One document of a batch, as it was listed."""

    # By its name in the pipeline.
    queue: str
    # As it was called in `discarded/`, or in the archive.
    docid: str
    # In seconds since the epoch; 0 where its report was lost, and of an archived one.
    discarded_at: float = 0.0
    # The group of what it had failed of; see causes.
    key: str = ""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Documents that are put back together."""

    version: int = 1
    id: str
    kind: Kind
    # When it was listed, in seconds since the epoch; by whom, and what was asked for, for people.
    at: float
    who: str
    words: str
    documents: tuple[Member, ...]

    @property
    def facts(self) -> dict[str, object]:
        """Return what there is to say of it, for programs, and how many documents are in it."""
        facts = {key: getattr(self, key) for key in ("id", "kind", "at", "who", "words")}
        return {**facts, "total": len(self.documents)}

    @property
    def queues(self) -> dict[str, list[Member]]:
        """Return the documents of each queue."""
        found: dict[str, list[Member]] = {}
        for one in self.documents:
            found.setdefault(one.queue, []).append(one)
        return found


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a batch: each document with its fate."""

    fates: tuple[tuple[Member, Fate], ...]

    @property
    def counts(self) -> dict[Fate, int]:
        """Return how many met each fate; all together are all documents of the batch."""
        counted = Counter(fate for _, fate in self.fates)
        return {fate: counted[fate] for fate in FATES}

    @property
    def told(self) -> dict[Fate, int]:
        """Return the counts that people are told: what nobody met only where it matters."""
        counts = enumerate(self.counts.items())
        return {fate: n for index, (fate, n) in counts if n or index < _ALWAYS}

    def as_json(self, batch: Batch) -> dict[str, object]:
        """Return what became of a batch for programs."""
        fates = [{"queue": one.queue, "docid": one.docid, "fate": fate} for one, fate in self.fates]
        return {**batch.facts, "counts": self.counts, "documents": fates}

    @property
    def words(self) -> str:
        """Return the counts in a line."""
        return ", ".join(f"{n:,} {fate}" for fate, n in self.told.items())


def as_json(pipeline: str, batches: Iterable[Batch]) -> dict[str, object]:
    """Return batches of a pipeline for programs."""
    return {"pipeline": pipeline, "batches": [one.facts for one in batches]}


# Form one


def of_cases(cases: Iterable[Case], who: str, words: str, now: float) -> Batch:
    """Return a batch of discarded documents that are to be tried again."""
    documents = (Member(one.queue, one.docid, one.discarded_at, one.key) for one in cases)
    return _batch("retry", who, words, now, documents)


def of_archived(stage: Stage, docids: Iterable[str], who: str, words: str, now: float) -> Batch:
    """Return a batch of archived documents that are to go through their stage once more."""
    return _batch("replay", who, words, now, (Member(stage.inputs[0], one) for one in docids))


def _batch(kind: Kind, who: str, words: str, now: float, documents: Iterable[Member]) -> Batch:
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{draw_salt()}"
    return Batch(id=name, kind=kind, at=now, who=who, words=words, documents=tuple(documents))


# Carry it out


def write(root: str, batch: Batch) -> None:
    """Write a batch down, before the first of its documents is moved."""
    with _opened(root, create=True) as directory:
        directory.write_aside(f"{batch.id}.json", encode(batch), durable=True)
        for one in sorted(filter(_NAME.fullmatch, directory.names()))[:-_KEPT]:
            directory.remove(one)


def put_back(queue: Queue, kind: Kind, members: Iterable[Member], journal: Journal) -> list[Result]:
    """Put the documents of one queue back; return what came of each."""
    if kind == "retry":
        seen = {one.docid: one.discarded_at for one in members}
        return operations.retry_seen(queue, seen, journal)
    with closing(archive_of(queue)) as archive:
        return operations.replay(queue, archive, [one.docid for one in members], journal)


def archive_of(queue: Queue) -> Directory:
    """Open where a queue keeps what went through it; NotFound where it keeps nothing."""
    settings = queue.settings()
    if settings is None or settings.archive is None:
        raise NotFound(
            f"{queue.path} has no archive, so what went through it is gone; give its stage "
            'archive = "DIR", and what goes through from then on is kept'
        )
    return Directory.open(resolve(queue.path, settings.archive))


# Keep it


def read(root: str, name: str) -> Batch:
    """Read the batch of an id; NotFound where there is none."""
    if _NAME.fullmatch(file := f"{name}.json"):
        with suppress(FileNotFoundError), _opened(root) as directory:
            if (batch := read_record(directory, file, Batch, MAX_RECORD)) is not None:
                return batch
    raise NotFound(f"no batch {name!r}; watchdogd batch lists those that there are")


def latest(root: str, most: int) -> Iterator[Batch]:
    """Read the batches, the newest first, and so many at most."""
    with suppress(FileNotFoundError), _opened(root) as directory:
        found = sorted(filter(_NAME.fullmatch, directory.names()), reverse=True)
        for one in found[:most]:
            if (batch := read_record(directory, one, Batch, MAX_RECORD)) is not None:
                yield batch


def _opened(root: str, *, create: bool = False) -> closing[Directory]:
    path = os.path.join(root, control.CONTROL, control.BATCHES)
    return closing(Directory.open(path, create=create, inside=2))


# What became of it


class Seen(NamedTuple):
    """All signs of one document that there are now."""

    # Whether it is in its queue, in whatever state.
    in_queue: bool = False
    # When it left its queue for its outputs last; 0 where no journal says that it did: a driver
    # writes down what it did when it is done with the document after it.
    through_at: float = 0.0
    # Its results are where they are published, or it is in the archive.
    has_results: bool = False
    # The one of its name in `discarded/`, if there is one.
    discarded: Case | None = None


def outcome(pipeline: Pipeline, batch: Batch) -> Outcome:
    """Find what became of each document."""
    fates: list[tuple[Member, Fate]] = []
    for name, members in batch.queues.items():
        # Others may have written the file, and mean directories that are no queues.
        stage = next((one.name for one in pipeline.stages if name in one.inputs), "")
        seen: dict[str, Seen] = {}
        if stage:
            with suppress(NotFound), Queue.open(pipeline.path(name)) as queue:
                seen = _look(queue, stage, batch, members)
        fates += [(one, fate_of(one, batch.at, seen.get(one.docid, Seen()))) for one in members]
    return Outcome(tuple(fates))


def fate_of(member: Member, at: float, seen: Seen) -> Fate:
    """Return what became of a document that was put back at an instant. Pure."""
    again = seen.discarded
    # An archived one has no key: it was not discarded.
    if again is not None and member.key and again.discarded_at == member.discarded_at:
        return "not put back"
    if seen.through_at > at:
        return "through"
    if seen.in_queue:
        return "waiting"
    if again is not None and again.discarded_at > (member.discarded_at or at):
        return "failed again" if again.key == member.key else "failed otherwise"
    # Hosts' clocks differ, but what left `discarded/` for its outputs did so afterwards. What was
    # replayed had been archived before.
    if member.key and (seen.has_results or seen.through_at > member.discarded_at > 0.0):
        return "through"
    return "not known"


def _look(queue: Queue, stage: str, batch: Batch, members: Sequence[Member]) -> dict[str, Seen]:
    """Look for documents in their queue, in `discarded/` and in its journal; return what there is
    by the names in the batch."""
    # In this order: what moves on meanwhile is seen where it was, or where it went.
    items = {item.docid for _, item in queue.items()}
    discarded = set(queue.each_discarded())
    events = read_events(journal_path(queue.path), batch.at - _CLOCKS).events
    called = _called(members, events)
    found = {one.docid: Seen() for one in members}
    for event in events:
        if event.event in _THROUGH and (docid := called.get(event.docid)):
            found[docid] = found[docid]._replace(through_at=event.at)
    for docid in {called[one] for one in items & called.keys()}:
        found[docid] = found[docid]._replace(in_queue=True)
    for place, report in queue.reports(places=discarded & called.keys()):
        case = case_of(stage, members[0].queue, place, report)
        seen = found[called[place]]
        if seen.discarded is None or seen.discarded.discarded_at < case.discarded_at:
            found[called[place]] = seen._replace(discarded=case)
    settings = queue.settings() or Settings()
    for docid, seen in found.items():
        if seen == Seen() and results_of(queue, docid, settings):
            found[docid] = Seen(has_results=True)
    return found


def _called(members: Iterable[Member], events: Iterable[Event]) -> dict[str, str]:
    """Return the names in a batch by those that its documents have had since: where a docid is
    taken, a document goes on under another."""
    called = {one.docid: one.docid for one in members}
    for event in events:
        if event.renamed and event.docid in called:
            called[event.renamed] = called[event.docid]
    return called
