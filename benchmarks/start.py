"""The cold start of `queuedriver put` for one file, beside that of Python itself."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import measuring
from benchmarks.measuring import Contender, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

PYTHON = "python -c pass"
PUT = "queuedriver put QUEUE FILE"
TITLE = "Cold start"
LEAD = (
    "From exec to exit, a new process each, median of {starts}. The put is durable, as it is by "
    "default. Its compiled modules are on disk and in the page cache."
)


def measure(scale: Scale, places: list[Place]) -> Table:
    group = Group("")
    notes: set[str] = set()
    for place in places:
        results = measuring.interleave(contenders(), scale.starts, place)
        for name in (PYTHON, PUT):
            if name in results:
                times = [sample.ns_per_document / 1e6 for sample in results.samples[name]]
                cells = [f"{median(times):.0f}", f"{min(times):.0f}", f"{max(times):.0f}"]
            else:
                cells = ["failed", "-", "-"]
            group.rows.append([name, place.name, *cells])
        notes |= {f"{name} failed: {why}" for name, why in results.failures.items()}
    columns = ["command", "place", "median ms", "fastest", "slowest"]
    return Table(TITLE, LEAD.format(starts=scale.starts), columns, [group], sorted(notes))


def contenders() -> list[Contender]:
    command = Path(sys.executable).parent / "queuedriver"

    def prepare(directory: Path) -> None:
        measuring.make_queue(directory / "queue")
        (directory / "document").write_bytes(b"x" * 1024)
        # So that no compiling of modules is measured.
        measuring.run(command, "put", directory / "queue", directory / "document", "--docid", "0")

    def timed(*words: str) -> Callable[[Path], Sample]:
        def measured(directory: Path) -> Sample:
            chosen = [word.format(directory=directory) for word in words]
            began = time.perf_counter_ns()
            measuring.run(*chosen)
            return Sample(time.perf_counter_ns() - began)

        return measured

    put = timed(str(command), "put", "{directory}/queue", "{directory}/document")
    return [
        Contender(PYTHON, timed(sys.executable, "-c", "pass")),
        Contender(PUT, put, prepare),
    ]
