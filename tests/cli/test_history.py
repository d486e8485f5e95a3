"""`history`: when, by whom, where, how long, and what came of it; also when the journal is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.queues import call, drive, kill, stuck_driver, submit

Capsys = pytest.CaptureFixture[str]


def events(capsys: Capsys, queue: Path, docid: str) -> list[str]:
    found = call(capsys, "history", queue, docid, "--json").json
    assert found["version"] == 1
    assert found["docid"] == docid
    assert all(one["docid"] == docid for one in found["events"])
    times = [one["at"] for one in found["events"]]
    assert times == sorted(times)
    return [one["event"] for one in found["events"]]


def test_document_is_followed_from_submission_to_publication(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue = tmp_path / "in"
    queue.mkdir()
    (tmp_path / "a").write_text("content")
    assert call(capsys, "put", queue, tmp_path / "a").code == 0
    drive(queue, tmp_path / "out")
    assert events(capsys, queue, "a") == ["submitted", "claimed", "published"]
    lines = call(capsys, "history", queue, "a").out.splitlines()
    assert "a submitted by put-" in lines[0]
    assert "a claimed by h-1 on " in lines[1]
    assert "a published, attempt 0, took " in lines[2]
    assert ", as a.ready by h-1 on " in lines[2]


def test_each_attempt_is_told_with_its_reason(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "bad")
    drive(queue, tmp_path / "out")
    assert events(capsys, queue, "bad") == ["claimed", "failed", "claimed", "discarded"]
    shown = call(capsys, "history", queue, "bad").out
    assert shown.count("ValueError: no good\\n\\x1b[31msecond line\n") == 2


def test_report_tells_what_a_lost_journal_does_not(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "bad")
    drive(queue, tmp_path / "out")
    (queue / ".queuedriver/journal/h-1.jsonl").unlink()
    assert events(capsys, queue, "bad") == ["claimed", "failed", "claimed", "discarded"]
    assert "exception: ValueError" in call(capsys, "history", queue, "bad").out


def test_records_of_attempts_tell_what_a_lost_journal_does_not(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue = tmp_path / "in"
    submit(queue, "bad")
    drive(queue, tmp_path / "out", retries=2, retry_delay=3600.0)
    (queue / ".queuedriver/journal/h-1.jsonl").unlink()
    assert events(capsys, queue, "bad") == ["claimed", "failed"]


def test_claim_at_hand_is_part_of_the_history(tmp_path: Path, capsys: Capsys) -> None:
    with stuck_driver(tmp_path / "in", tmp_path / "out") as process:
        assert events(capsys, tmp_path / "in", "slow") == ["claimed"]
        assert "slow claimed by h-7 on " in call(capsys, "history", tmp_path / "in", "slow").out
        kill(process)


def test_damaged_lines_of_the_journal_are_confessed(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    drive(queue, tmp_path / "out")
    with open(queue / ".queuedriver/journal/h-1.jsonl", "a") as journal:
        journal.write('{"docid":"a","at":\n')
    called = call(capsys, "history", queue, "a")
    assert called.code == 0
    assert "damaged and left out: 1 line of the journal" in called.err


def test_unknown_document_is_66(tmp_path: Path, capsys: Capsys) -> None:
    submit(tmp_path / "in", "a")
    assert call(capsys, "history", tmp_path / "in", "b").code == 66


def test_reader_that_has_enough_is_no_mishap(tmp_path: Path) -> None:
    submit(tmp_path / "in", *(f"document-{number}" for number in range(3000)))
    command = [sys.executable, "-m", "queuedriver", "list", str(tmp_path / "in")]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, env={**os.environ, **path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
