"""Schedules: drawn from a seed, run, and made short.

A seed is a number; it says which scene is played and what interrupts it. What breaks a promise is
shrunk: interruptions are left out, made simpler, or made to come earlier, as long as the same
promise stays broken. So what is read at the end is a story of a few lines.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.simulation.happenings import Interruption
from tests.simulation.intakes import IntakeSchedule
from tests.simulation.jobs import JobRun
from tests.simulation.run import Run
from tests.simulation.scene import SCENES, Scene
from tests.simulation.world import Violation

# How likely each kind is, among all interruptions.
KINDS = {
    "switch": 40,
    "crash": 14,
    "pause": 6,
    "wake": 3,
    "silence": 8,
    "lose": 8,
    "fail": 6,
    "stale": 6,
    "reboot": 3,
    "consume": 3,
    "cut": 3,
}
# What only makes sense where everything is durable.
_DURABLE_ONLY = ("cut",)
_LENGTH = 160
# More than a scene takes that nothing happens to.
_LONGEST = 3 * _LENGTH
# Of the scenes: these take several times as long as the others, or are rarely of interest.
_SHARES = {"again": 2, "batch": 2, "given up": 1, "later": 1, "poison": 1, "theirs": 2, "long": 1}
_SHRINKS = 3000


class Schedule(NamedTuple):
    """What is played, and what interrupts it."""

    scene: Scene
    interruptions: tuple[Interruption, ...]

    def run(self) -> Run:
        """A run of it, to be called."""
        kind = JobRun if self.scene.of_jobs else Run
        return kind(self.scene, list(self.interruptions))


def draw(
    seed: int, scenes: Sequence[str] = tuple(SCENES), kinds: Mapping[str, int] = KINDS
) -> Schedule:
    """The schedule of a seed."""
    chance = random.Random(seed)
    scene = SCENES[chance.choices(scenes, [_SHARES.get(name, 6) for name in scenes])[0]]
    count = min(40, 1 + int(chance.expovariate(0.3)))
    length = chance.choice((_LENGTH // 2, _LENGTH, 2 * _LENGTH))
    likely = {
        kind: weight
        for kind, weight in (*kinds.items(), *scene.also)
        if scene.options.durable or kind not in _DURABLE_ONLY
    }
    found = []
    for _ in range(count):
        kind = chance.choices(list(likely), list(likely.values()))[0]
        found.append(Interruption(chance.randint(1, length), kind, chance.randint(0, 11)))
    return Schedule(scene, tuple(sorted(found)))


def hunt(
    scenes: Sequence[str], kinds: Mapping[str, int] = KINDS, seeds: int = 30_000
) -> Schedule | None:
    """The first schedule that breaks a promise."""
    for seed in range(seeds):
        schedule = draw(seed, scenes, kinds)
        if broken(schedule) is not None:
            return schedule
    return None


def hunt_for(pattern: Sequence[Interruption], scenes: Sequence[str]) -> Schedule | None:
    """The first step of a scene at which this, from there on, breaks a promise."""
    for name in scenes:
        for first in range(_LONGEST):
            each = tuple(one._replace(step=first + one.step) for one in pattern)
            schedule = Schedule(SCENES[name], each)
            if broken(schedule) is not None:
                return schedule
    return None


def outline(schedule: Schedule | IntakeSchedule) -> str:
    """A schedule as Python that makes it."""
    each = ", ".join(f"({one.step}, {one.kind!r}, {one.which})" for one in schedule.interruptions)
    return f"schedule({schedule.scene.name!r}, {each})"


def schedule(scene: str, *interruptions: tuple[int, str, int]) -> Schedule:
    """The inverse of `outline`, for a schedule that is to be kept."""
    return Schedule(SCENES[scene], tuple(Interruption(*one) for one in interruptions))


def broken(schedule: Schedule | IntakeSchedule) -> str | None:
    """The promise that a schedule breaks."""
    try:
        schedule.run()()
    except Violation as violation:
        return str(violation)
    return None


def story(schedule: Schedule | IntakeSchedule, whole: bool = False) -> list[str]:
    """What is done in it, step by step, and how it ends."""
    run = schedule.run()
    run.happenings.tell(whole)
    end = "all is well"
    try:
        run()
    except Violation as violation:
        end = f"BROKEN: {violation}"
    assert run.happenings.story is not None
    return [*run.happenings.story, end]


def shrunk(schedule: Schedule, check: Callable[[Schedule], str | None] = broken) -> Schedule:
    """A simpler schedule that breaks the same promise."""
    wrong = check(schedule)
    assert wrong is not None
    kind = wrong.partition(":")[0]
    tries = 0
    better = True
    while better and tries < _SHRINKS:
        better = False
        for candidate in _simpler(schedule):
            tries += 1
            found = check(candidate)
            if found is not None and found.partition(":")[0] == kind:
                schedule, better = candidate, True
                break
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    scene, ones = schedule
    for size in (len(ones) // 2, len(ones) // 4, 1):
        for start in range(0, len(ones), max(size, 1)):
            if size:
                yield Schedule(scene, ones[:start] + ones[start + size :])
    for index, one in enumerate(ones):
        for step in sorted({1, one.step // 2, one.step - 8, one.step - 1}):
            if 0 < step < one.step:
                changed = one._replace(step=step)
                yield Schedule(scene, tuple(sorted((*ones[:index], changed, *ones[index + 1 :]))))
        for which in sorted({0, 1, one.which - 1}):
            if 0 <= which < one.which:
                changed = one._replace(which=which)
                yield Schedule(scene, (*ones[:index], changed, *ones[index + 1 :]))
