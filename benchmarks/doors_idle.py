"""What a thousand workers cost a broker while there is nothing to do."""

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import measuring
from benchmarks.doors import DOORS, FUQ, Door, free_addresses, last_words
from benchmarks.measuring import Failed
from benchmarks.memory import peak_rss
from benchmarks.overhead import cpu_seconds
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "A broker of idle workers"
LEAD = (
    "{workers:,} workers are connected and wait, each with its protocol's own heartbeats at their "
    "default interval, of which fuq has none, in {processes} processes of this host; CPU time of "
    "all threads of the broker over {seconds:.0f} s, as a share of one core."
)
NOTES = (
    "The bare ROUTER says PONG to whatever comes, and has pingpong's workers, who say PING each "
    "second: what is left of it is ZeroMQ's, and the loop around two calls.",
)
BARE = "bare ROUTER"
BROKERS = (*DOORS, FUQ)
PROCESSES = 4
# Seconds until starting up is over and done with.
SETTLE = 4.0
# Seconds for all to be connected and answered.
PATIENCE = 60.0


def measure(scale: Scale, places: list[Place]) -> Table:
    """In the first place only: nothing is done there."""
    columns = ["door", "workers", "CPU %", "of it ZeroMQ’s", "peak RSS MB"]
    group = Group("")
    notes = [*NOTES]
    for name in (BARE, *(door.protocol for door in BROKERS)):
        directory = places[0].directory / "work"
        directory.mkdir()
        try:
            cells = _cells(name, directory, scale)
        except Failed as failure:
            cells = ["failed", "-", "-"]
            notes.append(f"{name} failed: {failure}")
        finally:
            measuring.remove(directory)
        group.rows.append([name, f"{scale.idle_workers:,}", *cells])
    lead = LEAD.format(workers=scale.idle_workers, processes=PROCESSES, seconds=scale.idle_seconds)
    return Table(TITLE, lead, columns, [group], notes)


def _broker(door: Door | None, address: str, directory: Path) -> list[str]:
    """Return the module and the words of a broker."""
    if door is None:
        return ["benchmarks.doors_plain", "answerer", address]
    queues = (measuring.make_queue(directory / "in"), measuring.make_queue(directory / "out"))
    addresses = [address, *free_addresses(door.ports - 1)]
    listen = [word for one in addresses for word in ("--listen", one)]
    return ["queuedriver", "broker", door.protocol, *door.broker(*queues), *listen, "--quiet"]


def _cells(name: str, directory: Path, scale: Scale) -> list[str]:
    door = next((one for one in BROKERS if one.protocol == name), None)
    protocol = door.protocol if door else "pingpong"
    (address,) = free_addresses(1)
    each = str(scale.idle_workers // PROCESSES)
    words = _broker(door, address, directory)
    with started(*words) as broker, contextlib.ExitStack() as crowd:
        crowds = [
            crowd.enter_context(started("benchmarks.doors_crowd", protocol, address, each))
            for _ in range(PROCESSES)
        ]
        for one in crowds:
            _until_there(one)
        time.sleep(SETTLE)
        before, began = cpu_seconds(broker.pid), time.monotonic()
        io_before = _of_zeromq(broker.pid)
        time.sleep(scale.idle_seconds)
        spent = time.monotonic() - began
        share = (cpu_seconds(broker.pid) - before) / spent
        io_share = (_of_zeromq(broker.pid) - io_before) / spent
        for process in (broker, *crowds):
            if process.poll() is not None:
                raise Failed(last_words(process))
        return [
            f"{100 * share:.2f}",
            f"{100 * io_share:.2f}",
            f"{peak_rss(broker.pid) / 1e6:.0f}",
        ]


@contextlib.contextmanager
def started(module: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=measuring.ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _until_there(process: "subprocess.Popen[str]") -> None:
    stdout = process.stdout
    if stdout is None or not select.select([stdout], [], [], PATIENCE)[0]:
        raise Failed(f"not every worker was answered within {PATIENCE:.0f} s")
    if not stdout.readline():
        raise Failed(last_words(process))


def _of_zeromq(pid: int) -> float:
    """CPU seconds of ZeroMQ's threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    mine = [task for task in tasks if "ZMQ" in (task / "comm").read_text()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in mine) / 1e9
