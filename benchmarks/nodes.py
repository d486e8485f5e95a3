"""A queue with the drivers of 10 to 1,000 nodes, in virtual time: the real code over a
simulated file server. What they ask of it, and from how many drivers on work is to be split over
queues."""

import math
import random
import time
from collections import Counter
from typing import NamedTuple

from benchmarks.nodes_disk import RecordedDisk
from benchmarks.nodes_world import Cluster, Network, living_in
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table
from queuedriver import Document, Driver, Options
from queuedriver.driving import setup
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from tests.simulation.scene import find
from tests.simulation.seams import seam
from tests.simulation.world import Host, Process

TITLE = "Many nodes on one queue, in virtual time"
LEAD = (
    "The real code of durable drivers, {each} on each node, over a simulated NFS: {network}, one "
    "queue. done = documents a second, of those that so many drivers can do. requests = what the "
    "server is asked, for a document and by a driver a second. lost = races for a document. read = "
    "registrations a second, by all. busy = the server's time. start = how long a start holds the "
    "lock of the queue. back = from the loss of a tenth of the nodes at once until all that they "
    "had is given back; the lease is 180 s. room = so many drivers keep a server busy that answers "
    "{few:,} and {many:,} requests a second."
)
COLUMNS = [
    *("documents", "nodes", "drivers", "done", "requests", "a driver", "lost", "read", "busy"),
    *("start", "back", "room"),
]
QUEUE, OUTPUT = "/shared/in", "/shared/out"
EACH = 8
# A switched network's, and what a server of a few disks answers.
LAN = Network("0.3 ms from a request to its answer, 20,000 requests a second", 0.0003, 20_000.0)
FEW, MANY = 5_000, 100_000
# Before what is counted all drivers are started, at no cost to the server: each holds the lock of
# the queue as it starts, so thousands would take longer than all that follows. Seconds from one to
# the next at most, and from the first to the last.
_AT_ONCE = Network("", 0.0, math.inf)
_APART = 0.02
_START_WITHIN = 30.0
_STEP = 0.001
_PATIENCE = 900.0
_LOST = 0.1
# Of more nodes none are lost: what thousands of drivers do for minutes takes hours to be played.
_MOST_LOSING = 300


class Work(NamedTuple):
    """What is done, and for how long it is looked at; seconds."""

    name: str
    # Of a document, from half to one and a half of that.
    service: float
    warm_up: float
    window: float
    # How many documents wait, for each driver and at least.
    waiting: int
    least: int
    # Whether a tenth of the nodes is lost in the end.
    loses: bool


LONG = Work("of a minute", 60.0, 60.0, 60.0, waiting=2, least=1000, loses=True)
SHORT = Work("of no time", 0.0, 2.0, 3.0, waiting=20, least=4000, loses=False)


class Facts(NamedTuple):
    """What was counted of one run."""

    drivers: int
    # Documents a second that the drivers could have done, and that they did.
    wanted: float
    done: float
    requests: float
    kinds: Counter[str]
    lost_races: float
    registrations: float
    busy: float
    # Seconds that the last driver took to start.
    start: float
    # Seconds until all that the lost drivers had was taken back; None: not within _PATIENCE.
    back: float | None
    real: float


