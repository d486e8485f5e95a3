"""Drivers in processes of their own, and what there is to see of them."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from queuedriver.disk.journal import read_history
from queuedriver.driving.driver import Driver
from queuedriver.errors import FileSystemTrouble, QueueError
from queuedriver.format import names
from queuedriver.format.names import JOURNAL
from queuedriver.format.records import Counters, Event, Registration, Report
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from queuedriver.processors.base import Processor
from queuedriver.processors.call import load
from queuedriver.processors.command import CommandProcessor
from tests.openings import registrations
from tests.processors import shout
from tests.waiting import contents, stands_still, until

# Seconds: far more than anything here takes, on a machine that does other things too.
PATIENCE = 60.0

# One process imports everything; each driver is a fork of it, and not of the tests' own process,
# which has threads.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["__main__", "tests.drivers", "tests.processors"])
# No driver outlives the tests, not even one that stands still.
_PR_SET_PDEATHSIG = 1


class Ended(NamedTuple):
    """How a driver ended. `word` is empty when it did not leave by itself."""

    exit_code: int
    word: str = ""
    why: str = ""
    counters: Counters = Counters()


# What is done to a document: a function, or how `--call` names one, or a command, or a processor.
Does = Callable[..., object] | str | Sequence[str] | Processor


# Called in the driver's process before anything else.
Prepare = Callable[[], object]


class Orders(NamedTuple):
    """What a driver is started with."""

    inputs: Sequence[Path]
    outputs: Sequence[Path]
    processor: "Does"
    driver: str | None
    options: Mapping[str, Any]
    prepare: Prepare | None


class Running:
    """A driver in a process of its own."""

    def __init__(self, orders: Orders) -> None:
        self._answer, theirs = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=_drive, args=(orders, theirs))
        self._process.start()
        theirs.close()
        self.pid = self._process.pid or 0

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        os.kill(self.pid, number)

    def hurry(self) -> None:
        """Ask until it has left: the second wish is for leaving at once."""
        while self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.signal()
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGSTOP, and wait until each of its threads stands still."""
        self.signal(signal.SIGSTOP)
        until(lambda: stands_still(self.pid), f"driver {self.pid} stands still")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.join()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def ended(self, timeout: float = PATIENCE) -> Ended:
        """Wait for its end."""
        self._process.join(timeout)
        code = self._process.exitcode
        assert code is not None, f"driver {self.pid} has not ended after {timeout} s"
        with contextlib.suppress(EOFError):
            if self._answer.poll():
                ended = self._answer.recv()
                assert isinstance(ended, Ended)
                assert ended.exit_code == code
                return ended
        return Ended(code)


def _heed_nothing(number: int, frame: object) -> None:
    """Do nothing: it is too late for a wish to leave."""


def _drive(orders: Orders, answer: Connection) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Who hurries a driver does so until it is gone, and not only until it has left.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _heed_nothing)
    if orders.prepare is not None:
        orders.prepare()
    does = orders.processor
    processor: Processor | Callable[..., object]
    if isinstance(does, str):
        processor = load(does)
    elif isinstance(does, Processor):
        processor = does
    else:
        processor = does if callable(does) else CommandProcessor(does)
    options = msgspec.convert(dict(orders.options), Options)
    try:
        driver = Driver(orders.inputs, processor, orders.outputs, id=orders.driver, options=options)
        left = driver.run()
    except (QueueError, FileSystemTrouble) as error:
        answer.send(Ended(error.exit_code, "failed", str(error)))
        sys.exit(error.exit_code)
    answer.send(Ended(left.exit_code, left.word, left.why, left.counters))
    sys.exit(left.exit_code)


class Site:
    """Queues below a directory, and the drivers that were started on them."""

    def __init__(self, root: Path, beside: Path | None = None) -> None:
        self.root = root
        # Where tests and processors leave each other signs.
        self.beside = beside or root
        self._running: list[Running] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._running:
            one.kill()

    def queue(self, name: str = "in") -> Path:
        path = self.root / name
        path.mkdir(exist_ok=True)
        return path

    def submit(self, *docids: str, queue: str = "in", content: bytes = b"some text") -> None:
        """Place documents, as a shell would."""
        where = self.queue(queue)
        for docid in docids:
            (where / f".{docid}").write_bytes(content)
            os.rename(where / f".{docid}", where / f"{docid}.ready")

    def start(
        self,
        does: Does = shout,
        *,
        driver: str | None = None,
        inputs: str = "in",
        outputs: str = "out",
        prepare: Prepare | None = None,
        **options: Any,
    ) -> Running:
        """A driver over queues of this site, whose names are separated by blanks."""
        orders = Orders(
            [self.queue(name) for name in inputs.split()],
            [self.root / name for name in outputs.split()],
            does,
            driver,
            options,
            prepare,
        )
        running = Running(orders)
        self._running.append(running)
        return running

    def drive(self, does: Does = shout, **given: Any) -> Ended:
        """The same, until the queue is empty."""
        return self.start(does, drain=True, **given).ended()

    # Looks

    def items(self, queue: str = "in") -> list[names.Item]:
        """All items of a queue."""
        listed = sorted(os.listdir(self.root / queue)) if (self.root / queue).exists() else []
        return [item for name in listed if (item := names.parse(name)) is not None]

    def states(self, queue: str = "in") -> dict[str, str]:
        """Each document with its state, and its attempt where it has one."""
        return {
            item.docid: f"{item.state} {item.attempt}" if item.attempt else item.state
            for item in self.items(queue)
        }

    def files(self, directory: str = "out") -> dict[str, bytes]:
        """What a person sees there."""
        return contents(self.root / directory)

    def report(self, docid: str, queue: str = "in") -> Report:
        """Return why a document was given up; its report comes a moment after itself."""
        with Queue.open(self.root / queue) as opened:
            report = until(lambda: opened.report(docid), f"{docid} has a report")
        assert report is not None
        return report

    def discarded(self, queue: str = "in") -> list[str]:
        with Queue.open(self.root / queue) as opened:
            return opened.discarded()

    def drivers(self, queue: str = "in") -> list[str]:
        """Who has registered."""
        with Queue.open(self.root / queue) as opened:
            return [one.id for one in registrations(opened)]

    def registration(self, driver: str, queue: str = "in") -> Registration:
        """Return what a driver says of itself. A listing may lack what is replaced at that moment:
        with each beat."""
        with Queue.open(self.root / queue) as opened:
            found = until(
                lambda: [one for one in registrations(opened) if one.id == driver],
                f"{driver} has registered",
            )
        return found[0]

    def events(self, docid: str, queue: str = "in") -> list[Event]:
        """What the journal has of a document."""
        return read_history(str(self.root / queue / names.PRIVATE / JOURNAL), docid).events

    # Processors that wait for the test (see `tests.processors.gate`)

    def wait_for_files(self, pattern: str) -> None:
        until(lambda: list(self.root.glob(pattern)), f"{pattern} is there")

    def wait_at(self, docid: str) -> None:
        """Wait until a processor has this document in its hands."""
        until((self.beside / f"at-{docid}").exists, f"{docid} is being processed")

    def wait_for_start(self, driver: str, queue: str = "in") -> None:
        """Wait until a driver looks for documents: what fails while it starts, ends it."""
        until(lambda: self.registration(driver, queue).state != "starting", f"{driver} has started")

    def open_gate(self, docid: str = "") -> None:
        """Let one document pass, or all."""
        (self.beside / (f"go-{docid}" if docid else "go")).touch()
