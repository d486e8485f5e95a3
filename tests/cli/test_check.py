"""`check`: of queues that real drivers left, and beside drivers that are at work."""

import json
import os
import signal
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.cli.queues import call, drive, driver, kill, listed, stuck_driver, submit, tree
from tests.disks import nobody
from tests.waiting import until

Capsys = pytest.CaptureFixture[str]


def test_queue_that_is_well_is_met_with_silence(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "a", "bad", "never", "later")
    drive(queue, tmp_path / "out")
    assert call(capsys, "check", queue) == (0, "", "")
    assert call(capsys, "check", tmp_path / "out") == (0, "", "")
    assert call(capsys, "check", queue, "--repair") == (0, "", "")


def test_what_a_killed_driver_left_is_named_and_repaired(tmp_path: Path, capsys: Capsys) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    with stuck_driver(queue, output) as process:
        assert call(capsys, "check", queue).code == 0
        kill(process)
    before = tree(tmp_path)
    called = call(capsys, "check", queue)
    assert called.code == 1
    lines = called.out.splitlines()
    assert "broken dead-claim: slow.h-7-" in lines[0]
    assert lines[0].endswith("claimed by h-7, which ended without a word; --repair takes it back")
    assert lines[1] == "1 finding of 1 broken rule; --repair knows what to do about 1"
    assert tree(tmp_path) == before

    called = call(capsys, "check", queue, "--repair")
    assert called.code == 0
    assert called.out.startswith("repaired dead-claim: slow.h-7-")
    assert called.out.endswith("1 repaired; ok\n")
    assert "slow.failed" in listed(queue)
    orphans = listed(output / ".queuedriver/orphans")
    assert [name.startswith("slow.h-7-") for name in orphans] == [True]
    assert call(capsys, "check", queue) == (0, "", "")

    submit(queue, "a")
    (queue / "slow.failed").rename(queue / "other.failed")
    drive(queue, output)
    assert {"a.ready", "other.ready"} <= set(listed(output))


def test_json_tells_programs_the_same(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    drive(queue, tmp_path / "out")
    hostile = "\x1b[2J\udcff"
    (queue / "discarded" / hostile).write_bytes(b"12")
    shown = call(capsys, "check", queue)
    assert shown.code == 1
    assert "\x1b" not in shown.out
    called = call(capsys, "check", queue, "--json")
    assert called.code == 1
    assert called.json["version"] == 1
    assert called.json["clean"] is False
    assert [one["rule"] for one in called.json["findings"]] == ["no-report"]
    assert called.json["findings"][0]["subject"] == f"discarded/{hostile}"


def test_file_that_may_not_be_read_is_named(capsys: Capsys) -> None:
    with tempfile.TemporaryDirectory() as where:
        # Whoever checks must get here; the directories of pytest are its user's alone.
        os.chmod(where, 0o755)
        file = Path(where, "in/a.ready")
        file.parent.mkdir()
        file.touch(mode=0o000)
        with nobody():
            called = call(capsys, "check", file.parent)
        file.chmod(0o644)
        with nobody():
            assert call(capsys, "check", file.parent) == (0, "", "")
    assert called.code == 1
    assert "broken not-readable: a.ready: permission denied; chmod or chown it" in called.out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_item_of_another_user_in_a_sticky_directory_is_named(capsys: Capsys) -> None:
    with tempfile.TemporaryDirectory() as where:
        os.chmod(where, 0o755)
        file = Path(where, "in/theirs.ready")
        file.parent.mkdir()
        file.parent.chmod(0o1777)
        file.touch()
        os.chown(file, 4711, -1)
        assert call(capsys, "check", file.parent).code == 0
        with nobody():
            called = call(capsys, "check", file.parent)
    assert called.code == 1
    assert called.out.startswith("broken not-movable: theirs.ready: no driver can claim it: ")
    assert "it is user 4711's, who must move it" in called.out


def test_missing_queue_is_66(tmp_path: Path, capsys: Capsys) -> None:
    assert call(capsys, "check", tmp_path / "nowhere").code == 66


def test_drivers_at_work_break_no_rule(tmp_path: Path, capsys: Capsys) -> None:
    """Two drivers, one of which stands still and goes on; documents that fail among others."""
    queue, output = tmp_path / "in", tmp_path / "out"
    submit(queue, *(f"{word}-{number}" for number in range(100) for word in ("a", "b", "bad")))
    with ExitStack() as running:
        drivers = [
            running.enter_context(driver(queue, output, f"h-{number}", "--drain"))
            for number in (1, 2)
        ]
        until(lambda: listed(output))
        for number in count():
            # Stopped amid whatever it was about to do, but not for ever.
            drivers[0].send_signal(signal.SIGCONT if number % 4 else signal.SIGSTOP)
            for path in (queue, output):
                found = call(capsys, "check", path, "--json").json["findings"]
                assert not found, json.dumps(found, indent=1)
            if all(one.poll() is not None for one in drivers):
                break
    assert len([name for name in listed(output) if name.endswith(".ready")]) == 200
    assert call(capsys, "check", queue) == (0, "", "")


def test_repair_beside_drivers_at_work_loses_nothing(tmp_path: Path, capsys: Capsys) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    with stuck_driver(queue, output) as process:
        kill(process)
    submit(queue, *(f"a-{number}" for number in range(300)))
    with driver(queue, output, "h-1", "--drain") as other:
        while other.poll() is None:
            assert call(capsys, "check", queue, "--repair").code == 0
    assert len([name for name in listed(output) if name.endswith(".ready")]) == 301
    assert call(capsys, "check", queue) == (0, "", "")
