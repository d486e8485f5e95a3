"""Jobs on disk: dealt by one broker at a time, each task ended once, and told right."""

import errno
import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.check.check import check, repair
from queuedriver.claims import charging, handoff
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.words import Work
from queuedriver.errors import BadArgument, ProcessorFailed
from queuedriver.format import names
from queuedriver.jobs import control, jobfile
from queuedriver.jobs.job import view_of
from queuedriver.jobs.jobfile import JobFile
from queuedriver.jobs.outcomes import Outcome, Outcomes
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.conftest import Bench
from tests.yard import Yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    found = Yard(tmp_path)
    yield found
    found.close()


# Job files


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (JobFile("sim", name="../x"), "leading dot"),
        (JobFile("sim", name=".x"), "leading dot"),
        (JobFile("sim", name="x" * 101), "up to 100"),
        (JobFile("sim", name="x\n"), "up to 100"),
        (JobFile("sim", num_tasks=0), "1 to 1,000,000"),
        (JobFile("sim", num_tasks=1_000_001), "1 to 1,000,000"),
        (JobFile("sim", num_proc=0), "num_proc"),
        (JobFile("sim", num_proc=65_536), "num_proc"),
        (JobFile("sim 'open"), "No closing"),
        (JobFile("  "), "names no program"),
        (JobFile("sim \0"), "names no program"),
        (JobFile("sim", working_dir="a/../../b"), "without '..'"),
        (JobFile("sim", logging_dir="a\0"), "logging_dir"),
        (JobFile("sim " + "x" * 300_000), "at most"),
    ],
)
def test_job_that_no_client_could_run_is_refused_where_it_is_submitted(
    job: JobFile, words: str
) -> None:
    with pytest.raises(BadArgument, match=words):
        jobfile.encode(job)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=50).map(str.encode)))
def test_what_is_no_job_file_is_a_failure_for_good(data: bytes) -> None:
    try:
        jobfile.decode("job", data)
    except ProcessorFailed as error:
        assert error.failure.permanent  # noqa: PT017 - a job file may come of it, too


def test_job_whose_tasks_could_not_be_named_is_refused() -> None:
    data = jobfile.encode(JobFile("sim", num_tasks=1_000_000))
    jobfile.decode("d" * 152, data)
    with pytest.raises(ProcessorFailed, match="161 bytes long"):
        jobfile.decode("d" * 153, data)
    with pytest.raises(ProcessorFailed):
        jobfile.decode("d", b"[" * 100_000)


# Taken up


def test_job_of_a_million_tasks_is_taken_up_within_a_second_and_costs_no_inodes(
    yard: Yard,
) -> None:
    def inodes() -> int:
        return sum(1 for _ in yard.root.rglob("*"))

    yard.submit("small")
    yard.take_up()
    before = inodes()
    yard.submit("small-2")
    yard.take_up()
    of_a_small_job = inodes() - before
    yard.submit("large", tasks=1_000_000)
    # Of this thread: the processors may have others to serve.
    before, began = inodes(), time.thread_time()
    tracemalloc.start()
    try:
        job = yard.take_up()
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.thread_time() - began < 1.0
    # Of both the job file was there before.
    assert inodes() - before == of_a_small_job - 1
    assert memory < 6 << 20
    assert view_of(job).pending == 1_000_000


def test_tasks_are_dealt_in_their_order_and_earlier_jobs_first(yard: Yard) -> None:
    yard.client(b"1", 5)
    for docid in ("b", "a"):
        yard.submit(docid, tasks=3)
        yard.take_up()
    assert yard.step() == [(b"1", one) for one in ("b.1", "b.2", "b.3", "a.1", "a.2")]


