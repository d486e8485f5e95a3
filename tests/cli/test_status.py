"""`status`: counts, drivers, and what each is doing since when; and it only looks."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from queuedriver.claims.liveness import Observer
from queuedriver.format.records import Counters, Registration
from queuedriver.format.units import format_instant
from queuedriver.operating.queue import Queue
from tests.cli.queues import call, drive, kill, listed, stuck_driver, submit, tree

Capsys = pytest.CaptureFixture[str]


def register(queue: Path, *, here: bool = True, **more: object) -> None:
    """A living driver, which is this very process; or one on another host."""
    me = Observer().me
    there = msgspec.structs.replace(me, host="far", machine="m", boot="b", namespace=1)
    usual: dict[str, object] = {
        "id": "h-1",
        "salt": "5a17",
        "identity": me if here else there,
        "started_at": time.time(),
        "beat_at": time.time(),
        "state": "ready",
        "why": "the queue is empty",
    }
    registration = Registration(**{**usual, **more})  # type: ignore[arg-type]
    with Queue.open(queue, create=True) as opened:
        drivers = opened.private.subdirectory("drivers", create=True)
        drivers.write_aside(f"{registration.id}.json", msgspec.json.encode(registration))
        drivers.close()


def test_what_to_do_for_drivers_to_come_is_told_while_none_is_alive(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue, words = tmp_path / "in", "no driver is alive; ring for Jeeves"
    submit(queue, "a")
    with Queue.open(queue) as opened:
        opened.set_notice("ring for Jeeves")
    (tmp_path / "b").touch()
    (tmp_path / "c").touch()
    assert call(capsys, "put", queue, tmp_path / "b").err == f"queuedriver: {queue}: {words}\n"
    assert words in call(capsys, "why", queue, "a").out
    assert call(capsys, "status", queue).out.count("ring for Jeeves") == 1
    register(queue)
    assert call(capsys, "put", queue, tmp_path / "c").err == ""
    for name in ("why", "status"):
        assert "Jeeves" not in call(capsys, name, queue, *(["a"] * (name == "why"))).out


def test_each_state_is_counted(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "a", "b", "bad", "never", "later")
    drive(queue, tmp_path / "out", retries=0)
    submit(queue, "c")
    for name in ("f.failed", "g.failed2", "w.7.working", "x.h-9.written", "y.7.writing.xml"):
        (queue / name).touch()
    (queue / "x.7.written").touch()
    (queue / "due.1.later").touch()
    (queue / "old.failed_twice").touch()
    counts = call(capsys, "status", queue, "--json").json["queues"][0]["counts"]
    assert counts == {
        "ready": 1,
        "failed": 2,
        "later": 2,
        "due": 1,
        "working": 1,
        "written": 1,
        "writing": 1,
        "discarded": 2,
        "failed_twice": 1,
        "foreign": 1,
    }
    shown = call(capsys, "status", queue).out
    assert "ready 1   failed 2   working 1   discarded 2   later 2 (1 due, next at " in shown
    assert "discarded by the original program 1" in shown


def test_looking_creates_nothing(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    queue.mkdir()
    (queue / "a.ready").touch()
    for command in ("status", "list", "check"):
        assert call(capsys, command, queue).code == 0
    for command in ("show", "why", "history"):
        assert call(capsys, command, queue, "a").code == 0
    assert tree(tmp_path) == ["in", "in/a.ready"]


def test_queue_on_a_read_only_file_system_is_readable(tmp_path: Path) -> None:
    queue = tmp_path / "in"
    submit(queue, "a", "bad")
    drive(queue, tmp_path / "out")
    submit(queue, "b")
    script = (
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" || exit 99; '
        'for command in "status $1" "list $1" "check $1" "why $1 b" "show $1 bad" "history $1 a"; '
        'do "$2" -m queuedriver $command || exit 1; done'
    )
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount in a namespace of its own")
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(queue), sys.executable],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode == 99 or "unshare failed" in ran.stderr:
        pytest.skip("this machine does not let us mount")
    assert ran.returncode == 0, ran.stderr
    assert "ready 1 " in ran.stdout


def test_missing_queue_is_66_and_spoils_no_half_answer(tmp_path: Path, capsys: Capsys) -> None:
    submit(tmp_path / "in", "a")
    called = call(capsys, "status", tmp_path / "in", tmp_path / "nowhere")
    assert called.code == 66
    assert called.out == ""
    assert "nowhere" in called.err


def test_paused_leaving_and_done_are_shouted(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    for control in ("PAUSE", "QUIT", "done"):
        (queue / control).touch()
    first = call(capsys, "status", queue).out.splitlines()[0]
    assert first == (
        f"{queue}  PAUSED: nothing is claimed before queuedriver resume {queue}  "
        f"QUIT: no driver stays before queuedriver resume {queue}  "
        f"closed: drivers leave when it is empty; queuedriver reopen {queue}  "
        "documents wait in a closed queue, and no driver is alive"
    )
    (queue / "a.ready").unlink()
    first = call(capsys, "status", queue).out.splitlines()[0]
    assert first.endswith("closed, and drained: nothing more comes")


def test_file_that_is_no_item_is_named_with_what_mends_it(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    for name in ("scan.pdf", "done.ready", "\x1b[2J.txt"):
        (queue / name).touch()
    Path(os.fsdecode(os.fsencode(queue) + b"/\xff")).touch()
    # An output may well be inside the queue: a directory is nobody's slip.
    (queue / "archive").mkdir()
    shown = call(capsys, "status", queue).out
    assert "  4 files are not queue items:\n" in shown
    assert "    scan.pdf: rename it to 'scan.pdf.ready' to submit it\n" in shown
    assert "    done.ready: what stands before its state cannot be a docid: it is the name" in shown
    assert "    \\udcff: it cannot be submitted under this name: it is not valid UTF-8\n" in shown
    assert "\x1b" not in shown
    names = {
        one["name"] for one in call(capsys, "status", queue, "--json").json["queues"][0]["foreign"]
    }
    assert names == {"scan.pdf", "done.ready", "\x1b[2J.txt", "\udcff"}


def test_driver_at_work_is_shown_with_its_document_and_since_when(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    with stuck_driver(queue, output) as process:
        seen = call(capsys, "status", queue, "--json").json["queues"][0]["drivers"]
        assert [(one["id"], one["state"], one["pid"]) for one in seen] == [
            ("h-7", "busy", process.pid)
        ]
        assert [one["docid"] for one in seen[0]["at_hand"]] == ["slow"]
        assert 0 < time.time() - seen[0]["at_hand"][0]["since"] < 3600
        assert seen[0]["memory"] > 1_000_000
        assert " slow " in _row_of(call(capsys, "status", queue).out, "h-7")

        kill(process)
        seen = call(capsys, "status", queue, "--json").json["queues"][0]["drivers"]
        assert [(one["state"], one["why"], one["memory"]) for one in seen] == [
            ("dead", "it ended without a word", None)
        ]
        shown = call(capsys, "status", queue).out
        assert "slow (it ended without a word)" in shown
        assert "no driver is alive; 0 documents to do" in shown


def test_driver_that_never_registered_is_shown_by_its_claims(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    (queue / "doc.7.working").touch()
    row = _row_of(call(capsys, "status", queue).out, "7")
    assert row.split() == ["7", "unknown", "doc", "(it", "never", "registered", "here)"]


def test_rate_and_time_left_come_of_what_living_drivers_say(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, *(f"d{number}" for number in range(10)))
    counters = Counters(work=700, wait=200, block=0, overhead=100, documents=1234)
    register(queue, rate=1.5, counters=counters)
    register(queue, id="far-1", here=False, rate=0.5)
    register(queue, id="left-1", rate=5.0, last_word="quit")
    shown = call(capsys, "status", queue).out
    assert "10 documents to do in about 5 s, at 2.0/s over the last minute" in shown
    assert _row_of(shown, "h-1").split()[-8:-2] == ["1,234", "70%", "20%", "0%", "10%", "1.5/s"]
    assert "1 driver left before, as asked" in shown
    seen = call(capsys, "status", queue, "--json").json["queues"][0]
    assert (seen["rate"], seen["eta"]) == (2.0, 5.0)


def test_driver_whose_id_does_not_say_where_it_is_is_shown_with_its_host(
    tmp_path: Path, capsys: Capsys
) -> None:
    register(tmp_path / "in", id="3")
    register(tmp_path / "in", id="far-1", here=False)
    shown = call(capsys, "status", tmp_path / "in").out
    assert f"3 on {Observer().me.host} " in shown
    assert "far-1 " in shown
    assert "far-1 on " not in shown


def test_part_of_the_queue_that_is_no_directory_is_told_with_what_mends_it(
    tmp_path: Path, capsys: Capsys
) -> None:
    submit(tmp_path / "in", "a")
    (tmp_path / "in/discarded").touch()
    called = call(capsys, "status", tmp_path / "in")
    assert called.code == 73
    assert "queuedriver check --repair moves it aside" in called.err
    assert call(capsys, "check", tmp_path / "in", "--repair").code == 0
    assert call(capsys, "status", tmp_path / "in").code == 0


def test_driver_on_another_host_is_silent_when_its_lease_is_over(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue = tmp_path / "in"
    register(queue, id="far-1", here=False, beat_at=time.time() - 3600)
    row = _row_of(call(capsys, "status", queue).out, "far-1")
    assert "silent" in row
    assert "the clocks say that its lease is over" in row


def test_several_queues_are_shown_one_below_the_other(tmp_path: Path, capsys: Capsys) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    submit(first, "a", "b")
    submit(second, "c")
    (second / "PAUSE").touch()
    lines = call(capsys, "status", first, second).out.splitlines()
    second_at = lines.index("") + 1
    assert lines[0] == str(first)
    assert lines[1].split()[:2] == ["ready", "2"]
    assert lines[second_at].startswith(f"{second}  PAUSED: ")
    assert lines[second_at + 1].split()[:2] == ["ready", "1"]


def test_settings_and_feeds_are_shown(tmp_path: Path, capsys: Capsys) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    submit(queue, "a")
    drive(queue, output, publish="{docid}.xml.ready", retries=2, retry_delay=90.0, durable=True)
    shown = call(capsys, "status", queue).out
    assert "to ../out as {docid}.xml.ready; 2 retries after 1 min 30 s; durable" in shown
    assert f"fed by {queue}" in call(capsys, "status", output).out
    seen = call(capsys, "status", queue, "--json").json["queues"][0]["settings"]
    assert seen["outputs"] == ["../out"]
    assert seen["existing"] == "keep"


def test_damaged_settings_do_not_hide_the_rest(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    drive(queue, tmp_path / "out")
    (queue / ".queuedriver/settings.json").write_text("{")
    called = call(capsys, "status", queue)
    assert called.code == 0
    assert "settings.json cannot be read" in called.out


def test_json_says_its_version_and_when(tmp_path: Path, capsys: Capsys) -> None:
    submit(tmp_path / "in", "a")
    seen = call(capsys, "status", tmp_path / "in", "--json").json
    assert seen["version"] == 1
    assert seen["queues"][0]["queue"] == str(tmp_path / "in")
    assert format_instant(seen["queues"][0]["at"])[:4].isdigit()
    assert not listed(tmp_path / "in/.queuedriver/drivers")


def _row_of(shown: str, driver: str) -> str:
    return next(line for line in shown.splitlines() if line.split()[:1] == [driver])
