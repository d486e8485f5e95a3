"""Stands in for Slurm's programs: what is submitted is pending, until a test says otherwise."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE
from watchdogd.slurm import programs

_SBATCH = """#!{python} -S
import json, os, sys
here = {here!r}
text = sys.stdin.read()
json.dump(dict(os.environ), open(here + "/environ", "w"))
if os.path.exists(here + "/refuse"):
    sys.exit(open(here + "/refuse").read())
if "--test-only" in sys.argv:
    sys.exit(0)
words = [line.split("=", 1) for line in text.splitlines() if line.startswith("#SBATCH --")]
said = {{word[0].removeprefix("#SBATCH --"): word[-1] for word in words}}
jobs = json.load(open(here + "/jobs.json"))
number = len(jobs) + 100
jobs.append({{"job_id": number, "array_job_id": number, "array_task_id": None,
    "array_task_string": said["array"], "job_state": "PENDING", "state_reason": "Priority",
    "name": said["job-name"], "comment": said["comment"], "start_time": 0, "end_time": 0,
    "nodes": "", "restart_cnt": 0}})
with open(here + "/jobs.aside", "w") as aside:
    json.dump(jobs, aside)
os.replace(here + "/jobs.aside", here + "/jobs.json")
if os.path.exists(here + "/lose"):
    sys.exit("sbatch: error: Batch job submission failed: " + open(here + "/lose").read())
print(number)
"""
_SQUEUE = """#!/bin/sh
echo "$@" >> {here}/asked
if [ -e {here}/silent ]; then
    echo "slurm_load_jobs error: Unable to contact slurm controller" >&2
    exit 1
fi
echo '{{"jobs":'; cat {here}/jobs.json; echo '}}'
"""
_SCONTROL = """#!/bin/sh
echo "PartitionName=main Default=YES MaxTime=1-12:00:00 TRES=cpu=16,mem=16000M"
echo "PartitionName=long Default=NO MaxTime=UNLIMITED"
"""
_SCANCEL = """#!/bin/sh
echo "$@" >> {here}/cancelled
"""


class SlurmDouble:
    """A directory of programs, first in PATH."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.say([])
        for name, text in (
            *(("sbatch", _SBATCH), ("squeue", _SQUEUE)),
            *(("scancel", _SCANCEL), ("scontrol", _SCONTROL)),
        ):
            path = directory / name
            path.write_text(text.format(here=str(directory), python=sys.executable))
            path.chmod(0o755)

    @property
    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.directory / "jobs.json").read_text())
        return found

    def say(self, jobs: list[dict[str, Any]]) -> None:
        # Whoever reads meanwhile reads one of the two.
        aside = self.directory / "jobs.aside"
        aside.write_text(json.dumps(jobs))
        aside.replace(self.directory / "jobs.json")

    def mark(self, name: str, said: str = "") -> None:
        """`refuse` what is submitted, `lose` the answer, be `silent`."""
        (self.directory / name).write_text(said)

    def unmark(self, name: str) -> None:
        (self.directory / name).unlink()

    def lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmDouble:
    double = SlurmDouble(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{double.directory}:/usr/bin:/bin")
    # However long a busy machine takes to start a program.
    monkeypatch.setattr(programs, "SOON", PATIENCE)
    return double
