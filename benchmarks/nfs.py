"""Drivers on two hosts and one queue on NFS: requests to the server a document, and lost races.

The hosts are guests of the tests' testbed: a kernel NFS server and two clients, each a kernel of
its own on this machine. What they are asked to do is below, under "In the guests".
"""

import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import measuring
from benchmarks.measuring import Failed
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table
from queuedriver.claims.document import Document
from queuedriver.driving.driver import Driver
from queuedriver.format import names
from queuedriver.options import Options

TITLE = "Two hosts on one queue, over NFS"
LEAD = (
    "{documents:,} documents of 1 KiB through the full stage cycle by {each} processes on each of "
    "two clients of a kernel NFS server (4.2, sync), median of {rounds} rounds. requests = what "
    "both clients asked the server for, all kinds together, a document, from the moment all are "
    "ready to the last exit. least = the documents of the process that had the fewest (in C: of "
    "the client), over an equal share. Every run is checked: each document published once, none "
    "lost."
)
COLUMNS = ["whose", "documents/s", "requests", "(min-max)", "more than C's", "lost races", "least"]
C, OURS = "C", "queuedriver"
EACH = 4
# Requests a document that are worth a word.
NOTED = 0.05
# What one of many drivers may take, in seconds.
PATIENCE = 600.0

Facts = dict[str, float]


def measure(scale: Scale, _: list[Place]) -> Table:
    """Measure what is to be had here: guests need root and packages of the system."""
    lead = LEAD.format(documents=scale.nfs_documents, each=EACH, rounds=scale.nfs_rounds)
    try:
        # pytest's, as the testbed skips by it.
        from tests.testbed.lab import Lab, missing
        from tests.testbed.nfs import Nfs
    except ImportError as error:
        return Table(TITLE, lead, COLUMNS, [], [f"Left out: {error}."])
    if reason := missing():
        return Table(TITLE, lead, COLUMNS, [], [f"Left out: {reason}."])
    rounds: dict[str, list[Facts]] = {C: [], OURS: []}
    with tempfile.TemporaryDirectory(prefix="queuedriver-nfs-") as place, Lab(Path(place)) as lab:
        net = Nfs(lab).start()
        for turn in range(scale.nfs_rounds):
            for name in (C, OURS) if turn % 2 else (OURS, C):
                rounds[name].append(_round(net, name, f"{name}-{turn}", scale.nfs_documents))
    group = Group("")
    for name, facts in rounds.items():
        asked = [one["requests"] for one in facts]
        more = [ours["requests"] - c["requests"] for ours, c in zip(facts, rounds[C], strict=True)]
        row = [name, f"{_middle(facts, 'speed'):.0f}", f"{median(asked):.2f}"]
        row += [
            f"({min(asked):.2f}-{max(asked):.2f})",
            "-" if name == C else f"{median(more):+.2f}",
        ]
        row += [f"{100 * _middle(facts, 'lost'):.1f} %", f"{_middle(facts, 'least'):.2f}"]
        group.rows.append(row)
    kinds = {kind for facts in (*rounds[C], *rounds[OURS]) for kind in facts if kind.isupper()}
    apart = {kind: _middle(rounds[OURS], kind) - _middle(rounds[C], kind) for kind in kinds}
    said = ", ".join(
        f"{kind} {more:+.2f}" for kind, more in sorted(apart.items()) if abs(more) >= NOTED
    )
    return Table(TITLE, lead, COLUMNS, [group], [f"More than C's, by kind: {said}."])


def _middle(facts: Sequence[Facts], which: str) -> float:
    return median(one.get(which, 0.0) for one in facts)


def _round(net: Any, name: str, directory: str, documents: int) -> Facts:
    """Let one contender take all documents; return what that cost."""
    from tests.testbed.nfs import EXPORT, QUEUES

    here, there = f"{EXPORT}/{directory}", f"{QUEUES}/{directory}"
    net.server.call(fill, here, documents)
    run = _in_c if name == C else _by_drivers
    counted = run(net, here, there, documents)
    wrong = net.server.call(what_is_wrong, here, documents)
    if wrong:
        raise Failed(f"{name}: {wrong}")
    shares = counted["shares"]
    return {
        "speed": documents / counted["seconds"],
        "requests": counted["kinds"].total() / documents,
        "lost": counted["lost"] / documents,
        "least": min(shares) * len(shares) / documents,
        **{kind: number / documents for kind, number in counted["kinds"].items()},
    }


def _asked(net: Any) -> Counter[str]:
    """Return what the clients have asked the server for so far, by kind."""
    return sum((Counter(client.call(requests)) for client in net.clients), Counter[str]())


