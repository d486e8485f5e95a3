"""What an operator does: retry, discard, pause, resume, quit, close, recover."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from queuedriver.claims.liveness import Observer
from queuedriver.disk.journal import submitter
from queuedriver.disk.neighbours import landmark
from queuedriver.driving.closing import FED
from queuedriver.format.records import Identity, Registration
from queuedriver.operating.queue import Queue
from tests.cli.processes import (
    command,
    ended,
    on_terminal,
    read_only,
    read_until,
    start,
    unprivileged,
)
from tests.cli.queues import (
    PATIENCE,
    Called,
    call,
    drive,
    driver,
    kill,
    listed,
    stuck_driver,
    submit,
)
from tests.waiting import until

Capsys = pytest.CaptureFixture[str]
Cli = Callable[..., Called]

LATER = "ffffffff"
# A claim of nobody we know: driver h-9, which never registered.
TOKEN = "h-9-0605d3a1f2b0c05a17"


@pytest.fixture
def cli(capsys: Capsys) -> Cli:
    return lambda *args: call(capsys, *args)


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    queue = tmp_path / "in"
    submit(queue)
    return queue


def items(queue: Path) -> list[str]:
    return [name for name in listed(queue) if name[0] != "." and name != "discarded"]


def events(queue: Path) -> list[tuple[str, str]]:
    """What operators noted."""
    files = sorted((queue / ".queuedriver/journal").glob("operator-*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [(line["event"], line["docid"]) for line in lines]


def discarded(queue: Path, *docids: str) -> None:
    """Documents that were tried and given up."""
    submit(queue, *docids)
    drive(queue, retries=1)


# Retry


def test_of_two_discarded_documents_of_one_docid_the_newer_is_retried_and_both_are_told(
    queue: Path, cli: Cli
) -> None:
    discarded(queue, "bad")
    (queue / "discarded/bad").write_bytes(b"older")
    discarded(queue, "bad")
    (second,) = [
        name for name in os.listdir(queue / "discarded") if "~" in name and name[-1] != "n"
    ]
    assert "; 1 older document of this docid too: 'discarded/bad'" in cli("why", queue, "bad").out
    assert len(cli("show", queue, "bad", "--json").json["report"]["attempts"]) == 2
    told = cli("retry", queue, "bad")
    assert told.code == 0
    assert told.err.strip().endswith(
        f"retried '{second}', the newest of its docid; still discarded: 'bad'"
    )
    assert (queue / "bad.ready").read_bytes() != b"older"
    assert cli("retry", queue, "bad").code == 1
    (queue / "bad.ready").unlink()
    assert cli("retry", queue, "bad") == (0, "", "")
    assert (queue / "bad.ready").read_bytes() == b"older"


def test_a_discarded_document_waits_again_as_never_tried(queue: Path, cli: Cli) -> None:
    discarded(queue, "bad", "bad.2")
    assert cli("retry", queue, "bad") == (0, "", "")
    assert items(queue) == ["bad.ready"]
    assert (queue / "bad.ready").read_bytes() == b"content"
    assert listed(queue / "discarded") == ["bad.2", "bad.2.report.json"]
    assert events(queue) == [("retried", "bad")]
    # As never tried: both of its tries are before it.
    drive(queue, retries=1)
    report = json.loads((queue / "discarded/bad.report.json").read_bytes())
    assert [one["attempt"] for one in report["attempts"]] == [0, 1]


def test_failed_and_undue_documents_wait_as_if_they_were_new(queue: Path, cli: Cli) -> None:
    for name in ("a.failed", "b.failed7", f"c.{LATER}.later", f"d.failed.{LATER}.later"):
        (queue / name).touch()
    attempts = queue / ".queuedriver/attempts"
    attempts.mkdir(parents=True)
    inode = (queue / "a.failed").stat().st_ino
    for name in (f"a.{inode}.1.json", f"a.{inode}.2.json", f"a.txt.{inode}.1.json"):
        (attempts / name).touch()
    assert cli("retry", queue, "a", "b", "c", "d") == (0, "", "")
    assert items(queue) == ["a.ready", "b.ready", "c.ready", "d.ready"]
    assert listed(attempts) == [f"a.txt.{inode}.1.json"]


def test_what_is_not_there_is_named_and_the_rest_is_retried(queue: Path, cli: Cli) -> None:
    (queue / "a.failed").touch()
    called = cli("retry", queue, "none", "a", "..", "")
    assert called.code == 66
    assert called.err.splitlines() == [
        f"queuedriver: no {docid!r} in {queue}" for docid in ("none", "..", "")
    ]
    assert items(queue) == ["a.ready"]


def test_the_names_of_files_will_do_for_docids(queue: Path, cli: Cli) -> None:
    discarded(queue, "bad", "bad.2")
    (queue / "a.failed").touch()
    assert cli("retry", queue, *(queue / "discarded").iterdir(), queue / "a.failed") == (0, "", "")
    assert items(queue) == ["a.ready", "bad.2.ready", "bad.ready"]
    assert cli("discard", queue, "bad.ready").code == 0
    assert items(queue) == ["a.ready", "bad.2.ready"]


def test_documents_are_named_by_a_glob_when_somebody_means_it(queue: Path, cli: Cli) -> None:
    discarded(queue, "bad1.pdf", "bad2.pdf", "bad3.txt")
    assert cli("retry", queue, "*.pdf").code == 2
    assert items(queue) == []
    assert cli("retry", queue, "*.pdf", "--yes").code == 0
    assert items(queue) == ["bad1.pdf.ready", "bad2.pdf.ready"]
    assert cli("retry", queue, "*.gif", "--yes").code == 66
    submit(queue, "keep", "bad*")
    # Somebody may have called a document so.
    assert cli("discard", queue, "bad*", "--reason", "wrong").code == 0
    assert items(queue) == ["bad1.pdf.ready", "bad2.pdf.ready", "keep.ready"]
    assert cli("discard", queue, "bad[12]*", "--reason", "wrong", "--yes").code == 0
    assert items(queue) == ["keep.ready"]


def test_a_docid_is_found_without_its_extension_when_only_one_can_be_meant(
    queue: Path, cli: Cli
) -> None:
    discarded(queue, "bad1.pdf", "bad2.pdf")
    submit(queue, "bad2.txt")
    assert cli("retry", queue, "bad1").code == 0
    assert "bad1.pdf.ready" in items(queue)
    called = cli("retry", queue, "bad2")
    assert called.code == 66
    assert "which of 2 is meant: 'bad2.pdf', 'bad2.txt'?" in called.err
    assert cli("why", queue, "bad1").out.startswith("bad1.pdf: ")
    assert cli("why", queue, "bad2").code == 66
    drive(queue, retries=0)
    assert cli("history", queue, "bad1").code == 0
    # Also one of which only the journal tells.
    submit(queue, "gone.tar.gz")
    drive(queue)
    assert cli("why", queue, "gone").out.startswith("gone.tar.gz: ")


def test_what_cannot_be_retried_says_why(queue: Path, cli: Cli) -> None:
    names = ["gone.failed_twice", f"held.{TOKEN}.working", f"out.{TOKEN}.writing.xml"]
    for name in names:
        (queue / name).touch()
    called = cli("retry", queue, "gone", "held", "out")
    assert called.code == 1
    gone, held, out = called.err.splitlines()
    assert "its contents are gone" in gone
    assert "'held' is claimed by driver h-9" in held
    assert "'out' is being written" in out
    assert items(queue) == names


def test_what_waits_already_needs_no_retry(queue: Path, cli: Cli) -> None:
    submit(queue, "a")
    called = cli("retry", queue, "a", "--json")
    assert called.code == 0
    assert called.err == "queuedriver: 'a' waits already\n"
    assert called.json["documents"] == [
        {"docid": "a", "came": "nothing to do", "why": "'a' waits already"}
    ]


def test_a_discarded_document_does_not_replace_one_that_waits(queue: Path, cli: Cli) -> None:
    discarded(queue, "bad")
    submit(queue, "bad", content=b"submitted again")
    called = cli("retry", queue, "bad")
    assert called.code == 1
    assert "another 'bad' waits already" in called.err
    assert (queue / "bad.ready").read_bytes() == b"submitted again"
    assert listed(queue / "discarded") == ["bad", "bad.report.json"]


def test_docids_are_read_from_stdin_one_a_line(queue: Path) -> None:
    docids = ["bad one ", "bad\ttwo", "bad-é"]
    discarded(queue, *docids)
    called = command("retry", queue, "-", stdin="\n\n".join(docids).encode())
    assert called == (0, "", "")
    assert items(queue) == sorted(f"{docid}.ready" for docid in docids)


def test_what_touches_documents_that_nobody_named_says_how_many(queue: Path, cli: Cli) -> None:
    discarded(queue, "bad", "bad.2")
    retried = cli("retry", queue, "--all", "--yes")
    assert retried == (0, "", f"queuedriver: retry 2 documents of {queue}\n")
    thrown = cli("discard", queue, "b*", "--yes")
    assert thrown == (0, "", f"queuedriver: discard 2 documents of {queue}\n")
    # Of what was named one by one everybody knows.
    assert cli("retry", queue, "bad", "bad.2") == (0, "", "")


def test_all_that_failed_is_retried_when_somebody_means_it(queue: Path, cli: Cli) -> None:
    discarded(queue, "bad", "bad.2")
    for name in ("a.failed", f"b.{LATER}.later"):
        (queue / name).touch()
    before = items(queue)
    called = cli("retry", queue, "--all")
    assert (called.code, items(queue)) == (2, before)
    assert f"retry 3 documents of {queue}: say --yes" in called.err
    assert cli("retry", queue, "--all", "--yes").code == 0
    # What was asked to wait until later still does.
    assert items(queue) == ["a.ready", f"b.{LATER}.later", "bad.2.ready", "bad.ready"]
    assert cli("retry", queue, "--all") == (0, "", "")


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\4", 1)])
def test_on_a_terminal_whoever_wants_all_is_asked(answer: bytes, code: int, queue: Path) -> None:
    discarded(queue, "bad")
    with on_terminal("retry", queue, "--all") as (process, terminal):
        read_until(terminal, r"retry 1 document of .*\? \[y/N\]")
        os.write(terminal, answer)
        assert process.wait(PATIENCE) == code
    assert items(queue) == (["bad.ready"] if not code else [])


@pytest.mark.parametrize("args", [[], ["a", "--all"]])
def test_retry_wants_to_know_what(args: list[str], queue: Path, cli: Cli) -> None:
    assert cli("retry", queue, *args).code == 2


def test_retry_while_drivers_are_at_work_loses_and_doubles_nothing(
    queue: Path, tmp_path: Path, cli: Cli
) -> None:
    docids = [f"bad{number:02}" for number in range(30)]
    discarded(queue, *docids)
    with driver(queue, tmp_path / "out", "h-3") as process:
        for _ in range(5):
            assert cli("retry", queue, "--all", "--yes").code in (0, 1)
        process.terminate()
        process.wait()
    drive(queue)
    assert [name for name in listed(queue / "discarded") if "report" not in name] == docids


# Discard


def test_a_waiting_document_is_set_aside_untouched_with_the_reason(queue: Path, cli: Cli) -> None:
    submit(queue, "a", "b")
    assert cli("discard", queue, "a", "--reason", "scanned upside down") == (0, "", "")
    assert items(queue) == ["b.ready"]
    assert (queue / "discarded/a").read_bytes() == b"content"
    report = json.loads((queue / "discarded/a.report.json").read_bytes())
    assert report["failure"]["cause"] == "operator"
    assert report["failure"]["message"] == "scanned upside down"
    assert events(queue) == [("discarded", "a")]
    assert cli("retry", queue, "a").code == 0
    assert items(queue) == ["a.ready", "b.ready"]


def test_earlier_attempts_are_in_the_report(queue: Path, cli: Cli) -> None:
    submit(queue, "bad")
    drive(queue, retries=1, retry_delay=1000.0)
    assert cli("discard", queue, "bad").code == 0
    report = json.loads((queue / "discarded/bad.report.json").read_bytes())
    assert [one["failure"]["cause"] for one in report["attempts"]] == ["exception", "operator"]


@pytest.mark.parametrize(
    ("args", "left"),
    [
        (["--state", "ready"], ["b.failed", f"c.{LATER}.later", f"d.{TOKEN}.working"]),
        (["--state", "failed"], ["a.ready", f"c.{LATER}.later", f"d.{TOKEN}.working"]),
        (["--state", "later"], ["a.ready", "b.failed", f"d.{TOKEN}.working"]),
        (["--all"], [f"d.{TOKEN}.working"]),
    ],
)
def test_all_of_a_state_is_discarded_when_somebody_means_it(
    args: list[str], left: list[str], queue: Path, cli: Cli
) -> None:
    for name in ("a.ready", "b.failed", f"c.{LATER}.later", f"d.{TOKEN}.working"):
        (queue / name).touch()
    before = items(queue)
    assert cli("discard", queue, *args).code == 2
    assert items(queue) == before
    assert cli("discard", queue, *args, "--yes").code == 0
    assert items(queue) == left


def test_what_cannot_be_discarded_says_why(queue: Path, cli: Cli) -> None:
    (queue / f"held.{TOKEN}.working").touch()
    called = cli("discard", queue, "held")
    assert (called.code, called.err) == (1, "queuedriver: 'held' is claimed by driver h-9\n")
    called = cli("discard", queue, "none")
    assert (called.code, called.err) == (66, f"queuedriver: no 'none' in {queue}\n")
    submit(queue, "a")
    assert cli("discard", queue, "a").code == 0
    called = cli("discard", queue, "a")
    assert (called.code, called.err) == (0, "queuedriver: 'a' is discarded already\n")


@pytest.mark.parametrize("args", [[], ["a", "--all"], ["a", "--state", "ready"]])
def test_discard_wants_to_know_what(args: list[str], queue: Path, cli: Cli) -> None:
    assert cli("discard", queue, *args).code == 2


# Control files


def test_control_files_are_made_and_removed_however_often(
    queue: Path, tmp_path: Path, cli: Cli
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for _ in range(2):
        for name in ("pause", "quit", "close"):
            assert cli(name, queue, other) == (0, "", "")
    assert items(queue) == items(other) == ["PAUSE", "QUIT", "done"]
    for _ in range(2):
        assert cli("resume", queue, other) == (0, "", "")
    assert items(queue) == items(other) == ["done"]


@pytest.mark.parametrize("name", ["pause", "resume", "quit", "close"])
def test_a_slip_in_one_name_changes_no_queue(
    name: str, queue: Path, tmp_path: Path, cli: Cli
) -> None:
    (queue / "PAUSE").touch()
    called = cli(name, queue, tmp_path / "none")
    assert called.code == 66
    assert "no queue" in called.err
    assert items(queue) == ["PAUSE"]


@pytest.mark.parametrize(
    "args",
    [["pause"], ["close"], ["retry", "a"], ["discard", "a"], ["recover"], ["resume"]],
)
def test_a_queue_that_may_not_be_changed_is_said_to_be_so(args: list[str], queue: Path) -> None:
    (queue / "PAUSE").touch()
    (queue / "a.failed").touch()
    (queue / "b.7.written").touch()
    os.utime(queue / "b.7.written", (0, 0))
    before = items(queue)
    name, *more = args
    called = command(name, queue, *more, prefix=read_only(queue))
    if called.code:
        assert called.code == 74
        assert str(queue) in called.err
        assert "Read-only file system" in called.err
    else:
        # It was so already.
        assert name == "pause"
    queue.chmod(0o555)
    called = command(name, queue, *more, prefix=unprivileged())
    assert called.code in (0, 77)
    assert items(queue) == before


def test_stage_that_has_stopped_itself_says_so_and_is_resumed(queue: Path, cli: Cli) -> None:
    submit(queue, *(f"bad{number}" for number in range(5)))
    assert drive(queue, retries=0, trip_after=3).exit_code == 75
    words = "stopped by itself: 3 documents in a row failed for one cause (ValueError: no good)"
    status = cli("status", queue)
    assert f"TRIPPED: {words}" in status.out
    assert f"queuedriver resume {queue} goes on at once" in status.out
    assert words in cli("status", queue, "--json").json["queues"][0]["tripped"]
    (waits, _) = (name[:-6] for name in items(queue))
    assert words in cli("why", queue, waits).out
    assert words in cli("list", queue).err
    assert cli("resume", queue) == (0, "", "")
    assert "TRIPPED" not in cli("status", queue).out
    assert drive(queue, retries=0, trip_after=3).word == "drained"


def test_pause_and_close_outlast_what_they_were_made_by_before(cli: Cli, queue: Path) -> None:
    """What a pause of the whole pipeline, or the end of the queues before, has made is undone with
    that; but not what somebody has asked for meanwhile."""
    for name, verb, mark in (("PAUSE", "pause", b"watchdogd\n"), ("done", "close", FED)):
        (queue / name).write_bytes(mark)
        assert cli(verb, queue).code == 0
        assert (queue / name).read_bytes() == b""


def test_a_driver_pauses_resumes_and_leaves_as_it_is_told(
    queue: Path, tmp_path: Path, cli: Cli
) -> None:
    assert cli("pause", queue).code == 0
    submit(queue, "a")
    process = start("run", queue, "--to", tmp_path / "out", "--command", "cat", "--id", "x")
    try:
        until(lambda: "x.json" in listed(queue / ".queuedriver/drivers"))
        assert items(queue) == ["PAUSE", "a.ready"]
        assert cli("resume", queue).code == 0
        until(lambda: "a.ready" in listed(tmp_path / "out"))
        assert cli("quit", queue).code == 0
        called = ended(process)
    finally:
        process.kill()
        process.wait()
    assert called.code == 0
    assert "quit: there is a QUIT file" in called.err


# Recover


def test_what_a_killed_driver_left_is_taken_back_at_once(
    queue: Path, tmp_path: Path, cli: Cli
) -> None:
    with stuck_driver(queue, tmp_path / "out") as process:
        assert cli("recover", queue) == (0, "", "")
        kill(process)
    called = cli("recover", queue)
    assert called.code == 0
    assert called.out == ("slow: failed, the driver's process ended while it had the document\n")
    assert items(queue) == ["slow.failed"]
    assert items(tmp_path / "out") == []
    assert events(queue) == [("failed", "slow")]
    assert cli("recover", queue) == (0, "", "")


def test_what_was_committed_is_published(queue: Path, tmp_path: Path, cli: Cli) -> None:
    submit(queue, "x")
    drive(queue, tmp_path / "out")
    left(queue, "written")
    (tmp_path / f"out/a.{TOKEN}.writing").write_bytes(b"done")
    registered(queue, "h-9", identity=msgspec.structs.replace(Observer().me, pid=1, ticks=0))
    called = cli("recover", queue, "--json")
    assert called.code == 0
    (event,) = called.json["recovered"]
    assert (event["event"], event["docid"], event["outputs"]) == ("recovered", "a", ["a.ready"])
    assert items(queue) == []
    assert (tmp_path / "out/a.ready").read_bytes() == b"done"


def test_recovering_what_is_not_there_does_not_keep_a_driver_from_seeing_its_queue_drained(
    queue: Path, tmp_path: Path, cli: Cli
) -> None:
    submit(queue, "x")
    drive(queue, tmp_path / "out")
    before = queue.stat().st_mtime_ns
    assert cli("recover", queue).code == 0
    assert queue.stat().st_mtime_ns == before


def turned(queue: Path, tmp_path: Path, *, registers: bool = True) -> None:
    """A document whose driver died when it was committed, and whose output's link was turned."""
    out, monday = tmp_path / "out", tmp_path / "monday"
    for day in ("monday", "tuesday"):
        (tmp_path / day).mkdir()
        out.unlink(missing_ok=True)
        out.symlink_to(day)
        submit(queue, day)
        drive(queue, out)
    left(queue, "written")
    (monday / f"a.{TOKEN}.writing").write_bytes(b"done")
    if registers:
        with Queue.open(monday) as opened:
            opened_as = f"{monday.stat().st_ino}-{landmark(opened.directory)}"
        dead = msgspec.structs.replace(Observer().me, pid=1, ticks=0)
        registered(queue, "h-9", dead, output_ids=(opened_as,))


