"""Documents a second through the brokers, beside a plain ROUTER that makes the same file calls."""

import contextlib
import ctypes
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import measuring
from benchmarks.many import check
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "Through the front doors"
LEAD = (
    "{documents:,} documents of 1 KiB from a queue through a broker to {workers} workers on the "
    "same host that send them back, and into the next queue; median of {rounds} rounds, not "
    "synced. From the first claim to the last publish. speed = documents a second, ours over the "
    "plain one's. Every run is checked: each document published once, none left."
)
NOTES = (
    "The plain one is benchmarks/doors_plain.py: a straight loop around a ROUTER and the calls of "
    "plain.py, with echoing workers of the same kind, each with as many documents in flight. It "
    "promises nothing: no time-outs, no heartbeats, no recovery. The talking one also says what "
    "the protocol demands for each document: pingpong's broker answers a result, scale0's worker "
    "offers itself anew and is answered, roundrobin's gives its slot back.",
    "Workers are connected and have processed some documents before the clock starts. The first "
    "claim is seen by inotify, once; the last publish is the newest ctime in the output queue.",
)
WORKERS = 4
_IN_MOVED_FROM, _IN_ONESHOT = 0x40, 0x8000_0000
_libc = ctypes.CDLL(None, use_errno=True)


class Door(NamedTuple):
    """How one protocol is told what to do, on the command line."""

    protocol: str
    # Documents in flight for one worker.
    depth: int
    # What the protocol says for each document besides it and its result.
    talk: str
    # Of the broker with its queues, and of a worker, besides the address.
    broker: Callable[[Path, Path], list[str]]
    worker: tuple[str, ...] = ()
    # Addresses that its broker listens at; workers use the first.
    ports: int = 1


def _queues(source: Path, target: Path) -> list[str]:
    return [str(source), "--to", str(target)]


DOORS = (
    Door("pingpong", 1, "answers", _queues),
    Door("roundrobin", 10, "offers", _queues, ("--slots", "10")),
    Door(
        "scale0",
        1,
        "offers and answers",
        lambda source, target: ["--service", f"echo={source}:{target}"],
        ("--service", "echo"),
        ports=2,
    ),
)

# It has tasks instead of documents, and a benchmark of its own.
FUQ = Door("fuq", 1, "", _queues)


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["place", "door", "in flight", "plain /s", "talking /s", "ours /s"]
    columns += ["speed", "(min-max)", "of talking"]
    group = Group("")
    notes: set[str] = set()
    for place in places:
        for door in DOORS:
            chosen = contenders(door, scale.documents)
            results = measuring.interleave(chosen, scale.long_rounds, place)
            in_flight = f"{WORKERS} × {door.depth}"
            group.rows.append([place.name, door.protocol, in_flight, *_cells(results)])
            notes |= {
                f"{door.protocol}, {name} failed: {why}" for name, why in results.failures.items()
            }
    lead = LEAD.format(documents=scale.documents, rounds=scale.long_rounds, workers=WORKERS)
    return Table(TITLE, lead, columns, [group], [*NOTES, *sorted(notes)])


def contenders(door: Door, documents: int) -> list[Contender]:
    def prepare(directory: Path) -> None:
        measuring.make_queue(directory / "in")
        measuring.make_queue(directory / "out")

    def plain(talk: str) -> Callable[[Path], Sample]:
        def measured(directory: Path) -> Sample:
            queues = directory / "in", directory / "out"
            address = free_addresses(1)[0]
            here = ("benchmarks.doors_plain",)
            broker = [*here, "broker", address, *map(str, queues), talk]
            worker = [*here, "worker", address, str(door.depth), talk]
            return run(directory, documents, broker, worker)

        return measured

    def ours(directory: Path) -> Sample:
        queues = directory / "in", directory / "out"
        addresses = free_addresses(door.ports)
        listen = [word for address in addresses for word in ("--listen", address)]
        broker = ["queuedriver", "broker", door.protocol, *door.broker(*queues), *listen]
        call = ("--call", "benchmarks.doors_echo:echo", "--quiet")
        worker = ["queuedriver", "worker", door.protocol, addresses[0], *door.worker, *call]
        return run(directory, documents, [*broker, "--quiet"], worker)

    return [
        Contender("plain", plain("nothing"), prepare),
        Contender("talking", plain(door.talk), prepare),
        Contender("ours", ours, prepare),
    ]


