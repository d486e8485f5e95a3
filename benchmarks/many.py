"""Several drivers on one queue: how throughput scales, and how many claims are lost races."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks import measuring
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

C = "C"
OURS = "queuedriver"
TITLE = "Several drivers on one queue"
LEAD = (
    "{documents:,} documents through the full stage cycle, median of {rounds} rounds. From the "
    "moment all are ready to the last finish. speed = documents a second, ours over C's with as "
    "many processes. Every run is checked: each document published once, none lost, none "
    "processed twice."
)


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = [
        "place",
        "drivers",
        "whose",
        "C µs",
        "ours µs",
        "speed",
        "(min-max)",
        "C lost",
        "ours lost",
    ]
    group = Group("")
    notes: set[str] = set()
    for place in places:
        for drivers in scale.drivers:
            chosen = measuring.beside(contenders(scale.shared_documents, drivers), scale.against)
            results = measuring.interleave(chosen, scale.long_rounds, place)
            for ours in (one.name for one in chosen if one.tree is not None):
                group.rows.append([place.name, str(drivers), ours, *_cells(results, ours)])
            notes |= {f"{name} failed: {why}" for name, why in results.failures.items()}
    lead = LEAD.format(documents=scale.shared_documents, rounds=scale.long_rounds)
    return Table(TITLE, lead, columns, [group], sorted(notes))


def contenders(documents: int, drivers: int) -> list[Contender]:
    def fill(directory: Path) -> None:
        measuring.make_queue(directory / "in", documents)
        measuring.make_queue(directory / "out")

    def in_c(directory: Path) -> Sample:
        queues = directory / "in", directory / "out"
        taken = measuring.stagecycle("cycle", *queues, "-p", drivers)
        check(directory, documents)
        return taken

    def with_ours(directory: Path) -> Sample:
        taken = run_drivers(directory, drivers)
        check(directory, documents)
        return taken

    return [Contender(C, in_c, fill), Contender(OURS, with_ours, fill, tree=measuring.ROOT)]


def check(directory: Path, documents: int) -> None:
    """Each document published under its own name, and nothing of it left in the input queue."""
    published = {name for name in os.listdir(directory / "out") if name.endswith(".ready")}
    expected = {f"doc{number:07d}.ready" for number in range(documents)}
    if published != expected:
        wrong = sorted(published ^ expected)
        raise Failed(f"{len(wrong)} documents lost or published twice, as {wrong[0]}")
    if left := [name for name in os.listdir(directory / "in") if name.startswith("doc")]:
        raise Failed(f"{len(left)} items left in the input queue, as {left[0]}")


def run_drivers(directory: Path, drivers: int) -> Sample:
    """Real driver processes, which all begin when the last of them has claimed its first."""
    arrived_read, arrived = os.pipe()
    gate, gate_write = os.pipe()
    command = [sys.executable, "-m", "benchmarks.ours_shared", str(directory)]
    processes = [
        subprocess.Popen(
            [*command, str(number), str(arrived), str(gate)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=measuring.environ(),
            pass_fds=(arrived, gate),
        )
        for number in range(1, drivers + 1)
    ]
    os.close(arrived)
    os.close(gate)
    try:
        for _ in processes:
            os.read(arrived_read, 1)  # nothing when one of them died; the exit code will say why
    finally:
        os.close(gate_write)
        os.close(arrived_read)
    answers = [process.communicate(timeout=measuring.TIMEOUT) for process in processes]
    for process, (_, stderr) in zip(processes, answers, strict=True):
        if process.returncode != 0:
            last = (stderr.strip().splitlines() or ["no words"])[-1]
            raise Failed(f"driver exit {process.returncode}: {last}")
    return _together([json.loads(stdout) for stdout, _ in answers])


def _together(reports: list[dict[str, list[str] | int]]) -> Sample:
    processed = [docid for report in reports for docid in _docids(report)]
    if len(set(processed)) != len(processed):
        raise Failed(f"{len(processed) - len(set(processed))} documents were processed twice")
    began = max(int(str(report["first_ns"])) for report in reports)
    ended = max(int(str(report["last_ns"])) for report in reports)
    lost = sum(int(str(report["lost"])) for report in reports)
    per_document = (ended - began) / max(1, len(processed))
    return Sample(per_document, {"documents": len(processed), "lost": lost})


def _docids(report: dict[str, list[str] | int]) -> list[str]:
    docids = report["docids"]
    return docids if isinstance(docids, list) else []


def _cells(results: Results, ours: str) -> list[str]:
    if C not in results:
        return ["failed", "-", "-", "-", "-", "-"]
    if ours not in results:
        return [f"{results.median_us(C):.1f}", "failed", "-", "-", _lost(results, C), "-"]
    speeds = [1 / ratio for ratio in results.ratios(ours, C)]
    return [
        f"{results.median_us(C):.1f}",
        f"{results.median_us(ours):.1f}",
        f"{median(speeds):.2f}",
        f"({min(speeds):.2f}-{max(speeds):.2f})",
        _lost(results, C),
        _lost(results, ours),
    ]


def _lost(results: Results, name: str) -> str:
    """Lost races as a share of the claims won, the median of the rounds."""
    pairs = zip(results.facts(name, "lost"), results.facts(name, "documents"), strict=True)
    return f"{100 * median(lost / documents for lost, documents in pairs):.1f} %"