def test_large_job_is_not_starved_by_small_ones_behind_it(yard: Yard) -> None:
    yard.client(b"1", 4)
    yard.client(b"2", 2)
    for docid, tasks, need in (("first", 1, 1), ("large", 1, 4), ("small", 9, 1)):
        yard.submit(docid, tasks=tasks, need=need)
        yard.take_up()
    assert yard.step() == [(b"1", "first.1"), (b"2", "small.1"), (b"2", "small.2")]
    yard.end(b"2", "small", 1, free=1)
    assert yard.step() == [(b"2", "small.3")]
    yard.end(b"1", "first", 1, free=4)
    assert yard.step() == [(b"1", "large.1")]


def test_job_that_is_larger_than_every_client_keeps_nobody_waiting(yard: Yard) -> None:
    yard.client(b"1", 4)
    for docid, need in (("large", 5), ("small", 1)):
        yard.submit(docid, need=need)
        yard.take_up()
    assert yard.step() == [(b"1", "small.1")]


def test_job_becomes_its_summary_when_its_last_task_has_ended(yard: Yard) -> None:
    yard.client(b"1", 4)
    yard.submit("job", tasks=2)
    yard.take_up()
    assert len(yard.step()) == 2
    yard.end(b"1", "job", 1, free=3)
    yard.end(b"1", "job", 2, free=4, success=False)
    yard.step()
    results = yard.results()
    assert set(results) == {"job", "job.1", "job.2"}
    assert (results["job"]["done"], results["job"]["errors"]) == (1, 1)
    assert results["job"]["failed_tasks"] == [2]
    assert yard.directories() == []
    assert yard.scheduler.unfinished == 0
    assert [one.state for one in yard.scheduler.ended] == ["finished"]


def test_file_of_a_task_is_there_only_from_when_it_is_dealt_until_it_has_ended(yard: Yard) -> None:
    yard.client(b"1", 2)
    yard.submit("job", tasks=5)
    yard.take_up()
    assert yard.files() == []
    yard.step()
    assert yard.files() == ["job.1.working", "job.2.working"]
    yard.end(b"1", "job", 1, free=1)
    yard.settle()
    assert yard.files() == ["job.2.working"]


def test_what_has_ended_is_told_also_while_the_next_broker_begins(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 1)
    yard.submit("job")
    yard.take_up()
    yard.step()
    yard.end(b"1", "job", 1, free=1)
    yard.step()
    yard.step()

    def told() -> list[str]:
        with Queue.open(tmp_path / "in") as queue:
            return [f"{one.docid} {one.state}" for one in control.view(queue).jobs]

    assert told() == ["job finished"]
    for _ in range(2):
        # Killed before it has said anything, and again.
        yard.begin()
        assert told() == ["job finished"]
    yard.step()
    assert told() == ["job finished"]
    assert [one.docid for one in yard.scheduler.ended] == ["job"]
    said = tmp_path / "in" / names.PRIVATE / control.DIRECTORY
    assert [one.name for one in said.iterdir()] == [f"b{yard.life}.json"]
    yard.close()


# Taken over


