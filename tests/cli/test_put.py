"""`put`: everything that is well is in the queue, and everything that is not is said."""

import os
import re
import signal
import socket
import stat
from pathlib import Path

import pytest

from queuedriver.disk.journal import submitter
from queuedriver.format import names
from tests.cli.processes import (
    command,
    ended,
    full,
    read_only,
    start,
    submitted,
    unprivileged,
)
from tests.cli.queues import PATIENCE, call, listed, submit, tree
from tests.waiting import until

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    queue = tmp_path / "in"
    queue.mkdir()
    return queue


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "letter.txt"
    file.write_text("Dear all")
    return file


def items(queue: Path) -> list[str]:
    return [name for name in listed(queue) if name[0] != "."]


# What enters


def test_a_file_enters_under_its_name_and_stays_where_it_is(queue: Path, file: Path) -> None:
    assert command("put", queue, file) == (0, "", "")
    assert items(queue) == ["letter.txt.ready"]
    assert (queue / "letter.txt.ready").read_text() == file.read_text() == "Dear all"
    assert listed(queue / ".queuedriver/incoming") == []


def test_the_docid_is_what_was_asked_for(queue: Path, file: Path, capsys: Capsys) -> None:
    assert call(capsys, "put", queue, file, "--docid", "Ünï code.v2").code == 0
    assert items(queue) == ["Ünï code.v2.ready"]


def test_stdin_is_a_document(queue: Path) -> None:
    called = command("put", queue, "-", "--docid", "noted", stdin=b"\0\xff" * 99999)
    assert called == (0, "", "")
    assert (queue / "noted.ready").read_bytes() == b"\0\xff" * 99999


def test_an_empty_file_is_a_document(queue: Path, capsys: Capsys) -> None:
    (queue.parent / "empty").touch()
    assert call(capsys, "put", queue, queue.parent / "empty").code == 0
    assert (queue / "empty.ready").read_bytes() == b""


def test_a_link_is_followed(queue: Path, file: Path, capsys: Capsys) -> None:
    (queue.parent / "link").symlink_to(file)
    assert call(capsys, "put", queue, queue.parent / "link").code == 0
    assert stat.S_ISREG(os.lstat(queue / "link.ready").st_mode)


@pytest.mark.parametrize("how", [[], ["--no-durable"], ["--move"], ["--move", "--no-durable"]])
def test_hundreds_of_files_all_enter(queue: Path, how: list[str], capsys: Capsys) -> None:
    files = [queue.parent / f"{number:03}" for number in range(600)]
    for file in files:
        file.write_text(file.name)
    assert call(capsys, "put", queue, *files, *how).code == 0
    assert items(queue) == [f"{number:03}.ready" for number in range(600)]
    assert all((queue / f"{file.name}.ready").read_text() == file.name for file in files)


def test_what_is_not_due_waits_as_later(queue: Path, file: Path, capsys: Capsys) -> None:
    assert call(capsys, "put", queue, file, "--after", "10 min").code == 0
    (name,) = items(queue)
    item = names.parse(name)
    assert item is not None
    assert item.state == "later"
    written = (queue / name).stat().st_mtime
    assert -2 <= item.due - written - 600 <= 60


def test_what_entered_is_printed_for_programs(queue: Path, file: Path, capsys: Capsys) -> None:
    submit(queue, "there")
    other = queue.parent / "there"
    other.touch()
    called = call(capsys, "put", queue, file, other, "--json")
    assert called.code == 73
    assert called.json == {
        "version": 1,
        "submitted": [{"docid": "letter.txt", "name": "letter.txt.ready"}],
        "refused": ["there"],
    }


def test_the_journal_says_when_and_from_where(queue: Path, file: Path, capsys: Capsys) -> None:
    call(capsys, "put", queue, file)
    call(capsys, "put", queue, file, "--move", "--docid", "moved")
    command("put", queue, "-", "--docid", "read")
    events = [(line["docid"], line["message"]) for line in submitted(queue)]
    assert events == [
        ("letter.txt", f"from {file}"),
        ("moved", f"from {file}"),
        ("read", "from standard input"),
    ]
    assert [path.name[:4] for path in (queue / ".queuedriver/journal").iterdir()] == ["put-"]


def test_what_cannot_be_noted_is_submitted_and_that_history_lacks_it_is_said(
    queue: Path, file: Path, capsys: Capsys
) -> None:
    journal = queue / ".queuedriver/journal" / f"{submitter(socket.gethostname())}.jsonl"
    journal.mkdir(parents=True)
    called = call(capsys, "put", queue, file)
    assert (called.code, items(queue)) == (0, ["letter.txt.ready"])
    assert called.err == (
        f"queuedriver: {journal} could not be written (Is a directory), so history lacks the last "
        "1 line\n"
    )


