"""What was said in `.watchdogd/` before a watchdog was started, and persists: it is no obstacle."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from tests.watchdogs import PATIENCE, Yard

COPIES = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    with open(asked["input"]) as given, open(asked["output"], "w") as made:
        made.write(given.read())
    print(json.dumps({"ok": True}), flush=True)
"""
# Every kind of stage, by its name; none of them says what memory it takes.
STAGES = {
    "called": 'call = "stages:shout"',
    "ordered": 'command = ["tr", "A-Z", "a-z"]',
    "served": 'server = ["python3", "server.py"]',
    "loaded": 'call = "stages:shout"\npreload = true',
}
# What may be in each file, for a stage where it is about one.
SAID = {
    "scale-{stage}": "2\n",
    "scale-{stage}@rose": "2\n",
    "scale-{stage}@fern": "0\n",
    "restart-{stage}-1935410602": "",
    "restart-{stage}-1@rose-1935410602": "",
    "reload-1935410602": "",
    "QUIT": "now\n",
    "scale-nobody": "4\n",
}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path) as yard:
        (tmp_path / "server.py").write_text(COPIES)
        yield yard


def write(yard: Yard, more: str = "") -> None:
    """Stages of every kind, one after the other."""
    yard.write(*(f'name = "{name}"\n{work}\n{more}' for name, work in STAGES.items()))
    yard.put("a")


def say(yard: Yard, name: str, text: str) -> None:
    """A control file, for each stage if its name has one."""
    directory = yard.root / "queues/.watchdogd"
    directory.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        (directory / name.format(stage=stage)).write_text(text)


def started(yard: Yard) -> set[str]:
    return {one["driver"] for one in yard.events() if one["event"] == "started"}


@pytest.mark.parametrize("name", SAID)
def test_watchdog_that_finds_a_control_file_at_its_first_start_drains(
    yard: Yard, name: str
) -> None:
    write(yard)
    say(yard, name, SAID[name])
    code, said = yard.drain()
    assert (code, yard.ls("loaded")) == (0, ["a.ready"]), said
    here = name in ("scale-{stage}", "scale-{stage}@rose")
    assert started(yard) == {
        f"{stage}-{number}" for stage in STAGES for number in ((1, 2) if here else (1,))
    }


def test_watchdog_that_finds_every_control_file_at_its_first_start_drains_once_resumed(
    yard: Yard,
) -> None:
    write(yard)
    for name, text in {**SAID, "PAUSE": ""}.items():
        say(yard, name, text)
    watchdog = yard.run("--drain")
    until(lambda: set(yard.states().values()) == {"ready"} and len(yard.states()) == 8)
    assert yard.ls("called") == ["PAUSE"]
    assert yard.command("resume").returncode == 0
    _, said = watchdog.communicate(timeout=PATIENCE)
    assert (watchdog.returncode, yard.ls("loaded")) == (0, ["a.ready"]), said


@pytest.mark.parametrize("drivers", ["", "drivers = 0"])
def test_number_outlives_the_watchdog_that_it_was_said_to(yard: Yard, drivers: str) -> None:
    write(yard, drivers)
    say(yard, "scale-{stage}", "1")
    for docid in ("a", "b"):
        yard.put(docid)
        watchdog = yard.run()
        until(lambda: f"{docid}.ready" in yard.ls("loaded"))  # noqa: B023 - polled at once
        watchdog.terminate()
        _, said = watchdog.communicate(timeout=PATIENCE)
        assert watchdog.returncode == 0, said


def test_stage_without_drivers_gets_them_from_an_operator_while_it_runs(yard: Yard) -> None:
    write(yard, "drivers = 0")
    yard.run()
    until(lambda: (status := yard.status()) is not None and len(status.stages) == len(STAGES))
    numbers = [f"{stage}=1" for stage in STAGES]
    assert yard.command("scale", *numbers).returncode == 0
    until(lambda: yard.ls("loaded") == ["a.ready"])


def test_stage_that_a_reload_adds_gets_the_drivers_that_were_asked_for_before(yard: Yard) -> None:
    yard.write(f'name = "called"\n{STAGES["called"]}')
    say(yard, "scale-{stage}", "1")
    watchdog = yard.run()
    until(lambda: yard.states() == {"called-1": "ready"})
    write(yard, "drivers = 0")
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.ls("loaded") == ["a.ready"])
