"""`get`: what a queue holds becomes plain files, each exactly once."""

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from queuedriver.claims.liveness import host_id
from queuedriver.disk.journal import Journal, journal_path
from queuedriver.disk.lock import locked
from tests.cli.processes import command, ended, start, unprivileged
from tests.cli.queues import call, listed, submit
from tests.waiting import until

Capsys = pytest.CaptureFixture[str]


def items(queue: Path) -> list[str]:
    return [name for name in listed(queue) if name[0] != "." and name != "discarded"]


def test_each_document_becomes_a_file_under_its_docid(tmp_path: Path, capsys: Capsys) -> None:
    queue, dest = tmp_path / "out", tmp_path / "new/dest"
    submit(queue, "a.txt", "Ünï code")
    submit(queue, "empty", content=b"")
    (queue / "b.failed").write_bytes(b"failed once")
    called = call(capsys, "get", queue, dest)
    assert (called.code, called.out) == (0, "")
    assert called.err == f"queuedriver: 4 files collected in {dest}\n"
    assert items(dest) == ["a.txt", "b", "empty", "Ünï code"]
    assert (dest / "a.txt").read_bytes() == b"content"
    assert (dest / "b").read_bytes() == b"failed once"
    assert (dest / "empty").read_bytes() == b""
    assert items(queue) == []


def test_nothing_to_collect_is_no_failure(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "out").mkdir()
    called = call(capsys, "get", tmp_path / "out", tmp_path / "dest", "--quiet")
    assert (called.code, called.out, called.err) == (0, "", "")
    assert items(tmp_path / "dest") == []