def test_a_name_that_is_not_utf8_enters_under_another(queue: Path) -> None:
    path = os.path.join(os.fsencode(queue.parent), b"caf\xe9")
    with open(path, "wb") as file:
        file.write(b"Dear all")
    called = command("put", queue, path)
    assert called.code == 65
    assert "not valid UTF-8" in called.err
    assert items(queue) == []
    assert command("put", queue, path, "--docid", "café") == (0, "", "")
    assert (queue / "café.ready").read_bytes() == b"Dear all"


# Moving


def test_a_file_that_is_moved_is_the_same_file(queue: Path, file: Path, capsys: Capsys) -> None:
    before = file.stat().st_ino
    assert call(capsys, "put", queue, file, "--move").code == 0
    assert not file.exists()
    assert (queue / "letter.txt.ready").stat().st_ino == before


def test_a_file_of_another_file_system_is_moved_too(queue: Path, file: Path) -> None:
    # A bind mount is another file system to rename(2), under the same device number.
    called = command("put", queue, file, "--move", prefix=full(queue))
    assert called.code == 0
    assert not file.exists()


def test_a_link_is_moved_as_what_it_leads_to(queue: Path, file: Path, capsys: Capsys) -> None:
    link, twin = queue.parent / "link", queue.parent / "twin"
    link.symlink_to(file)
    assert call(capsys, "put", queue, link, "--move").code == 0
    assert not os.path.lexists(link)
    # Whoever writes to a file by its other name must not write into the queue.
    os.link(file, twin)
    assert call(capsys, "put", queue, twin, "--move").code == 0
    assert not twin.exists()
    file.write_text("changed")
    assert [(queue / name).read_text() for name in items(queue)] == ["Dear all", "Dear all"]


def test_a_file_that_cannot_be_taken_away_does_not_enter(queue: Path, file: Path) -> None:
    locked = queue.parent / "locked"
    locked.mkdir()
    file = file.rename(locked / "a")
    locked.chmod(0o555)
    called = command("put", queue, file, "--move", prefix=unprivileged())
    assert called.code == 77
    assert "cannot be taken away" in called.err
    assert items(queue) == []
    assert file.exists()


def test_a_move_that_meets_a_waiting_document_moves_nothing(
    queue: Path, file: Path, capsys: Capsys
) -> None:
    submit(queue, "letter.txt")
    assert call(capsys, "put", queue, file, "--move").code == 73
    assert file.read_text() == "Dear all"
    assert (queue / "letter.txt.ready").read_bytes() == b"content"
    assert call(capsys, "put", queue, file, "--move", "--replace").code == 0
    assert not file.exists()
    assert (queue / "letter.txt.ready").read_text() == "Dear all"


# What waits is never clobbered


def test_what_waits_already_is_named_and_the_others_are_in(
    queue: Path, file: Path, capsys: Capsys
) -> None:
    submit(queue, "b")
    files = [file, *(queue.parent / name for name in "abc")]
    for one in files[1:]:
        one.touch()
    called = call(capsys, "put", queue, *files)
    assert called.code == 73
    assert called.err.splitlines() == [
        f"queuedriver: 'b' waits in {queue} already; use --replace, or another docid",
        "queuedriver: 3 of 4 documents were submitted",
    ]
    assert items(queue) == ["a.ready", "b.ready", "c.ready", "letter.txt.ready"]
    assert (queue / "b.ready").read_bytes() == b"content"
    assert listed(queue / ".queuedriver/incoming") == []


def test_replace_is_a_wish_that_is_heeded(queue: Path, file: Path, capsys: Capsys) -> None:
    submit(queue, "letter.txt")
    assert call(capsys, "put", queue, file, "--replace").code == 0
    assert (queue / "letter.txt.ready").read_text() == "Dear all"


def test_a_closed_queue_takes_nothing_until_it_is_reopened(
    queue: Path, file: Path, capsys: Capsys
) -> None:
    (queue / "done").touch()
    called = call(capsys, "put", queue, file)
    assert called.code == 73
    assert "--reopen" in called.err
    assert items(queue) == ["done"]
    assert call(capsys, "put", queue, file, "--reopen").code == 0
    assert items(queue) == ["letter.txt.ready"]


def test_a_closed_queue_is_reopened_and_a_paused_one_named(
    queue: Path, file: Path, capsys: Capsys
) -> None:
    assert call(capsys, "close", queue).code == 0
    assert f"queuedriver reopen {queue}" in call(capsys, "put", queue, file).err
    assert call(capsys, "reopen", queue).code == 0
    assert call(capsys, "put", queue, file) == (0, "", "")
    assert call(capsys, "pause", queue).code == 0
    called = call(capsys, "put", queue, file, "--docid", "b")
    assert (called.code, called.err) == (
        0,
        f"queuedriver: {queue} is PAUSED: nothing is claimed before queuedriver resume {queue}\n",
    )