class Run:
    """One cluster at work."""

    def __init__(self, nodes: int, network: Network, work: Work) -> None:
        self.nodes, self.work = nodes, work
        disk = RecordedDisk()
        self.cluster = Cluster(disk, network)
        self.drivers: dict[str, Driver] = {}
        self.processes: dict[Host, list[Process]] = {}
        self.done = 0
        self.submitted = 0
        self._chance = random.Random(1)

    def __call__(self) -> Facts:
        began = time.perf_counter()
        cluster, count = self.cluster, self.nodes * EACH
        with living_in(cluster):
            try:
                cluster.start("setup", cluster.host("setup"), self._make)
                cluster.play()
                self._fill()
                start = self._start()
                cluster.play(cluster.now + self.work.warm_up)
                seconds, asked, done, lost, busy = self._window()
                back = self._lose() if self.work.loses else None
            finally:
                cluster.close()
        return Facts(
            drivers=count,
            wanted=count / self.work.service if self.work.service else math.inf,
            done=done / seconds,
            requests=asked.total() / max(done, 1),
            kinds=asked,
            lost_races=lost / max(done, 1),
            registrations=asked["registration"] / 2 / seconds,
            busy=busy / seconds,
            start=start,
            back=back,
            real=time.perf_counter() - began,
        )

    # Who acts

    def _make(self) -> None:
        """Make the queue, and be its first driver."""
        with Queue.open(QUEUE, create=True):
            Driver(
                QUEUE, bytes, OUTPUT, id="first", options=Options(drain=True, durable=True)
            ).run()

    def _fill(self) -> None:
        """Have enough wait for everybody, for ever: by no call of anybody who is counted."""
        disk, directory = self.cluster.disk, find(self.cluster.disk, QUEUE)
        published = find(disk, OUTPUT)
        for name in [one for one in published.entries or {} if one.endswith(".ready")]:
            disk.change((published, name, None))
        waiting = sum(name.endswith(".ready") for name in directory.entries or {})
        wanted = max(self.work.least, self.work.waiting * self.nodes * EACH)
        for _ in range(wanted - waiting):
            self.submitted += 1
            inode = disk.new()
            inode.data = b"x" * 100
            disk.change((directory, names.waiting_name(f"doc{self.submitted}", 0), inode))

    def _refill(self) -> None:
        while True:
            self.cluster.sleep(0.2)
            self._fill()

    def _start(self) -> float:
        """Start all drivers, and return how long the last one took."""
        cluster = self.cluster
        cluster.start("submitter", cluster.host("outside"), self._refill)
        network = cluster.network
        if self.work.service:
            # Where nothing took time, time would not pass.
            cluster.network = _AT_ONCE
        others = self.nodes * EACH - 1
        apart = min(_APART, _START_WITHIN / others)
        # There is nothing to be swept yet, which each would find out by itself.
        with seam(setup, "sweep", lambda *_: None):
            for number in range(others):
                self._drive(cluster.host(f"node{number % self.nodes:04}"), number // self.nodes)
                cluster.play(cluster.now + apart)
            while any(driver._loop is None for driver in self.drivers.values()):
                cluster.play(cluster.now + _STEP)
        cluster.network = network
        began = cluster.now
        last = self._drive(cluster.host(f"node{self.nodes - 1:04}"), EACH - 1)
        while last._loop is None:
            cluster.play(cluster.now + _STEP)
        return cluster.now - began

    def _drive(self, host: Host, number: int) -> Driver:
        name = f"{host.name}-{number}"
        options = Options(durable=True)
        driver = Driver(QUEUE, self._work, OUTPUT, id=name, options=options)
        self.drivers[name] = driver
        process = self.cluster.start(name, host, driver.run)
        self.processes.setdefault(host, []).append(process)
        return driver

    def _work(self, document: Document) -> bytes:
        data = document.read()
        if service := self.work.service:
            self.cluster.sleep(service * self._chance.uniform(0.5, 1.5))
        self.done += 1
        return data

    # What is counted

    def _window(self) -> tuple[float, Counter[str], int, int, float]:
        cluster = self.cluster
        asked, done, lost, busy, began = (
            Counter(cluster.asked),
            self.done,
            self._lost_races(),
            cluster.busy_for,
            cluster.now,
        )
        cluster.play(cluster.now + self.work.window)
        return (
            cluster.now - began,
            Counter(cluster.asked) - asked,
            self.done - done,
            self._lost_races() - lost,
            cluster.busy_for - busy,
        )

    def _lost_races(self) -> int:
        loops = [driver._loop for driver in self.drivers.values()]
        return sum(queue.lost_races for loop in loops if loop for queue in loop.queues)

    def _lose(self) -> float | None:
        """Take a tenth of the nodes away; return after how long nobody misses their documents."""
        cluster = self.cluster
        lost = [*self.processes][: max(1, round(self.nodes * _LOST))]
        for host in lost:
            for process in self.processes[host]:
                cluster.kill(process)
        gone = {process.name for host in lost for process in self.processes[host]}
        began = cluster.now
        while self._held_by(gone):
            cluster.play(cluster.now + 5.0)
            if cluster.now - began > _PATIENCE:
                return None
        return cluster.now - began

    def _held_by(self, gone: set[str]) -> bool:
        directory = find(self.cluster.disk, QUEUE)
        items = map(names.parse, directory.entries or {})
        return any(
            item is not None and item.claimed and names.parse_token(item.token).driver in gone
            for item in items
        )


def measure(scale: Scale, _: list[Place]) -> Table:
    group = Group("")
    runs = [(nodes, LONG._replace(loses=nodes <= _MOST_LOSING)) for nodes in scale.nodes]
    runs += [(nodes, SHORT) for nodes in scale.nodes[:1]]
    for nodes, work in runs:
        group.rows.append(_row(work, nodes, Run(nodes, LAN, work)()))
    lead = LEAD.format(each=EACH, network=LAN.name, few=FEW, many=MANY)
    return Table(TITLE, lead, COLUMNS, [group])


def _row(work: Work, nodes: int, facts: Facts) -> list[str]:
    a_second = facts.requests * facts.done / facts.drivers
    of = "" if math.isinf(facts.wanted) else f" of {facts.wanted:.1f}"
    back = "-" if not work.loses else "never" if facts.back is None else f"{facts.back:.0f} s"
    return [
        work.name,
        f"{nodes:,}",
        f"{facts.drivers:,}",
        f"{facts.done:.1f}{of}",
        f"{facts.requests:.0f}",
        f"{a_second:.1f}",
        f"{100 * facts.lost_races:.1f} %",
        f"{facts.registrations:.0f}",
        f"{100 * facts.busy:.0f} %",
        f"{1000 * facts.start:.0f} ms",
        back,
        f"{FEW / a_second:,.0f}, {MANY / a_second:,.0f}",
    ]
