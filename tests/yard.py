"""A scheduler of jobs over queues of a test's own, and clients that are only names."""

import json
import os
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.broker import Broker, Worker
from queuedriver.doors.fuq.wire import JobStatusUpdate, NewJob, Type
from queuedriver.doors.service_queue import Head
from queuedriver.doors.words import Effects, End, Send
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.driving.setup import opened
from queuedriver.format import names
from queuedriver.jobs import jobfile
from queuedriver.jobs.job import JOBS, Job
from queuedriver.jobs.jobfile import JobFile
from queuedriver.jobs.scheduler import Scheduler
from queuedriver.options import Options
from tests.openings import unregistered


class Yard:
    """One scheduler over queues in a directory, and clients that are only names."""

    def __init__(
        self, root: Path, options: Options | None = None, *, network: bool = False
    ) -> None:
        self.root = root
        self.options = options or Options()
        self.network = network
        self.at_end = ExitStack()
        (root / "in").mkdir(exist_ok=True)
        self.life = 0
        self.begin()

    def begin(self) -> None:
        """A new life of the broker; what the one before held is nobody's."""
        self.life += 1
        inputs, outputs, me = [self.root / "in"], [self.root / "out"], f"b{self.life}"
        found = self.at_end.enter_context(opened(inputs, outputs, me, self.options, unregistered))
        self.queue = found.queues[0]
        self.session = Broker()
        self.limits = Limits()
        self.wall: float | None = None
        nowhere: Any = SimpleNamespace(endpoints=[], address=bytes.decode)
        self.scheduler = Scheduler(
            self.queue,
            self.session,
            nowhere,
            Tally(),
            self.limits,
            network=self.network,
            wall=lambda: time.time() if self.wall is None else self.wall,
        )
        # What has ended, and is yet to be written down.
        self.ends: deque[End] = deque()
        self.now = 0.0

    def die(self) -> None:
        """The broker is killed: nothing is given back. Whoever notices gives its claims back, as
        those of any broker."""
        for name in os.listdir(self.root / "in"):
            if (item := names.parse(name)) is not None and item.state == names.WORKING:
                (self.root / "in" / name).rename(self.root / "in" / f"{item.docid}.ready")

    def close(self) -> None:
        self.scheduler.close()
        self.at_end.close()
        self.limits.close()

    def client(self, name: bytes, nproc: int) -> None:
        self.session.joined(name, 0.0)
        self.session.hear(name, [wire.encode(Type.OK, nproc)], 0.0, 0.0)

    def submit(self, docid: str, tasks: int = 1, need: int = 1) -> None:
        job = JobFile("sim", num_tasks=tasks, num_proc=need)
        (self.root / "in" / f"{docid}.ready").write_bytes(jobfile.encode(job))

    def take_up(self) -> Job:
        before = {job.id for job in self.scheduler}
        self.scheduler.wake()
        assert self.scheduler.unpack(time.monotonic())
        return next(job for job in self.scheduler if job.id not in before)

    def job(self, docid: str = "job") -> Job:
        return next(one for one in self.scheduler if one.record.docid == docid)

    def step(self, wall: float | None = None) -> list[tuple[bytes, str]]:
        """One turn; which task was dealt to whom."""
        self.now += 1.0
        self.wall = wall
        self.settle()
        self.scheduler.turn(time.monotonic() + self.now)
        dealt = []
        while (picked := self.pick()) is not None:
            head, worker = picked
            if (work := self.scheduler.take(head, self.now)) is not None:
                assert isinstance(self.session.deal(worker, work, self.now), Send)
                dealt.append((worker.name, work.docid))
        return dealt

    def pick(self) -> tuple[Head, Worker] | None:
        """Of which job the next task is, and whose."""
        self.session.reserved.clear()
        for head in self.scheduler.heads(self.now):
            worker = self.session.pick(head.service, self.now, head.need)
            if worker is not None:
                return head, worker
        return None

    def settle(self) -> None:
        """Write down what has ended; after an OSError that is done again."""
        while self.ends:
            self.scheduler.end(self.ends[0].claim, self.ends[0].how, self.now)
            self.ends.popleft()

    def end(self, client: bytes, docid: str, task: int, free: int, **given: object) -> None:
        """The client reports that a task has ended."""
        update = JobStatusUpdate(
            self.job(docid).id,
            task,
            success=bool(given.get("success", True)),
            status="done",
            new_job=NewJob(free),
        )
        message = wire.encode_body(Type.UPDATE, wire.encode_update(update))
        self.hear(self.session.hear(client, [message], 0.0, 0.0))

    def lose(self, client: bytes) -> None:
        self.hear(self.session.gone(client, 0.0))

    def hear(self, effects: Effects) -> None:
        self.ends += [one for one in effects if isinstance(one, End)]

    def results(self) -> dict[str, dict[str, object]]:
        return {
            one.name.removesuffix(".ready"): json.loads(one.read_bytes())
            for one in (self.root / "out").iterdir()
            if one.name.endswith(".ready")
        }

    def directories(self) -> list[Path]:
        where = self.root / "in" / names.PRIVATE / JOBS
        return sorted(where.iterdir())

    def files(self) -> list[str]:
        """The files of tasks, each with its state; the N is left out."""
        [where] = self.directories()
        items = (names.parse(name) for name in os.listdir(where))
        return sorted(f"{one.docid}.{one.state}" for one in items if one is not None)
