"""Logs stay within their size, and nothing that is written meanwhile is lost."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from watchdogd.logs import open_log, rotate


def append(path: Path, text: bytes, size: int = 100, keep: int = 2) -> None:
    fd = open_log(str(path), size, keep)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def files(directory: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in directory.iterdir()}


def test_log_is_appended_to(tmp_path: Path) -> None:
    append(tmp_path / "a.log", b"one\n")
    append(tmp_path / "a.log", b"two\n")
    assert files(tmp_path) == {"a.log": b"one\ntwo\n"}


def test_log_that_is_too_large_is_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path / "a.log", b"%d" % number * 100)
    assert files(tmp_path) == {
        "a.log": b"3" * 100,
        "a.log.1": b"2" * 100,
        "a.log.2": b"1" * 100,
    }


def test_log_of_which_no_old_ones_are_kept_begins_anew(tmp_path: Path) -> None:
    append(tmp_path / "a.log", b"1" * 100, keep=0)
    append(tmp_path / "a.log", b"2", keep=0)
    assert files(tmp_path) == {"a.log": b"2"}


def test_gap_among_the_old_ones_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("new")
    (tmp_path / "a.log.3").write_text("old")
    assert rotate(str(tmp_path / "a.log"), keep=5)
    assert files(tmp_path) == {"a.log.1": b"new", "a.log.4": b"old"}


def test_log_that_cannot_be_rotated_grows(tmp_path: Path) -> None:
    append(tmp_path / "a.log", b"1" * 100)
    # Nothing can be renamed over a directory.
    (tmp_path / "a.log.1/x").mkdir(parents=True)
    append(tmp_path / "a.log", b"2", keep=1)
    assert (tmp_path / "a.log").read_bytes() == b"1" * 100 + b"2"


def test_log_that_cannot_be_begun_anew_closes_no_file_of_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "a.log", b"1" * 100)
    really_open = os.open
    others: list[int] = []

    def open_(path: str, flags: int, mode: int = 0o777) -> int:
        if not os.path.exists(path):
            # Another thread is faster, and gets the number that has just become free.
            others.append(really_open(tmp_path, os.O_RDONLY))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", open_)
    with pytest.raises(OSError, match="No space left"):
        open_log(str(tmp_path / "a.log"), 100, 2)
    monkeypatch.undo()
    (other,) = others
    assert os.path.samestat(os.fstat(other), os.stat(tmp_path))
    os.close(other)


@pytest.mark.parametrize("dressed", ["symlink", "fifo", "directory"])
def test_nothing_but_a_file_is_taken_for_a_log(tmp_path: Path, dressed: str) -> None:
    path = tmp_path / "a.log"
    match dressed:
        case "symlink":
            path.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
    with pytest.raises(OSError, match=r"a\.log|regular"):
        open_log(str(path), 100, 2)
    assert not (tmp_path / "elsewhere").exists()


def run(script: str, log: Path) -> None:
    """In a process of its own, whose stdout and stderr become the log."""
    before = "import os, subprocess, sys\nfrom watchdogd.logs import Rotator\n"
    before += "rotator = Rotator(sys.argv[1], 100, 9)\nrotator.take_over()\n"
    subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(script), str(log)], check=True, timeout=60
    )


def test_process_goes_on_in_a_new_file_when_its_log_is_too_large(tmp_path: Path) -> None:
    script = """
        for number in range(30):
            print(f"line {number:4}", file=sys.stdout if number % 2 else sys.stderr, flush=True)
            rotator.rotate_if_large()
    """
    run(script, tmp_path / "a.log")
    found = files(tmp_path)
    assert sorted(found) == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    whole = b"".join(found[name] for name in sorted(found, reverse=True)[:3]) + found["a.log"]
    assert whole.decode().splitlines() == [f"line {number:4}" for number in range(30)]


def test_what_a_child_still_writes_goes_into_the_old_log(tmp_path: Path) -> None:
    script = """
        child = subprocess.Popen(["sh", "-c", "read go; echo late"], stdin=subprocess.PIPE)
        print("x" * 200, flush=True)
        assert rotator.rotate_if_large()
        child.communicate(b"go\\n")
        print("new", flush=True)
        assert not rotator.rotate_if_large()
    """
    run(script, tmp_path / "a.log")
    assert files(tmp_path) == {"a.log": b"new\n", "a.log.1": b"x" * 200 + b"\nlate\n"}


@pytest.mark.parametrize("how", ["os.unlink(sys.argv[1])", "os.rename(sys.argv[1], 'moved')"])
def test_log_that_somebody_took_away_is_begun_anew(tmp_path: Path, how: str) -> None:
    script = f"""
        os.chdir(os.path.dirname(sys.argv[1]))
        print("before", flush=True)
        {how}
        assert rotator.rotate_if_large()
        print("after", flush=True)
    """
    run(script, tmp_path / "a.log")
    assert (tmp_path / "a.log").read_bytes() == b"after\n"


def test_log_does_not_go_into_what_a_program_opened_under_its_number(tmp_path: Path) -> None:
    script = """
        os.close(2)
        mine = os.open(f"{sys.argv[1]}.mine", os.O_CREAT | os.O_WRONLY)
        assert mine == 2
        assert not rotator.rotate_if_large()
        os.write(mine, b"mine")
    """
    run(script, tmp_path / "a.log")
    assert files(tmp_path)["a.log.mine"] == b"mine"


def test_line_that_a_full_disk_has_no_room_for_is_nobodys_failure(tmp_path: Path) -> None:
    script = """
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, 1)
        os.dup2(full, 2)
        print("word " * 10_000, flush=True)
        print("word", file=sys.stderr)
        sys.stdout.flush()
    """
    run(script, tmp_path / "a.log")


def test_line_is_in_the_log_before_its_process_is_killed(tmp_path: Path) -> None:
    script = """
        print("last")
        os._exit(0)
    """
    run(script, tmp_path / "a.log")
    assert (tmp_path / "a.log").read_bytes() == b"last\n"
