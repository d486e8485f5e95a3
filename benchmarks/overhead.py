"""What it costs to keep 32 drivers: CPU time and memory of watchdogd, beside other supervisors."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import measuring, pipelines
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.pipelines import Watchdog
from benchmarks.places import Place
from benchmarks.restart_peers import PEERS, Peer, kept
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "What watching costs"
LEAD = (
    "{drivers} children that have nothing to do, {stages} stages of {each} drivers for watchdogd: "
    "CPU time of all threads over {seconds:.0f} s, after {settle:.0f} s of rest, as a share of one "
    "core; then the same while {rate} documents a second go through all stages. PSS counts what "
    "processes share, as the Python that the drivers run too, once for all of them. Median of the "
    "rounds, {rounds} of them."
)
STAGES, EACH = 8, 4
DRIVERS = STAGES * EACH
WATCHDOGD = "watchdogd"
# How many documents are submitted in a second.
RATE = 20
# Until starting up is over and done with.
SETTLE = 5.0
_MB = 1e6


class Cost(NamedTuple):
    """Of some processes: the share of a core, and bytes."""

    cpu: float
    rss: int
    pss: int

    def plus(self, other: "Cost") -> "Cost":
        return Cost(self.cpu + other.cpu, self.rss + other.rss, self.pss + other.pss)


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["what", "place", "CPU %", "(min-max)", "RSS MB", "PSS MB"]
    group = Group("")
    notes = {
        "Neither peer looks at what its children do; watchdogd's helper looks at each queue once a "
        "second, and publishes what `watchdogd status` shows.",
        "The children of the peers are `sleep`; memory is that of the supervisor alone.",
    }
    # One: nobody has anything to do there, and each takes its time.
    place = places[-1]
    chosen = contenders(scale.overhead_seconds)
    results = measuring.interleave(chosen, scale.overhead_rounds, place)
    for contender in chosen:
        group.rows += _rows(results, contender.name, place)
    notes |= {f"{name} failed: {why}" for name, why in results.failures.items()}
    lead = LEAD.format(
        drivers=DRIVERS,
        stages=STAGES,
        each=EACH,
        seconds=scale.overhead_seconds,
        settle=SETTLE,
        rate=RATE,
        rounds=scale.overhead_rounds,
    )
    return Table(TITLE, lead, columns, [group], sorted(notes))


def contenders(seconds: float) -> list[Contender]:
    def with_peer(peer: Peer) -> Callable[[Path], Sample]:
        return lambda directory: by_peer(peer, directory, seconds)

    return [
        Contender(WATCHDOGD, lambda directory: by_watchdogd(directory, seconds)),
        *(Contender(name, with_peer(PEERS[name])) for name in ("supervisord", "circus")),
    ]


def by_watchdogd(directory: Path, seconds: float) -> Sample:
    stages = [
        f'name = "s{number}"\ncall = "benchmarks.overhead_child:process"\ndrivers = {EACH}\n'
        "durable = false"
        for number in range(1, STAGES + 1)
    ]
    pipelines.write(directory, stages)
    with pipelines.watched(directory) as watchdog:
        watchdog.wait_ready(DRIVERS)
        time.sleep(SETTLE)
        idle = cost_of_all(watchdog, lambda: time.sleep(seconds))
        flowing = cost_of_all(watchdog, lambda: flow(directory, seconds))
        check(watchdog, round(RATE * seconds))
    return _sample({"": idle, f", {RATE} documents/s": flowing})


def by_peer(peer: Peer, directory: Path, seconds: float) -> Sample:
    with kept(peer, directory, "sleep 1000000", pipelines.environ(directory), DRIVERS) as process:
        pipelines.until(
            lambda: len(pipelines.children(process.pid)) >= DRIVERS, f"{DRIVERS} children"
        )
        time.sleep(SETTLE)
        spent = cost([process.pid], lambda: time.sleep(seconds))[0]
    return _sample({"": {"": spent}})


def cost_of_all(watchdog: Watchdog, meanwhile: Callable[[], object]) -> dict[str, Cost]:
    own, helper, warden = cost([watchdog.process.pid, watchdog.helper, watchdog.warden], meanwhile)
    watchdog.check()
    together = own.plus(helper).plus(warden)
    return {"": together, " itself": own, "’s helper": helper, "’s warden": warden}


def cost(pids: list[int], meanwhile: Callable[[], object]) -> list[Cost]:
    """What each of these costs meanwhile."""
    before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    meanwhile()
    spent = time.monotonic() - began
    shares = [(cpu_seconds(pid) - was) / spent for pid, was in zip(pids, before, strict=True)]
    return [Cost(share, *memory(pid)) for pid, share in zip(pids, shares, strict=True)]


def flow(directory: Path, seconds: float) -> None:
    """Submit documents, evenly over this time."""
    began = time.monotonic()
    for number in range(round(RATE * seconds)):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        pipelines.put(directory / "queues" / "input", f"doc{number}")
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def check(watchdog: Watchdog, documents: int) -> None:
    """All documents came through, and nobody was started twice."""
    out = watchdog.directory / "queues" / f"s{STAGES}"
    pipelines.until(
        lambda: sum(name.endswith(".ready") for name in os.listdir(out)) == documents,
        f"{documents} documents through {STAGES} stages",
    )
    if len(watchdog.events("started")) != DRIVERS or watchdog.events("restarted"):
        raise Failed("a driver ended meanwhile")


def cpu_seconds(pid: int) -> float:
    """Of all threads, to the nanosecond: the ticks of /proc/PID/stat are too coarse."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def memory(pid: int) -> tuple[int, int]:
    """RSS and PSS, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
    return sizes["Rss:"], sizes["Pss:"]


def _sample(costs: dict[str, dict[str, Cost]]) -> Sample:
    """One fact for each row of the table, by what is added to the name."""
    facts: dict[str, Any] = {
        whose + when: cost
        for when, whose_costs in costs.items()
        for whose, cost in whose_costs.items()
    }
    return Sample(facts[""].cpu * 1e9, facts)


def _rows(results: Results, name: str, place: Place) -> list[list[str]]:
    if name not in results:
        return [[name, place.name, "failed", "-", "-", "-"]]
    rows = []
    for fact in results.samples[name][0].facts:
        costs: list[Cost] = results.facts(name, fact)
        shares = [100 * one.cpu for one in costs]
        rows.append(
            [
                name + fact,
                place.name,
                f"{median(shares):.2f}",
                f"({min(shares):.2f}-{max(shares):.2f})",
                f"{median(one.rss for one in costs) / _MB:.0f}",
                f"{median(one.pss for one in costs) / _MB:.0f}",
            ]
        )
    return rows