def run(directory: Path, documents: int, broker: list[str], worker: list[str]) -> Sample:
    """Start all, warm them up, then measure from the moment at which PAUSE goes."""
    source, target = directory / "in", directory / "out"
    with (
        tempfile.TemporaryDirectory() as aside,
        running(broker, aside, 1) as brokers,
        running(worker, aside, WORKERS),
    ):
        warm_up(directory, Path(aside) / "seen", brokers[0])
        (source / "PAUSE").touch()
        # Longer than a broker at rest does not look.
        time.sleep(0.3)
        measuring.stagecycle("fill", source, documents, 1024)
        (source / "done").touch()
        first_ns = claim_seen(source, (source / "PAUSE").unlink)
        try:
            brokers[0].wait(measuring.TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failed(f"the broker did not end within {measuring.TIMEOUT:.0f} s") from None
        if brokers[0].returncode != 0:
            raise Failed(last_words(brokers[0]))
    (target / "done").unlink(missing_ok=True)
    last_ns = max(entry.stat().st_ctime_ns for entry in os.scandir(target) if entry.is_file())
    check(directory, documents)
    return Sample((last_ns - first_ns) / documents)


@contextlib.contextmanager
def running(command: list[str], aside: str, count: int) -> Iterator[list["subprocess.Popen[str]"]]:
    """So many of these processes, while it lasts."""
    seen = Path(aside) / "seen"
    seen.mkdir(exist_ok=True)
    # What killed workers leave behind goes with the directory.
    environ = {**measuring.environ(), "DOORS_SEEN": str(seen), "TMPDIR": aside}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=environ["PYTHONPATH"],
            env=environ,
        )
        for _ in range(count)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def last_words(process: "subprocess.Popen[str]") -> str:
    _, stderr = process.communicate(timeout=measuring.TIMEOUT)
    words = (stderr.strip().splitlines() or ["no words"])[-1]
    return f"exit {process.returncode}: {words}"


def warm_up(directory: Path, seen: Path, broker: "subprocess.Popen[str]") -> None:
    """A few documents at a time, until every worker has had one; nothing is left of them."""
    source, target = directory / "in", directory / "out"
    until = time.monotonic() + 30
    submitted = 0
    while len(os.listdir(seen)) < WORKERS:
        for _ in range(2 * WORKERS):
            aside = source / ".queuedriver" / "incoming" / f"warm{submitted}"
            aside.write_bytes(b"x" * 1024)
            aside.rename(source / f"warm{submitted}.ready")
            submitted += 1
        time.sleep(0.1)
        if broker.poll() is not None:
            raise Failed(last_words(broker))
        if time.monotonic() > until:
            raise Failed(f"only {len(os.listdir(seen))} of {WORKERS} workers got a document")
    while sum(name.endswith(".ready") for name in os.listdir(target)) < submitted:
        time.sleep(0.01)
        if time.monotonic() > until:
            raise Failed("documents were not published within 30 s")
    for name in os.listdir(target):
        if name.endswith(".ready"):
            (target / name).unlink()


def claim_seen(source: Path, begin: Callable[[], object]) -> int:
    """When the first document was claimed: the kernel tells of one rename, then no more."""
    fd = _libc.inotify_init1(os.O_CLOEXEC)
    try:
        if _libc.inotify_add_watch(fd, os.fsencode(source), _IN_MOVED_FROM | _IN_ONESHOT) < 0:
            raise Failed(f"inotify: {os.strerror(ctypes.get_errno())}")
        begin()
        if not select.select([fd], [], [], 30)[0]:
            raise Failed("nothing was claimed within 30 s")
        return time.time_ns()
    finally:
        os.close(fd)


def free_addresses(count: int) -> list[str]:
    """Ports of this host where nobody listens now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


def _cells(results: Results) -> list[str]:
    cells = [
        f"{1e6 / results.median_us(name):,.0f}" if name in results else "failed"
        for name in ("plain", "talking", "ours")
    ]
    if "failed" in cells:
        return [*cells, "-", "-", "-"]
    speeds = [1 / ratio for ratio in results.ratios("ours", "plain")]
    of_talking = median(1 / ratio for ratio in results.ratios("ours", "talking"))
    range_ = f"({min(speeds):.2f}-{max(speeds):.2f})"
    return [*cells, f"{median(speeds):.2f}", range_, f"{of_talking:.2f}"]
