"""An element of Slurm's: a watchdog with its attendant, where programs stand in for Slurm's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.operating.queue import Queue
from tests.cli.processes import ENVIRON, command
from tests.slurm_double import SlurmDouble, slurm
from tests.waiting import until
from watchdogd.pipeline.read import read
from watchdogd.slurm.elements import SUBMISSION
from watchdogd.slurm.submissions import VOID, Ledger, key

__all__ = ["slurm"]
TEXT = """
[slurm]
nodes = { min = 0, max = 3 }
target = "2 s"
idle = "1 s"
[[stage]]
name = "parse"
command = ["sh", "-c", "sleep 0.2; cat"]
durable = false
"""


class Element:
    """One `watchdogd run` as Slurm would start it."""

    def __init__(self, directory: Path, double: SlurmDouble) -> None:
        self.file = directory / "p.toml"
        self.root = directory / "queues"
        self.double = double
        self.log = directory / "element.log"
        self._state = directory / "state"
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, number: int = 1) -> None:
        """Have it be the first of job 100, and of a submission."""
        self.double.say([self.job(100, "RUNNING", 1, number)])
        environ = {
            **ENVIRON,
            "PATH": os.environ["PATH"],
            "WATCHDOGD_STATE": str(self._state),
            "SLURM_JOB_ID": "100",
            SUBMISSION: f'{{"number":{number}}}',
        }
        argv = [sys.executable, "-m", "watchdogd", "run", str(self.file), "--host", "100_1"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(argv, env=environ, stderr=log)

    def job(self, job: int, state: str, task: int, number: int) -> dict[str, object]:
        return {
            "job_id": job,
            "array_job_id": job,
            "array_task_id": task,
            "job_state": state,
            "comment": f"{key(read(str(self.file)))}::{number}",
        }

    def ask_to_leave(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def element(tmp_path: Path, slurm: SlurmDouble) -> Iterator[Element]:
    one = Element(tmp_path, slurm)
    one.file.write_text(TEXT)
    # As whoever submits makes it: the ledger is made inside it alone.
    one.root.mkdir()
    yield one
    one.end()


def test_element_with_much_to_do_has_more_submitted_and_leaves_when_it_is_done(
    element: Element, slurm: SlurmDouble
) -> None:
    with Queue.open(element.root / "input", create=True) as queue:
        for number in range(100):
            queue.submit(f"d{number}", b"x")
        element.begin()
        # Twenty seconds of work, and two to do it in.
        until(lambda: len(slurm.jobs) > 1, "others are submitted")
        # All that may be there, at once: two more.
        assert slurm.jobs[1]["array_task_string"] == "1-2"
        until(element.ended, "it leaves")
        assert queue.listing(0.0).ready == 0
        # Why they are pending Slurm says when it is asked next.
        assert queue.notice().startswith("waits for Slurm: 2 elements pending")
    assert "100_1 leaves: nothing to do" in element.log.read_text()


@pytest.mark.parametrize("is_killed", [False, True])
def test_whichever_way_the_last_element_goes_put_says_what_to_type(
    is_killed: bool, element: Element, tmp_path: Path
) -> None:
    (tmp_path / "d").touch()
    with Queue.open(element.root / "input", create=True) as queue:
        if is_killed:
            element.file.write_text(TEXT.replace('idle = "1 s"', 'idle = "1 h"'))
        element.begin()
        if is_killed:
            until(lambda: queue.notice() and queue.any_driver(), "it is there")
            element.end()
        until(element.ended, "it is gone")
        until(lambda: not queue.any_driver(), "its driver, too")
    told = command("put", element.root / "input", tmp_path / "d")
    words = "no driver is alive; watchdogd slurm start"
    assert (told.code, words in told.err) == (0, True), told


def test_element_of_a_submission_that_was_given_up_leaves(element: Element) -> None:
    with Ledger.open(read(str(element.file)), create=True) as ledger:
        ledger.begin(7, b"")
        ledger.end(7, VOID)
    element.begin(7)
    until(element.ended, "it leaves")
    assert "100_1 leaves: its submission had been given up" in element.log.read_text()


def test_element_that_leaves_already_is_not_hurried(element: Element) -> None:
    element.file.write_text(TEXT.replace("sleep 0.2", "sleep 8"))
    with Queue.open(element.root / "input", create=True) as queue:
        queue.submit("d", b"x")
        element.begin()
        until(lambda: queue.listing(0.0).working, "it is being processed")
        # As Slurm does, a while before its time is over.
        element.ask_to_leave()
        until(lambda: "a second signal hurries" in element.log.read_text(), "it leaves")
        with Ledger.open(read(str(element.file)), create=True) as ledger:
            ledger.stop(stopped=True)
        until(element.ended, "it has left")
        # A second signal would have had it given back.
        assert queue.listing(0.0).unfinished == 0


def test_elements_leave_when_none_is_to_be_there(element: Element) -> None:
    element.file.write_text(
        TEXT.replace("{ min = 0, max = 3 }", "1").replace('target = "2 s"\nidle = "1 s"\n', "")
    )
    element.begin()
    until(lambda: "runs on 100_1" in element.log.read_text(), "it is there")
    with Ledger.open(read(str(element.file)), create=True) as ledger:
        ledger.stop(stopped=True)
    until(element.ended, "it leaves")
    assert "100_1 leaves: watchdogd slurm stop" in element.log.read_text()
    assert not element.double.lines("cancelled")
