"""`discarded`, `retry`: what was discarded anywhere in a pipeline, and how it is tried again."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from queuedriver.cli.arguments import YES, confirm, opened
from queuedriver.cli.docids import by_glob, is_meant, matching, meant
from queuedriver.cli.operate import noting, report_refusals
from queuedriver.cli.render import paint_for, write_json
from queuedriver.cli.showing import DISCARDED, HEAD, line, line_as_json
from queuedriver.cli.words import argument, flag
from queuedriver.errors import NotFound
from queuedriver.format.units import format_count
from queuedriver.operating import operations
from queuedriver.operating.document_view import Place, list_places
from queuedriver.operating.operations import Result
from queuedriver.operating.queue import Queue
from watchdogd.cli.arguments import PIPELINE_FILE
from watchdogd.cli.pipeline_argument import choose, nearest_first, stage_named
from watchdogd.operators.hosts import Chosen

_STAGE = "{:<16}  {}"
# Of several queues the one that did most for a document speaks for all.
_RANK = ("missing", "nothing to do", "refused", "done")


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
    """Yield what each stage discarded, with its name and the queue's; nothing of what is not made
    yet."""
    for stage in [stage_named(chosen, name) for name in only] or chosen.pipeline.stages:
        for name in stage.inputs:
            with suppress(NotFound), Queue.open(chosen.pipeline.path(name)) as queue:
                for place in list_places(queue, (DISCARDED,)):
                    yield stage.name, name, place


def retry(
    what: list[str] | None = argument(
        "[STAGE] [DOCID... | -]",
        "A stage, else all; the documents, else all that were discarded. -: the docids "
        "on stdin, one a line.",
    ),
    yes: bool = YES,
    as_json: bool = flag("Print what came of each.", "--json"),
    pipeline: str | None = PIPELINE_FILE,
) -> int:
    """Let documents be tried again, as if they never had been.

    A discarded document goes back into the queue in which it failed, and its report away; one that
    has failed there, or is not due yet, waits as if it were new. The first word is a stage where
    one is called so, and else a document.

    Without documents: all that were discarded; needs --yes, or an answer on a terminal.
    """
    chosen = choose(pipeline)
    words = list(what or ())
    stage = chosen.pipeline.stage(words[0]) if words else None
    named = meant(words[1:] if stage else words) if words[bool(stage) :] else None
    stages = (stage,) if stage else chosen.pipeline.stages
    inputs = dict.fromkeys(chosen.pipeline.path(queue) for one in stages for queue in one.inputs)
    wanted = {path: _wanted(path, named) for path in inputs if os.path.exists(path)}
    every = [docid for docids in wanted.values() for docid in docids]
    where = f"stage {stage.name}" if stage else f"the stages of {chosen.given}"
    if every and (named is None or by_glob(named, every)):
        sort = "document" if named else "discarded document"
        confirm(f"retry {format_count(len(every), sort)} of {where}", yes)
    found = [(path, one) for path, docids in wanted.items() for one in _retry(path, docids)]
    if named is not None:
        found.sort(key=lambda one: _RANK.index(one[1].came))
        found = list({result.docid: (path, result) for path, result in found}.values())
    for docid in named or ():
        if not any(is_meant(docid, one) for one in every):
            nearest = nearest_first(docid, [one.name for one in chosen.pipeline.stages])
            there_are = "" if stage else f", which are: {', '.join(nearest)}"
            found.append(("", Result(docid, "missing", f"no {docid!r} in {where}{there_are}")))
    code = report_refusals([result for _, result in found])
    if as_json:
        documents = [{"queue": queue, **result._asdict()} for queue, result in found]
        write_json({"pipeline": chosen.pipeline.name, "documents": documents})
    return code


def _wanted(path: str, named: list[str] | None) -> list[str]:
    """Return the documents of a queue that are meant: those named, or all that were discarded."""
    with opened(path) as queue:
        discarded = queue.discarded()
        if named is None:
            return discarded
        known = dict.fromkeys((*discarded, *(item.docid for _, item in queue.items())))
    return [docid for docid in matching(named, known) if docid in known]


def _retry(path: str, docids: list[str]) -> list[Result]:
    if not docids:
        return []
    with opened(path) as queue, noting(queue) as journal:
        return operations.retry(queue, docids, journal)
