"""Three stages of documents that need no work: throughput, and the latency of an idle chain."""

import contextlib
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks import measuring, pipelines
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.pipeline_child import go, noted
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table
from queuedriver.driving.group import MOST
from watchdogd.pipeline.model import BETWEEN_STAGES

TITLE = "A chain of three stages"
LEAD = (
    "{documents:,} documents of 1 KiB, copied by each stage, which has one driver; not durable "
    "but where it is said. Counted are hand-offs a second, of which a document takes three: from "
    "the first document to the last, without start-up and leaving. The yardstick is what three "
    "drivers reach together that have nothing to do with each other, each with all documents in a "
    "queue of its own: the sum of their speeds. The C program makes the same calls, each of its "
    "chains against its own processes apart, with {limit} documents between two stages at most, "
    "as under watchdogd; durable, it makes three syncs for each {group} documents, as ours does. "
    "Median of {rounds} rounds, × within them. Then the chain at rest: from just before a document "
    "becomes visible in the first queue until it is visible behind the last stage, {wakes} times, "
    "after 50 to 500 ms of idleness. Every run is checked: each document came out once, under its "
    "name, and none is left."
)
APART = "three drivers apart, together"
ALONE = "one driver alone"
C_APART = "C, three processes apart"
C_CHAIN = "C, chain"
C_DURABLE = f"C, chain, durable in groups of {MOST}"
CHAIN = "chain, three queuedriver run"
WATCHED = "chain, watchdogd"
DURABLE = "chain, watchdogd, durable"
QUEUES = ("input", "s1", "s2", "s3")
PROCESS = "benchmarks.pipeline_child:process"
Start = contextlib.AbstractContextManager[object]
# How often one looks whether the document has come out, in seconds: it adds half of that.
LOOK_EVERY = 0.0002


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = [
        "drivers",
        "place",
        "hand-offs/s",
        "× apart",
        "(min-max)",
        "latency ms",
        "95 %",
        "worst",
    ]
    group = Group("")
    notes: set[str] = set()
    for place in places:
        chosen = measuring.beside(contenders(scale.pipeline_documents), scale.against)
        results = measuring.interleave(chosen, scale.long_rounds, place)
        resting = measuring.beside(at_rest(scale.wakes), scale.against)
        waits = measuring.interleave(resting, 1, place)
        for contender in chosen:
            cells = _cells(results, contender.name) + _waits(waits, contender.name)
            group.rows.append([contender.name, place.name, *cells])
        failures = {**results.failures, **waits.failures}
        notes |= {f"{name} failed: {why}" for name, why in failures.items()}
    lead = LEAD.format(
        documents=scale.pipeline_documents,
        rounds=scale.long_rounds,
        wakes=scale.wakes,
        limit=BETWEEN_STAGES,
        group=MOST,
    )
    return Table(TITLE, lead, columns, [group], sorted(notes))


def contenders(documents: int) -> list[Contender]:
    def apart(drivers: int) -> Callable[[Path], Sample]:
        return lambda directory: run_apart(directory, drivers, documents)

    def chained(start: Callable[[Path], Start]) -> Callable[[Path], Sample]:
        return lambda directory: run_chain(directory, start, documents)

    def durable(directory: Path) -> Sample:
        return run_c(directory, documents, chained=True, group=MOST)

    tree = measuring.ROOT
    return [
        Contender(C_APART, lambda directory: run_c(directory, documents, chained=False)),
        Contender(C_CHAIN, lambda directory: run_c(directory, documents, chained=True)),
        Contender(
            C_DURABLE, lambda directory: run_c(directory, documents, chained=True, group=MOST)
        ),
        Contender(APART, apart(3), tree=tree),
        Contender(ALONE, apart(1), tree=tree),
        Contender(CHAIN, chained(by_hand), tree=tree),
        Contender(WATCHED, chained(by_watchdogd), tree=tree),
        Contender(DURABLE, chained(durably), tree=tree),
    ]


