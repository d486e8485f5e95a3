"""The page in the browser: from a snapshot to HTML, and a server from its start to its answer."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

from benchmarks import measuring
from benchmarks.measuring import Failed
from benchmarks.memory import peak_rss
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table
from queuedriver.claims.liveness import identify
from queuedriver.format.records import encode
from watchdogd.cli.operators.looking import Looking
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators.web import security
from watchdogd.operators.web.page_inputs import Answer, Facts, Keys, Past, Question, Site, Snapshot
from watchdogd.operators.web.respond import Request, respond
from watchdogd.report import DriverReport, HostReport, StageReport

TITLE = "The page in the browser"
LEAD = (
    "Of a pipeline of {stages} stages with {drivers} drivers each: from what was seen last to the "
    "page, median of {rounds}; the look before it, which is made once however many watch, in "
    "another process. Of a server of that pipeline: from its start to the addresses that it "
    "prints, to its first page, and the memory that it has taken then."
)
_KEYS = Keys("r" * 32, "a" * 32)
_PATIENCE = 60.0


def measure(scale: Scale, places: list[Place]) -> Table:
    group = Group("")
    for place in places:
        with tempfile.TemporaryDirectory(dir=place.directory) as directory:
            file = _pipeline(Path(directory), scale)
            group.rows += [[name, place.name, *cells] for name, *cells in _rows(file, scale)]
    lead = LEAD.format(stages=scale.page_stages, drivers=scale.page_drivers, rounds=scale.rounds)
    return Table(TITLE, lead, ["what", "place", "median", "fastest", "slowest"], [group])


def _rows(file: Path, scale: Scale) -> Iterator[tuple[str, str, str, str]]:
    chosen = choose(str(file))

    def look() -> Answer:
        return Looking(lambda: chosen).answer(Question("", "look"))

    yield "a look", *_milliseconds(look, scale.rounds)
    snapshot = Snapshot().after(look())
    prefix = security.prefix_of(_KEYS)
    facts = Facts(Site(_KEYS, prefix, acts=True), {"many": snapshot}, "0" * 32)
    cookie = f"{security.COOKIE}={security.cookie('act', _KEYS, '0' * 32)}"
    headers = {"host": "localhost", "cookie": cookie}
    for name, path, value in (
        ("the page of a pipeline", "/", None),
        ("the page of a stage", "/stage", Past(time.time(), [])),
        ("the page of a driver", "/driver", None),
    ):
        known = facts._replace(answer=None if value is None else Answer(value))
        query = {"/stage": "name=stage-1", "/driver": "name=stage-1-1"}.get(path, "")
        request = Request("GET", prefix + path, query, headers)
        if respond(request, known, time.time()).status != 200:
            raise Failed(f"no {path}")
        yield (
            name,
            *_milliseconds(lambda r=request, f=known: respond(r, f, time.time()), scale.rounds),
        )
    yield from _serving(file, scale)


def _milliseconds(work: Callable[[], object], rounds: int) -> tuple[str, str, str]:
    work()
    times = []
    for _ in range(rounds):
        before = time.perf_counter()
        work()
        times.append(time.perf_counter() - before)
    return _cells(times, lambda seconds: f"{seconds * 1e3:.1f} ms")


def _cells(samples: list[float], shown: Callable[[float], str]) -> tuple[str, str, str]:
    return shown(median(samples)), shown(min(samples)), shown(max(samples))


def _serving(file: Path, scale: Scale) -> Iterator[tuple[str, str, str, str]]:
    starts, firsts, sizes = [], [], []
    for _ in range(scale.starts):
        before = time.perf_counter()
        with _server(file) as (process, port, prefix, token):
            starts.append(time.perf_counter() - before)
            connection = HTTPConnection("localhost", port, timeout=_PATIENCE)
            connection.request("GET", f"{prefix}/", headers={"Authorization": f"Bearer {token}"})
            if connection.getresponse().status != 200:
                raise Failed("no page")
            firsts.append(time.perf_counter() - before)
            connection.close()
            sizes.append(peak_rss(process.pid) / 1e6)
    yield "from the start to the addresses", *_cells(starts, lambda took: f"{took * 1e3:.0f} ms")
    yield "from the start to the first page", *_cells(firsts, lambda took: f"{took * 1e3:.0f} ms")
    yield "memory of the server", *_cells(sizes, lambda size: f"{size:.0f} MB")


@contextmanager
def _server(file: Path) -> Iterator[tuple[subprocess.Popen[str], int, str, str]]:
    directory = str(file.parent)
    process = subprocess.Popen(
        [sys.executable, "-m", "watchdogd", "serve", str(file), "--port", "0"],
        env={**os.environ, "XDG_RUNTIME_DIR": directory, "WATCHDOGD_STATE": f"{directory}/state"},
        stdout=subprocess.PIPE,
        text=True,
        cwd=measuring.ROOT,
    )
    try:
        lines = [process.stdout.readline() for _ in range(2)] if process.stdout else []
        found = re.search(r":([0-9]+)(/[0-9a-f]+)/#([0-9a-f]+)", "".join(lines))
        if found is None:
            raise Failed("the server left")
        yield process, int(found[1]), found[2], found[3]
    finally:
        process.kill()
        process.communicate()


def _pipeline(directory: Path, scale: Scale) -> Path:
    """Make a pipeline, and what a watchdog would say of it: this process stands for it."""
    names = [f"stage-{number}" for number in range(scale.page_stages)]
    stages = (
        f'[[stage]]\nname = "{name}"\ninput = "q{at}"\noutput = "q{at + 1}"\n'
        f'call = "m:f"\ndrivers = {scale.page_drivers}\n'
        for at, name in enumerate(names)
    )
    file = directory / "many.toml"
    file.write_text('[pipeline]\nname = "many"\nroot = "queues"\n' + "\n".join(stages))
    for at in range(len(names) + 1):
        (directory / "queues" / f"q{at}").mkdir(parents=True)
    hosts = directory / "queues" / ".watchdogd" / "hosts"
    hosts.mkdir(parents=True)
    (hosts / "rose.json").write_bytes(encode(_report(file, names, scale)))
    return file


def _report(file: Path, names: list[str], scale: Scale) -> HostReport:
    now, each = time.time(), scale.page_drivers
    drivers = (
        DriverReport(
            name=f"{name}-{slot}",
            id=f"rose-{name}-{slot}",
            stage=name,
            state="busy",
            pid=1,
            document=f"doc-{slot}.pdf",
            since=now,
            documents=slot,
            memory=600_000_000,
            work=1000,
            wait=10,
        )
        for name in names
        for slot in range(1, each + 1)
    )
    return HostReport(
        host="rose",
        pid=os.getpid(),
        identity=identify(os.getpid()),
        started_at=now,
        at=now,
        turned_at=time.monotonic(),
        pipeline=str(file),
        name="many",
        root=str(file.parent / "queues"),
        stages=tuple(StageReport(name=name, wanted=each, min=each, max=each) for name in names),
        drivers=tuple(drivers),
    )
