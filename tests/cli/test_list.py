"""`list`: one line for each document, however many there are."""

import json
import time
import tracemalloc
from pathlib import Path

import pytest

from queuedriver.cli.look import STATES
from queuedriver.operating.document_view import list_places
from queuedriver.operating.queue import Queue
from tests.cli.queues import call, drive, submit

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """A queue with something in every state."""
    queue = tmp_path / "in"
    submit(queue, "bad", "never")
    drive(queue, tmp_path / "out")
    submit(queue, "a")
    with Queue.open(queue) as opened:
        opened.submit("due", b"1", durable=False, due=1.0)
        opened.submit("postponed", b"1", durable=False, due=time.time() + 90)
    claimed = f"{int((time.time() - 60) * 1e6):014x}5a17"
    for name in (
        "f.failed2",
        f"w.h-1-{claimed}.working",
        "s.7.written",
        "o.7.writing",
        "old.failed_twice",
    ):
        (queue / name).write_bytes(b"12")
    (queue / "scan.pdf").touch()
    return queue


def entries(out: str) -> dict[str, dict[str, object]]:
    found = [json.loads(line) for line in out.splitlines()]
    return {one["docid"]: one for one in found}


def test_every_state_is_listed_and_what_is_no_item_is_not(queue: Path, capsys: Capsys) -> None:
    found = entries(call(capsys, "list", queue, "--json").out)
    assert {docid: one["state"] for docid, one in found.items()} == {
        "a": "ready",
        "due": "later",
        "postponed": "later",
        "f": "failed",
        "w": "working",
        "s": "written",
        "o": "writing",
        "old": "failed_twice",
        "bad": "discarded",
        "never": "discarded",
    }
    assert all(one["version"] == 1 for one in found.values())


def test_each_entry_says_what_its_name_and_its_file_say(queue: Path, capsys: Capsys) -> None:
    found = entries(call(capsys, "list", queue, "--json").out)
    assert found["f"]["attempt"] == 2
    assert found["f"]["size"] == 2
    assert found["w"]["driver"] == "h-1"
    assert found["w"]["claimed_at"] == pytest.approx(time.time() - 60, abs=50)
    assert found["s"]["driver"] == "7"
    assert "claimed_at" not in found["s"]
    assert found["due"]["due"] == 1
    assert found["a"]["modified_at"] == pytest.approx(time.time(), abs=3600)


def test_discarded_documents_come_with_cause_and_message(queue: Path, capsys: Capsys) -> None:
    found = entries(call(capsys, "list", queue, "--state", "discarded", "--json").out)
    assert found.keys() == {"bad", "never"}
    assert found["never"]["cause"] == "permanent"
    assert found["never"]["message"] == "PermanentError: not a scan"
    assert found["bad"]["attempt"] == 2
    shown = call(capsys, "list", queue, "--state", "discarded").out
    assert "bad  exception: ValueError: no good\n" in shown


def test_only_the_states_asked_for_are_listed(queue: Path, capsys: Capsys) -> None:
    out = call(capsys, "list", queue, "--state", "ready", "--state", "failed", "--json").out
    assert entries(out).keys() == {"a", "f"}


def test_unknown_state_is_a_usage_error_that_names_the_states(queue: Path, capsys: Capsys) -> None:
    called = call(capsys, "list", queue, "--state", "sent")
    assert (called.code, called.out) == (2, "")
    assert "ready, failed, working" in called.err


def test_lines_for_people_have_the_age_or_the_time_left(queue: Path, capsys: Capsys) -> None:
    lines = call(capsys, "list", queue).out.splitlines()
    assert lines[0].split() == ["STATE", "TRY", "AGE", "DRIVER", "DOCUMENT"]
    by_docid = {line.split()[-1]: line.split() for line in lines[1:] if "discarded" not in line}
    assert by_docid["w"][:4] == ["working", "0", "1", "min"]
    assert by_docid["due"] == ["later", "0", "due", "due"]
    assert by_docid["postponed"][:4] == ["later", "0", "in", "1"]


def test_empty_queue_prints_nothing(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "in").mkdir()
    assert call(capsys, "list", tmp_path / "in") == (0, "", "")


def test_name_that_could_steer_a_terminal_is_escaped_for_people_and_exact_in_json(
    tmp_path: Path, capsys: Capsys
) -> None:
    docid = "\x1b]0;title\x07\u202e\n"
    submit(tmp_path / "in", docid)
    assert call(capsys, "list", tmp_path / "in").out.endswith("  \\x1b]0;title\\x07\\u202e\\n\n")
    assert entries(call(capsys, "list", tmp_path / "in", "--json").out).keys() == {docid}


def test_missing_queue_is_66(tmp_path: Path, capsys: Capsys) -> None:
    assert call(capsys, "list", tmp_path / "nowhere").code == 66


def test_memory_does_not_grow_with_what_waits(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"document-{number}.ready").touch()
    with Queue.open(tmp_path) as queue:
        tracemalloc.start()
        try:
            count = sum(1 for _ in list_places(queue, STATES))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert count == 1000
    # A list of so many names alone takes 75 kB.
    assert peak < 40_000
