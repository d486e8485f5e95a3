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
SUBMIT = "queuedriver Queue.submit"
DRIVER = "queuedriver Driver"
# By how many documents its function gets at a time.
BATCHES = {f"queuedriver Driver, batches of {size}": str(size) for size in (8, 32)}
OURS = {
    "submit": (SUBMIT,),
    "claim": (DRIVER,),
    "cycle": (DRIVER,),
    "durable": (DRIVER, *BATCHES),
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

    def with_ours(batch: str) -> Callable[[Path], Sample]:
        return lambda directory: measuring.module("ours", batch, verb, directory, count, *flag)

    def with_peer(peer: str) -> Callable[[Path], Sample]:
        return lambda directory: measuring.module("peers", peer, verb, directory, count)

    found = [Contender(C, in_c, fill), Contender(PYTHON, in_python, fill)]
    for name in OURS[workload]:
        batch = BATCHES.get(name, "driver")
        found.append(Contender(name, with_ours(batch), fill, tree=measuring.ROOT))
    if not durable:
        found += [Contender(name, with_peer(name), slow=peer.slow) for name, peer in PEERS.items()]
    return measuring.beside(found, scale.against)


def measure(workload: str, scale: Scale, places: list[Place]) -> Table:
    if workload == "durable":
        places = [place for place in places if place.name == "ext4"]
    chosen = contenders(workload, scale)
    results = {place.name: measuring.interleave(chosen, scale.rounds, place) for place in places}
    columns = ["contender", "a document goes through"]
    for place in results:
        columns += [f"{place} µs", "× C", "(quartiles)", "× Python", "(quartiles)"]
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
            row += ["failed", "-", "-", "-", "-"]
            continue
        row.append(f"{result.median_us(name):.1f}")
        for yardstick in (C, PYTHON):
            row += _ratio(result, name, yardstick)
    return row


def _ratio(result: Results, name: str, yardstick: str) -> list[str]:
    """Return the median of the rounds' ratios, and between what the middle half of them lies."""
    if yardstick not in result:
        return ["-", "-"]
    lower, median, upper = statistics.quantiles(result.ratios(name, yardstick), n=4)
    return [f"{median:.2f}", f"({lower:.2f}-{upper:.2f})"]


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
