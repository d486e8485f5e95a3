"""The systemd unit that `watchdogd unit` prints."""

import math
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from queuedriver.errors import BadArgument
from tests.cli import pipelines
from tests.cli.pipelines import make
from watchdogd.children import Child
from watchdogd.cli.unit import unit_of
from watchdogd.driver_ids import STATE_VARIABLE, state_directory
from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.read import read
from watchdogd.policy import leaves_within
from watchdogd.stages import LAST_COMMANDS, LAST_LOOK, leaving_takes
from watchdogd.template import CLEANING_TAKES

Capsys = pytest.CaptureFixture[str]


def settings(unit: str) -> dict[str, str]:
    lines = [line for line in unit.splitlines() if "=" in line and not line.startswith("#")]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def test_the_unit_is_what_a_watchdog_needs(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STATE_VARIABLE, raising=False)
    file = make(tmp_path, pipelines.FILE.replace("drivers = 2", "drivers = 2\ngrace = '10 min'"))
    called = pipelines.call(capsys, "unit", file, "--user", "no-such-user", "--host", "rose")
    assert called.code == 0
    found = settings(called.out)
    start = found.pop("ExecStart")
    assert start.startswith("/")
    assert start.endswith(f"run {file} --host rose")
    assert found == {
        "Description": f"Pipeline serif ({file})",
        "RequiresMountsFor": str(tmp_path / "queues"),
        "StartLimitIntervalSec": "0",
        "Type": "notify",
        "NotifyAccess": "main",
        "ExecReload": "/bin/kill -HUP $MAINPID",
        "WorkingDirectory": str(tmp_path),
        "User": "no-such-user",
        "StateDirectory": "watchdogd-serif",
        "Environment": "WATCHDOGD_STATE=/var/lib/watchdogd-serif",
        "WatchdogSec": "30",
        "Restart": "on-failure",
        "RestartSec": "5",
        "RestartPreventExitStatus": "2 70 77 78",
        "KillMode": "mixed",
        "TimeoutStopSec": str(math.ceil(leaving_takes(read(file).stages))),
        "Delegate": "yes",
        "WantedBy": "multi-user.target",
    }


def climbed(child: Child) -> float:
    """Return when one that does nothing that it is asked has been given up."""
    now = child.asked_at
    while child.rung != "stuck":
        now = child.due_at
        child.climb(now)
    return now


@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_systemd_waits_until_the_slowest_of_each_stage_was_ended_and_the_last_word_was_said(
    tmp_path: Path, count: int, preload: bool
) -> None:
    pipeline = read(make(tmp_path))
    stage = msgspec.structs.replace(pipeline.stages[0], grace=0.4, preload=preload)
    now = 0.0
    for _ in range(count):
        driver, template = Child(), Child()
        driver.ask("leave", "stop", now, leaves_within(stage.grace))
        now = climbed(driver)
        if preload:
            # It goes when its last driver has gone.
            template.ask("run", "not needed", now, CLEANING_TAKES)
            now = climbed(template)
    pipeline = msgspec.structs.replace(pipeline, stages=(stage,) * count)
    assert patience(pipeline) >= now + LAST_LOOK + LAST_COMMANDS


def patience(pipeline: Pipeline) -> int:
    return int(settings(unit_of(pipeline, "ann", ["/bin/true"]))["TimeoutStopSec"])


def test_a_service_and_a_login_of_its_user_have_the_same_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STATE_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setenv("HOME", me.pw_dir)
    pipeline = read(make(tmp_path))
    for name in (me.pw_name, str(me.pw_uid)):
        found = settings(unit_of(pipeline, name, ["/bin/true"]))
        assert found["Environment"] == f"{STATE_VARIABLE}={state_directory()}"
        assert "StateDirectory" not in found


def test_drivers_that_outlive_their_watchdog_are_left_alone_by_systemd(tmp_path: Path) -> None:
    pipeline = msgspec.structs.replace(read(make(tmp_path)), adopt=True)
    assert settings(unit_of(pipeline, "ann", ["/bin/true"]))["KillMode"] == "process"


def test_programs_are_found_where_whoever_asks_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "my tools"
    tools.mkdir()
    (tools / "ocr").write_text("#!/bin/sh\n")
    (tools / "ocr").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    text = pipelines.FILE.replace('call = "values:process"', 'command = "ocr {input}"', 1)
    unit = unit_of(read(make(tmp_path, text)), "ann", ["/bin/true"])
    assert f'"PATH={tools}:/usr/local/sbin:' in settings(unit)["Environment"]


def test_names_mean_to_systemd_what_they_are(tmp_path: Path) -> None:
    directory = tmp_path / 'of "ann" 100% $HOME'
    directory.mkdir()
    unit = unit_of(read(make(directory)), "ann", ["/bin/true"])
    found = settings(unit)
    assert found["WorkingDirectory"] == str(directory).replace("%", "%%")
    assert r"of \"ann\" 100%% $$HOME/pipeline.toml" in found["ExecStart"]
    assert r"of \"ann\" 100%% $HOME/queues" in found["RequiresMountsFor"]


@pytest.mark.parametrize("name", ["a\nUser=root", "a\tb"])
def test_what_cannot_stand_in_a_unit_is_refused(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    with pytest.raises(BadArgument, match="cannot stand in a unit"):
        unit_of(read(make(directory)), "ann", ["/bin/true"])
    with pytest.raises(BadArgument, match="user"):
        unit_of(read(make(tmp_path)), name, ["/bin/true"])


@pytest.mark.parametrize("directory", ["plain", "with space", 'of "ann" 100% $HOME \\ '.strip()])
def test_systemd_takes_it(tmp_path: Path, directory: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze(1) here")
    place = tmp_path / directory
    place.mkdir()
    unit = tmp_path / "watchdogd-serif.service"
    unit.write_text(unit_of(read(make(place)), "root", ["/bin/true"]))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ran.returncode and "watchdogd-serif" not in ran.stderr:
        pytest.skip(f"systemd-analyze does not work here: {ran.stderr}")
    said = [line for line in ran.stderr.splitlines() if "watchdogd-serif" in line]
    assert (ran.returncode, said) == (0, [])
