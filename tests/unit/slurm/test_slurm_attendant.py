"""What looks after an element: it knows what it is, and what others are to be."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from queuedriver.format.records import Identity
from tests.slurm_double import SlurmDouble, slurm
from watchdogd.pipeline.read import read
from watchdogd.report import HostReport
from watchdogd.slurm import attendant
from watchdogd.slurm.attendant import LOOK_EVERY, Attendant
from watchdogd.slurm.elements import SUBMISSION, Element, Facts, Submission, requests, script
from watchdogd.slurm.submissions import Ledger

__all__ = ["slurm"]
TEXT = """
[slurm]
nodes = { min = 1, max = 5 }
[[stage]]
name = "parse"
command = "cat"
[[stage]]
name = "ocr"
command = "cat"
slurm = { per = "driver", nodes = { min = 1, max = 5 } }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "queues").mkdir()
    path = tmp_path / "p.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def ledger(file: Path) -> Iterator[Ledger]:
    with Ledger.open(read(str(file)), create=True) as opened:
        yield opened


def started(file: Path, one: Submission, monkeypatch: pytest.MonkeyPatch) -> Attendant:
    """Return the attendant of an element whose script was submitted as this, of a watchdog that
    nobody is."""
    pipeline = read(str(file))
    request = next(found for found in requests(pipeline) if found.name == one.stage)
    text = script(pipeline, request, one, "k", ("w",)).replace("exec w", "exec env; echo w")
    environ = {"PATH": os.defpath, "SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "9"}
    told = subprocess.run(
        ["bash"], input=text, env=environ, check=True, capture_output=True, text=True
    )
    said = dict(line.partition("=")[::2] for line in told.stdout.splitlines())
    monkeypatch.setenv(SUBMISSION, said.get(SUBMISSION, ""))
    return Attendant(-1, str(file), "7_1", str(file.parent / "local"))


@pytest.mark.parametrize("number", [0, 7])
def test_an_element_knows_what_it_is_when_its_submission_is_forgotten(
    number: int, file: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Submission(number=number, stage="ocr", drain=True, account="Ann's own")
    found = started(file, one, monkeypatch)
    found.turn(ledger)
    assert found.own == one


def test_what_was_chosen_for_one_group_is_not_for_others_that_its_elements_submit(
    file: Path, ledger: Ledger, slurm: SlurmDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = started(file, Submission(stage="ocr", partition="gpu"), monkeypatch)
    report = HostReport(
        host="7_1", pid=1, identity=Identity("7_1", "", "", 0, 1, 0), started_at=0.0, at=0.0
    )
    monkeypatch.setattr(attendant, "last_report", lambda _: report)
    found.turn(ledger)
    scripts = {job["name"]: f"{number}.sh" for number, job in enumerate(slurm.jobs, 1)}
    asked = {
        name: b"--partition=gpu" in ledger.directory.read(at, 9999) for name, at in scripts.items()
    }
    assert asked == {"p": False, "p-ocr": True}


@pytest.mark.parametrize("said", [TEXT, TEXT.replace('"ocr"', '"read"')])
def test_an_element_leaves_by_a_stop_whether_or_not_the_file_still_has_its_stage(
    said: str, file: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = started(file, Submission(stage="ocr"), monkeypatch)
    told: list[str] = []
    monkeypatch.setattr(found, "_leave", told.append)
    file.write_text(said)
    found.turn(ledger)
    assert told == []
    ledger.stop(stopped=True)
    found.turn(ledger)
    assert told == ["watchdogd slurm stop"]


def test_a_file_with_mistakes_is_told_in_a_line(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("[[stage]]\nnam = 1\n")
    monkeypatch.setattr(sys, "argv", ["attendant", "-1", str(file), "7_1", "local"])
    with pytest.raises(SystemExit, match="nam is no key"):
        attendant.main()


@pytest.mark.parametrize(
    ("state", "seconds"), [("running", 2 * LOOK_EVERY), ("pending", LOOK_EVERY)]
)
def test_of_many_that_run_each_looks_less_often_whoever_asks_slurm(
    state: Literal["running", "pending"],
    seconds: float,
    file: Path,
    ledger: Ledger,
    slurm: SlurmDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Somebody else has just asked.
    assert ledger.ask()
    hosts = [f"7_{task}" for task in range(60)]
    many = (Element(name=one, jobs=(one,), host=one, state=state) for one in hosts)
    ledger.note(Facts(question=1, at=time.time(), elements=tuple(many)))
    found, naps = started(file, Submission(), monkeypatch), list[float]()
    # It looks once, and then its watchdog is gone.
    parents = iter([found.watchdog, 0])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(time, "sleep", naps.append)
    found.run()
    assert naps == [pytest.approx(seconds, rel=0.21)]