def _in_c(net: Any, here: str, there: str, documents: int) -> dict[str, Any]:
    total = EACH * len(net.clients)
    before = _asked(net)
    witness = net.server.start(wait_for_outputs, here, documents)
    running = [
        client.start(cycle_in_c, there, number * EACH, EACH, total)
        for number, client in enumerate(net.clients)
    ]
    # The C program adds up what its processes did; its clients are told apart.
    return _told(net, running, witness, before)


def _by_drivers(net: Any, here: str, there: str, documents: int) -> dict[str, Any]:
    pause = f"{here}/in/{names.PAUSE}"
    net.server.call(touch, pause)
    running = [
        client.start(drive, there, f"{client.name}-{number}")
        for client in net.clients
        for number in range(EACH)
    ]
    for client in net.clients:
        client.call(wait_for_drivers, there, len(running))
    before = _asked(net)
    witness = net.server.start(wait_for_outputs, here, documents)
    net.server.call(os.unlink, pause)
    return _told(net, running, witness, before)


def _told(net: Any, running: Sequence[Any], witness: Any, before: Counter[str]) -> dict[str, Any]:
    """Wait for all to leave; return what they did, and what has been asked for since `before`."""
    answers = [one.result(PATIENCE) for one in running]
    return {
        "kinds": _asked(net) - before,
        "seconds": witness.result(PATIENCE),
        "lost": sum(one["lost"] for one in answers),
        "shares": [one["documents"] for one in answers],
    }


# In the guests


def fill(directory: str, documents: int) -> None:
    """Make the queues on the server's own disk."""
    measuring.make_queue(Path(directory, "in"), documents)
    measuring.make_queue(Path(directory, "out"))


def touch(path: str) -> None:
    Path(path).touch()


def what_is_wrong(directory: str, documents: int) -> str:
    """Look at the server's own disk; return what is lost or left over, empty when nothing is."""
    published = {name for name in os.listdir(f"{directory}/out") if name.endswith(".ready")}
    left = [name for name in os.listdir(f"{directory}/in") if name.startswith("doc")]
    wanted = {f"doc{number:07d}.ready" for number in range(documents)}
    if wrong := sorted(published ^ wanted):
        return f"{len(wrong)} documents lost or published twice, as {wrong[0]}"
    return f"{len(left)} items left in the input queue, as {left[0]}" if left else ""


def wait_for_outputs(directory: str, documents: int) -> float:
    """Return after how many seconds so many were published on the server's own disk."""
    began = time.monotonic()
    while sum(name.endswith(".ready") for name in os.listdir(f"{directory}/out")) < documents:
        time.sleep(0.1)
    return time.monotonic() - began


def requests() -> dict[str, int]:
    """Return how many requests of each kind this client has sent over its mounts of NFS so far."""
    counted: Counter[str] = Counter()
    within = False
    for line in Path("/proc/self/mountstats").read_text().splitlines():
        kind, _, numbers = line.strip().partition(":")
        if line.startswith("device "):
            within = False
        elif within and numbers:
            counted[kind] += int(numbers.split()[0])
        within = within or kind == "per-op statistics"
    return counted


def cycle_in_c(directory: str, first: int, each: int, total: int) -> dict[str, Any]:
    """Be so many of the processes in C."""
    words = ["cycle", f"{directory}/in", f"{directory}/out", "-p", each, "-f", first, "-t", total]
    line = [str(measuring.STAGECYCLE), *map(str, words)]
    said = subprocess.run(line, capture_output=True, text=True, check=False)
    if said.returncode:
        raise Failed(said.stderr)
    facts: dict[str, Any] = json.loads(said.stdout)
    return facts


def drive(directory: str, driver: str) -> dict[str, Any]:
    """Be a driver until the queue is drained."""
    output = b"x" * 1024

    def process(document: Document) -> bytes:
        document.read()
        return output

    options = Options(drain=True)
    left = Driver(f"{directory}/in", process, f"{directory}/out", id=driver, options=options).run()
    return {"documents": left.counters.documents, "lost": left.counters.lost_races}


def wait_for_drivers(directory: str, drivers: int) -> None:
    """Return once so many drivers have registered, as this client sees them."""
    where = Path(directory, "in", names.PRIVATE, "drivers")
    until = time.monotonic() + PATIENCE
    while len(list(where.glob("[!.]*.json"))) < drivers:
        if time.monotonic() > until:
            raise Failed(f"not all of {drivers} drivers have registered in {where}")
        time.sleep(0.2)
