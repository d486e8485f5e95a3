"""The cold start of each command that is waited for, beside that of Python."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import measuring, pipelines
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

PYTHON = "python -c pass"
PUT = "queuedriver put QUEUE FILE"
STATUS = "queuedriver status QUEUE"
RUN = "queuedriver run, to its first claim"
WATCHED = "watchdogd run, a document through three stages"
WATCHED_STATUS = "watchdogd status, of a pipeline that runs"
QUEUES = ("input", "s1", "s2", "s3")
# What the driver calls: the first document says when it was there.
FIRST_CLAIM = """
import time


def process(document):
    with open("claimed_at", "w") as file:
        file.write(str(time.monotonic_ns()))
    return b""
"""
TITLE = "Cold start"
LEAD = (
    "From exec to exit, a new process each, median of {starts}; of the driver, from exec to its "
    "function getting the first document; of watchdogd, from exec to the result of a document that "
    "waits, of three stages with a function and a driver each. The put is durable, as it is by "
    "default. Compiled modules are on disk and in the page cache. × Python is taken in each round."
)


def measure(scale: Scale, places: list[Place]) -> Table:
    group = Group("")
    notes: set[str] = set()
    for place in places:
        chosen = measuring.beside(contenders(), scale.against)
        results = measuring.interleave(chosen, scale.starts, place)
        for name in (one.name for one in chosen):
            group.rows.append([name, place.name, *_cells(results, name)])
        notes |= {f"{name} failed: {why}" for name, why in results.failures.items()}
    columns = ["command", "place", "median ms", "fastest", "slowest", "× Python"]
    return Table(TITLE, LEAD.format(starts=scale.starts), columns, [group], sorted(notes))


def _cells(results: Results, name: str) -> list[str]:
    if name not in results:
        return ["failed", "-", "-", "-"]
    times = [sample.ns_per_document / 1e6 for sample in results.samples[name]]
    cells = [f"{one:.0f}" for one in (median(times), min(times), max(times))]
    if PYTHON not in results:
        return [*cells, "-"]
    return [*cells, f"{median(results.ratios(name, PYTHON)):.1f}"]


def contenders() -> list[Contender]:
    command = str(Path(sys.executable).parent / "queuedriver")

    def prepare(directory: Path) -> None:
        measuring.make_queue(directory / "queue")
        measuring.make_queue(directory / "output")
        (directory / "document").write_bytes(b"x" * 1024)
        (directory / "first_claim.py").write_text(FIRST_CLAIM)

    def timed(*words: str) -> Callable[[Path], Sample]:
        def measured(directory: Path) -> Sample:
            chosen = [word.format(directory=directory) for word in words]
            # Once unmeasured: so that no compiling of modules is.
            measuring.run(*chosen)
            chosen[-1:] = [chosen[-1].replace("document", "second")]
            (directory / "document").rename(directory / "second")
            began = time.perf_counter_ns()
            measuring.run(*chosen)
            return Sample(time.perf_counter_ns() - began)

        return measured

    def to_first_claim(directory: Path) -> Sample:
        options = ["--call", "first_claim:process", "--drain"]
        spent = 0
        for turn in range(2):
            (directory / "queue" / f"{turn}.ready").write_bytes(b"x")
            began = time.monotonic_ns()
            words = [command, "run", "queue", "--to", "output", *options]
            measuring.run(*words, cwd=directory)
            spent = int((directory / "claimed_at").read_text()) - began
        return Sample(spent)

    warmed: set[str] = set()

    def watched(directory: Path, *, status: bool) -> Sample:
        name = "status" if status else "run"
        tree = measuring.environ()["PYTHONPATH"]
        # Once unmeasured for each tree: so that no compiling of modules is.
        for turn in range(1 if f"{name} {tree}" in warmed else 2):
            spent = _status(directory / str(turn)) if status else _through(directory / str(turn))
        warmed.add(f"{name} {tree}")
        return Sample(spent)

    tree = measuring.ROOT
    put = timed(command, "put", "{directory}/queue", "{directory}/document")
    status = timed(command, "status", "{directory}/queue")
    return [
        Contender(PYTHON, timed(sys.executable, "-c", "pass"), prepare),
        Contender(PUT, put, prepare, tree=tree),
        Contender(STATUS, status, prepare, tree=tree),
        Contender(RUN, to_first_claim, prepare, tree=tree),
        Contender(WATCHED, lambda directory: watched(directory, status=False), tree=tree),
        Contender(WATCHED_STATUS, lambda directory: watched(directory, status=True), tree=tree),
    ]


def _lay_out(directory: Path) -> None:
    function = 'call = "first_claim:process"\ndurable = false'
    pipelines.write(directory, [f'name = "{name}"\n{function}' for name in QUEUES[1:]])
    (directory / "first_claim.py").write_text(FIRST_CLAIM)
    (directory / "queues" / QUEUES[0] / "one.ready").write_bytes(b"x")


def _through(directory: Path) -> int:
    _lay_out(directory)
    began = time.monotonic_ns()
    with pipelines.watched(directory) as watchdog:
        _wait_result(directory, watchdog)
        return time.monotonic_ns() - began


def _wait_result(directory: Path, watchdog: pipelines.Watchdog) -> None:
    result = directory / "queues" / QUEUES[-1] / "one.ready"
    pipelines.until(lambda: result.exists() or watchdog.process.poll() is not None, "the result")
    watchdog.check()


def _status(directory: Path) -> int:
    _lay_out(directory)
    words = [sys.executable, "-m", "watchdogd", "status", "pipeline.toml"]
    with pipelines.watched(directory) as watchdog:
        _wait_result(directory, watchdog)
        options = {"cwd": directory, "env": pipelines.environ(directory), "capture_output": True}
        began = time.monotonic_ns()
        done = subprocess.run(words, check=False, **options)
        spent = time.monotonic_ns() - began
    if b"s3" not in done.stdout:
        raise Failed(f"exit {done.returncode}: {done.stderr.decode().strip()[-200:]}")
    return spent
