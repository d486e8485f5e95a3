"""Drivers killed at random while documents go through: what it costs, and what is left behind."""

from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import alternatives_runs, measuring
from benchmarks.alternatives_runs import Sizes
from benchmarks.alternatives_tools import OWN
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "Drivers that are killed"
LEAD = (
    "{documents} documents through three stages of {each:g} ms each, a driver for each stage, not "
    "durable: seconds from the command to the last result, and with {kills} drivers killed by "
    "SIGKILL in the midst of a document, at random; what each kill adds within a round. Missing "
    "are documents without a result, twice are stages that ran to their end twice; each run is "
    "checked: nothing but results is left in any queue, and outputs that a kill has cut off, which "
    "a queue keeps aside for a week. Median of {rounds} rounds."
)
UNHARMED = "nobody killed"
KILLED = "{kills} killed"
SIZES = Sizes()


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["watchdogd", "place", "seconds", "(min-max)", "s a kill", "missing", "twice"]
    group = Group("")
    place = places[-1]
    chosen = measuring.beside(contenders(SIZES.kills), scale.against)
    results = measuring.interleave(chosen, scale.long_rounds, place)
    for name in (one.name for one in chosen):
        group.rows.append([name, place.name, *_cells(results, name)])
    notes = [f"{name} failed: {why}" for name, why in results.failures.items()]
    lead = LEAD.format(
        documents=SIZES.kill_documents,
        each=1000 * SIZES.kill_seconds,
        kills=SIZES.kills,
        rounds=scale.long_rounds,
    )
    return Table(TITLE, lead, columns, [group], sorted(notes))


def contenders(kills: int) -> list[Contender]:
    def with_kills(count: int) -> Callable[[Path], Sample]:
        return lambda directory: run(directory, count)

    tree = measuring.ROOT
    return [
        Contender(UNHARMED, with_kills(0), tree=tree),
        Contender(KILLED.format(kills=kills), with_kills(kills), tree=tree),
    ]


def run(directory: Path, kills: int) -> Sample:
    sample = alternatives_runs.killed(OWN, directory, SIZES, kills)
    if left := sample.facts["left"]:
        raise Failed(f"{len(left)} files are left over, as {left[0]}")
    return sample


def _cells(results: Results, name: str) -> list[str]:
    if name not in results:
        return ["failed", "-", "-", "-", "-"]
    seconds = [sample.ns_per_document / 1e9 for sample in results.samples[name]]
    cells = [f"{median(seconds):.1f}", f"({min(seconds):.1f}-{max(seconds):.1f})", "-"]
    killed = KILLED.format(kills=SIZES.kills)
    unharmed = name.replace(killed, UNHARMED)
    if name != unharmed and unharmed in results:
        pairs = zip(seconds, results.samples[unharmed], strict=True)
        added = [whole - sample.ns_per_document / 1e9 for whole, sample in pairs]
        cells[2] = f"{median(added) / SIZES.kills:.2f}"
    return [*cells, *(str(max(results.facts(name, fact))) for fact in ("missing", "twice"))]
