"""`show`: everything that is known of a document, the report of a discarded one included."""

from pathlib import Path

import pytest

from queuedriver.format.records import Failure, Report, encode_report
from queuedriver.operating.queue import Queue
from tests.cli.queues import call, drive, kill, stuck_driver, submit

Capsys = pytest.CaptureFixture[str]


def test_report_of_a_discarded_document_is_told_with_all_its_attempts(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue = tmp_path / "in"
    submit(queue, "bad")
    drive(queue, tmp_path / "out")
    shown = call(capsys, "show", queue, "bad").out
    assert "discarded/bad  7 B" in shown
    assert "Attempt 1 of 2\n" in shown
    assert "Attempt 2 of 2\n" in shown
    assert " by h-1 on " in shown
    assert "  exception: ValueError: no good\n    \\x1b[31msecond line\n" in shown
    assert "  traceback:\n    Traceback (most recent call last):\n" in shown
    # Of a call it would be that of its driver's whole life.
    assert "peak memory" not in shown
    assert "\x1b" not in shown

    seen = call(capsys, "show", queue, "bad", "--json").json
    assert seen["version"] == 1
    assert [one["state"] for one in seen["places"]] == ["discarded"]
    assert len(seen["attempts"]) == 2
    assert seen["report"]["failure"]["message"] == "ValueError: no good\n\x1b[31msecond line"


def test_everything_a_report_may_hold_is_shown(tmp_path: Path, capsys: Capsys) -> None:
    submit(tmp_path / "in")
    discarded = tmp_path / "in/discarded"
    discarded.mkdir()
    (discarded / "doc").write_bytes(b"12")
    failure = Failure(
        cause="signal",
        message="ended by SIGSEGV",
        permanent=True,
        exit_code=3,
        signal="SIGSEGV",
        stderr_tail="last words\nof it\n",
        stacks="File x, line 1",
        peak_memory=1_500_000,
    )
    report = Report(
        docid="doc",
        queue="in",
        discarded_at=1.0,
        driver="h-2",
        host="h",
        failure=failure,
        attempts=(),
    )
    (discarded / "doc.report.json").write_bytes(encode_report(report))
    shown = call(capsys, "show", tmp_path / "in", "doc").out
    for part in (
        "signal, never to be tried again: ended by SIGSEGV\n",
        "  exit code 3\n",
        "  signal SIGSEGV\n",
        "  peak memory 1.5 MB\n",
        "  end of stderr:\n    last words\n    of it\n",
        "  stacks:\n    File x, line 1\n",
        " by h-2 on h\n",
    ):
        assert part in shown


def test_document_at_work_shows_its_claim_and_its_output_so_far(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    with stuck_driver(queue, output) as process:
        shown = call(capsys, "show", queue, "slow").out
        assert "being processed by h-7 on " in shown
        assert "claimed by h-7 at " in shown
        assert "4 B of its output so far" in shown
        kill(process)


def test_document_that_failed_once_shows_why(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "bad")
    drive(queue, tmp_path / "out", retries=2, retry_delay=3600.0)
    shown = call(capsys, "show", queue, "bad").out
    assert "Attempt 1 of 1\n" in shown
    assert "ValueError: no good" in shown
    assert "not before" in shown
    assert call(capsys, "show", queue, "bad", "--json").json["report"] is None


def test_published_document_is_told_of_although_nothing_of_it_is_here(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    drive(queue, tmp_path / "out", archive=str(tmp_path / "kept"))
    shown = call(capsys, "show", queue, "a").out
    assert "published as a.ready at " in shown
    assert "  ../out/a.ready\n  ../kept/a\n" in shown


@pytest.mark.parametrize("text", ["a", "a.ready", "in/a.ready", "./in/a"])
def test_name_or_path_of_its_file_will_do(tmp_path: Path, capsys: Capsys, text: str) -> None:
    submit(tmp_path / "in", "a")
    assert call(capsys, "show", tmp_path / "in", text, "--json").json["docid"] == "a"


@pytest.mark.parametrize("docid", ["nope", "..", "", "a/", "discarded/..", "\udcff"])
def test_unknown_document_is_66(tmp_path: Path, capsys: Capsys, docid: str) -> None:
    submit(tmp_path / "in", "a")
    called = call(capsys, "show", tmp_path / "in", docid)
    assert (called.code, called.out) == (66, "")
    assert "no document" in called.err


def test_several_items_of_one_docid_are_all_shown(tmp_path: Path, capsys: Capsys) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    (queue / "a.7.working").touch()
    (queue / "a.failed").touch()
    with Queue.open(queue) as opened:
        assert len(opened.find("a")) == 3
    places = call(capsys, "show", queue, "a", "--json").json["places"]
    assert [one["state"] for one in places] == ["working", "ready", "failed"]
