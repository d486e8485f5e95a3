"""What `watchdogd status` says of a watchdog that runs."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import ENVIRON, on_terminal, read_until
from tests.disks import Silent
from tests.waiting import until
from tests.watchdogs import PATIENCE, Yard

TELLING = """
import time

def tell(document):
    print("at hand:", document.docid, flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path) as yard:
        yield yard


def status(yard: Yard) -> Any:
    return json.loads(yard.command("status", "--json").stdout)


def test_driver_that_waited_is_busy_without_a_word_of_that(yard: Yard) -> None:
    yard.write('name = "work"\ncall = "stages:obey"')
    yard.put("a", "wait")
    (yard.root / "queues/input/PAUSE").touch()
    yard.run()
    until(lambda: [one["why"] for one in status(yard)["drivers"]] == ["paused"])
    assert yard.command("resume", "work").returncode == 0
    until(lambda: [one["document"] for one in status(yard)["drivers"]] == ["a"])
    # What its watchdog says of it, too, and not only its claim.
    until(lambda: [one.document for one in yard.drivers().values()] == ["a"])
    (driver,) = status(yard)["drivers"]
    assert (driver["state"], driver["document"], driver["why"]) == ("busy", "a", "")


def test_status_of_this_host_answers_while_the_root_and_the_file_hang(yard: Yard) -> None:
    there, link = yard.root / "there", yard.root / "link"
    there.mkdir()
    link.symlink_to(there)
    (there / "stages.py").write_text(TELLING)
    (yard.root / "queues").symlink_to(there / "queues")
    (there / "queues").mkdir()
    yard.file = link / "pipeline.toml"
    yard.write('name = "work"\ncall = "stages:tell"')
    yard.put("a")
    watchdog = yard.run()
    until(lambda: [one.document for one in yard.drivers().values()] == ["a"])
    with closing(Silent(yard.root / "silent")) as silent:
        link.unlink()
        link.symlink_to(silent.path)
        for words in (["status", str(yard.file)], ["status", "-p", str(link)]):
            called = yard.command(*words)
            assert called.returncode == 0, called.stderr
            assert f"{yard.file}, or what is below {link}/queues, does not answer" in called.stdout
            rows = {row[0]: row[1:] for line in called.stdout.splitlines() if (row := line.split())}
            assert rows["work"][:2] == ["?", "?"]
            assert rows["work-1"][0] in ("busy", "waiting-fs")
            assert "a" in rows["work-1"]
        shown = yard.command("logs", "-p", str(yard.file))
        assert (shown.returncode, shown.stdout) == (0, "work-1 | at hand: a\n")
        for command in ("stop", "check", "unit", "run"):
            told = yard.command(command, "-p", str(yard.file))
            assert (told.returncode, told.stderr.count("does not answer")) == (74, 1), command
        assert watchdog.poll() is None


def test_file_that_is_found_as_the_only_other_one_is_known_while_the_root_hangs(yard: Yard) -> None:
    there = yard.root / "there"
    there.mkdir()
    (yard.root / "queues").symlink_to(there)
    yard.file = yard.root / "serif.toml"
    yard.write('name = "work"\ncall = "stages:obey"')
    yard.run()
    until(lambda: yard.states() == {"work-1": "ready"})
    with closing(Silent(yard.root / "silent")) as silent:
        (yard.root / "queues").unlink()
        (yard.root / "queues").symlink_to(silent.path)
        called = yard.command("status")
        assert called.returncode == 0, called.stderr
        assert f"{yard.file}, or what is below {yard.root}/queues, does not answer" in called.stdout


def test_pipeline_whose_root_was_changed_in_the_file_is_told_of_where_it_runs(yard: Yard) -> None:
    yard.write('name = "work"\ncall = "stages:obey"')
    watchdog = yard.run()
    until(lambda: yard.states() == {"work-1": "ready"})
    yard.file.write_text(yard.file.read_text().replace('"queues"', '"elsewhere"'))
    called = yard.command("status")
    assert called.returncode == 0
    words = f"{yard.file} is not what runs: its root is {yard.root}/elsewhere now, and a watchdog "
    assert f"{words}runs on {yard.root}/queues" in called.stdout
    assert yard.command("stop", "--wait").returncode == 0
    assert watchdog.wait(PATIENCE) == 0
    assert not (yard.root / "elsewhere").exists()


def test_terminal_is_told_how_fast_it_is_and_when_it_will_be_done(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WATCHDOGD_STATE", "XDG_RUNTIME_DIR"):
        monkeypatch.setitem(ENVIRON, name, yard.environ[name])
    monkeypatch.setitem(ENVIRON, "COLUMNS", "200")
    yard.write('name = "work"\ncall = "stages:obey"')
    for number in range(300):
        yard.put(f"d{number}", "slow 0.02")
    with on_terminal("run", "--drain", yard.file, program="watchdogd") as (process, terminal):
        read_until(terminal, r"yard runs on \S+; watchdogd status \S+ says how it goes")
        read_until(terminal, r"%  [0-9.]+/s  [^ ]+ m?s left  work \d+ × 1")
        read_until(terminal, r"300 documents went through")
        assert process.wait(PATIENCE) == 0
