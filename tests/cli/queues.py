"""Queues as real drivers leave them, for the commands that look at them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from queuedriver.cli import run
from queuedriver.driving.driver import Driver
from queuedriver.driving.loop import Left
from queuedriver.errors import PermanentError, TryLater
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.waiting import until

# Far more than any of these takes on a busy machine.
PATIENCE = 120.0

# Upper-cases documents. At its first `slow` it writes half an output and waits to be killed.
_DRIVER = """
import sys, time
from queuedriver import Driver, Options

def process(document):
    if document.docid == "slow" and not document.attempt:
        def halves():
            from queuedriver import Output
            yield b"half"
            time.sleep(600)
        return halves()
    if document.docid.startswith("bad"):
        raise ValueError("no good")
    return document.read().upper()

queue, output, name = sys.argv[1:4]
options = Options(drain="--drain" in sys.argv, trip_after=0)
Driver(queue, process, output, id=name, options=options).run()
"""


class Called(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def call(capsys: pytest.CaptureFixture[str], *args: str | Path) -> Called:
    """Run a command in this process."""
    capsys.readouterr()
    code = run([str(arg) for arg in args])
    printed = capsys.readouterr()
    return Called(code, printed.out, printed.err)


def submit(queue: Path, *docids: str, content: bytes = b"content") -> None:
    with Queue.open(queue, create=True) as opened:
        for docid in docids:
            opened.submit(docid, content, durable=False)


def drive(queue: Path, output: Path | tuple[()] = (), **options: Any) -> Left:
    """Drain a queue: `bad…` raises, `never…` never will do, `later…` says try later."""

    def process(document: Any) -> bytes | None:
        if document.docid.startswith("bad"):
            raise ValueError("no good\n\x1b[31msecond line")
        if document.docid.startswith("never"):
            raise PermanentError("not a scan")
        if document.docid.startswith("later"):
            raise TryLater(100.0, "printer busy")
        content: bytes = document.read()
        return content if output else None

    # Many that fail for one cause are what some tests need.
    wanted = Options(drain=True, **{"trip_after": 0, **options})
    return Driver(queue, process, output, id="h-1", options=wanted).run()


@contextmanager
def driver(
    queue: Path, output: Path, name: str = "h-7", *more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process of its own, killed at the end if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(queue), str(output), name, *more],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def stuck_driver(queue: Path, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with the document `slow` at hand, and half of its output written."""
    submit(queue, "slow")
    with driver(queue, output) as process:
        until(lambda: [path.read_bytes() for path in output.glob("slow.h-7-*")] == [b"half"])
        yield process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def listed(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def tree(root: Path) -> list[str]:
    """Every name below a directory."""
    return sorted(
        os.path.relpath(os.path.join(directory, name), root)
        for directory, inner, files in os.walk(root)
        for name in inner + files
    )
