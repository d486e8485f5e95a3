"""Rules that a pipeline is held against: of keys within a stage, and of stages among themselves.

A stage that could not be read whole has no inputs or no outputs here, so it stands in nobody's way.
"""

import contextlib
import graphlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from os.path import commonpath
from typing import NamedTuple

from queuedriver.errors import BadDocid
from queuedriver.format.settings import Publication
from watchdogd.control import CONTROL
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.pipeline.problems import Table, nearest

# What a command has for each document.
_PLACE = re.compile(r"\{(?:input|output)\b[^{}]*\}")
_NUMBERED = re.compile(r"(.+)-[0-9]+")
# Documents that are followed through the names that stages give them. What {stem} drops is there.
_SAMPLES = ("d", "d.e", "d.e.f")
# How alike two names are that were meant to be one: as `text` and `txet`, and more than `text` and
# `texts_2`.
_PROBABLY = 0.75

# The stages of a pipeline, each with what the file says of it.
Stages = Sequence[tuple[Stage, Table]]
# Which stages take what a stage publishes; stages are numbers.
Edges = dict[int, set[int]]
# Samples, each with the name it has got.
Names = set[tuple[str, str]]


class Rule(NamedTuple):
    """Two keys or more, and when they do not go together. The problem is at the first."""

    keys: tuple[str, ...]
    broken: Callable[[Stage], bool]
    problem: str
    right: str


# What says something of the queues of a stage.
_OF_QUEUES = ("input", "output", "publish", "archive")
RULES = (
    Rule(
        ("broker", "listen"),
        lambda stage: stage.kind == "broker" and not stage.listen,
        "does not say where its workers find it",
        'right would be to add listen = "tcp://127.0.0.1:6714"',
    ),
    Rule(
        ("listen", "broker"),
        lambda stage: stage.kind != "broker",
        "is for a broker, and this stage has none",
        'leave it out, or say which protocol it speaks, as in broker = "pingpong"',
    ),
    Rule(
        ("worker", "connect"),
        lambda stage: bool(stage.worker) and not stage.connect,
        "does not say where its broker is",
        'right would be to add connect = "tcp://127.0.0.1:6714"',
    ),
    Rule(
        ("connect", "worker"),
        lambda stage: not stage.worker,
        "is for a worker, and this stage is none",
        'leave it out, or say which protocol it speaks, as in worker = "pingpong"',
    ),
    Rule(
        ("worker", "broker"),
        lambda stage: bool(stage.worker) and stage.kind == "broker",
        "does what a broker deals, and this stage has a broker itself",
        "right would be a call, a command or a server instead of the broker",
    ),
    Rule(
        ("broker", "input"),
        lambda stage: stage.kind == "broker" and len(stage.inputs) > 1,
        "deals from one queue, and this stage has several inputs",
        "right would be a stage for each, which listens elsewhere",
    ),
    Rule(
        ("broker", "output"),
        lambda stage: stage.kind == "broker" and stage.work == "pingpong" and not stage.outputs,
        "gets a result for each document, and has nowhere to put it",
        "give the stage an output",
    ),
    Rule(
        ("broker", "drivers"),
        lambda stage: stage.kind == "broker" and stage.drivers.max > 1,
        "listens where no second one can",
        "right would be drivers = 1; start more workers instead",
    ),
    Rule(
        ("preload", "call", "command", "server", "broker"),
        lambda stage: bool(stage.preload) and stage.kind != "call",
        "loads a Python module, and this stage has none",
        "leave it out: a command is started for each document, a server loads by itself, and the "
        "workers of a broker are elsewhere",
    ),
    Rule(
        ("memory_per_driver", "preload"),
        lambda stage: stage.memory_per_driver is not None and not stage.preload,
        "says what a driver takes beside what is loaded once, and nothing is",
        "set preload = true, or say memory alone: it is what one driver takes",
    ),
    Rule(
        ("memory_per_driver", "memory", "preload"),
        lambda stage: (
            stage.memory_per_driver is not None and bool(stage.preload) and stage.memory is None
        ),
        "is not enough to go by",
        "say memory, too: what is loaded once, for all drivers of the stage",
    ),
    Rule(
        ("batch", "retries"),
        lambda stage: stage.batch > 1 and not stage.retries,
        "needs retries",
        "set retries to 1 or more: when a batch crashes its driver, each of its documents is tried "
        "again alone to find out which did it",
    ),
    Rule(
        ("publish", "output"),
        lambda stage: not (stage.outputs or stage.worker),
        "names what there is none of: the stage has no output",
        "leave it out, or give the stage an output",
    ),
)


