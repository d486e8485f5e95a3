"""Hurt a driver at every step of a run, let others go on, and count the documents.

    python -m tests.crash.schedules VARIANT HOW [--jobs 1] [--thorough] [--only STEP] [--base DIR]

    HOW
    other, restart, recover    it is killed, and another driver comes, or it itself, or an operator
    any                        these in turn
    woken                      it stands still, is given up by mistake, and goes on
    asked, hurried             it is asked to leave, once or twice
    twice, restarts            another, or it itself, recovers after its death, and is killed too
    overtaken                  another recovers, and stands still while somebody else does

Prints what is wrong, and what to say to repeat just that; then how many schedules there were. What
a failed schedule left stays below DIR.
"""

import argparse
import functools
import itertools
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tests.crash.hazards import AFTER, AFTER_BOTH, ALONE, ended, forked, start
from tests.crash.steps import Steps
from tests.crash.variants import VARIANTS, Scene, Shape


def leaving(base: Path, variant: str) -> Iterator[int]:
    """Yield each step at which killing the first leaves something, and the disk as it was after no
    step before."""
    seen: set[Shape] = set()
    for first in itertools.count(1):
        scene = Scene(base / f"{variant}-{first}", VARIANTS[variant])
        dead = ended(start(scene, "a", Steps(first, signal.SIGKILL))) == -signal.SIGKILL
        if dead and scene.is_unfinished("a") and (shape := scene.shape()) not in seen:
            seen.add(shape)
            yield first
        scene.remove()
        if not dead:
            return


def sweep_both(
    base: Path, variant: str, how: str, firsts: Iterable[int], only: int | None
) -> Iterator[list[str]]:
    """Every step of the second, after each of these of the first."""
    seen_after: set[Shape] = set()
    for first in firsts:
        for second in itertools.count(1) if only is None else (only,):
            scene = Scene(base / f"{variant}-{how}-{first}.{second}", VARIANTS[variant])
            ended(start(scene, "a", Steps(first, signal.SIGKILL)))
            reached, found = AFTER_BOTH[how](scene, second, seen_after)
            yield [f"{variant} {how} --only {first}.{second}: {one}" for one in found]
            if not found:
                scene.remove()
            if not reached:
                break


def sweep(
    base: Path, variant: str, how: str, steps: Iterable[int], thorough: bool
) -> Iterator[list[str]]:
    """Every step of a part, until the driver ends before it gets there."""
    for at in steps:
        what = list(AFTER)[at % len(AFTER)] if how == "any" else how
        scene = Scene(base / f"{variant}-{what}-{at}", VARIANTS[variant])
        reached, found = ALONE[what](scene, at, thorough)
        yield [f"{variant} {what} --only {at}: {one}" for one in found]
        if not found:
            scene.remove()
        if not reached:
            return


def in_parts(jobs: int, base: Path, act: Callable[[int], Iterable[list[str]]]) -> list[list[str]]:
    """What each part found, for each schedule; one process for each."""

    def write(part: int) -> int:
        (base / f"found-{part}").write_bytes(msgspec.json.encode(list(act(part))))
        return 0

    pids = [forked(functools.partial(write, part)) for part in range(jobs)]
    codes = [ended(pid) for pid in pids]
    assert not any(codes), "a part broke down"
    found = ((base / f"found-{part}").read_bytes() for part in range(jobs))
    return [one for part in found for one in msgspec.json.decode(part, type=list[list[str]])]


def _steps(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split("."))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("how", choices=["any", *ALONE, *AFTER_BOTH])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--only", type=_steps)
    parser.add_argument("--base", type=Path)
    given = parser.parse_args()
    base = given.base or Path(tempfile.mkdtemp())
    variant, how, jobs = given.variant, given.how, given.jobs

    firsts: Sequence[int] = ()
    second = None
    if how in AFTER_BOTH:
        first, second = given.only or (None, None)
        firsts = [*leaving(base, variant)] if first is None else [first]

    def part(number: int) -> Iterable[list[str]]:
        below = base / f"part-{number}"
        if how in AFTER_BOTH:
            return sweep_both(below, variant, how, firsts[number::jobs], second)
        steps = itertools.count(number + 1, jobs) if given.only is None else given.only
        return sweep(below, variant, how, steps, given.thorough)

    found = in_parts(jobs, base, part)
    wrong = [line for one in found for line in one]
    for line in wrong:
        print(line)
    print(f"{len(found)} schedules")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
