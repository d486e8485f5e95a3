"""What does not go together: keys within a stage, and stages with one another.

A stage that could not be read whole has no inputs or no outputs here, so it stands in nobody's way.
"""

import contextlib
import graphlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from queuedriver.errors import BadDocid
from queuedriver.format.settings import Publication
from watchdogd.pipeline.model import CONTROL, Pipeline, Stage
from watchdogd.pipeline.problems import Path, Problems, nearest
from watchdogd.pipeline.schema import Table

# What a command has for each document.
_PLACE = re.compile(r"\{(?:input|output)\b[^{}]*\}")
_NUMBERED = re.compile(r"(.+)-[0-9]+")
# Documents that are followed through the names that stages give them. What {stem} drops is there.
_SAMPLES = ("d", "d.e", "d.e.f")
# How alike two names are that were meant to be one: as `text` and `txet`, and more than `text` and
# `texts_2`.
_PROBABLY = 0.75

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


RULES = (
    Rule(
        ("preload", "call", "command", "server"),
        lambda stage: bool(stage.preload) and stage.kind != "call",
        "loads a Python module, and this stage has none",
        "leave it out: a command is started for each document, a server loads by itself",
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
        lambda stage: not stage.outputs,
        "names what there is none of: the stage has no output",
        "leave it out, or give the stage an output",
    ),
)


def check(pipeline: Pipeline, tables: Sequence[Table], problems: Problems) -> None:
    """Add everything that does not go together; a table says what of its stage can be relied on."""
    stages = pipeline.stages
    for index, (stage, table) in enumerate(zip(stages, tables, strict=True)):
        _check_keys(("stage", index), stage, table, problems)
    _check_names(stages, problems)
    _check_inputs(stages, problems)
    edges = _edges(stages)
    circles = list(_circles(edges))
    for circle in circles:
        _add_circle(stages, circle, problems)
    _check_plain_files(stages, problems)
    # In a circle every stage comes before every other, and names have no end.
    if not circles and not any(set(stage.inputs) & set(stage.outputs) for stage in stages):
        _check_clashes(stages, edges, tables, problems)
    _check_archives(pipeline, problems)


def remarks_on(pipeline: Pipeline) -> Iterator[str]:
    """Yield what may be meant, but is probably a slip."""
    for queue in pipeline.sources:
        if near := nearest(queue, pipeline.results, _PROBABLY):
            yield (
                f"no stage publishes into {queue!r}, and none takes from {near!r}; "
                "are they meant to be one queue?"
            )


# Within a stage


def _check_keys(path: Path, stage: Stage, table: Table, problems: Problems) -> None:
    for rule in RULES:
        relied_on = rule.keys[0] in table.values and not table.bad & set(rule.keys)
        if relied_on and rule.broken(stage):
            problems.add((*path, rule.keys[0]), rule.problem, rule.right)
    if stage.kind == "command" and not table.bad & {"command", "output"}:
        _check_command(path, stage, problems)
    if stage.kind == "server" and (place := _PLACE.search(" ".join(stage.work))):
        problems.add(
            (*path, "server"),
            f"has {place[0]}, and a server is not started for a document",
            "leave it out: it is told of each document in a line of JSON on its stdin",
        )


def _check_command(path: Path, stage: Stage, problems: Problems) -> None:
    """Hold the outputs that the words of a command name against those of its stage."""
    from queuedriver.processors.command import Template

    # None among them: it has a plain `{output}`, which is the first queue's.
    used = {slot["queue"] for slot in Template(stage.work).outputs.values()}
    known = ", ".join(stage.outputs)
    command = (*path, "command")
    unknown = sorted(queue for queue in used if queue and queue not in stage.outputs)
    for queue in unknown:
        right = f"its outputs are {known}" if known else "it has no output at all"
        problems.add(command, f"has {{output:{queue}}}, which is no output of the stage", right)
    if unknown:
        # One of them may be what is missing below.
        return
    if not stage.outputs and None in used:
        right = "leave it out, or give the stage an output"
        problems.add(command, "has {output}, and the stage has no output", right)
    # Without any {output} its stdout is the output.
    first = stage.outputs[:1] if not used or None in used else ()
    for queue in stage.outputs:
        if queue not in used and queue not in first:
            problem = f"has {queue!r}, into which the command puts nothing"
            right = f"write {{output:{queue}}} where the command is to write it"
            problems.add((*path, "output"), problem, right)


# Names and queues


def _check_names(stages: Sequence[Stage], problems: Problems) -> None:
    first: dict[str, int] = {}
    for index, stage in enumerate(stages):
        if stage.name and first.setdefault(stage.name, index) != index:
            problem = f"is what stage {first[stage.name] + 1} is called, too"
            problems.add(("stage", index, "name"), problem, "right would be another", stage.name)
    for index, stage in enumerate(stages):
        other = _NUMBERED.fullmatch(stage.name)
        if other and other[1] in first:
            problem = f"is what a driver of {other[1]!r} is called"
            right = "right would be a name that does not end in a number"
            problems.add(("stage", index, "name"), problem, right, stage.name)