def check(pipeline: Pipeline, tables: Sequence[Table]) -> None:
    """Add everything that does not go together to the tables of the stages, which say what of each
    stage can be relied upon."""
    stages = list(zip(pipeline.stages, tables, strict=True))
    for stage, table in stages:
        _check_keys(stage, table)
    _check_names(stages)
    _check_queues(stages)
    _check_archives(pipeline, stages)
    edges = _edges(pipeline.stages)
    circles = list(_circles(edges))
    for circle in circles:
        names = [stages[index][0].name or f"stage {index + 1}" for index in (*circle, circle[0])]
        problem = f"leads back to the stage itself: {' → '.join(names)}"
        right = "right would be an output or an input that breaks the circle"
        tables[circle[0]].add("output", problem, right)
    # In a circle every stage comes before every other, and names have no end.
    if not circles and not any(set(stage.inputs) & set(stage.outputs) for stage, _ in stages):
        _check_clashes(stages, edges)


def remarks_on(pipeline: Pipeline) -> Iterator[str]:
    """Yield what may be meant, but is probably a slip."""
    for queue in pipeline.sources:
        if near := nearest(queue, pipeline.results, _PROBABLY):
            yield (
                f"no stage publishes into {queue!r}, and none takes from {near!r}; "
                "are they meant to be one queue?"
            )


# Within a stage


def _check_keys(stage: Stage, table: Table) -> None:
    for rule in RULES:
        relied_on = rule.keys[0] in table.values and not table.bad & set(rule.keys)
        if relied_on and rule.broken(stage):
            table.add(rule.keys[0], rule.problem, rule.right)
    for key in _OF_QUEUES if stage.worker else ():
        if key in table.values:
            problem = "is for a stage with queues, and a worker has none"
            table.add(key, problem, "leave it out: they are its broker's")
    if stage.kind == "command" and not (stage.worker or table.bad & {"command", "output"}):
        _check_command(stage, table)
    if stage.kind == "server" and (place := _PLACE.search(" ".join(stage.work))):
        problem = f"has {place[0]}, and a server is not started for a document"
        right = "leave it out: it is told of each document in a line of JSON on its stdin"
        table.add("server", problem, right)


def _check_command(stage: Stage, table: Table) -> None:
    """Hold the outputs that the words of a command name against those of its stage."""
    from queuedriver.processors.command import Template

    # None among them: it has a plain `{output}`, which is the first queue's.
    used = {slot["queue"] for slot in Template(stage.work).outputs.values()}
    unknown = sorted(queue for queue in used if queue and queue not in stage.outputs)
    known = ", ".join(stage.outputs)
    for queue in unknown:
        right = f"its outputs are {known}" if known else "it has no output at all"
        table.add("command", f"has {{output:{queue}}}, which is no output of the stage", right)
    if unknown:
        # One of them may be what is missing below.
        return
    if not stage.outputs and None in used:
        right = "leave it out, or give the stage an output"
        table.add("command", "has {output}, and the stage has no output", right)
    # Without any {output} its stdout is the output.
    first = stage.outputs[:1] if not used or None in used else ()
    for queue in stage.outputs:
        if queue not in used and queue not in first:
            problem = f"has {queue!r}, into which the command puts nothing"
            right = f"write {{output:{queue}}} where the command is to write it"
            table.add("output", problem, right)


# Names and queues


def _check_names(stages: Stages) -> None:
    first: dict[str, int] = {}
    for number, (stage, table) in enumerate(stages, 1):
        if stage.name and first.setdefault(stage.name, number) != number:
            problem = f"is what stage {first[stage.name]} is called, too"
            table.add("name", problem, "right would be another", stage.name)
    for stage, table in stages:
        other = _NUMBERED.fullmatch(stage.name)
        if other and other[1] in first:
            problem = f"is what a driver of {other[1]!r} is called"
            right = "right would be a name that does not end in a number"
            table.add("name", problem, right, stage.name)


def _check_queues(stages: Stages) -> None:
    takers: dict[str, Stage] = {}
    for stage, table in stages:
        for queue in stage.inputs:
            if (taker := takers.setdefault(queue, stage)) is not stage:
                problem = f"has {queue!r}, from which stage {taker.name!r} takes already"
                right = "give it a queue of its own; whoever publishes there may have two outputs"
                table.add("input", problem, right)
    for stage, table in stages:
        taken = [queue for queue in stage.outputs if queue in takers]
        for queue in (queue for queue in taken if queue in stage.inputs):
            problem = f"has {queue!r}, which is an input of the same stage"
            table.add("output", problem, "right would be another queue")
        if taken and not Publication(stage.publish).is_queue:
            where = f"stage {takers[taken[0]].name!r} takes documents from {taken[0]!r}"
            right = f'right would be "{stage.publish}.ready"'
            table.add("publish", f"names plain files, and {where}", right, stage.publish)


