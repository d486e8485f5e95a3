"""The balance in virtual time: what watchdogd decides each second, on documents that flow as water
does. Hours of a pipeline take seconds, and nothing but the decisions is measured."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table
from watchdogd.balance import complete, move, moved
from watchdogd.pipeline.model import BETWEEN_STAGES
from watchdogd.sizes import Load, Need, Room, fits
from watchdogd.throughput import Throughput

TITLE = "Where drivers are needed, in virtual time"
LEAD = (
    "What watchdogd decides once a second, with what it measures of a stage's pace, for "
    "{documents:,} documents of which all wait at the start. Documents flow evenly; a driver that "
    "is started is ready after its start-up, and one that leaves does so at once. At first nothing "
    "is known of any stage. Beside it the fixed splits that fit and have no room for one driver "
    "more. Minutes until all are through; nothing here is random."
)
EVERY = 30.0
MOST = 8
_STEP = 1.0
_ROOM = Room(memory=8_600_000_000)
# Twelve hours: by then any split is through.
_LONGEST = 43_200.0

Split = Mapping[str, int]


class Part(NamedTuple):
    """One stage: what its driver takes."""

    name: str
    memory: int
    startup: float
    # Seconds for a document of the first half of all, and of the second.
    early: float
    late: float


class Shape(NamedTuple):
    name: str
    parts: tuple[Part, ...]


SHAPES = (
    Shape(
        "0.5, 1.5 and 1 s a document",
        (
            Part("values", 600_000_000, 5.0, 0.5, 0.5),
            Part("parse", 2_000_000_000, 10.0, 1.5, 1.5),
            Part("output", 1_000_000_000, 2.0, 1.0, 1.0),
        ),
    ),
    Shape(
        "moves from the first stage to the last half-way",
        (
            Part("values", 1_000_000_000, 5.0, 2.0, 0.2),
            Part("parse", 1_000_000_000, 5.0, 0.4, 0.4),
            Part("output", 1_000_000_000, 5.0, 0.2, 2.0),
        ),
    ),
)


class Flow:
    """A chain of stages with documents that flow through it, second by second."""

    def __init__(self, parts: Sequence[Part], documents: int, split: Split | None) -> None:
        self.parts = parts
        self.documents = documents
        # What waits before each stage, and at last what is through.
        self.queues = [float(documents), *[0.0] * len(parts)]
        self.done = [0.0] * len(parts)
        self.spent = [0.0] * len(parts)
        self.paces = [Throughput() for _ in parts]
        self.now = 0.0
        self.moves = 0
        self._moved_at = -math.inf
        self.balanced = split is None
        self.split: Split = split or {}
        # When each driver is ready: those of a fixed split are at once.
        self.ready: list[list[float]] = [[0.0] * self.split.get(one.name, 0) for one in parts]

    @property
    def is_through(self) -> bool:
        return self.queues[-1] >= self.documents - 1e-6

    def run(self) -> float:
        """Return the seconds until all is through."""
        while not self.is_through and self.now < _LONGEST:
            if self.balanced:
                self._balance()
            self._step()
        return self.now

    def _balance(self) -> None:
        loads = self.loads()
        self.split = complete(self.split, loads, _ROOM)
        found = move(loads, _ROOM, self.split, self.now - self._moved_at, EVERY)
        if found is not None:
            self.split = moved(self.split, found)
            self._moved_at = self.now
            self.moves += 1
        for part, ready, pace in zip(self.parts, self.ready, self.paces, strict=True):
            del ready[self.split[part.name] :]
            while len(ready) < self.split[part.name]:
                ready.append(self.now + part.startup)
                pace.started(part.startup)

    def loads(self) -> list[Load]:
        """What a watchdog sees of it."""
        return [
            Load(
                stage=part.name,
                backlog=math.ceil(self.queues[place] - 1e-6),
                coming=math.ceil(sum(self.queues[:place]) - 1e-6),
                service=self.paces[place].service,
                startup=self.paces[place].startup or 0.0,
                min=1,
                max=MOST,
                alive=len(self.ready[place]),
                last=len(self.ready[place]),
                memory=Need(part.memory, part.memory),
                cpus=1.0,
            )
            for place, part in enumerate(self.parts)
        ]

    def _step(self) -> None:
        self.now += _STEP
        # The last stage first: nothing passes two stages in one step.
        for place in reversed(range(len(self.parts))):
            part = self.parts[place]
            service = part.early if self.done[place] < self.documents / 2 else part.late
            drivers = sum(at <= self.now for at in self.ready[place])
            room = math.inf
            if place + 1 < len(self.parts):
                room = BETWEEN_STAGES - self.queues[place + 1]
            flow = max(0.0, min(self.queues[place], room, drivers * _STEP / service))
            self.queues[place] -= flow
            self.queues[place + 1] += flow
            self.done[place] += flow
            self.spent[place] += flow * service
            self.paces[place].count(self.now, int(self.done[place]), self.spent[place])


def fixed_splits(parts: Sequence[Part]) -> Iterator[dict[str, int]]:
    """All that fit and have no room for one driver more: those are no better."""
    loads = Flow(parts, 0, {}).loads()
    for counts in itertools.product(range(1, MOST + 1), repeat=len(parts)):
        split = {part.name: count for part, count in zip(parts, counts, strict=True)}
        larger = ({**split, name: split[name] + 1} for name in split if split[name] < MOST)
        if fits(loads, _ROOM, split) and not any(fits(loads, _ROOM, one) for one in larger):
            yield split


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["work", "drivers", "minutes", "× best", "moves"]
    group = Group("")
    for shape in SHAPES:
        documents = scale.virtual_documents
        flow = Flow(shape.parts, documents, None)
        took = flow.run()
        fixed = {
            " / ".join(map(str, split.values())): Flow(shape.parts, documents, split).run()
            for split in fixed_splits(shape.parts)
        }
        best = min(fixed, key=fixed.__getitem__)
        worst = max(fixed, key=fixed.__getitem__)
        names = {f"{best}, the best fixed": fixed[best], f"{worst}, the worst": fixed[worst]}
        times = {"balanced": took, **names}
        for name, seconds in times.items():
            moves = str(flow.moves) if name == "balanced" else "-"
            cells = [f"{seconds / 60:.1f}", f"{seconds / fixed[best]:.2f}", moves]
            group.rows.append([shape.name, name, *cells])
    lead = LEAD.format(documents=scale.virtual_documents)
    return Table(TITLE, lead, columns, [group])
