"""`trace`: one document through all stages, and where it is now."""

import sys
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from queuedriver.cli.docids import extended
from queuedriver.cli.program import say
from queuedriver.cli.render import Paint, escape_name, paint_for, write_json
from queuedriver.cli.showing import place_as_json
from queuedriver.cli.words import argument, flag
from queuedriver.errors import CannotUse, NotFound
from queuedriver.format.event import Event, describe
from queuedriver.format.units import format_count, format_duration
from queuedriver.operating.document_view import docid_of, explain
from queuedriver.operating.queue import Queue
from watchdogd.cli.hosts import read_controls
from watchdogd.cli.pipeline_argument import PIPELINE_FILE, Chosen, choose
from watchdogd.cli.route import End, Route, Stop, route
from watchdogd.pipeline.model import Pipeline

# Events with which a document begins to wait.
_WAITS = frozenset({"submitted", "failed", "released", "retried", "later"})


def trace(
    docid: str = argument("DOCID", "The document; the name of its file will do."),
    as_json: bool = flag("Print for programs.", "--json"),
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Tell of one document through all stages: when it came, who took it, what came of it.

    It may be called as in any of its stages. The last line says where it is now, and why.
    """
    chosen = choose(pipeline)
    found = route(chosen.pipeline, docid_of(docid))
    if not (found.stops or found.ends) and (longer := _extended(chosen.pipeline, found.docid)):
        found = route(chosen.pipeline, longer)
    if not found.stops and not found.ends:
        raise NotFound(f"no document {found.docid!r} is or was in any queue of {chosen.given}")
    paused = read_controls(chosen.pipeline.root).paused
    reasons = [reason_of(stop, chosen, paused) for stop in found.stops]
    last = conclusion(found, reasons)
    if as_json:
        write_json({"pipeline": chosen.pipeline.name, **_as_json(found, reasons, last)})
    else:
        for line in _lines(found, paint_for(sys.stdout)):
            print(line)
        print(escape_name(last))
    _confess(found)


def _extended(pipeline: Pipeline, docid: str) -> str:
    """Return the docid that is this one with an extension, in the first queue that knows of one."""
    for name in pipeline.queues:
        with suppress(NotFound, CannotUse), Queue.open(pipeline.path(name)) as queue:
            if longer := extended(queue, docid):
                return longer
    return ""


def _lines(found: Route, paint: Paint) -> Iterator[str]:
    for stop in found.stops:
        yield paint.head(escape_name(f"{stop.stage}, in {stop.queue}"))
        for event, waited in with_waits(stop):
            after = f", after it had waited {format_duration(waited)}" if waited else ""
            yield f"  {describe(event)}{after}"
        if not stop.events:
            yield "  its journal tells nothing of it"
    for end in found.ends:
        yield paint.head(escape_name(end.queue))
        yield f"  {escape_name(end.name)}"


def with_waits(stop: Stop) -> Iterator[tuple[Event, float]]:
    """The events of a stop; with each claim, how long the document had waited for it."""
    since = stop.arrived_at
    for event in stop.events:
        waited = event.at - since if event.event == "claimed" and since else 0.0
        # Less than nothing is what comes of two hosts' clocks.
        yield event, max(waited, 0.0)
        if event.event in _WAITS:
            since = event.at
        elif event.event == "claimed":
            since = 0.0


def reason_of(stop: Stop, chosen: Chosen, paused: bool) -> str:
    """Why it is where it is: the queue's own words, but for what a watchdog is asked about."""
    seen = stop.document
    if not seen.waits:
        return explain(seen)
    if paused or seen.around.paused:
        return f"paused: nothing is claimed before {_resume(stop, chosen, paused)}"
    if not seen.around.quit and not seen.around.living:
        if chosen.hosts.alive:
            return "no driver of its stage is alive; see " + chosen.command("status")
        return f"no watchdog runs, and no driver of its stage; start it with {chosen.start}"
    return explain(seen)


def _resume(stop: Stop, chosen: Chosen, paused: bool) -> str:
    return chosen.command("resume" if paused else f"resume {stop.stage}")


def conclusion(found: Route, reasons: list[str]) -> str:
    """Where it is now, in one line."""
    places = [
        f"in stage {stop.stage}{_called(stop, found)}: {reason}"
        for stop, reason in zip(found.stops, reasons, strict=True)
        if stop.document.places
    ]
    places += [f"through, in {end.queue}: {_ending(end)}" for end in found.ends]
    if not places:
        stop, reason = found.stops[-1], reasons[-1]
        places = [f"last seen in stage {stop.stage}{_called(stop, found)}: {reason}"]
    return f"{found.docid}: {'; and '.join(places)}"


def _called(stop: Stop, found: Route) -> str:
    return "" if stop.document.docid == found.docid else f" as {stop.document.docid}"


def _ending(end: End) -> str:
    if end.name.endswith(".ready"):
        return f"{end.name} waits to be collected"
    return f"the file {end.name}"


def _as_json(found: Route, reasons: list[str], last: str) -> dict[str, object]:
    return {
        "docid": found.docid,
        "stops": [
            {
                "stage": stop.stage,
                "queue": stop.queue,
                "docid": stop.document.docid,
                "arrived_at": stop.arrived_at or None,
                "places": [place_as_json(place) for place in stop.document.places],
                "events": msgspec.to_builtins(stop.events),
                "why": reason,
            }
            for stop, reason in zip(found.stops, reasons, strict=True)
        ],
        "ends": [end._asdict() for end in found.ends],
        "why": last,
    }


def _confess(found: Route) -> None:
    """What of the journals could not be read, so that nobody takes silence for a fact."""
    for path in sorted({path for stop in found.stops for path in stop.document.journal.unreadable}):
        say(f"{path} could not be read")
    if skipped := max((stop.document.journal.skipped for stop in found.stops), default=0):
        say(f"damaged and left out: {format_count(skipped, 'line')} of a journal")
