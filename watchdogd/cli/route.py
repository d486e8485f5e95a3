"""The way of one document through all stages of a pipeline, under whatever names it had there.

An output may be published under another docid (`{docid}.xml.ready`), or be several; the journals of
the queues tell which, and so the way is followed in both directions from the name that is known.
"""

import graphlib
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from queuedriver.claims.liveness import Observer
from queuedriver.errors import CannotUse, NotFound
from queuedriver.format import names
from queuedriver.format.event import Event
from queuedriver.format.names import JOURNAL
from queuedriver.operating.document_view import DocumentView, gather, history
from queuedriver.operating.history import read_origins
from queuedriver.operating.queue import Queue
from watchdogd.pipeline.model import Pipeline, Stage

_READY = ".ready"


class Stop(NamedTuple):
    """The document in one input queue of a stage."""

    stage: str
    queue: str
    document: DocumentView
    events: list[Event]
    # When it was published into this queue; 0 when that is not known, or it was submitted here.
    arrived_at: float


class End(NamedTuple):
    """What came of it, in a queue or a directory that no stage takes from."""

    queue: str
    name: str


class Route(NamedTuple):
    """All that is known of it: along the stages, and what came out."""

    docid: str
    stops: list[Stop]
    ends: list[End]


def route(pipeline: Pipeline, docid: str) -> Route:
    """Look for the document everywhere."""
    order = in_order(pipeline.stages)
    # The names it may have in each queue, and when it came there under that name.
    known: dict[str, dict[str, float]] = {queue: {docid: 0.0} for queue in pipeline.queues}
    for stage in reversed(order):
        _look_back(pipeline, stage, known)
    stops = []
    observer = Observer()
    for stage in order:
        for queue in stage.inputs:
            for stop in _likely(_stops(pipeline, stage, queue, known[queue], observer)):
                stops.append(stop)
                for name, at in _published(stop):
                    for output in stage.outputs:
                        known[output].setdefault(name, at)
                        known[output][name] = known[output][name] or at
    ends = [end for queue in pipeline.results for end in _ends(pipeline, queue, known[queue])]
    return Route(docid, stops, ends)


def in_order(stages: tuple[Stage, ...]) -> list[Stage]:
    """Each stage after those that bring it documents; else as the file has them."""
    feeders = {
        stage.name: [other.name for other in stages if set(other.outputs) & set(stage.inputs)]
        for stage in stages
    }
    found = list(graphlib.TopologicalSorter(feeders).static_order())
    return sorted(stages, key=lambda stage: found.index(stage.name))


def _look_back(pipeline: Pipeline, stage: Stage, known: dict[str, dict[str, float]]) -> None:
    """Under which names came what this stage published under a name that is known?"""
    for output in stage.outputs:
        for name in list(known[output]):
            for queue in stage.inputs:
                journal = os.path.join(pipeline.path(queue), names.PRIVATE, JOURNAL)
                for published in (name, name + _READY):
                    for event in read_origins(journal, published).events:
                        known[queue].setdefault(event.docid, 0.0)


def _stops(
    pipeline: Pipeline, stage: Stage, queue: str, docids: dict[str, float], observer: Observer
) -> Iterator[Stop]:
    try:
        opened = Queue.open(pipeline.path(queue))
    except NotFound:
        return
    with opened:
        ahead = list(docids)
        for docid in ahead:
            document = gather(opened, docid, observer)
            if document.unknown or (document.foreign and not document.journal.events):
                continue
            events = [one for one in history(document) if one.docid == docid]
            yield Stop(stage.name, queue, document, events, docids.get(docid, 0.0))
            # It goes on under another docid here, because its own was taken.
            ahead += [one.renamed for one in events if one.renamed and one.renamed not in ahead]


def _likely(stops: Iterable[Stop]) -> list[Stop]:
    """Without those of which there is nothing but a file that would be theirs, as any name leads to
    that with which they share a stem; unless there is nothing better."""
    found = list(stops)
    sure = [one for one in found if one.document.places or one.document.attempts or one.events]
    return sure or found


def _published(stop: Stop) -> Iterator[tuple[str, float]]:
    """The names under which it went on, and when."""
    for event in stop.events:
        for name in event.outputs or ():
            yield name.removesuffix(_READY), event.at
    for path in stop.document.found:
        yield os.path.basename(path).removesuffix(_READY), 0.0


def _ends(pipeline: Pipeline, queue: str, docids: dict[str, float]) -> Iterator[End]:
    try:
        opened = Queue.open(pipeline.path(queue))
    except (NotFound, CannotUse):
        return
    with opened:
        for docid in docids:
            for name in (docid + _READY, docid):
                if names.objection(docid) is None and opened.directory.present(name):
                    yield End(queue, name)