def test_job_keeps_its_jobid_whichever_broker_deals_it(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.submit("job", tasks=2)
    first = yard.take_up().id
    for _ in range(2):
        yard.die()
        yard.begin()
        assert yard.take_up().id == first
    yard.close()


def test_later_job_of_the_same_docid_has_its_own_jobid_and_tasks(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 1)
    yard.submit("job")
    first = yard.take_up().id
    yard.step()
    yard.end(b"1", "job", 1, free=1)
    yard.settle()
    # Its end is not seen to: its directory stays; and its file's inode is used again.
    again = tmp_path / "in" / "job.ready"
    os.rename(tmp_path / "in" / yard.job().claim.name, again)
    again.write_bytes(jobfile.encode(JobFile("sim", num_tasks=2)))
    job = yard.take_up()
    assert job.id != first
    assert job.outcomes.left == 2
    assert len(yard.directories()) == 2
    yard.die()
    yard.begin()
    assert len(yard.directories()) == 2, "one docid is not told from another"
    os.unlink(again)
    yard.begin()
    assert yard.directories() == [], "nothing of it is in the queue any more"
    yard.close()


def test_what_a_dead_broker_had_dealt_is_dealt_again_uncharged(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 2)
    yard.submit("job", tasks=4)
    yard.take_up()
    yard.step()
    yard.end(b"1", "job", 1, free=1)
    yard.settle()
    yard.die()
    yard.begin()
    yard.client(b"2", 4)
    job = yard.take_up()
    assert (view_of(job).done, view_of(job).pending) == (1, 3)
    assert yard.step() == [(b"2", one) for one in ("job.2", "job.3", "job.4")]
    assert yard.files() == ["job.2.working", "job.3.working", "job.4.working"]
    yard.close()


@pytest.mark.parametrize("success", [True, False])
def test_task_that_a_dead_broker_committed_is_published_and_told_as_it_was(
    tmp_path: Path, success: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 1)
    yard.submit("job")
    yard.take_up()
    yard.step()
    yard.end(b"1", "job", 1, free=1, success=success)
    with monkeypatch.context() as dies:
        dies.setattr(handoff, "publish", _die)
        with pytest.raises(OSError, match="died"):
            yard.settle()
    assert yard.files() == ["job.1.written"]
    yard.die()
    yard.begin()
    yard.take_up()
    yard.step()
    results = yard.results()
    assert set(results) == {"job", "job.1"}
    assert (results["job"]["done"], results["job"]["errors"]) == (int(success), int(not success))
    yard.close()


def _die(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "the broker died here")


def test_task_that_a_dead_broker_noted_as_lost_for_good_is_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path, Options(retries=0))
    yard.client(b"1", 1)
    yard.submit("job")
    yard.take_up()
    yard.step()
    yard.lose(b"1")
    with monkeypatch.context() as dies:
        dies.setattr(charging, "set_back", _die)
        with pytest.raises(OSError, match="died"):
            yard.settle()
    yard.die()
    yard.begin()
    yard.take_up()
    yard.step()
    with Queue.open(tmp_path / "in") as queue:
        assert queue.discarded() == ["job.1"]
        assert queue.report("job.1") is not None
    assert yard.results()["job"]["lost"] == 1
    yard.close()


def test_broker_whose_job_was_taken_over_publishes_nothing_of_it_any_more(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 2)
    yard.submit("job", tasks=3)
    yard.take_up()
    yard.step()
    old, session = yard.scheduler, yard.session
    yard.die()
    yard.begin()
    yard.client(b"2", 2)
    yard.take_up()
    assert yard.step() == [(b"2", "job.1"), (b"2", "job.2")]
    new, yard.scheduler, yard.session = yard.scheduler, old, session
    yard.end(b"1", "job", 1, free=1)
    yard.settle()
    assert yard.results() == {}
    assert yard.step() == [], "it does not deal either"
    assert old.unfinished == 0
    yard.scheduler = new
    assert yard.files() == ["job.1.working", "job.2.working"]
    yard.close()


def test_task_that_was_begun_after_the_job_was_taken_away_is_not_dealt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 1)
    yard.submit("job")
    yard.take_up()
    make = InputQueue.claim_of

    def and_is_taken_away(self: InputQueue, item: names.Item, name: str) -> Claim:
        yard.die()
        return make(self, item, name)

    monkeypatch.setattr(InputQueue, "claim_of", and_is_taken_away)
    assert yard.step() == []
    yard.close()


def test_after_a_job_was_taken_over_on_a_network_it_is_listed_once_more_before_anything_is_dealt(
    tmp_path: Path,
) -> None:
    yard = Yard(tmp_path, network=True)
    yard.client(b"1", 2)
    yard.submit("job", tasks=2)
    yard.take_up()
    assert len(yard.step()) == 2, "of a new job there is nothing to be missed"
    yard.die()
    yard.begin()
    yard.client(b"2", 4)
    job = yard.take_up()
    assert yard.step() == []
    assert "old listings" in view_of(job).why
    [where] = yard.directories()
    # Shown only now: what the other broker did last.
    (where / "job.1.ready").unlink()
    (where / "outcomes.late").write_text("1 done\n")
    yard.now += 60.0
    assert yard.step() == [(b"2", "job.2")]
    yard.close()


