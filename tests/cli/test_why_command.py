"""`why`: the sentence, of queues as real drivers leave them."""

import re
from pathlib import Path

import pytest

from tests.cli.processes import command, unprivileged
from tests.cli.queues import call, drive, kill, stuck_driver, submit

Capsys = pytest.CaptureFixture[str]


def why(capsys: Capsys, queue: Path, docid: str) -> str:
    called = call(capsys, "why", queue, docid)
    assert called.code == 0
    assert called.out.count("\n") == 1
    assert called.err == ""
    return called.out.strip()


def test_life_of_a_document_in_sentences(tmp_path: Path, capsys: Capsys) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    submit(queue, "a", "bad", "later")
    assert why(capsys, queue, "a") == (
        f"a: no driver is alive; start one with queuedriver run {queue}"
    )
    drive(queue, output)
    assert re.fullmatch(r"a: published as a\.ready at [-0-9: ]+ by h-1", why(capsys, queue, "a"))
    assert re.fullmatch(
        r"bad: discarded at [-0-9: ]+ after 2 attempts \(exception: ValueError: no good\); .*",
        why(capsys, queue, "bad"),
    )
    assert re.fullmatch(
        r"later: not before [-0-9: ]+, in 1 min [0-9]+ s \(printer busy\)",
        why(capsys, queue, "later"),
    )


def test_document_at_work_and_then_of_a_dead_driver(tmp_path: Path, capsys: Capsys) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    with stuck_driver(queue, output) as process:
        submit(queue, "next", "other")
        assert why(capsys, queue, "next") == (
            "next: waiting behind up to 1 other, with 1 driver at work"
        )
        sentence = why(capsys, queue, "slow")
        assert re.fullmatch(
            r"slow: being processed by h-7 on \S+ since [-0-9: ]+ \([^)]+\)", sentence
        )
        (queue / "PAUSE").touch()
        assert why(capsys, queue, "next") == (
            f"next: the queue is paused: nothing is claimed before queuedriver resume {queue}"
        )
        kill(process)
    sentence = why(capsys, queue, "slow")
    assert re.fullmatch(
        r"slow: claimed at [-0-9: ]+ by h-7 on \S+, which ended without a word; nobody is alive to "
        rf"take it back: start a driver, or run queuedriver recover {re.escape(str(queue))}",
        sentence,
    )


def test_published_document_is_found_when_the_journal_is_lost(
    tmp_path: Path, capsys: Capsys
) -> None:
    queue = tmp_path / "in"
    submit(queue, "a")
    drive(queue, tmp_path / "out")
    for file in (queue / ".queuedriver/journal").iterdir():
        file.unlink()
    assert why(capsys, queue, "a") == (
        "a: finished, although the journal does not tell: there is ../out/a.ready"
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("scan.pdf", "the file 'scan.pdf' is not an item: rename it to 'scan.pdf.ready' to "),
        ("\x1b[2J", "the file '\\x1b[2J' is not an item: rename it to '\\x1b[2J.ready'"),
        ("done.ready", "the file 'done.ready' is not an item: what stands before its state"),
        ("PAUSE", "the file 'PAUSE' is not an item: it belongs to the queue itself"),
    ],
)
def test_file_that_is_no_item_is_told_why(
    tmp_path: Path, capsys: Capsys, name: str, sentence: str
) -> None:
    submit(tmp_path / "in", "a")
    (tmp_path / "in" / name).touch()
    assert sentence in why(capsys, tmp_path / "in", name)


def test_item_of_the_original_program_is_understood(tmp_path: Path, capsys: Capsys) -> None:
    submit(tmp_path / "in")
    (tmp_path / "in/a.7.working").touch()
    (tmp_path / "in/b.failed_twice").touch()
    assert "claimed by 7, which never registered here" in why(capsys, tmp_path / "in", "a")
    assert "discarded by the original program" in why(capsys, tmp_path / "in", "b")


def test_unknown_document_is_66(tmp_path: Path, capsys: Capsys) -> None:
    submit(tmp_path / "in", "a")
    called = call(capsys, "why", tmp_path / "in", "b")
    assert (called.code, called.out) == (66, "")
    assert f"no document 'b' is or was in {tmp_path / 'in'}" in called.err


def test_of_an_output_that_cannot_be_looked_into_nothing_is_concluded(tmp_path: Path) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    submit(queue, "a")
    drive(queue, output)
    for file in (queue / ".queuedriver/journal").iterdir():
        file.unlink()
    output.chmod(0)
    try:
        called = command("why", queue, "a", prefix=unprivileged())
    finally:
        output.chmod(0o755)
    assert (called.code, called.out) == (77, "")
    assert "Permission denied" in called.err
    assert str(output) in called.err
