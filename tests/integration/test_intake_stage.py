"""An intake that a watchdog keeps: `[[intake]]` in the pipeline's file."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until, until_ended
from tests.watchdogs import Yard

INTAKE = """
[[intake]]
name = "drops"
from = "drops"
settle = "100 ms"
min_free = 0
"""
STAGE = """
name = "work"
command = ["cp", "{input}", "{output}"]
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Yard]:
    (tmp_path / "drops").mkdir()
    with Yard(tmp_path) as site:
        site.write(STAGE, more=INTAKE)
        yield site


def drop(site: Yard, name: str) -> None:
    (site.root / "drops" / name).write_text("content")


def results(site: Yard) -> set[str]:
    return {name for name in site.ls("work") if name.endswith(".ready")}


def test_a_drop_goes_through_the_pipeline(site: Yard) -> None:
    site.run()
    drop(site, "a.txt")
    until(lambda: results(site) == {"a.txt.ready"})
    until(lambda: set(site.states()) == {"work-1", "drops-1"}, "both are told of")


def test_an_intake_that_was_killed_is_started_anew_and_takes_what_it_left(site: Yard) -> None:
    site.run()
    pid = site.pid("drops-1")
    drop(site, "a.txt")
    os.kill(pid, signal.SIGKILL)
    until_ended(pid)
    drop(site, "b.txt")
    until(lambda: results(site) == {"a.txt.ready", "b.txt.ready"})
    until(lambda: site.pid("drops-1") != pid)


def test_nothing_is_taken_while_the_pipeline_is_paused(site: Yard) -> None:
    site.run()
    until(lambda: site.states().get("drops-1") == "ready")
    site.command("pause")
    until(lambda: (site.root / "queues/input/PAUSE").exists() or "PAUSED" in _why(site))
    drop(site, "a.txt")
    until(lambda: "PAUSED" in _why(site))
    assert results(site) == set()
    site.command("resume")
    until(lambda: results(site) == {"a.txt.ready"})


def _why(site: Yard) -> str:
    driver = site.drivers().get("drops-1")
    return driver.why if driver is not None else ""


def test_what_it_took_and_what_waits_in_its_folder_is_counted(site: Yard) -> None:
    drop(site, "a.txt")
    drop(site, ".hidden")
    (site.root / "drops" / "empty").touch()
    site.run()
    until(lambda: _counted(site) == (1, {"filtered": 1, "settling": 1}))


def _counted(site: Yard) -> tuple[int, object]:
    seen = json.loads(site.command("status", "--json").stdout)
    files = [one["files"] for one in seen["stages"] if one["name"] == "drops"]
    taken = sum(one["documents"] for one in seen["drivers"] if one["stage"] == "drops")
    return taken, files[0]


def test_a_drain_waits_for_what_settles_and_for_nothing_else(site: Yard) -> None:
    drop(site, "a.txt")
    (site.root / "drops" / "empty").touch()
    code, _ = site.drain()
    assert code == 0
    assert results(site) == {"a.txt.ready"}


def test_a_drain_counts_what_its_intakes_brought_among_what_went_through(site: Yard) -> None:
    site.put("queued")
    for name in ("a.txt", "b.txt"):
        drop(site, name)
    code, said = site.drain()
    assert code == 0
    assert "3 documents went through" in said


def test_a_folder_that_is_not_there_is_found_by_check(site: Yard) -> None:
    (site.root / "drops").rmdir()
    ran = site.command("check")
    assert ran.returncode == 78
    assert f"names {site.root}/drops, which does not exist" in ran.stderr + ran.stdout
