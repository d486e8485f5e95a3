"""Jobs in the simulated world: brokers of one queue, whose clients live as long as they do.

The brokers are real, and so are the sessions of their clients; in between stands a transport of
lists. What a client runs takes a moment, and is written down here.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import msgspec

from queuedriver.doors.fuq.client import Client, Start
from queuedriver.doors.fuq.wire import JobStatusUpdate, Task
from queuedriver.doors.transports import tcp
from queuedriver.doors.transports.base import Arrival, Gone, Joined, Message
from queuedriver.doors.words import Effects, Send
from queuedriver.driving.limits import Limits
from queuedriver.format import names
from queuedriver.jobs.job import _FAILED, CANCEL
from queuedriver.jobs.job import JOBS as DIRECTORY
from queuedriver.jobs.jobfile import Result, Summary
from tests.simulation import product
from tests.simulation.disk import Disk
from tests.simulation.happenings import Interruption
from tests.simulation.reckoning import lost_claims
from tests.simulation.run import Run
from tests.simulation.scene import INPUT, JOBS, OUTPUTS, JobKind, Scene, entries, find, kind_of
from tests.simulation.seams import seam
from tests.simulation.world import Host, Violation, World

# How long a task takes, in seconds, and how many processors a client has.
_TAKES = 0.05
_NPROC = 2


class JobRun(Run):
    """One run of a scene of jobs."""

    def __init__(self, scene: Scene, schedule: Sequence[Interruption]) -> None:
        super().__init__(scene, schedule)
        # How often each task was begun.
        self.begun: Counter[tuple[str, int]] = Counter()
        # What somebody took out of the output.
        self.taken: list[bytes] = []
        self.happenings.is_whole = lambda data: data[-1:] == b"}" or _FAILED.startswith(data)
        # Whether somebody has cancelled what was at work.
        self.cancelled = False
        self.happenings.acts = {"consume": self._consume, "cancel": self._cancel}

    def __call__(self) -> None:
        with ExitStack() as changed:
            for where, name, instead in (
                (tcp, "Listener", lambda *_: Clients(self.world, self.begun)),
                (tcp, "raise_descriptors", lambda: None),
                (Limits, "install", lambda self: None),
            ):
                changed.enter_context(seam(where, name, instead))
            super().__call__()

    def _drive(self, name: str, driver: str, host: Host, ready: bool = False) -> None:
        options = self.scene.options

        def act() -> object:
            return product.deal_jobs(INPUT, self.scene.outputs, driver, options)

        self.world.start(name, host, act).unseen = ready

    def _consume(self, which: int) -> str:
        output = find(self.world.disk, OUTPUTS[0])
        for name, inode in list(entries(output).items()):
            if name.endswith(f".{names.READY}"):
                self.taken.append(inode.data)
                self.world.disk.change((output, name, None))
        return "somebody takes all outputs"

    def _cancel(self, which: int) -> str:
        disk = self.world.disk
        for job in entries(find(disk, f"{INPUT}/{names.PRIVATE}/{DIRECTORY}")).values():
            disk.change((job, CANCEL, disk.new()))
            self.cancelled = True
        return "somebody cancels what is at work"

    def left_over(self) -> list[str]:
        disk = self.world.disk
        found = [
            f"{path}/{name}"
            for path in (INPUT, *self.scene.outputs)
            for name in entries(find(disk, path))
            if (item := names.parse(name)) is not None
            and (path == INPUT or item.state != names.READY)
        ]
        jobs = find(disk, f"{INPUT}/{names.PRIVATE}/{DIRECTORY}")
        return found + [f"jobs/{name}" for name in entries(jobs)]

    def reckon(self) -> None:
        """A Violation unless each task ended once, and is told as it was."""
        disk = self.world.disk
        published = self.taken + [
            inode.data
            for name, inode in entries(find(disk, OUTPUTS[0])).items()
            if name.endswith(f".{names.READY}")
        ]
        discarded = _discarded(disk)
        for submission in self.ledger.submissions:
            docid, kind = submission.docid, JOBS[submission.kind]
            mine = [one for one in published if _name_of(one) == docid]
            _settle(docid, kind, mine, discarded, self.cancelled)
            self._see_tries(docid, kind)
        if discarded:
            raise Violation(f"from nowhere: {list(discarded)} were discarded")

    def _see_tries(self, docid: str, kind: JobKind) -> None:
        happened = self.happenings.count
        for task in range(1, kind.tasks + 1):
            tries = 1 + (task in kind.lost) + lost_claims(happened)
            if self.begun[docid, task] > tries:
                times = self.begun[docid, task]
                raise Violation(f"run in vain: {docid}.{task} was begun {times} times")


class Clients:
    """Stands for the listener: one client, and another when that one is lost."""

    endpoints = ("tcp://simulated:5429",)

    def __init__(self, world: World, begun: Counter[tuple[str, int]]) -> None:
        self._world = world
        self._begun = begun
        self._arrivals: deque[Arrival] = deque()
        # Tasks that run: when each ends.
        self._running: dict[tuple[int, int], tuple[float, Task]] = {}
        self._number = 0
        self._connect()

    def _connect(self) -> None:
        self._number += 1
        self._running.clear()
        self._peer = f"c{self._number}".encode()
        self._client = Client(_NPROC)
        self._arrivals.append(Joined(self._peer))
        self._carry_out(self._client.joined(b"", self._now))

    @property
    def _now(self) -> float:
        return 1000.0 + self._world.now

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._arrivals.append(Message(self._peer, list(effect.frames)))
            elif isinstance(effect, Start):
                task = effect.task
                key = task.description.job_id, task.task
                self._begun[task.description.name, task.task] += 1
                self._running[key] = self._now + _TAKES, task

    def _end_tasks(self) -> None:
        for key, (at, task) in list(self._running.items()):
            if at > self._now or key not in self._running:
                continue
            del self._running[key]
            kind = JOBS[kind_of(task.description.name)]
            if task.task in kind.lost:
                self._arrivals.append(Gone(self._peer, "it was killed"))
                self._connect()
                return
            success = task.task not in kind.failing
            update = JobStatusUpdate(*key, success=success, status="done" if success else "bad")
            self._carry_out(self._client.ended(update))

    # What a loop asks of its transport

    def arrivals(self) -> Iterator[Arrival]:
        self._end_tasks()
        while self._arrivals:
            yield self._arrivals.popleft()

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        if peer != self._peer:
            return False
        self._carry_out(self._client.hear(b"", frames, self._now, self._now))
        return True

    def drop(self, peer: bytes) -> None:
        if peer == self._peer:
            self._connect()

    def pending(self) -> bool:
        return bool(self._arrivals)

    def fds(self) -> list[int]:
        return []

    def next_tick_at(self) -> float | None:
        return min((at for at, _ in self._running.values()), default=None)

    def tick(self, now: float) -> None:
        self._end_tasks()

    def address(self, peer: bytes) -> str:
        return "simulated"

    def missing(self) -> str:
        return ""

    def close(self) -> None:
        self._arrivals.clear()


def _name_of(data: bytes) -> str:
    return str(msgspec.json.decode(data)["name"])


def _settle(
    docid: str,
    kind: JobKind,
    published: list[bytes],
    discarded: Counter[str],
    cancelled: bool,
) -> None:
    results: dict[int, list[Result]] = {}
    summaries = []
    for data in published:
        if b'"tasks":' in data:
            summaries.append(msgspec.json.decode(data, type=Summary))
        else:
            result = msgspec.json.decode(data, type=Result)
            results.setdefault(result.task, []).append(result)
    if len(summaries) != 1:
        raise Violation(f"{'twice' if summaries else 'lost'}: {docid} has {len(summaries)} ends")
    done = failed = lost = dropped = 0
    for task in range(1, kind.tasks + 1):
        found, given_up = results.pop(task, []), discarded.pop(f"{docid}.{task}", 0)
        if cancelled and not (found or given_up):
            dropped += 1
            continue
        if len(found) + given_up != 1:
            came = "twice" if found or given_up else "lost"
            raise Violation(f"{came}: {docid}.{task}: {len(found)} results, {given_up} discarded")
        if given_up and task not in kind.lost:
            raise Violation(f"charged without fault: {docid}.{task}")
        if found and (task in kind.lost or found[0].success != (task not in kind.failing)):
            raise Violation(f"told wrong: {docid}.{task}: {found[0]}")
        if found and found[0].job_id != summaries[0].job:
            raise Violation(f"two JobIds: {docid}.{task} is of {found[0].job_id}")
        lost += given_up
        done += bool(found and found[0].success)
        failed += bool(found and not found[0].success)
    if results:
        raise Violation(f"from nowhere: tasks {list(results)} of {docid}")
    (end,) = summaries
    if (end.done, end.errors, end.lost, end.cancelled) != (done, failed + lost, lost, dropped):
        raise Violation(f"told wrong: {end}")


def _discarded(disk: Disk) -> Counter[str]:
    aside = entries(find(disk, f"{INPUT}/{names.DISCARDED}"))
    found: Counter[str] = Counter()
    for name in aside:
        if name[0] != "." and not name.endswith(names.REPORT):
            if name + names.REPORT not in aside:
                raise Violation(f"no report: {name} was discarded, and nobody says why")
            found[names.first_docid(name)] += 1
    return found
