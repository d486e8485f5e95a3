"""Reads what a pipeline has discarded, the newest first, and not more of it than is asked for."""

import heapq
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

from queuedriver.errors import NotFound
from queuedriver.format import names
from queuedriver.format.units import format_duration, visible
from queuedriver.operating.document_view import Place, list_places
from queuedriver.operating.queue import Queue
from watchdogd.operators.causes import Case, Survey, case_of, says, survey_of
from watchdogd.pipeline.model import Pipeline, Stage

# So many reports are read in a second or two.
MOST = 10_000
_STATES = ("discarded",)


class _Source(NamedTuple):
    """An open queue, its name in the pipeline, and the stage that takes from it."""

    stage: str
    name: str
    queue: Queue


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
    with ExitStack() as opened:
        sources = list(_sources(pipeline, stages or pipeline.stages, opened))
        every = [(source, docid) for source in sources for docid in source.queue.each_discarded()]
        latest = every
        if most is not None and len(every) > most:
            latest = heapq.nlargest(
                most, every, key=lambda one: _discarded_at(one[0].queue, one[1])
            )
        cases = [
            case
            for source in sources
            for place in _read(source.queue, [docid for one, docid in latest if one is source])
            if says(place.docid, place.report, wanted.cause or "", wanted.text or "")
            and (case := case_of(source.stage, source.name, place.docid, place.report))
            and case.discarded_at >= began_at
            and wanted.group in (None, case.key)
            and wanted.docid in (None, case.docid)
        ]
    return survey_of(cases, len(latest), len(every))


def places_of(pipeline: Pipeline, cases: Iterable[Case]) -> Iterator[tuple[Case, Place]]:
    """Yield discarded documents with all that is known of each; none that has left meanwhile."""
    for case in cases:
        with suppress(NotFound), Queue.open(pipeline.path(case.queue)) as queue:
            for place in _read(queue, [case.docid]):
                yield case, place


def _sources(pipeline: Pipeline, stages: Iterable[Stage], opened: ExitStack) -> Iterator[_Source]:
    """Yield each queue once, with the first stage that takes from it; none that is not made yet."""
    stage_of = {queue: one.name for one in reversed(list(stages)) for queue in one.inputs}
    for name, stage in sorted(stage_of.items()):
        with suppress(NotFound):
            queue = opened.enter_context(Queue.open(pipeline.path(name)))
            yield _Source(stage, name, queue)


def _read(queue: Queue, docids: Iterable[str]) -> Iterator[Place]:
    """Yield those that are there."""
    return (one for one in list_places(queue, _STATES, docids) if one.size is not None)


def _discarded_at(queue: Queue, docid: str) -> float:
    """Return about when a document was discarded: when its report was written, which is not read
    for that."""
    for name in (docid + names.REPORT, docid):
        with suppress(FileNotFoundError):
            return queue.directory.status(os.path.join(names.DISCARDED, name)).st_mtime
    return 0.0
