"""A pipeline drawn: where its boxes and arrows are, and curves of its past. Pure.

Geometry is numbers, which the templates write into attributes: no style in a page would be obeyed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from watchdogd.operators.route import layers

BOX = (190, 84)
_GAP = (64, 22)
_MARGIN = 8
# Ends of a pipeline are smaller than its stages.
_END = (116, 44)
# Of a curve, in the units of its picture.
_PLOT = (300, 60)
# Of names no more is drawn; the whole is in the title.
_MOST_LETTERS = 21


class Node(NamedTuple):
    """A stage, or a queue at an end, that is to be drawn."""

    name: str
    # Queues that come in, and go out.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    is_stage: bool = True


class Box(NamedTuple):
    """A node, and where it is."""

    node: Node
    x: float
    y: float
    width: float
    height: float

    @property
    def short(self) -> str:
        """Return as much of its name as fits."""
        name = self.node.name
        return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"


class Arrow(NamedTuple):
    """A way from a box to another."""

    # Of a path element.
    path: str
    # Names of the nodes, and of the queue between them.
    start: str
    end: str
    queue: str


class Drawing(NamedTuple):
    """A whole pipeline, and how large it is."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    width: float
    height: float


def draw(stages: Sequence[Node]) -> Drawing:
    """Lay out stages from left to right, each as far right as the longest way to it, between the
    queues at both ends."""
    nodes = [*_ends(stages), *stages]
    far = layers([(node.inputs, node.outputs) for node in nodes])
    # No further right than there are columns, and none of them empty.
    columns = [
        [node for node, layer in zip(nodes, far, strict=True) if layer == at]
        for at in sorted({*far})
    ]
    tall = max(map(_height, columns), default=0.0)
    boxes: list[Box] = []
    x = float(_MARGIN)
    for column in columns:
        wide = max(_size(node)[0] for node in column)
        y = _MARGIN + (tall - _height(column)) / 2
        for node in column:
            width, height = _size(node)
            boxes.append(Box(node, x + (wide - width) / 2, y, width, height))
            y += height + _GAP[1]
        x += wide + _GAP[0]
    arrows = tuple(_arrows(boxes))
    return Drawing(tuple(boxes), arrows, max(0, x - _GAP[0]) + _MARGIN, tall + 2 * _MARGIN)


def _ends(stages: Sequence[Node]) -> Iterator[Node]:
    """Yield the queues that no stage fills, and those that none takes from."""
    taken = dict.fromkeys(queue for one in stages for queue in one.inputs)
    filled = dict.fromkeys(queue for one in stages for queue in one.outputs)
    yield from (Node(queue, (), (queue,), is_stage=False) for queue in taken if queue not in filled)
    yield from (Node(queue, (queue,), (), is_stage=False) for queue in filled if queue not in taken)


def _size(node: Node) -> tuple[int, int]:
    return BOX if node.is_stage else _END


def _height(column: Sequence[Node]) -> float:
    return sum(_size(node)[1] for node in column) + _GAP[1] * (len(column) - 1)


def _arrows(boxes: Sequence[Box]) -> Iterator[Arrow]:
    for one in boxes:
        for queue in one.node.outputs:
            for other in boxes:
                if queue in other.node.inputs:
                    yield Arrow(_way(one, other), one.node.name, other.node.name, queue)


def _way(one: Box, other: Box) -> str:
    """Return a curve from the right side of a box to the left side of another."""
    x, y = one.x + one.width, one.y + one.height / 2
    to_x, to_y = other.x - 5, other.y + other.height / 2
    bend = max(24.0, abs(to_x - x) / 2)
    return f"M{x:g},{y:g} C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x:g},{to_y:g}"


# Curves of the past


def curve(samples: Iterable[tuple[float, float]], since: float, until: float, top: float) -> str:
    """Return the points of a polygon of (instant, value) that covers least and most of each column
    of pixels; none where there are no samples. `top` is as high as there is room."""
    wide, tall = _PLOT
    columns: dict[int, tuple[float, float]] = {}
    for at, value in samples:
        column = int((at - since) * wide // (until - since))
        if 0 <= column < wide and value >= 0:
            least, most = columns.get(column, (value, value))
            columns[column] = (min(least, value), max(most, value))
    scale = (tall - 2) / top if top else 0.0
    above = [f"{x},{tall - 1 - most * scale:.4g}" for x, (_, most) in sorted(columns.items())]
    # A line of its own where it never moves.
    below = [
        f"{x},{tall - 0.2 - least * scale:.4g}"
        for x, (least, _) in sorted(columns.items(), reverse=True)
    ]
    return " ".join((*above, *below))
