"""The same stages by what people use today: speed, latency, and what becomes of documents."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

from benchmarks import alternatives_runs as runs
from benchmarks import measuring
from benchmarks.alternatives_reckoning import rates
from benchmarks.alternatives_runs import Sizes
from benchmarks.alternatives_tools import COMMAND, FUNCTION, OURS, TOOLS, Tool
from benchmarks.measuring import Contender, Results, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "Beside what people use"
LEAD = (
    "The same work by each: documents of 1 KiB, three stages, three workers. Seconds are from the "
    "command to the last result, documents a second without what passes until the first is "
    "through. A function copies the document in Python; a command is a `cp`, or one in a job of "
    "the shell. Loaded is a model of {model} MB in {load:g} s, by two workers, for {loaded} "
    "documents of {each:g} ms. The idle tool gets a document after a pause, {wakes} times. "
    "Killed are {kills} workers in the midst of a stage, at random in {killed} documents with "
    "stages of {stage:g} ms. Bad are one document that kills its worker and one that hangs, among "
    "{bad}, with a limit of {limit:g} s. Median of {rounds} rounds, × {ours} within them."
)
# How many rounds there are at most: each takes minutes.
ROUNDS = 3
_NONE = "–"
Row = tuple[str, dict[str, str]]


def measure(scale: Scale, places: list[Place]) -> Table:
    """Fill one table for the first place: a column for each tool, a row for each figure."""
    place, sizes = places[0], Sizes()
    rounds = min(scale.long_rounds, ROUNDS)
    notes = {tool.note for tool in TOOLS}
    there = [tool for tool in TOOLS if not tool.missing()]
    notes |= {f"{tool.name} left out: no {tool.missing()} here" for tool in set(TOOLS) - {*there}}
    measurements = _measurements(scale, sizes)
    # Once unmeasured: so that no compiling of modules is.
    measuring.interleave(contenders(there, measurements["cold"]), 1, place)
    chosen = {
        what: measuring.interleave(contenders(there, take), rounds, place)
        for what, take in measurements.items()
    }
    for what, results in chosen.items():
        notes |= {f"{name}, {what}: {why}" for name, why in results.failures.items()}
        notes |= set(_lost(what, results))
    groups = [
        Group(
            heading,
            [[label, *(cells.get(one.name, _NONE) for one in there)] for label, cells in rows],
        )
        for heading, rows in (
            ("speed", speeds(chosen, scale, sizes)),
            ("what became of documents", fates(chosen)),
        )
    ]
    lead = LEAD.format(
        model=sizes.model >> 20,
        load=sizes.load,
        loaded=sizes.model_documents,
        each=1000 * sizes.model_seconds,
        wakes=scale.alternatives_wakes,
        kills=sizes.kills,
        killed=sizes.kill_documents,
        stage=1000 * sizes.kill_seconds,
        bad=sizes.bad_documents,
        limit=sizes.limit,
        rounds=rounds,
        ours=OURS,
    )
    notes.add(f"All of it on {place.name}.")
    return Table(TITLE, lead, ["", *(tool.name for tool in there)], groups, sorted(notes))


def contenders(tools: Iterable[Tool], take: Callable[[Tool, Path], Sample]) -> list[Contender]:
    def taking(tool: Tool) -> Callable[[Path], Sample]:
        return lambda directory: take(tool, directory)

    return [Contender(tool.name, taking(tool)) for tool in tools]


def _measurements(scale: Scale, sizes: Sizes) -> dict[str, Callable[[Tool, Path], Sample]]:
    def functions(tool: Tool, directory: Path) -> Sample:
        # A job of the shell is the same, whichever of the two it is called.
        documents = scale.alternatives_documents if tool.calls else scale.alternatives_commands
        return runs.through(tool, directory, FUNCTION, documents)

    return {
        "cold": lambda tool, directory: runs.through(tool, directory, FUNCTION, 1),
        "functions": functions,
        "commands": lambda tool, directory: runs.through(
            tool, directory, COMMAND, scale.alternatives_commands
        ),
        "loaded": lambda tool, directory: runs.model(tool, directory, sizes),
        "idle": lambda tool, directory: runs.rest(tool, directory, scale.alternatives_wakes),
        "killed": lambda tool, directory: runs.killed(tool, directory, sizes, sizes.kills),
        "bad": lambda tool, directory: runs.bad(tool, directory, sizes),
    }


def speeds(chosen: dict[str, Results], scale: Scale, sizes: Sizes) -> list[Row]:
    """The figures, by what they are; a tool that has none is left out of the row."""
    calls = {tool.name for tool in TOOLS if tool.calls}
    functions = _rates(chosen["functions"], chosen["cold"], scale.alternatives_documents)
    functions = {name: rates for name, rates in functions.items() if name in calls}
    commands = _rates(chosen["commands"], chosen["cold"], scale.alternatives_commands)
    memory = _facts(chosen["loaded"], "memory")
    waits = _facts(chosen["idle"], "waits")
    slowest = {name: [max(wait for one in found for wait in one)] for name, found in waits.items()}
    return [
        ("documents/s, functions", _each(functions, lambda rate: f"{rate:,.0f}")),
        (f"  × {OURS}", _beside(functions)),
        ("documents/s, commands", _each(commands, lambda rate: f"{rate:,.0f}")),
        (f"  × {OURS}", _beside(commands)),
        ("cold start, s", _each(_seconds(chosen["cold"]), "{:.2f}".format)),
        (f"  × {OURS}", _beside(_seconds(chosen["cold"]))),
        ("loaded, s", _each(_seconds(chosen["loaded"]), "{:.1f}".format)),
        (f"  × {OURS}", _beside(_seconds(chosen["loaded"]))),
        ("  memory, models", _each(memory, lambda size: f"{size / sizes.model:.2f}")),
        ("idle, ms", _each(_seconds(chosen["idle"]), lambda wait: f"{1000 * wait:.0f}")),
        ("  slowest", _each(slowest, lambda wait: f"{1000 * wait:.0f}")),
    ]


def fates(chosen: dict[str, Results]) -> list[Row]:
    """The same for what was lost, and what was done in vain."""
    return [
        ("killed, s", _each(_seconds(chosen["killed"]), "{:.1f}".format)),
        ("  missing", _sums(chosen["killed"], "missing")),
        ("  of these named", _sums(chosen["killed"], "named")),
        ("  stages run twice", _sums(chosen["killed"], "twice")),
        ("bad, s for the others", _each(_seconds(chosen["bad"]), "{:.1f}".format)),
        ("  others missing", _sums(chosen["bad"], "missing")),
        ("  poison begun", _sums(chosen["bad"], "poison")),
        ("  hang begun", _sums(chosen["bad"], "hang")),
        ("  of both named", _sums(chosen["bad"], "named")),
    ]


def _lost(what: str, results: Results) -> Iterator[str]:
    """What went missing though nobody was killed."""
    for name, samples in results.samples.items():
        if lost := sum(sample.facts.get("lost", 0) for sample in samples):
            yield f"{name}, {what}: {lost} documents never came out"


def _rates(results: Results, cold: Results, documents: int) -> dict[str, list[float]]:
    times, first = _seconds(results), _seconds(cold)
    both = [name for name in times if name in first]
    return {name: rates(times[name], first[name], documents) for name in both}


def _seconds(results: Results) -> dict[str, list[float]]:
    return {
        name: [sample.ns_per_document / 1e9 for sample in samples]
        for name, samples in results.samples.items()
    }


def _facts(results: Results, fact: str) -> dict[str, list]:
    return {name: results.facts(name, fact) for name in results.samples}


def _each(figures: dict[str, list[float]], show: Callable[[float], str]) -> dict[str, str]:
    return {name: show(median(found)) for name, found in figures.items() if found}


def _beside(figures: dict[str, list[float]]) -> dict[str, str]:
    """The median of what each round says; ours needs none."""
    ours = figures.get(OURS, [])
    return {
        name: f"{median(theirs / own for theirs, own in zip(found, ours, strict=True)):.2f}"
        for name, found in figures.items()
        if name != OURS and found and len(found) == len(ours)
    }


def _sums(results: Results, fact: str) -> dict[str, str]:
    """What was counted in each round, when it was not the same in all."""
    shown = {}
    for name, counts in _facts(results, fact).items():
        low, high = min(counts), max(counts)
        shown[name] = str(low) if low == high else f"{low}-{high}"
    return shown
