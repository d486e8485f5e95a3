"""A stage with preload: how soon a crashed driver works again, and what memory drivers share."""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks import measuring, pipelines
from benchmarks.measuring import Failed
from benchmarks.pipelines import Watchdog
from benchmarks.places import Place
from benchmarks.restart import Lives
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

CRASH_TITLE = "A crashed driver with preload"
CRASH_LEAD = (
    "From kill -9 of a driver with a document at hand to the first line of the processor in its "
    "successor, {crashes} times; and of {drivers} drivers at once, until the last of their "
    "successors begins. The first document takes in the start of watchdogd."
)
SHARE_TITLE = "Memory of drivers with preload"
SHARE_LEAD = (
    "{drivers} drivers, and what they were forked from, when each driver has read all of "
    "the model {reads} times or more: the sums of what /proc says of them. PSS shares a page out "
    "among those who have it; RSS counts it for each."
)
COPIED = "Objects are copied bit by bit: to look at one writes to its count of references."
STAGE = """name = "one"
call = "benchmarks.loaded:process"
preload = true
timeout = "1 h"
drivers = {drivers}
"""
READS = 5
PATIENCE = 300.0
# Seconds by which lives differ at most, so that nothing happens in step.
PHASE = 0.5
# Room for other programs, and for what is loaded while it is made.
_ROOM = 1.5


def measure_crashes(scale: Scale, places: list[Place]) -> Table:
    columns = ["loaded", "first document s", "median ms", "slowest", f"{scale.sharers} at once"]
    group = Group("")
    lead = CRASH_LEAD.format(crashes=scale.template_crashes, drivers=scale.sharers)
    table = Table(CRASH_TITLE, lead, columns, [group])
    for size in scale.models:
        for kind in ("bytearray", "mmap"):
            with _row(table, kind, size, 1, places[-1], ["-"] * 4) as (cells, directory):
                cells.extend(_crashes(directory, kind, size, scale))
    return table


def measure_memory(scale: Scale, places: list[Place]) -> Table:
    columns = ["loaded", "once MB", "sum of RSS MB", "sum of PSS MB"]
    lead = SHARE_LEAD.format(drivers=scale.sharers, reads=READS)
    table = Table(SHARE_TITLE, lead, columns, [Group("")], [COPIED])
    for kind in ("bytearray", "array", "mmap", "objects"):
        # What is copied for each driver is to fit as well.
        size, copies = scale.shared_model, 1
        if kind == "objects":
            size, copies = size // 4, scale.sharers
        with _row(table, kind, size, copies, places[-1], ["-"] * 3) as (cells, directory):
            cells.extend(_memory(directory, kind, size, scale.sharers))
    return table


@contextlib.contextmanager
def _row(
    table: Table, kind: str, size: int, copies: int, place: Place, failed: list[str]
) -> Iterator[tuple[list[str], Path]]:
    """One row of the table: its cells, to be added to, and a directory for the while."""
    name = f"{kind}, {size >> 20:,} MiB"
    cells: list[str] = []
    directory = place.directory / "work"
    directory.mkdir()
    try:
        free = _free_memory()
        if size * copies * _ROOM > free:
            raise Failed(f"only {free / 1e9:.1f} GB of memory are free")
        yield cells, directory
    except Failed as failure:
        cells[:] = failed
        table.notes.append(f"{name} failed: {failure}")
    finally:
        measuring.remove(directory)
    table.groups[0].rows.append([name, *cells])


def _crashes(directory: Path, kind: str, size: int, scale: Scale) -> list[str]:
    began = time.time_ns()
    with _watched(directory / "one", kind, size, 1, 2 * scale.template_crashes + 8) as watchdog:
        begun = watchdog.directory / "begun"
        lives = Lives(begun, 2, watchdog.process, PHASE)
        pipelines.until(lives.lines, "the first document", PATIENCE)
        first = (int(lives.lines()[0][0]) - began) / 1e9
        crashed = [lives.crash() for _ in range(scale.template_crashes)]
    times = [(successor - killed_at) / 1e6 for killed_at, successor in crashed]
    together = _at_once(directory / "all", kind, size, scale.sharers)
    return [f"{first:.1f}", f"{median(times):.0f}", f"{max(times):.0f}", f"{together:.0f}"]


