"""Random schedules, for as long as one likes.

    python -m tests.simulation --minutes 10          from a seed of today, on every processor
    python -m tests.simulation --schedules 200000 --seed 1
    python -m tests.simulation --replay 4711         every step of one seed's schedule
    python -m tests.simulation --intakes --schedules 5000 --seed 0
                                                     the same of intakes; also with --replay
    python -m tests.simulation --mutants             each broken rule, and the shortest story of it
    python -m tests.simulation --exhaustive 2 --kinds switch crash
                                                     all schedules of up to two of these

What breaks a promise is shrunk and told, step by step, with the command that tells it again.
"""

import argparse
import os
import sys
import time

from tests.simulation.campaign import campaign, explore_all
from tests.simulation.exhaustive import KINDS
from tests.simulation.intakes import IntakeSchedule
from tests.simulation.intakes import draw as draw_intakes
from tests.simulation.job_mutants import JOB_MUTANTS
from tests.simulation.mutants import MUTANTS
from tests.simulation.scene import SCENES
from tests.simulation.schedules import Schedule, broken, draw, outline, shrunk, story

RULES = MUTANTS | JOB_MUTANTS


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=1.0, help="how long")
    parser.add_argument("--schedules", type=int, help="how many, instead of how long")
    parser.add_argument("--seed", type=int, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--intakes", action="store_true", help="of intakes, not of drivers")
    parser.add_argument("--replay", type=int, metavar="SEED", help="tell the story of one seed")
    parser.add_argument("--whole", action="store_true", help="do not shrink it, tell every step")
    parser.add_argument("--exhaustive", type=int, metavar="DEPTH", help="all there are, up to here")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--scene", default="plain", choices=list(SCENES))
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="of these, or of all")
    given = parser.parse_args()
    if given.replay is not None and given.intakes:
        return tell_all(draw_intakes(given.replay))
    if given.replay is not None:
        return replay(draw(given.replay), given.whole)
    if given.mutants is not None:
        return tell_mutants(given.mutants or list(RULES))
    if given.exhaustive is not None:
        explored = explore_all(given.scene, given.exhaustive, given.kinds, given.jobs)
        for schedule, wrong in explored.broken:
            print(f"{wrong}: {outline(schedule)}")
        print(explored)
        return 1 if explored.broken else 0
    # Another part of the seeds each day, the same for everybody.
    first = int(time.time() // 86400) * 10**8 if given.seed is None else given.seed
    seconds = None if given.schedules else 60.0 * given.minutes
    found = campaign(first, given.schedules, seconds, given.jobs, print, intakes=given.intakes)
    again = f"--{'intakes --' if given.intakes else ''}replay"
    for seed, wrong in found.broken:
        print(f"seed {seed}: {wrong}; python -m tests.simulation {again} {seed}")
    print(found)
    return 1 if found.broken else 0


def tell_all(schedule: IntakeSchedule) -> int:
    """Every step of one of intakes."""
    print(outline(schedule), *story(schedule, whole=True), sep="\n")
    return 0 if broken(schedule) is None else 1


def replay(schedule: Schedule, whole: bool) -> int:
    wrong = broken(schedule)
    if wrong is not None and not whole:
        schedule = shrunk(schedule)
    print(outline(schedule))
    print("\n".join(story(schedule, whole)))
    return 0 if wrong is None else 1


def tell_mutants(wanted: list[str]) -> int:
    for name in wanted:
        mutant = RULES[name]
        with mutant():
            started = time.perf_counter()
            found = mutant.hunt()
            if found is None:
                print(f"{name}: NOT NOTICED")
                return 1
            print(f"\n{name}: {mutant.why}\nnoticed after {time.perf_counter() - started:.1f} s")
            replay(found, whole=False)
    return 0


if __name__ == "__main__":
    # Sets of names are iterated here and there: only so does a seed mean the same in each run.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
