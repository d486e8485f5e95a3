"""What befalls drivers: the rows of `watchdog_events.DRIVERS`."""

import os
import signal
from contextlib import closing

import pytest

from tests.contract.watchdog_scene import Scene, row, stopped
from tests.disks import Silent
from tests.waiting import is_alive

ONE = 'name = "one"\ncall = "stages:more"'
TWO = 'name = "two"\ncall = "stages:more"'
PASSES = "def process(document): return document.read()\n"
# Does not start before somebody has mended it.
SERVER = """
import json, os, sys
if not os.path.exists("up"):
    os._exit(3)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    with open(asked["input"]) as given, open(asked["output"], "w") as made:
        made.write(given.read())
    print(json.dumps({"ok": True}), flush=True)
"""
HASTY = 'timeout = "1 s"\nhard_after = "1 s"\nretries = 0'

# Waits in the kernel for what does not answer, out of reach of SIGKILL, and grows meanwhile.
STUCK = """

def look(document):
    if document.docid == "stuck":
        import threading
        threading.Thread(target=bloat).start()
        os.stat("{path}/there")
    return document.read()


def bloat():
    # Only what waits there already, its question read, cannot be killed any more.
    # A kernel that does not tell has five seconds.
    wait, ends_at = Path(f"/proc/{{os.getpid()}}/wchan"), time.monotonic() + 5
    while "answer" not in wait.read_text() and time.monotonic() < ends_at:
        time.sleep(0.01)
    time.sleep(0.5)
    bloat.memory = bytearray(200_000_000)
"""


@pytest.mark.quick
@pytest.mark.parametrize("preload", ["false", "true"])
@row
def test_driver_that_is_killed_is_replaced(scene: Scene, preload: str) -> None:
    scene.begin(f"{ONE}\npreload = {preload}")
    scene.put("a", "wait once", charged=True)
    scene.is_working("a")
    scene.put("b")
    pid = scene.a_driver()
    scene.befalls()
    os.kill(pid, signal.SIGKILL)
    scene.within(lambda: scene.published("a", "b"), "the next driver has done both")
    # A fork may have done them before it is told of.
    scene.until(lambda: scene.count("restarted", "one-1") == 1, "it is told")


@pytest.mark.parametrize(("how", "words"), [("exit", "exit code 3"), ("segv", "SIGSEGV")])
@row
def test_document_that_ends_its_driver_is_discarded_with_how_it_ended(
    scene: Scene, how: str, words: str
) -> None:
    scene.put("poison", how, cause="crashed")
    for docid in "abc":
        scene.put(docid)
    scene.write(ONE)
    scene.befalls()
    scene.ends(scene.run("--drain"), code=1)
    report = scene.discarded("input")["poison"]
    assert scene.count("crash-looped") == 0
    assert words in report["failure"]["message"]
    assert len(report["attempts"]) == 2


@row
def test_document_that_sleeps_is_discarded_and_its_driver_goes_on(scene: Scene) -> None:
    scene.begin(f'{ONE}\ntimeout = "1 s"\nretries = 0')
    scene.befalls()
    scene.put("a", "hang", cause="timeout")
    scene.is_claimed("a")
    scene.put("b")
    scene.within(lambda: scene.published("b"), "the next one is done")
    assert scene.count("exited") == 0


def ended_as_hung(scene: Scene, how: str, cause: str) -> str:
    """Let a document hang its driver; how its report says that it hung."""
    scene.begin(f'{ONE}\n{HASTY}\nmax_memory = "150 MB"')
    scene.befalls()
    scene.put("a", how, cause=cause)
    scene.is_claimed("a")
    scene.put("b")
    scene.within(lambda: scene.discarded("input") and scene.published("b"), "the next one is done")
    failure = scene.discarded("input")["a"]["failure"]
    return str(failure.get("stacks", ""))


@row
def test_driver_whose_c_code_holds_the_lock_is_ended_with_its_stacks(scene: Scene) -> None:
    assert "in obey" in ended_as_hung(scene, "deaf", "hung")


@row
def test_driver_that_ignores_everything_is_ended(scene: Scene) -> None:
    assert "in more" in ended_as_hung(scene, "ignore", "hung")


@row
def test_driver_that_takes_too_much_memory_is_ended(scene: Scene) -> None:
    scene.begin(f'{ONE}\nmax_memory = "150 MB"\nretries = 0')
    scene.befalls()
    scene.put("a", "bloat", cause="memory")
    scene.is_claimed("a")
    scene.put("b")
    scene.within(lambda: scene.published("b"), "the next one is done")


@pytest.mark.parametrize("preload", ["false", "true"])
@row
def test_what_a_document_sent_away_ends_with_its_driver(scene: Scene, preload: str) -> None:
    scene.begin(f"{ONE}\npreload = {preload}")
    # While it is the only one that is called so: the daemon is, too.
    driver = scene.a_driver()
    scene.put("a", "fork")
    scene.until(lambda: scene.published("a"), "a daemon runs")
    away = int((scene.root / "away").read_text())
    assert os.getpgid(away) == away
    scene.befalls()
    os.kill(driver, signal.SIGKILL)
    scene.within(lambda: not is_alive(away), "the daemon has ended")


