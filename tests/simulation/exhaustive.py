"""All schedules with up to so many interruptions, and no other.

The search is stateless: a schedule is extended by one more interruption, at each step after its
last and of each kind, and played from the beginning. What makes that bearable: where a run comes to
a state from which everything has been tried already, nothing is tried again. A state is what is on
the disk, who sleeps until when, and what each process has been told by the system since it started,
from which all that is in its memory follows.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.simulation.happenings import Interruption
from tests.simulation.reckoning import COUNTED
from tests.simulation.run import Run
from tests.simulation.scene import Scene
from tests.simulation.schedules import Schedule
from tests.simulation.world import Violation


class Explored(NamedTuple):
    """What a search has seen."""

    depth: int
    schedules: int
    states: int
    broken: list[tuple[Schedule, str]]

    def __str__(self) -> str:
        wrong = f"{len(self.broken)} broke a promise" if self.broken else "no promise was broken"
        return (
            f"all schedules of up to {self.depth} interruptions: {self.schedules} runs, "
            f"{self.states} states; {wrong}"
        )


class _KnownState(BaseException):
    """Ends a run that goes on as another did."""


# How many there are of each kind, but for a switch: whether somebody who was killed is replaced,
# whether a call that was carried out says ENOENT or EIO.
CHOICES = {"crash": 2, "pause": 1, "silence": 1, "lose": 2, "fail": 1, "reboot": 2, "consume": 1}
KINDS = ("switch", *CHOICES)


class Fresh(NamedTuple):
    """A step before which nobody has been yet; and how many others could move first there."""

    step: int
    others: int


def explore(
    scene: Scene, depth: int, kinds: Sequence[str] = KINDS, part: int = 0, of: int = 1
) -> Explored:
    """Play them all; or, for one process of several, its part of them."""
    known: dict[int, int] = {}
    runs = 0
    broken: list[tuple[Schedule, str]] = []
    todo: list[tuple[Interruption, ...]] = [()]
    while todo:
        schedule = todo.pop()
        runs += 1
        left = depth - len(schedule)
        steps, wrong = _play(scene, schedule, left, known)
        if wrong is not None:
            broken.append((Schedule(scene, schedule), wrong))
        each = [(*schedule, one) for fresh in steps for one in _each(fresh, kinds)]
        todo += each if schedule else each[part::of]
    return Explored(depth, runs, len(known), broken)


def _each(fresh: Fresh, kinds: Sequence[str]) -> Iterator[Interruption]:
    for kind in kinds:
        for which in range(CHOICES.get(kind, fresh.others)):
            yield Interruption(fresh.step, kind, which)


def _play(
    scene: Scene, schedule: tuple[Interruption, ...], left: int, known: dict[int, int]
) -> tuple[list[Fresh], str | None]:
    """At which steps a further interruption would be something new; and what was broken."""
    run = Run(scene, schedule)
    happenings, world = run.happenings, run.world
    fresh: list[Fresh] = []

    def watch() -> None:
        if happenings.pending:
            return
        state = _state(run)
        if known.get(state, -1) >= left:
            raise world.stop(_KnownState())
        known[state] = left
        if left:
            fresh.append(Fresh(int(world.kernel.taken), len(world.others())))
        else:
            # What follows is one fixed sequence of steps.
            happenings.watch = None
            happenings.look_ahead()

    happenings.watch = watch
    happenings.look_ahead()
    try:
        run()
    except _KnownState:
        pass
    except Violation as violation:
        return fresh, str(violation)
    return fresh, None


def _state(run: Run) -> int:
    """All that the future depends on, and what will be asked of the past, as one number."""
    disk = run.world.disk
    seen = []
    for one in disk.inodes():
        names = [(name, entry.number) for name, entry in (one.entries or {}).items()]
        seen.append((one.number, one.data, *names))
    asked = tuple(run.happenings.count[kind] for kind in COUNTED)
    disk_state = tuple(seen), disk.free_numbers, disk.capacity, disk.takes_files
    return hash((run.world.state(), disk_state, asked, run.ledger.state()))
