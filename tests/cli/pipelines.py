"""Pipelines as files and queues, and watchdogs as the documents they publish."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from queuedriver.claims.liveness import identify
from queuedriver.format.records import Identity, encode
from tests.cli.queues import Called
from watchdogd.cli import run
from watchdogd.control import host_file
from watchdogd.report import HOSTS, DriverReport, HostReport, StageReport, save

FILE = """
[pipeline]
name = "serif"
root = "queues"

[[stage]]
name = "values"
call = "values:process"
publish = "{docid}.xml.ready"

[[stage]]
name = "parse"
drivers = { min = 1, max = 3 }
call = "parse:process"

[[stage]]
name = "out"
drivers = 2
publish = "{stem}.html"
call = "out:process"
"""

# A process of a boot that is over, on this very machine; one of another machine.
GONE = msgspec.structs.replace(identify(os.getpid()), boot="an-earlier-one")
FAR = Identity("fern", "another-machine", "another-boot", 1, 4711, 1)


def make(directory: Path, text: str = FILE, *queues: str) -> Path:
    """A pipeline's file, and its root with queues in it."""
    file = directory / "pipeline.toml"
    file.write_text(text)
    for queue in queues or ("input", "values", "parse", "out"):
        (directory / "queues" / queue).mkdir(parents=True, exist_ok=True)
    return file


def make_with_intake(directory: Path) -> Path:
    """A pipeline's file with an intake, and a watchdog that lives and tells of it."""
    file = make(directory, FILE + '[[intake]]\nname = "scanner"\nfrom = "drops"\n')
    why = "3 files wait, as a.pdf: empty for 4 s"
    files = {"settling": 2, "stuck": 1, "filtered": 40}
    stage = StageReport(name="scanner", wanted=1, min=1, max=1, files=files)
    said = report()
    stages = (*said.stages, stage)
    publish(file, replace(said, stages=stages, drivers=(driver("scanner-1", why=why),)))
    return file


def report(host: str = "rose", **fields: Any) -> HostReport:
    """What a watchdog that lives, this very process, says of itself."""
    now = time.time()
    usual: dict[str, Any] = {
        "pid": os.getpid(),
        "identity": identify(os.getpid()),
        "started_at": now - 3600,
        "at": now,
        "name": "serif",
        "stages": (
            StageReport(name="values", wanted=1, min=1, max=1, inputs=("input",)),
            StageReport(name="parse", wanted=2, min=1, max=3, inputs=("values",)),
            StageReport(name="out", wanted=2, min=2, max=2, inputs=("parse",)),
        ),
    }
    return HostReport(host=host, **(usual | fields))


def driver(name: str, host: str = "rose", **fields: Any) -> DriverReport:
    """A driver that a watchdog reports."""
    usual: dict[str, Any] = {
        "id": f"{host}-{name}",
        "stage": name.rpartition("-")[0],
        "state": "ready",
        "pid": 1,
    }
    return DriverReport(name=name, **(usual | fields))


def publish(file: Path, said: HostReport) -> HostReport:
    """Put a watchdog's document where it belongs: in its local directory, where that is there, and
    where all hosts see it."""
    root = file.parent / "queues"
    if not said.root:
        said = msgspec.structs.replace(said, root=str(root), pipeline=str(file))
    directory = root / HOSTS
    directory.mkdir(parents=True, exist_ok=True)
    aside = directory / f".{said.host}"
    aside.write_bytes(encode(said))
    aside.rename(directory / f"{host_file(said.host)}.json")
    if said.local and os.path.isdir(said.local):
        save(said)
    return said


def call(capsys: pytest.CaptureFixture[str], *args: str | Path) -> Called:
    """Run a command of watchdogd in this process."""
    capsys.readouterr()
    code = run([str(arg) for arg in args])
    printed = capsys.readouterr()
    return Called(code, printed.out, printed.err)


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a watchdog, to be killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
