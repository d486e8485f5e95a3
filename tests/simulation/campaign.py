"""Many schedules, in several processes."""

import gc
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import NamedTuple

from tests.simulation.exhaustive import Explored, explore
from tests.simulation.intakes import draw as draw_intakes
from tests.simulation.scene import SCENES
from tests.simulation.schedules import Schedule, broken, draw

# Seeds that one process tries at a time: half a second.
_PART = 250
# More than these are one and the same.
_ENOUGH = 20


class Found(NamedTuple):
    """What came of a campaign."""

    schedules: int
    seconds: float
    broken: list[tuple[int, str]]

    def __str__(self) -> str:
        rate = self.schedules / self.seconds
        wrong = f"{len(self.broken)} broke a promise" if self.broken else "no promise was broken"
        return f"{self.schedules} schedules in {self.seconds:.0f} s ({rate:.0f}/s): {wrong}"


def campaign(
    first: int,
    schedules: int | None,
    seconds: float | None,
    jobs: int,
    report: Callable[[object], None] = lambda words: None,
    *,
    intakes: bool = False,
) -> Found:
    """From a first seed on, so many or so long; of drivers, or of intakes."""
    started = time.monotonic()
    done = 0
    wrong: list[tuple[int, str]] = []
    last = None if schedules is None else first + schedules
    running: set[Future[list[tuple[int, str]]]] = set()
    told_at = started
    # A new interpreter for each: a fork would take over whatever else this process has running.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _warm_up) as pool:
        while len(wrong) < _ENOUGH:
            now = time.monotonic()
            late = seconds is not None and now - started > seconds
            while not late and len(running) < 4 * jobs and (last is None or first < last):
                until = first + _PART if last is None else min(first + _PART, last)
                running.add(pool.submit(attempt, first, until, intakes=intakes))
                done += until - first
                first = until
            if not running:
                break
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                wrong += one.result()
            if now - told_at > 10.0:
                told_at = now
                count = done - len(running) * _PART
                report(f"{count} schedules, {count / (now - started):.0f}/s, {len(wrong)} broken")
        pool.shutdown(cancel_futures=True)
    return Found(done, time.monotonic() - started, sorted(wrong))


def explore_all(scene: str, depth: int, kinds: Sequence[str], jobs: int) -> Explored:
    """Every schedule up to a depth. A state that two processes come to is counted by both."""
    # No more parts than processes: what one of them knows, the others do not.
    parts = jobs
    with ProcessPoolExecutor(jobs, get_context("spawn"), _warm_up) as pool:
        searches = [
            pool.submit(explore, SCENES[scene], depth, kinds, part, parts) for part in range(parts)
        ]
        found = [search.result() for search in searches]
    return Explored(
        depth,
        # The undisturbed run is each one's.
        sum(one.schedules for one in found) - parts + 1,
        sum(one.states for one in found),
        [wrong for one in found for wrong in one.broken],
    )


def attempt(first: int, until: int, *, intakes: bool) -> list[tuple[int, str]]:
    """The seeds of a range that break a promise, and which."""
    drawn = draw_intakes if intakes else draw
    found = ((seed, broken(drawn(seed))) for seed in range(first, until))
    return [(seed, wrong) for seed, wrong in found if wrong is not None]


def _warm_up() -> None:
    for name in SCENES:
        Schedule(SCENES[name], ()).run()()
    # What is there now stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    # And a run leaves little: it may look once for several of them.
    gc.set_threshold(20_000)
