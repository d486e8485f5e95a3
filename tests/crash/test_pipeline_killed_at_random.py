"""A pipeline whose drivers and watchdogs are killed at random takes every document through once."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.watchdogs import PATIENCE, Yard, until

DOCUMENTS = 300
KILLS = 25
# Killed so often that two strikes are not enough; each is charged to one document at the most.
RETRIES = 60


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path) as yard:
        yield yard


def watched(yard: Yard, running: dict[str, "subprocess.Popen[str]"]) -> None:
    """Whoever started the watchdogs starts them again."""
    for host in ("rose", "lily"):
        if host not in running or running[host].poll() is not None:
            running[host] = yard.run(host=host)


@pytest.mark.parametrize("seed", [7])
def test_nothing_is_lost_and_nothing_twice_whoever_is_killed(yard: Yard, seed: int) -> None:
    dice = random.Random(seed)
    yard.write(
        'name = "one"\ncall = "stages:obey"\ndrivers = 2',
        'name = "two"\ncommand = ["tr", "a-z", "A-Z"]\ndrivers = { min = 1, max = 3 }',
        'name = "three"\ncall = "stages:shout"\npublish = "{docid}.xml"\npreload = true',
        pipeline=f'retries = {RETRIES}\ngrace = "1 s"\nmax_unhealthy = 1000',
    )
    for number in range(DOCUMENTS):
        yard.put(f"d{number}", f"slow 0.01 {number}")
    running: dict[str, subprocess.Popen[str]] = {}
    watched(yard, running)
    until(lambda: len(yard.driver_pids()) >= 6)
    for _ in range(KILLS):
        victim = dice.choice(yard.all_pids() or [0])
        number = dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
        try:
            if victim:
                os.kill(victim, number)
        except ProcessLookupError:
            continue
        time.sleep(dice.uniform(0, 0.2))
        if number == signal.SIGSTOP:
            try:
                os.kill(victim, signal.SIGCONT)
            except ProcessLookupError:
                pass
        watched(yard, running)
    yard.root.joinpath("queues/input/done").touch()

    def is_through() -> bool:
        watched(yard, running)
        return (yard.root / "queues/two/done").exists() and not yard.ls("two")

    until(is_through)
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.wait(PATIENCE)
    results = {name: yard.read(f"three/{name}") for name in yard.ls("three")}
    assert results == {f"d{n}.xml": f"SLOW 0.01 {n}" for n in range(DOCUMENTS)}
    assert [yard.discarded(queue) for queue in ("input", "one", "two")] == [{}, {}, {}]
    until(lambda: yard.all_pids() == [])
