"""The way of one document through all stages, under whatever names it had there.

An output may be published under another docid (`{docid}.xml.ready`), or be several; the journals of
the queues tell which, and so the way is followed in both directions from the name that is known.
"""

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

import msgspec

from queuedriver.claims.liveness import Observer
from queuedriver.disk.journal import journal_path, read_origins
from queuedriver.errors import CannotUse, NotFound
from queuedriver.format import names
from queuedriver.format.records import Event
from queuedriver.operating import document_view
from queuedriver.operating.document_view import DocumentView, docid_of, explain
from queuedriver.operating.queue import Queue
from watchdogd.operators.hosts import Chosen, read_controls
from watchdogd.pipeline.model import Pipeline, Stage

_READY = ".ready"
# Events with which a document begins to wait.
_WAITS = frozenset({"submitted", "failed", "released", "retried", "later"})

# The names that the document may have in each queue, and when it came there under that name; 0
# when that is not known, or it was submitted there.
_Known = dict[str, dict[str, float]]


class Stop(NamedTuple):
    """The document in one input queue of a stage."""

    stage: str
    queue: str
    document: DocumentView
    events: list[Event]
    arrived_at: float
    # Why it is where it is.
    why: str

    @property
    def steps(self) -> Iterator[tuple[Event, float]]:
        """Yield what happened, and how long it had waited before it was claimed; else 0."""
        waits_since = self.arrived_at
        for event in self.events:
            # Less than nothing is what comes of two hosts' clocks.
            waited = event.at - waits_since if event.event == "claimed" and waits_since else 0.0
            yield event, max(0.0, waited)
            if event.event in (*_WAITS, "claimed"):
                waits_since = event.at if event.event in _WAITS else 0.0

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        seen = self.document
        return {
            **{"stage": self.stage, "queue": self.queue, "docid": seen.docid},
            "arrived_at": self.arrived_at or None,
            "places": [place.as_json() for place in seen.places],
            **{"events": msgspec.to_builtins(self.events), "why": self.why},
        }


class End(NamedTuple):
    """One result of it, in a queue or a directory that no stage takes from."""

    queue: str
    name: str


class Route(NamedTuple):
    """One document as far as it is known: its stops along the stages, and its results."""

    docid: str
    stops: list[Stop]
    ends: list[End]

    @property
    def conclusion(self) -> str:
        """Return where it is now, in one line."""
        there = [stop for stop in self.stops if stop.document.places]
        places = [f"in stage {self._where(stop)}" for stop in there]
        for end in self.ends:
            waits = end.name.endswith(_READY)
            what = f"{end.name} waits to be collected" if waits else f"the file {end.name}"
            places.append(f"through, in {end.queue}: {what}")
        if not places:
            places = [f"last seen in stage {self._where(self.stops[-1])}"]
        return f"{self.docid}: {'; and '.join(places)}"

    def _where(self, stop: Stop) -> str:
        docid = stop.document.docid
        return f"{stop.stage}{'' if docid == self.docid else f' as {docid}'}: {stop.why}"

    def as_json(self, pipeline: str) -> dict[str, object]:
        """Return all of it for programs."""
        ends = [end._asdict() for end in self.ends]
        stops = [stop.as_json() for stop in self.stops]
        known = {"pipeline": pipeline, "docid": self.docid, "stops": stops}
        return {**known, "ends": ends, "why": self.conclusion}


def follow(chosen: Chosen, text: str) -> Route:
    """Return the way of the document that somebody means; NotFound when nobody knows of it."""
    found = _route(chosen, docid_of(text))
    if not any(map(_is_sure, found.stops)) and (longer := _extended(chosen.pipeline, found.docid)):
        other = _route(chosen, longer)
        # A result may be called as asked, and be of another document.
        found = other if set(found.ends) <= set(other.ends) else found
    if not found.stops and not found.ends:
        raise NotFound(f"no document {found.docid!r} is or was in any queue of {chosen.given}")
    return found


def _extended(pipeline: Pipeline, docid: str) -> str:
    """Return the docid that is this one with an extension, in the first queue that knows of one."""
    for name in pipeline.queues:
        with suppress(NotFound, CannotUse), Queue.open(pipeline.path(name)) as queue:
            if longer := document_view.extended(queue, docid):
                return longer
    return ""


# Look


