"""Where the real code meets the simulated world.

A module that says `os`, `time` or `threading` gets what stands for it here, and so does a function
whose parameter is `time.time` unless said otherwise. Of the product's own, the few functions are
replaced that tell which processes and file systems there are. Whatever a stand-in does not have is
an AttributeError: nothing gets by it unseen.
"""

import ctypes
import functools
import os
import random
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from queuedriver.claims import liveness
from queuedriver.disk import filesystem, journal, lock, mounts, processes
from queuedriver.driving import group
from queuedriver.format.records import Identity
from tests.simulation.disk import Disk
from tests.simulation.kernel import Libc
from tests.simulation.world import NOON, Task, World

_open_directory = filesystem._open_directory


class Clock:
    """Stands for `time`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def time(self) -> float:
        return NOON + self._world.now + self._world.process.host.offset

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def monotonic(self) -> float:
        return 1000.0 + self._world.now

    def perf_counter_ns(self) -> int:
        return int(self._world.now * 1e9)

    def process_time(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self._world.sleep(seconds)


class Event:
    """Stands for `threading.Event`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._waiting: list[Task] = []

    def set(self) -> None:
        self._set = True
        for task in self._waiting:
            task.wake_at = None

    def clear(self) -> None:
        self._set = False

    def wait(self, seconds: float = float("inf")) -> bool:
        if not self._set:
            self._waiting.append(self._world.task)
            self._world.sleep(seconds)
            self._waiting.remove(self._world.task)
        return self._set


class Lock:
    """Stands for `threading.Lock`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._holder: Task | None = None
        self._waiting: list[Task] = []

    def acquire(self) -> None:
        while self._holder is not None:
            self._waiting.append(self._world.task)
            self._world.sleep(float("inf"))
            self._waiting.remove(self._world.task)
        self._holder = self._world.task

    def release(self) -> None:
        self._holder = None
        for task in self._waiting:
            task.wake_at = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Thread:
    """Stands for `threading.Thread`."""

    def __init__(
        self, world: World, target: Callable[[], None], name: str = "", daemon: bool = False
    ) -> None:
        self._world = world
        self._target = target
        self._finished = Event(world)
        self._started = False

    def start(self) -> None:
        def run() -> None:
            self._target()
            self._finished.set()

        self._started = True
        task = self._world.start_thread(self._world.process, run)
        # A new thread is not the first to run.
        task.wake_at = self._world.now

    def is_alive(self) -> bool:
        return self._started and not self._finished._set

    def join(self) -> None:
        self._finished.wait()


class Threading:
    """Stands for `threading`."""

    def __init__(self, world: World) -> None:
        self.Event = functools.partial(Event, world)
        self.Lock = functools.partial(Lock, world)
        self.Thread = functools.partial(Thread, world)

    def current_thread(self) -> str:
        # Signals are the main thread's alone, and none are sent here.
        return "any"

    def main_thread(self) -> str:
        return "main"


class Select:
    """Stands for `select`: nothing is ever ready, and time passes."""

    POLLIN = select.POLLIN

    def __init__(self, world: World) -> None:
        self._world = world

    def poll(self) -> "Select.Poll":
        return Select.Poll(self._world)

    class Poll:
        def __init__(self, world: World) -> None:
            self._world = world

        def register(self, fd: int, mask: int) -> None:
            pass

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            self._world.sleep(milliseconds / 1000.0)
            return []


@contextmanager
def locked(world: World, path: str, patience: float = 0.0) -> Iterator[None]:
    """Stands for `lock.locked`: the kernel lets go of what a dead process held."""
    until = world.now + patience
    while (holder := world.locks.get(path)) is not None and holder.alive:
        if world.now > until:
            raise lock.Held(path)
        world.sleep(0.05)
    world.locks[path] = world.process
    try:
        yield
    finally:
        if world.locks.get(path) is world.process:
            del world.locks[path]


class Counts:
    """Stands for the count of hidden files: each process has its own."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __next__(self) -> int:
        self._world.process.asides += 1
        return self._world.process.asides


class Chance:
    """Stands for `random`: no chance at all."""

    def sample(self, population: Sequence[Any], k: int) -> list[Any]:
        return list(population[:k])

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


