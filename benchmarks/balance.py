"""Three stages that differ in time and memory: the watchdog's balance beside every fixed split."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

from benchmarks import measuring, pipelines
from benchmarks.balance_child import SERVICE
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table
from watchdogd.host import physical_memory

TITLE = "Where drivers are needed"
LEAD = (
    "Three stages, values, parse and output, which take 20, 60 and 40 ms for a document and "
    "declare 600 MB, 2 GB and 1 GB for a driver, of which there may be 1 to 8 each, in 8.6 GB. "
    "Seconds from the start of watchdogd until the last of {documents:,} documents is through, of "
    "which all wait at the start: with drivers = {{ min = 1, max = 8 }}, rebalanced every second, "
    "which is what watchdogd then does by itself; and with each split that fits and stays what it "
    "is. Those are tried first, once, with {tried:,} documents; the best {kept} of them then take "
    "part in {rounds} rounds, and × best is within those. Every run is checked: each document went "
    "through each stage once."
)
MEMORY = {"values": 600, "parse": 2000, "output": 1000}
HOST = 8600
MOST = 8
STAGES = tuple(SERVICE)
BALANCED = "balanced by watchdogd"
# What the best of the trials is chosen from again, with more documents.
KEPT = 3
PATIENCE = 120.0

Split = tuple[int, ...]


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["drivers", "place", "seconds", "(min-max)", "× best", "(min-max)"]
    group = Group("")
    # Drivers that sleep do not care which file system they wait for.
    place = places[-1]
    splits = [split for split in all_that_fit() if not is_dominated(split)]
    trials = [Contender(name(split), fixed(split, scale.balance_trials)) for split in splits]
    tried = measuring.interleave(trials, 1, place)
    ranking = sorted(tried.samples, key=tried.median_us)
    kept = [split for split in splits if name(split) in ranking[:KEPT]]
    documents = scale.balance_documents
    chosen = [
        Contender(BALANCED, lambda directory: run(directory, None, documents)),
        *(Contender(name(split), fixed(split, documents)) for split in kept),
    ]
    results = measuring.interleave(chosen, scale.balance_rounds, place)
    best = min((one for one in ranking[:KEPT] if one in results), key=results.median_us)
    for contender in chosen:
        group.rows.append([contender.name, place.name, *_cells(results, contender.name, best)])
    notes = _notes(tried, results)
    lead = LEAD.format(
        documents=documents,
        tried=scale.balance_trials,
        kept=KEPT,
        rounds=scale.balance_rounds,
    )
    return Table(TITLE, lead, columns, [group], notes)


def all_that_fit() -> Iterator[Split]:
    for split in itertools.product(range(1, MOST + 1), repeat=len(STAGES)):
        if _memory(split) <= HOST:
            yield split


def is_dominated(split: Split) -> bool:
    """Whether one more driver somewhere would fit too: drivers that only sleep do no harm."""
    return any(
        number < MOST and _memory(split) + MEMORY[stage] <= HOST
        for stage, number in zip(STAGES, split, strict=True)
    )


def _memory(split: Split) -> int:
    return sum(number * MEMORY[stage] for stage, number in zip(STAGES, split, strict=True))


def name(split: Split) -> str:
    return " / ".join(map(str, split))


def fixed(split: Split, documents: int) -> Callable[[Path], Sample]:
    return lambda directory: run(directory, split, documents)


def run(directory: Path, split: Split | None, documents: int) -> Sample:
    """With these drivers, or with those that watchdogd chooses."""
    if physical_memory() < HOST * 1_000_000:
        raise Failed(f"this host has less than {HOST} MB, which the stages declare")
    write(directory, split)
    measuring.stagecycle("fill", directory / "queues" / "input", documents, 1024)
    times = directory / "times"
    began_at = time.monotonic_ns()
    with pipelines.watched(directory, "--drain", more={"BALANCE_TIMES": str(times)}) as watchdog:
        watchdog.wait(PATIENCE)
        events = watchdog.events("started", "restarted", "exited")
        moved = len(watchdog.events("moved"))
    took = check(times, documents) - began_at
    began = float(str(events[0]["at"]))
    course = [split_at(events, began + part * took / 1e9) for part in (0.25, 0.5, 0.75)]
    return Sample(took, {"moved": moved, "course": course})


def split_at(events: list[dict[str, object]], instant: float) -> Split:
    """How many drivers each stage had then."""
    living: set[object] = set()
    for event in events:
        if float(str(event["at"])) <= instant:
            (living.discard if event["event"] == "exited" else living.add)(event["driver"])
    stages = [str(driver).rpartition("-")[0] for driver in living]
    return tuple(stages.count(stage) for stage in STAGES)


def write(directory: Path, split: Split | None) -> None:
    numbers: Mapping[str, str]
    if split is None:
        numbers = dict.fromkeys(STAGES, f"{{ min = 1, max = {MOST} }}")
    else:
        numbers = {stage: str(count) for stage, count in zip(STAGES, split, strict=True)}
    stages = [
        f'name = "{stage}"\ncall = "benchmarks.balance_child:{stage}"\ndrivers = {numbers[stage]}\n'
        f'memory = "{MEMORY[stage]} MB"\ndurable = false'
        for stage in STAGES
    ]
    host = f'[host]\nmemory = "{HOST} MB"\nrebalance_every = "1 s"'
    pipelines.write(directory, stages, host)


def check(times: Path, documents: int) -> int:
    """Each document went through each stage once; when the last one was through, in ns."""
    lines = [line.split() for line in times.read_text().splitlines()]
    for stage in STAGES:
        done = [docid for where, _, docid in lines if where == stage]
        if len(done) != documents or len(set(done)) != documents:
            raise Failed(f"{len(set(done))} of {documents} documents in {stage}, {len(done)} times")
    return max(int(at) for _, at, _ in lines)


def _cells(results: Results, contender: str, best: str) -> list[str]:
    if contender not in results:
        return ["failed", "-", "-", "-"]
    seconds = [sample.ns_per_document / 1e9 for sample in results.samples[contender]]
    cells = [f"{median(seconds):.1f}", f"({min(seconds):.1f}-{max(seconds):.1f})", "-", "-"]
    if contender != best:
        ratios = results.ratios(contender, best)
        cells[2:] = [f"{median(ratios):.2f}", f"({min(ratios):.2f}-{max(ratios):.2f})"]
    return cells


def _notes(tried: Results, results: Results) -> list[str]:
    fitting = len(list(all_that_fit()))
    ranking = sorted(tried.samples, key=tried.median_us)
    seconds = ", ".join(f"{split} {tried.median_us(split) / 1e6:.1f}" for split in ranking)
    notes = [
        f"{fitting} splits fit. {fitting - len(tried.samples)} of them were not tried, as they "
        "leave room for one driver more, and drivers that sleep can only gain from that. Seconds: "
        f"{seconds}.",
        *(f"{one} failed: {why}" for one, why in {**tried.failures, **results.failures}.items()),
    ]
    if BALANCED in results:
        for course, moved in zip(
            results.facts(BALANCED, "course"), results.facts(BALANCED, "moved"), strict=True
        ):
            splits = ", ".join(map(name, course))
            notes.append(
                f"{BALANCED}, after a quarter, half and three quarters of the time: {splits}; "
                f"{moved} moves in all."
            )
    return notes