def test_task_that_ends_while_its_job_is_taken_over_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 1)
    yard.submit("job", tasks=2)
    yard.take_up()
    yard.step()
    yard.die()
    yard.begin()
    [where] = yard.directories()
    walk = names.walk

    def late(directory: Directory) -> Iterator[tuple[str, names.Item | None]]:
        for one in where.glob("*.working"):
            (where / "outcomes.late").write_text("1 done\n")
            one.unlink()
        return walk(directory)

    monkeypatch.setattr(names, "walk", late)
    yard.client(b"2", 4)
    yard.take_up()
    assert yard.step() == [(b"2", "job.2")]
    yard.close()


def test_of_two_files_of_one_task_one_is_dealt(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 1)
    yard.submit("job")
    yard.take_up()
    yard.step()
    [where] = yard.directories()
    # By a broker that was stopped before it found that the job was not its own any more.
    (where / names.working_name("job.1", 0, names.Mint("b9", "abcd").next(1))).touch()
    yard.die()
    yard.begin()
    yard.client(b"2", 4)
    yard.take_up()
    assert yard.step() == [(b"2", "job.1")]
    assert yard.files() == ["job.1.working"]
    yard.end(b"2", "job", 1, free=4)
    yard.step()
    assert set(yard.results()) == {"job", "job.1"}
    yard.close()


def test_file_of_a_task_that_was_removed_by_hand_is_made_anew(yard: Yard) -> None:
    yard.client(b"1", 1)
    yard.submit("job")
    yard.take_up()
    yard.step()
    [where] = yard.directories()
    for one in where.glob("*.working"):
        one.unlink()
    yard.end(b"1", "job", 1, free=1)
    assert yard.step() == [(b"1", "job.1")]
    yard.end(b"1", "job", 1, free=1)
    yard.step()
    assert set(yard.results()) == {"job", "job.1"}