@pytest.mark.parametrize("published", [False, True])
def test_what_was_committed_is_finished_in_the_directory_that_an_operator_names(
    queue: Path, tmp_path: Path, cli: Cli, published: bool
) -> None:
    turned(queue, tmp_path)
    if published:
        # The reply was lost, and only this directory can tell.
        os.rename(tmp_path / f"monday/a.{TOKEN}.writing", tmp_path / "monday/a.ready")
    called = cli("recover", queue)
    assert called.code == 75
    assert called.err.splitlines()[-1] == (
        "queuedriver: 1 claim cannot be recovered; if its outputs are in another directory by "
        "now, as where a link was turned, name that: --output DIR"
    )
    assert items(queue) == [f"a.{TOKEN}.written"]
    # Neither is another directory the one.
    assert cli("recover", queue, "--output", tmp_path / "tuesday").code == 75
    assert cli("recover", queue, "--output", tmp_path / "monday").code == 0
    assert items(queue) == []
    assert (tmp_path / "monday/a.ready").read_bytes() == b"done"
    assert items(tmp_path / "tuesday") == ["tuesday.ready"]


def test_what_an_unknown_driver_committed_is_not_taken_for_published_in_a_directory_that_was_named(
    queue: Path, tmp_path: Path, cli: Cli
) -> None:
    turned(queue, tmp_path, registers=False)
    written = f"a.{TOKEN}.writing"
    os.rename(tmp_path / "monday" / written, tmp_path / "tuesday" / written)
    called = cli("recover", queue, "--lease", "0", "--output", tmp_path / "monday")
    assert called.code == 75
    assert items(queue) == [f"a.{TOKEN}.written"]


