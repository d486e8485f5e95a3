"""What befalls the watchdog's other processes, and itself: the rows of `PROCESSES` and `KILLED`."""

import os
import signal
from pathlib import Path

import pytest

from tests.contract.watchdog_scene import Scene, hanging_root, later, row, stopped
from tests.testbed.fuse_rules import Rule
from tests.waiting import is_alive
from watchdogd.report import last_report

ONE = 'name = "one"\ncall = "stages:more"'
TWO = 'name = "two"\ninput = "other"\ncall = "stages:more"'
OUT = 'output = "out"'
PRELOADED = f"{ONE}\npreload = true"


# Another process stands still, or is killed


@row
def test_helper_that_stands_still_costs_time_alone(scene: Scene) -> None:
    scene.begin(f'{ONE}\ntimeout = "5 s"\nhard_after = "5 s"', f"{TWO}\n{OUT}")
    with stopped(scene.one("helper")):
        scene.befalls()
        scene.within(scene.waits_for_files, "it is noticed")
        scene.put("a")
        scene.put("b", queue="other")
        scene.until(lambda: scene.published("a", "b"), "drivers go on")
        os.kill(scene.a_driver(), signal.SIGKILL)
        scene.until(lambda: scene.count("exited", "one-1") == 1, "its end is noticed")
        assert not scene.driver()
    scene.befalls()
    scene.within(lambda: not scene.waits_for_files(), "all is well")
    scene.within(lambda: scene.count("restarted", "one-1") == 1, "the driver is replaced")
    assert scene.count("hung") == 0


@pytest.mark.parametrize("again", [False, True], ids=["at-once", "later"])
@row
def test_helper_that_is_killed_is_replaced(scene: Scene, again: bool) -> None:
    scene.write(ONE)
    scene.put("a", "wait")
    scene.run("--drain")
    if again:
        scene.is_working("a")
    first = scene.one("helper")
    scene.befalls()
    os.kill(first, signal.SIGKILL)
    scene.within(lambda: scene.sort("helper") not in ([], [first]), "another one is there")
    scene.is_working("a")


@row
def test_driver_is_replaced_though_the_helper_was_killed_with_it(scene: Scene) -> None:
    watchdog = scene.begin(ONE)
    helper, driver = scene.one("helper"), scene.a_driver()
    before = scene.count("waiting-fs")
    scene.befalls()
    scene.end_all(helper, driver)
    scene.within(lambda: scene.driver() not in (0, driver), "another driver is there")

    def is_known() -> bool:
        # On a busy host there may be another one by now.
        scene.end_all(*scene.sort("helper"))
        told = last_report(str(scene.local()))
        return told is not None and any(words in note for note in told.notes)

    words = "looks after the queues is not there"
    scene.until(is_known, "its watchdog knows")
    # Nor is there another one before `status` has looked.
    with stopped(watchdog.pid):
        assert words in scene.shown()
    assert scene.count("waiting-fs") == before
    scene.until(lambda: scene.sort("helper") not in ([], [helper]), "another one is there")


@row
def test_template_that_stands_still_is_replaced(scene: Scene) -> None:
    stage = f"{PRELOADED}\ndrivers = 2"
    watchdog = scene.begin(stage)
    scene.until(lambda: len(scene.drivers_here()) == 2, "both are there")
    template = scene.one("template")
    with stopped(template):
        scene.reread(watchdog, f'{stage}\nstartup_timeout = "2 s"')
        scene.befalls()
        # Both, for one may have been forked in advance.
        scene.end_all(*scene.drivers_here())
        scene.within(lambda: not is_alive(template), "it is ended")
        # On a busy host the next one takes longer to load.
        scene.reread(watchdog, stage)
        scene.within(lambda: len(scene.drivers_here()) == 2, "both drivers are replaced")


@row
def test_template_that_is_killed_is_loaded_again(scene: Scene) -> None:
    scene.begin(PRELOADED)
    scene.put("a", "wait")
    scene.is_working("a")
    template, driver = scene.one("template"), scene.a_driver()
    scene.befalls()
    os.kill(template, signal.SIGKILL)
    scene.within(lambda: scene.sort("template") not in ([], [template]), "it is loaded again")
    assert scene.driver() == driver


@row
def test_warden_that_is_killed_is_replaced(scene: Scene) -> None:
    scene.begin(ONE)
    first = scene.one("warden")
    # What a service manager may send to everybody does not touch it.
    scene.until(lambda: ignores(first, signal.SIGTERM), "it has begun")
    os.kill(first, signal.SIGTERM)
    assert is_alive(first)
    scene.befalls()
    os.kill(first, signal.SIGKILL)
    scene.within(lambda: scene.sort("warden") not in ([], [first]), "another one is there")


