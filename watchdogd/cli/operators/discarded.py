"""`discarded`, `retry`, `batch`, `replay`: what was discarded, in groups by its cause; what is put
back, or went through and is sent through once more, and what became of that."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

from queuedriver.cli.arguments import AS_JSON, YES, confirm
from queuedriver.cli.operate import by_glob, is_meant, matching, meant, report_refusals
from queuedriver.cli.program import say
from queuedriver.cli.render import columns_of, escape_name, paint_for, table, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument, NotFound
from queuedriver.format.units import format_count, format_instant
from queuedriver.operating.operations import Result
from queuedriver.operating.queue import opened
from watchdogd.cli import screen
from watchdogd.cli.arguments import PIPELINE_FILE
from watchdogd.cli.pipeline_argument import choose, nearest_first, stage_named
from watchdogd.operators import actions, batches, causes
from watchdogd.operators.actions import Came
from watchdogd.operators.causes import Survey, Wanted
from watchdogd.operators.hosts import Chosen
from watchdogd.pipeline.model import Stage

# Of several queues the one that did most for a document speaks for all.
_RANK = ("missing", "nothing to do", "refused", "done")
# Of the batches there are so many are listed, and of what is to be put back so many are named.
_LISTED = 20
_NAMED = 20
_COLUMNS = ("BATCH", "WHEN", "WHO", "WHAT")

_CAUSE = option("CAUSE", "Only what failed by this cause, as in exception.")
_TEXT = option("TEXT", "Only what has this in its docid or report, in capitals or not.")
_GROUP = option("GROUP", "Only this group.")
_SINCE = option("TIME", "Only what was discarded in the last TIME, as 2h.")
_DRY_RUN = flag("Name what would be done; do nothing.")
_RESULTS = flag("Print what came of each.", "--json")


class How(NamedTuple):
    """The options of a command that changes many documents."""

    dry_run: bool
    yes: bool
    as_json: bool


def discarded(
    stage: list[str] | None = argument("[STAGE]...", "Only of these; else of all."),
    cause: str | None = _CAUSE,
    text: str | None = _TEXT,
    group: str | None = _GROUP,
    since: float | None = _SINCE,
    every: bool = flag("Read all, however many there are.", "--all"),
    as_json: bool = flag("Print JSON.", "--json"),
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Show what was discarded, in groups: what failed of one thing is one line.

    A group is what failed in one stage and in one function, with one exception and one message but
    for numbers, quoted names and paths. The largest is first, with its newest document. Of more
    than 10,000 documents the newest are read, unless it is --all. --group lists the documents of
    one, a line each; `trace` tells all of a document, `retry` lets a group be tried again.
    """
    chosen = choose(pipeline)
    most = None if every else causes.MOST
    stages = [stage_named(chosen, name) for name in stage or ()]
    found = _survey(chosen, stages, Wanted(cause, text, group, since=since), most)
    if as_json:
        write_json(found.as_json(chosen.pipeline.name))
    elif found.cases:
        now = time.time()
        wide, paint = columns_of(sys.stdout), paint_for(sys.stdout)
        if group is None:
            groups = [screen.group_cells(one, now) for one in found.groups]
            lines = screen.table(screen.CAUSE_COLUMNS, groups, wide, paint)
        else:
            cases = [screen.case_cells(one, now) for one in found.cases]
            lines = screen.table(screen.CASE_COLUMNS, cases, wide, paint)
        print("\n".join([*lines, found.words]))


def _survey(chosen: Chosen, stages: Sequence[Stage], wanted: Wanted, most: int | None) -> Survey:
    """Read what was discarded and is wanted; NotFound for a group that there is not."""
    found = causes.survey(chosen.pipeline, stages, wanted, most)
    if wanted.group is not None and not found.cases:
        why = "what was in it may have been tried again, or another version groups otherwise"
        see = chosen.command("discarded")
        raise NotFound(
            f"no group {wanted.group!r} is discarded in {chosen.given}: {why}; see {see}"
        )
    return found


# Retry