def test_each_output_has_to_be_named_and_to_be_there(queue: Path, tmp_path: Path, cli: Cli) -> None:
    turned(queue, tmp_path)
    two = ["--output", tmp_path / "monday", "--output", tmp_path / "tuesday"]
    assert cli("recover", queue, *two).code == 2
    assert cli("recover", queue, "--output", tmp_path / "sunday").code == 66


def test_claims_that_nobody_here_can_judge_are_named_with_what_to_do(queue: Path, cli: Cli) -> None:
    left(queue, "working")
    (queue / "b.7.working").touch()
    registered(queue, "h-9", identity=elsewhere())
    called = cli("recover", queue)
    assert called.code == 75
    assert called.err.splitlines() == [
        "queuedriver: 1 claim of driver 7 which never registered",
        "queuedriver: 1 claim of driver h-9 on far, which cannot be seen from here",
        "queuedriver: start a driver, which sees whether they live; if they are gone, use "
        "--lease 0",
    ]
    assert len(items(queue)) == 2
    unjudged = cli("recover", queue, "--json").json["unjudged"]
    assert sorted((one["docid"], one["driver"], one["host"]) for one in unjudged) == [
        ("a", "h-9", "far"),
        ("b", "7", ""),
    ]


def test_who_is_gone_for_certain_need_not_be_waited_for(queue: Path, cli: Cli) -> None:
    left(queue, "working")
    (queue / "b.7.working").touch()
    registered(queue, "h-9", identity=elsewhere())
    called = cli("recover", queue, "--lease", "0")
    assert called.code == 0
    assert "a: released, the driver showed no life for its lease" in called.out
    assert items(queue) == ["a.ready", "b.ready"]