def test_a_file_of_the_same_name_is_kept_and_the_second_is_named(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    dest.mkdir()
    (dest / "a").write_bytes(b"there before")
    submit(queue, "a")
    called = call(capsys, "get", queue, dest, "--json")
    assert called.code == 0
    first, second = items(dest)
    assert (dest / first).read_bytes() == b"there before"
    assert (dest / second).read_bytes() == b"content"
    assert second.startswith("a~")
    assert f"there was a 'a' in {dest} already; this one is '{second}'" in called.err
    assert called.json["files"] == [{"docid": "a", "file": second}]


def test_what_others_still_write_is_not_waited_for(tmp_path: Path, capsys: Capsys) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    submit(queue, "a")
    (queue / "b.h-1-0605d3a1f2b0c05a17.writing").touch()
    assert call(capsys, "get", queue, dest).code == 0
    assert items(dest) == ["a"]
    assert items(queue) == ["b.h-1-0605d3a1f2b0c05a17.writing"]


def test_documents_that_are_not_due_are_left_with_code_75(tmp_path: Path, capsys: Capsys) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    submit(queue, "a")
    (queue / "b.ffffffff.later").touch()
    called = call(capsys, "get", queue, dest)
    assert called.code == 75
    assert "not due yet" in called.err
    assert items(dest) == ["a"]


def test_what_is_no_file_is_discarded_and_said(tmp_path: Path, capsys: Capsys) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    submit(queue, "a")
    (queue / "link.ready").symlink_to("/etc/passwd")
    (queue / "directory.ready").mkdir()
    os.mkfifo(queue / "pipe.ready")
    called = call(capsys, "get", queue, dest)
    assert called.code == 1
    assert "3 discarded" in called.err
    assert items(dest) == ["a"]
    assert (queue / "discarded/link").is_symlink()


def test_a_document_that_may_not_be_read_is_discarded_not_retried(tmp_path: Path) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    submit(queue, "a", "b")
    (queue / "a.ready").chmod(0)
    called = command("get", queue, dest, prefix=unprivileged())
    assert called.code == 1
    assert items(dest) == ["b"]
    assert listed(queue / "discarded") == ["a", "a.report.json"]


@pytest.mark.parametrize(
    ("queue", "dest", "code", "words"),
    [
        ("none", "dest", 66, "no queue"),
        ("file", "dest", 73, "not a queue"),
        ("out", "file", 73, "is not a directory, so not an output"),
        ("out", "out", 78, "one directory"),
    ],
)
def test_what_cannot_be_collected_is_said(
    queue: str, dest: str, code: int, words: str, tmp_path: Path, capsys: Capsys
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "file").touch()
    called = call(capsys, "get", tmp_path / queue, tmp_path / dest)
    assert called.code == code
    assert words in called.err


def test_following_it_collects_until_the_queue_is_closed(tmp_path: Path) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    submit(queue, "a")
    process = start("get", queue, dest, "--follow")
    until(lambda: "a" in items(dest))
    submit(queue, "b")
    until(lambda: "b" in items(dest))
    assert process.poll() is None
    (queue / "done").touch()
    called = ended(process)
    assert called.code == 0
    assert called.err == f"queuedriver: 2 files collected in {dest}\n"


def test_following_it_leaves_when_asked_to(tmp_path: Path) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    submit(queue, "a")
    process = start("get", queue, dest, "--follow")
    until(lambda: "a" in items(dest))
    process.send_signal(signal.SIGTERM)
    called = ended(process)
    assert called.code == 0
    assert "1 file collected" in called.err


@pytest.mark.parametrize("how", ["--durable", "--no-durable"])
def test_killed_amid_its_work_and_run_again_it_collects_each_exactly_once(
    tmp_path: Path, how: str
) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    docids = [f"{number:04}" for number in range(1500)]
    for turn in range(3):
        # What the last one left, and as much again: the slower we look, the less that may be.
        submit(queue, *docids[turn * 500 : (turn + 1) * 500])
        before = len(items(dest))
        process = start("get", queue, dest, how)
        # Not all at once: some are copied, some are claimed, some wait.
        until(lambda before=before: len(items(dest)) > before + 20)  # type: ignore[misc]
        process.kill()
        ended(process)
    assert command("get", queue, dest, how).code == 0
    assert items(queue) == []
    assert Counter(items(dest)) == Counter(docids)
    assert all((dest / docid).read_bytes() == b"content" for docid in docids)


def test_several_collect_together_and_none_twice(tmp_path: Path) -> None:
    queue, dest = tmp_path / "out", tmp_path / "dest"
    docids = [f"{number:03}" for number in range(300)]
    submit(queue, *docids)
    processes = [start("get", queue, dest, "--json", "--no-durable") for _ in range(3)]
    found: list[str] = []
    for process in processes:
        called = ended(process)
        assert called.code == 0
        found += [one["file"] for one in called.json["files"]]
    assert sorted(found) == docids == items(dest)


def test_what_an_earlier_driver_of_its_id_collected_is_not_told_as_its_own(tmp_path: Path) -> None:
    queue = tmp_path / "out"
    submit(queue, "a")
    lock = str(queue / ".queuedriver/start.lock")
    with locked(lock):
        process = start("get", queue, tmp_path / "dest", "--json", "--no-durable")
        until(lambda: lock in _open_files(process.pid))
        journal = Journal(journal_path(str(queue)), f"{host_id()}-1", "host")
        journal.note("published", "earlier", outputs=("earlier",))
        journal.close()
    called = ended(process)
    assert [one["file"] for one in called.json["files"]] == ["a"]


def _open_files(pid: int) -> set[str]:
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(one))
    return found


def test_a_queue_that_is_driven_elsewhere_is_not_emptied_behind_its_drivers(
    tmp_path: Path,
) -> None:
    queue = tmp_path / "in"
    submit(queue)
    process = start("run", queue, "--to", tmp_path / "out", "--command", "cat", "--id", "x")
    until(lambda: "x.json" in listed(queue / ".queuedriver/drivers"))
    called = command("get", queue, tmp_path / "dest")
    process.terminate()
    ended(process)
    assert called.code == 78
    assert "driver x runs with" in called.err
