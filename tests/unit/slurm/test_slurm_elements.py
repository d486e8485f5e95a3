"""What squeue tells of elements: an answer of Slurm 22.05 as it came, and others made after it."""

import json
from pathlib import Path
from typing import Any

import pytest

from watchdogd.slurm.elements import Element, Facts, read_elements, tasks_of

ANSWER = (Path(__file__).parent / "answers" / "22.05.json").read_bytes()
KEY = "watchdogd-0123456789ab"


def answer(**changes: Any) -> bytes:
    job = {
        "comment": f"{KEY}::7",
        "job_state": "RUNNING",
        "job_id": 12,
        "array_job_id": 10,
        "array_task_id": 2,
        "array_task_string": "",
    }
    return json.dumps({"jobs": [job | changes]}).encode()


def one(**changes: Any) -> Element:
    (found,) = read_elements(answer(**changes), KEY)
    return found


def test_of_all_jobs_those_of_the_pipeline_are_told() -> None:
    found = read_elements(ANSWER, KEY)
    assert [(el.name, el.stage, el.number, el.state, el.reason) for el in found] == [
        ("1_1", "", 1, "running", ""),
        ("1_2", "", 1, "running", ""),
        ("1_3", "", 1, "running", ""),
        ("4_1", "", 1, "running", ""),
        ("5_[1-5]", "ocr", 2, "pending", "Priority"),
        ("4_[2-3]", "", 1, "pending", "Resources"),
    ]
    jobs = [("1_1",), ("1_2",), ("1_3",), ("4_1",), ("5_1", "5_2", "5_3", "5_4", "5_5")]
    assert [el.jobs for el in found] == [*jobs, ("4_2", "4_3")]
    assert found[0].node == "n1"
    assert found[0].ends_at - found[0].starts_at == 600
    assert found[4].starts_at > found[0].starts_at


def test_numbers_and_states_are_read_as_later_versions_write_them() -> None:
    later = one(
        job_state=["RUNNING"],
        job_id={"set": True, "infinite": False, "number": 12},
        array_job_id={"set": True, "infinite": False, "number": 10},
        array_task_id={"set": True, "infinite": False, "number": 2},
        end_time={"set": False, "infinite": True, "number": 5},
    )
    assert (later.name, later.state, later.ends_at) == ("10_2", "running", 0)
    assert one(job_state=["PENDING", "REQUEUED"]).state == "pending"


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (["PENDING", "COMPLETING"], "pending"),
        (["COMPLETING", "PENDING"], "pending"),
        (["PENDING", "REQUEUE_HOLD"], "pending"),
        ("SPECIAL_EXIT", "pending"),
        ("CONFIGURING", "running"),
        (["RUNNING", "SIGNALING"], "running"),
        # Before 23.11 nothing tells whether it ends, or was requeued.
        ("COMPLETING", "completing"),
    ],
)
def test_an_element_is_there_as_long_as_it_runs_or_comes_again(
    told: str | list[str], state: str
) -> None:
    found = one(job_state=told)
    assert (found.state, Facts(elements=(found,)).count("")) == (state, 1)


@pytest.mark.parametrize(
    "told",
    [
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "STAGE_OUT"),
        ["CANCELLED", "COMPLETING"],
    ],
)
def test_a_job_that_has_ended_or_is_ending_is_no_element(told: str | list[str]) -> None:
    assert read_elements(answer(job_state=told), KEY) == ()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"jobs": [3]}', b'{"jobs": [{}]}', b"\xff"])
def test_what_is_no_answer_is_an_error_and_no_cluster_without_elements(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_elements(data, KEY)


@pytest.mark.parametrize(
    ("tasks", "count"),
    [("1-5", 5), ("3", 1), ("1,4,7-9", 5), ("1-9:2", 5), ("1-10%3", 10), ("", 0), ("1-...", 0)],
)
def test_the_tasks_that_are_pending_are_counted(tasks: str, count: int) -> None:
    assert len(tasks_of(tasks)) == count


def test_to_take_away_what_is_pending_leaves_alone_what_runs_of_its_array() -> None:
    pending = one(job_state="PENDING", array_task_id=None, array_task_string="2,5-6", job_id=10)
    assert pending.jobs == ("10_2", "10_5", "10_6")
    assert one().jobs == ("10_2",)
    assert one(array_job_id=0, array_task_id=None).jobs == ("12",)


def test_two_elements_and_two_lives_of_one_have_different_hosts() -> None:
    assert one().host == "10_2"
    assert one(restart_cnt=1).host == "10_2r1"
    # The ids of drivers have room for ten bytes: then it is the number of the task's own job.
    assert one(array_job_id=12345678, array_task_id=23, job_id=12345700).host == "12345700"
    again = one(array_job_id=1234567, array_task_id=34, job_id=1234601, restart_cnt=1)
    assert again.host == "1234601r1"


def test_a_controller_that_does_not_answer_is_no_cluster_without_elements() -> None:
    down = (Path(__file__).parent / "answers" / "22.05-down.json").read_bytes()
    with pytest.raises(ValueError, match="squeue: Failed while looking for jobs"):
        read_elements(down, KEY)
