"""What may happen to a driver at one step of a run, and what has to be so afterwards.

Each schedule is a function of a scene and a step; it says whether the run got as far as that step,
and what is wrong. Each driver is a fork of this process, which has imported everything.
"""

import ctypes
import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping

from queuedriver.operating import operations
from queuedriver.operating.queue import Queue
from tests.crash.mistaken import give_up
from tests.crash.steps import Steps, install
from tests.crash.variants import Scene, Shape

# Leaving nothing behind, nothing but documents that are not due, and documents that were given up.
_FINE = (0, 75, 1)
_OURS = 70
# Added to the exit code of a driver that got as far as its step.
_REACHED = 100
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
        with Queue.open(scene.input) as queue, operations.journal_of(queue) as journal:
            operations.recover(queue, journal)
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


def killed(how: str, scene: Scene, at: int, thorough: bool) -> tuple[bool, list[str]]:
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


def asked(wishes: int, scene: Scene, at: int, thorough: bool) -> tuple[bool, list[str]]:
    """The driver is asked to leave, once or in a hurry: it leaves nothing and charges nobody."""
    steps = Steps(at, *[signal.SIGTERM] * wishes)

    def act() -> int:
        install(steps, thorough)
        code = scene.driver("a").run().exit_code
        return code + _REACHED if steps.reached else code

    code = ended(forked(act))
    # While it starts, a signal ends it, and nothing is claimed.
    reached = code == -signal.SIGTERM or code >= _REACHED
    if code != -signal.SIGTERM and code % _REACHED not in _FINE:
        return True, [f"driver a ended with {code}"]
    found = [f"claimed still: {name}" for name, item in scene.items() if item.token]
    fates = scene.foresee()
    scene.consume()
    return reached, found + drain(scene, "b") + scene.complaints(fates)


def stopped(pid: int) -> bool:
    """Whether a child came to stand still, rather than to its end."""
    return os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])


def wake(pid: int) -> list[str]:
    """Let a child go on to its end."""
    os.kill(pid, signal.SIGCONT)
    code = ended(pid)
    return [] if code in _FINE else [f"the woken driver ended with {code}"]


# Who recovers what the first driver left is hindered too. Each returns whether it got that far.


def killed_twice(who: str, scene: Scene, at: int, seen: set[Shape]) -> tuple[bool, list[str]]:
    """It is killed, and a third one recovers after both."""
    before = scene.foresee()
    scene.consume()
    code = ended(start(scene, who, Steps(at, signal.SIGKILL)))
    if code != -signal.SIGKILL and code not in _FINE:
        return True, [f"driver {who} ended with {code}"]
    # Steps after it has recovered are those of any driver.
    reached = code == -signal.SIGKILL and scene.is_unfinished("a")
    # What comes after depends on nothing but what is on disk now.
    if (shape := scene.shape()) in seen:
        return reached, []
    seen.add(shape)
    fates = scene.foresee(before)
    scene.consume()
    return reached, drain(scene, "a") + scene.complaints(fates)


def overtaken(scene: Scene, at: int, seen: set[Shape]) -> tuple[bool, list[str]]:
    """It stands still while another recovers the same, and then goes on."""
    fates = scene.foresee()
    scene.consume()
    pid = start(scene, "b", Steps(at, signal.SIGSTOP))
    if not stopped(pid):
        return False, drain(scene, "c") + scene.complaints(fates)
    if scene.starting() or not scene.is_unfinished("a"):
        # It has not begun to recover, or has no more to do with what the first one left.
        os.kill(pid, signal.SIGKILL)
        ended(pid)
        return scene.is_unfinished("a"), []
    found = recover(scene, strict=False)
    scene.consume()
    return True, found + wake(pid) + drain(scene, "c") + scene.complaints(fates)


ALONE: Mapping[str, Callable[[Scene, int, bool], tuple[bool, list[str]]]] = {
    **{how: functools.partial(killed, how) for how in AFTER},
    "woken": woken,
    "asked": functools.partial(asked, 1),
    "hurried": functools.partial(asked, 2),
}
AFTER_BOTH: Mapping[str, Callable[[Scene, int, set[Shape]], tuple[bool, list[str]]]] = {
    "twice": functools.partial(killed_twice, "b"),
    "restarts": functools.partial(killed_twice, "a"),
    "overtaken": overtaken,
}