def test_task_that_was_dealt_before_a_file_system_failed_is_not_forgotten(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.client(b"1", 4)
    yard.submit("job", tasks=3)
    yard.take_up()
    taken: list[Work | None] = []
    with monkeypatch.context() as shaky:
        present = Directory.present

        def fails(self: Directory, name: str) -> bool:
            if len(taken) == 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return present(self, name)

        shaky.setattr(Directory, "present", fails)
        [head] = yard.scheduler.heads(0.0)
        taken.append(yard.scheduler.take(head, 0.0))
        with pytest.raises(OSError, match="error"):
            yard.scheduler.take(head, 0.0)
    yard.scheduler.clean()
    assert [one.docid for one in taken if one is not None] == ["job.1"]
    assert [docid for _, docid in yard.step()] == ["job.2", "job.3"]


def test_result_that_cannot_be_written_now_is_written_when_all_is_well_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.client(b"1", 1)
    yard.submit("job")
    yard.take_up()
    yard.step()
    yard.end(b"1", "job", 1, free=1, success=False)
    for step in ("commit_by_name", "publish", "finish"):
        with monkeypatch.context() as full:
            full.setattr(handoff, step, _die)
            with pytest.raises(OSError, match="died"):
                yard.settle()
    yard.scheduler.clean()
    yard.step()
    results = yard.results()
    assert set(results) == {"job", "job.1"}
    assert (results["job"]["done"], results["job"]["errors"]) == (0, 1)


@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("dies", [False, True])
def test_task_that_is_published_and_whose_line_cannot_be_written_now_ends_once(
    tmp_path: Path, success: bool, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 1)
    yard.submit("job", tasks=2)
    yard.take_up()
    yard.step()
    yard.end(b"1", "job", 1, free=1, success=success)
    with monkeypatch.context() as full:
        full.setattr(Outcomes, "note", _die)
        with pytest.raises(OSError, match="died"):
            yard.settle()
    assert set(yard.results()) == {"job.1"}
    assert yard.files() == ["job.1.written"], "without a line it is not to go"
    if dies:
        yard.die()
        yard.begin()
        yard.client(b"1", 1)
        yard.take_up()
    else:
        yard.scheduler.clean()
    assert yard.step() == [(b"1", "job.2")]
    yard.end(b"1", "job", 2, free=1)
    yard.step()
    results = yard.results()
    assert set(results) == {"job", "job.1", "job.2"}
    assert (results["job"]["done"], results["job"]["errors"]) == (1 + success, 1 - success)
    yard.close()


# Lost


def test_lost_task_is_dealt_again_once_and_then_discarded(yard: Yard) -> None:
    yard.submit("job", tasks=1)
    yard.take_up()
    for name in (b"1", b"2"):
        yard.client(name, 1)
        assert yard.step() == [(name, "job.1")]
        yard.lose(name)
    yard.step()
    assert Queue(yard.queue.directory).discarded() == ["job.1"]
    assert yard.results()["job"]["lost"] == 1


def test_lost_task_is_dealt_again_when_its_delay_has_passed(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Options(retry_delay=30.0))
    yard.submit("job", tasks=1)
    yard.take_up()
    yard.client(b"1", 1)
    yard.step()
    before = time.time()
    yard.lose(b"1")
    yard.client(b"2", 1)
    assert yard.step() == []
    assert "is tried again at" in view_of(yard.job()).why
    assert yard.step(before + 29.0) == []
    assert yard.step(time.time() + 31.0) == [(b"2", "job.1")]
    yard.end(b"2", "job", 1, free=1)
    yard.step()
    assert set(yard.results()) == {"job", "job.1"}
    yard.close()


def test_clock_that_is_set_back_between_two_looks_deals_no_task_that_there_is_not(
    tmp_path: Path,
) -> None:
    yard = Yard(tmp_path, Options(retry_delay=60.0))
    yard.client(b"c", 1)
    yard.submit("job", 1)
    job = yard.take_up()
    assert yard.step() == [(b"c", "job.1")]
    yard.lose(b"c")
    yard.settle()
    later = time.time() + 61
    assert job.waits(later)
    assert job.claim_next(later - 3600) is None
    assert len(yard.files()) == 1
    assert job.claim_next(later) is not None
    yard.close()


def test_cancelled_job_of_a_million_tasks_ends_when_what_was_begun_has(yard: Yard) -> None:
    yard.client(b"1", 1)
    yard.submit("job", tasks=1_000_000)
    job = yard.take_up()
    yard.step()
    (yard.directories()[0] / "CANCEL").touch()
    yard.step()
    seen = view_of(job)
    assert (seen.state, seen.cancelled, seen.running, seen.pending) == ("cancelled", 999_999, 1, 0)
    assert not list(yard.directories()[0].glob("outcomes.*"))
    yard.end(b"1", "job", 1, free=1)
    yard.step()
    assert (yard.results()["job"]["done"], yard.results()["job"]["cancelled"]) == (1, 999_999)


def test_cancelled_job_drops_what_waits_again_and_stays_cancelled_at_the_next_broker(
    tmp_path: Path,
) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 2)
    yard.submit("job", tasks=3)
    yard.take_up()
    yard.step()
    yard.end(b"1", "job", 1, free=2)
    yard.settle()
    (yard.directories()[0] / "CANCEL").touch()
    # The other one that was begun is nobody's any more.
    yard.die()
    yard.begin()
    yard.client(b"2", 4)
    yard.take_up()
    assert yard.step() == []
    assert (yard.results()["job"]["done"], yard.results()["job"]["cancelled"]) == (1, 2)
    assert yard.directories() == []
    yard.close()


