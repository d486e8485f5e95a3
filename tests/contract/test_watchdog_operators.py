"""What people do: the rows of `watchdog_events.OPERATORS`."""

import os
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from tests.contract.watchdog_scene import COPIES, Manager, Scene, queuedriver, row

ONE = 'name = "one"\ncall = "stages:more"'
TWO = 'name = "two"\ncall = "stages:more"'
THREE = 'name = "three"\ncall = "stages:more"'


# Leaving


@row
def test_term_is_heard_while_many_drivers_start(scene: Scene) -> None:
    with closing(Manager(scene)) as manager:
        scene.write(f"{ONE}\ndrivers = 100")
        watchdog = scene.run()
        scene.until(scene.drivers_here, "the first has been started")
        scene.befalls()
        watchdog.terminate()
        scene.within(lambda: manager.said("STOPPING=1"), "TERM is heard")
        scene.until(lambda: watchdog.poll() is not None, "it has left")
        assert scene.count("started") < 100


@contextmanager
def standing_still(scene: Scene, kind: str) -> Iterator[str]:
    """Make a terminal, or a pipe, that takes nothing; return its path."""
    if kind == "terminal":
        fds = os.openpty()
        path = os.ttyname(fds[1])
        termios.tcflow(fds[1], termios.TCOOFF)
    else:
        path = str(scene.root / "pipe")
        os.mkfifo(path)
        fds = os.open(path, os.O_RDWR | os.O_NONBLOCK), os.open(path, os.O_WRONLY)
        with suppress(BlockingIOError):
            while True:
                os.write(fds[0], b"x")
    try:
        yield path
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
@row
def test_terminal_that_stands_still_keeps_nobody(scene: Scene, kind: str) -> None:
    with closing(Manager(scene)) as manager, standing_still(scene, kind) as path:
        scene.write(ONE)
        watchdog = scene.run(under=("sh", "-c", 'exec "$@" 2>"$0"', path))
        scene.put("a")
        scene.until(lambda: scene.published("a"), "its documents go on")
        scene.befalls()
        watchdog.terminate()
        scene.within(lambda: manager.said("STOPPING=1"), "TERM is heard")
        scene.until(lambda: watchdog.poll() is not None, "it has left")


@pytest.mark.quick
@row
def test_stages_leave_from_the_first_to_the_last(scene: Scene) -> None:
    watchdog = scene.begin(f"{ONE}\ndrivers = 2", TWO, THREE)
    for docid in "ab":
        scene.put(docid, "wait")
    for docid in "ab":
        scene.is_working(docid)
    watchdog.terminate()
    scene.until(lambda: "draining" in scene.states().values(), "it is leaving")
    scene.befalls()
    scene.go()
    scene.ends(watchdog)
    left = [one["stage"] for one in scene.events() if one["event"] == "exited"]
    assert left == ["one", "one", "two", "three"]
    # What the first stage finished, the later ones may have begun.
    assert scene.ls("input") == []


@pytest.mark.parametrize("how", ["twice", "QUIT", "stop --now"])
@row
def test_documents_are_given_back_when_it_is_told_twice(scene: Scene, how: str) -> None:
    scene.write(ONE)
    scene.put("a", "wait")
    watchdog = scene.run("--drain")
    scene.is_working("a")
    scene.befalls()
    match how:
        case "twice":
            watchdog.terminate()
            scene.within(lambda: "draining" in scene.states().values(), "it leaves")
            scene.within(lambda: told_again(scene, watchdog), "its driver has left")
        case "QUIT":
            watchdog.send_signal(signal.SIGQUIT)
        case _:
            assert scene.command(*how.split()).returncode == 0
    # Not everything is through.
    scene.ends(watchdog, code=75)
    assert scene.ls("input") == ["a.ready"]
    assert scene.count("killed") == 0


@row
def test_end_is_the_same_however_often_it_is_asked_for(scene: Scene) -> None:
    scene.write(ONE)
    scene.put("a")
    watchdog = scene.run()
    scene.within(lambda: scene.ls("one") == ["a.ready"], "it is through")
    scene.befalls()

    def ask() -> bool:
        watchdog.terminate()
        return watchdog.poll() is not None

    scene.within(ask, "it has ended")
    scene.ends(watchdog)


def told_again(scene: Scene, watchdog: "subprocess.Popen[str]") -> bool:
    """Tell it once more, unless its driver has left. Two signals of one moment are one wish, as
    both may be of one key, so that one may not do."""
    if scene.count("exited"):
        return True
    watchdog.terminate()
    return False


@row
def test_quit_file_is_for_the_watchdogs_that_run(scene: Scene) -> None:
    watchdog = scene.begin(ONE)
    scene.befalls()
    assert scene.command("stop").returncode == 0
    scene.ends(watchdog)
    scene.put("a")
    scene.run()
    scene.befalls()
    scene.within(lambda: scene.published("a"), "the next one works")


