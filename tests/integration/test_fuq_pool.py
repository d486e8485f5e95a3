"""Jobs of fuq end to end: a queue, a broker, clients, and the processes they run."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.wire import Type
from queuedriver.doors.transports import tls
from queuedriver.doors.transports.addresses import host_and_port
from queuedriver.driving.closing import close_if_fed
from queuedriver.errors import NotFound, Unreachable
from queuedriver.format.names import PRIVATE
from queuedriver.jobs import control
from queuedriver.operating.operations import journal_of
from queuedriver.operating.queue import Queue
from tests.cli.processes import command
from tests.endpoints import own_endpoint, own_host
from tests.fuqs import Pool, numbered
from tests.waiting import is_alive, until_heard


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with Pool(tmp_path) as found:
        yield found


def ran(pool: Pool) -> Counter[str]:
    """How often each task was begun."""
    return Counter(line.split()[1] for line in pool.started())


def running(pool: Pool, tasks: int) -> None:
    """Wait until so many tasks have begun."""
    pool.wait(lambda: len(pool.started()) >= tasks, f"{tasks} tasks have begun")


# What a user gets


def test_hundred_tasks_through_two_clients_are_each_run_exactly_once(pool: Pool) -> None:
    broker = pool.broker()
    pool.worker(4)
    pool.worker(3)
    pool.submit(tasks=100, name="sim")
    summary = pool.until_done()
    assert ran(pool) == {str(task): 1 for task in range(1, 101)}
    results = pool.results()
    assert set(results) == numbered("job", range(1, 101)) | {"job"}
    one = results["job.7"]
    assert (one["success"], one["status"], one["task"], one["exit_code"]) == (True, "done", 7, 0)
    assert one["log"] == "out of 7\n"
    assert one["seconds"] > 0
    assert (summary["tasks"], summary["done"], summary["errors"]) == (100, 100, 0)
    pool.wait(lambda: not pool.jobs(), "the job's directory is gone")
    broker.signal()
    assert broker.ended() == (0, "quit")


@pytest.mark.quick
def test_failed_task_is_published_with_its_status_and_never_run_again(pool: Pool) -> None:
    pool.broker()
    pool.worker(2)
    pool.submit(command="sim fail", tasks=3)
    summary = pool.until_done()
    assert ran(pool) == {"1": 1, "2": 1, "3": 1}
    one = pool.results()["job.2"]
    assert (one["success"], one["exit_code"]) == (False, 3)
    assert one["status"] == "error encountered: exit status 3"
    assert (summary["done"], summary["errors"]) == (0, 3)
    assert summary["failed_tasks"] == [1, 2, 3]


def test_thousand_tasks_are_each_run_once_and_a_drained_broker_leaves(pool: Pool) -> None:
    true = (f"true={os.path.realpath('/bin/true')}",)
    pool.submit(command="true", tasks=1000)
    broker = pool.broker(drain=True)
    pool.worker(16, allow=true)
    assert broker.ended() == (0, "drained")
    results = pool.results()
    assert set(results) == numbered("job", range(1, 1001)) | {"job"}
    assert results["job"]["done"] == 1000


def test_queue_that_is_done_closes_its_output_when_the_last_job_has_ended(pool: Pool) -> None:
    pool.submit(command="sim wait", tasks=1)
    broker = pool.broker()
    pool.worker(1)
    running(pool, 1)
    (pool.queue / "done").touch()
    pool.settle(0.3)
    with Queue.open(pool.output) as output:
        assert not close_if_fed(output.directory), "the job's file has left, its task has not"
    assert broker.alive
    pool.go.touch()
    assert broker.ended() == (0, "done")
    assert (pool.output / "done").exists()
    (pool.queue / "done").unlink()
    pool.broker()
    with Queue.open(pool.queue / PRIVATE / "jobs") as jobs:
        assert not jobs.controls().done, "it goes on, and so do its jobs"


def test_job_file_that_is_none_is_discarded_with_the_reason(pool: Pool) -> None:
    (pool.queue / "bad.ready").write_bytes(b'{"command": "sim", "tasks": 3}')
    (pool.queue / "worse.ready").write_bytes(b'{"command": "sim", "name": "../x"}')
    pool.broker()
    with Queue.open(pool.queue) as queue:
        # A report comes a moment after its document.
        pool.wait(lambda: all(map(queue.report, ("bad", "worse"))), "both have a report")
        bad, worse = queue.report("bad"), queue.report("worse")
        assert bad is not None
        assert worse is not None
        assert "tasks" in bad.failure.message
        assert "leading dot" in worse.failure.message


def test_failed_task_is_told_as_failed_wherever_ends_of_children_are_thrown_away(
    pool: Pool,
) -> None:
    pool.broker()
    words = (sys.executable, "-m", "queuedriver", "worker", "fuq", pool.endpoint, "--nproc", "1")
    roots = ("--root", str(pool.root / "work"), "--log-root", str(pool.root / "logs"))
    # As a starter leaves it that collects no children of its own.
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        worker = subprocess.Popen([*words, "--allow", f"sim={pool.program}", *roots, "--quiet"])
    finally:
        signal.signal(signal.SIGCHLD, before)
    with worker:
        pool.submit(command="sim fail")
        summary = pool.until_done()
        worker.kill()
    assert (summary["done"], summary["errors"]) == (0, 1)
    assert pool.results()["job.1"]["exit_code"] == 3


# Processors


def test_task_of_several_processors_gets_them_and_larger_jobs_say_why_they_wait(
    pool: Pool,
) -> None:
    pool.broker()
    pool.worker(3)
    pool.wait(pool.clients, "the client is there")
    pool.submit("large", tasks=1, num_proc=8)
    pool.submit("two", "sim wait", tasks=2, num_proc=2)
    running(pool, 1)
    why = "each of its tasks takes 8 processors, and the largest client that would run it has 3"
    with Queue.open(pool.queue) as queue:

        def seen() -> dict[str, tuple[object, ...]]:
            jobs = control.view(queue).jobs
            return {one.docid: (one.state, one.running, one.pending, one.why) for one in jobs}

        wanted = {"two": ("running", 1, 1, ""), "large": ("waiting", 0, 1, why)}
        pool.wait(lambda: seen() == wanted, "it says so")
    pool.go.touch()
    assert pool.until_done("two")["done"] == 2
    found = command("check", str(pool.queue))
    assert found.code == 0, found
    pool.worker(8)
    assert pool.until_done("large")["done"] == 1


# Losses


def test_tasks_of_a_killed_client_are_run_once_more_and_lost_twice_are_discarded(
    pool: Pool,
) -> None:
    pool.broker()
    first = pool.worker(2)
    pool.submit(command="sim wait", tasks=2)
    running(pool, 2)
    first.kill()
    second = pool.worker(2)
    running(pool, 4)
    second.kill()
    summary = pool.until_done()
    assert ran(pool) == {"1": 2, "2": 2}
    assert (summary["errors"], summary["lost"], summary["failed_tasks"]) == (2, 2, [1, 2])
    with Queue.open(pool.queue) as queue:
        assert queue.discarded() == ["job.1", "job.2"]
        report = queue.report("job.1")
        assert report is not None
        assert report.failure.cause == "worker-lost"
        assert len(report.attempts) == 2
    assert set(pool.results()) == {"job"}


def test_task_that_was_lost_once_is_done_by_another_client(pool: Pool) -> None:
    pool.broker()
    first = pool.worker(1)
    pool.submit(command="sim wait", tasks=1)
    running(pool, 1)
    first.kill()
    pool.go.touch()
    pool.worker(1)
    assert pool.until_done()["done"] == 1
    assert ran(pool) == {"1": 2}


def test_broker_killed_amid_a_job_completes_it_when_it_is_back_and_publishes_nothing_twice(
    pool: Pool,
) -> None:
    broker = pool.broker(id="b")
    pool.worker(4)
    pool.submit(tasks=60)
    for part in (10, 30):
        pool.wait(lambda part=part: len(pool.results()) >= part, f"{part} results")  # type: ignore[misc]
        broker.kill()
        broker = pool.broker(id="b")
    assert pool.until_done()["done"] == 60
    assert set(pool.results()) == numbered("job", range(1, 61)) | {"job"}
    with Queue.open(pool.queue) as queue:
        assert queue.discarded() == []


def test_broker_killed_at_random_moments_loses_nothing_and_doubles_nothing(pool: Pool) -> None:
    moments = random.Random(5)
    broker = pool.broker(id="b")
    pool.worker(3)
    for number in range(10):
        pool.submit(f"job{number}", tasks=12)
    for _ in range(6):
        pool.settle(moments.uniform(0.0, 0.25))
        broker.kill()
        broker = pool.broker(id="b", wait=False)
    for number in range(10):
        summary = pool.until_done(f"job{number}")
        assert (summary["done"], summary["errors"]) == (12, 0)
    wanted = {f"job{number}" for number in range(10)}
    wanted |= {name for job in wanted for name in numbered(job, range(1, 13))}
    pool.wait(lambda: not pool.jobs(), "every directory is gone")
    assert set(pool.results()) == wanted
    with Queue.open(pool.queue) as queue:
        assert queue.discarded() == []


def test_client_goes_on_with_its_tasks_while_the_broker_is_away(pool: Pool) -> None:
    broker = pool.broker(id="b")
    pool.worker(2)
    pool.submit(command="sim wait", tasks=2)
    running(pool, 2)
    broker.kill()
    pool.broker(id="b")
    pool.wait(pool.clients, "the client is back")
    pool.settle(0.3)
    pool.go.touch()
    summary = pool.until_done()
    assert (summary["done"], summary["errors"]) == (2, 0)
    with Queue.open(pool.queue) as queue:
        assert queue.discarded() == []


def test_another_broker_takes_over_what_a_dead_one_left(pool: Pool) -> None:
    broker = pool.broker(id="one")
    pool.submit(command="sim wait", tasks=5)
    pool.worker(1)
    running(pool, 1)
    broker.kill()
    with Queue.open(pool.queue) as queue:
        assert [one.why for one in control.view(queue).jobs] == ["no broker runs"]
    pool.broker(id="two", retries=1)
    pool.go.touch()
    assert pool.until_done()["done"] == 5


# Nobody waits in silence


def test_worker_says_at_the_default_level_why_it_has_nothing_to_do(
    pool: Pool, tmp_path: Path
) -> None:
    secret, wrong = tmp_path / "secret", tmp_path / "wrong"
    for file in (secret, wrong):
        file.write_text(f"{file.name}: sixteen bytes and more")
        file.chmod(0o600)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        closed = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
    pool.broker(secret_file=str(secret))
    allowed = ("--allow", f"other={pool.program}", "--nproc", "1", "--log-root", str(tmp_path))
    pool.submit()
    with contextlib.ExitStack() as at_end:
        lines = [
            at_end.enter_context(said("worker", "fuq", address, *allowed, *more))
            for address, more in (
                (closed, ()),
                (pool.endpoint, ("--secret-file", str(wrong))),
                (pool.endpoint, ("--secret-file", str(secret))),
            )
        ]
        pool.wait(lambda: lines[0], "it says what it is for")
        assert f"other for fuq at {closed}; Ctrl-C to leave" in lines[0][0]
        wanted = [
            "no broker: ",
            "the broker does not know our secret",
            "is refused: it names 'sim'",
        ]
        pool.wait(lambda: all(map(str.__contains__, map("".join, lines), wanted)), "all say it")


@contextlib.contextmanager
def said(*arguments: str) -> Iterator[list[str]]:
    """What a command says on stderr while it runs."""
    lines: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "queuedriver", *arguments], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    reader = threading.Thread(target=lines.extend, args=(process.stderr,))
    reader.start()
    try:
        yield lines
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stderr.close()


# What is to be seen


def test_status_keeps_what_has_ended_and_tells_how_old_it_is(pool: Pool) -> None:
    broker = pool.broker(id="one")
    pool.worker(2)
    pool.submit(tasks=3)
    pool.until_done()
    with Queue.open(pool.queue) as queue:
        ended = [("job", "finished", 3, 0)]

        def seen() -> list[tuple[str, str, int, int]]:
            jobs = control.view(queue).jobs
            return [(one.docid, one.state, one.done, one.pending) for one in jobs]

        pool.wait(lambda: seen() == ended, "it has ended")
        broker.signal()
        assert broker.ended()[0] == 0
        assert seen() == ended
        found = command("fuq", "status", str(pool.queue))
        assert "no broker runs; as the last one said" in found.out
        pool.submit("next", tasks=2)
        pool.broker(id="two", wait=False)
        pool.until_done("next")
        pool.wait(lambda: seen() == [*ended, ("next", "finished", 2, 0)], "both are told of")
        # What the one before has said is removed when the next one has told it.
        pool.wait(lambda: len(pool.views()) == 1, "what is told of is bounded")


# What an operator does


def test_held_job_begins_nothing_until_it_is_released(pool: Pool) -> None:
    pool.broker()
    pool.submit(command="sim wait", tasks=3)
    pool.worker(1)
    running(pool, 1)
    with Queue.open(pool.queue) as queue:
        control.hold(queue, ["job"])
        pool.wait(lambda: [one.state for one in control.view(queue).jobs] == ["paused"], "held")
        pool.go.touch()
        pool.wait(lambda: "job.1" in pool.results(), "what ran has ended")
        pool.settle(0.3)
        assert len(pool.started()) == 1
        held = ("paused", "it is held; release it")
        pool.wait(lambda: [(one.state, one.why) for one in control.view(queue).jobs] == [held], "")
        [seen] = control.view(queue).jobs
        control.release(queue, [str(seen.job)])
    assert pool.until_done()["done"] == 3


def test_cancelled_job_drops_what_was_not_begun_and_lets_the_rest_end(pool: Pool) -> None:
    pool.broker()
    pool.submit(command="sim wait", tasks=2000)
    pool.worker(2)
    running(pool, 2)
    with Queue.open(pool.queue) as queue, journal_of(queue) as journal:
        control.cancel(queue, ["job"], journal)
        pool.wait(
            lambda: not any(one.pending for one in control.view(queue).jobs), "they are dropped"
        )
        assert [one.state for one in control.view(queue).jobs] == ["cancelled"]
    pool.go.touch()
    summary = pool.until_done()
    assert (summary["done"], summary["cancelled"], len(pool.started())) == (2, 1998, 2)


def test_job_that_no_broker_has_taken_up_can_be_cancelled_and_not_held(pool: Pool) -> None:
    pool.submit()
    with Queue.open(pool.queue) as queue, journal_of(queue) as journal:
        with pytest.raises(NotFound, match="no broker has taken it up"):
            control.hold(queue, ["job"])
        [seen] = control.view(queue).jobs
        assert (seen.job, seen.state, seen.why) == (0, "waiting", "no broker runs")
        control.cancel(queue, ["job"], journal)
        assert queue.discarded() == ["job"]
        with pytest.raises(NotFound, match="no job"):
            control.cancel(queue, ["job"], journal)
        # To look has made nothing.
        assert not (pool.queue / PRIVATE / "jobs").exists()
        with pytest.raises(Unreachable):
            control.stop(queue, wire.STOP_ALL, None)


def test_stop_takes_processors_and_a_client_without_any_leaves(pool: Pool) -> None:
    pool.broker()
    worker, other = pool.worker(2), pool.worker(1)
    pool.wait(lambda: pool.clients() == 2, "both are there")
    pool.submit(command="sim wait", tasks=3)
    running(pool, 3)
    with Queue.open(pool.queue) as queue:
        seen = control.view(queue).clients
        [large] = [f"{broker}/{one.client}" for broker, one in seen if one.nproc == 2]
        assert control.taken(queue, control.stop(queue, 1, large), 30.0)
        pool.wait(lambda: {one.nproc for _, one in control.view(queue).clients} == {1}, "lowered")
        assert control.taken(queue, control.stop(queue, wire.STOP_ALL, None), 30.0)
        with pytest.raises(NotFound, match="no client"):
            control.stop(queue, wire.STOP_ALL, "77")
    pool.go.touch()
    assert worker.ended() == (0, "all its processors were stopped")
    assert other.ended()[0] == 0
    assert pool.until_done()["done"] == 3


def test_stop_at_once_kills_tasks_and_charges_nobody(pool: Pool) -> None:
    pool.broker()
    worker = pool.worker(2)
    pool.submit(command="sim wait", tasks=2)
    running(pool, 2)
    with Queue.open(pool.queue) as queue:
        assert control.taken(queue, control.stop(queue, wire.STOP_NOW, None), 30.0)
        assert worker.ended() == (0, "the broker stopped it at once")
    [job] = pool.jobs()
    pool.wait(lambda: set(pool.items(job).values()) == {"ready"}, "both wait again, as if new")


def test_client_that_is_asked_to_leave_finishes_its_tasks(pool: Pool) -> None:
    pool.broker()
    worker = pool.worker(1)
    pool.submit(command="sim wait", tasks=2)
    running(pool, 1)
    worker.signal()
    until_heard(worker.pid, signal.SIGTERM)
    pool.settle(0.2)
    assert worker.alive
    pool.go.touch()
    assert worker.ended() == (0, "it was asked to")
    pool.wait(pool.results, "what it has reported is published")
    assert set(pool.results()) == {"job.1"}
    pool.worker(1)
    assert pool.until_done()["done"] == 2


def test_client_that_is_out_of_time_gives_its_tasks_back_uncharged(pool: Pool) -> None:
    pool.broker()
    worker = pool.worker(2, grace=0.1)
    pool.submit(command="sim wait", tasks=2)
    running(pool, 2)
    worker.signal()
    assert worker.ended()[0] == 0
    [job] = pool.jobs()
    pool.wait(lambda: set(pool.items(job).values()) == {"ready"}, "they wait, as if new")


def test_tasks_that_were_ended_by_what_stopped_their_client_are_run_once_more(pool: Pool) -> None:
    pool.broker()
    worker = pool.worker(3)
    pool.submit(command="sim wait", tasks=3)
    running(pool, 3)
    # As systemd and Slurm stop all that there is of a service or a job; the client hears of all
    # at once.
    tasks = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    worker.signal(signal.SIGSTOP)
    for task in tasks:
        os.killpg(int(task), signal.SIGTERM)
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGCONT)
    assert worker.ended() == (0, "it was asked to")
    assert pool.results() == {}
    pool.go.touch()
    pool.worker(3)
    assert pool.until_done()["done"] == 3
    assert ran(pool) == {"1": 2, "2": 2, "3": 2}


def stopper(pool: Pool, last: str) -> tuple[str, ...]:
    """A program that has its client asked to leave, and then ends so; what allows it."""
    program = pool.root / "stopper"
    program.write_text(f"#!/bin/sh\necho run $1 >> {pool.runs}\nkill -TERM $PPID\n{last}\n")
    program.chmod(0o755)
    return (f"stopper={program}",)


@pytest.mark.parametrize("last", ["exit 1", "kill -KILL $$"])
def test_task_that_fails_after_it_has_stopped_its_client_has_failed_for_good(
    pool: Pool, last: str
) -> None:
    pool.broker()
    worker = pool.worker(1, allow=stopper(pool, last))
    pool.submit(command="stopper")
    assert worker.ended() == (0, "it was asked to")
    summary = pool.until_done()
    assert (summary["errors"], summary["lost"]) == (1, 0)
    assert set(pool.results()) == {"job", "job.1"}
    assert ran(pool) == {"1": 1}


@pytest.mark.parametrize("last", ["exit 143", "kill -TERM $$"])
def test_task_that_stops_its_clients_and_itself_is_discarded_the_second_time(
    pool: Pool, last: str
) -> None:
    pool.broker()
    allow = stopper(pool, last)
    first = pool.worker(1, allow=allow)
    pool.submit(command="stopper")
    assert first.ended() == (0, "it was asked to")
    pool.worker(1, allow=allow)
    summary = pool.until_done()
    assert (summary["errors"], summary["lost"]) == (1, 1)
    with Queue.open(pool.queue) as queue:
        report = queue.report("job.1")
        assert report is not None
        assert report.failure.cause == "worker-lost"
    assert ran(pool) == {"1": 2}


def test_tasks_that_end_as_if_stopped_have_failed_where_nobody_stopped_their_client(
    pool: Pool,
) -> None:
    program = pool.root / "ends"
    program.write_text("#!/bin/sh\nexit 143\n")
    program.chmod(0o755)
    pool.broker()
    worker = pool.worker(2, allow=(f"ends={program}",))
    pool.submit(command="ends", tasks=4)
    summary = pool.until_done()
    assert (summary["errors"], summary["lost"]) == (4, 0)
    assert worker.alive


def test_broker_that_is_asked_to_leave_gives_back_what_does_not_end_in_time(pool: Pool) -> None:
    broker = pool.broker(grace=0.1)
    pool.worker(2)
    pool.submit(command="sim wait", tasks=3)
    running(pool, 2)
    broker.signal(signal.SIGTERM)
    assert broker.ended() == (0, "quit")
    [job] = pool.jobs()
    assert set(pool.items(job).values()) == {"ready"}


def test_quit_takes_the_grace_that_was_given_and_no_longer(pool: Pool) -> None:
    broker = pool.broker(grace=2.0)
    pool.worker(1)
    pool.submit(command="sim wait")
    running(pool, 1)
    began = time.monotonic()
    (pool.queue / "QUIT").touch()
    assert broker.ended() == (0, "quit")
    # Much less than the grace that it would have had.
    assert 2.0 <= time.monotonic() - began < 30.0


def test_broker_that_is_asked_to_leave_again_and_again_ends_as_if_asked_once(pool: Pool) -> None:
    (pool.root / "out").mkdir()
    words = ("broker", "fuq", str(pool.queue), "--to", str(pool.output), "--quiet")
    listen = ("--listen", own_endpoint())
    for number in range(3):
        one = ("--id", f"b{number}", *listen)
        with subprocess.Popen([sys.executable, "-m", "queuedriver", *words, *one]) as broker:
            mine = pool.queue / PRIVATE / "fuq" / f"b{number}.json"
            pool.wait(mine.exists, "it deals")
            while broker.poll() is None:
                broker.send_signal(signal.SIGTERM)
        assert broker.returncode == 0


def test_paused_queue_deals_no_task(pool: Pool) -> None:
    (pool.queue / "PAUSE").touch()
    pool.broker()
    pool.worker(1)
    pool.submit()
    pool.wait(pool.clients, "the client is there")
    pool.settle(0.3)
    assert pool.started() == []
    (pool.queue / "PAUSE").unlink()
    assert pool.until_done()["done"] == 1


# Safety


def test_command_that_is_not_allowed_is_refused_and_runs_where_it_is(pool: Pool) -> None:
    pool.broker()
    pool.worker(2, allow=(f"other={pool.program}",))
    pool.wait(pool.clients, "the client is there")
    pool.submit(tasks=2)
    with Queue.open(pool.queue) as queue:
        words = "every client refuses it: see their --allow, --root and --log-root"
        pool.wait(lambda: [one.why for one in control.view(queue).jobs] == [words], "it says so")
        assert queue.discarded() == []
    [job] = pool.jobs()
    # It is asked again now and then.
    pool.wait(lambda: set(pool.items(job).values()) == {"ready"}, "both wait")
    assert pool.started() == []
    pool.worker(1)
    assert pool.until_done()["done"] == 2


@pytest.mark.parametrize("directory", ["link", "../outside", "/etc", "link/inside"])
def test_job_works_nowhere_but_beneath_the_root(pool: Pool, directory: str) -> None:
    (pool.root / "outside" / "inside").mkdir(parents=True)
    (pool.root / "work" / "link").symlink_to(pool.root / "outside")
    pool.broker()
    pool.worker(1)
    if ".." in directory:
        # Its submitter is told at once; a job file made by hand is discarded.
        (pool.queue / "job.ready").write_text('{"command":"sim","working_dir":"../outside"}')
        with Queue.open(pool.queue) as queue:
            pool.wait(lambda: queue.discarded() == ["job"], "it is discarded")
    else:
        pool.submit(working_dir=directory)
        with Queue.open(pool.queue) as queue:
            pool.wait(
                lambda: any("refuses" in one.why for one in control.view(queue).jobs), "refused"
            )
    assert pool.started() == []


def test_logs_are_private_and_never_overwritten(pool: Pool) -> None:
    logs = pool.root / "logs" / "deep"
    logs.mkdir(parents=True)
    (logs / "sim_1.log").write_text("an older one")
    (logs / "sim_1-1.log").symlink_to(pool.root / "elsewhere")
    pool.broker()
    pool.worker(1)
    pool.submit(name="sim", logging_dir="deep", tasks=2)
    pool.until_done()
    assert (logs / "sim_1.log").read_text() == "an older one"
    assert (logs / "sim_1-2.log").read_text() == "out of 1\n"
    assert (logs / "sim_2.log").read_text() == "out of 2\n"
    assert not (pool.root / "elsewhere").exists()
    assert (logs / "sim_2.log").stat().st_mode & 0o777 == 0o600


def test_task_has_a_clean_environment_and_no_stdin(pool: Pool) -> None:
    program = pool.root / "show"
    program.write_text("#!/bin/sh\nenv | cut -d= -f1 | sort | tr '\\n' ' '; cat; pwd; echo $1 $2\n")
    program.chmod(0o755)
    (pool.root / "work" / "w").mkdir()
    pool.broker()
    pool.worker(1, allow=(f"show={program}",))
    pool.submit(command="show 'a b;c'", working_dir="w")
    pool.until_done()
    log = pool.results()["job.1"]["log"]
    names, where, words = log.splitlines()[0], log.splitlines()[-2], log.splitlines()[-1]
    assert set(names.split()) - {"PWD", "_", "OLDPWD", "SHLVL"} <= {
        "FUQ_JOB",
        "FUQ_NAME",
        "FUQ_TASK",
        "LANG",
        "PATH",
        str(pool.root / "work" / "w"),
    }
    assert where.endswith("/work/w")
    assert words == "a b;c 1"


def test_what_a_task_leaves_running_ends_with_it(pool: Pool) -> None:
    program = pool.root / "daemon"
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {pool.root}/pid\n")
    program.chmod(0o755)
    pool.broker()
    pool.worker(1, allow=(f"daemon={program}",))
    pool.submit(command="daemon")
    pool.until_done()
    pid = int((pool.root / "pid").read_text())
    pool.wait(lambda: not is_alive(pid), "the rest of its group has ended")


def test_task_that_takes_too_long_is_ended_and_reported(pool: Pool) -> None:
    pool.broker()
    pool.worker(1, timeout=0.2)
    pool.submit(command="sim wait")
    assert pool.until_done()["errors"] == 1
    assert "time-out" in pool.results()["job.1"]["status"]


def test_forged_lengths_and_noise_end_their_connections_and_nothing_else(pool: Pool) -> None:
    pool.broker()
    pool.worker(2)
    host, port = host_and_port(pool.endpoint)
    for forged in (
        wire.HEADER.pack(wire.MAGIC, Type.UPDATE, 0, 0xFFFFFFFF),
        wire.HEADER.pack(wire.MAGIC, Type.OK, 0, 4)
        + wire.HEADER.pack(wire.MAGIC, Type.UPDATE, 0, (1 << 20) + 1),
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(4096),
    ):
        with contextlib.closing(socket.create_connection((host, port), timeout=60)) as rude:
            rude.sendall(forged)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while data := rude.recv(4096):
                    received += data
            assert received.startswith(wire.encode(Type.OK, 0))
    pool.submit(tasks=4)
    assert pool.until_done()["done"] == 4


def test_with_tls_and_a_secret_only_those_who_have_both_are_let_in(pool: Pool) -> None:
    authority = trustme.CA()
    papers = pool.root / "papers"
    papers.mkdir()
    cert = authority.issue_cert(own_host())
    cert.private_key_pem.write_to_path(str(papers / tls.KEY))
    cert.cert_chain_pems[0].write_to_path(str(papers / tls.CERT))
    theirs = pool.root / "theirs"
    theirs.mkdir()
    authority.cert_pem.write_to_path(str(theirs / tls.CA))
    secret, wrong = pool.root / "secret", pool.root / "wrong"
    for file, words in ((secret, "what both sides know"), (wrong, "what somebody guessed")):
        file.write_text(words)
        file.chmod(0o600)
    pool.broker(tls=str(papers), secret_file=str(secret))
    guessing = pool.worker(1, tls=str(theirs), secret_file=str(wrong))
    asked = pool.worker(1, tls=str(theirs))
    assert asked.ended() == (
        77,
        "the broker asks for a secret: give it with --secret-file",
    )
    plain = pool.worker(1, secret_file=str(secret))
    pool.settle(0.3)
    assert pool.clients() == 0
    assert guessing.alive, "it may be the broker that is to get another secret"
    assert plain.alive
    pool.worker(2, tls=str(theirs), secret_file=str(secret))
    pool.submit(tasks=4)
    assert pool.until_done()["done"] == 4
    pool.wait(lambda: pool.clients() == 1, "one was let in")


def test_secret_is_not_used_where_others_could_read_it_or_the_wire(pool: Pool) -> None:
    secret = pool.root / "secret"
    secret.write_text("what both sides know")
    secret.chmod(0o644)
    code, words = pool.broker(wait=False, secret_file=str(secret)).ended()
    assert (code, "chmod 600" in words) == (78, True)
    secret.chmod(0o600)
    told: dict[str, Any] = {"secret_file": str(secret), "insecure": True}
    broker = pool.broker(wait=False, listen="tcp://0.0.0.0:*", **told)
    code, words = broker.ended()
    assert (code, "add --tls" in words) == (78, True)
    secret.write_text("short")
    assert pool.broker(wait=False, secret_file=str(secret)).ended()[0] == 78


def test_broker_leaves_nothing_behind(pool: Pool) -> None:
    broker = pool.broker()
    pool.worker(2)
    pool.submit(tasks=5)
    pool.until_done()
    pool.wait(lambda: not pool.jobs(), "the job's directory is gone")
    broker.signal()
    assert broker.ended()[0] == 0
    left = {
        one.relative_to(pool.queue / PRIVATE).as_posix()
        for one in (pool.queue / PRIVATE).rglob("*")
        if one.is_file()
    }
    assert not {one for one in left if one.startswith(("jobs/", "claims/", "attempts/"))}
    assert [one for one in left if one.startswith("fuq/")] == [f"fuq/{pool.views()[0].broker}.json"]
    assert [one for one in os.listdir(pool.queue) if not one.startswith((".", "discarded"))] == []