def _route(chosen: Chosen, docid: str) -> Route:
    """Look for a document everywhere."""
    pipeline = chosen.pipeline
    far = layers([(one.inputs, one.outputs) for one in pipeline.stages])
    # Each stage after those that bring it documents; else as the file has them.
    order = [one for _, one in sorted(zip(far, pipeline.stages, strict=True), key=itemgetter(0))]
    known: _Known = {queue: {docid: 0.0} for queue in pipeline.queues}
    for stage in reversed(order):
        _look_back(pipeline, stage, known)
    stops = []
    for stage in order:
        for queue in stage.inputs:
            for stop in _stops(chosen, stage, queue, known[queue]):
                stops.append(stop)
                for name, at in _published(stop):
                    for output in stage.outputs:
                        known[output][name] = known[output].get(name) or at
    ends = [end for queue in pipeline.results for end in _ends(pipeline, queue, known[queue])]
    return Route(docid, stops, ends)


def layers(ways: Sequence[tuple[Collection[str], Collection[str]]]) -> list[int]:
    """Return the length of the longest way to each stage, of which the inputs and the outputs are
    given; a circle, as of stages that still run and those of the file, is cut somewhere."""
    # The same of queues: beyond the stages that fill them.
    far: dict[str, int] = {}

    def layer(takes: Iterable[str]) -> int:
        return max((far.get(queue, 0) for queue in takes), default=0)

    for _ in ways:
        for takes, brings in ways:
            far |= {queue: max(far.get(queue, 0), layer(takes) + 1) for queue in brings}
    return [layer(takes) for takes, _ in ways]


def _look_back(pipeline: Pipeline, stage: Stage, known: _Known) -> None:
    """Find under which names came what this stage published under a name that is known."""
    published = [name for output in stage.outputs for name in known[output]]
    for queue in stage.inputs:
        journal = journal_path(pipeline.path(queue))
        for name in published:
            for file in (name, name + _READY):
                for event in read_origins(journal, file).events:
                    known[queue].setdefault(event.docid, 0.0)


def _stops(chosen: Chosen, stage: Stage, queue: str, docids: Mapping[str, float]) -> list[Stop]:
    """Return what a queue knows of the document under any of its names there."""
    found: list[Stop] = []
    observer = Observer()
    with suppress(NotFound), Queue.open(chosen.pipeline.path(queue)) as opened:
        ahead = list(docids)
        for docid in ahead:
            seen = document_view.gather(opened, docid, observer)
            if seen.unknown or (seen.foreign and not seen.journal.events):
                continue
            events = [one for one in document_view.history(seen) if one.docid == docid]
            why = _reason(chosen, stage, seen)
            found.append(Stop(stage.name, queue, seen, events, docids.get(docid, 0.0), why))
            # It goes on under another docid here, because its own was taken.
            ahead += [one.renamed for one in events if one.renamed and one.renamed not in ahead]
    # Any name leads to a file that would be that of another with which it shares a stem.
    sure = [one for one in found if _is_sure(one)]
    return sure or found


def _is_sure(stop: Stop) -> bool:
    """Look whether more than the name of a result says that the document was there."""
    return bool(stop.document.places or stop.document.attempts or stop.events)


def _reason(chosen: Chosen, stage: Stage, seen: DocumentView) -> str:
    """Return why it is where it is: in the queue's own words, but for what a watchdog is asked."""
    paused = seen.waits and read_controls(chosen.pipeline.root).paused
    if paused or (seen.waits and seen.around.paused):
        resume = chosen.command("resume" if paused else f"resume {stage.name}")
        return f"paused: nothing is claimed before {resume}"
    if seen.waits and not seen.around.quit and not seen.around.living:
        if chosen.hosts.alive:
            return "no driver of its stage is alive; see " + chosen.command("status")
        return f"no watchdog runs, and no driver of its stage; start it with {chosen.start}"
    return explain(seen, chosen.command(shlex.join(("retry", stage.name, seen.docid))))


def _published(stop: Stop) -> Iterator[tuple[str, float]]:
    """Yield the names under which it went on, and when."""
    for event in stop.events:
        for name in event.outputs or ():
            yield name.removesuffix(_READY), event.at
    for path in stop.document.found:
        yield os.path.basename(path).removesuffix(_READY), 0.0


def _ends(pipeline: Pipeline, queue: str, docids: Mapping[str, float]) -> Iterator[End]:
    with suppress(NotFound, CannotUse), Queue.open(pipeline.path(queue)) as opened:
        for docid in docids:
            for name in (docid + _READY, docid):
                if names.objection(docid) is None and opened.directory.present(name):
                    yield End(queue, name)
