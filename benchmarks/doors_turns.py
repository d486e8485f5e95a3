"""One request after the other through a broker: how long each takes."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks import measuring
from benchmarks.doors import free_addresses, last_words, running
from benchmarks.measuring import Failed
from benchmarks.places import Place
from benchmarks.scale import Scale
from benchmarks.table import Group, Table
from queuedriver.cli.client import bring
from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.fuq import client as fuq
from queuedriver.doors.fuq.wire import JobStatusUpdate
from queuedriver.doors.settings import settings_of
from queuedriver.doors.words import Effect

TITLE = "Requests of one client in turn"
LEAD = (
    "{turns} requests of 1 KiB, each brought when the one before it was answered, to one worker "
    "that sends them back; and as many tasks of a job, each reported as done the moment it is "
    "dealt, so that no program is in it: from one report to the next task. The first tenth "
    "is left out."
)
PATIENCE = 30.0
NOTHING = ("failed", "-", "-")


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["place", "door", "median ms", "99 %", "worst ms"]
    group = Group("")
    notes = []
    for place in places:
        for protocol in ("roundrobin", "scale0", "fuq"):
            directory = place.directory / "work"
            directory.mkdir()
            measured = _tasks if protocol == "fuq" else _requests
            try:
                cells = _cells(measured(protocol, directory, scale.turns))
            except Failed as failure:
                cells = [*NOTHING]
                notes.append(f"{protocol} failed: {failure}")
            finally:
                measuring.remove(directory)
            group.rows.append([place.name, protocol, *cells])
    return Table(TITLE, LEAD.format(turns=scale.turns), columns, [group], notes)


def _cells(seconds: list[float]) -> list[str]:
    counted = sorted(seconds[len(seconds) // 10 :])
    nearly_worst = counted[max(0, len(counted) - 1 - len(counted) // 100)]
    return [f"{1000 * one:.2f}" for one in (median(counted), nearly_worst, counted[-1])]


@contextlib.contextmanager
def _broker(
    protocol: str, directory: Path, *words: str
) -> Iterator[tuple[str, Callable[[], None]]]:
    """A broker, while it lasts; yield its address, and what raises Failed when it has ended."""
    queues = [str(measuring.make_queue(directory / name)) for name in ("in", "out")]
    address, other = free_addresses(2)
    service = ["--service", f"echo={queues[0]}:{queues[1]}", "--listen", other]
    of_queues = service if protocol == "scale0" else [queues[0], "--to", queues[1]]
    command = ["queuedriver", "broker", protocol, *of_queues, "--listen", address]
    with tempfile.TemporaryDirectory() as aside, running([*command, "--quiet"], aside, 1) as (one,):

        def check() -> None:
            if one.poll() is not None:
                raise Failed(last_words(one))

        yield address, check


def _requests(protocol: str, directory: Path, turns: int) -> list[float]:
    settings = settings_of(protocol)
    more = {"action": "request", "service": "echo", "files": ()} if protocol == "scale0" else {}
    with _broker(protocol, directory) as (address, check), tempfile.TemporaryDirectory() as aside:
        call = ("--call", "benchmarks.doors_echo:echo", "--quiet")
        worker = ["queuedriver", "worker", protocol, address, *call]
        if protocol == "scale0":
            worker += ["--service", "echo"]
        told = settings.ClientSettings(broker=address, timeout=PATIENCE, **more)
        with running(worker, aside, 1), contextlib.closing(told.transport("turns")) as transport:
            documents = ((f"doc{number}", b"x" * 1024) for number in range(turns))
            began = time.monotonic()
            seconds = []
            for _, ended in bring(documents, told.session(), transport, 1, print):
                check()
                if ended.why:
                    raise Failed(ended.why)
                seconds.append(time.monotonic() - began)
                began += seconds[-1]
            return seconds


def _tasks(protocol: str, directory: Path, turns: int) -> list[float]:
    with _broker(protocol, directory) as (address, check):
        submit = ["queuedriver", "fuq", "submit", str(directory / "in"), "-n", str(turns)]
        python = [sys.executable, "-m"]
        subprocess.run([*python, *submit, "--", "task"], check=True, stdout=subprocess.DEVNULL)
        told = settings_of(protocol).WorkerSettings(broker=address)
        session, seconds, until = told.session(1), list[float](), time.monotonic() + PATIENCE

        def act(effect: Effect) -> None:
            nonlocal reported
            if isinstance(effect, fuq.Start):
                seconds.append(time.monotonic() - reported)
                reported += seconds[-1]
                job = effect.task.description.job_id
                update = JobStatusUpdate(job, effect.task.task, success=True, status="done")
                talk.carry_out(session.ended(update), reported)

        reported = time.monotonic()
        talk = Conversation(session, told.transport(), act, print)
        with contextlib.closing(talk):
            while len(seconds) < turns:
                check()
                if time.monotonic() > until:
                    raise Failed(f"{len(seconds)} of {turns} tasks in {PATIENCE:.0f} s")
                sleep([talk], until=time.monotonic() + 1.0)
                talk.turn(time.monotonic(), time.time())
    return seconds