# Outcomes


def outcomes_of(bench: Bench, tasks: int, salt: str = "1a2b") -> Outcomes:
    found = Outcomes(bench.directory("job"), tasks, salt, durable=True)
    found.load()
    return found


def note(outcomes: Outcomes, outcome: Outcome, *tasks: int) -> None:
    for task in tasks:
        outcomes.note(task, outcome)


def test_outcomes_are_read_back_as_they_were_noted(bench: Bench) -> None:
    outcomes = outcomes_of(bench, 9)
    note(outcomes, Outcome.DONE, 1, 2, 12)
    note(outcomes, Outcome.ERROR, 4)
    note(outcomes, Outcome.LOST, 9)
    again = outcomes_of(bench, 9, "3c4d")
    for each in (outcomes, again):
        assert [each[task].name for task in range(1, 10)] == (
            ["DONE", "DONE", "OPEN", "ERROR"] + ["OPEN"] * 4 + ["LOST"]
        )
        assert (each.left, each.failed(), each.first(Outcome.OPEN, 4)) == (5, (4, 9), 5)


def test_what_was_done_stands_over_what_another_broker_gave_up(bench: Bench) -> None:
    note(outcomes_of(bench, 3, "ffff"), Outcome.LOST, 1, 2)
    note(outcomes_of(bench, 3, "0000"), Outcome.DONE, 1)
    note(outcomes_of(bench, 3, "1111"), Outcome.ERROR, 2)
    again = outcomes_of(bench, 3)
    assert [again[task].name for task in (1, 2, 3)] == ["DONE", "ERROR", "OPEN"]


def test_line_that_a_full_disk_cut_does_not_spoil_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = outcomes_of(bench, 30)
    write = os.write
    with monkeypatch.context() as full:

        def some(fd: int, data: bytes | memoryview) -> int:
            if len(data) < 5:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(fd, data[:5])

        full.setattr(os, "write", some)
        with pytest.raises(OSError, match="No space"):
            outcomes.note(2, Outcome.ERROR)
    assert outcomes[2] is Outcome.OPEN
    note(outcomes, Outcome.ERROR, 2, 3)
    assert outcomes_of(bench, 30).failed() == (2, 3)


@given(st.binary(max_size=200) | st.from_regex(r"([0-9-]{0,9} (done|lost)\n){0,5}"))
def test_outcomes_that_somebody_else_wrote_are_counted_or_skipped(data: bytes | str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as where:
        text = data if isinstance(data, bytes) else data.encode()
        (Path(where) / "outcomes.1a2b").write_bytes(text)
        directory = Directory.open(where)
        outcomes = Outcomes(directory, 5, "1a2b", durable=False)
        outcomes.load()
        assert sum(outcomes.count(each) for each in Outcome) == 5
        assert outcomes.left == sum(outcomes[task] is Outcome.OPEN for task in range(1, 6))
        directory.close()


def test_check_names_and_removes_what_is_left_of_a_job_that_has_ended(yard: Yard) -> None:
    yard.submit("job")
    yard.take_up()
    with Queue.open(yard.root / "in") as queue:
        assert not any(one.rule == "ended-job" for one in check(queue, pause=0.0))
        yard.die()
        os.unlink(yard.root / "in" / "job.ready")
        [found] = check(queue, pause=0.0)
        assert (found.rule, found.repair) == ("ended-job", "removes it")
        assert repair(queue, pause=0.0).left == []
    assert yard.directories() == []


def test_settings_of_a_job_are_its_queue_s(yard: Yard) -> None:
    yard.submit("job")
    job = yard.take_up()
    assert job.queue.settings == yard.queue.settings
    assert job.queue.discarded is yard.queue.discarded