def _at_once(directory: Path, kind: str, size: int, drivers: int) -> float:
    """Milliseconds until all have successors at work that were killed together."""
    with _watched(directory, kind, size, drivers, 5 * drivers) as watchdog:
        begun = watchdog.directory / "begun"
        _until(watchdog, lambda: len(_pids(begun)) == drivers == _holding(begun))
        # A life that ends as soon as it has begun is of another kind.
        time.sleep(1)
        before = set(_pids(begun))
        killed_at = time.time_ns()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        _until(watchdog, lambda: len(_pids(begun)) == 2 * drivers)
        lines = [line.split() for line in begun.read_text().splitlines()]
    firsts = {pid: int(at) for at, pid, _ in reversed(lines)}
    return (max(at for pid, at in firsts.items() if int(pid) not in before) - killed_at) / 1e6


def _memory(directory: Path, kind: str, size: int, drivers: int) -> list[str]:
    with _watched(directory / "all", kind, size, drivers, 0, {"LOADED_READ": "1"}) as watchdog:
        begun = watchdog.directory / "begun"
        submitted: list[int] = []

        def all_have_read() -> bool:
            # As long as somebody waits for a turn, there is something to do.
            done = _pids(begun)
            while len(submitted) < done.total() + drivers:
                docid = f"doc{len(submitted)}"
                submitted.append(pipelines.put(directory / "all" / "queues" / "input", docid))
            return sum(count > READS for count in done.values()) == drivers

        _until(watchdog, all_have_read)
        forks = [pid for pid in _family(watchdog) if pid not in _pids(begun)]
        sizes = [_rss_and_pss(pid) for pid in (*forks, *_pids(begun))]
    once = max(rss for rss, _ in sizes[: len(forks)])
    sums = (sum(rss for rss, _ in sizes), sum(pss for _, pss in sizes))
    return [f"{number / 1e6:,.0f}" for number in (once, *sums)]


@contextlib.contextmanager
def _watched(
    directory: Path,
    kind: str,
    size: int,
    drivers: int,
    documents: int,
    more: dict[str, str] | None = None,
) -> Iterator[Watchdog]:
    """watchdogd on one stage that has so much loaded, and so many documents to do."""
    pipelines.write(directory, [STAGE.format(drivers=drivers)])
    for number in range(documents):
        pipelines.put(directory / "queues" / "input", f"doc{number}")
    begun = directory / "begun"
    begun.touch()
    environ = {"LOADED_AS": kind, "LOADED_BYTES": str(size), "LOADED_BEGUN": str(begun)}
    with pipelines.watched(directory, more={**environ, **(more or {})}) as watchdog:
        yield watchdog


def _until(watchdog: Watchdog, fact: Callable[[], bool]) -> None:
    pipelines.until(lambda: fact() or watchdog.process.poll() is not None, "work", PATIENCE)
    watchdog.check()


def _pids(begun: Path) -> Counter[int]:
    """How many documents each driver has begun."""
    return Counter(int(line.split()[1]) for line in begun.read_text().splitlines())


def _holding(begun: Path) -> int:
    """How many drivers have the document in their hands that they do not let go of."""
    return sum(count > 1 for count in _pids(begun).values())


def _family(watchdog: Watchdog) -> list[int]:
    """What was loaded, and its forks."""
    children = pipelines.children(watchdog.process.pid)
    return [pid for pid in children if b"watchdogd.programs.template" in pipelines.arguments(pid)]


def _rss_and_pss(pid: int) -> tuple[int, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
    return sizes["Rss:"], sizes["Pss:"]


def _free_memory() -> int:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024
