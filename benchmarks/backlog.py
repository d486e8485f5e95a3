"""What a claim costs, and what a driver holds in memory, while up to a million items wait."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import idle, measuring
from benchmarks.measuring import ROOT, Contender, Failed, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

OURS = "queuedriver"
TITLE = "A claim while many items wait"
LEAD = (
    "Claim and finish (no outputs, empty files) {claims:,} items of the backlog, which is topped "
    "up between; median of {rounds} rounds. C lists the whole queue, which is spread over what it "
    "listed. Grown = the cost beside that of the smallest backlog. First = from the start of the "
    "driver's loop to its first document. Memory = the most that the driver held (peak RSS) above "
    "the peak of an idle one."
)


@dataclass
class Backlog:
    """A queue that is kept at its size."""

    queue: Path
    size: int
    next: int = 0

    def top_up(self, missing: int) -> None:
        measuring.stagecycle("fill", self.queue, missing, 0, self.next)
        self.next += missing


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["place", "waiting", "C µs", "grown", "whose", "ours µs", "grown", "× C", "first ms"]
    group = Group("")
    notes: set[str] = set()
    for place in places:
        least_in_c = 0.0
        smallest: dict[str, float] = {}
        idle_peak = _idle_peak(place, notes)
        for size in scale.backlogs:
            in_c, by_name = samples(place, size, scale, notes)
            c_us = median(in_c) / 1000
            least_in_c = least_in_c or c_us
            for name, ours in by_name.items():
                us = median(s.ns_per_document for s in ours) / 1000 if ours else float("nan")
                grown = us / smallest.setdefault(name, us)
                row = [place.name, f"{size:,}", f"{c_us:.1f}", f"{c_us / least_in_c:.2f}", name]
                if ours:
                    ratios = [o.ns_per_document / c for o, c in zip(ours, in_c, strict=True)]
                    first = median(s.facts["first_ms"] for s in ours)
                    peak = max(s.facts["peak_rss"] for s in ours) - idle_peak
                    row += [f"{us:.1f}", f"{grown:.2f}", f"{median(ratios):.2f}"]
                    row += [f"{first:.0f}", f"{peak / 1e6:.1f}"]
                else:
                    row += ["failed", "-", "-", "-", "-"]
                group.rows.append(row)
    lead = LEAD.format(claims=scale.claims, rounds=scale.long_rounds)
    return Table(TITLE, lead, [*columns, "memory MB"], [group], sorted(notes))


def samples(
    place: Place, size: int, scale: Scale, notes: set[str]
) -> tuple[list[float], dict[str, list[Sample]]]:
    """Measure; return C's costs per claim in ns, and as many samples of each of ours that works."""
    claims = min(scale.claims, size)
    directory = place.directory / "work"
    backlog = Backlog(measuring.make_queue(directory), size)
    in_c: list[float] = []
    measured = measuring.beside(
        [Contender(OURS, lambda queue: measuring.module("ours_backlog", queue, claims), tree=ROOT)],
        scale.against,
    )
    ours: dict[str, list[Sample]] = {one.name: [] for one in measured}
    failed: set[str] = set()
    try:
        backlog.top_up(size)
        for _ in range(scale.long_rounds):
            place.settle()
            in_c.append(_with_listing_spread(backlog.queue, claims))
            backlog.top_up(claims)
            for one in measured:
                if one.name in failed:
                    continue
                place.settle()
                try:
                    with measuring.running(one.tree):
                        ours[one.name].append(one.measure(backlog.queue))
                    backlog.top_up(claims)
                except Failed as failure:
                    notes.add(f"{one.name} failed: {failure}")
                    failed.add(one.name)
                    ours[one.name] = []
    finally:
        measuring.remove(directory)
    return in_c, ours


def _with_listing_spread(queue: Path, claims: int) -> float:
    facts = measuring.stagecycle("claim", queue, "-n", claims).facts
    claiming = (facts["ns"] - facts["listing_ns"]) / facts["documents"]
    return float(claiming + facts["listing_ns"] / facts["listed"])


def _idle_peak(place: Place, notes: set[str]) -> int:
    """Peak RSS of a driver that has processed one document and waits for more."""
    directory = place.directory / "work"
    directory.mkdir()
    try:
        with idle.waiting_driver(directory) as driver:
            driver.document_started("warm")
            return driver.peak_rss()
    except Failed as failure:
        notes.add(f"idle queuedriver failed: {failure}")
        return 0
    finally:
        measuring.remove(directory)
