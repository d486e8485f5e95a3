"""A pipeline in a directory, watchdogd on it, and what one sees of the two from outside."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks import measuring
from benchmarks.measuring import Failed
from queuedriver.driving.live_status import Board, Glimpse
from queuedriver.errors import ConfigError
from watchdogd import driver_ids
from watchdogd.pipeline.read import read

HOST = "bench"
# Seconds: far more than anything here takes.
PATIENCE = 60.0
_LOOK_EVERY = 0.002

T = TypeVar("T")


def until(fact: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Wait for a fact, and give it; Failed with `what` when it does not come true."""
    ends_at = time.monotonic() + patience
    while not (found := fact()):
        if time.monotonic() > ends_at:
            raise Failed(f"{what}: not within {patience:g} s")
        time.sleep(_LOOK_EVERY)
    return found


def environ(directory: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """For whatever is started here: it finds our modules, and keeps what is its own in here."""
    return {
        **measuring.environ(),
        "WATCHDOGD_STATE": str(directory / "state"),
        "XDG_RUNTIME_DIR": str(directory / "run"),
        **(more or {}),
    }


def write(directory: Path, stages: Sequence[str], more: str = "") -> Path:
    """The pipeline's file, its queues in `queues`; each stage is the text of its table."""
    for name in ("run", "queues/input"):
        (directory / name).mkdir(parents=True)
    head = '[pipeline]\nname = "bench"\nroot = "queues"\n'
    tables = "".join(f"\n[[stage]]\n{stage}\n" for stage in stages)
    file = directory / "pipeline.toml"
    file.write_text(f"{head}{tables}\n{more}\n")
    return file


class Watchdog:
    """watchdogd, running."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path, local: Path) -> None:
        self.process = process
        self.directory = directory
        self.local = local

    def glimpses(self) -> dict[str, Glimpse]:
        """What each driver says of itself, by its short name."""
        found = {}
        boards = self.local / "boards"
        for path in boards.glob("*.board") if boards.is_dir() else ():
            # One that was renamed away, or is not yet written.
            with (
                contextlib.suppress(OSError, ConfigError),
                contextlib.closing(Board.open(str(path))) as board,
            ):
                found[path.stem.removeprefix(f"{HOST}-")] = board.read()
        return found

    def wait_ready(self, drivers: int) -> None:
        until(lambda: self._ready() >= drivers or self._gone(), f"{drivers} drivers ready")
        self.check()

    def _ready(self) -> int:
        return sum(bool(one.ready_at) for one in self.glimpses().values())

    def _gone(self) -> bool:
        return self.process.poll() is not None

    def check(self) -> None:
        """Failed when it has ended."""
        if self._gone():
            raise Failed(f"watchdogd: exit {self.process.returncode}: {self.last_words()}")

    def wait(self, patience: float) -> None:
        """To its own end, which must be a good one."""
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise Failed(f"watchdogd did not end within {patience:g} s") from None
        if code != 0:
            raise Failed(f"watchdogd: exit {code}: {self.last_words()}")

    def last_words(self) -> str:
        lines = (self.directory / "watchdogd.log").read_text().strip().splitlines()
        return (lines or ["no words"])[-1]

    @property
    def helper(self) -> int:
        """The process that does all input and output for it."""
        # What another commit calls it.
        return self._child(b"io_helper", b"eyes")

    @property
    def warden(self) -> int:
        """The process that outlives it, when it is killed."""
        return self._child(b"warden")

    def _child(self, *names: bytes) -> int:
        """The one that runs a module of one of these names, or its file."""
        for pid in children(self.process.pid):
            words = [os.path.basename(word).removesuffix(b".py") for word in arguments(pid)]
            if any(word.rpartition(b".")[2] in names for word in words):
                return pid
        raise Failed(f"watchdogd has no {names[0].decode()}")

    def events(self, *kinds: str) -> list[dict[str, object]]:
        try:
            lines = (self.local / "events.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [event for event in map(json.loads, lines) if event["event"] in kinds]


@contextlib.contextmanager
def watched(
    directory: Path, *words: str, more: Mapping[str, str] | None = None
) -> Iterator[Watchdog]:
    """watchdogd on the pipeline of this directory, until the end of the block at the latest."""
    file = directory / "pipeline.toml"
    env = environ(directory, more)
    pipeline = read(str(file), HOST)
    name = os.path.basename(driver_ids.local_directory(pipeline.root, HOST))
    command = [sys.executable, "-m", "watchdogd", "run", str(file), "--host", HOST, *words]
    with (directory / "watchdogd.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=env, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield Watchdog(process, directory, Path(env["WATCHDOGD_STATE"]) / name)
    finally:
        end(process)
        # Of one that was killed, those that it left still write where the next run begins.
        state = env["WATCHDOGD_STATE"]
        until(lambda: not marked("WATCHDOGD_STATE", state), "the end of all that it started")


def end(process: subprocess.Popen[bytes]) -> None:
    """Twice asked to leave, then killed: whatever it has started has gone before it."""
    for number, seconds in ((signal.SIGTERM, 1), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
    process.wait()


def marked(variable: str, value: str | Path) -> list[int]:
    """Return the processes of this host that have a variable of this value in their environment."""
    mark = os.fsencode(f"{variable}={value}")
    found = []
    for one in Path("/proc").glob("[0-9]*/environ"):
        # It has ended, or is another user's.
        with contextlib.suppress(OSError):
            if mark in one.read_bytes().split(b"\0"):
                found.append(int(one.parent.name))
    return found


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def put(queue: Path, docid: str, data: bytes = b"x" * 1024) -> int:
    """A document that becomes visible whole; when, in ns on the monotonic clock."""
    aside = queue / f".{docid}.aside"
    aside.write_bytes(data)
    now = time.monotonic_ns()
    aside.rename(queue / f"{docid}.ready")
    return now