def _check_archives(pipeline: Pipeline, stages: Stages) -> None:
    """Add archives among the queues, which would be taken for documents, or for a queue."""
    taken = {pipeline.path(queue): f"the queue {queue!r}" for queue in pipeline.queues}
    taken[pipeline.path(CONTROL)] = "the watchdog's own directory"
    for stage, table in stages:
        archive = stage.archive
        if archive is None:
            continue
        inside = next((taken[one] for one in taken if commonpath((archive, one)) == one), None)
        if archive == pipeline.root:
            inside = "the root itself, which holds the queues"
        if inside:
            right = f'right would be a directory of its own, as in "archive/{stage.name}"'
            table.add("archive", f"is in {inside}", right, archive)


# Circles


def _edges(stages: Sequence[Stage]) -> Edges:
    return {
        index: {
            other
            for other, taker in enumerate(stages)
            if other != index and not set(stage.outputs).isdisjoint(taker.inputs)
        }
        for index, stage in enumerate(stages)
    }


def _circles(edges: Edges) -> Iterator[list[int]]:
    """Yield circles that have no stage in common, each beginning with its first stage."""
    left = dict(edges)
    while True:
        sorter = graphlib.TopologicalSorter(left)
        try:
            sorter.prepare()
            return
        except graphlib.CycleError as error:
            # In the sorter's eyes an edge leads to what comes before, so its circle runs backwards.
            circle: list[int] = error.args[1][:0:-1]
        least = circle.index(min(circle))
        yield circle[least:] + circle[:least]
        left = {index: left[index] - set(circle) for index in left if index not in circle}


# Names that clash


def _check_clashes(stages: Stages, edges: Edges) -> None:
    """Add two stages that get one and the same document, and publish it under one name in one
    queue.

    They get the same document when both come from one stage, or one from the other. Which way a
    document goes there only its processor knows: whoever sends it one of two ways says `existing`
    in both, and nobody guesses.
    """
    order = list(graphlib.TopologicalSorter(edges).static_order())[::-1]
    # By the stage that documents come from: the names under which each stage publishes them.
    names = [_published(stages, edges, order, origin) for origin in range(len(stages))]
    for index, (stage, table) in enumerate(stages):
        for other, (first, its_table) in enumerate(stages[:index]):
            shared = [queue for queue in stage.outputs if queue in first.outputs]
            agreed = all(one.values.get("existing") == "keep" for one in (table, its_table))
            if not shared or agreed:
                continue
            common = (
                origin
                for origin, leaving in enumerate(names)
                if leaving.get(index, set()) & leaving.get(other, set())
            )
            if (origin := next(common, None)) is not None:
                of = f"that stage {stages[origin][0].name!r} gets"
                if origin not in (index, other):
                    of = f"of stage {stages[origin][0].name!r}"
                table.add(
                    "output",
                    f"has {shared[0]!r}, into which stage {first.name!r} publishes the same "
                    f"documents (those {of}) under the same names",
                    f'give one of them names of its own, as in publish = "{{docid}}.{stage.name}'
                    '.ready"; where a document goes only one of the two ways, say '
                    'existing = "keep" in both',
                )
                break


def _published(stages: Stages, edges: Edges, order: Iterable[int], origin: int) -> dict[int, Names]:
    """Return the names under which the samples leave each stage after they came to `origin`."""
    coming: dict[int, Names] = {origin: {(one, one) for one in _SAMPLES}}
    leaving: dict[int, Names] = {}
    for index in order:
        if index in coming:
            publication = Publication(stages[index][0].publish)
            leaving[index] = set(_renamed(coming[index], publication))
            docids = {(sample, name.removesuffix(".ready")) for sample, name in leaving[index]}
            for after in edges[index]:
                coming.setdefault(after, set()).update(docids)
    return leaving


def _renamed(coming: Names, publication: Publication) -> Iterator[tuple[str, str]]:
    for sample, docid in coming:
        # What becomes too long for a name is the document's trouble, not the pipeline's.
        with contextlib.suppress(BadDocid):
            yield sample, publication.name(docid)