def left(queue: Path, state: str) -> None:
    """What driver h-9 left of a document."""
    (queue / f"a.{TOKEN}.{state}").touch()


def elsewhere() -> Identity:
    return msgspec.structs.replace(
        Observer().me, host="far", machine="m", boot="b", namespace=1, pid=1
    )


def registered(
    queue: Path,
    driver: str,
    identity: Identity,
    beat: int = 1,
    output_ids: tuple[str, ...] = (),
) -> None:
    """A driver that has said who it is, and nothing since."""
    registration = Registration(
        id=driver,
        salt="5a17",
        identity=identity,
        started_at=1.0,
        beat=beat,
        beat_at=1.0,
        output_ids=output_ids,
    )
    with Queue.open(queue) as opened:
        drivers = opened.private.subdirectory("drivers", create=True)
        drivers.write_aside(f"{driver}.json", msgspec.json.encode(registration))
        drivers.close()


def test_what_cannot_be_noted_is_done_and_that_history_lacks_it_is_said(
    queue: Path, cli: Cli
) -> None:
    submit(queue, "doc")
    journal = queue / ".queuedriver/journal" / f"{submitter(Observer().me.host, 'operator')}.jsonl"
    journal.mkdir(parents=True)
    discarded = cli("discard", queue, "doc")
    assert (discarded.code, items(queue)) == (0, [])
    assert discarded.err == (
        f"queuedriver: {journal} could not be written (Is a directory), so history lacks the last "
        "1 line\n"
    )
