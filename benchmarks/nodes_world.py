"""Many nodes over one file server, in virtual time: the simulation's kernel and disk, whose calls
take as long as their requests to a server that answers only so many a second.

The processes are those of the simulation (`tests/simulation/world.py`): the real code of drivers,
one greenlet a thread. What differs is that each call takes time, and that nothing goes wrong unless
it is told to.
"""

import gc
import heapq
import itertools
import os
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from benchmarks import nodes_disk
from queuedriver.claims import liveness, picking
from queuedriver.claims.picking import Picker
from queuedriver.disk import journal, lock
from queuedriver.disk.filesystem import Directory
from queuedriver.driving import group
from queuedriver.format import names
from tests.simulation import seams
from tests.simulation import world as simulation
from tests.simulation.disk import Disk
from tests.simulation.seams import seam
from tests.simulation.world import NEVER, Host, Process, Task, World

_SHORT = group.SHORT
# Names that are remembered with what they say: those of all documents and drivers at a time.
_NAMES_KEPT = 1 << 17
_CROWDS_KEPT = 16
_crowd_of = liveness.crowd_of
Block = list["os.DirEntry[str]"]

# Requests to the server for each call, as an NFS 4.2 client makes them: an open has its CLOSE, what
# was written goes with that and is committed; a path is known. Of a listing no more is read at a
# time than a block of names (`picking.BLOCK`), and so many fit one answer.
_REQUESTS = {"open": 2, "written": 1, "rename_noreplace": 1, "walk": 0}
_JOURNAL_REQUESTS = 2
_NAMES_IN_AN_ANSWER = 1000
# Of each try of a lock: the file is opened, locked and closed.
_LOCK_REQUESTS = 3


class Network(NamedTuple):
    """What lies between a driver and its queue."""

    name: str
    # Seconds from a request to its answer, of a server with nothing else to do.
    latency: float
    # Requests that it answers in a second.
    capacity: float


class Sleeper(Task):
    """A thread that has its place in the order of who is woken when."""

    cluster: "Cluster"
    # Which of its places in the order counts: the latest.
    turn = 0

    @property
    def wake_at(self) -> float | None:  # type: ignore[override]
        return self._wake_at

    @wake_at.setter
    def wake_at(self, at: float | None) -> None:
        self._wake_at = at
        cluster = self.__dict__.get("cluster")
        if cluster is not None and at != NEVER:
            cluster.line_up(self, cluster.now if at is None else at)


