"""A stage that has a broker is a stage like any other: kept, restarted, shown, drained."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.doors import free_port
from tests.waiting import until
from tests.watchdogs import PATIENCE, Yard

pytest.importorskip("zmq")

PROTOCOLS = ("pingpong", "roundrobin", "scale0")


class Counter:
    """A pipeline whose first stage has a broker, and workers for it."""

    def __init__(self, yard: Yard, protocol: str) -> None:
        self.yard = yard
        self.protocol = protocol
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.workers: list[subprocess.Popen[bytes]] = []
        yard.write(
            f'name = "out"\ninput = "input"\nbroker = "{protocol}"\nlisten = "{self.address}"',
            'name = "last"\ncall = "stages:shout"',
        )

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
    counter.start_worker()
    code, said = yard.drain()
    assert code == 0, said
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
