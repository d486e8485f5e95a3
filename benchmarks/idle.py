"""An idle driver: how soon it starts on a new item, and what it costs meanwhile."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import measuring
from benchmarks.measuring import Failed
from benchmarks.memory import peak_rss
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "An idle driver"
LEAD = (
    "From just before the rename that makes an item visible to the first line of the processor, "
    "in another process, {wakes} times, after 30 to 300 ms of idleness; then the CPU time of all "
    "its threads over {seconds:.0f} s with nothing to do."
)
# Read in their sources: nothing to measure that the interval does not say.
PEERS_POLL = (
    "Peers poll. huey's consumer: 0.1 s, growing by 1.15 to 10 s. persist-queue's blocking get: "
    "10 s between processes. dirq, femtoqueue and diskcache.Deque offer no waiting: their callers "
    "choose an interval."
)
# Long enough that the driver has given up looking and sleeps.
SETTLE = 0.5


@dataclass
class WaitingDriver:
    process: subprocess.Popen[str]
    queue: Path

    def document_started(self, docid: str) -> float:
        """Submit an item; the seconds until the driver began on it."""
        aside = self.queue / ".queuedriver" / "incoming" / docid
        aside.write_bytes(b"x" * 1024)
        visible = self.queue / f"{docid}.ready"
        before = time.monotonic_ns()
        os.rename(aside, visible)
        answer = self.process.stdout.readline() if self.process.stdout else ""
        if not answer:
            _, stderr = self.process.communicate(timeout=measuring.TIMEOUT)
            raise Failed((stderr.strip().splitlines() or ["the driver left"])[-1])
        started, _, which = answer.strip().partition(" ")
        if which != docid:
            raise Failed(f"submitted {docid!r}, the driver began on {which!r}")
        return (int(started) - before) / 1e9

    def peak_rss(self) -> int:
        return peak_rss(self.process.pid)

    def cpu_seconds(self) -> float:
        """Of all threads, to the nanosecond: the ticks of /proc/PID/stat are too coarse."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@contextlib.contextmanager
def waiting_driver(directory: Path) -> Iterator[WaitingDriver]:
    source = measuring.make_queue(directory / "in")
    measuring.make_queue(directory / "out")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ours_wait", str(source), str(directory / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=measuring.ROOT,
    )
    try:
        yield WaitingDriver(process, source)
    finally:
        process.terminate()
        process.communicate(timeout=measuring.TIMEOUT)


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["place", "median ms", "99 %", "worst ms", "CPU %", "peak RSS MB"]
    group = Group("")
    notes = {PEERS_POLL}
    for place in places:
        directory = place.directory / "work"
        directory.mkdir()
        try:
            group.rows.append([place.name, *_cells(directory, scale)])
        except Failed as failure:
            group.rows.append([place.name, "failed", *["-"] * 4])
            notes.add(f"queuedriver failed: {failure}")
        finally:
            measuring.remove(directory)
    lead = LEAD.format(wakes=scale.wakes, seconds=scale.idle_seconds)
    return Table(TITLE, lead, columns, [group], sorted(notes))


def _cells(directory: Path, scale: Scale) -> list[str]:
    with waiting_driver(directory) as driver:
        driver.document_started("warm")
        time.sleep(SETTLE)
        waits = []
        for number in range(scale.wakes):
            time.sleep(random.uniform(0.03, 0.3))
            waits.append(driver.document_started(f"doc{number}"))
        time.sleep(SETTLE)
        before, began = driver.cpu_seconds(), time.monotonic()
        time.sleep(scale.idle_seconds)
        share = (driver.cpu_seconds() - before) / (time.monotonic() - began)
        waits.sort()
        nearly_worst = waits[max(0, len(waits) - 1 - len(waits) // 100)]
        return [
            f"{1000 * median(waits):.2f}",
            f"{1000 * nearly_worst:.2f}",
            f"{1000 * waits[-1]:.2f}",
            f"{100 * share:.3f}",
            f"{driver.peak_rss() / 1e6:.0f}",
        ]