def _stand_ins(world: World) -> list[tuple[object, object]]:
    """What stands for what."""
    kernel, clock = world.kernel, Clock(world)
    libc = Libc(kernel)

    def identify(pid: int) -> Identity:
        return world.identity(world.process)

    def open_directory(path: str, create: bool, inside: int) -> int:
        fd = kernel.walk(path, inside)
        # Part by part where something is missing, or cannot be seen.
        return _open_directory(path, create, inside) if fd is None else fd

    return [
        (os, kernel),
        (ctypes, libc),
        (filesystem.libc, lambda: libc),
        (filesystem._open_directory, open_directory),
        (time, clock),
        (time.time, clock.time),
        (time.monotonic, clock.monotonic),
        (threading, Threading(world)),
        (select, Select(world)),
        (random, Chance()),
        (filesystem._aside, Counts(world)),
        (lock.locked, functools.partial(locked, world)),
        # Who is there, and who one is.
        (liveness.identify, identify),
        (processes.process_ticks, world.ticks),
        (liveness.host_id, lambda: world.process.host.name),
        (processes.kill_marked, lambda marks: 0),
        (mounts.filesystem_type, lambda path: "nfs4"),
        (mounts.is_local, lambda device: False),
        (mounts.syncs_as_one, lambda device: world.syncs_as_one),
        (mounts.unwritten, lambda: 0.0),
    ]


class Place(NamedTuple):
    """Where one of those is to be replaced: a module's name, or what a function's parameter is."""

    where: Any
    # Its name; of a parameter that must be named, the name of that; else which one it is.
    which: str | int
    stand_in: int

    def put(self, value: object) -> object:
        """What was there before."""
        where, which = self.where, self.which
        if isinstance(where, ModuleType):
            before, where.__dict__[str(which)] = where.__dict__[str(which)], value
        elif isinstance(which, str):
            given = where.__kwdefaults__ or {}
            before, given[which] = given[which], value
        else:
            defaults = [*(where.__defaults__ or ())]
            before, defaults[which] = defaults[which], value
            where.__defaults__ = tuple(defaults)
        return before


@cache
def _places() -> list[Place]:
    """What of the product's modules is to be replaced, and by which stand-in."""
    real = [one for one, _ in _stand_ins(World(Disk()))]
    found = []
    for module in [*sys.modules.values()]:
        if module.__name__.partition(".")[0] not in ("queuedriver", "watchdogd"):
            continue
        for name, value in [*vars(module).items()]:
            for number, one in enumerate(real):
                # A class goes on being what it is where it is defined.
                at_home = isinstance(one, type) and one.__module__ == module.__name__
                if value is one and not at_home:
                    found.append(Place(module, name, number))
        for function in _functions(module):
            given: list[tuple[str | int, object]] = [*enumerate(function.__defaults__ or ())]
            for which, value in (*given, *(function.__kwdefaults__ or {}).items()):
                numbers = (number for number, one in enumerate(real) if value is one)
                found += (Place(function, which, number) for number in numbers)
    return found


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """All that are defined in a module, in its classes too."""
    for value in [*vars(module).values()]:
        if getattr(value, "__module__", "") != module.__name__:
            continue
        inner = [*vars(value).values()] if isinstance(value, type) else [value]
        for one in inner:
            function = getattr(one, "__func__", one)
            if isinstance(function, FunctionType):
                yield function


@contextmanager
def installed(world: World) -> Iterator[None]:
    """While this lasts, the product lives in the world."""
    before: list[tuple[Place, object]] = []
    stand_ins = [stand_in for _, stand_in in _stand_ins(world)]

    # The journal decides nothing, so nothing of it is written. And every durable document waits for
    # company, and a sync of all is preferred where there is one: how long anything takes says
    # nothing here.
    with (
        seam(journal.Journal, "flush", lambda journal: journal.pending.clear()),
        seam(group, "SHORT", 0),
        seam(filesystem, "SYNC_ALL_FROM", 1),
    ):
        try:
            for place in _places():
                before.append((place, place.put(stand_ins[place.stand_in])))
            yield
        finally:
            for place, value in before:
                place.put(value)


@contextmanager
def seam(where: Any, name: str, stand_in: object) -> Iterator[None]:
    """One more name, of a module or a class, that stands for something else meanwhile."""
    before = where.__dict__[name]
    setattr(where, name, stand_in)
    try:
        yield
    finally:
        setattr(where, name, before)
