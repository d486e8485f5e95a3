"""`intake`, and `why` of a folder."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, until

COMMAND = [sys.executable, "-P", "-m", "queuedriver"]


@pytest.fixture
def drops(tmp_path: Path) -> Path:
    for name in ("drops", "queue"):
        (tmp_path / name).mkdir()
    return tmp_path / "drops"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@contextmanager
def intake(drops: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    queue = drops.parent / "queue"
    with subprocess.Popen(
        [*COMMAND, "intake", drops, queue, "--min-free", "0", *words],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def entered(drops: Path) -> set[str]:
    return {path.name for path in (drops.parent / "queue").glob("*.ready")}


def why(drops: Path, name: str) -> str:
    return run("why", drops, name).stdout.strip()


def test_a_plain_copy_into_a_folder_becomes_a_document(drops: Path) -> None:
    (drops / "a.txt").write_text("whole")
    ran = run("intake", drops, drops.parent / "queue", "--settle", "100ms", "--drain")
    assert ran.returncode == 0
    assert "1 document taken" in ran.stderr
    assert entered(drops) == {"a.txt.ready"}
    history = run("history", drops.parent / "queue", "a.txt").stdout
    assert f"from {drops}/a.txt" in history


def test_an_intake_that_is_told_to_leave_leaves(drops: Path) -> None:
    with intake(drops, "--settle", "50ms") as process:
        (drops / "a").write_text("x")
        until(lambda: entered(drops) == {"a.ready"})
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert "it was asked to" in str(process.stderr and process.stderr.read())


def test_why_says_for_each_reason_one_sentence(drops: Path) -> None:
    for name in ("empty", ".hidden", "x.part", "new.pdf"):
        (drops / name).write_text("" if name == "empty" else "x")
    (drops / "sub").mkdir()
    with intake(drops, "--settle", "1h", "--exclude", "old*", "--done", "{name}.done"):
        until((drops / ".queuedriver-intake/told.json").exists)
        until(lambda: list((drops / ".queuedriver-intake/intakes").glob("*.json")))
        (drops / "old").write_text("x")
        said = {name: why(drops, name) for name in [*os.listdir(drops), "ghost"] if name[-1] != "e"}
    assert said["empty"].startswith("empty: empty for")
    assert said[".hidden"] == ".hidden: hidden files are never taken"
    assert said["x.part"] == "x.part: '*.part' is the name of a file in the making"
    assert said["new.pdf"].startswith("new.pdf: changed ")
    assert said["new.pdf"].endswith(" more")
    assert said["old"] == "old: excluded by exclude[0], 'old*'"
    assert said["sub"] == "sub: is not a regular file, and stays"
    assert said["ghost"] == ""


def test_why_names_the_program_that_has_a_file_open(drops: Path) -> None:
    with intake(drops, "--settle", "1ms"):
        until((drops / ".queuedriver-intake/told.json").exists)
        # A program of its own name, which has it open for as long as its stdin is.
        with subprocess.Popen(["tee", drops / "a"], stdin=subprocess.PIPE) as writer:
            assert writer.stdin is not None
            writer.stdin.write(b"half")
            writer.stdin.flush()
            until(lambda: why(drops, "a") == "a: tee has it open for writing")
        until(lambda: entered(drops) == {"a.ready"})


def test_why_says_what_keeps_an_intake_from_taking_anything(drops: Path) -> None:
    queue = drops.parent / "queue"
    run("close", queue)
    with intake(drops, "--settle", "50ms"):
        (drops / "a").write_text("x")
        closed = re.compile("a: nothing speaks against it; intake .* is closed")
        until(lambda: closed.match(why(drops, "a")))
        run("reopen", queue)
        until(lambda: entered(drops) == {"a.ready"})


def test_why_says_when_nobody_takes_from_the_folder_any_more(drops: Path) -> None:
    (drops / "empty").write_text("")
    run("intake", drops, drops.parent / "queue", "--settle", "1ms", "--drain")
    assert f"no intake lives that takes from {drops}" in why(drops, "empty")


def test_why_knows_what_became_of_a_file_in_a_folder_that_stays(
    drops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (drops / "a").write_text("x")
    (drops / "b").write_text("xyz")
    run(
        *("intake", drops, drops.parent / "queue", "--settle", "1ms", "--drain"),
        *("--after", "leave", "--max-size", "2"),
    )
    assert sorted(os.listdir(drops)) == ["a", "b"]
    assert why(drops, "a").startswith("a: entered as a")
    assert why(drops, "b").startswith("b: refused: 3 B is more than max_size")


def test_why_knows_the_rules_of_each_folder_that_stays(
    drops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    others = tmp_path / "others"
    others.mkdir()
    for folder, name in ((drops, "a.pdf"), (others, "b.txt")):
        (folder / name).write_text("x")
        words = ("--settle", "1ms", "--after", "leave", "--include", f"*{name[1:]}", "--drain")
        run("intake", folder, drops.parent / "queue", *words)
    assert why(others, "b.txt").startswith("b.txt: entered as b.txt")
    with intake(drops, "--after", "leave"):
        until(lambda: why(drops, "a.pdf") == "a.pdf: entered as a.pdf")
        assert why(others, "b.txt").endswith(f"no intake lives that takes from {others}")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--docid", "x"), 2, "--docid 'x' names all documents alike"),
        (("--settle", "never"), 2, "--settle"),
        (("--after", "/x"), 2, "no directory below the folder"),
        (("--id", "a b"), 2, "cannot be a driver id"),
    ],
)
def test_what_cannot_be_meant_is_said(
    drops: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = run("intake", drops, drops.parent / "queue", *words)
    assert ran.returncode == code
    assert said in ran.stderr


def test_a_folder_that_is_not_there_is_said(drops: Path) -> None:
    ran = run("intake", drops / "x", drops.parent / "queue")
    assert ran.returncode == 66
    assert str(drops / "x") in ran.stderr


def test_a_folder_and_a_queue_in_it_are_no_pair(drops: Path) -> None:
    (drops / "queue").mkdir()
    ran = run("intake", drops, drops / "queue")
    assert ran.returncode == 78
    assert "one inside the other" in ran.stderr


def test_a_folder_that_is_the_queue_by_another_name_is_refused(drops: Path) -> None:
    queue = drops.parent / "queue"
    (drops.parent / "link").symlink_to(queue)
    ran = run("intake", drops.parent / "link", queue, "--drain")
    assert ran.returncode == 78
    assert "one inside the other" in ran.stderr


@pytest.mark.parametrize("after", ["move", "leave"])
def test_documents_of_another_queue_are_no_drops(drops: Path, after: str) -> None:
    run("put", drops, __file__)
    ran = run("intake", drops, drops.parent / "queue", "--after", after, "--drain")
    assert ran.returncode == 78
    assert "is a queue itself" in ran.stderr
    assert (drops / "test_intake.py.ready").exists()


@pytest.mark.parametrize("what", ["drops", "queue", "drops/.queuedriver-intake"])
def test_an_intake_whose_directory_is_replaced_leaves_and_says_so(drops: Path, what: str) -> None:
    with intake(drops, "--settle", "50ms") as process:
        until((drops / ".queuedriver-intake/told.json").exists)
        place = drops.parent / what
        place.rename(drops.parent / "elsewhere")
        place.mkdir()
        (drops / "a").write_text("x")
        assert process.wait(PATIENCE) == 66
        said = str(process.stderr and process.stderr.read())
    assert f"{place} is gone, or another is in its place" in said
    assert (drops / "a").exists()


def test_two_intakes_of_one_folder_take_each_drop_once(drops: Path) -> None:
    with intake(drops, "--settle", "50ms"), intake(drops, "--settle", "50ms"):
        for number in range(60):
            (drops / f"{number}.txt").write_text(str(number))
        wanted = {f"{number}.txt.ready" for number in range(60)}
        until(lambda: entered(drops) == wanted)
