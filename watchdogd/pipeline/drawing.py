"""Draws a pipeline as text: queues and stages below one another, rails from each to the next. Pure.

    ○    urgent
    │ ○  normal
    ■─┴─╮  sort
    ○   │  texts
    ■   │  read
    │   ○  images
    │   ■  recognize
    ○───╯  words

Each rail is a way that documents go: it leads down from where it begins to where it ends. Where one
goes to the side behind another, it has a gap.
"""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from queuedriver.format.units import format_size
from watchdogd.pipeline.model import Pipeline, Stage

# A queue by its name, a stage by its number.
Node = str | int

_QUEUE = "○"
_STAGE = "■"
# For terminals that have nothing else.
_ASCII = str.maketrans(
    {"○": "o", "■": "#", "│": "|", "─": "-", "╮": ".", "╯": "'", "┬": ".", "┴": "'"}
)


class Row(NamedTuple):
    """One line of the drawing: the rails, and what of a queue or a stage stands beside them."""

    rails: str
    name: str
    drivers: str = ""
    memory: str = ""
    # What a stage does; where documents enter and results are found.
    what: str = ""


def draw(pipeline: Pipeline, *, ascii_only: bool = False) -> list[Row]:
    """The rows of a pipeline, everything above what it leads to."""
    rows = []
    for node, laid in _Rails(pipeline.stages).lay():
        rails = laid.translate(_ASCII) if ascii_only else laid
        if isinstance(node, int):
            rows.append(_stage_row(rails, pipeline.stages[node]))
        else:
            rows.append(Row(rails, node, what=_use(pipeline, node)))
    return rows


def _stage_row(rails: str, stage: Stage) -> Row:
    least, most = stage.drivers.min, stage.drivers.max
    drivers = f"{most} driver{'s' * (most != 1)}" if stage.drivers.fixed else f"{least} to {most}"
    memory = "" if stage.memory is None else f"{format_size(stage.memory)} each"
    if stage.preload and stage.memory is not None:
        # Loaded once; what each driver adds is its own.
        more = stage.memory_per_driver
        each = "" if more is None else f" + {format_size(more)} each"
        memory = format_size(stage.memory) + each
    work = stage.work if isinstance(stage.work, str) else shlex.join(stage.work)
    return Row(rails, stage.name, drivers, memory, f"{stage.kind} {work}")


def _use(pipeline: Pipeline, queue: str) -> str:
    """What people do with a queue; nothing with one between stages."""
    if queue in pipeline.sources:
        return "documents are submitted here"
    if queue not in pipeline.results:
        return ""
    names = {stage.publish for stage in pipeline.stages if queue in stage.outputs}
    return f"results: {', '.join(sorted(names))}"


class _Rails:
    """Lays rails, one node a row: from the left, and as few beside one another as will do."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        # What leads to a node, and what it leads to; in the order of the file.
        self._before: dict[Node, set[Node]] = {}
        self._after: dict[Node, list[Node]] = {}
        for number, stage in enumerate(stages):
            for queue in stage.inputs:
                self._join(queue, number)
            for queue in stage.outputs:
                self._join(number, queue)
        # Where the rail in each column leads; None: the column is free.
        self._columns: list[Node | None] = []
        self._laid: set[Node] = set()

    def _join(self, one: Node, other: Node) -> None:
        self._after.setdefault(one, []).append(other)
        self._after.setdefault(other, [])
        self._before.setdefault(one, set())
        self._before.setdefault(other, set()).add(one)

    def lay(self) -> list[tuple[Node, str]]:
        rows = []
        while len(self._laid) < len(self._after):
            node = self._next()
            rows.append((node, self._row(node)))
            self._laid.add(node)
        return rows

    def _next(self) -> Node:
        """The end of the leftmost rail that can end; or where a new one begins."""
        ahead = [node for node in (*self._columns, *self._after) if node is not None]
        for node in ahead:
            if node not in self._laid and self._before[node] <= self._laid:
                return node
        raise ValueError("the pipeline goes round in a circle")

    def _row(self, node: Node) -> str:
        columns = self._columns
        ending = [column for column, target in enumerate(columns) if target == node]
        here = ending[0] if ending else self._free(0)
        merging, splitting = ending[1:], []
        after = self._after[node]
        for target in after[1:]:
            splitting.append(column := self._free(here + 1))
            columns[column] = target
        end = max([here, *merging, *splitting])
        symbol = _STAGE if isinstance(node, int) else _QUEUE
        shapes = {
            here: symbol,
            **dict.fromkeys(merging, "┴"),
            **dict.fromkeys(splitting, "┬"),
        }
        if end != here:
            shapes[end] = "╮" if end in splitting else "╯"
        text = ""
        for column, passing in enumerate(columns):
            way = "─" if here <= column < end else " "
            text += shapes.get(column, way if passing is None else "│") + way
        columns[here] = after[0] if after else None
        for column in merging:
            columns[column] = None
        return text.rstrip()

    def _free(self, first: int) -> int:
        """A free column, at or after the first."""
        for column in range(first, len(self._columns)):
            if self._columns[column] is None:
                return column
        self._columns += [None] * (max(first - len(self._columns), 0) + 1)
        return len(self._columns) - 1