# Many files


def test_what_is_bad_can_be_skipped_and_the_rest_enters(
    queue: Path, file: Path, capsys: Capsys
) -> None:
    (queue.parent / "x.ready").touch()
    paths = [queue.parent / "none", file, queue.parent / "x.ready", file]
    called = call(capsys, "put", queue, *paths, "--skip-bad")
    assert called.code == 1
    assert items(queue) == ["letter.txt.ready"]
    said = called.err.splitlines()
    assert [words.partition(" cannot")[0][:30] for words in said[1:2]] == ["queuedriver: 'x.ready'"]
    assert len(said) == 4
    assert said[-1] == "queuedriver: 1 of 4 documents were submitted"


def test_of_many_bad_names_the_first_are_said_and_how_many_more(
    queue: Path, capsys: Capsys
) -> None:
    called = call(capsys, "put", queue, *(queue.parent / f"none{n}" for n in range(50)))
    assert called.code == 66
    assert len(called.err.splitlines()) == 21
    assert called.err.endswith("queuedriver: and 30 more files likewise\n")


@pytest.mark.parametrize("by", ["\n", "\0"])
def test_names_are_read_from_a_list_or_from_stdin(queue: Path, by: str) -> None:
    names_ = ["a", "b c", "é"] + (["d\ne"] if by == "\0" else [])
    for name in names_:
        (queue.parent / name).write_text(name)
    listed_ = by.join(str(queue.parent / name) for name in names_) + by
    how = ["-0"] if by == "\0" else []
    called = command("put", queue, "--files-from", "-", *how, stdin=listed_.encode())
    assert called == (0, "", "")
    assert sorted(items(queue)) == sorted(f"{name}.ready" for name in names_)
    (queue.parent / "list").write_text(listed_)
    assert command("put", queue, "--files-from", queue.parent / "list", *how, "--replace").code == 0


def test_a_dash_is_stdin_and_says_that_it_needs_a_docid(queue: Path) -> None:
    called = command("put", queue, "-", stdin=b"x")
    assert called.code == 2
    assert "stdin is one document: it needs --docid" in called.err
    assert command("put", queue, "-", "--docid", "a", stdin=b"x") == (0, "", "")
    assert (queue / "a.ready").read_bytes() == b"x"


@pytest.mark.parametrize("move", [[], ["--move"]])
def test_nothing_is_due_before_it_was_to_be(
    queue: Path, file: Path, move: list[str], capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuedriver.cli.put.time.time", lambda: 1000.25)
    assert call(capsys, "put", queue, file, "--after", "10 min", *move).code == 0
    assert items(queue) == [f"letter.txt.{1601:x}.later"]


# What cannot enter


def test_all_complaints_are_made_and_nothing_is_submitted(
    queue: Path, file: Path, capsys: Capsys
) -> None:
    outside = queue.parent
    (outside / "directory").mkdir()
    (outside / "x.ready").touch()
    (outside / "twice").mkdir()
    (outside / "twice/letter.txt").touch()
    paths = [file, *(outside / one for one in ("none", "directory", "x.ready", "twice/letter.txt"))]
    called = call(capsys, "put", queue, *paths)
    assert called.code == 66
    complaints = called.err.splitlines()
    expected = [
        r"no file '.*/none'",
        r"'.*/directory' is a directory; submit the files in it",
        r"'x\.ready' cannot be a docid: it looks like an item in a state; choose another with",
        r"'.*/letter\.txt' and '.*/twice/letter\.txt' would both be 'letter\.txt'",
    ]
    assert len(complaints) == len(expected)
    for complaint, pattern in zip(complaints, expected, strict=True):
        assert re.match(f"queuedriver: {pattern}", complaint)
    assert items(queue) == []


def test_a_missing_queue_is_complained_of_beside_the_files(tmp_path: Path, capsys: Capsys) -> None:
    called = call(capsys, "put", tmp_path / "none", tmp_path / "nothing")
    assert called.code == 66
    assert len(called.err.splitlines()) == 2
    assert "mkdir it" in called.err


@pytest.mark.parametrize(
    ("docid", "reason"),
    [
        ("", "it is empty"),
        (".hidden", "starts with a dot"),
        ("a/b", "'/'"),
        ("x.ready", "looks like an item"),
        ("x.failed2", "looks like an item"),
        ("x.7.working", "looks like an item"),
        ("x.7.writing.xml", "looks like an item"),
        ("x.report.json", "ends in .report.json"),
        ("PAUSE", "control file"),
        ("x" * 161, "161 bytes long"),
        ("é" * 81, "162 bytes long"),
    ],
)
def test_a_docid_that_cannot_be_one_is_refused_with_its_reason(
    docid: str, reason: str, queue: Path, file: Path, capsys: Capsys
) -> None:
    called = call(capsys, "put", queue, file, "--docid", docid)
    assert called.code == 65
    assert reason in called.err
    assert items(queue) == []


def test_a_name_of_255_bytes_is_too_long_and_one_of_160_is_not(queue: Path, capsys: Capsys) -> None:
    for length, code in ((255, 65), (161, 65), (160, 0)):
        file = queue.parent / ("x" * length)
        file.touch()
        assert call(capsys, "put", queue, file).code == code
    assert items(queue) == ["x" * 160 + ".ready"]


def test_a_pipe_is_refused_rather_than_waited_for(queue: Path) -> None:
    os.mkfifo(queue.parent / "pipe")
    called = command("put", queue, queue.parent / "pipe")
    assert called.code == 2
    assert "submit what it gives with -\n" in called.err


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["f", "g", "--docid", "x"],
        ["-"],
        ["f", "-", "--docid", "x"],
        ["-", "--docid", "x", "--move"],
        ["f", "--after", "soon"],
        ["f", "--after", "-3"],
        ["f", "-0"],
        ["f", "-"],
    ],
)
def test_arguments_that_contradict_each_other_have_code_2(
    args: list[str], queue: Path, file: Path, capsys: Capsys
) -> None:
    paths = {"f": str(file), "g": str(file)}
    called = call(capsys, "put", queue, *(paths.get(arg, arg) for arg in args))
    assert called.code == 2
    assert called.err.startswith("queuedriver: ")
    assert items(queue) == []