def retry(
    what: list[str] | None = argument(
        "[STAGE] [DOCID... | -]",
        "A stage, else all; the documents, else all that were discarded. -: the docids "
        "on stdin, one a line.",
    ),
    group: str | None = _GROUP,
    cause: str | None = _CAUSE,
    text: str | None = _TEXT,
    since: float | None = _SINCE,
    dry_run: bool = _DRY_RUN,
    yes: bool = YES,
    as_json: bool = _RESULTS,
    pipeline: str | None = PIPELINE_FILE,
) -> int:
    """Let documents be tried again, as if they never had been.

    A discarded document goes back into the queue in which it failed, and its report away; one that
    has failed there, or is not due yet, waits as if it were new. The first word is a stage where
    one is called so, and else a document.

    Without documents: all that were discarded, or a group of them, or those of a cause or with a
    text; needs --yes, or an answer on a terminal. Which these are is settled before it asks: what
    is discarded later stays. They are a batch: `batch` tells what became of them.
    """
    chosen = choose(pipeline)
    words = list(what or ())
    stage = chosen.pipeline.stage(words[0]) if words else None
    named = words[1:] if stage else words
    wanted, how = Wanted(cause, text, group, since=since), How(dry_run, yes, as_json)
    if named and wanted != Wanted():
        raise BadArgument("documents, or --group, --cause, --text and --since, but not both")
    where = f"stage {stage.name}" if stage else f"the stages of {chosen.given}"
    if named:
        return _retry_named(chosen, stage, meant(named), where, how)
    found = _survey(chosen, [stage] if stage else [], wanted, None)
    asked = f"of {where}{wanted.words}"
    shared = f": {found.groups[0].common}" if found.groups and group else ""
    made = batches.of_cases(found.cases, actions.operator(), asked + shared, time.time())
    step = f"retry {format_count(len(found.cases), 'discarded document')} {asked}"
    return _put_back(chosen, made, step, how, ask=True)


def _retry_named(
    chosen: Chosen, stage: Stage | None, named: list[str], where: str, how: How
) -> int:
    """Retry documents that were named, wherever they wait or are discarded."""
    stages = (stage,) if stage else chosen.pipeline.stages
    inputs = dict.fromkeys(chosen.pipeline.path(queue) for one in stages for queue in one.inputs)
    wanted = {path: _wanted(path, named) for path in inputs if os.path.exists(path)}
    every = [docid for docids in wanted.values() for docid in docids]
    missing = []
    for docid in named:
        if not any(is_meant(docid, one) for one in every):
            nearest = nearest_first(docid, [one.name for one in chosen.pipeline.stages])
            there_are = "" if stage else f", which are: {', '.join(nearest)}"
            missing.append(("", Result(docid, "missing", f"no {docid!r} in {where}{there_are}")))

    def do() -> Came:
        came = actions.retry(chosen, wanted, actions.operator())
        found = sorted(came.results, key=lambda one: _RANK.index(one[1].came))
        return came._replace(results=list({one.docid: (path, one) for path, one in found}.values()))

    what = f"retry {format_count(len(every), 'document')} of {where}"
    return _carry_out(chosen, what, every, do, how, ask=by_glob(named, every), missing=missing)


def _wanted(path: str, named: list[str]) -> list[str]:
    """Return the documents of a queue that are meant."""
    with opened(path) as queue:
        known = dict.fromkeys((*queue.discarded(), *(item.docid for _, item in queue.items())))
    return [docid for docid in matching(named, known) if docid in known]


# Batches