class Cluster(World):
    """Hosts whose drivers share a file server."""

    def __init__(self, disk: Disk, network: Network) -> None:
        super().__init__(disk, noreplace=False)
        self.network = network
        # Requests by the directory or the kind of call, for whoever counts.
        self.asked: Counter[str] = Counter()
        # Until when the server has work.
        self.busy_until = 0.0
        self.busy_for = 0.0
        self.kernel.stop_at = 0
        self.kernel.at_stop = self._call
        self._line: list[tuple[float, int, Sleeper]] = []
        self._turns = itertools.count()
        self._by_pid: dict[int, Process] = {}

    # Time

    def line_up(self, task: Sleeper, at: float) -> None:
        task.turn = next(self._turns)
        heapq.heappush(self._line, (at, task.turn, task))

    def play(self, until: float = NEVER) -> None:
        """Go on until an instant, or until nobody is there who could."""
        while self._line and self._line[0][0] <= until:
            at, turn, task = heapq.heappop(self._line)
            if turn != task.turn or not task.process.alive:
                continue
            if at > self.now:
                self.pass_time(at - self.now)
            task._wake_at = None
            self.task = task
            self.kernel.files, self.kernel.pid = task.process.files, task.process.pid
            task.go_on()
            if self.over:
                raise self._reason
        if until < NEVER:
            self.pass_time(until - self.now)

    def start(
        self,
        name: str,
        host: Host,
        act: Callable[[], object],
        works: bool = True,
        after: float = 0.0,
    ) -> Process:
        process = super().start(name, host, act, works, after)
        self._by_pid[process.pid] = process
        return process

    def start_thread(self, process: Process, act: Callable[[], object]) -> Task:
        task = super().start_thread(process, act)
        task.cluster = self  # type: ignore[attr-defined]
        return task

    def ticks(self, pid: int) -> int | None:
        process = self._by_pid.get(pid)
        is_here = process is not None and process.alive and process.host is self.process.host
        return pid if is_here else None

    # Requests

    def _call(self, method: Callable[..., Any], given: tuple[Any, ...], named: Any) -> Any:
        """Make a call: it happens when the server gets to it, and is known a while later."""
        name = method.__name__
        kind, requests = self._kind(name, given, named), _REQUESTS.get(name, 1)
        if requests:
            self.request(kind, 1)
        result = method(self.kernel, *given, **named)
        if requests > 1:
            # What was not there to be opened needs no closing.
            self.request(kind, requests - 1)
        if name == "listed" and len(result) > _NAMES_IN_AN_ANSWER:
            self.request("listed", min(len(result), picking.BLOCK) // _NAMES_IN_AN_ANSWER)
        return result

    def request(self, kind: str, count: int) -> None:
        """Ask the server so many things, one after the other."""
        self.asked[kind] += count
        service = count / self.network.capacity
        self.busy_for += service
        self.busy_until = max(self.busy_until, self.now) + service
        waits = self.busy_until - self.now - service
        self.sleep(waits + max(service, count * self.network.latency))

    def _kind(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> str:
        file = self.kernel.files.get(named.get("dir_fd") or -1)
        where = file.name if file is not None else ""
        if name == "open" and where.endswith("drivers") and str(given[0]).endswith(".json"):
            return "registration"
        return "beat" if where.endswith("drivers") else name

    @contextmanager
    def locked(self, path: str, patience: float = 0.0) -> Iterator[None]:
        """Stands for `lock.locked`, whose tries are requests, too."""
        until = self.now + patience
        pauses = lock.pauses()
        self.request("lock", _LOCK_REQUESTS)
        while (holder := self.locks.get(path)) is not None and holder.alive:
            if self.now >= until:
                raise lock.Held(path)
            self.sleep(next(pauses))
            self.request("lock", _LOCK_REQUESTS)
        self.locks[path] = self.process
        try:
            yield
        finally:
            if self.locks.get(path) is self.process:
                del self.locks[path]


def _walk(directory: Directory) -> Iterator[tuple[str, names.Item | None]]:
    """Stands for `names.walk`, whose every name is remembered with what it says."""
    for name in directory.names():
        yield name, names.parse(name)


class Crowds:
    """Stands for `liveness.crowd_of`: a crowd that one has joined is not sorted anew."""

    def __init__(self) -> None:
        self._last = _crowd_of(frozenset())

    def __call__(self, ids: frozenset[str]) -> liveness.Crowd:
        came = ids - self._last.ids
        if len(came) == 1 and len(ids) == len(self._last.ids) + 1:
            scattered = [*self._last.scattered]
            insort(scattered, *came, key=liveness._place)
            self._last = liveness.Crowd(ids, scattered)
        else:
            self._last = _crowd_of(ids)
        return self._last


def _reading(read: Callable[..., Iterator[Block]], cluster: Cluster) -> Any:
    """Make what stands for `Picker._read`: names after the longest block are asked for, too."""

    def reading(picker: Picker, size: int = picking.BLOCK) -> Iterator[Block]:
        asked, listed = 0, -picking.BLOCK
        for block in read(picker, size):
            listed += len(block)
            if (more := listed // _NAMES_IN_AN_ANSWER - asked) > 0:
                cluster.request("listed", more)
                asked += more
            yield block

    return reading


@contextmanager
def living_in(cluster: Cluster) -> Iterator[None]:
    """While this lasts, the product lives in a cluster; what the simulation leaves out because it
    decides nothing, the journal, takes its time here."""

    def flush(written: journal.Journal) -> None:
        if written.pending:
            cluster.request("journal", _JOURNAL_REQUESTS)
            written.pending.clear()

    def locked(_: World, path: str, patience: float = 0.0) -> AbstractContextManager[None]:
        return cluster.locked(path, patience)

    with (
        seam(simulation, "Task", Sleeper),
        seam(seams, "locked", locked),
        seams.installed(cluster),
        seam(journal.Journal, "flush", flush),
        seam(group, "SHORT", _SHORT),
        # Thousands of drivers read the same names: one process does so once.
        seam(names, "is_plain", lru_cache(_NAMES_KEPT)(names.is_plain)),
        seam(names, "parse", lru_cache(_NAMES_KEPT)(names.parse)),
        seam(names, "parse_token", lru_cache(_NAMES_KEPT)(names.parse_token)),
        seam(liveness, "_place", lru_cache(_NAMES_KEPT)(liveness._place)),
        seam(liveness, "registered_id", lru_cache(_NAMES_KEPT)(liveness.registered_id)),
        # What is the same for all of a crowd, and is most of what each remembers of it.
        seam(liveness, "crowd_of", lru_cache(_CROWDS_KEPT)(Crowds())),
        seam(liveness, "registered_ids", nodes_disk.registered_ids),
        seam(picking, "_split", nodes_disk.split),
        seam(picking.Picker, "_read", _reading(picking.Picker._read, cluster)),
        seam(names, "walk", _walk),
        # Each driver deals itself the same share again and again.
        seam(picking, "_deal", lru_cache(_NAMES_KEPT)(picking._deal.__wrapped__)),
    ):
        # Of millions of objects nearly all last as long as the run: to look for garbage among them
        # takes a fifth of it, and finds none.
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
