"""The cluster of the tests does what the scenes ask of it: real elements, and real troubles."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.slurm.cluster import Cluster
from tests.waiting import is_alive, until

# Begins on a node, notes where, and goes on until there is a file `go`. It starts no programs: each
# would have its command line for a moment.
_JOB = """\
#!{python} -S
#SBATCH --requeue --output=/dev/null
import os, time


def note(name):
    with open("{lab}/" + name, "a") as file:
        print(os.environ["SLURMD_NODENAME"], file=file)


note("begun")
while not os.path.exists("{lab}/go"):
    time.sleep(0.02)
note("ended")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "slurm") as cluster:
        yield cluster


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job"
    path.write_text(_JOB.format(lab=tmp_path, python=sys.executable))
    return path


def _of(cluster: Cluster, node: str) -> list[int]:
    """The processes of a job's script on a node."""
    return [pid for pid, words in cluster.processes(node).items() if "slurm_script" in words]


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_elements_of_an_array_run_on_all_nodes_at_once(
    cluster: Cluster, script: Path, tmp_path: Path
) -> None:
    job = cluster.submit(script, "--array=0-1")
    until(lambda: sorted(lines(tmp_path / "begun")) == cluster.nodes, "both have begun")
    assert cluster.states(job) == ["RUNNING"] * 2
    (tmp_path / "go").touch()
    until(lambda: cluster.states(job) == ["COMPLETED"] * 2, "both have ended")
    cluster.wait_until_idle()


def test_of_elements_that_have_ended_nothing_is_said_when_they_are_cancelled_once_more(
    cluster: Cluster, script: Path, tmp_path: Path
) -> None:
    """`watchdogd slurm` cancels what was pending a moment ago."""
    job = cluster.submit(script, "--array=0-1")
    until(lambda: len(lines(tmp_path / "begun")) == 2, "both have begun")
    ended, unknown = f"{job}_0", f"{job + 99}_0"
    cluster.slurm("scancel", ended)
    until(lambda: sorted(cluster.states(job)) == ["CANCELLED", "RUNNING"], "one has ended")
    told = cluster.command("scancel", ended, unknown)
    assert (told.returncode, told.stdout + told.stderr) == (0, "")
    assert sorted(cluster.states(job)) == ["CANCELLED", "RUNNING"]


def test_jobs_go_on_while_the_controller_is_down(
    cluster: Cluster, script: Path, tmp_path: Path
) -> None:
    job = cluster.submit(script)
    until(lambda: lines(tmp_path / "begun"), "it has begun")
    with cluster.controller_down():
        assert cluster.command("scontrol", "ping").returncode
        (tmp_path / "go").touch()
        until(lambda: lines(tmp_path / "ended"), "it goes on")
    until(lambda: cluster.states(job) == ["COMPLETED"], "the controller is told of its end")
    assert len(lines(tmp_path / "begun")) == 1


def test_jobs_of_a_node_without_power_and_of_one_cut_off_start_again_on_another(
    tmp_path: Path, script: Path
) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    with Cluster(tmp_path / "slurm", nodes=3) as cluster:
        job = cluster.submit(script, "--array=0-1")
        until(lambda: len(lines(begun)) == 2, "both have begun")
        dark, cut = lines(begun)
        (other,) = {*cluster.nodes} - {dark, cut}
        (killed,) = _of(cluster, dark)
        cluster.kill_node(dark)
        assert not is_alive(killed)
        cluster.cut(cut)
        until(lambda: len(lines(begun)) == 4, "both start again")
        assert lines(begun)[2:] == [other, other]
        assert [cluster.node_states()[one] for one in (dark, cut)] == ["down*"] * 2
        (zombie,) = _of(cluster, cut)
        assert is_alive(zombie)
        (tmp_path / "go").touch()
        until(lambda: sorted(lines(ended)) == sorted([cut, other, other]), "the zombie, too")
        cluster.start_node(dark)
        cluster.join(cut)
        until(lambda: cluster.states(job) == ["COMPLETED"] * 2, "they have ended")
        cluster.wait_until_idle()


def test_nothing_is_left_of_a_cluster(tmp_path: Path, script: Path) -> None:
    with Cluster(tmp_path / "slurm") as cluster:
        cluster.submit(script, "--array=0-1")
        until(lambda: len(lines(tmp_path / "begun")) == 2, "both have begun")
    mark = os.fsencode(str(tmp_path / "slurm"))
    left = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        # Others than ours come and go.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            left += [one.parent.name] if mark in one.read_bytes() else []
    assert not left
