"""Jobs on disk: taken up as a whole or not at all, and told right by whoever looks."""

import errno
import itertools
import json
import os
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.broker import Broker, Finished
from queuedriver.doors.fuq.wire import JobStatusUpdate, NewJob, Receiver, Type
from queuedriver.doors.words import Lost, Send, SetBack
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.driving.setup import opened
from queuedriver.errors import BadArgument, ProcessorFailed
from queuedriver.format import names
from queuedriver.format.settings import Settings
from queuedriver.jobs import job as fuq_jobs
from queuedriver.jobs import jobfile as fuq_jobfile
from queuedriver.jobs.foreman import Foreman
from queuedriver.jobs.job import OpenJob, Record, Unfolding
from queuedriver.jobs.jobfile import JobFile
from queuedriver.jobs.outcomes import Outcome, Outcomes
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.conftest import Bench


class Yard:
    """One foreman over queues in a directory, and clients that are only names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.at_end = ExitStack()
        (root / "in").mkdir(exist_ok=True)
        self.life = 0
        self.begin()

    def begin(self) -> None:
        """A new life of the broker; what the one before held is nobody's."""
        self.life += 1
        inputs, outputs, me = [self.root / "in"], [self.root / "out"], f"b{self.life}"
        found = self.at_end.enter_context(
            opened(inputs, outputs, me, Options(), lambda found: None)
        )
        self.queue = found.queues[0]
        self.jobs = self.queue.private.subdirectory(fuq_jobs.JOBS, create=True)
        fuq_jobs.sweep(self.jobs, self.queue.directory, alone=True)
        self.session = Broker()
        self.limits = Limits()
        self.foreman = Foreman(
            self.queue, self.jobs, found.observer, Tally(), self.limits, self.session
        )
        self.now = 0.0

    def close(self) -> None:
        self.foreman.close()
        self.jobs.close()
        self.at_end.close()
        self.limits.close()

    def client(self, name: bytes, nproc: int) -> None:
        self.session.joined(name, 0.0)
        self.session.receive(name, [wire.encode(Type.OK, nproc)], 0.0)

    def submit(self, docid: str, tasks: int = 1, need: int = 1) -> None:
        job = JobFile("sim", num_tasks=tasks, num_proc=need)
        (self.root / "in" / f"{docid}.ready").write_bytes(fuq_jobfile.encode(job))

    def take_up(self) -> None:
        (claim,) = self.queue.claim_some(1, time.monotonic())
        self.foreman.work(claim)

    def step(self) -> list[tuple[bytes, str, int]]:
        """One turn; what was dealt to whom: client, job, task."""
        self.now += 1.0
        self.foreman.step(self.now, dealing=True)
        return self.dealt()

    def dealt(self) -> list[tuple[bytes, str, int]]:
        """What was dealt, whatever came after it."""
        dealt = []
        for effect in self.foreman.take():
            assert isinstance(effect, Send)
            [message] = Receiver().feed(effect.frames[0])
            task = wire.decode_task(message.body)
            [one] = [each for each in self.foreman.jobs() if each.id == task.description.job_id]
            dealt.append((effect.peer, one.record.docid, task.task))
        return dealt

    def end(self, client: bytes, docid: str, task: int, free: int, **given: object) -> None:
        [one] = [each for each in self.foreman.jobs() if each.record.docid == docid]
        update = JobStatusUpdate(
            one.id,
            task,
            success=bool(given.get("success", True)),
            status="done",
            new_job=NewJob(free),
        )
        message = wire.encode_body(Type.UPDATE, wire.encode_update(update))
        self.hear(self.session.receive(client, [message], 0.0))

    def hear(self, effects: object) -> None:
        for effect in effects:  # type: ignore[attr-defined]
            if isinstance(effect, Finished | SetBack | Lost):
                self.foreman.end(effect)

    def results(self) -> dict[str, dict[str, object]]:
        return {
            one.name.removesuffix(".ready"): json.loads(one.read_bytes())
            for one in (self.root / "out").iterdir()
            if one.name.endswith(".ready")
        }

    def directories(self) -> list[str]:
        return sorted(name for name in self.jobs.names())


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
        fuq_jobfile.encode(job)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=50).map(str.encode)))
def test_what_is_no_job_file_is_a_failure_for_good(data: bytes) -> None:
    try:
        fuq_jobfile.decode("job", data)
    except ProcessorFailed as error:
        assert error.failure.permanent  # noqa: PT017 - a job file may come of it, too


def test_job_whose_tasks_could_not_be_named_is_refused() -> None:
    data = fuq_jobfile.encode(JobFile("sim", num_tasks=1_000_000))
    fuq_jobfile.decode("d" * 152, data)
    with pytest.raises(ProcessorFailed, match="161 bytes long"):
        fuq_jobfile.decode("d" * 153, data)
    with pytest.raises(ProcessorFailed):
        fuq_jobfile.decode("d", b"[" * 100_000)


