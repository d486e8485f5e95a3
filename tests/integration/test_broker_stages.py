"""Stages of brokers and of workers are stages like any other: kept, restarted, shown, drained."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endpoints import free_endpoint
from tests.waiting import until
from tests.watchdogs import PATIENCE, Yard

pytest.importorskip("zmq")

PROTOCOLS = ("pingpong", "roundrobin", "scale0")


class Counter:
    """A pipeline whose first stage has a broker, and workers for it."""

    def __init__(self, yard: Yard, protocol: str) -> None:
        self.yard = yard
        self.protocol = protocol
        self.address = free_endpoint()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.stages = (
            f'name = "out"\ninput = "input"\nbroker = "{protocol}"\nlisten = "{self.address}"',
            'name = "last"\ncall = "stages:shout"',
        )
        yard.write(*self.stages)

    def add_stage_of_workers(self) -> None:
        said = f'worker = "{self.protocol}"\nconnect = "{self.address}"\ncall = "stages:shout"'
        self.yard.write(*self.stages, f'name = "hands"\n{said}\ndrivers = 2')

    def start_worker(self) -> None:
        words = (self.protocol, self.address, "--call", "stages:shout", "--quiet")
        self.workers.append(
            subprocess.Popen(
                [sys.executable, "-m", "queuedriver", "worker", *words],
                env={**os.environ, "PYTHONPATH": str(self.yard.root)},
                cwd=self.yard.root,
            )
        )

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


@pytest.fixture(params=PROTOCOLS)
def counter(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Counter]:
    with Yard(tmp_path) as yard:
        counter = Counter(yard, request.param)
        yield counter
        counter.close()


def test_documents_go_through_a_stage_whose_workers_are_elsewhere_until_it_is_drained(
    counter: Counter,
) -> None:
    yard = counter.yard
    for number in range(10):
        yard.put(f"d{number}")
    watchdog = yard.run("--drain")
    # A worker of scale0 that nobody has listed for 5 s leaves.
    until(lambda: yard.states().get("out-1") == "ready")
    counter.start_worker()
    _, said = watchdog.communicate(timeout=PATIENCE)
    assert watchdog.returncode == 0, said
    assert len(yard.ls("last")) == 10
    assert yard.read("last/d3.ready") == "TEXT"
    assert yard.ls("input") == []


def test_broker_that_is_killed_is_started_again_and_its_workers_come_back(
    counter: Counter,
) -> None:
    yard = counter.yard
    watchdog = yard.run()
    until(lambda: yard.states() == {"out-1": "ready", "last-1": "ready"})
    counter.start_worker()
    yard.put("a")
    until(lambda: yard.ls("last") == ["a.ready"])
    # A driver counts a moment after it has published, and nobody counts for who was killed.
    until(lambda: yard.drivers()["out-1"].documents == 1)
    pid = yard.pid("out-1")
    os.kill(pid, signal.SIGKILL)
    yard.put("b")
    until(lambda: "b.ready" in yard.ls("last"))
    until(lambda: yard.drivers()["out-1"].documents == 2)
    assert yard.pid("out-1") not in (0, pid)
    assert yard.command("status").returncode == 0
    assert yard.command("pause", "out").returncode == 0
    until(lambda: "PAUSE" in yard.ls("input"))
    yard.put("c")
    assert yard.command("resume", "out").returncode == 0
    until(lambda: "c.ready" in yard.ls("last"))
    watchdog.terminate()
    _, said = watchdog.communicate(timeout=PATIENCE)
    assert watchdog.returncode == 0, said
    assert "killed" not in {one["event"] for one in yard.events()}


def test_workers_are_kept_by_the_same_watchdog_and_leave_when_all_is_drained(
    counter: Counter,
) -> None:
    yard = counter.yard
    counter.add_stage_of_workers()
    for number in range(10):
        yard.put(f"d{number}")
    code, said = yard.drain()
    assert code == 0, said
    assert "10 documents went through" in said
    assert len(yard.ls("last")) == 10


def test_worker_that_is_killed_is_started_again(counter: Counter) -> None:
    yard = counter.yard
    counter.add_stage_of_workers()
    watchdog = yard.run()
    everybody = dict.fromkeys(("out-1", "last-1", "hands-1", "hands-2"), "ready")
    until(lambda: yard.states() == everybody)
    pids = [yard.pid(name) for name in ("hands-1", "hands-2")]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    yard.put("a")
    until(lambda: yard.ls("last") == ["a.ready"])
    # The report may be one from before they were killed.
    until(lambda: not {yard.pid(name) for name in ("hands-1", "hands-2")} & {*pids, 0})
    until(lambda: yard.states() == everybody)
    assert "done" not in yard.command("status").stdout
    # It has no queue; without one the whole pipeline would be meant.
    paused = yard.command("pause", "hands")
    assert (paused.returncode, yard.ls("input")) == (66, [])
    assert "has no queue, but a broker" in paused.stderr
    watchdog.terminate()
    _, said = watchdog.communicate(timeout=PATIENCE)
    assert watchdog.returncode == 0, said


def test_broker_of_jobs_is_started_again_when_it_was_killed(yard: Yard) -> None:
    address = free_endpoint()
    yard.write(f'name = "jobs"\nbroker = "fuq"\nlisten = "{address}"\noutput = []')
    watchdog = yard.run()
    until(lambda: yard.states() == {"jobs-1": "ready"})
    pid = yard.pid("jobs-1")
    os.kill(pid, signal.SIGKILL)
    until(lambda: yard.states() == {"jobs-1": "ready"} and yard.pid("jobs-1") != pid)
    watchdog.terminate()
    _, said = watchdog.communicate(timeout=PATIENCE)
    assert watchdog.returncode == 0, said


def test_workers_alone_cannot_be_drained(tmp_path: Path) -> None:
    with Yard(tmp_path) as yard:
        said = 'worker = "pingpong"\nconnect = "tcp://127.0.0.1:6714"\ncall = "stages:shout"'
        yard.write(f'name = "hands"\n{said}')
        code, words = yard.drain()
        assert code == 78
        assert "no stage of this pipeline has a queue" in words