def _check_inputs(stages: Sequence[Stage], problems: Problems) -> None:
    takers: dict[str, Stage] = {}
    for index, stage in enumerate(stages):
        for queue in stage.inputs:
            if (taker := takers.setdefault(queue, stage)) is not stage:
                problem = f"has {queue!r}, from which stage {taker.name!r} takes already"
                right = "give it a queue of its own; whoever publishes there may have two outputs"
                problems.add(("stage", index, "input"), problem, right)
        for queue in stage.outputs:
            if queue in stage.inputs:
                problem = f"has {queue!r}, which is an input of the same stage"
                problems.add(("stage", index, "output"), problem, "right would be another queue")


def _check_plain_files(stages: Sequence[Stage], problems: Problems) -> None:
    takers = {queue: stage.name for stage in stages for queue in stage.inputs}
    for index, stage in enumerate(stages):
        queue = next((queue for queue in stage.outputs if queue in takers), None)
        if queue is not None and not Publication(stage.publish).is_queue:
            taker = takers[queue]
            problem = f"names plain files, and stage {taker!r} takes documents from {queue!r}"
            right = f'right would be "{stage.publish}.ready"'
            problems.add(("stage", index, "publish"), problem, right, stage.publish)


def _check_archives(pipeline: Pipeline, problems: Problems) -> None:
    """An archive among the queues would be taken for documents, or for a queue."""
    taken = {pipeline.path(queue): f"the queue {queue!r}" for queue in pipeline.queues}
    taken[pipeline.path(CONTROL)] = "the watchdog's own directory"
    for index, stage in enumerate(pipeline.stages):
        archive = stage.archive
        if archive is None:
            continue
        inside = next((taken[path] for path in taken if _is_in(archive, path)), None)
        if archive == pipeline.root:
            inside = "the root itself, which holds the queues"
        if inside:
            right = f'right would be a directory of its own, as in "archive/{stage.name}"'
            problems.add(("stage", index, "archive"), f"is in {inside}", right, archive)


def _is_in(path: str, directory: str) -> bool:
    return os.path.commonpath((path, directory)) == directory


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


def _add_circle(stages: Sequence[Stage], circle: list[int], problems: Problems) -> None:
    way = " → ".join(stages[index].name or f"stage {index + 1}" for index in (*circle, circle[0]))
    problem = f"leads back to the stage itself: {way}"
    right = "right would be an output or an input that breaks the circle"
    problems.add(("stage", circle[0], "output"), problem, right)


# Names that clash


def _check_clashes(
    stages: Sequence[Stage], edges: Edges, tables: Sequence[Table], problems: Problems
) -> None:
    """Add two stages that get one and the same document, and publish it under one name in one
    queue.

    They get the same document when both come from one stage, or one from the other. Which way a
    document goes there only its processor knows: whoever sends it one of two ways says `existing`
    in both, and nobody guesses.
    """
    order = list(graphlib.TopologicalSorter(edges).static_order())[::-1]
    names = {index: _published(stages, edges, order, index) for index in range(len(stages))}
    agreed = [table.values.get("existing") == "keep" for table in tables]
    for index, stage in enumerate(stages):
        for other in range(index):
            shared = [queue for queue in stage.outputs if queue in stages[other].outputs]
            if not shared or (agreed[index] and agreed[other]):
                continue
            origin = _common_origin(names, index, other)
            if origin is not None:
                _add_clash(stages, index, other, origin, shared[0], problems)
                break


def _published(
    stages: Sequence[Stage], edges: Edges, order: Iterable[int], origin: int
) -> dict[int, Names]:
    """Return the names under which the samples leave each stage after they came to `origin`."""
    coming: dict[int, Names] = {origin: {(one, one) for one in _SAMPLES}}
    leaving: dict[int, Names] = {}
    for index in order:
        if index in coming:
            publication = Publication(stages[index].publish)
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


def _common_origin(names: Mapping[int, Mapping[int, Names]], one: int, other: int) -> int | None:
    """Return a stage after which the same document leaves both under the same name."""
    for origin, leaving in names.items():
        if not leaving.get(one, set()).isdisjoint(leaving.get(other, set())):
            return origin
    return None


def _add_clash(
    stages: Sequence[Stage], index: int, other: int, origin: int, queue: str, problems: Problems
) -> None:
    stage, first = stages[index], stages[other]
    source = f"those of stage {stages[origin].name!r}"
    if origin in (index, other):
        source = f"those that stage {stages[origin].name!r} gets"
    problems.add(
        ("stage", index, "output"),
        f"has {queue!r}, into which stage {first.name!r} publishes the same documents ({source}) "
        "under the same names",
        f'give one of them names of its own, as in publish = "{{docid}}.{stage.name}.ready"; '
        'where a document goes only one of the two ways, say existing = "keep" in both',
    )
