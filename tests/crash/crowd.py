"""Hundreds of drivers that one watchdog starts, feeds, watches and lets go; then the account.

    python -m tests.crash.crowd --stages 20 --each 25 --seconds 30

Each driver gets a document that waits until all drivers have one; then all go through, and the
drivers rest. Exit code 1 if a driver was started twice or ended by anybody, if a document is not
published just once, or if the watchdog and its helper take more than they may.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.waiting import until
from tests.watchdogs import Yard

# Of one core, bytes of memory and seconds, of the watchdog and its helper together: what is
# promised for 500 drivers. That TERM is heard, and that all have left, takes so long at most.
CPU = 0.05
MEMORY = 120 << 20
HEARD = 1.0
LEFT = 30.0
# Seconds until all drivers have a document, at most, for each of them.
EACH = 0.2
_PATIENCE = 60.0
# What is done to each document. Hundreds of drivers that look for the sign at every moment would
# have all processors to themselves.
_STAGE = """

def gather(document):
    with (HERE / "begun").open("a") as file:
        print(document.docid, file=file)
    while not (HERE / "go").exists():
        time.sleep(0.5)
    return document.read()
"""
# What ends a driver, or tells that it is in nobody's favour.
_TROUBLE = ("restarted", "exited", "hung", "killed", "crash-looped", "unkillable")


class Orders(NamedTuple):
    """How many, and for how many seconds they rest while they are measured; and how many more than
    is promised anything may take, on a machine that does other things too."""

    stages: int
    each: int
    seconds: float
    slack: float = 0.0

    @property
    def drivers(self) -> int:
        return self.stages * self.each


class Outcome(NamedTuple):
    """What it took: seconds, the share of a core at rest, bytes."""

    claimed: float
    through: float
    cpu: float
    memory: int
    heard: float
    left: float
    complaints: list[str]


class Crowd(Yard):
    """A chain of stages whose templates fork all their drivers."""

    def __init__(self, orders: Orders, root: Path) -> None:
        super().__init__(root)
        self.orders = orders
        self.queues = ["input", *(f"s{number}" for number in range(1, orders.stages + 1))]
        with (root / "stages.py").open("a") as file:
            file.write(_STAGE)
        stage = f'call = "stages:gather"\npreload = true\ndrivers = {orders.each}'
        # Between two stages there is room for all: nobody is held back.
        room = f"max_output_items = {2 * orders.drivers}"
        self.write(*(f'name = "{name}"\n{stage}\n{room}' for name in self.queues[1:]))

    def watch(self) -> Outcome:
        """Start the watchdog, and say what it took."""
        for queue in self.queues[:-1]:
            for number in range(self.orders.each):
                self.put(f"{queue}-{number}", queue=queue)
        began, patience = time.monotonic(), _PATIENCE + EACH * self.orders.drivers
        watchdog, begun = self.run(), self.root / "begun"
        until(
            lambda: begun.exists() and len(self.begun()) >= self.orders.drivers,
            "each driver has a document",
            patience,
        )
        claimed = time.monotonic() - began
        (self.root / "go").touch()
        last = self.queues[-1]
        until(lambda: len(self.ls(last)) >= self.orders.drivers, "all are through", patience)
        through = time.monotonic() - began - claimed
        until(lambda: {*self.states().values()} == {"ready"}, "they rest", patience)
        pids = [watchdog.pid, *self._helpers()]
        before, since = sum(map(cpu_seconds, pids)), time.monotonic()
        time.sleep(self.orders.seconds)
        cpu = (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - since)
        memory = sum(map(resident, pids))
        complaints = [*self._complaints(), *self._amiss(cpu, memory)]
        asked_at = time.time()
        watchdog.send_signal(signal.SIGTERM)
        until(self._says_that_it_leaves, "it says that it leaves", patience)
        heard = self._says_that_it_leaves() - asked_at
        code = watchdog.wait(patience)
        left = time.time() - asked_at
        if code:
            complaints.append(f"the watchdog ended with {code}")
        if heard > HEARD + self.orders.slack or left > LEFT + self.orders.slack:
            complaints.append(f"TERM was heard after {heard:.1f} s, all had left after {left:.1f}")
        if remains := self.all_pids():
            complaints.append(f"{len(remains)} processes are left")
        return Outcome(claimed, through, cpu, memory, heard, left, complaints)

    def _complaints(self) -> list[str]:
        found = [f"{self.count(kind)} × {kind}" for kind in _TROUBLE if self.count(kind)]
        if self.count("started") != self.orders.drivers:
            found.append(f"{self.count('started')} drivers were started")
        due = {f"{queue}-{n}.ready" for queue in self.queues[:-1] for n in range(self.orders.each)}
        if amiss := due ^ set(self.ls(self.queues[-1])):
            found.append(f"{len(amiss)} documents are lost or twice, as {min(amiss)}")
        found += [f"{name} is left in {one}" for one in self.queues[:-1] for name in self.ls(one)]
        return found

    def _amiss(self, cpu: float, memory: int) -> list[str]:
        found = [f"it takes {cpu:.1%} of a core at rest"] if cpu > CPU else []
        return found + ([f"it takes {memory >> 20} MB"] if memory > MEMORY else [])

    def _helpers(self) -> list[int]:
        return [pid for pid in self.all_pids() if b"io_helper" in _command(pid)]

    def _says_that_it_leaves(self) -> float:
        """Return when it has said so; 0: it has not."""
        notes = [one for one in self.events() if one["event"] == "note"]
        return next((one["at"] for one in notes if "leaving: " in one["message"]), 0.0)


def cpu_seconds(pid: int) -> float:
    """Return what a process and its threads have had, in seconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def resident(pid: int) -> int:
    """Return how many bytes of memory a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def figures(orders: Orders, outcome: Outcome) -> list[str]:
    """Return what there is to say of a run."""
    return [
        f"{orders.drivers} drivers of {orders.stages} stages",
        f"all with a document after {outcome.claimed:.1f} s, all through after "
        f"{outcome.through:.1f} s",
        f"watchdog and helper at rest: {outcome.cpu:.2%} of a core, {outcome.memory >> 20} MB",
        f"TERM heard after {outcome.heard:.2f} s, all had left after {outcome.left:.1f} s",
        *outcome.complaints,
    ]


def main() -> int:
    """Run once, say what it took; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.crowd", description=__doc__)
    parser.add_argument("--stages", type=int, default=20)
    parser.add_argument("--each", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=30.0)
    orders = Orders(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="crowd-") as root, Crowd(orders, Path(root)) as crowd:
        outcome = crowd.watch()
    print(*figures(orders, outcome), sep="\n")
    return int(bool(outcome.complaints))


if __name__ == "__main__":
    sys.exit(main())
