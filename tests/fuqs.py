"""Brokers and clients of fuq in processes of their own, and what there is to see of them."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import msgspec

from queuedriver.doors.broker import Broker
from queuedriver.doors.fuq.runner import run_worker
from queuedriver.doors.fuq.settings import BrokerSettings, WorkerSettings
from queuedriver.errors import QueueError
from queuedriver.format.names import PRIVATE, parse
from queuedriver.jobs.control import BrokerView
from queuedriver.jobs.jobfile import JobFile, encode
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.drivers import FORKS, PATIENCE
from tests.endpoints import own_endpoint
from tests.openings import registrations
from tests.waiting import until

_PR_SET_PDEATHSIG = 1
# So that a task's client can be told from outside, each writes its name where the task leaves a
# line: one line per run, whatever came of it.
SCRIPT = """#!/bin/sh
echo "$1 $FUQ_TASK" >> {runs}
echo "out of $FUQ_TASK"
[ "$1" != fail ] || exit 3
while [ "$1" = wait ] && [ ! -e {go} ]; do sleep 0.02; done
exit 0
"""


class Process:
    """A broker or a client in a process of its own."""

    def __init__(self, target: Callable[..., None], *given: Any) -> None:
        self._answer, theirs = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=target, args=(theirs, *given))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.join()

    def ended(self) -> tuple[int, str]:
        """Wait for its end: its exit code, and why."""
        self._process.join(PATIENCE)
        assert self._process.exitcode is not None, "it has not ended"
        try:
            words = self._answer.recv() if self._answer.poll() else ""
        except EOFError:
            words = ""
        return self._process.exitcode, words


def _broker(answer: Connection, asked: BrokerSettings) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        left = Broker(asked, lambda words: None).run(last=True)
    except QueueError as error:
        answer.send(str(error))
        sys.exit(error.exit_code)
    answer.send(left.word)
    sys.exit(left.exit_code)


def _worker(answer: Connection, asked: WorkerSettings) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        left = run_worker(asked)
    except QueueError as error:
        answer.send(str(error))
        sys.exit(error.exit_code)
    answer.send(left.why)
    sys.exit(left.exit_code)


def driving(given: dict[str, Any]) -> Options:
    """Take the options of a driver out of what was given."""
    names = [name for name in given if name in Options.__struct_fields__]
    return Options(**{name: given.pop(name) for name in names})


class Pool:
    """A queue of jobs, a broker, clients, and a program that tells which tasks were run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.queue = root / "in"
        self.output = root / "out"
        self.queue.mkdir()
        self.runs = root / "runs"
        self.go = root / "go"
        self.program = root / "sim"
        self.program.write_text(SCRIPT.format(runs=self.runs, go=self.go))
        self.program.chmod(0o755)
        (root / "work").mkdir()
        self._started: list[Process] = []
        self.endpoint = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go.touch()
        for one in self._started:
            one.kill()

    def broker(self, *, wait: bool = True, listen: str = "", **given: Any) -> Process:
        """A broker; at the same address as the one before, if there was one."""
        asked = BrokerSettings(
            input=str(self.queue),
            outputs=(str(self.output),),
            listen=(listen or self.endpoint or own_endpoint(),),
            options=driving(given),
            **given,
        )
        before = {said.at for said in self.views()}
        one = Process(_broker, asked)
        self._started.append(one)
        if wait:
            found = until(lambda: self._said_by(one, before), "the broker says where it listens")
            self.endpoint = found[0].endpoints[0]
        return one

    def _said_by(self, broker: Process, before: set[float]) -> list[BrokerView]:
        """What this broker says by now, which may have the id of one before it."""
        with Queue.open(self.queue) as queue:
            its = [one.id for one in registrations(queue) if one.identity.pid == broker.pid]
        return [one for one in self.views() if one.broker in its and one.at not in before]

    def worker(self, nproc: int = 4, **given: Any) -> Process:
        asked = WorkerSettings(
            broker=self.endpoint,
            nproc=nproc,
            allow=given.pop("allow", (f"sim={self.program}",)),
            root=given.pop("root", str(self.root / "work")),
            log_root=given.pop("log_root", str(self.root / "logs")),
            options=driving(given),
            **given,
        )
        one = Process(_worker, asked)
        self._started.append(one)
        return one

    def submit(
        self, docid: str = "job", command: str = "sim run", tasks: int = 1, **more: Any
    ) -> None:
        job = JobFile(command, num_tasks=tasks, **more)
        with Queue.open(self.queue) as queue:
            queue.submit(docid, encode(job), durable=False)

    # Looks

    def views(self) -> list[BrokerView]:
        """What the brokers say."""
        found = []
        for path in (self.queue / PRIVATE / "fuq").glob("[!s]*.json"):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=BrokerView))
            except FileNotFoundError:
                continue
        return found

    def clients(self) -> int:
        return sum(len(one.clients) for one in self.views())

    def started(self) -> list[str]:
        """Each start of a task: its argument and number."""
        return self.runs.read_text().splitlines() if self.runs.exists() else []

    def results(self) -> dict[str, dict[str, Any]]:
        """The documents of the output queue."""
        return {
            one.name.removesuffix(".ready"): msgspec.json.decode(one.read_bytes())
            for one in (self.output.iterdir() if self.output.exists() else ())
            if one.name.endswith(".ready")
        }

    def jobs(self) -> list[Path]:
        """The directories of jobs."""
        where = self.queue / PRIVATE / "jobs"
        return sorted(one for one in where.iterdir() if one.is_dir()) if where.exists() else []

    def items(self, job: Path) -> dict[str, str]:
        """Each task that has a file, and its state."""
        found = (parse(name) for name in os.listdir(job))
        return {one.docid: one.state for one in found if one is not None}

    def until_done(self, docid: str = "job") -> dict[str, Any]:
        """Wait for a job's summary."""
        until((self.output / f"{docid}.ready").exists, f"the summary of {docid}")
        return dict(self.results()[docid])

    def wait(self, fact: Callable[[], object], words: str) -> None:
        until(fact, words)

    def settle(self, seconds: float) -> None:
        """Let what should not happen have its chance."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)


def numbered(docid: str, tasks: Sequence[int]) -> set[str]:
    """The docids of tasks."""
    return {f"{docid}.{task}" for task in tasks}