def batch(
    id: str | None = argument("[ID]", "The batch; else the latest are listed."),
    as_json: bool = AS_JSON,
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Tell what became of documents that were put back together.

    Each is counted once: it went through its stage, failed again with the same cause, or waits; and
    where there are such: it failed otherwise, was not put back, as it had changed since it was
    listed, or nothing is known of it.
    """
    chosen = choose(pipeline)
    root = chosen.pipeline.root
    if id is None:
        _list_batches(chosen, list(batches.latest(root, _LISTED)), as_json)
        return
    found = batches.read(root, id)
    outcome = batches.outcome(chosen.pipeline, found)
    if as_json:
        write_json(outcome.as_json(found))
        return
    print(paint_for(sys.stdout).head(escape_name(f"{found.id}  {found.words}")))
    count = format_count(len(found.documents), "document")
    print(escape_name(f"{found.kind} of {count} by {found.who} at {format_instant(found.at)}"))
    print(outcome.words)


def _list_batches(chosen: Chosen, found: Sequence[batches.Batch], as_json: bool) -> None:
    if as_json:
        write_json(batches.as_json(chosen.pipeline.name, found))
        return
    rows = [
        (one.id, format_instant(one.at), escape_name(one.who), escape_name(one.words))
        for one in found
    ]
    if rows:
        print("\n".join(table(_COLUMNS, rows)))


def replay(
    stage: str = argument("STAGE", "The stage that they are to go through once more."),
    docid: list[str] | None = argument(
        "[DOCID... | -]", "The documents, or globs; else all in its archive. -: those on stdin."
    ),
    dry_run: bool = _DRY_RUN,
    yes: bool = YES,
    as_json: bool = _RESULTS,
    pipeline: str | None = PIPELINE_FILE,
) -> int:
    """Send documents that went through a stage through it once more, from its archive.

    They wait under their names, and the archive keeps what it has: both are one file where the file
    system has hard links. A document that is in the queue already is left alone. The stage has an
    archive where its file says `archive = "DIR"`.
    """
    chosen = choose(pipeline)
    one = stage_named(chosen, stage)
    wanted, missing = _archived(chosen, one, docid)
    made = batches.of_archived(one, wanted, actions.operator(), f"stage {stage}", time.time())
    what = f"send {format_count(len(wanted), 'document')} through stage {stage} once more"
    ask = docid is None or len(wanted) > len(docid)
    return _put_back(chosen, made, what, How(dry_run, yes, as_json), ask=ask, missing=missing)


def _archived(
    chosen: Chosen, stage: Stage, docids: Sequence[str] | None
) -> tuple[list[str], list[tuple[str, Result]]]:
    """Return the archived documents that are meant, those named or all, and what is not there."""
    if not stage.inputs:
        raise NotFound(f"stage {stage.name!r} has no queue, but a broker; replay there")
    path = chosen.pipeline.path(stage.inputs[0])
    with opened(path) as queue, closing(batches.archive_of(queue)) as archive:
        known = dict.fromkeys(sorted(one for one in archive.names() if one[0] != "."))
        found = list(known) if docids is None else matching(meant(docids), known)
        missing = [
            (path, Result(one, "missing", f"no {one!r} in {archive.path}"))
            for one in found
            if one not in known
        ]
    return [one for one in found if one in known], missing


# What is put back, by whichever command


def _put_back(
    chosen: Chosen,
    made: batches.Batch,
    what: str,
    how: How,
    *,
    ask: bool,
    missing: Sequence[tuple[str, Result]] = (),
) -> int:
    """Put the documents of a batch back; say how to follow it."""
    docids, do = [one.docid for one in made.documents], partial(actions.put_back, chosen, made)
    code = _carry_out(chosen, what, docids, do, how, ask=ask, missing=missing, batch=made.id)
    if docids and not (how.as_json or how.dry_run):
        say(f"{chosen.command(f'batch {made.id}')} tells what becomes of them")
    return code


def _carry_out(
    chosen: Chosen,
    what: str,
    docids: Sequence[str],
    do: Callable[[], Came],
    how: How,
    *,
    ask: bool,
    missing: Sequence[tuple[str, Result]],
    batch: str = "",
) -> int:
    """Do something to documents, once somebody says that they are meant; say what came of them, and
    which are missing, and return the exit code."""
    if how.dry_run:
        if docids or not missing:
            print(f"would {what}")
        for one in docids[:_NAMED]:
            print(f"  {escape_name(one)}")
        if len(docids) > _NAMED:
            print(f"  and {len(docids) - _NAMED:,} more")
        return report_refusals([one for _, one in missing])
    if docids and ask:
        confirm(what, how.yes)
    came = do() if docids else Came([], [])
    results = [*came.results, *missing]
    for words in came.told:
        say(words)
    if how.as_json:
        documents = [{"queue": path, **result._asdict()} for path, result in results]
        facts = {"pipeline": chosen.pipeline.name} | ({"batch": batch} if batch and docids else {})
        write_json({**facts, "documents": documents})
    return report_refusals([one for _, one in results])
