"""Does what people ask by a button: the moves of `operators/actions.py`, each with who asked.

Before it is done, a page says what it would be; documents that are to be tried again are listed
then, and what comes later is not among them.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from queuedriver.errors import BadArgument, NotFound
from queuedriver.format.units import format_count, parse_duration
from watchdogd.operators import actions, batches
from watchdogd.operators.batches import Batch
from watchdogd.operators.causes import Survey
from watchdogd.operators.discards import survey
from watchdogd.operators.hosts import Chosen
from watchdogd.operators.view import View
from watchdogd.pipeline.model import Stage

Words = Mapping[str, Any]


class Action(NamedTuple):
    """Something that may be asked: how it is told, and how it is done; by whom comes last."""

    # What it may be asked of: words that it would not heed would have it do more than they say.
    of: frozenset[str]

    # For people: "pause parse".
    words: Callable[[Words], str]
    do: Callable[[Chosen, Words, str], object]


def _where(words: Words) -> str:
    return f" on {words['host']}" if words.get("host") else ""


def _about(words: Words) -> str:
    return words.get("driver") or words.get("stage") or "the whole pipeline"


def _number(words: Words) -> str:
    number = words.get("number")
    return "as many drivers as the file says" if number is None else format_count(number, "driver")


def stages_of(chosen: Chosen, name: str | None) -> list[Stage]:
    """Return the stage that is named, looked up in the pipeline; none where none is."""
    if name and chosen.pipeline.stage(name) is None:
        raise NotFound(f"no stage {name!r} in this pipeline")
    return [one for one in chosen.pipeline.stages if one.name == name]


def _scale(chosen: Chosen, words: Words, who: str) -> None:
    (stage,) = stages_of(chosen, words.get("stage"))
    wanted = {stage.name: words.get("number")}
    actions.scale(chosen, wanted, words.get("host") or None, who)


def _restart(chosen: Chosen, words: Words, who: str) -> None:
    target = words.get("driver") or words.get("stage")
    names = [target] if target else [one.name for one in chosen.pipeline.stages]
    actions.restart(chosen, [(name, words.get("host") or "") for name in names], who)


ACTIONS: Mapping[str, Action] = {
    "pause": Action(
        frozenset({"stage"}),
        lambda words: f"pause {_about(words)}",
        lambda chosen, words, who: actions.pause(
            chosen, stages_of(chosen, words.get("stage")), who
        ),
    ),
    "resume": Action(
        frozenset({"stage"}),
        lambda words: f"resume {_about(words)}",
        lambda chosen, words, who: actions.resume(
            chosen, stages_of(chosen, words.get("stage")), who
        ),
    ),
    "scale": Action(
        frozenset({"stage", "host", "number"}),
        lambda words: f"scale {_about(words)} to {_number(words)}{_where(words)}",
        _scale,
    ),
    "restart": Action(
        frozenset({"stage", "driver", "host"}),
        lambda words: f"restart {_about(words)}{_where(words)}",
        _restart,
    ),
}


def action_of(view: View, words: Words) -> Action:
    """Return what is to be done, with what the words name looked up among what there is; NotFound
    for what is not, BadArgument for what has nothing to do with it."""
    do = words.get("do", "")
    action = ACTIONS.get(do)
    if action is None:
        raise NotFound("there is no such action")
    for word in ("stage", "driver", "host", "number"):
        if words.get(word) not in ("", None) and word not in action.of:
            raise BadArgument(f"{do} takes no {word}")
    if do == "scale" and not words.get("stage"):
        raise NotFound("which stage is to be scaled?")
    known = {
        "stage": {one.name for one in view.stages},
        "driver": {one.name for one in view.drivers},
        "host": {one.report.host for one in view.chosen.hosts.seen},
    }
    for kind, names in known.items():
        name = words.get(kind)
        if name and name not in names:
            raise NotFound(f"no {kind} {name!r} in this pipeline")
    return action


def very_many(view: View, words: Words) -> str:
    """Return what is to be asked back besides, where very many drivers are wanted; else nothing."""
    host = words.get("host") or None
    if words["do"] != "scale" or not view.chosen.hosts.meant(host).alive:
        return ""
    return actions.many_drivers(view.chosen, {words["stage"]: words.get("number")}, host)


# In the process that looks


def act(chosen: Chosen, do: str, words: Words, who: str) -> None:
    """Do what was asked."""
    ACTIONS[do].do(chosen, words, who)


def began(since: str) -> float:
    """Return the instant that a time ends with now, as `2h` has it; 0 for no time."""
    return time.time() - parse_duration(since) if since else 0.0


def discarded(chosen: Chosen, stage: str, cause: str, text: str, since: str) -> Survey:
    """Read what was discarded, and is as asked for."""
    stages = stages_of(chosen, stage)
    return survey(chosen.pipeline, stages, cause=cause, text=text, since=began(since))


def prepare(chosen: Chosen, who: str, group: str, docid: str, **words: str) -> Batch:
    """List the discarded documents that are meant, to be tried again; NotFound for none."""
    found = discarded(chosen, **words)
    cases = [one for one in found.cases if group in ("", one.key) and docid in ("", one.docid)]
    if not cases:
        raise NotFound("none of these documents is discarded any more")
    parts = {**words, "group": group, "document": docid}
    asked = ", ".join(f"{key} {said}" for key, said in parts.items() if said)
    return batches.of_cases(cases, who, asked or "all that was discarded", time.time())


def put_back(chosen: Chosen, batch: Batch) -> str:
    """Put the documents of a batch back; return its id."""
    actions.put_back(chosen, batch)
    return batch.id
