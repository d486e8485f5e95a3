"""What befalls the host: the rows of `watchdog_events.HOST`."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from queuedriver.driving.lifetime import LEAVING_TAKES
from tests.contract.watchdog_scene import Clock, Manager, Scene, hanging_root, row
from tests.disks import Disk
from tests.testbed.fuse_rules import Rule

ONE = 'name = "one"\ncall = "stages:more"'
TWO = 'name = "two"\ncall = "stages:more"'


@contextmanager
def disk(scene: Scene, size: str) -> Iterator[Disk]:
    """A small disk, which goes when nothing of the scene runs any more."""
    with closing(Disk(scene.root / "disk", f"size={size}")) as disk:
        yield disk
        scene.account()
        scene.__exit__()


@row
def test_full_local_disk_stops_nobody(scene: Scene) -> None:
    with disk(scene, "1m") as local:
        (local.path / "run").mkdir()
        scene.environ |= {
            "WATCHDOGD_STATE": str(local.path / "state"),
            "XDG_RUNTIME_DIR": str(local.path / "run"),
        }
        scene.begin(ONE)
        local.fill()
        scene.put("a")
        scene.until(lambda: scene.published("a"), "documents go on")
        driver = scene.a_driver()
        scene.befalls()
        os.kill(driver, signal.SIGKILL)
        scene.put("b")
        scene.within(lambda: scene.published("b"), "the driver is replaced")
        local.empty()


@row
def test_records_that_are_removed_are_made_again(scene: Scene) -> None:
    scene.begin(f"{ONE}\ndrivers = 2")
    scene.until(lambda: len(scene.drivers_here()) == 2, "both are there")
    scene.befalls()
    scene.lose_records()
    killed = scene.a_driver()
    os.kill(killed, signal.SIGKILL)
    scene.put("a")
    scene.until(lambda: scene.published("a"), "documents go on")
    scene.within(lambda: len({*scene.drivers_here()} - {killed}) == 2, "the driver is replaced")
    scene.within(lambda: scene.command("status").returncode == 0, "status finds it")
    scene.until(lambda: list(scene.root.glob("state/*/report.json")), "its report is there")


@row
def test_full_disk_of_the_queues_costs_time_alone(scene: Scene) -> None:
    with disk(scene, "2m") as queues:
        (queues.path / "queues").mkdir()
        (scene.root / "queues").symlink_to(queues.path / "queues")
        scene.write(
            f"{ONE}\ndrivers = 2", TWO, 'name = "three"\ncommand = ["cat"]', pipeline="retries = 0"
        )
        for number in range(60):
            scene.put(f"d{number}", f"slow 0.04 {'x' * 500}")
        scene.run("--drain")
        scene.until(lambda: scene.ls("three"), "it works")
        queues.fill()
        scene.until(scene.waits_for_files, "it is noticed")
        scene.befalls()
        queues.empty()
        scene.within(lambda: len(scene.ls("three")) == 60, "all goes on")
        assert scene.count("crash-looped") == 0


@row
def test_status_answers_while_the_root_hangs(scene: Scene) -> None:
    with hanging_root(scene) as root:
        scene.begin(f"{ONE}\ngrace = 0")
        root.fail(Rule("*", hold=True))
        scene.until(scene.waits_for_files, "it is noticed")
        scene.befalls()
        with scene.asked("status") as status:
            scene.within(lambda: status.poll() is not None, "status answers")
            shown, _ = status.communicate()
        assert (status.returncode, "does not answer" in shown) == (0, True), shown
        root.heal()
        scene.account()


@row
def test_term_is_heard_while_the_root_hangs(scene: Scene) -> None:
    with hanging_root(scene) as root, closing(Manager(scene)) as manager:
        watchdog = scene.begin(f"{ONE}\ngrace = 0")
        root.fail(Rule("*", hold=True))
        scene.until(scene.waits_for_files, "it is noticed")
        scene.befalls()
        watchdog.terminate()
        scene.within(lambda: manager.said("STOPPING=1"), "TERM is heard")
        root.heal()
        scene.until(lambda: watchdog.poll() is not None, "it leaves")
        scene.account()


@row
def test_root_that_is_moved_away_is_waited_for(scene: Scene) -> None:
    root, away = scene.root / "mounted", scene.root / "unmounted"
    root.mkdir()
    (scene.root / "queues").symlink_to(root)
    scene.begin(ONE, TWO)
    scene.befalls()
    root.rename(away)
    scene.within(scene.waits_for_files, "it is noticed")
    scene.within(lambda: scene.count("exited") >= 2, "the drivers have left")
    assert not root.exists()
    scene.befalls()
    away.rename(root)
    scene.put("a")
    scene.within(lambda: not scene.waits_for_files(), "it is back")
    scene.within(lambda: scene.published("a"), "all goes on")


@pytest.mark.parametrize("preload", ["false", "true"])
@row
def test_clock_that_is_stepped_costs_nothing(scene: Scene, preload: str) -> None:
    clock = Clock(scene)
    scene.begin(f'{ONE}\npreload = {preload}\ntimeout = "1 min"', f"{TWO}\ndrivers = 2")
    for docid, ahead in (("a", 3600), ("b", -3600)):
        scene.put(docid, "wait")
        scene.is_working(docid)
        scene.befalls()
        clock.step(ahead)
        scene.put(f"{docid}-beside", queue="one")
        scene.within(lambda: scene.published(f"{docid}-beside"), "documents go on")  # noqa: B023
        # As a second step says, nobody is taken for dead: it looks for the dead as well.
        assert "running" in scene.shown()
        scene.go()
        scene.within(lambda: scene.published(docid), "what was at hand, too")  # noqa: B023
        (scene.root / "go").unlink()
    assert scene.count("exited") == 0


@row
def test_host_with_few_descriptors_runs_the_drivers_it_can(scene: Scene) -> None:
    scene.write(f"{ONE}\ndrivers = 30")
    for number in range(30):
        scene.put(f"d{number}")
    scene.befalls()
    watchdog = scene.run(under=["sh", "-c", 'ulimit -n 32; exec "$@"', "sh"])
    scene.within(lambda: len(scene.ls("one")) == 30, "documents go through")
    scene.within(lambda: "backoff" in scene.states().values(), "some wait for descriptors")
    assert scene.count("crash-looped") == 0
    scene.befalls()
    watchdog.terminate()
    scene.ends(watchdog)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
@row
def test_watchdog_runs_whichever_descriptors_are_closed(scene: Scene, closed: str) -> None:
    scene.write(f"{ONE}\ndrivers = 2", 'name = "two"\ncommand = ["cat"]')
    scene.put("a")
    scene.befalls()
    watchdog = scene.run("--drain", under=["sh", "-c", f'exec "$@" {closed}', "sh"])
    scene.ends(watchdog)
    printed, _ = watchdog.communicate()
    assert printed == ""


# A host that is taken away


@row
def test_host_that_is_wanted_back_is_left_in_time(scene: Scene) -> None:
    scene.write(f'{ONE}\ndrivers = 2\ngrace = "200 ms"', 'name = "two"\ncommand = ["cat"]')
    for docid in "abc":
        scene.put(docid, "wait")
    until = time.time() + LEAVING_TAKES + 10.0
    watchdog = scene.run("--until", f"{until:.3f}")
    scene.is_working("a")
    scene.until(lambda: time.time() >= until - LEAVING_TAKES, "it is time")
    scene.befalls()
    said = scene.ends(watchdog)
    assert time.time() < until
    assert scene.ls("input") == ["a.ready", "b.ready", "c.ready"]
    assert "its time ends at" in said
    assert (scene.count("restarted"), scene.count("killed"), scene.count("hung")) == (0, 0, 0)


@row
def test_drivers_that_are_killed_while_they_leave_cost_nothing(scene: Scene) -> None:
    scene.write(ONE)
    scene.put("a", "wait")
    for _ in range(4):
        (scene.root / "begun").unlink(missing_ok=True)
        watchdog = scene.run()
        scene.is_working("a")
        watchdog.terminate()
        scene.until(scene.is_leaving, "its driver has told that it is to leave")
        # Its watchdog's end would be a second wish: then it gives back what it has by itself.
        scene.kill_all(watchdog, scene.a_driver())
    scene.befalls()
    scene.go()
    watchdog = scene.run()
    scene.within(lambda: scene.published("a"), "it is done")
    # A moment later it is in the journal, too.
    scene.until(lambda: scene.history("a")[-1:] == ["published"], "it is told")
    assert set(scene.history("a")) == {
        "released its driver was ended while it was leaving",
        "published",
    }


@row
def test_drivers_that_are_killed_with_their_watchdog_cost_nothing(scene: Scene) -> None:
    scene.write(ONE)
    scene.put("a", "wait")
    for _ in range(2):
        (scene.root / "begun").unlink(missing_ok=True)
        watchdog = scene.run()
        scene.is_working("a")
        scene.kill_all(watchdog, watchdog.pid)
    scene.befalls()
    scene.go()
    scene.run()
    scene.within(lambda: scene.published("a"), "it is done")