def test_a_queue_that_is_a_file_cannot_be_used(file: Path, capsys: Capsys) -> None:
    called = call(capsys, "put", file, file)
    assert (called.code, called.err) == (
        73,
        f"queuedriver: '{file}' is not a directory, so not a queue\n",
    )


def test_a_path_that_is_too_long_leads_nowhere(file: Path, capsys: Capsys) -> None:
    assert call(capsys, "put", "/" + "x" * 5000, file).code == 66


def test_an_unreadable_file_is_named(queue: Path, file: Path) -> None:
    file.chmod(0)
    called = command("put", queue, file, prefix=unprivileged())
    assert called.code == 77
    assert called.err == f"queuedriver: '{file}' may not be read: permission denied\n"


@pytest.mark.parametrize("used", [False, True])
def test_an_unwritable_queue_has_code_77(queue: Path, file: Path, used: bool) -> None:
    if used:
        submit(queue, "before")
    before = tree(queue)
    queue.chmod(0o555)
    called = command("put", queue, file, prefix=unprivileged())
    assert called.code == 77
    assert str(queue) in called.err
    assert "permission denied" in called.err
    assert tree(queue) == before or listed(queue / ".queuedriver/incoming") == []
    assert "letter.txt.ready" not in items(queue)


@pytest.mark.parametrize("used", [False, True])
def test_a_read_only_file_system_has_code_74(queue: Path, file: Path, used: bool) -> None:
    if used:
        submit(queue, "before")
    called = command("put", queue, file, prefix=read_only(queue))
    assert called.code == 74
    assert "Read-only file system" in called.err
    assert str(queue) in called.err


def test_a_full_disk_has_code_74_and_keeps_what_was_there(queue: Path, file: Path) -> None:
    big = queue.parent / "big"
    big.write_bytes(bytes(1 << 20))
    # The file system is gone with the command, so the command looks at it itself.
    look = 'shift 2; "$@"; echo "code $?"; ls "$0" "$0/.queuedriver/incoming"'
    called = command(
        "put", queue, file, big, prefix=[*full(queue), "sh", "-c", look, queue, "", ""]
    )
    assert "No space left on device" in called.err
    assert "code 74" in called.out
    assert "big" not in called.out


# A submitter that dies


def test_a_submitter_that_is_killed_leaves_nothing_that_a_driver_would_see(queue: Path) -> None:
    process = start("put", queue, "-", "--docid", "half")
    assert process.stdin is not None
    process.stdin.write(b"x" * 100_000)
    process.stdin.flush()
    until(lambda: listed(queue / ".queuedriver/incoming"))
    process.send_signal(signal.SIGKILL)
    assert ended(process).code == -signal.SIGKILL
    assert items(queue) == []
    # And it does not stand in the way of the next.
    assert command("put", queue, "-", "--docid", "half", stdin=b"whole") == (0, "", "")
    assert (queue / "half.ready").read_bytes() == b"whole"


def test_two_submitters_of_one_docid_are_one_too_many(queue: Path, file: Path) -> None:
    processes = [start("put", queue, file) for _ in range(4)]
    codes = sorted(process.wait(PATIENCE) for process in processes)
    for process in processes:
        ended(process)
    assert codes == [0, 73, 73, 73]
    assert (queue / "letter.txt.ready").read_text() == "Dear all"
