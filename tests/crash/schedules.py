"""Kill a driver at every step, let others go on, and count the documents.

    python -m tests.crash.schedules VARIANT HOW [--jobs 1] [--thorough] [--only STEP] [--base DIR]

HOW says who comes after the dead driver: `other`, `restart`, `recover`, or `any` of them in turn;
or that it was not dead: `woken`; or that who came after it is killed at every step too: `twice`; or
stands still there while somebody else recovers: `overtaken`. All is imported once; each driver is a
fork. Prints what is wrong, and what to say to repeat just that; then how many schedules there were.
What a failed schedule left stays below DIR.
"""

import argparse
import ctypes
import functools
import itertools
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from queuedriver.operator import Rescue, journal_of
from queuedriver.queue import Queue
from tests.crash.mistaken import give_up
from tests.crash.steps import Steps, install
from tests.crash.variants import VARIANTS, Scene, Shape

# Leaving nothing behind, nothing but documents that are not due, and documents that were given up.
_FINE = (0, 75, 1)
_OURS = 70
# No child outlives us, not even one that stands still.
_PR_SET_PDEATHSIG = 1


def forked(act: Callable[[], int]) -> int:
    """The pid of a child that does this and exits with what it returns."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        code = act()
    except BaseException:  # noqa: BLE001 - nothing may leave the child but its exit code
        traceback.print_exc(file=sys.stdout)
        code = _OURS
    sys.stdout.flush()
    os._exit(code)


def ended(pid: int) -> int:
    """The exit code of a child; negative: the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def start(scene: Scene, driver: str, steps: Steps | None = None, thorough: bool = False) -> int:
    """The pid of a new driver."""

    def act() -> int:
        if steps is not None:
            install(steps, thorough)
        return scene.driver(driver).run().exit_code

    return forked(act)


def drain(scene: Scene, driver: str) -> list[str]:
    """Drive until nothing is left."""
    while (code := ended(start(scene, driver))) == 75:
        scene.time_passes()
    return [] if code in _FINE else [f"driver {driver} ended with {code}"]


def recover(scene: Scene, strict: bool = True) -> list[str]:
    """What `queuedriver recover` does."""

    def act() -> int:
        with Queue.open(scene.input) as queue, journal_of(queue) as journal:
            Rescue(queue, journal).recover()
        return 0

    code = ended(forked(act))
    if code:
        return [f"the recoverer ended with {code}"]
    left = [name for name, item in scene.items() if item.token]
    return [f"not recovered: {name}" for name in left] if strict else []


def given_up(scene: Scene) -> list[str]:
    """What somebody does who sees no life in any driver."""

    def act() -> int:
        give_up(scene.input)
        return 0

    code = ended(forked(act))
    return [f"the recoverer ended with {code}"] if code else []


# What comes after the first driver was killed. Each returns its complaints.


def other(scene: Scene) -> list[str]:
    return drain(scene, "b")


def restart(scene: Scene) -> list[str]:
    return drain(scene, "a")


def recovered(scene: Scene) -> list[str]:
    return recover(scene) + drain(scene, "b")


AFTER = {"other": other, "restart": restart, "recover": recovered}


def killed(scene: Scene, how: str, at: int, thorough: bool) -> tuple[bool, list[str]]:
    """One schedule; whether the driver got as far as its step, and what is wrong after it."""
    code = ended(start(scene, "a", Steps(at, signal.SIGKILL), thorough))
    if code != -signal.SIGKILL and code not in _FINE:
        return True, [f"driver a ended with {code}"]
    fates = scene.foresee()
    scene.consume()
    return code == -signal.SIGKILL, AFTER[how](scene) + scene.complaints(fates)


def woken(scene: Scene, at: int, thorough: bool) -> tuple[bool, list[str]]:
    """The driver stands still, is taken for lost, and goes on when others have done its work."""
    pid = start(scene, "a", Steps(at, signal.SIGSTOP), thorough)
    if not stopped(pid):
        fates = scene.foresee()
        return False, drain(scene, "b") + scene.complaints(fates)
    if scene.starting():
        # Everybody waits for it to go on, and it has claimed nothing yet.
        fates = scene.foresee()
        return True, wake(pid) + drain(scene, "b") + scene.complaints(fates)
    found = given_up(scene)
    fates = scene.foresee()
    scene.consume()
    found += drain(scene, "b")
    scene.consume()
    tries = scene.tries()
    found += wake(pid)
    # What it was at may be tried in vain; nothing else of what it does may show.
    scene.set_tries(tries)
    return True, found + scene.complaints(fates)


