"""What hundreds of drivers cost their watchdog, and whether it hears while it starts them."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import measuring, pipelines
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.overhead import SETTLE, Cost, cost
from benchmarks.pipelines import Watchdog
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "Hundreds of drivers"
LEAD = (
    "{drivers} drivers of {stages} stages that have nothing to do, forks of what each stage has "
    "preloaded, which is next to nothing: seconds until all are ready; then the CPU time of "
    "watchdogd and its helper over {seconds:.0f} s, as a share of one core and for each of their "
    "turns, of which each ends when the process goes to sleep, and their memory. TERM is sent at "
    "{terms} moments of the start, at random: from the signal to the line that tells of it, the "
    "slowest, and to the end of watchdogd. The drivers' own cost is not counted. Median of "
    "{rounds} rounds."
)
WATCHDOGD = "watchdogd"
PATIENCE = 240.0
# What one driver takes of memory that it shares with nobody, at most, in bytes.
_EACH = 10 << 20


def measure(scale: Scale, places: list[Place]) -> Table:
    costs = ["CPU %", "ms a turn", "RSS MB", "PSS MB"]
    columns = ["what", "place", "ready s", *costs, "TERM heard s", "ended s"]
    group = Group("")
    place = places[-1]
    chosen = measuring.beside(contenders(scale), scale.against)
    results = measuring.interleave(chosen, scale.crowd_rounds, place)
    for name in (one.name for one in chosen):
        group.rows += _rows(results, name, place)
    notes = [f"{name} failed: {why}" for name, why in results.failures.items()]
    lead = LEAD.format(
        drivers=scale.crowd_stages * scale.crowd_each,
        stages=scale.crowd_stages,
        seconds=scale.overhead_seconds,
        terms=scale.crowd_terms,
        rounds=scale.crowd_rounds,
    )
    return Table(TITLE, lead, columns, [group], sorted(notes))


def contenders(scale: Scale) -> list[Contender]:
    def crowded(directory: Path) -> Sample:
        return run(directory, scale)

    return [Contender(WATCHDOGD, crowded, tree=measuring.ROOT)]


def run(directory: Path, scale: Scale) -> Sample:
    drivers = scale.crowd_stages * scale.crowd_each
    if free_memory() < 2 * drivers * _EACH:
        raise Failed(f"{drivers} drivers want {2 * drivers * _EACH >> 30} GB of free memory")
    write(directory / "all", scale)
    began = time.monotonic()
    with pipelines.watched(directory / "all") as watchdog:
        pipelines.until(lambda: _ready(watchdog) >= drivers, f"{drivers} drivers", PATIENCE)
        watchdog.check()
        ready = time.monotonic() - began
        time.sleep(SETTLE)
        own, helper = _costs(watchdog, lambda: time.sleep(scale.overhead_seconds))
        watchdog.process.send_signal(signal.SIGTERM)
        watchdog.wait(PATIENCE)
    heard, ended = [], []
    for number in range(scale.crowd_terms):
        place = directory / f"term{number}"
        write(place, scale)
        # From the first moment at which the signal is not yet Python's own, on.
        one, two = term(place, random.uniform(0.5, max(1.0, ready)))
        heard.append(one)
        ended.append(two)
    facts = {"ready": ready, "own": own, "helper": helper, "heard": heard, "ended": ended}
    return Sample(own[0].cpu * 1e9, facts)


def write(directory: Path, scale: Scale) -> None:
    stage = (
        'call = "benchmarks.overhead_child:process"\npreload = true\ndurable = false\n'
        f"drivers = {scale.crowd_each}"
    )
    names = [f"s{number}" for number in range(1, scale.crowd_stages + 1)]
    pipelines.write(directory, [f'name = "{name}"\n{stage}' for name in names])


def term(directory: Path, moment: float) -> tuple[float, float]:
    """Ask a watchdog to leave in the midst of its start; when it said so, and when it had left."""
    with pipelines.watched(directory) as watchdog:
        time.sleep(moment)
        asked_at = time.time()
        watchdog.process.send_signal(signal.SIGTERM)
        pipelines.until(lambda: _leaving(watchdog) or watchdog.process.poll() is not None, "a word")
        code = watchdog.process.wait(PATIENCE)
        ended, said = time.time(), _leaving(watchdog)
        # Before it listens the signal ends it at once, and there is nothing yet to be ended by it.
        if (code or not said) and (code != -signal.SIGTERM or watchdog.events("started")):
            raise Failed(f"exit {code} after TERM: {watchdog.last_words()}")
        return (said or ended) - asked_at, ended - asked_at


def _leaving(watchdog: Watchdog) -> float:
    """When its log of events says that it leaves; 0: it does not."""
    notes = watchdog.events("note")
    said = (one for one in notes if str(one.get("message")).startswith("leaving:"))
    return next((float(str(one["at"])) for one in said), 0.0)


def _ready(watchdog: Watchdog) -> int:
    """How many drivers are known to their queues."""
    watchdog.check()
    time.sleep(0.2)
    queues = watchdog.directory / "queues"
    return sum(1 for _ in queues.glob("*/.queuedriver/drivers/*.json"))


def _costs(
    watchdog: Watchdog, meanwhile: Callable[[], object]
) -> tuple[tuple[Cost, float], tuple[Cost, float]]:
    """What the watchdog and its helper cost, and the seconds of CPU time of each of their turns."""
    pids = [watchdog.process.pid, watchdog.helper]
    before, began = [_sleeps(pid) for pid in pids], time.monotonic()
    costs = cost(pids, meanwhile)
    seconds = time.monotonic() - began
    slept = [_sleeps(pid) - was for pid, was in zip(pids, before, strict=True)]
    turns = [one.cpu * seconds / max(times, 1) for one, times in zip(costs, slept, strict=True)]
    return (costs[0], turns[0]), (costs[1], turns[1])


def _sleeps(pid: int) -> int:
    """How often a process has gone to sleep by itself."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))


def free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _rows(results: Results, name: str, place: Place) -> list[list[str]]:
    if name not in results:
        return [[name, place.name, "failed", *["-"] * 6]]
    ready = median(results.facts(name, "ready"))
    heard = max(max(found) for found in results.facts(name, "heard"))
    ended = max(max(found) for found in results.facts(name, "ended"))
    parts = list(zip(results.facts(name, "own"), results.facts(name, "helper"), strict=True))
    both = [(one[0].plus(two[0]), 0.0) for one, two in parts]
    return [
        [name, place.name, f"{ready:.1f}", *_cost(both), f"{heard:.2f}", f"{ended:.1f}"],
        [f"{name} itself", place.name, "-", *_cost([one for one, _ in parts]), "-", "-"],
        [f"{name}'s helper", place.name, "-", *_cost([two for _, two in parts]), "-", "-"],
    ]


def _cost(found: list[tuple[Cost, float]]) -> list[str]:
    turn = median(turn for _, turn in found)
    return [
        f"{100 * median(one.cpu for one, _ in found):.2f}",
        f"{1000 * turn:.1f}" if turn else "-",
        f"{median(one.rss for one, _ in found) / 1e6:.0f}",
        f"{median(one.pss for one, _ in found) / 1e6:.0f}",
    ]