# Taken up as a whole


def test_tasks_are_dealt_in_their_order_and_earlier_jobs_first(yard: Yard) -> None:
    yard.client(b"1", 5)
    for docid in ("b", "a"):
        yard.submit(docid, tasks=3)
        yard.take_up()
        yard.foreman.step(0.0, dealing=False)
        assert yard.foreman.at_hand == 1, "nothing is taken up while nothing may be dealt"
        while not any(one.record.docid == docid for one in yard.foreman.jobs()):
            yard.foreman._unfold(yard.foreman._unfolding)  # type: ignore[arg-type]
    assert yard.step() == [
        (b"1", "b", 1),
        (b"1", "b", 2),
        (b"1", "b", 3),
        (b"1", "a", 1),
        (b"1", "a", 2),
    ]


def test_large_job_is_not_starved_by_small_ones_behind_it(yard: Yard) -> None:
    yard.client(b"1", 4)
    yard.client(b"2", 2)
    for docid, tasks, need in (("first", 1, 1), ("large", 1, 4), ("small", 9, 1)):
        yard.submit(docid, tasks=tasks, need=need)
        yard.take_up()
        yard.foreman._unfold(yard.foreman._unfolding)  # type: ignore[arg-type]
    assert yard.step() == [(b"1", "first", 1), (b"2", "small", 1), (b"2", "small", 2)]
    yard.end(b"2", "small", 1, free=1)
    assert yard.step() == [(b"2", "small", 3)]
    yard.end(b"1", "first", 1, free=4)
    assert yard.step() == [(b"1", "large", 1)]


def test_job_that_is_larger_than_every_client_keeps_nobody_waiting(yard: Yard) -> None:
    yard.client(b"1", 4)
    for docid, need in (("large", 5), ("small", 1)):
        yard.submit(docid, need=need)
        yard.take_up()
        yard.foreman._unfold(yard.foreman._unfolding)  # type: ignore[arg-type]
    assert yard.step() == [(b"1", "small", 1)]


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
    assert yard.foreman.known == 0


@pytest.mark.parametrize("steps", range(4))
def test_broker_that_dies_while_it_takes_a_job_up_leaves_the_job_or_all_of_its_tasks(
    tmp_path: Path, steps: int
) -> None:
    yard = Yard(tmp_path)
    yard.submit("job", tasks=2 * fuq_jobs.CHUNK)
    yard.take_up()
    for _ in range(steps):
        if yard.foreman._unfolding is not None:
            yard.foreman._unfold(yard.foreman._unfolding)
    # It dies here: nothing is given back, nothing is closed in order.
    claimed = [name for name in os.listdir(tmp_path / "in") if name.endswith(".working")]
    assert len(claimed) == (1 if steps < 2 else 0)
    for name in claimed:
        os.rename(tmp_path / "in" / name, tmp_path / "in" / "job.ready")
    yard.begin()
    assert len(yard.directories()) == (0 if steps < 2 else 1)
    if claimed:
        yard.take_up()
    yard.client(b"1", 4)
    while not (dealt := yard.step()):
        pass
    assert len(dealt) == 4
    [one] = yard.foreman.jobs()
    assert one.waiting == 2 * fuq_jobs.CHUNK - 4
    yard.close()


