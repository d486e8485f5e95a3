"""Slurm starts watchdogs, and takes them away in all its ways: each document comes out once, and
none is charged for it.

Each scene has a Slurm of its own, with two nodes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.format import names
from queuedriver.format.records import LEASE
from tests.slurm.elements import BY_THE_WORK, PATIENCE, Elements
from tests.testbed.slurm.cluster import Cluster
from tests.waiting import until
from watchdogd.pipeline.model import MINUTE


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "slurm") as cluster:
        yield cluster


def test_two_elements_take_500_documents_through_three_stages(
    cluster: Cluster, tmp_path: Path
) -> None:
    yard = Elements(cluster, tmp_path / "yard", more=BY_THE_WORK)
    yard.put(499, 0.02, 0, 0.02)
    yard.put(1, "gate", name="last")
    yard.command("start", "--nodes", "2", "--drain")
    until(lambda: yard.elements() == ["RUNNING"] * 2, "both run", PATIENCE)
    assert set(cluster.node_states().values()) == {"allocated"}
    yard.open_gate()
    yard.wait_until_ended()
    assert yard.ended_as() == {"COMPLETED": 2}
    yard.check_all_came_out_once()


def test_elements_come_with_the_work_and_leave_when_there_is_none(
    cluster: Cluster, tmp_path: Path
) -> None:
    yard = Elements(cluster, tmp_path / "yard", more=BY_THE_WORK)
    yard.put(1, "gate-1", 0.5, 0.5)
    yard.command("start")
    until(yard.workers, "one comes for a document", PATIENCE)
    assert yard.elements() == ["RUNNING"]
    # By what the first has taken, much more than one element does in its five seconds.
    yard.put(200, "gate-2", name="e")
    yard.open_gate("gate-1")
    until(lambda: yard.elements() == ["RUNNING"] * 2, "another one comes", PATIENCE)
    until(lambda: yard.told_to_run() == 2, "its status is told", PATIENCE)
    yard.open_gate("gate-2")
    yard.wait_for_results(201)
    yard.wait_until_ended()
    yard.check_all_came_out_once()


def test_element_that_another_has_submitted_outlives_it_on_the_same_node(tmp_path: Path) -> None:
    with Cluster(tmp_path / "slurm", nodes=1, processors=8) as cluster:
        yard = Elements(cluster, tmp_path / "yard", more=BY_THE_WORK)
        yard.put(1, "gate-1", 0.5, 0.5)
        yard.command("start")
        until(yard.workers, "one comes for a document", PATIENCE)
        yard.put(200, "gate-2", name="e")
        yard.open_gate("gate-1")
        until(lambda: yard.elements() == ["RUNNING"] * 2, "it submits another one", PATIENCE)
        first, second = cluster.slurm("squeue", "--noheader", "--format=%A", "--sort=i").split()
        cluster.slurm("scancel", first)
        until(lambda: cluster.states(int(first)) == ["CANCELLED"], "it is gone", PATIENCE)
        yard.open_gate("gate-2")
        yard.wait_until_ended()
        assert yard.ended_as(int(second)) == {"COMPLETED": 1}
        yard.check_all_came_out_once()


def test_elements_that_are_told_to_stop_finish_what_they_have(
    cluster: Cluster, tmp_path: Path
) -> None:
    yard = Elements(cluster, tmp_path / "yard", grace="2 min", more=BY_THE_WORK)
    yard.put(2, 0, 0, "gate")
    yard.command("start", "--nodes", "2")
    until(lambda: "".join(yard.workers()).count("-results-") == 2, "both have one", PATIENCE)
    # By then Slurm was asked again, and the elements have looked whether they are to stop.
    assert yard.command("stop") == "watchdogd: 2 elements told to leave\n"
    assert yard.elements() == ["RUNNING"] * 2
    yard.open_gate()
    yard.wait_until_ended()
    assert yard.ended_as() == {"COMPLETED": 2}
    yard.check_all_came_out_once()


def test_of_elements_that_are_pending_as_many_are_taken_away_as_are_too_many(
    cluster: Cluster, tmp_path: Path
) -> None:
    yard = Elements(cluster, tmp_path / "yard", grace="2 min", more=BY_THE_WORK)

    def pending() -> list[str]:
        words = ("--noheader", "--array", "--states=PENDING", "--format=%i", "--sort=i")
        return cluster.slurm("squeue", *words).split()

    yard.put(4, "gate")
    yard.command("start", "--nodes", "5")
    until(lambda: "".join(yard.workers()).count("-read-") == 4, "two are at work", PATIENCE)
    first, *others = pending()
    assert len(others) == 2
    yard.command("scale", "3")
    assert pending() == [first]
    yard.command("stop")
    assert pending() == []
    yard.open_gate()
    yard.wait_until_ended()
    assert yard.ended_as()["COMPLETED"] == 2
    yard.check_all_came_out_once()


def _amid_documents(yard: Elements) -> int:
    """Let two elements be at work on 100 documents, of which the last comes out when the gate is
    open; return their job."""
    yard.put(99, 0.1, 0, 0.05)
    yard.put(1, "gate", name="last")
    job = yard.start("--drain")
    yard.wait_until_begun(2)
    yard.wait_for_results(20)
    return job


def test_element_that_is_requeued_amid_documents_charges_none(
    cluster: Cluster, tmp_path: Path
) -> None:
    yard = Elements(cluster, tmp_path / "yard")
    job = _amid_documents(yard)
    cluster.slurm("scontrol", "requeue", f"{job}_1")
    begun = yard.wait_until_begun(3)
    assert f"{job}_1r1" in {host for _, host in begun}
    yard.open_gate()
    yard.wait_until_ended()
    assert yard.ended_as(job) == {"COMPLETED": 2}
    yard.check_all_came_out_once()


def test_elements_that_are_cancelled_leave_all_documents_to_the_next(
    cluster: Cluster, tmp_path: Path
) -> None:
    yard = Elements(cluster, tmp_path / "yard")
    yard.put(100, 0.1, 0, 0.05)
    first = yard.start()
    yard.wait_for_results(20)
    cluster.slurm("scancel", str(first))
    yard.wait_until_ended()
    assert yard.ended_as(first) == {"CANCELLED": 2}
    yard.check_nobody_left()
    yard.check_none_charged()
    yard.start("--drain")
    yard.wait_until_ended()
    yard.check_all_came_out_once()


def test_documents_that_outlast_the_kill_of_their_element_are_not_charged(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Slurm kills what is left of an element after some seconds, watchdog and drivers at once; and
    another one on that node, which sees that their processes are gone, takes back what they had."""
    yard = Elements(cluster, tmp_path / "yard", grace="1 min")
    first = yard.start(options=["--nodelist=n1"], elements=1)
    yard.wait_until_begun(1)
    yard.put(2, "gate")
    until(lambda: yard.states() == {names.WORKING: 2}, "documents are being processed", PATIENCE)
    second = yard.start(options=["--nodelist=n1"], elements=1)
    yard.wait_until_begun(2)
    held = yard.workers()
    cluster.slurm("scancel", str(first))
    until(lambda: len(yard.workers() - held) == 2, "the other has taken them", PATIENCE)
    yard.check_none_charged()
    cluster.slurm("scancel", str(second))
    yard.wait_until_ended()
    yard.check_nobody_left()


