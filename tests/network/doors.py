"""A front door of a test's own: queues, a broker and workers in processes, and the account of what
came of it."""

import ctypes
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from queuedriver.check.check import check
from queuedriver.claims.document import Document
from queuedriver.disk.journal import read_events
from queuedriver.doors.broker import Broker
from queuedriver.doors.fuq.runner import run_worker
from queuedriver.doors.fuq.settings import BrokerSettings, WorkerSettings
from queuedriver.doors.settings import ZmqBroker, ZmqWorker, settings_of
from queuedriver.doors.worker import work as work_for
from queuedriver.format import names
from queuedriver.format.names import JOURNAL
from queuedriver.jobs.jobfile import JobFile, encode, task_docid
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from queuedriver.processors.call import CallProcessor
from tests.drivers import FORKS, PATIENCE, Site
from tests.endpoints import free_endpoint
from tests.waiting import until

WITH_ZEROMQ = ("pingpong", "roundrobin", "scale0")
PROTOCOLS = (*WITH_ZEROMQ, "fuq")

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000
_POLL = 0.002
_LISTENS = "it listens"
# A worker of scale0 that no broker has answered within five seconds of its start leaves.
NO_BROKER = 69

Does = Callable[[Document], object]


# What is done to documents. A worker may not know what they are called, so they say it themselves.


def answer(content: bytes) -> bytes:
    """What comes of a document."""
    return b"done: " + content


def work(document: Document, seconds: float = 0.0) -> bytes:
    """Takes a while."""
    time.sleep(seconds)
    return answer(document.read())


def hold(document: Document, beside: Path) -> bytes:
    """Waits until the test lets the document pass, or all of them."""
    content = document.read()
    (beside / f"at-{content.decode()}-{os.getpid()}").touch()
    while not any((beside / f"go{which}").exists() for which in ("", f"-{content.decode()}")):
        time.sleep(_POLL)
    return answer(content)


# Processes


