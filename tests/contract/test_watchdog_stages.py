"""Kinds of stages: the rows of `watchdog_events.STAGES`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.contract.watchdog_scene import COPIES, Scene, row
from tests.endpoints import free_endpoint

CALL = 'call = "stages:more"'


@row
def test_stage_of_each_kind_is_kept_and_drained(scene: Scene) -> None:
    (scene.root / "server.py").write_text(COPIES)
    stages = {
        "one": CALL,
        "two": f"{CALL}\npreload = true",
        "three": 'command = ["cat"]',
        "four": 'server = ["python3", "server.py"]',
    }
    scene.begin(*(f'name = "{name}"\n{work}' for name, work in stages.items()))
    drivers = scene.drivers_here()
    assert len(drivers) == len(stages)
    scene.befalls()
    for pid in drivers:
        os.kill(pid, signal.SIGKILL)
    scene.put("a")
    scene.within(lambda: scene.published("a"), "each is replaced")
    # A fork may have done it before it is told of.
    scene.until(lambda: scene.count("restarted") == len(stages), "each is told of")


@contextmanager
def door(scene: Scene, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
    """The other side of a stage, which nobody keeps."""
    # It is no process of the watchdog's.
    environ = {name: said for name, said in scene.environ.items() if name != "WATCHDOGD_STATE"}
    command = [sys.executable, "-m", "queuedriver", *words]
    with subprocess.Popen(command, env=environ, cwd=scene.root) as process:
        try:
            yield process
        finally:
            process.terminate()


@row
def test_broker_is_a_stage_like_any_other(scene: Scene) -> None:
    address = free_endpoint()
    scene.begin(f'name = "one"\nbroker = "pingpong"\nlisten = "{address}"', f'name = "two"\n{CALL}')
    with door(scene, "worker", "pingpong", address, "--command", "cat {input}"):
        scene.put("a")
        scene.until(lambda: scene.published("a"), "a worker has it")
        assert "one-1" in scene.shown()
        broker = scene.a_driver()
        scene.befalls()
        os.kill(broker, signal.SIGKILL)
        scene.put("b")
        scene.within(lambda: scene.published("b"), "it is replaced")
        scene.account()


@row
def test_broker_and_its_workers_heed_control_files_and_drain(scene: Scene) -> None:
    address = free_endpoint()
    scene.write(
        f'name = "one"\nbroker = "pingpong"\nlisten = "{address}"',
        f'name = "two"\nworker = "pingpong"\nconnect = "{address}"\n{CALL}',
    )
    for docid in "abc":
        scene.put(docid)
    directory = scene.root / "queues/.watchdogd"
    directory.mkdir()
    for stage in ("one", "two"):
        (directory / f"restart-{stage}-1935410602").touch()
        (directory / f"scale-{stage}@fern").write_text("0\n")
    (directory / "scale-two").write_text("2\n")
    (directory / "reload-1935410602").touch()
    (directory / "QUIT").touch()
    scene.befalls()
    scene.ends(scene.run("--drain"))
    started = {one["driver"] for one in scene.events() if one["event"] == "started"}
    assert started == {"one-1", "two-1", "two-2"}


@row
def test_worker_is_a_stage_like_any_other(scene: Scene) -> None:
    address = free_endpoint()
    dealt, out = scene.root / "queues/dealt", scene.root / "queues/out"
    dealt.mkdir(parents=True)
    words = ("broker", "pingpong", str(dealt), "--to", str(out), "--listen", address)
    with door(scene, *words):
        watchdog = scene.begin(
            f'name = "one"\noutput = "out"\n{CALL}',
            f'name = "two"\nworker = "pingpong"\nconnect = "{address}"\n{CALL}',
        )
        scene.put("a", queue="dealt")
        scene.until(lambda: scene.published("a"), "it has come back")
        worker = scene.a_driver("two-1")
        scene.befalls()
        os.kill(worker, signal.SIGKILL)
        scene.put("b", queue="dealt")
        scene.within(lambda: scene.published("b"), "it is replaced")
        watchdog.terminate()
        scene.ends(watchdog)
