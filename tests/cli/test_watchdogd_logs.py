"""What drivers print, as `watchdogd logs` shows it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.cli.pipelines import FAR, publish, report
from tests.cli.processes import ENVIRON, on_terminal, read_until
from tests.cli.queues import PATIENCE, Called
from watchdogd import driver_ids
from watchdogd.cli.logs import Tail
from watchdogd.logs import rotate
from watchdogd.report import save


@pytest.fixture
def logs(file: Path) -> Path:
    """The local logs of a watchdog that lives."""
    directory = file.parent / "state/logs"
    directory.mkdir(parents=True)
    publish(file, report(local=str(directory.parent)))
    return directory


def test_a_directory_that_a_report_names_and_that_does_not_say_so_itself_is_not_read(
    logs: Path, file: Path
) -> None:
    (logs / "parse-1.log").write_bytes(b"printed\n")
    assert "printed" in shown(file, "parse-1").out
    elsewhere = file.parent / "elsewhere"
    (elsewhere / "logs").mkdir(parents=True)
    (elsewhere / "logs/parse-1.log").write_bytes(b"of somebody else\n")
    # As whoever may write in `.watchdogd/hosts/` can have it.
    said = publish(file, report(local=str(elsewhere)))
    (elsewhere / "report.json").unlink()
    assert "somebody else" not in shown(file, "parse-1").out
    # Another watchdog's is not its own either.
    save(msgspec.structs.replace(said, host="fern"))
    assert "somebody else" not in shown(file, "parse-1").out


def shown(file: Path, *args: str, **environ: str) -> Called:
    """Run it in a process of its own: bytes pass as they are."""
    ran = subprocess.run(
        [sys.executable, "-m", "watchdogd", "logs", *args, "-p", file],
        env={**ENVIRON, **environ},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return Called(ran.returncode, ran.stdout.decode("latin-1"), ran.stderr.decode())


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_each_line_says_whose_it_is(file: Path, logs: Path) -> None:
    for driver in ("parse-10", "parse-2", "values-1"):
        write(logs / f"{driver}.log", f"I am {driver}")
    write(logs / "io-helper.log", "not a driver's")
    assert shown(file) == (
        0,
        "parse-2 | I am parse-2\nparse-10 | I am parse-10\nvalues-1 | I am values-1\n",
        "",
    )
    assert shown(file, "parse").out == "parse-2 | I am parse-2\nparse-10 | I am parse-10\n"


def test_of_lines_with_a_text_as_many_are_shown_as_are_wanted(file: Path, logs: Path) -> None:
    write(logs / "parse-2.log", "an error", "The ERROR", *("line" for _ in range(100)))
    write(logs / "parse-10.log", "all is well")
    assert shown(file, "--text", "Error", "-n", "1").out == "parse-2 | The ERROR\n"
    assert shown(file, "--text", "error", "parse-2").out == "an error\nThe ERROR\n"
    assert shown(file, "--text", "no such text") == (0, "", "")
    # More than are searched at first.
    write(logs / "parse-2.log", *("found" for _ in range(10_001)))
    assert shown(file, "--text", "found", "-n", "10001", "parse-2").out.count("found") == 10_001


def test_each_line_is_there_for_programs(file: Path, logs: Path) -> None:
    (logs / "parse-2.log").write_bytes(b"a \xff\x1b[2J\n")
    (line,) = shown(file, "parse", "--json").out.splitlines()
    known = {"version": 1, "host": "rose", "driver": "parse-2", "line": "a \udcff\x1b[2J"}
    assert json.loads(line) == known


def test_what_the_elements_of_slurm_print_is_shown_as_of_a_host_that_is_called_so(
    file: Path, logs: Path
) -> None:
    write(logs / "parse-1.log", "ready")
    elements = file.parent / "queues/.watchdogd/logs/slurm"
    elements.mkdir(parents=True)
    write(elements / "2_10.log", "no such file: watchdogd")
    write(elements / "2_1.log", "2_1 leaves: nothing to do")
    said = "2_1@slurm | 2_1 leaves: nothing to do\n2_10@slurm | no such file: watchdogd\n"
    assert shown(file).out == f"parse-1@rose | ready\n{said}"
    assert shown(file, "parse").out == "parse-1@rose | ready\n"
    assert "2_10 | no such file: watchdogd\n" in shown(file, "--host", "slurm").out


def test_what_loads_for_a_stage_has_its_log_shown_with_it(file: Path, logs: Path) -> None:
    write(logs / "parse-load.log", "no module 'parse'")
    write(logs / "parse-1.log", "ready")
    expected = "parse-load | no module 'parse'\nparse-1 | ready\n"
    assert shown(file, "parse").out == expected
    assert shown(file, "values").code == 66


def test_one_driver_is_shown_as_it_prints(file: Path, logs: Path) -> None:
    (logs / "parse-2.log").write_bytes(b"\xff raw\nwithout an end")
    assert shown(file, "parse-2").out == "\xff raw\nwithout an end\n"


def test_the_last_lines_may_be_in_earlier_files(file: Path, logs: Path) -> None:
    write(logs / "parse-2.log.2", *(f"old {number}" for number in range(100)))
    write(logs / "parse-2.log.1", "1", "2")
    write(logs / "parse-2.log", "3")
    assert shown(file, "parse-2", "-n", "5").out.split("\n")[:-1] == ["old 98", "old 99", *"123"]
    assert shown(file, "parse-2", "-n", "2").out == "2\n3\n"
    assert shown(file, "parse-2", "-n", "0").out == ""


def test_logs_of_other_hosts_are_their_copies(file: Path, logs: Path) -> None:
    write(logs / "parse-1.log", "here")
    copies = file.parent / "queues/.watchdogd/logs/fern"
    copies.mkdir(parents=True)
    write(copies / "parse-1.log", "there")
    publish(file, report("fern", identity=FAR, local="/var/lib/watchdogd/serif"))
    assert shown(file).out == "parse-1@fern | there\nparse-1@rose | here\n"
    assert shown(file, "--host", "fern").out == "parse-1 | there\n"
    assert shown(file, "parse-1@rose").out == "here\n"


def test_copies_are_there_when_nothing_else_is_left_of_a_host(file: Path) -> None:
    copies = file.parent / "queues/.watchdogd/logs/fern"
    copies.mkdir(parents=True)
    write(copies / "parse-1.log", "there")
    assert shown(file).out == "parse-1 | there\n"


def test_local_logs_are_found_before_their_watchdog_said_anything(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOGD_STATE", str(file.parent / "state"))
    root = str(file.parent / "queues")
    directory = Path(driver_ids.local_directory(root, socket.gethostname()), "logs")
    directory.mkdir(parents=True)
    write(directory / "parse-1.log", "here")
    assert shown(file, WATCHDOGD_STATE=str(file.parent / "state")).out == "parse-1 | here\n"


def test_host_that_there_is_not_is_named_with_those_that_there_are(file: Path, logs: Path) -> None:
    write(logs / "parse-1.log", "here")
    for words in (["--host", "fern"], ["--host", "fern", "--follow"]):
        called = shown(file, *words)
        assert called.code == 66
        assert f"no host 'fern' in {file}; there are: rose" in called.err


def test_no_log_at_all_is_not_found(file: Path, logs: Path) -> None:
    called = shown(file, "values")
    assert called.code == 66
    assert f"no such log in {logs}" in called.err


def test_lines_cannot_steer_a_terminal(file: Path, logs: Path) -> None:
    write(logs / "parse-1.log", "\x1b[2J harmless")
    with on_terminal("logs", "-p", file, program="watchdogd") as (_, terminal):
        assert r"parse-1 | \x1b[2J harmless" in read_until(terminal, "harmless")


# Following


@contextmanager
def following(file: Path, *args: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "watchdogd", "logs", "-f", *args, "-p", file],
        env=ENVIRON,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def lines(process: "subprocess.Popen[bytes]", count: int) -> list[str]:
    """The next lines; the time limit of the whole run ends what never comes."""
    assert process.stdout is not None
    return [process.stdout.readline().decode().rstrip("\n") for _ in range(count)]


def test_what_is_printed_later_is_followed_through_rotations_and_new_drivers(
    file: Path, logs: Path
) -> None:
    log = logs / "parse-1.log"
    write(log, "before")
    with following(file, "parse") as process:
        assert lines(process, 1) == ["parse-1 | before"]
        write(log, "one")
        assert lines(process, 1) == ["parse-1 | one"]
        with log.open("a") as before:
            # The same file, under its new name.
            rotate(str(log), 3)
            before.write("two\n")
        write(log, "three")
        assert lines(process, 2) == ["parse-1 | two", "parse-1 | three"]
        write(logs / "parse-2.log", "I am new")
        assert lines(process, 1) == ["parse-2 | I am new"]


@pytest.mark.parametrize(
    ("keep", "expected"),
    # A log of which too little is kept goes on with the newest.
    [(3, [b"b", b"c", b"d"]), (2, [b"b", b"c", b"d"]), (1, [b"b", b"d"]), (0, [b"b", b"d"])],
)
def test_who_looks_late_misses_only_what_is_not_kept(
    tmp_path: Path, keep: int, expected: list[bytes]
) -> None:
    path = tmp_path / "x.log"
    write(path, "a")
    tail = Tail(str(path))
    assert tail.last(10) == [b"a"]
    for word in "bc":
        write(path, word)
        rotate(str(path), keep)
    write(path, "d")
    assert list(tail.more()) == expected
    assert list(tail.more()) == []
    tail.close()


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"")
    tail = Tail(str(path))
    assert tail.last(10) == []
    with path.open("ab", buffering=0) as file:
        file.write(b"ha")
        assert list(tail.more()) == []
        file.write(b"lf\nnext")
        assert list(tail.more()) == [b"half"]
        os.ftruncate(file.fileno(), 0)
        file.write(b"anew\n")
        assert list(tail.more()) == [b"anew"]
    tail.close()


def test_a_line_that_never_ends_takes_no_more_memory_than_it_may(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"x" * (3 << 20))
    tail = Tail(str(path))
    parts = list(tail.more())
    assert max(map(len, parts)) < 2 << 20
    tail.close()
