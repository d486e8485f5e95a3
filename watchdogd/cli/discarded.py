"""`discarded`: every document that a pipeline discarded, with the reason in a line."""

import sys
import time
from collections.abc import Iterator

from queuedriver.cli.render import paint_for, write_json
from queuedriver.cli.showing import DISCARDED, HEAD, line, line_as_json
from queuedriver.cli.words import argument, flag
from queuedriver.errors import NotFound
from queuedriver.operating.document_view import Place, list_places
from queuedriver.operating.queue import Queue
from watchdogd.cli.pipeline_argument import PIPELINE_FILE, Chosen, choose, stage_named

_STAGE = "{:<16}  {}"


def discarded(
    stage: list[str] | None = argument("[STAGE]...", "Only of these; else of all."),
    as_json: bool = flag("Print JSON, one a line.", "--json"),
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """List what was discarded, stage by stage, each document with the reason in a line.

    `trace` tells all of one of them, and `retry` lets them be tried again.
    """
    chosen = choose(pipeline)
    now = time.time()
    for index, (name, queue, place) in enumerate(_places(chosen, stage or [])):
        if as_json:
            write_json({"stage": name, "queue": queue, **line_as_json(place)}, indent=None)
            continue
        if not index:
            print(paint_for(sys.stdout).head(_STAGE.format("STAGE", HEAD)))
        print(_STAGE.format(name, line(place, now)))


def _places(chosen: Chosen, only: list[str]) -> Iterator[tuple[str, str, Place]]:
    stages = [stage_named(chosen, name) for name in only] or chosen.pipeline.stages
    for stage in stages:
        for name in stage.inputs:
            try:
                queue = Queue.open(chosen.pipeline.path(name))
            except NotFound:
                # Nothing has made the queue yet.
                continue
            with queue:
                for place in list_places(queue, (DISCARDED,)):
                    yield stage.name, name, place