def stopped(pid: int) -> bool:
    """Whether a child came to stand still, rather than to its end."""
    return os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])


def wake(pid: int) -> list[str]:
    """Let a child go on to its end."""
    os.kill(pid, signal.SIGCONT)
    code = ended(pid)
    return [] if code in _FINE else [f"the woken driver ended with {code}"]


# Who recovers what the first driver left is hindered too. Each returns whether it got that far.


def killed_twice(scene: Scene, at: int, seen: set[Shape]) -> tuple[bool, list[str]]:
    """It is killed, and a third one recovers after both."""
    before = scene.foresee()
    scene.consume()
    code = ended(start(scene, "b", Steps(at, signal.SIGKILL)))
    if code != -signal.SIGKILL and code not in _FINE:
        return True, [f"driver b ended with {code}"]
    reached = code == -signal.SIGKILL
    # What comes after depends on nothing but what is on disk now.
    if (shape := scene.shape()) in seen:
        return reached, []
    seen.add(shape)
    fates = scene.foresee(before)
    scene.consume()
    return reached, drain(scene, "c") + scene.complaints(fates)


def overtaken(scene: Scene, at: int, seen: set[Shape]) -> tuple[bool, list[str]]:
    """It stands still while another recovers the same, and then goes on."""
    fates = scene.foresee()
    scene.consume()
    pid = start(scene, "b", Steps(at, signal.SIGSTOP))
    if not stopped(pid):
        return False, drain(scene, "c") + scene.complaints(fates)
    if scene.starting():
        # It has not begun to recover.
        os.kill(pid, signal.SIGKILL)
        ended(pid)
        return True, []
    found = recover(scene, strict=False)
    scene.consume()
    return True, found + wake(pid) + drain(scene, "c") + scene.complaints(fates)


def _is_unfinished(shape: Shape) -> bool:
    """Whether somebody left something to recover."""
    return any(".working" in name or ".written" in name or "/.a.report" in name for name in shape)


AFTER_BOTH = {"twice": killed_twice, "overtaken": overtaken}


def sweep_both(base: Path, variant: str, how: str, part: int, parts: int) -> Iterator[list[str]]:
    """Every step of the second, for each state of the disk that killing the first can leave."""
    seen: set[Shape] = set()
    seen_after: set[Shape] = set()
    for first in itertools.count(1):
        for second in itertools.count(1):
            scene = Scene(base / f"{variant}-{how}-{first}.{second}", VARIANTS[variant])
            dead = ended(start(scene, "a", Steps(first, signal.SIGKILL))) == -signal.SIGKILL
            if second == 1:
                shape = scene.shape()
                mine = dead and shape not in seen and _is_unfinished(shape)
                if mine:
                    seen.add(shape)
                    mine = len(seen) % parts == part
            if not mine:
                scene.remove()
                break
            reached, found = AFTER_BOTH[how](scene, second, seen_after)
            yield [f"{variant} {how} {first}.{second}: {one}" for one in found]
            if not found:
                scene.remove()
            if not reached:
                break
        if not dead:
            return


def sweep(
    base: Path, variant: str, how: str, steps: Iterable[int], thorough: bool
) -> Iterator[list[str]]:
    """Every step of a part, until the driver ends before it gets there."""
    for at in steps:
        who = list(AFTER)[at % len(AFTER)] if how == "any" else how
        scene = Scene(base / f"{variant}-{who}-{at}", VARIANTS[variant])
        if who == "woken":
            reached, found = woken(scene, at, thorough)
        else:
            reached, found = killed(scene, who, at, thorough)
        yield [f"{variant} {who} --only {at}: {one}" for one in found]
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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("how", choices=[*AFTER, "any", "woken", *AFTER_BOTH])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--only", type=int)
    parser.add_argument("--base", type=Path)
    given = parser.parse_args()
    base = given.base or Path(tempfile.mkdtemp())
    variant, how, jobs = given.variant, given.how, given.jobs

    def part(number: int) -> Iterable[list[str]]:
        below = base / f"part-{number}"
        if how in AFTER_BOTH:
            return sweep_both(below, variant, how, number, jobs)
        steps = itertools.count(number + 1, jobs) if given.only is None else (given.only,)
        return sweep(below, variant, how, steps, given.thorough)

    found = in_parts(jobs, base, part)
    wrong = [line for one in found for line in one]
    for line in wrong:
        print(line)
    print(f"{len(found)} schedules")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