def at_rest(wakes: int) -> list[Contender]:
    def measured(start: Callable[[Path], Start]) -> Callable[[Path], Sample]:
        return lambda directory: rest(directory, start, wakes)

    tree = measuring.ROOT
    return [
        Contender(CHAIN, measured(by_hand), tree=tree),
        Contender(WATCHED, measured(by_watchdogd), tree=tree),
    ]


def by_hand(directory: Path) -> Start:
    """Three drivers that know of each other's queues, and nothing else."""
    for name in QUEUES:
        (directory / "queues" / name).mkdir(parents=True, exist_ok=True)
    return drivers(directory, list(itertools.pairwise(QUEUES)))


def durably(directory: Path) -> Start:
    return by_watchdogd(directory, durable=True)


def by_watchdogd(directory: Path, *, durable: bool = False) -> Start:
    synced = f"durable = {str(durable).lower()}"
    stages = [f'name = "{name}"\ncall = "{PROCESS}"\n{synced}' for name in QUEUES[1:]]
    pipelines.write(directory, stages)
    return pipelines.watched(directory, more=_environ(directory))


@contextlib.contextmanager
def drivers(directory: Path, ways: list[tuple[str, str]]) -> Iterator[None]:
    """A `queuedriver run` from one queue to another, for each of these."""
    program = Path(sys.executable).parent / "queuedriver"
    with (directory / "drivers.log").open("wb") as log, contextlib.ExitStack() as stack:
        for number, (source, target) in enumerate(ways, 1):
            words = [source, "--to", target, "--call", PROCESS, "--id", str(number)]
            process = subprocess.Popen(
                [program, "run", *words],
                cwd=directory / "queues",
                env=pipelines.environ(directory, _environ(directory)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            stack.callback(pipelines.end, process)
        yield


def run_apart(directory: Path, count: int, documents: int) -> Sample:
    ways = [(f"in{number}", f"out{number}") for number in range(count)]
    for source, target in ways:
        measuring.make_queue(directory / "queues" / source, documents)
        measuring.make_queue(directory / "queues" / target)
    times = directory / "times"
    times.mkdir()
    with drivers(directory, ways):
        pipelines.until(lambda: len(list(noted(times))) == count, f"{count} drivers")
        go(times)
        _wait(times, lambda found: found.count(documents) == count)
    for source, target in ways:
        check(directory, [source], target, documents)
    per_second = sum(1e9 * (one.documents - 1) / (one.last - one.first) for one in noted(times))
    return Sample(1e9 / per_second)


def run_c(directory: Path, documents: int, *, chained: bool, group: int = 0) -> Sample:
    """The same calls and nothing else: what the kernel allows."""
    queues = [directory / "queues" / name for name in QUEUES]
    ways = list(itertools.pairwise(queues))
    if not chained:
        ways = [(directory / f"in{number}", directory / f"out{number}") for number in range(3)]
    for queue in dict.fromkeys(itertools.chain(*ways)):
        measuring.make_queue(queue)
    for source, _ in ways[: 1 if chained else None]:
        measuring.stagecycle("fill", source, documents, 1024)
    limit = BETWEEN_STAGES if chained else 0
    words = ["-n", documents, "-l", limit, "-g", group]
    made = measuring.stagecycle("stages", *itertools.chain(*ways), *words)
    return made if chained else Sample(made.facts["ns_apart"])


def run_chain(directory: Path, start: Callable[[Path], Start], documents: int) -> Sample:
    times = directory / "times"
    times.mkdir()
    context = start(directory)
    measuring.stagecycle("fill", directory / "queues" / QUEUES[0], documents, 1024)
    with context:
        _wait_registered(directory)
        pipelines.until(lambda: any(noted(times)), "the first document")
        go(times)
        _wait(times, lambda found: found.count(documents) == 3)
    check(directory, list(QUEUES[:-1]), QUEUES[-1], documents)
    by_queue = {one.queue: one for one in noted(times)}
    spent = by_queue[QUEUES[2]].last - by_queue[QUEUES[0]].first
    return Sample(spent / (3 * documents - 1))


def rest(directory: Path, start: Callable[[Path], Start], wakes: int) -> Sample:
    times = directory / "times"
    times.mkdir()
    go(times)
    first, last = (directory / "queues" / QUEUES[place] for place in (0, -1))
    waits = []
    with start(directory):
        _wait_registered(directory)
        _seconds_through(first, last, "warm")
        for number in range(wakes):
            time.sleep(random.uniform(0.05, 0.5))
            waits.append(_seconds_through(first, last, f"doc{number}"))
    return Sample(1e9 * median(waits), {"waits": sorted(waits)})


def _seconds_through(first: Path, last: Path, docid: str) -> float:
    result = last / f"{docid}.ready"
    began_at = pipelines.put(first, docid)
    ends_at = time.monotonic() + pipelines.PATIENCE
    while not result.exists():
        if time.monotonic() > ends_at:
            raise Failed(f"{docid} has not come through")
        time.sleep(LOOK_EVERY)
    return (time.monotonic_ns() - began_at) / 1e9


def _environ(directory: Path) -> dict[str, str]:
    return {"PIPELINE_TIMES": str(directory / "times")}


def _wait_registered(directory: Path) -> None:
    """Until each stage has a driver."""
    known = [directory / "queues" / name / ".queuedriver" / "drivers" for name in QUEUES[:-1]]
    pipelines.until(lambda: all(any(one.glob("*.json")) for one in known), "a driver for each")


def _wait(times: Path, over: Callable[[list[int]], bool]) -> None:
    """Look rarely: it is on the drivers' processors that this runs."""
    ends_at = time.monotonic() + measuring.TIMEOUT
    while not over([one.documents for one in noted(times)]):
        if time.monotonic() > ends_at:
            raise Failed("the documents did not come through")
        time.sleep(0.05)


def check(directory: Path, sources: list[str], target: str, documents: int) -> None:
    """Each document came out under its own name, and nothing of it is left on the way."""
    queues = directory / "queues"
    expected = {f"doc{number:07d}.ready" for number in range(documents)}
    if published := set(_items(queues / target)) ^ expected:
        raise Failed(f"{len(published)} documents lost or published twice, as {min(published)}")
    for source in sources:
        if left := _items(queues / source):
            raise Failed(f"{len(left)} items left in {source}, as {left[0]}")


def _items(queue: Path) -> list[str]:
    return [name for name in os.listdir(queue) if name.startswith("doc")]


def _cells(results: Results, name: str) -> list[str]:
    if name not in results:
        return ["failed", "-", "-"]
    cells = [f"{1e6 / results.median_us(name):,.0f}", "-", "-"]
    apart = C_APART if name in (C_CHAIN, C_DURABLE) else name.replace(_own(name), APART)
    if name != apart and name != C_APART and apart in results:
        speeds = [1 / ratio for ratio in results.ratios(name, apart)]
        cells[1:] = [f"{median(speeds):.2f}", f"({min(speeds):.2f}-{max(speeds):.2f})"]
    return cells


def _own(name: str) -> str:
    """Return a contender's name without the commit that runs it."""
    ours = (APART, ALONE, DURABLE, WATCHED, CHAIN)
    return next((one for one in ours if name.startswith(one)), name)


def _waits(results: Results, name: str) -> list[str]:
    if name not in results:
        return ["-", "-", "-"]
    waits = sorted(wait for waits in results.facts(name, "waits") for wait in waits)
    nearly_worst = waits[max(0, len(waits) - 1 - len(waits) // 20)]
    return [f"{1000 * one:.1f}" for one in (median(waits), nearly_worst, waits[-1])]
