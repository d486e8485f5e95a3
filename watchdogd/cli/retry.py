"""`retry`: let what was discarded be tried again, wherever in the pipeline that was."""

import os
from collections.abc import Sequence

from queuedriver.cli.arguments import confirm, opened
from queuedriver.cli.docids import by_glob, is_meant, matching, meant
from queuedriver.cli.operate import noting, report_refusals
from queuedriver.cli.render import write_json
from queuedriver.cli.words import argument, flag
from queuedriver.errors import NotFound
from queuedriver.format.units import format_count
from queuedriver.operating import operations
from queuedriver.operating.operations import Result
from watchdogd.cli.pipeline_argument import PIPELINE_FILE, Chosen, choose, nearest_first
from watchdogd.pipeline.model import Stage

# Of several queues the one that did most for a document speaks for all.
_RANK = ("done", "refused", "nothing to do", "missing")


def retry(
    what: list[str] | None = argument(
        "[STAGE] [DOCID... | -]",
        "A stage, else all; the documents, else all that were discarded. -: the docids "
        "on stdin, one a line.",
    ),
    yes: bool = flag("Do not ask."),
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
    stages = (stage,) if stage is not None else chosen.pipeline.stages
    docids = words[1:] if stage is not None else words
    if docids:
        found = _retry(chosen, stages, meant(docids), stage, yes)
    else:
        found = _retry_all(chosen, stages, stage, yes)
    code = report_refusals([result for _, result in found])
    if as_json:
        documents = [{"queue": queue, **result._asdict()} for queue, result in found]
        write_json({"pipeline": chosen.pipeline.name, "documents": documents})
    return code


def _queues(chosen: Chosen, stages: Sequence[Stage]) -> list[str]:
    return list(dict.fromkeys(chosen.pipeline.path(one) for it in stages for one in it.inputs))


def _retry(
    chosen: Chosen, stages: Sequence[Stage], docids: list[str], stage: Stage | None, yes: bool
) -> list[tuple[str, Result]]:
    """Retry those named, in whichever of the queues they are."""
    best: dict[str, tuple[str, Result]] = {}
    named = {path: _named_in(path, docids) for path in _queues(chosen, stages)}
    every = [docid for there in named.values() for docid in there]
    if every and by_glob(docids, every):
        confirm(f"retry {format_count(len(every), 'document')} of {chosen.given}", yes)
    for path, there in named.items():
        for result in _retry_in(path, there):
            before = best.get(result.docid)
            if before is None or _RANK.index(result.came) < _RANK.index(before[1].came):
                best[result.docid] = (path, result)
    where = f"stage {stage.name}" if stage is not None else f"any stage of {chosen.given}"
    for docid in docids:
        if not any(is_meant(docid, one) for one in best):
            words = f"no {docid!r} in {where}"
            if stage is None:
                words += f"; its stages are: {_stages(chosen, docid)}"
            best[docid] = ("", Result(docid, "missing", words))
    return list(best.values())


def _stages(chosen: Chosen, word: str) -> str:
    return ", ".join(nearest_first(word, [one.name for one in chosen.pipeline.stages]))


def _named_in(path: str, docids: list[str]) -> list[str]:
    """Return the documents of a queue that were named; none where nothing has made it yet."""
    if not os.path.exists(path):
        return []
    with opened(path) as queue:
        known = dict.fromkeys((*queue.discarded(), *(one.docid for _, one in queue.items())))
    return [docid for docid in matching(docids, known) if docid in known]


def _retry_in(path: str, docids: list[str]) -> list[Result]:
    if not docids:
        return []
    with opened(path) as queue, noting(queue) as journal:
        return operations.retry(queue, docids, journal)


def _retry_all(
    chosen: Chosen, stages: Sequence[Stage], stage: Stage | None, yes: bool
) -> list[tuple[str, Result]]:
    """All that were discarded, once somebody said that it is meant."""
    given_up: dict[str, list[str]] = {}
    for path in _queues(chosen, stages):
        try:
            with opened(path) as queue:
                given_up[path] = queue.discarded()
        except NotFound:
            continue
    count = sum(len(docids) for docids in given_up.values())
    if not count:
        return []
    where = f"of stage {stage.name}" if stage is not None else f"of all stages of {chosen.given}"
    confirm(f"retry {format_count(count, 'discarded document')} {where}", yes)
    return [
        (path, result)
        for path, docids in given_up.items()
        if docids
        for result in _retry_in(path, docids)
    ]
