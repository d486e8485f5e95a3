"""A stage whose model takes long to load: from the command to the end, beside huey."""

from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import alternatives_runs, measuring
from benchmarks.alternatives_runs import Sizes
from benchmarks.alternatives_tools import HUEY, OURS, OWN, TOOLS, Tool
from benchmarks.measuring import Contender, Results, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "A model that loads"
LEAD = (
    "One stage with {workers} drivers and `preload`, whose model of {model} MB takes {load:g} s to "
    "load; {documents} documents of {each:g} ms, which wait: seconds from the command to the last "
    "result, and the most memory (PSS) that all processes took together, in models. The workers of "
    "huey load one each, at the same time. Median of {rounds} rounds, × huey within them."
)
SIZES = Sizes()


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["tool", "place", "seconds", "(min-max)", f"× {HUEY}", "models"]
    group = Group("")
    place = places[-1]
    chosen = measuring.beside(contenders(), scale.against)
    results = measuring.interleave(chosen, scale.long_rounds, place)
    for name in (one.name for one in chosen):
        group.rows.append([name, place.name, *_cells(results, name)])
    notes = [f"{name} failed: {why}" for name, why in results.failures.items()]
    lead = LEAD.format(
        workers=2,
        model=SIZES.model >> 20,
        load=SIZES.load,
        documents=SIZES.model_documents,
        each=1000 * SIZES.model_seconds,
        rounds=scale.long_rounds,
    )
    return Table(TITLE, lead, columns, [group], sorted(notes))


def contenders() -> list[Contender]:
    def loading(tool: Tool) -> Callable[[Path], Sample]:
        return lambda directory: alternatives_runs.model(tool, directory, SIZES)

    other = next(tool for tool in TOOLS if tool.name == HUEY)
    return [
        Contender(HUEY, loading(other)),
        Contender(OURS, loading(OWN), tree=measuring.ROOT),
    ]


def _cells(results: Results, name: str) -> list[str]:
    if name not in results:
        return ["failed", "-", "-", "-"]
    seconds = [sample.ns_per_document / 1e9 for sample in results.samples[name]]
    cells = [f"{median(seconds):.1f}", f"({min(seconds):.1f}-{max(seconds):.1f})", "-"]
    if name != HUEY and HUEY in results:
        cells[2] = f"{median(results.ratios(name, HUEY)):.2f}"
    models = median(results.facts(name, "memory")) / SIZES.model
    return [*cells, f"{models:.2f}"]
