"""`batch`, `replay`: what became of documents that were put back; what went through, once more."""

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from queuedriver.cli.arguments import AS_JSON, YES, confirm
from queuedriver.cli.docids import matching, meant
from queuedriver.cli.operate import report_refusals
from queuedriver.cli.program import say
from queuedriver.cli.render import escape_name, paint_for, table, write_json
from queuedriver.cli.words import argument, flag
from queuedriver.errors import NotFound
from queuedriver.format.units import format_count, format_instant
from queuedriver.operating.operations import Result
from queuedriver.operating.queue import opened
from watchdogd.cli.arguments import PIPELINE_FILE
from watchdogd.cli.pipeline_argument import choose, stage_named
from watchdogd.operators import actions, batches
from watchdogd.operators.actions import Came
from watchdogd.operators.batches import Batch
from watchdogd.operators.hosts import Chosen
from watchdogd.pipeline.model import Stage

# Of the batches there are so many are listed, and of what is to be put back so many are named.
_LISTED = 20
_NAMED = 20
_COLUMNS = ("BATCH", "WHEN", "WHO", "WHAT")

DRY_RUN = flag("Name what would be done; do nothing.")


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
        _list(chosen, list(batches.latest(root, _LISTED)), as_json)
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


def _list(chosen: Chosen, found: Sequence[Batch], as_json: bool) -> None:
    if as_json:
        write_json(batches.as_json(chosen.pipeline.name, found))
        return
    rows = [
        (one.id, format_instant(one.at), escape_name(one.who), escape_name(one.words))
        for one in found
    ]
    for line in table(_COLUMNS, rows) if rows else ():
        print(line)


def replay(
    stage: str = argument("STAGE", "The stage that they are to go through once more."),
    docid: list[str] | None = argument(
        "[DOCID... | -]", "The documents, or globs; else all in its archive. -: those on stdin."
    ),
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
    as_json: bool = flag("Print what came of each.", "--json"),
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
    return carry_out(chosen, made, what, How(dry_run, yes, as_json), ask=ask, missing=missing)


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


class How(NamedTuple):
    """The options of a command that changes many documents."""

    dry_run: bool
    yes: bool
    as_json: bool


def carry_out(
    chosen: Chosen,
    made: Batch,
    what: str,
    how: How,
    *,
    ask: bool,
    missing: Sequence[tuple[str, Result]] = (),
) -> int:
    """Put the documents of a batch back, once somebody says that they are meant; say how to follow
    it, and which are missing, and return the exit code."""
    if how.dry_run:
        if made.documents or not missing:
            name_some(what, [one.docid for one in made.documents])
        return report_refusals([one for _, one in missing])
    if made.documents and ask:
        confirm(what, how.yes)
    came = actions.put_back(chosen, made) if made.documents else Came([], [])
    came.results.extend(missing)
    code = tell(chosen, came, how, made.id if made.documents else "")
    if made.documents and not how.as_json:
        say(f"{chosen.command(f'batch {made.id}')} tells what becomes of them")
    return code


def tell(chosen: Chosen, came: Came, how: How, batch: str = "") -> int:
    """Say what came of documents; return the exit code."""
    for words in came.told:
        say(words)
    if how.as_json:
        documents = [{"queue": path, **result._asdict()} for path, result in came.results]
        facts = {"pipeline": chosen.pipeline.name} | ({"batch": batch} if batch else {})
        write_json({**facts, "documents": documents})
    return report_refusals([one for _, one in came.results])


def name_some(what: str, docids: Sequence[str]) -> None:
    """Print what would be done, and to which documents: the first, and how many more."""
    print(f"would {what}")
    for one in docids[:_NAMED]:
        print(f"  {escape_name(one)}")
    if len(docids) > _NAMED:
        print(f"  and {len(docids) - _NAMED:,} more")
