"""Two stages and a submitter on a disk whose power is cut again and again.

Each round: switch the power on, submit and process for a random time, cut it; replay the disk's
journal, and look whether all is there that the queues had said was safe; then let drivers finish,
and look whether every document came out whole, once.

Either the disk alone loses its power, which takes no boot (`cut_disk`, all of it in one guest), or
the whole guest does (`cut_guest`, from the host).
"""

import contextlib
import faulthandler
import functools
import os
import random
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from queuedriver.check.check import check, repair
from queuedriver.disk.filesystem import make_directory
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from tests.testbed import work
from tests.testbed.flakey import DISK, WHERE, FlakeyDisk, e2fsck
from tests.testbed.guest import LAB, mount, run
from tests.testbed.lab import Guest, Lab
from tests.waiting import until

PATIENCE = 90.0
FIRST, SECOND, LAST = (f"{WHERE}/{name}" for name in ("first", "second", "last"))
_DRIVERS = (
    ("a1", FIRST, SECOND),
    ("a2", FIRST, SECOND),
    ("b1", SECOND, LAST),
    ("b2", SECOND, LAST),
)
# What the file system keeps in memory for how long, and in which order it brings it to the disk:
# the usual ways, and the ways that forgive least. Nothing is written for having waited long enough.
_MOUNTS = ("data=ordered", "data=ordered,commit=1", "data=writeback,noauto_da_alloc,commit=600")
# Seconds from the first document to the cut.
_SOONEST, _LATEST = 0.05, 1.5
# Seconds from one document to the next: a few to look at are enough; and that one takes in a stage,
# at most: all drivers are at work, whenever the power is cut.
_BETWEEN, _TAKES = 0.02, 0.15
# What a submitter was writing when it ended is no document yet.
_LITTER = ("leftover-incoming",)
_LEDGER = "acknowledged"

Tally = dict[str, int]


class Scene(NamedTuple):
    """What goes on when the power is cut, and when that is."""

    mount: str
    seconds: float
    # How many documents are submitted together.
    together: int
    # Whether there are drivers. They bring all to the disk that others forgot to.
    driven: bool
    # Whether they were stopped a moment before, so that nothing happens in that moment.
    stopped: bool


def _scene(number: int, seed: int) -> Scene:
    chance = random.Random(f"{seed} {number}")
    return Scene(
        _MOUNTS[number % len(_MOUNTS)],
        chance.uniform(_SOONEST, _LATEST),
        chance.randrange(1, 3),
        driven=chance.random() < 0.75,
        stopped=chance.random() < 0.5,
    )


