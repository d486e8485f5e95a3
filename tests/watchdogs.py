"""Watchdogs in processes of their own over pipelines of a test, and what one sees of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.waiting import until
from watchdogd import control, driver_ids, report
from watchdogd.pipeline.model import Drivers, Stage

# Seconds: far more than anything here takes, on a machine that does other things too.
PATIENCE = 120.0
_OURS = {"WATCHDOGD_PIPELINE", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
# What the stages of tests do to a document; each document says by its words what is to happen.
STAGES = '''
import os, signal, time
from pathlib import Path

from queuedriver import PermanentError

HERE = Path(__file__).parent


def shout(document):
    return document.read().upper()


def obey(document):
    """Do what the document says, the first time only if it says `once`."""
    words = document.read().decode().split()
    if "once" in words and document.attempt:
        words = []
    match words:
        case ["crash", *_]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["exit", *_]:
            os._exit(3)
        case ["hang", *_]:
            (HERE / "hanging").touch()
            time.sleep(3600)
        case ["deaf", *_]:
            (HERE / "hanging").touch()
            # In C, with the interpreter's lock held: no signal is looked at.
            sum(range(10**15))
        case ["bloat", *_]:
            bloated = bytearray(300_000_000)
            time.sleep(3600)
        case ["fork", *_]:
            if not os.fork():
                os.setsid()
                (HERE / ".away").write_text(str(os.getpid()))
                (HERE / ".away").rename(HERE / "away")
                time.sleep(3600)
            while not (HERE / "away").exists():
                time.sleep(0.01)
        case ["bad", *_]:
            raise PermanentError("it says so itself")
        case ["wait", *_]:
            with (HERE / "begun").open("a") as file:
                print(document.docid, file=file)
            while not (HERE / "go").exists():
                time.sleep(0.01)
            if "bad" in words:
                raise PermanentError("it says so itself")
        case ["slow", seconds, *_]:
            time.sleep(float(seconds))
    return document.read()
'''


def a_stage(name: str, inputs: str, outputs: str, **more: object) -> Stage:
    """A stage whose queues are named with spaces between them."""
    return Stage(
        name=name,
        inputs=tuple(inputs.split()),
        outputs=tuple(outputs.split()),
        drivers=Drivers(1, 1),
        kind="command",
        work=("true",),
        **more,  # type: ignore[arg-type]
    )


class Yard:
    """A directory with a pipeline's file, its queues, and the watchdogs that were started on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "pipeline.toml"
        (root / "stages.py").write_text(STAGES)
        # What whoever runs the tests has set for watchdogs of his own is none of theirs.
        ours = {name: said for name, said in os.environ.items() if name not in _OURS}
        self.environ = {
            **ours,
            "WATCHDOGD_STATE": str(root / "state"),
            "XDG_RUNTIME_DIR": str(root / "run"),
        }
        (root / "run").mkdir()
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
        # Whatever a watchdog should have ended and has not.
        self.end_all(*self.all_pids())
        for process in self._started:
            process.communicate()

    # Files

    def write(self, *stages: str, pipeline: str = "", more: str = "") -> None:
        """The pipeline's file; each stage is the text of its table."""
        head = f'[pipeline]\nname = "yard"\nroot = "queues"\ndurable = false\n{pipeline}\n'
        tables = "".join(f"\n[[stage]]\n{stage}\n" for stage in stages)
        self.file.write_text(f"{head}{tables}{more}\n")

    def put(self, docid: str, text: str = "text", queue: str = "input") -> None:
        directory = self.root / "queues" / queue
        directory.mkdir(parents=True, exist_ok=True)
        aside = directory / f".{docid}"
        aside.write_text(text)
        aside.rename(directory / f"{docid}.ready")

    def ls(self, queue: str) -> list[str]:
        """What is there to see, but for what is neither an item nor a result."""
        try:
            found = os.listdir(self.root / "queues" / queue)
        except FileNotFoundError:
            return []
        return sorted(one for one in found if one[0] != "." and one not in ("discarded", "done"))

    def begun(self) -> list[str]:
        """The documents that wait, or have waited, once for each time that one was begun."""
        return (self.root / "begun").read_text().split()

    def read(self, path: str) -> str:
        return (self.root / "queues" / path).read_text()

    def discarded(self, queue: str) -> dict[str, Any]:
        """The reports of what was discarded, by docid."""
        directory = self.root / "queues" / queue / "discarded"
        if not directory.is_dir():
            return {}
        return {
            name.removesuffix(".report.json"): json.loads((directory / name).read_text())
            for name in os.listdir(directory)
            if name.endswith(".report.json") and name[0] != "."
        }

    # Watchdogs

    def run(
        self, *arguments: str, host: str = "rose", under: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """A watchdog that goes on until it ends or the test does; started by `under`, if given."""
        words = ["run", str(self.file), "--host", host, *arguments]
        process = subprocess.Popen(
            [*under, sys.executable, "-m", "watchdogd", *words],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.root,
        )
        self._started.append(process)
        return process

    def drain(self, *arguments: str, under: Sequence[str] = ()) -> tuple[int, str]:
        """A watchdog with --drain, to its end: its exit code, and what it said."""
        process = self.run("--drain", *arguments, under=under)
        _, said = process.communicate(timeout=PATIENCE)
        return process.returncode, said

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "watchdogd", *words],
            env=self.environ,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    # What there is to see

    def local(self, host: str = "rose") -> Path:
        """Where the watchdog of a host has its own records."""
        name = os.path.basename(driver_ids.local_directory(str(self.root / "queues"), host))
        return Path(self.environ["WATCHDOGD_STATE"]) / name

    def status(self, host: str = "rose") -> report.HostReport | None:
        """What the watchdog of a host published last."""
        path = self.root / "queues" / control.CONTROL / "hosts" / f"{host}.json"
        try:
            return report.decode(path.read_bytes())
        except FileNotFoundError:
            return None

    def stages(self, host: str = "rose") -> Sequence[report.StageReport]:
        status = self.status(host)
        return status.stages if status else ()

    def drivers(self, host: str = "rose") -> dict[str, report.DriverReport]:
        status = self.status(host)
        return {one.name: one for one in status.drivers} if status else {}

    def states(self, host: str = "rose") -> dict[str, str]:
        return {name: one.state for name, one in self.drivers(host).items()}

    def pid(self, driver: str, host: str = "rose") -> int:
        """The process of a driver that is there."""

        def pid() -> int:
            one = self.drivers(host).get(driver)
            return one.pid if one is not None else 0

        return until(pid)

    def events(self, host: str = "rose") -> list[dict[str, Any]]:
        """What has happened. The last line may be half written as yet."""
        try:
            *lines, _ = (self.local(host) / "events.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def count(self, event: str, driver: str = "", host: str = "rose") -> int:
        """How often something has happened."""
        return sum(
            one["event"] == event and driver in ("", one.get("driver")) for one in self.events(host)
        )

    def waits_for_files(self) -> bool:
        """Whether the file system of the queues is in trouble, as far as its watchdog knows. On a
        busy host it may have been before, for a moment."""
        told = [one["event"] for one in self.events() if one["event"] in ("waiting-fs", "fs-well")]
        return told[-1:] == ["waiting-fs"]

    def end_all(self, *pids: int) -> None:
        """Kill processes, in this order, of which some may end by the death of others."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def all_pids(self) -> list[int]:
        """Every process that has the yard in its environment."""
        mark = os.fsencode(f"WATCHDOGD_STATE={self.environ['WATCHDOGD_STATE']}")
        found = []
        for name in os.listdir("/proc"):
            if not name.isdecimal():
                continue
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes()
                state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if mark in environ.split(b"\0") and state != b"Z":
                found.append(int(name))
        return found

    def driver_pids(self) -> list[int]:
        """Those of the drivers alone."""
        return [pid for pid in self.all_pids() if b"watchdogd.programs.driver" in _arguments(pid)]


T = TypeVar("T")


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
