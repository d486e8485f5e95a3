"""What the comparison with other tools counts, from what their workers and logs say."""

from dataclasses import replace
from pathlib import Path

from benchmarks.alternatives_reckoning import (
    Course,
    Log,
    failed_jobs,
    left_over,
    rates,
    spread,
)
from benchmarks.alternatives_tools import COMMAND, FUNCTION, MODEL, OWN, TOOLS, Job


def course(*lines: str) -> Course:
    found = Course()
    for line in lines:
        found.take(line)
    return found


def test_a_stage_that_was_only_begun_twice_did_not_run_twice() -> None:
    killed = course("begun 1 a 10", "begun 1 a 11", "ended 1 a 11")
    assert killed.ended_twice() == 0
    assert killed.begun_by("a") == 2


def test_a_stage_that_ended_twice_counts_once_however_often_it_ended() -> None:
    lines = ["begun 2 a 10", "ended 2 a 10"] * 3
    assert course(*lines, "begun 3 a 12", "ended 3 a 12").ended_twice() == 1


def test_a_worker_has_at_hand_what_it_has_begun_and_not_ended() -> None:
    working = course("begun 1 a 10", "begun 1 b 11", "ended 1 a 10", "begun 2 a 10")
    assert working.at_hand == {10: (2, "a"), 11: (1, "b")}


def test_half_a_line_is_taken_in_when_the_rest_of_it_is_there(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    assert not log.look()
    log.file.write_text("begun 1 a 10\nended 1 ")
    assert log.look()
    assert not log.course.ended
    log.file.write_text("begun 1 a 10\nended 1 a 10\nbegun 1 b 11\n")
    assert log.look()
    assert not log.look()
    assert (log.course.ended.total(), log.course.at_hand) == (1, {11: (1, "b")})


def test_kills_come_while_there_is_work_for_all() -> None:
    assert spread(1800, [0.999, 0.0, 0.5]) == [90, 765, 1438]


def test_a_job_has_failed_when_its_last_line_says_so() -> None:
    head = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand"
    jobs = [("a", "0", "9"), ("b", "1", "0"), ("c", "0", "0"), ("a", "0", "0"), ("d", "0", "15")]
    lines = [f"1\t:\t0\t0.1\t0\t0\t{code}\t{by}\tsh job.sh {docid}" for docid, code, by in jobs]
    assert failed_jobs("\n".join([head, *lines])) == {"b", "d"}
    assert failed_jobs("") == set()


def test_documents_a_second_leave_out_what_passes_until_the_first_is_through() -> None:
    assert rates([3.0, 6.0], [1.0, 2.0], 101) == [50.0, 25.0]


def test_left_over_is_what_is_neither_a_result_nor_the_queues_own(tmp_path: Path) -> None:
    own = ["settings.json", "landmarks.json", "landmark", "start.lock", "drivers/d.json"]
    own.append("orphans/a.x-1-2a.writing")
    left = ["input/a.ready", "s1/.queuedriver/claims/c1.x", "s2/discarded/b", "s2/a.unpublished"]
    for name in [*(f"s1/.queuedriver/{one}" for one in own), "s2/a.ready", ".watchdogd/x", *left]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert left_over(tmp_path, "s2") == sorted(left)


def test_a_tool_that_is_not_there_is_named_by_what_it_lacks() -> None:
    there = replace(OWN, needs=("sh",))
    assert there.missing() == ""
    assert replace(there, needs=("sh", "no-such-program", "nor-this")).missing() == (
        "no-such-program"
    )


def test_every_tool_has_a_set_up_for_each_kind_of_work(tmp_path: Path) -> None:
    for number, tool in enumerate(TOOLS):
        assert tool.note.startswith(tool.name)
        for kind in (FUNCTION, COMMAND, MODEL):
            directory = tmp_path / f"{number}-{kind}"
            directory.mkdir()
            tool.lay_out(directory, Job(kind, limit=2.0))
            place, _ = tool.results(Job(kind))
            assert place.endswith("s1" if kind == MODEL else "s3")
