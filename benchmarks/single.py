"""One process: submit, claim and finish, the full stage cycle, and the same cycle durable."""

import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks import measuring
from benchmarks.measuring import Contender, Results, Sample
from benchmarks.peers import PEERS
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

C = "C, the same system calls"
PYTHON = "plain os.* Python"
HANDOFF = "queuedriver hand-off, a loop"
SUBMIT = "queuedriver Queue.submit"
DRIVER = "queuedriver Driver"
OURS = {
    "submit": (SUBMIT,),
    "claim": (HANDOFF, DRIVER),
    "cycle": (HANDOFF, DRIVER),
}
TITLES = {
    "submit": "Submit a document of 1 KiB",
    "claim": "Claim and finish, without outputs",
    "cycle": "Full stage cycle: claim, read 1 KiB, write 1 KiB, commit, publish, finish",
    "durable": "Full stage cycle, durable",
}
LEADS = {
    "submit": "Write aside, rename in, never replacing. Not synced.",
    "claim": "Peers hand over bytes, so their claim reads the document; ours does not.",
    "cycle": "Not synced.",
    "durable": "Synced as the protocol says: output, its directory, commit, publish. Only on ext4: "
    "tmpfs has nothing to sync.",
}
ROLLS_FORWARD = "a crash never repeats, loses or half-publishes: recovery rolls forward"
CANNOT = "peers: cannot roll forward, so a crash repeats or loses documents"


def contenders(workload: str, scale: Scale) -> list[Contender]:
    durable = workload == "durable"
    verb = "cycle" if durable else workload
    count = scale.durable_documents if durable else scale.documents
    flag = ["-d"] if durable else []

    def fill(directory: Path) -> None:
        measuring.make_queue(directory / "in", 0 if verb == "submit" else count)
        measuring.make_queue(directory / "out")

    def queues(directory: Path) -> list[Path]:
        return [directory / "in", directory / "out"] if verb == "cycle" else [directory / "in"]

    def in_c(directory: Path) -> Sample:
        words = [count] if verb == "submit" else []
        return measuring.stagecycle(verb, *queues(directory), *words, *flag)

    def in_python(directory: Path) -> Sample:
        return measuring.module("plain", verb, *queues(directory), count, *flag)

    def with_ours(part: str) -> Callable[[Path], Sample]:
        return lambda directory: measuring.module("ours", part, verb, directory, count, *flag)

    def with_peer(peer: str) -> Callable[[Path], Sample]:
        return lambda directory: measuring.module("peers", peer, verb, directory, count)

    found = [Contender(C, in_c, fill), Contender(PYTHON, in_python, fill)]
    for name in OURS[verb]:
        part = "driver" if name == DRIVER else "handoff"
        found.append(Contender(name, with_ours(part), fill))
    if not durable:
        found += [Contender(name, with_peer(name), slow=peer.slow) for name, peer in PEERS.items()]
    return found


def measure(workload: str, scale: Scale, places: list[Place]) -> Table:
    if workload == "durable":
        places = [place for place in places if place.name == "ext4"]
    chosen = contenders(workload, scale)
    results = {place.name: measuring.interleave(chosen, scale.rounds, place) for place in places}
    columns = ["contender", "a document goes through"]
    for place in results:
        columns += [f"{place} µs", "× C", "(min-max)", "best"]
    ours, peers = Group(ROLLS_FORWARD), Group(CANNOT)
    for contender in chosen:
        group = peers if contender.name in PEERS else ours
        group.rows.append(_row(contender.name, results))
    count = scale.durable_documents if workload == "durable" else scale.documents
    lead = f"{LEADS[workload]} {count:,} documents, median of {scale.rounds} rounds."
    groups = [group for group in (ours, peers) if group.rows]
    return Table(TITLES[workload], lead, columns, groups, _notes(workload, results))


def _row(name: str, results: dict[str, Results]) -> list[str]:
    row = [name, PEERS[name].promise if name in PEERS else "exactly once"]
    for result in results.values():
        if name not in result:
            row += ["failed", "-", "-", "-"]
        elif C not in result:
            row += [f"{result.median_us(name):.1f}", "-", "-", "-"]
        else:
            ratios = result.ratios(name, C)
            median = statistics.median(ratios)
            row += [
                f"{result.median_us(name):.1f}",
                f"{median:.2f}",
                f"({min(ratios):.2f}-{max(ratios):.2f})",
                f"{result.best_ratio(name, C):.2f}",
            ]
    return row


def _notes(workload: str, results: dict[str, Results]) -> list[str]:
    notes = []
    if workload == "cycle":
        notes = [f"{name}: {peer.detail}." for name, peer in PEERS.items()]
    elif workload != "durable":
        notes = ["What else there is to know of each peer is said below the full stage cycle."]
    failures = {
        f"{name} failed: {reason}"
        for result in results.values()
        for name, reason in result.failures.items()
    }
    return notes + sorted(failures)