def test_task_whose_outcome_was_noted_and_not_committed_is_run_again(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.client(b"1", 1)
    yard.submit("job", tasks=2)
    yard.take_up()
    yard.step()
    [one] = yard.foreman.jobs()
    one.outcomes.note([1], Outcome.ERROR)
    [directory] = yard.directories()
    where = tmp_path / "in" / names.PRIVATE / "jobs" / directory
    [working] = [name for name in os.listdir(where) if name.endswith(".working")]
    os.rename(where / working, where / "job.1.ready")
    yard.begin()
    yard.client(b"1", 2)
    dealt = yard.step()
    [one] = yard.foreman.jobs()
    assert one.outcomes.count(Outcome.OPEN) == 2
    assert [task for _, _, task in dealt] == [1, 2]
    yard.end(b"1", "job", 1, free=1)
    yard.end(b"1", "job", 2, free=2)
    yard.step()
    assert (yard.results()["job"]["done"], yard.results()["job"]["errors"]) == (2, 0)
    yard.close()


def test_job_that_was_taken_back_meanwhile_leaves_no_tasks(yard: Yard) -> None:
    yard.submit("job", tasks=2)
    yard.take_up()
    [working] = [name for name in os.listdir(yard.root / "in") if name.endswith(".working")]
    os.rename(yard.root / "in" / working, yard.root / "in" / "job.ready")
    assert yard.step() == []
    assert yard.directories() == []
    assert yard.foreman.at_hand == 0


def test_half_made_directory_of_a_living_broker_is_left_alone(bench: Bench) -> None:
    queue = bench.queue()
    jobs = queue.private.subdirectory("jobs", create=True)
    token = bench.token()
    serial = names.parse_token(token).serial
    bench.put(f"in/{names.working_name('job', 0, token)}")
    record = Record(serial, "job", 0.0, JobFile("sim", num_tasks=3))
    with_tasks = Unfolding(jobs, record, durable=False)
    with_tasks.step()
    with_tasks.close()
    fuq_jobs.sweep(jobs, queue.directory, alone=True)
    assert fuq_jobs.job_ids(jobs) == [serial]
    os.unlink(bench.root / "in" / names.working_name("job", 0, token))
    fuq_jobs.sweep(jobs, queue.directory, alone=False)
    assert fuq_jobs.job_ids(jobs) == [serial]
    fuq_jobs.sweep(jobs, queue.directory, alone=True)
    assert fuq_jobs.job_ids(jobs) == []
    jobs.close()


def test_task_that_was_dealt_before_a_file_system_failed_is_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = itertools.count(1)
    claim = InputQueue.claim

    def shaky(self: InputQueue, waiting: list[str]) -> Iterator[Claim]:
        if next(claims) == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return claim(self, waiting)

    monkeypatch.setattr(InputQueue, "claim", shaky)
    yard = Yard(tmp_path)
    yard.client(b"1", 4)
    yard.submit("job", tasks=3)
    yard.take_up()
    with pytest.raises(OSError, match="error"):
        yard.step()
    assert yard.dealt() == [(b"1", "job", 1)]
    yard.foreman.clean()
    assert yard.step() == [(b"1", "job", 2), (b"1", "job", 3)]
    yard.close()


# Lost


def test_lost_task_is_dealt_again_once_and_then_discarded(yard: Yard) -> None:
    yard.submit("job", tasks=1)
    yard.take_up()
    for name in (b"1", b"2"):
        yard.client(name, 1)
        assert yard.step() == [(name, "job", 1)]
        yard.hear(yard.session.gone(name, 0.0))
    yard.step()
    assert Queue(yard.queue.directory).discarded() == ["job.1"]
    assert yard.results()["job"]["lost"] == 1


def test_million_tasks_take_some_bytes_each_and_not_an_object(yard: Yard) -> None:
    record = Record(1, "job", 0.0, JobFile("sim", num_tasks=1_000_000))
    yard.submit("job")
    yard.take_up()
    yard.step()
    [one] = yard.foreman.jobs()
    tracemalloc.start()
    try:
        large = OpenJob(one.queue, record)
        large.begin()
        found, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert large.waiting == 1_000_000
    assert found < 6 << 20


# Outcomes


def test_outcomes_are_read_back_as_they_were_noted(bench: Bench) -> None:
    directory: Directory = bench.directory("job")
    outcomes = Outcomes(directory, 5)
    outcomes.note([1, 2], Outcome.DONE)
    outcomes.note([2], Outcome.LOST)
    outcomes.note([9], Outcome.DONE)
    again = Outcomes(directory, 5)
    assert (again.count(Outcome.DONE), again.count(Outcome.LOST), again.failed()) == (1, 1, (2,))
    again.reopen(1)
    assert again.count(Outcome.OPEN) == 4


def test_line_that_a_crash_cut_does_not_spoil_the_next(bench: Bench) -> None:
    directory: Directory = bench.directory("job")
    bench.put("job/outcomes", b"1 done\n2 do")
    outcomes = Outcomes(directory, 30)
    assert outcomes.count(Outcome.DONE) == 1
    outcomes.note([3], Outcome.ERROR)
    again = Outcomes(directory, 30)
    assert (again.count(Outcome.DONE), again.count(Outcome.ERROR)) == (1, 1)


@given(st.binary(max_size=200))
def test_outcomes_that_somebody_else_wrote_are_counted_or_skipped(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as where:
        (Path(where) / "outcomes").write_bytes(data)
        directory = Directory.open(where)
        outcomes = Outcomes(directory, 5)
        assert sum(outcomes.count(one) for one in Outcome) == 5
        directory.close()


def test_settings_of_a_job_are_its_queue_s(yard: Yard) -> None:
    yard.submit("job")
    yard.take_up()
    yard.step()
    [one] = yard.foreman.jobs()
    assert one.queue.settings == yard.queue.settings
    assert isinstance(one.queue.settings, Settings)
    assert one.queue.discarded is yard.queue.discarded