def test_elements_whose_time_is_over_charge_none(cluster: Cluster, tmp_path: Path) -> None:
    """One is told before, by a signal to its watchdog alone; the other is ended at once. Every 30
    seconds Slurm looks whose time is over, or will be before it looks again."""
    yard = Elements(cluster, tmp_path / "yard")
    yard.put(4, "gate")
    told, ended = (yard.start(elements=1, options=["--time=10"]) for _ in range(2))
    until(lambda: yard.states() == {names.WORKING: 4}, "both have documents", PATIENCE)
    for job, seconds in ((told, 34), (ended, 1)):
        cluster.slurm("scontrol", "update", f"JobId={job}", f"EndTime=now+{seconds}")
    yard.wait_until_ended()
    assert (yard.ended_as(told), yard.ended_as(ended)) == ({"COMPLETED": 1}, {"TIMEOUT": 1})
    yard.check_nobody_left()
    yard.check_none_charged()
    yard.open_gate()
    yard.start("--drain")
    yard.wait_until_ended()
    yard.check_all_came_out_once()


def test_node_that_lost_power_costs_no_document(cluster: Cluster, tmp_path: Path) -> None:
    yard = Elements(cluster, tmp_path / "yard")
    job = _amid_documents(yard)
    (node, _), _ = yard.begun()
    cluster.kill_node(node)
    cluster.declare_down(node)
    yard.wait_until_begun(3)
    yard.open_gate()
    # That it is gone for certain, only an operator knows; drivers wait for the end of its lease.
    yard.give_up_the_silent()
    yard.wait_until_ended()
    cluster.start_node(node)
    assert yard.ended_as(job) == {"COMPLETED": 2}
    yard.check_all_came_out_once()