# Control files

# Every kind of stage, by its name; none of them says what memory it takes.
KINDS = {
    "called": 'call = "stages:more"',
    "ordered": 'command = ["cat"]',
    "served": 'server = ["python3", "server.py"]',
    "loaded": 'call = "stages:more"\npreload = true',
}
# What may be in each file, for a stage where it is about one; and how many drivers there are then.
SAID = {
    "scale-{stage}": "2\n",
    "scale-{stage}@rose": "2\n",
    "scale-nobody": "4\n",
    "scale-{stage}@fern": "0\n",
    "restart-{stage}-1935410602": "",
    "restart-{stage}-1@rose-1935410602": "",
    "reload-1935410602": "",
    "QUIT": "now\n",
}
TOGETHER = [
    pytest.param(("scale-{stage}",), 2, id="scale"),
    pytest.param(("scale-{stage}@rose", "scale-nobody"), 2, id="scale-here"),
    pytest.param(tuple(SAID)[3:], 1, id="others"),
]


def of_each_kind(scene: Scene, more: str = "") -> None:
    """Stages of every kind, one after the other."""
    (scene.root / "server.py").write_text(COPIES)
    scene.write(*(f'name = "{name}"\n{work}\n{more}' for name, work in KINDS.items()))


def say(scene: Scene, name: str, text: str) -> None:
    """Write a control file, for each stage if its name has one."""
    directory = scene.root / "queues/.watchdogd"
    directory.mkdir(parents=True, exist_ok=True)
    for stage in KINDS:
        (directory / name.format(stage=stage)).write_text(text)


@pytest.mark.parametrize(("names", "drivers"), TOGETHER)
@row
def test_control_file_is_there_at_the_first_start(
    scene: Scene, names: tuple[str, ...], drivers: int
) -> None:
    of_each_kind(scene)
    scene.put("a")
    for name in names:
        say(scene, name, SAID[name])
    scene.befalls()
    scene.ends(scene.run("--drain"))
    started = {one["driver"] for one in scene.events() if one["event"] == "started"}
    assert started == {f"{stage}-{number + 1}" for stage in KINDS for number in range(drivers)}


@row
def test_every_control_file_is_there_at_the_first_start(scene: Scene) -> None:
    of_each_kind(scene)
    scene.put("a")
    for name, text in {**SAID, "PAUSE": ""}.items():
        say(scene, name, text)
    watchdog = scene.run("--drain")
    scene.befalls()
    scene.within(lambda: [*scene.states().values()] == ["ready"] * 8, "all drivers are there")
    assert "a.ready" in scene.ls("input")
    assert scene.command("resume").returncode == 0
    scene.ends(watchdog)


@pytest.mark.parametrize("drivers", ["", "drivers = 0"])
@row
def test_number_outlives_the_watchdog_that_it_was_said_to(scene: Scene, drivers: str) -> None:
    of_each_kind(scene, drivers)
    say(scene, "scale-{stage}", "1")
    for docid in "ab":
        scene.put(docid)
        watchdog = scene.run()
        scene.befalls()
        scene.within(lambda: scene.published(docid), "it is through")  # noqa: B023 - at once
        watchdog.terminate()
        scene.ends(watchdog)


@row
def test_stage_without_drivers_gets_them_while_it_runs(scene: Scene) -> None:
    of_each_kind(scene, "drivers = 0")
    scene.put("a")
    scene.run()
    scene.until(lambda: scene.status() is not None, "it runs")
    scene.befalls()
    assert scene.command("scale", *(f"{stage}=1" for stage in KINDS)).returncode == 0
    scene.within(lambda: scene.published("a"), "it is through")


@row
def test_stage_that_a_reload_adds_gets_what_was_asked_for_before(scene: Scene) -> None:
    say(scene, "scale-{stage}", "1")
    watchdog = scene.begin(f'name = "called"\n{KINDS["called"]}')
    of_each_kind(scene, "drivers = 0")
    scene.put("a", queue="called")
    scene.befalls()
    watchdog.send_signal(signal.SIGHUP)
    scene.within(lambda: scene.published("a"), "it is through")


@row
def test_huge_number_is_asked_back(scene: Scene) -> None:
    scene.begin(ONE, more='[host]\nmemory = "100 MB"')
    asked = scene.command("scale", "one=9999")
    assert asked.returncode == 2
    assert not (scene.root / "queues/.watchdogd/scale-one").exists()
    assert scene.command("scale", "one=9999", "--yes").returncode == 0
    scene.befalls()
    scene.within(lambda: "there is no room for 9,999" in scene.shown(), "it is explained")
    assert len(scene.drivers_here()) < 6


# Another file