class Running:
    """A broker or a worker in a process of its own."""

    def __init__(self, log: Path, host: str, target: Callable[..., int], *args: object) -> None:
        self._process = FORKS.Process(target=_begin, args=(log, host, target, args))
        self._process.start()
        self.pid = self._process.pid or 0

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.join()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; below 0 by a signal."""
        return self._process.exitcode

    def ended(self, timeout: float = PATIENCE) -> int:
        """Wait for its end: its exit code."""
        self._process.join(timeout)
        code = self._process.exitcode
        assert code is not None, f"process {self.pid} has not ended after {timeout} s"
        return code


def _begin(log: Path, host: str, target: Callable[..., int], args: tuple[object, ...]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if host:
        with open(f"/run/netns/{host}") as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter {host}")
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(text: str) -> None:
        os.write(words, f"{os.getpid()} {text}\n".encode(errors="replace"))

    try:
        sys.exit(target(say, *args))
    except Exception:
        say(traceback.format_exc())
        raise


def _run_tasks(say: Callable[[str], None], asked: WorkerSettings) -> int:
    return run_worker(asked, say).exit_code


def _broke(say: Callable[[str], None], told: ZmqBroker | BrokerSettings) -> int:
    return Broker(told, say, lambda endpoints: say(_LISTENS)).run().exit_code


def _work(say: Callable[[str], None], told: ZmqWorker, does: Does) -> int:
    return work_for(told, CallProcessor(does), say).exit_code


class Doors(Site):
    """Queues, and brokers and workers over them that speak one protocol."""

    def __init__(self, root: Path, protocol: str, endpoint: str = "") -> None:
        super().__init__(root)
        self.protocol = protocol
        self.endpoint = endpoint or free_endpoint()
        self.log = root / "words"
        self.submitted: set[str] = set()
        self._all: list[Running] = []
        self.queue("in")
        self.queue("out")

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            if one.alive:
                one.kill()

    def bring(self, *docids: str) -> None:
        """Documents that say which they are."""
        for docid in docids:
            self.submit(docid, content=docid.encode())
        self.submitted.update(docids)

    def bring_many(self, count: int) -> None:
        """Enough for so many outputs more, with names of their own."""
        count = -(-count // len(self.expected("")))
        first = len(self.submitted)
        self.bring(*(f"d{number:06}" for number in range(first, first + count)))

    def broker(
        self,
        *,
        host: str = "",
        job_timeout: float | None = None,
        curve: str | None = None,
        wait: bool = True,
        **options: Any,
    ) -> Running:
        """The broker, by the id and the address that it always has. Who does not `wait` until it
        listens may see workers leave."""
        told = settings_of(self.protocol).BrokerSettings(
            input=str(self.root / "in"),
            outputs=(str(self.root / "out"),),
            listen=(self.endpoint,),
            id="broker",
            options=Options(**options),
            job_timeout=job_timeout,
            level=1,
            **({"curve": curve} if curve else {}),
            insecure=True,
        )
        broker = self._start(host, _broke, told)
        words = f"{broker.pid} {_LISTENS}\n"
        until(lambda: not wait or (self._check_all() and words in self.said()), "it listens")
        return broker

    def worker(self, seconds: float = 0.0, *, host: str = "", curve: str | None = None) -> Running:
        """One worker more, that takes so long with each document."""
        return self._worker(partial(work, seconds=seconds), host, curve)

    def worker_that_holds(self, *, host: str = "", curve: str | None = None) -> Running:
        """One that waits for the test with each document."""
        return self._worker(partial(hold, beside=self.root), host, curve)

    def _worker(self, does: Does, host: str, curve: str | None) -> Running:
        told = settings_of(self.protocol).WorkerSettings(
            broker=self.endpoint,
            level=1,
            curve=curve,
            **({"slots": 1} if self.protocol == "roundrobin" else {}),
        )
        return self._start(host, _work, told, does)

    def _start(self, host: str, target: Callable[..., int], *args: object) -> Running:
        self._check_all()
        running = Running(self.log, host, target, *args)
        self._all.append(running)
        return running

    def _check_all(self) -> bool:
        """Nobody has ended by an error: what is waited for would never come."""
        usual = {None, 0, -signal.SIGKILL} | ({NO_BROKER} if self.protocol == "scale0" else set())
        for one in self._all:
            assert one.exit_code in usual, f"{one.pid} ended with {one.exit_code}: {self.said()}"
        return True

    # Looks

    def who_holds(self, docid: str) -> set[int]:
        """The workers that took a document in hand, by their pids; see `hold`."""
        return {int(one.name.rpartition("-")[2]) for one in self.root.glob(f"at-{docid}-*")}

    def to_come(self) -> int:
        """Outputs that are yet to come, where none is discarded."""
        expected = sum(len(self.expected(docid)) for docid in self.submitted)
        return expected - len(self.outputs())

    def outputs(self) -> list[str]:
        return [one for one in os.listdir(self.root / "out") if one.endswith(".ready")]

    def has_outputs(self, count: int) -> bool:
        """Whether there are so many outputs; all is well so far."""
        return self._check_all() and len(self.outputs()) >= count

    def is_empty(self) -> bool:
        """Whether all that was submitted has ended; all is well so far."""
        return self._check_all() and not self.items()

    def wait_for_outputs(self, count: int) -> None:
        until(lambda: self.has_outputs(count), f"{count} outputs")

    def wait_until_empty(self) -> None:
        until(self.is_empty, "all has ended")

    def said(self) -> str:
        """What brokers and workers said."""
        return self.log.read_text() if self.log.exists() else ""

    def noted(self) -> Counter[str]:
        """How often which event is in the journals. The last 0.1 s of who is killed are not."""
        found = read_events(str(self.root / "in" / names.PRIVATE / JOURNAL))
        return Counter(event.event for event in found.events)

    def account(self) -> list[str]:
        """What is wrong, once everything has ended; discarded documents are not."""
        return list(self._complaints())

    def expected(self, docid: str) -> list[str]:
        """What a document is to become."""
        return [docid]

    def is_right(self, output: str, content: bytes) -> bool:
        """Whether an output has what it should."""
        return content == answer(output.encode())

    def _complaints(self) -> Iterator[str]:
        published, discarded = self.files("out"), set(self.discarded())
        for docid in sorted(self.submitted):
            for output in self.expected(docid):
                content = published.pop(f"{output}.ready", None)
                if content is None and docid not in discarded:
                    yield f"{output} is lost"
                elif content is not None and docid in discarded:
                    yield f"{output} is published, and discarded as well"
                elif content is not None and not self.is_right(output, content):
                    yield f"{output} has the answer {content!r}"
        yield from (f"{name} is a second one, or nobody's" for name in sorted(published))
        yield from (f"{item} is left in the queue" for item in self.items())
        for queue in ("in", "out"):
            with Queue.open(self.root / queue) as opened:
                for one in check(opened):
                    yield f"{queue}: {one.rule}: {one.subject}: {one.message}"


# What the documents of fuq have run.
_WORK = """#!/bin/sh
exec sleep SECONDS
"""


class FuqDoors(Doors):
    """The same for fuq: each document is a job of some tasks, a worker has one processor."""

    TASKS = 5

    def bring(self, *docids: str) -> None:
        for docid in docids:
            job = JobFile(command="work", name=docid, num_tasks=self.TASKS)
            self.submit(docid, content=encode(job))
        self.submitted.update(docids)

    def worker(self, seconds: float = 0.0, *, host: str = "", curve: str | None = None) -> Running:
        script = self.root / "work"
        if not script.exists():
            script.write_text(_WORK.replace("SECONDS", str(seconds)))
            script.chmod(0o755)
        asked = WorkerSettings(
            broker=self.endpoint,
            nproc=1,
            allow=(f"work={script}",),
            root=str(self.root),
            log_root=str(self.root / "logs"),
            level=1,
        )
        return self._start(host, _run_tasks, asked)

    def is_empty(self) -> bool:
        """The same; a job that has been taken up waits elsewhere."""
        return self._check_all() and not self.to_come()

    def expected(self, docid: str) -> list[str]:
        return [docid, *(task_docid(docid, number) for number in range(1, self.TASKS + 1))]

    def is_right(self, output: str, content: bytes) -> bool:
        found = msgspec.json.decode(content)
        if "." in output:
            return bool(found["success"] and found["name"] == output.partition(".")[0])
        return True


def open_doors(root: Path, protocol: str, endpoint: str = "") -> Doors:
    """The doors of one protocol."""
    return (FuqDoors if protocol == "fuq" else Doors)(root, protocol, endpoint)
