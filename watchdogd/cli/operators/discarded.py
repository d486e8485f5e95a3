"""`discarded`, `retry`: what was discarded, in groups by its cause, and how it is tried again."""

import os
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from queuedriver.cli.arguments import YES, confirm
from queuedriver.cli.docids import by_glob, is_meant, matching, meant
from queuedriver.cli.render import columns_of, escape_name, paint_for, write_json
from queuedriver.cli.showing import HEAD, line, line_as_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument, NotFound
from queuedriver.format.units import format_count, format_duration, visible
from queuedriver.operating.operations import Result
from queuedriver.operating.queue import opened
from watchdogd.cli import screen
from watchdogd.cli.arguments import PIPELINE_FILE
from watchdogd.cli.operators.batch import DRY_RUN, How, carry_out, name_some, tell
from watchdogd.cli.pipeline_argument import choose, nearest_first, stage_named
from watchdogd.operators import actions, batches, causes, discards
from watchdogd.operators.actions import Came
from watchdogd.operators.causes import Survey
from watchdogd.operators.hosts import Chosen
from watchdogd.pipeline.model import Stage

_STAGE = "{:<16}  {}"
# Of several queues the one that did most for a document speaks for all.
_RANK = ("missing", "nothing to do", "refused", "done")


class _Asked(NamedTuple):
    """A choice among what was discarded; None: all."""

    cause: str | None
    text: str | None
    group: str | None
    # Seconds until now.
    since: float | None = None

    @property
    def words(self) -> str:
        """Return what is said of it after a number of documents."""
        return "".join(
            f", {word} {visible(said)}"
            for word, said in zip(self._fields, self[:-1], strict=False)
            if said
        ) + (f", in the last {format_duration(self.since)}" if self.since else "")


_CAUSE = option("CAUSE", "Only what failed by this cause, as in exception.")
_TEXT = option("TEXT", "Only what has this in its docid or report, in capitals or not.")
_GROUP = option("GROUP", "Only this group.")
_SINCE = option("TIME", "Only what was discarded in the last TIME, as 2h.")


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
    most = None if every else discards.MOST
    stages = [stage_named(chosen, name) for name in stage or ()]
    found = _survey(chosen, stages, _Asked(cause, text, group, since), most)
    if group is not None:
        _list(chosen, found, as_json)
    elif as_json:
        write_json({"pipeline": chosen.pipeline.name, **found.as_json()})
    elif found.cases:
        now = time.time()
        rows = [screen.group_cells(one, now) for one in found.groups]
        wide, paint = columns_of(sys.stdout), paint_for(sys.stdout)
        print("\n".join(screen.table(screen.CAUSE_COLUMNS, rows, wide, paint)))
        print(found.words)


def _list(chosen: Chosen, found: Survey, as_json: bool) -> None:
    """List the documents of one group, a line each."""
    now = time.time()
    if not as_json:
        print(paint_for(sys.stdout).head(_STAGE.format("STAGE", HEAD)))
    for case, place in discards.places_of(chosen.pipeline, found.cases):
        if as_json:
            known = {"stage": case.stage, "queue": case.queue, "group": case.key}
            write_json({**known, **line_as_json(place)}, indent=None)
        else:
            print(_STAGE.format(escape_name(case.stage), line(place, now)))


def _survey(chosen: Chosen, stages: Sequence[Stage], asked: _Asked, most: int | None) -> Survey:
    """Read what was discarded and is asked for; NotFound for a group that there is not."""
    cause, text, group, seconds = asked
    since = time.time() - seconds if seconds is not None else 0.0
    found = discards.survey(
        chosen.pipeline, stages, cause=cause or "", text=text or "", since=since, most=most
    )
    if group is None:
        return found
    members = found.of_group(group)
    if not members:
        why = "what was in it may have been tried again"
        if causes.is_outdated(group):
            why = "it was named by a version that groups otherwise"
        see = chosen.command("discarded")
        raise NotFound(f"no group {group!r} is discarded in {chosen.given}: {why}; see {see}")
    return causes.survey_of(members, found.read, found.total)


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
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
    as_json: bool = flag("Print what came of each.", "--json"),
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
    asked = _Asked(cause, text, group, since)
    if named and any(one is not None for one in asked):
        raise BadArgument("documents, or --group, --cause, --text and --since, but not both")
    if named:
        return _retry_named(chosen, stage, meant(named), How(dry_run, yes, as_json))
    return _retry_all(chosen, stage, asked, How(dry_run, yes, as_json))


def _retry_all(chosen: Chosen, stage: Stage | None, asked: _Asked, how: How) -> int:
    """Retry all that is discarded and asked for, as a batch."""
    found = _survey(chosen, [stage] if stage else [], asked, None)
    words = f"of {_where(chosen, stage)}{asked.words}"
    what = f"{format_count(len(found.cases), 'discarded document')} {words}"
    if found.groups and asked.group:
        words += f": {found.groups[0].common}"
    made = batches.of_cases(found.cases, actions.operator(), words, time.time())
    return carry_out(chosen, made, f"retry {what}", how, ask=True)


def _retry_named(chosen: Chosen, stage: Stage | None, named: list[str], how: How) -> int:
    """Retry documents that were named, wherever they wait or are discarded."""
    stages = (stage,) if stage else chosen.pipeline.stages
    inputs = dict.fromkeys(chosen.pipeline.path(queue) for one in stages for queue in one.inputs)
    wanted = {path: _wanted(path, named) for path in inputs if os.path.exists(path)}
    every = [docid for docids in wanted.values() for docid in docids]
    where = _where(chosen, stage)
    what = f"retry {format_count(len(every), 'document')} of {where}"
    if how.dry_run:
        name_some(what, every)
        return 0
    if every and by_glob(named, every):
        confirm(what, how.yes)
    came = actions.retry(chosen, wanted, actions.operator())
    found = sorted(came.results, key=lambda one: _RANK.index(one[1].came))
    found = list({result.docid: (path, result) for path, result in found}.values())
    for docid in named:
        if not any(is_meant(docid, one) for one in every):
            nearest = nearest_first(docid, [one.name for one in chosen.pipeline.stages])
            there_are = "" if stage else f", which are: {', '.join(nearest)}"
            found.append(("", Result(docid, "missing", f"no {docid!r} in {where}{there_are}")))
    return tell(chosen, Came(found, came.told), how)


def _where(chosen: Chosen, stage: Stage | None) -> str:
    return f"stage {stage.name}" if stage else f"the stages of {chosen.given}"


def _wanted(path: str, named: list[str]) -> list[str]:
    """Return the documents of a queue that are meant."""
    with opened(path) as queue:
        known = dict.fromkeys((*queue.discarded(), *(item.docid for _, item in queue.items())))
    return [docid for docid in matching(named, known) if docid in known]