@row
def test_stage_that_comes_back_before_its_driver_has_left_goes_on(scene: Scene) -> None:
    other = f'{TWO}\ninput = "other"'
    watchdog = scene.begin(f'{ONE}\noutput = "out"', other)
    scene.put("a", "wait", queue="other")
    scene.is_working("a")
    scene.befalls()
    scene.reread(watchdog, f'{ONE}\noutput = "out"')
    scene.within(lambda: scene.states().get("two-1") == "draining", "its driver is to leave")
    scene.reread(watchdog, f'{ONE}\noutput = "out"', other)
    scene.put("b", queue="other")
    scene.befalls()
    scene.go()
    scene.within(lambda: scene.published("a", "b"), "both are done")
    assert scene.begun() == ["a"]
    assert scene.count("killed") == 0


@pytest.mark.parametrize("preload", ["false", "true"])
@row
def test_reload_with_a_typo_leaves_the_drivers_at_work(scene: Scene, preload: str) -> None:
    watchdog = scene.begin(f"{ONE}\npreload = {preload}")
    driver = scene.a_driver()
    scene.write(f'name = "one"\ncall = "stages:moer"\npreload = {preload}')
    scene.befalls()
    watchdog.send_signal(signal.SIGHUP)
    scene.within(lambda: scene.count("reload-refused") == 1, "it is refused")
    scene.within(lambda: "moer" in scene.shown(), "status says so")
    scene.put("a")
    scene.until(lambda: scene.published("a"), "the driver of before goes on")
    assert scene.driver() == driver


@row
def test_document_at_hand_keeps_the_limits_that_its_driver_was_told(scene: Scene) -> None:
    watchdog = scene.begin(f'{ONE}\ntimeout = "1 h"')
    scene.put("a", "wait")
    scene.is_working("a")
    begun_at = time.monotonic()
    scene.until(lambda: time.monotonic() > begun_at + 2.0, "it takes longer than it will have")
    scene.befalls()
    scene.reread(watchdog, f'{ONE}\ntimeout = "500 ms"\nhard_after = "1500 ms"')
    scene.within(lambda: scene.states().get("one-1") == "draining", "another is to take its place")
    scene.go()
    scene.within(lambda: scene.published("a"), "it is finished")
    assert scene.count("hung") == 0
    scene.put("b", "hang", cause="timeout")


@row
def test_drivers_that_disagree_with_an_old_one_come_when_it_has_left(scene: Scene) -> None:
    watchdog = scene.begin(f'{ONE}\ngrace = "1 h"')
    scene.put("a", "wait")
    scene.is_working("a")
    scene.kill(watchdog)
    scene.write(f"{ONE}\nretries = 7\ndrivers = 2")
    scene.run()
    scene.until(lambda: scene.count("exited", "one-2"), "the second one disagrees with the first")
    assert scene.count("crash-looped") == 0
    scene.befalls()
    scene.go()
    scene.within(lambda: scene.count("ready") >= 3, "both are there")


@row
def test_claims_of_other_settings_are_recovered_before_many_drivers_come(scene: Scene) -> None:
    watchdog = scene.begin(ONE)
    scene.put("a", "wait")
    scene.is_working("a")
    scene.kill_all(watchdog)
    scene.write(f"{ONE}\nretries = 7\ndrivers = 16")
    scene.go()
    scene.befalls()
    scene.run()
    scene.within(lambda: scene.published("a"), "it is tried again")


@row
def test_second_watchdog_on_one_pipeline_is_refused(scene: Scene) -> None:
    second(scene, "state")


@row
def test_second_watchdog_with_other_records_is_refused(scene: Scene) -> None:
    second(scene, "other-state")


def second(scene: Scene, records: str) -> None:
    """Start a second watchdog with its records in a directory of this name."""
    first = scene.begin(ONE)
    scene.until(lambda: scene.status() is not None, "it has told of itself")
    scene.environ["WATCHDOGD_STATE"] = str(scene.root / records)
    scene.befalls()
    said = scene.ends(scene.run(), code=69)
    scene.environ["WATCHDOGD_STATE"] = str(scene.root / "state")
    assert str(first.pid) in said


@row
def test_burst_into_closed_queues_loads_no_model_again(scene: Scene) -> None:
    # What is there at once is not kept.
    (scene.root / "model.py").write_text(
        "import time\ntime.sleep(1.2)\n\ndef process(document):\n    return document.read()\n"
    )
    scene.begin(*(f'name = "{name}"\ncall = "model:process"' for name in ("one", "two", "three")))
    drivers = scene.drivers_here()
    for burst in range(3):
        queuedriver(scene, "close", "queues/input")
        scene.until((scene.root / "queues/two/done").exists, "all are closed")
        (scene.root / f"d{burst}").write_text("text")
        scene.expect(f"d{burst}")
        scene.befalls()
        queuedriver(scene, "put", "--reopen", "queues/input", f"d{burst}")
        scene.within(lambda: scene.published(f"d{burst}"), "it is through")  # noqa: B023 - at once
    assert scene.drivers_here() == drivers
