"""`queuedriver fuq`, as people and programs call it."""

import json
from pathlib import Path

import msgspec
import pytest

from queuedriver.cli import PROGRAM
from queuedriver.format import names
from queuedriver.jobs.jobfile import JobFile


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    where = tmp_path / "jobs"
    where.mkdir()
    return where


def call(*words: object) -> int:
    return PROGRAM.run(["fuq", *map(str, words)])


def job_of(queue: Path, docid: str) -> JobFile:
    return msgspec.json.decode((queue / f"{docid}.ready").read_bytes(), type=JobFile)


def test_submit_places_a_job_file_and_prints_its_docid(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--nproc", 2, "--name", "night", "--dir", "run7", "--log", "logs")
    assert call("submit", queue, "-n", 100, *more, "--", "sim", "--fast", "a b") == 0
    docid = capsys.readouterr().out.strip()
    assert docid.startswith("night-")
    assert names.objection(docid) is None
    assert job_of(queue, docid) == JobFile("sim --fast 'a b'", "night", 100, 2, "run7", "logs")


def test_one_word_is_a_command_line_and_names_the_job_after_its_program(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("submit", queue, "--docid", "mine", "--json", "sim.x --fast") == 0
    assert json.loads(capsys.readouterr().out)["docid"] == "mine"
    assert job_of(queue, "mine") == JobFile("sim.x --fast", "sim_x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submit",), "Missing argument '-- COMMAND...'"),
        (("submit", "-n", 0, "sim"), "num_tasks 0"),
        (("submit", "--name", "../x", "sim"), "leading dot"),
        (("submit", "--all", "sim"), "No such option: --all"),
        (("submit", "--client", "3", "sim"), "No such option: --client"),
        (("status", "-n", 3), "No such option: -n"),
        (("status", "job"), "unexpected extra argument(s) (job)"),
        (("hold",), "Missing argument 'JOB...'"),
        (("hold", "--json", "job"), "No such option: --json"),
        (("stop",), "one of -n N, --all and --now"),
        (("stop", "--all", "--now"), "one of -n N, --all and --now"),
        (("stop", "-n", 0), "1 to 65,535"),
        (("begin",), "begin"),
    ],
)
def test_what_cannot_be_meant_is_said_and_nothing_is_done(
    queue: Path, capsys: pytest.CaptureFixture[str], words: tuple[object, ...], said: str
) -> None:
    action, *rest = words
    assert call(action, queue, *rest) == 2
    assert said in capsys.readouterr().err
    assert list(queue.iterdir()) == []


def test_what_is_not_there_is_said_with_its_exit_code(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("status", queue / "none") == 66
    assert call("cancel", queue, "job") == 66
    assert call("stop", queue, "--all") == 69
    said = capsys.readouterr().err
    assert "no job 'job'" in said
    assert "no broker runs" in said


def test_status_tells_of_jobs_that_wait_and_why(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("submit", queue, "--docid", "mine", "-n", 7, "sim")
    (queue / "steer\x1b[31m.ready").write_bytes(b"no job")
    capsys.readouterr()
    assert call("status", queue) == 0
    shown = capsys.readouterr().out
    [line] = [line for line in shown.splitlines() if " mine " in line]
    assert line.split()[:5] == ["0", "mine", "waiting", "7", "7"]
    assert line.endswith("no broker runs")
    assert "\x1b" not in shown
    assert call("status", queue, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["docid"] for one in found["jobs"]} == {"mine", "steer\x1b[31m"}
    assert found["brokers"] == []


def test_job_that_waits_is_cancelled_into_discarded(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("submit", queue, "--docid", "mine", "sim")
    assert call("hold", queue, "mine") == 66
    assert "queuedriver pause" in capsys.readouterr().err
    assert call("cancel", queue, "mine") == 0
    assert (queue / "discarded" / "mine").exists()
