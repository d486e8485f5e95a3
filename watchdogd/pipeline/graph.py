"""What does not go together among the stages of a pipeline. Pure.

A stage that could not be read whole has no inputs or no outputs here, so it stands in nobody's way.
"""

import contextlib
import graphlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from queuedriver.errors import BadDocid
from queuedriver.format.settings import Publication
from watchdogd.pipeline.complaints import Slip, nearest
from watchdogd.pipeline.model import Pipeline, Stage

# Documents that are followed through the names that stages give them. What {stem} drops is there.
_SAMPLES = ("d", "d.e", "d.e.f")

# Below the root, what steers the pipeline; the watchdog's alone.
CONTROL = ".watchdogd"
# How alike two names are that were meant to be one: as `text` and `txet`, and more than `text` and
# `texts_2`.
_PROBABLY = 0.75
_NUMBERED = re.compile(r"(.+)-[0-9]+")

# Which stages take what a stage publishes; stages are numbers.
Edges = dict[int, set[int]]
# Samples, each with the name it has got.
Names = set[tuple[str, str]]


def slips_of(stages: Sequence[Stage], agreed: Sequence[bool]) -> Iterator[Slip]:
    """Everything that is wrong. `agreed`: which stages say themselves that an output whose name is
    taken is kept beside the other."""
    yield from _same_names(stages)
    yield from _same_inputs(stages)
    edges = _edges(stages)
    circles = list(_circles(edges))
    yield from (_circle(stages, circle) for circle in circles)
    yield from _files_as_documents(stages)
    # In a circle every stage comes before every other, and names have no end.
    if not circles and not any(_own_inputs(stage) for stage in stages):
        yield from _clashes(stages, edges, agreed)


def remarks_on(pipeline: Pipeline) -> Iterator[str]:
    """What may be meant, but is probably a slip."""
    results = pipeline.results
    for queue in pipeline.sources:
        if near := nearest(queue, results, _PROBABLY):
            yield (
                f"no stage publishes into {queue!r}, and none takes from {near!r}; "
                "are they meant to be one queue?"
            )


def _same_names(stages: Sequence[Stage]) -> Iterator[Slip]:
    first: dict[str, int] = {}
    for index, stage in enumerate(stages):
        if stage.name and first.setdefault(stage.name, index) != index:
            problem = f"is what stage {first[stage.name] + 1} is called, too"
            yield Slip(("stage", index, "name"), problem, "right would be another", stage.name)
    for index, stage in enumerate(stages):
        other = _NUMBERED.fullmatch(stage.name)
        if other and other[1] in first:
            problem = f"is what a driver of {other[1]!r} is called"
            right = "right would be a name that does not end in a number"
            yield Slip(("stage", index, "name"), problem, right, stage.name)


def _same_inputs(stages: Sequence[Stage]) -> Iterator[Slip]:
    takers: dict[str, Stage] = {}
    for index, stage in enumerate(stages):
        for queue in stage.inputs:
            if (taker := takers.setdefault(queue, stage)) is not stage:
                problem = f"has {queue!r}, from which stage {taker.name!r} takes already"
                right = "give it a queue of its own; whoever publishes there may have two outputs"
                yield Slip(("stage", index, "input"), problem, right)
        for queue in _own_inputs(stage):
            problem = f"has {queue!r}, which is an input of the same stage"
            yield Slip(("stage", index, "output"), problem, "right would be another queue")


def _own_inputs(stage: Stage) -> list[str]:
    return [queue for queue in stage.outputs if queue in stage.inputs]


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
    """Circles that have no stage in common, each beginning with its first stage."""
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


def _circle(stages: Sequence[Stage], circle: list[int]) -> Slip:
    way = " → ".join(stages[index].name or f"stage {index + 1}" for index in (*circle, circle[0]))
    return Slip(
        ("stage", circle[0], "output"),
        f"leads back to the stage itself: {way}",
        "right would be an output or an input that breaks the circle",
    )


def _files_as_documents(stages: Sequence[Stage]) -> Iterator[Slip]:
    takers = {queue: stage for stage in stages for queue in stage.inputs}
    for index, stage in enumerate(stages):
        queue = next((queue for queue in stage.outputs if queue in takers), None)
        if queue is not None and not Publication(stage.publish).is_queue:
            taker = takers[queue].name
            problem = f"names plain files, and stage {taker!r} takes documents from {queue!r}"
            right = f'right would be "{stage.publish}.ready"'
            yield Slip(("stage", index, "publish"), problem, right, stage.publish)


def _clashes(stages: Sequence[Stage], edges: Edges, agreed: Sequence[bool]) -> Iterator[Slip]:
    """Two stages that get one and the same document, and publish it under one name in one queue.

    They get the same document when both come from one stage, or one from the other. Which way a
    document goes there only its processor knows: whoever sends it one of two ways says `existing`
    in both, and nobody guesses.
    """
    order = list(graphlib.TopologicalSorter(edges).static_order())[::-1]
    names = {index: _published(stages, edges, order, index) for index in range(len(stages))}
    for index, stage in enumerate(stages):
        for other in range(index):
            shared = [queue for queue in stage.outputs if queue in stages[other].outputs]
            if not shared or (agreed[index] and agreed[other]):
                continue
            origin = _common_origin(names, index, other)
            if origin is not None:
                yield _clash(stages, index, other, origin, shared[0])
                break


def _published(
    stages: Sequence[Stage], edges: Edges, order: Iterable[int], origin: int
) -> dict[int, Names]:
    """Under which names the samples leave each stage after they came to `origin`."""
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
    """A stage after which the same document leaves both under the same name."""
    for origin, leaving in names.items():
        if not leaving.get(one, set()).isdisjoint(leaving.get(other, set())):
            return origin
    return None


def _clash(stages: Sequence[Stage], index: int, other: int, origin: int, queue: str) -> Slip:
    stage, first = stages[index], stages[other]
    source = f"those of stage {stages[origin].name!r}"
    if origin in (index, other):
        source = f"those that stage {stages[origin].name!r} gets"
    return Slip(
        ("stage", index, "output"),
        f"has {queue!r}, into which stage {first.name!r} publishes the same documents ({source}) "
        "under the same names",
        f'give one of them names of its own, as in publish = "{{docid}}.{stage.name}.ready"; '
        'where a document goes only one of the two ways, say existing = "keep" in both',
    )


def archive_slips(pipeline: Pipeline) -> Iterator[Slip]:
    """An archive among the queues would be taken for documents, or for a queue."""
    taken = {pipeline.path(queue): f"the queue {queue!r}" for queue in pipeline.queues}
    taken[os.path.join(pipeline.root, CONTROL)] = "the watchdog's own directory"
    for index, stage in enumerate(pipeline.stages):
        archive = stage.archive
        if archive is None:
            continue
        inside = next((taken[path] for path in taken if _is_in(archive, path)), None)
        if archive == pipeline.root:
            inside = "the root itself, which holds the queues"
        if inside:
            right = f'right would be a directory of its own, as in "archive/{stage.name}"'
            yield Slip(("stage", index, "archive"), f"is in {inside}", right, archive)


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