def ignores(pid: int, number: int) -> bool:
    """Whether a process has said that it ignores a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
    return bool(ignored & 1 << number - 1)


@row
def test_warden_that_stood_still_ends_what_is_left_when_it_goes_on(scene: Scene) -> None:
    watchdog = scene.begin(f"{ONE}\ngrace = 0")
    scene.put("a", "ignore once", charged=False)
    scene.is_hanging("a")
    with stopped(scene.one("warden")):
        scene.kill(watchdog)
        scene.until(lambda: not scene.sort("helper"), "the helper has left")
        assert scene.driver()
    scene.befalls()
    scene.within(lambda: scene.all_pids() == [], "nothing is left")
    mend(scene)


def mend(scene: Scene) -> None:
    """Let documents that hang do so no more."""
    path = scene.root / "stages.py"
    path.write_text(path.read_text() + "\n\ndef more(document):\n    return document.read()\n")


@row
def test_command_for_events_that_hangs_keeps_nobody(scene: Scene) -> None:
    hangs = "on_event = ['sh', '-c', 'trap \"\" TERM; while :; do sleep 3600; done']"
    scene.write(ONE, pipeline=hangs)
    for docid in "abc":
        scene.put(docid)
    scene.befalls()
    scene.ends(scene.run("--drain"))
    assert scene.published("a", "b", "c")
    scene.within(lambda: scene.all_pids() == [], "the command has ended, too")


@row
def test_watchdog_that_stands_still_says_so_and_goes_on(scene: Scene) -> None:
    watchdog = scene.begin(f"{ONE}\n{OUT}", TWO)
    killed = scene.a_driver("two-1")
    with stopped(watchdog.pid):
        scene.befalls()
        scene.put("a")
        os.kill(killed, signal.SIGKILL)
        scene.put("b", queue="other")
        scene.within(lambda: scene.published("a"), "drivers go on")
        with later(scene, 120):
            shown = scene.command("status")
    scene.befalls()
    scene.within(lambda: scene.published("b"), "the driver that died is replaced")
    assert shown.returncode == 4, shown.stdout


# The watchdog is killed


@pytest.mark.quick
@pytest.mark.parametrize("preload", ["false", "true"])
@row
def test_drivers_of_a_killed_watchdog_finish_and_leave(scene: Scene, preload: str) -> None:
    watchdog = scene.begin(f"{ONE}\npreload = {preload}\ndrivers = 2")
    scene.put("a", "wait")
    scene.put("b", "wait")
    scene.is_working("a")
    scene.is_working("b")
    scene.kill(watchdog)
    scene.go()
    scene.within(lambda: scene.published("a", "b"), "they finish their documents")
    scene.within(lambda: scene.all_pids() == [], "nothing is left")


@pytest.mark.parametrize("preload", ["false", "true"])
@row
def test_what_hears_nothing_does_not_outlive_the_watchdog(scene: Scene, preload: str) -> None:
    more = f"{OUT}\ngrace = 0\npreload = {preload}"
    watchdog = scene.begin(
        f"{ONE}\n{more}",
        f"{TWO}\n{more}",
        f'name = "three"\ninput = "third"\ncall = "stages:more"\n{more}',
        f'name = "four"\ninput = "fourth"\ncall = "stages:more"\n{more}',
    )
    scene.put("a", "deaf")
    scene.put("b", "ignore", queue="other")
    scene.put("c", "masked", queue="third")
    scene.put("d", "fork", queue="fourth")
    for docid in "abc":
        scene.is_hanging(docid)
    scene.until(lambda: scene.published("d"), "a daemon runs")
    scene.kill(watchdog)
    scene.within(lambda: scene.all_pids() == [], "nothing is left")
    mend(scene)


@row
def test_each_driver_of_a_killed_watchdog_has_its_own_grace(scene: Scene) -> None:
    watchdog = scene.begin(f'{ONE}\n{OUT}\ngrace = "1 h"', f"{TWO}\ngrace = 0")
    scene.put("a", "wait")
    scene.put("b", "ignore", queue="other")
    scene.is_working("a")
    scene.is_hanging("b")
    one, two = scene.a_driver(), scene.a_driver("two-1")
    scene.kill(watchdog)
    scene.within(lambda: not is_alive(two), "one without a grace is ended")
    assert is_alive(one)
    scene.befalls()
    scene.go()
    scene.within(lambda: scene.all_pids() == [], "nothing is left")
    assert scene.published("a")
    mend(scene)


@row
def test_watchdog_that_is_killed_while_the_root_hangs_leaves_nothing(scene: Scene) -> None:
    with hanging_root(scene) as root:
        watchdog = scene.begin(f"{ONE}\n{OUT}\ngrace = 0", f"{TWO}\ngrace = 0")
        scene.put("a", "ignore")
        scene.is_hanging("a")
        deaf = scene.a_driver()
        root.fail(Rule("*", hold=True))
        scene.until(scene.waits_for_files, "it is noticed")
        scene.kill(watchdog)
        scene.within(lambda: not is_alive(deaf), "one that does not wait for it is ended")
        root.heal()
        scene.befalls()
        scene.within(lambda: scene.all_pids() == [], "nothing is left")
        mend(scene)
        scene.account()


@row
def test_watchdog_that_is_killed_without_a_helper_leaves_nothing(scene: Scene) -> None:
    watchdog = scene.begin(f"{ONE}\ngrace = 0")
    scene.put("a", "ignore")
    scene.is_hanging("a")
    with stopped(watchdog.pid):
        os.kill(scene.one("helper"), signal.SIGKILL)
        scene.kill(watchdog)
    scene.within(lambda: scene.all_pids() == [], "nothing is left")
    mend(scene)


@pytest.mark.parametrize("preload", ["false", "true"])
@row
def test_drivers_to_be_adopted_outlive_the_watchdog_and_are_adopted(
    scene: Scene, preload: str
) -> None:
    watchdog = scene.begin(f"{ONE}\npreload = {preload}\ngrace = 0", pipeline="adopt = true")
    scene.put("a", "wait")
    scene.is_working("a")
    driver = scene.a_driver()
    scene.kill(watchdog)
    scene.until(lambda: not scene.sort("helper"), "the helper has left")
    scene.run()
    scene.befalls()
    scene.within(lambda: scene.count("adopted", "one-1") == 1, "it is adopted")
    scene.go()
    scene.within(lambda: scene.published("a"), "it goes on")
    assert (scene.driver(), scene.begun()) == (driver, ["a"])
    scene.befalls()
    os.kill(driver, signal.SIGKILL)
    scene.put("b")
    scene.within(lambda: scene.published("b"), "it is replaced")


@pytest.mark.parametrize("preload", ["false", "true"])
@row
def test_what_an_adopted_driver_sent_away_ends_with_it(scene: Scene, preload: str) -> None:
    watchdog = scene.begin(f"{ONE}\npreload = {preload}", pipeline="adopt = true")
    # While it is the only one that is called so: the daemon is, too.
    driver = scene.a_driver()
    scene.put("a", "fork")
    scene.until(lambda: scene.published("a"), "a daemon runs")
    away = int((scene.root / "away").read_text())
    scene.kill(watchdog)
    scene.run()
    scene.until(lambda: scene.count("adopted", "one-1") == 1, "it is adopted")
    assert is_alive(away)
    scene.befalls()
    os.kill(driver, signal.SIGKILL)
    scene.within(lambda: not is_alive(away), "the daemon has ended")


@row
def test_driver_that_has_only_begun_ends_with_a_killed_watchdog_that_adopts(scene: Scene) -> None:
    begins = scene.root / "begins"
    begins.mkdir()
    # Before it imports anything of ours it waits; and leaves its pid when it does.
    (begins / "sitecustomize.py").write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "here = Path(__file__).parent\n"
        "(here / f'waits-{os.getpid()}').touch()\n"
        "while not (here / 'go').exists():\n"
        "    time.sleep(0.01)\n"
    )
    scene.write(f"{ONE}\nenv = {{ PYTHONPATH = '{begins}' }}", pipeline="adopt = true")
    scene.put("a")
    watchdog = scene.run()
    began = scene.until(lambda: [*begins.glob("waits-*")], "a driver has begun")
    unknown = int(began[0].name.removeprefix("waits-"))
    scene.kill(watchdog)
    (begins / "go").touch()
    scene.run()
    scene.within(lambda: scene.published("a"), "another one is started")
    assert scene.driver() not in (0, unknown)
    scene.within(lambda: not is_alive(unknown), "it has ended")


@row
def test_template_that_hears_nothing_ends_with_a_killed_watchdog_that_adopts(scene: Scene) -> None:
    scene.add(
        "\nif (HERE / 'deaf').exists():\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    (HERE / 'loads').touch()\n"
        "    while True:\n"
        "        time.sleep(3600)\n"
    )
    (scene.root / "deaf").touch()
    scene.write(PRELOADED, pipeline="adopt = true")
    watchdog = scene.run()
    scene.until((scene.root / "loads").exists, "it loads")
    template = scene.one("template")
    scene.kill(watchdog)
    scene.within(lambda: not is_alive(template), "it has ended")
    (scene.root / "deaf").unlink()


@row
def test_command_that_hears_nothing_ends_with_a_killed_watchdog_that_adopts(scene: Scene) -> None:
    deaf = "on_event = ['sh', '-c', 'trap \"\" TERM; while :; do sleep 3600; done']"
    watchdog = scene.begin(ONE, pipeline=f"adopt = true\n{deaf}")
    driver = scene.a_driver()
    scene.kill(watchdog)
    scene.within(lambda: scene.all_pids() == [driver], "the commands have ended")
    scene.write(ONE, pipeline="adopt = true")
    scene.run()
    scene.until(lambda: scene.count("adopted", "one-1") == 1, "the driver goes on")


@row
def test_next_watchdog_lets_the_drivers_finish(scene: Scene) -> None:
    watchdog = scene.begin(f'{ONE}\ngrace = "1 h"')
    scene.put("a", "wait")
    scene.is_working("a")
    driver = scene.a_driver()
    scene.kill(watchdog)
    scene.run("--drain")
    scene.befalls()
    scene.within(lambda: scene.count("adopted", "one-1") == 1, "it waits for it")
    assert scene.count("restarted") == 0
    scene.go()
    scene.within(lambda: not is_alive(driver), "it has left")
    scene.until(lambda: scene.published("a"), "its document is done")
    assert scene.begun() == ["a"]
