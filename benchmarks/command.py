"""Programs run on documents: ours with --command true, xargs -P, and GNU parallel."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import measuring
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

OURS = "queuedriver run --command true"
XARGS = "xargs -P -n 1 true"
PARALLEL = "parallel -j true"
TITLE = "A program for each document: true"
LEAD = (
    "{documents:,} documents, documents a second, median of {rounds} rounds. Ours claims, gives "
    "the document on stdin, publishes stdout, keeps stderr, and is a `queuedriver run --drain` per "
    "driver, all started together; the others only start the program. × xargs is taken in each "
    "round. Beside it the same without start-up and leaving: less the time of a run with nothing "
    "to do."
)


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = [
        "command",
        "place",
        "processes",
        "documents/s",
        "× xargs",
        "less start-up",
        "× xargs",
    ]
    group = Group("")
    notes: set[str] = set()
    for place in places:
        for processes in scale.command_drivers:
            chosen = measuring.beside(contenders(scale.commands, processes), scale.against)
            results = measuring.interleave(chosen, scale.long_rounds, place)
            for contender in chosen:
                cells = _cells(results, contender.name)
                group.rows.append([contender.name, place.name, str(processes), *cells])
            notes |= {f"{name} failed: {why}" for name, why in results.failures.items()}
    lead = LEAD.format(documents=scale.commands, rounds=scale.long_rounds)
    return Table(TITLE, lead, columns, [group], sorted(notes))


def contenders(documents: int, processes: int) -> list[Contender]:
    def fill(directory: Path) -> None:
        measuring.make_queue(directory / "in", documents)
        for name in ("out", "none", "none_out"):
            measuring.make_queue(directory / name)
        lines = "".join(f"{directory}/in/doc{number:07d}.ready\n" for number in range(documents))
        (directory / "list").write_text(lines)
        (directory / "empty").write_text("")

    def with_ours(directory: Path) -> Sample:
        whole = seconds(lambda: drain(directory / "in", directory / "out", processes))
        published = sum(1 for path in (directory / "out").iterdir() if path.suffix == ".ready")
        if published != documents:
            raise Failed(f"{published} of {documents} documents published")
        return rates(
            whole,
            seconds(lambda: drain(directory / "none", directory / "none_out", processes)),
            documents,
        )

    def with_list(*words: str) -> Callable[[Path], Sample]:
        def measured(directory: Path) -> Sample:
            return rates(
                seconds(lambda: from_list(words, directory / "list")),
                seconds(lambda: from_list(words, directory / "empty")),
                documents,
            )

        return measured

    count = str(processes)
    xargs = with_list("xargs", "-r", "-P", count, "-n", "1", "true")
    parallel = with_list("parallel", "--will-cite", "-j", count, "true")
    return [
        Contender(XARGS, xargs, fill),
        Contender(OURS, with_ours, fill, tree=measuring.ROOT),
        Contender(PARALLEL, parallel, fill),
    ]


def seconds(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def rates(whole: float, idle: float, documents: int) -> Sample:
    net = (whole - idle) * 1e9 / documents
    return Sample(whole * 1e9 / documents, {"net": net})


def from_list(words: tuple[str, ...], source: Path) -> None:
    program = shutil.which(words[0])
    if program is None:
        raise Failed(f"{words[0]} is not installed (apt-get install {words[0]})")
    with source.open() as lines:
        done = subprocess.run([program, *words[1:]], check=False, stdin=lines)
    if done.returncode != 0:
        raise Failed(f"exit {done.returncode}")


def drain(source: Path, target: Path, processes: int) -> None:
    command = [str(Path(sys.executable).parent / "queuedriver"), "run", str(source), "--to"]
    options = [str(target), "--command", "true", "--drain", "--id"]
    try:
        started = [
            subprocess.Popen(
                [*command, *options, str(number)],
                stderr=subprocess.PIPE,
                text=True,
                env=measuring.environ(),
            )
            for number in range(1, processes + 1)
        ]
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not installed") from None
    for process in started:
        _, stderr = process.communicate(timeout=measuring.TIMEOUT)
        if process.returncode != 0:
            last = (stderr.strip().splitlines() or ["no words"])[-1]
            raise Failed(f"exit {process.returncode}: {last}")


def _cells(results: Results, name: str) -> list[str]:
    if name not in results:
        return ["failed", "-", "-", "-"]
    net = [1e9 / ns for ns in results.facts(name, "net")]
    cells = [f"{1e6 / results.median_us(name):,.0f}", "-", f"{median(net):,.0f}", "-"]
    if XARGS in results:
        cells[1] = f"{median(1 / ratio for ratio in results.ratios(name, XARGS)):.2f}"
        pairs = zip(net, results.facts(XARGS, "net"), strict=True)
        cells[3] = f"{median(rate * theirs / 1e9 for rate, theirs in pairs):.2f}"
    return cells