def guest_with_disk(lab: Lab) -> Guest:
    """A machine with an empty file system."""
    image = lab.directory / "disk.img"
    with open(image, "xb") as file:
        file.truncate(128 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    guest = lab.guest("host", image)
    guest.boot()
    guest.ready()
    return guest


def cut_guest(guest: Guest, times: int, seed: int) -> Tally:
    """Cut the power of the whole machine so many times."""
    total: Tally = {}
    for number in range(times):
        guest.call(begin, number, seed)
        time.sleep(_scene(number, seed).seconds)
        # Some, on a machine that does other things too.
        safe = until(lambda: _some(_acknowledged(guest.lab.directory)), "documents are safe")
        guest.cut_power()
        guest.boot()
        guest.ready()
        _add(total, guest.call(recover, sorted(safe)))
    return total


def _some(safe: set[str]) -> set[str]:
    """Return documents when there is more than one; else none."""
    return safe if len(safe) > 1 else set()


# In the guest


class _Processes:
    """Functions that run in processes of their own."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def start(self, what: Callable[..., Any], *args: Any) -> None:
        pid = os.fork()
        if pid:
            self._pids.append(pid)
            return
        try:
            # Those that are to be cut short give way to the one that does it.
            os.nice(5)
            faulthandler.enable()
            what(*args)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - nothing of a fork may go on as its parent
            traceback.print_exc()
            os._exit(1)

    def signal(self, number: signal.Signals) -> None:
        for pid in self._pids:
            os.kill(pid, number)

    def wait(self) -> None:
        """Until all have ended. Raises for one that failed, or does not end."""
        end = time.monotonic() + PATIENCE
        for pid in self._pids:
            while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
                if time.monotonic() > end:
                    # Says on the console where it is.
                    os.kill(pid, signal.SIGABRT)
                    os.waitpid(pid, 0)
                    raise AssertionError(f"process {pid} has not ended; the console says where")
                time.sleep(0.01)
            if os.waitstatus_to_exitcode(ended[1]) not in (0, -signal.SIGKILL):
                raise AssertionError(f"process {pid} failed; the console of the guest says why")


def cut_disk(times: int, seed: int, first: int = 0, *, durable: bool = True) -> Tally:
    """Cut the power of the disk so many times, beginning with the scene `first`. Raises at the
    first document that is lost, doubled or broken, and says how to see that again."""
    disk = FlakeyDisk()
    total: Tally = {}
    for number in range(first, first + times):
        scene = _scene(number, seed)
        try:
            _add(total, _round(disk, number, scene, durable))
        except Exception as error:
            raise AssertionError(f"cut {number + 1} of seed {seed} ({scene}): {error}") from error
    return total


def _round(disk: FlakeyDisk, number: int, scene: Scene, durable: bool) -> Tally:
    disk.switch_on(scene.mount)
    processes = _start_all(number, scene, durable)
    try:
        disk.prepare_cut()
        time.sleep(scene.seconds)
        if scene.stopped:
            processes.signal(signal.SIGSTOP)
        # What is acknowledged after this does not count, be it before the cut by a hair.
        safe = _acknowledged(LAB)
        disk.cut_power()
    finally:
        processes.signal(signal.SIGKILL)
        processes.wait()
    disk.take_down()
    return recover(sorted(safe), durable)


def begin(number: int, seed: int) -> None:
    """Submit and process until the power is gone."""
    scene = _scene(number, seed)
    os.makedirs(WHERE, exist_ok=True)
    mount("ext4", WHERE, DISK, scene.mount)
    _start_all(number, scene, durable=True)


def recover(safe: list[str], durable: bool = True) -> Tally:
    """After the cut: what was safe is there, and comes out; what there was to look at."""
    e2fsck()
    os.makedirs(WHERE, exist_ok=True)
    mount("ext4", WHERE, DISK)
    try:
        leftovers = _examine(set(safe))
        _finish(durable)
        published = _examine_end(set(safe))
    finally:
        run("umount", WHERE)
    return {"cuts": 1, "safe": len(safe), "published": published, "leftovers": leftovers}


def _add(total: Tally, one: Tally) -> None:
    total.update({key: total.get(key, 0) + value for key, value in one.items()})


def _start_all(number: int, scene: Scene, durable: bool) -> _Processes:
    """Two drivers for each of two stages, and a submitter; returns when documents come, and drivers
    are at work on them."""
    for path in (FIRST, SECOND, LAST):
        make_directory(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{LAB}/{_LEDGER}")
    processes = _Processes()
    drivers = _DRIVERS if scene.driven else ()
    for driver, inputs, outputs in drivers:
        work.states_file(LAB, driver).unlink(missing_ok=True)
        given = (inputs, outputs, driver, {"durable": durable})
        processes.start(functools.partial(work.drive, takes=_TAKES), *given)
    _wait(lambda: all("ready" in _said(driver) for driver, *_ in drivers))
    processes.start(_submit, number, scene.together, durable)
    _wait(lambda: _acknowledged(LAB) and (work.states(SECOND) or not drivers))
    return processes


def _wait(fact: Callable[[], object]) -> None:
    until(lambda: bool(fact()), "drivers are at work on documents", PATIENCE)


def _said(driver: str) -> str:
    """Return the states that a driver was in."""
    path = work.states_file(LAB, driver)
    return path.read_text() if path.exists() else ""


def _submit(number: int, together: int, durable: bool) -> None:
    """Submit without end, and note what is safe as soon as the queue says so."""
    for index in range(1_000_000):
        docids = [f"cut{number}-{index}-{one}" for one in range(together)]
        work.put(FIRST, docids, durable)
        with open(f"{LAB}/{_LEDGER}", "a") as ledger:
            ledger.write("".join(f"{docid}\n" for docid in docids))
        time.sleep(_BETWEEN)


def _acknowledged(lab: str | Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError), open(f"{lab}/{_LEDGER}") as ledger:
        # A line that is still being written is not in it yet.
        return {line[:-1] for line in ledger if line.endswith("\n")}
    return set()


def _examine(safe: set[str]) -> int:
    """Right after the cut: all is somewhere, and whole. How much there is to recover."""
    there: set[str] = set()
    leftovers = 0
    for queue in (FIRST, SECOND, LAST):
        for name, state in work.states(queue).items():
            leftovers += state in (names.WORKING, names.WRITTEN, names.WRITING)
            if state != names.WRITING:
                work.check_whole(queue, name, shouted=queue != FIRST)
                there.add(work.docid_of(name))
    if lost := safe - there:
        raise AssertionError(f"{len(lost)} of {len(safe)} are lost, {min(lost)} among them")
    return leftovers


def _finish(durable: bool) -> None:
    """Other drivers recover what is left, and process it."""
    for driver, inputs, outputs in (("c1", FIRST, SECOND), ("c2", SECOND, LAST)):
        processes = _Processes()
        processes.start(work.drive, inputs, outputs, driver, {"durable": durable, "drain": True})
        processes.wait()


def _examine_end(safe: set[str]) -> int:
    """Every document is published once, nothing is left over; how many there were."""
    for path in (FIRST, SECOND):
        if left := work.states(path):
            raise AssertionError(f"left over in {path}: {left}")
    published = work.listing(LAST)
    docids = [work.docid_of(name) for name in published if not name.startswith(".")]
    if lost := safe - set(docids):
        raise AssertionError(f"{len(lost)} of {len(safe)} are lost, {min(lost)} among them")
    for path in (FIRST, SECOND, LAST):
        with Queue.open(path) as queue:
            broken = check(queue)
            if worse := [one for one in broken if one.rule not in _LITTER]:
                raise AssertionError(f"queuedriver check {path}: {worse}")
            if broken:
                repair(queue)
            if given_up := queue.discarded():
                raise AssertionError(f"{given_up} are discarded in {path}")
    for docid in docids:
        # One that was published twice is there as `docid~serial` besides.
        work.check_whole(LAST, f"{docid}.ready", shouted=True)
        os.unlink(f"{LAST}/{docid}.ready")
    return len(docids)
