"""`trace`: the way of one document through all stages."""

import sys
from collections.abc import Iterator

from queuedriver.cli.arguments import AS_JSON
from queuedriver.cli.look import warn_of_gaps
from queuedriver.cli.render import Paint, escape_name, paint_for, write_json
from queuedriver.cli.words import argument
from queuedriver.format.records import describe_event
from queuedriver.format.units import format_duration
from watchdogd.cli.arguments import PIPELINE_FILE
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators.route import Route, follow


def trace(
    docid: str = argument("DOCID", "The document; the name of its file will do."),
    as_json: bool = AS_JSON,
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Tell of one document through all stages: when it came, who took it, what came of it.

    It may be called as in any of its stages. The last line says where it is now, and why.
    """
    chosen = choose(pipeline)
    found = follow(chosen, docid)
    if as_json:
        write_json(found.as_json(chosen.pipeline.name))
    else:
        for line in lines(found, paint_for(sys.stdout)):
            print(line)
    warn_of_gaps([stop.document.journal for stop in found.stops])


def lines(found: Route, paint: Paint) -> Iterator[str]:
    """Yield the way of a document, and where it is now."""
    for stop in found.stops:
        yield paint.head(escape_name(f"{stop.stage}, in {stop.queue}"))
        for event, waited in stop.steps:
            after = f", after it had waited {format_duration(waited)}" if waited else ""
            yield f"  {describe_event(event)}{after}"
        if not stop.events:
            yield "  its journal tells nothing of it"
    for end in found.ends:
        yield paint.head(escape_name(end.queue))
        yield f"  {escape_name(end.name)}"
    yield escape_name(found.conclusion)