@pytest.mark.campaign
def test_what_a_node_without_power_had_is_taken_when_its_lease_is_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Three minutes, in which nobody says that it is gone."""
    yard = Elements(cluster, tmp_path / "yard")
    job = _amid_documents(yard)
    (node, _), _ = yard.begun()
    cluster.kill_node(node)
    cluster.declare_down(node)
    yard.wait_until_begun(3)
    yard.open_gate()
    yard.wait_until_ended(PATIENCE + LEASE)
    cluster.start_node(node)
    assert yard.ended_as(job) == {"COMPLETED": 2}
    yard.check_all_came_out_once()


def test_element_that_slurm_starts_again_while_the_first_goes_on_takes_no_document_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A node that is cut off: Slurm is no fence."""
    yard = Elements(cluster, tmp_path / "yard")
    job = yard.start(elements=1)
    ((node, host),) = yard.wait_until_begun(1)
    yard.put(40, 0.2)
    yard.wait_for_results(1)
    cluster.cut(node)
    _, (other, heir) = yard.wait_until_begun(2)
    assert (other != node, heir) == (True, f"{host}r1")
    zombie = cluster.processes(node)
    assert any("watchdogd.programs.driver" in words for words in zombie.values())
    # Both are at work, on the same queues, each with two drivers in the first stage.
    yard.put(60, "gate", name="e")
    held = "drivers of both process documents"
    until(lambda: "".join(yard.workers()).count("-read-") == 4, held, PATIENCE)
    # What an operator says who takes the first for dead: it loses what it has, and publishes none.
    yard.give_up_the_silent()
    yard.open_gate()
    yard.wait_for_results(100)
    yard.check_results()
    cluster.join(node)
    until(lambda: not cluster.processes(node), "Slurm ends the zombie", PATIENCE)
    cluster.slurm("scancel", str(job))
    yard.wait_until_ended()
    yard.check_all_came_out_once()


def test_controller_that_is_away_for_a_minute_and_back_is_not_missed(
    cluster: Cluster, tmp_path: Path
) -> None:
    yard = Elements(cluster, tmp_path / "yard", more=BY_THE_WORK)
    yard.put(1, "gate")
    yard.command("start", "--nodes", "2")
    until(lambda: yard.told_to_run() == 2, "both are told to run", PATIENCE)
    with cluster.controller_down():
        yard.work_for(MINUTE, 0.5)
        until(lambda: "; since then: " in yard.command("status"), "it is said", PATIENCE)
        # Of that age.
        assert yard.told_to_run() == 2
    # It is asked again, and nobody submits for want of an answer.
    yard.open_gate()
    yard.wait_until_ended()
    assert yard.ended_as() == {"COMPLETED": 2}
    yard.check_all_came_out_once()