@row
def test_driver_that_stands_still_past_its_limits_is_ended(scene: Scene) -> None:
    scene.begin(f"{ONE}\n{HASTY}")
    scene.befalls()
    scene.put("a", "stop", cause="hung")
    scene.is_claimed("a")
    scene.put("b")
    scene.within(lambda: scene.published("b"), "the next one is done")
    assert scene.count("hung", "one-1") == 1


@row
def test_driver_that_stood_still_goes_on(scene: Scene) -> None:
    scene.write(f"{ONE}\ndrivers = 2")
    scene.run()
    scene.until(lambda: scene.count("ready") == 2, "both are ready")
    scene.put("a", "wait")
    scene.is_working("a")
    (busy,) = (one.pid for one in scene.until(lambda: busy_ones(scene), "one is busy"))
    with stopped(busy):
        scene.put("b")
        scene.until(lambda: scene.published("b"), "the other one works")
    scene.befalls()
    scene.go()
    scene.within(lambda: scene.published("a"), "it goes on")
    assert scene.count("exited") == 0


def busy_ones(scene: Scene) -> list[object]:
    return [one for one in scene.drivers().values() if one.state == "busy"]


@row
def test_stage_that_cannot_start_is_left_alone_until_a_restart(scene: Scene) -> None:
    (scene.root / "server.py").write_text(SERVER)
    scene.write(
        f'{ONE}\noutput = "out"',
        'name = "two"\ninput = "other"\nserver = ["python3", "server.py"]\n'
        "max_unhealthy = 2\ndrivers = 2",
    )
    scene.put("a", queue="other")
    scene.run()
    scene.befalls()
    scene.within(lambda: scene.count("degraded") == 1, "the stage is degraded")
    scene.put("b")
    scene.until(lambda: scene.published("b"), "the other stage works")
    scene.until(lambda: "crash-looped" in scene.shown(), "it is shown")
    (scene.root / "up").touch()
    assert scene.command("restart", "two").returncode == 0
    scene.until(lambda: scene.published("a"), "it is mended")


@row
def test_status_of_a_pipeline_of_which_nothing_works_does_not_end_with_0(scene: Scene) -> None:
    (scene.root / "server.py").write_text(SERVER)
    scene.write('name = "one"\nserver = ["python3", "server.py"]\ndrivers = 2')
    scene.put("a")
    watchdog = scene.run()
    scene.befalls()
    scene.within(lambda: scene.count("crash-looped") == 2, "both are crash-looped")
    # The report is written a moment later.
    scene.within(lambda: scene.command("status").returncode != 0, "it is no success")
    assert "crash-looped" in scene.shown()
    watchdog.terminate()
    scene.ends(watchdog)
    (scene.root / "up").touch()


@row
def test_stage_whose_import_fails_for_a_while_recovers_by_itself(scene: Scene) -> None:
    (scene.root / "asking.py").write_text(
        "import os\n"
        f"if not os.path.exists({str(scene.root / 'up')!r}):\n"
        "    raise ConnectionRefusedError(111, 'Connection refused')\n" + PASSES
    )
    scene.write(f'{ONE}\noutput = "out"', 'name = "two"\ninput = "other"\ncall = "asking:process"')
    scene.put("a", queue="other")
    scene.put("b")
    scene.run()
    scene.until(lambda: scene.published("b"), "the other stage works")
    scene.until(lambda: scene.count("exited", "two-1") >= 3, "it was tried again and again")
    scene.befalls()
    (scene.root / "up").touch()
    scene.within(lambda: scene.published("a"), "it works")


@row
def test_drain_of_a_stage_that_can_never_work_ends(scene: Scene) -> None:
    (scene.root / "broken.py").write_text(
        "import os\nif os.environ.get('BROKEN'): import nowhere\n" + PASSES
    )
    scene.write('name = "one"\ncall = "broken:process"\ndrivers = 2\nenv = { BROKEN = 1 }', TWO)
    scene.put("a")
    watchdog = scene.run("--drain")
    scene.befalls()
    said = scene.ends(watchdog, code=78)
    assert "one" in said
    assert "nowhere" in said
    assert "left before all was through: stage one: " in scene.shown()
    assert scene.ls("input") == ["a.ready"]
    (scene.root / "broken.py").write_text(PASSES)


@row
def test_driver_that_not_even_sigkill_ends_is_replaced(scene: Scene) -> None:
    with closing(Silent(scene.root / "silent")) as silent:
        scene.add(STUCK.format(path=silent.path))
        watchdog = scene.begin(
            'name = "one"\ncall = "stages:look"\nmax_memory = "100 MB"\nretries = 0', TWO
        )
        scene.befalls()
        scene.put("stuck", cause="memory")
        scene.within(lambda: scene.count("unkillable") == 1, "it cannot be killed")
        scene.put("a")
        scene.within(lambda: scene.published("a"), "another one works")
        assert scene.driver("one-2")
        stuck = scene.a_driver()
        watchdog.terminate()
        scene.ends(watchdog)
        assert scene.all_pids() == [stuck]
        silent.close()
        scene.until(lambda: scene.all_pids() == [], "it has ended")
