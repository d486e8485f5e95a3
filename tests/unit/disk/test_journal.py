"""What happened to a document is found again, whatever happened to the journal."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, read_events, read_history, submitter
from queuedriver.format.records import Event, describe_event
from tests.holdings import open_files


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def journal_in(directory: Path, writer: str = "3", max_bytes: int = 64 << 20) -> Journal:
    journal = Journal(str(directory), writer, "alpha")
    journal.max_bytes, journal.keep = max_bytes, 1000
    return journal


def files(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def docids(directory: Path) -> list[str]:
    return [event.docid for event in read_events(str(directory)).events]


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size`: the write that would is short or fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# Writing


def test_what_was_noted_is_read_back_with_who_and_where(directory: Path) -> None:
    journal = journal_in(directory)
    journal.note("submitted", "a", at=1.0, queue="in")
    journal.note(
        "failed",
        "a",
        at=2.5,
        token="3-0123456789abcdef01",
        queue="in",
        attempt=1,
        seconds=0.25,
        cause="exit",
        message="exit code 3",
    )
    journal.note("published", "a", at=3.0, outputs=("a.ready", "b.xml"), renamed="a~01")
    journal.close()
    assert read_history(str(directory), "a").events == [
        Event(at=1.0, event="submitted", docid="a", host="alpha", driver="3", queue="in"),
        Event(
            at=2.5,
            event="failed",
            docid="a",
            token="3-0123456789abcdef01",
            host="alpha",
            driver="3",
            queue="in",
            attempt=1,
            seconds=0.25,
            cause="exit",
            message="exit code 3",
        ),
        Event(
            at=3.0,
            event="published",
            docid="a",
            host="alpha",
            driver="3",
            outputs=("a.ready", "b.xml"),
            renamed="a~01",
        ),
    ]


def test_an_event_is_noted_with_the_time_of_day(directory: Path) -> None:
    journal = journal_in(directory)
    before = time.time()
    journal.note("submitted", "a")
    after = time.time()
    journal.close()
    assert before <= read_events(str(directory)).events[0].at <= after


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text())
@example('quote " backslash \\ slash / newline \n return \r NUL \0 DEL \x7f', "\udcff")
@example("line separator \u2028 astral \U0001f600", "")
@example("\r", "\n")
def test_any_docid_and_any_message_survive(docid: str, message: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        journal = journal_in(Path(name))
        journal.note("failed", docid, message=message)
        journal.note("failed", docid + "x", message=message)
        journal.close()
        found = read_history(name, docid)
        readable = message.encode("utf-8", "backslashreplace").decode()
        assert [(event.docid, event.message or "") for event in found.events] == [(docid, readable)]
        assert found.skipped == 0


def test_the_disk_is_touched_once_in_an_interval_and_not_before_there_is_news(
    directory: Path,
) -> None:
    journal = journal_in(directory)
    journal.flush_if_due(100.0)
    assert not directory.exists()
    journal.note("claimed", "a")
    assert not directory.exists()
    journal.flush_if_due(100.0)
    assert docids(directory) == ["a"]
    journal.note("claimed", "b")
    journal.flush_if_due(100.09)
    assert docids(directory) == ["a"]
    journal.flush_if_due(100.11)
    assert docids(directory) == ["a", "b"]
    journal.close()


def test_many_lines_are_written_before_they_take_much_memory(directory: Path) -> None:
    journal = journal_in(directory)
    for number in range(1000):
        journal.note("published", f"{number:03d}")
    assert len(journal.pending) < 256
    assert len(docids(directory)) + len(journal.pending) == 1000
    journal.close()


def test_a_journal_goes_on_where_an_earlier_run_of_the_driver_ended(directory: Path) -> None:
    for docid in ("a", "b"):
        journal = journal_in(directory)
        journal.note("submitted", docid)
        journal.close()
    assert files(directory) == ["3.jsonl"]
    assert docids(directory) == ["a", "b"]


def test_submitters_of_one_host_share_a_file_and_lose_nothing(directory: Path) -> None:
    code = (
        "import sys; from queuedriver.disk.journal import Journal\n"
        "journal = Journal(sys.argv[1], 'put-alpha', 'alpha')\n"
        "journal.max_bytes, journal.keep = 1_000, 100_000\n"
        "for number in range(100):\n"
        "    for part in 'abc': journal.note('submitted', f'{sys.argv[2]}-{number}{part}')\n"
        "    journal.flush()\n"
    )
    submitters = [
        subprocess.Popen([sys.executable, "-c", code, str(directory), str(number)])
        for number in range(4)
    ]
    assert [process.wait() for process in submitters] == [0] * 4
    found = read_events(str(directory))
    assert found.skipped == 0
    expected = {
        f"{who}-{number}{part}" for who in range(4) for number in range(100) for part in "abc"
    }
    assert len(found.events) == len(expected)
    assert {event.docid for event in found.events} == expected
    # It was rotated under their hands as well.
    assert len(files(directory)) > 2


def test_a_forked_child_does_not_write_what_its_parent_noted(directory: Path) -> None:
    code = (
        "import os, sys; from queuedriver.disk.journal import Journal\n"
        "journal = Journal(sys.argv[1], '3', 'alpha')\n"
        "journal.note('submitted', 'first'); journal.flush(); journal.note('submitted', 'parent')\n"
        "child = os.fork()\n"
        "if not child: journal.note('submitted', 'child'); journal.close(); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "journal.close()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(directory)], check=True)
    assert sorted(docids(directory)) == ["child", "first", "parent"]


def test_a_writer_is_no_path() -> None:
    for writer in ("", "../x", "a/b", ".hidden", "a.b", "x" * 81, "a\n"):
        with pytest.raises(ValueError, match="cannot name a journal"):
            Journal("/nowhere", writer, "alpha")


def test_every_host_has_a_submitter_that_is_a_writer() -> None:
    assert submitter("alpha-1") == "put-alpha-1"
    for host in ("node.example.org", "xn--p1ai", "ä ö", "x" * 300, ""):
        Journal("/nowhere", submitter(host), host)


# Trouble


def test_a_line_cut_by_a_crash_costs_that_line_only(directory: Path) -> None:
    journal = journal_in(directory)
    for docid in ("a", "b"):
        journal.note("submitted", docid)
    journal.close()
    path = directory / "3.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    journal = journal_in(directory)
    journal.note("submitted", "c")
    journal.close()
    found = read_events(str(directory))
    assert [event.docid for event in found.events] == ["a", "c"]
    assert found.skipped == 1


@given(st.integers(0, 400))
@example(80)  # All of the first line but its end.
@settings(deadline=None, max_examples=30)
def test_a_disk_that_fills_up_within_a_line_loses_and_doubles_nothing(room: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        journal = journal_in(directory)
        for docid in ("a", "b", "c"):
            journal.note("submitted", docid, at=1795000000.25)
        with full_at(room):
            journal.flush()
            journal.flush()
        journal.note("submitted", "d", at=1795000000.25)
        journal.flush()
        assert journal.trouble is None
        journal.close()
        found = read_events(name)
        assert [event.docid for event in found.events] == ["a", "b", "c", "d"]
        # The half line; the retry found no room for any part of its own.
        assert found.skipped <= 1


def test_trouble_stops_no_work_and_is_told(directory: Path) -> None:
    directory.write_text("in the way")
    journal = journal_in(directory)
    journal.note("submitted", "a")
    journal.flush()
    trouble = journal.trouble
    assert isinstance(trouble, NotADirectoryError)
    directory.unlink()
    journal.note("submitted", "b")
    journal.flush()
    assert journal.trouble is None
    journal.close()
    assert docids(directory) == ["a", "b"]


def test_after_trouble_the_next_attempt_is_a_second_later(directory: Path) -> None:
    directory.write_text("in the way")
    journal = journal_in(directory)
    journal.note("submitted", "a")
    journal.flush_if_due(100.0)
    directory.unlink()
    journal.flush_if_due(100.9)
    assert not directory.exists()
    journal.flush_if_due(101.0)
    assert docids(directory) == ["a"]
    journal.close()


def test_where_there_is_no_queue_the_journal_makes_none(tmp_path: Path) -> None:
    journal = journal_in(tmp_path / "queue" / ".queuedriver" / "journal")
    journal.note("submitted", "a")
    journal.close()
    assert isinstance(journal.trouble, FileNotFoundError)
    assert not list(tmp_path.iterdir())


def test_long_trouble_drops_the_oldest_lines_and_says_how_many(directory: Path) -> None:
    directory.write_text("in the way")
    journal = journal_in(directory)
    for number in range(25_000):
        journal.note("submitted", str(number))
        if number % 1000 == 0:
            journal.flush()
    directory.unlink()
    journal.flush()
    journal.note("submitted", "after")
    journal.close()
    found = read_events(str(directory)).events
    dropped, kept = found[0], found[1:]
    assert dropped.event == "dropped"
    assert dropped.message is not None
    assert "Not a directory" in dropped.message
    assert f"{25_000 + 1 - len(kept):,} lines" in dropped.message
    assert 8_000 <= len(kept) <= 10_001
    assert [event.docid for event in kept[-2:]] == ["24999", "after"]


def test_a_journal_deleted_under_its_writer_is_begun_anew(directory: Path) -> None:
    journal = journal_in(directory)
    journal.note("submitted", "a")
    journal.flush()
    (directory / "3.jsonl").unlink()
    directory.rmdir()
    journal.note("submitted", "b")
    journal.close()
    assert docids(directory) == ["b"]


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory"])
def test_what_is_no_regular_file_is_neither_written_nor_read(
    tmp_path: Path, directory: Path, kind: str
) -> None:
    directory.mkdir()
    path = directory / "3.jsonl"
    target = tmp_path / "target"
    if kind == "symlink":
        target.write_text('{"at":1,"event":"submitted","docid":"a"}\n')
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    before = target.read_bytes() if target.exists() else b""
    journal = journal_in(directory)
    journal.note("submitted", "a")
    journal.close()
    assert journal.trouble is not None
    assert read_events(str(directory)).events == []
    assert (target.read_bytes() if target.exists() else b"") == before


def test_a_huge_event_is_shortened_and_its_neighbours_are_whole(directory: Path) -> None:
    journal = journal_in(directory)
    journal.note("failed", "a", message="m" * 3_000_000)
    journal.note("published", "b", outputs=tuple(f"{number:0150}" for number in range(10_000)))
    journal.note("published", "c")
    journal.close()
    found = read_events(str(directory))
    assert [event.docid for event in found.events] == ["a", "b", "c"]
    assert found.skipped == 0
    assert (directory / "3.jsonl").stat().st_size < 100_000


def test_no_descriptor_is_left_after_close_or_trouble(directory: Path) -> None:
    before = open_files()
    journal = journal_in(directory, max_bytes=200)
    for number in range(20):
        journal.note("submitted", str(number))
        journal.flush()
    journal.close()
    (directory / "put-alpha.jsonl").mkdir()
    blocked = journal_in(directory, "put-alpha")
    blocked.note("submitted", "a")
    blocked.flush()
    read_events(str(directory))
    assert open_files() <= before


# Rotation


def test_rotation_keeps_every_line_until_there_are_too_many_files(directory: Path) -> None:
    journal = journal_in(directory, max_bytes=1000)
    for number in range(100):
        journal.note("submitted", f"{number:03}")
        journal.flush()
    assert len(files(directory)) > 5
    assert docids(directory) == [f"{number:03}" for number in range(100)]
    journal.keep = 2
    for number in range(100, 120):
        journal.note("submitted", f"{number:03}")
        journal.flush()
    journal.close()
    assert len(files(directory)) == 3
    # The newest remain.
    kept = docids(directory)
    assert kept == [f"{number:03}" for number in range(120)][-len(kept) :]


def test_a_journal_of_those_that_write_once_each_is_rotated_too(directory: Path) -> None:
    for number in range(30):
        journal = journal_in(directory, "put-alpha", max_bytes=1000)
        journal.note("submitted", f"{number:03}")
        journal.close()
    assert len(files(directory)) > 1
    assert docids(directory) == [f"{number:03}" for number in range(30)]


def test_rotation_touches_only_files_of_its_own_writer(directory: Path) -> None:
    directory.mkdir()
    others = [
        "3.bak.jsonl",
        "3.00000000000001.jsonl.gz",
        "33.00000000000001.jsonl",
        "3-1.00000000000001.jsonl",
        "notes.txt",
    ]
    for name in others:
        (directory / name).touch()
    journal = journal_in(directory, max_bytes=100)
    journal.keep = 1
    for number in range(20):
        journal.note("submitted", str(number))
        journal.flush()
    journal.close()
    assert set(others) <= set(files(directory))
    assert len(files(directory)) == len(others) + 2


def test_a_reader_misses_nothing_while_the_writer_rotates(directory: Path) -> None:
    code = (
        "import sys; from queuedriver.disk.journal import Journal\n"
        "journal = Journal(sys.argv[1], '3', 'alpha')\n"
        "journal.max_bytes, journal.keep = 2000, 100_000\n"
        "number = 0\n"
        "while True:\n"
        "    journal.note('submitted', str(number)); journal.flush()\n"
        "    print(number, flush=True); number += 1\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        try:
            for _ in range(30):
                written = int(writer.stdout.readline())
                found = read_events(str(directory))
                # Each at least once; a line of a file still being written may be cut off.
                assert {str(n) for n in range(written + 1)} <= {e.docid for e in found.events}
                assert len(found.events) == len({e.docid for e in found.events})
        finally:
            writer.send_signal(signal.SIGKILL)


def test_a_file_rotated_between_its_listing_and_its_opening_is_read(directory: Path) -> None:
    # An audit hook runs at the very instant of the open, in a process that ends with the test.
    code = (
        "import os, sys; from queuedriver.disk.journal import read_events\n"
        "path = os.path.join(sys.argv[1], '3.jsonl')\n"
        "def rotate(event, args):\n"
        "    if event == 'open' and args[0] == path and os.path.exists(path):\n"
        "        os.rename(path, path[:-6] + '.00000000000001.jsonl')\n"
        "sys.addaudithook(rotate)\n"
        "print([event.docid for event in read_events(sys.argv[1]).events])\n"
    )
    journal = journal_in(directory)
    journal.note("submitted", "a")
    journal.close()
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)], check=True, capture_output=True, text=True
    )
    assert done.stdout == "['a']\n"


def test_submitters_that_rotate_in_one_microsecond_do_not_replace_each_others_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename_new = Directory.rename_new

    # The instant between the look and the rename cannot be passed in.
    def overtaken(self: Directory, old: str, new: str, to: Directory | None = None) -> None:
        os.rename(directory / old, directory / new)
        (directory / old).write_text('{"at":2,"event":"submitted","docid":"b"}\n')
        rename_new(self, old, new, to)

    journal = journal_in(directory, max_bytes=10)
    journal.note("submitted", "a", at=1.0)
    journal.flush()
    journal.note("submitted", "c", at=3.0)
    monkeypatch.setattr(Directory, "rename_new", overtaken)
    journal.close()
    assert docids(directory) == ["a", "b", "c"]


# Reading


def test_histories_of_all_writers_are_merged_by_time(directory: Path) -> None:
    for writer, times in (("put-beta", (1.0,)), ("3", (4.0, 2.0)), ("alpha-1", (3.0,))):
        journal = journal_in(directory, writer)
        for at in times:
            journal.note("x", "a", at=at)
            journal.note("x", "another", at=at)
        journal.close()
    found = read_history(str(directory), "a").events
    assert [(event.at, event.driver) for event in found] == [
        (1.0, "put-beta"),
        (2.0, "3"),
        (3.0, "alpha-1"),
        (4.0, "3"),
    ]


def test_the_history_of_a_renamed_document_tells_where_it_came_from(directory: Path) -> None:
    journal = journal_in(directory)
    journal.note("published", "a", renamed="a~0123")
    journal.note("submitted", "b")
    journal.close()
    for docid in ("a", "a~0123"):
        assert len(read_history(str(directory), docid).events) == 1


def test_lines_of_other_json_writers_are_understood(directory: Path) -> None:
    directory.mkdir()
    (directory / "shell.jsonl").write_text(
        r'{ "docid" : "na\u00efve\/x" , "event" : "submitted", "at" : 1, "new": [{}] }' + "\n"
    )
    assert read_history(str(directory), "naïve/x").events == [
        Event(at=1.0, event="submitted", docid="naïve/x")
    ]


def test_what_does_not_parse_is_skipped_and_counted(directory: Path) -> None:
    directory.mkdir()
    (directory / "3.jsonl").write_bytes(
        b'{"at":1,"event":"x","docid":"a"}\n'
        b"\n"
        b'{"at":2,"event":"x","docid":"a"\n'
        b'{"at":"noon","event":"x","docid":"a"}\n'
        b'{"at":3,"event":"x","docid":"a\xff"}\n'
        b"\0\0\0\0a\n" + b"[" * 200_000 + b"a\n"
        b'{"at":4,"event":"x","docid":"a","message":"' + b"m" * 5_000_000 + b'"}\n'
        b'{"at":5,"event":"x","docid":"a"}'
    )
    for found in (read_history(str(directory), "a"), read_events(str(directory))):
        assert [event.at for event in found.events] == [1.0, 5.0]
        assert found.skipped == 6
        assert found.unreadable == []


def test_a_line_across_the_bounds_of_a_read_is_whole(directory: Path) -> None:
    journal = journal_in(directory)
    for number in range(300):
        journal.note("failed", f"d{number}", message="m" * (10_000 + number))
    journal.close()
    found = read_events(str(directory))
    assert (len(found.events), found.skipped) == (300, 0)
    assert sum(len(read_history(str(directory), f"d{n}").events) for n in range(300)) == 300


def test_files_that_are_not_journals_are_left_alone(directory: Path) -> None:
    directory.mkdir()
    for name in ("x.json", "3.jsonl~", ".3.jsonl", "3.xyz.jsonl", "a b.jsonl", "3.jsonl\n"):
        (directory / name).write_text('{"at":1,"event":"x","docid":"a"}\n')
    assert read_events(str(directory)) == ([], 0, [])


def test_a_journal_that_cannot_be_opened_is_named(directory: Path) -> None:
    directory.mkdir()
    path = directory / "3.jsonl"
    path.symlink_to("/etc/passwd")
    journal = journal_in(directory, "4")
    journal.note("submitted", "a")
    journal.close()
    found = read_events(str(directory))
    assert [event.docid for event in found.events] == ["a"]
    assert found.unreadable == [str(path)]


def test_without_a_journal_nothing_is_known(directory: Path) -> None:
    assert read_events(str(directory)) == ([], 0, [])
    assert read_history(str(directory), "a") == ([], 0, [])


def test_events_since_an_instant_are_those_at_or_after_it(directory: Path) -> None:
    journal = journal_in(directory)
    now = time.time()
    for ago in (7200.0, 60.0, 0.0):
        journal.note("x", f"{ago:g}", at=now - ago)
    journal.close()
    found = read_events(str(directory), since=now - 60.0).events
    assert [event.docid for event in found] == ["60", "0"]


def test_files_rotated_long_before_the_instant_are_not_opened(directory: Path) -> None:
    directory.mkdir()
    line = '{"at":9000000,"event":"x","docid":"a"}\n'
    for hours in (1, 3):
        (directory / f"3.{hours * 3_600_000_000:014x}.jsonl").write_text(line)
    found = read_events(str(directory), since=3.0 * 3600).events
    # The slack of an hour is not enough for the first, and all is read without an instant.
    assert len(found) == 1
    assert len(read_events(str(directory)).events) == 2


# For people


def test_an_event_is_described_in_one_line() -> None:
    event = Event(
        at=1795000000.25,
        event="published",
        docid="a",
        host="alpha",
        driver="3",
        attempt=2,
        seconds=200.0,
        outputs=("a.ready", "b.xml"),
        renamed="a~01",
        cause="exit",
        message="exit code 3",
    )
    clock, _, words = describe_event(event).partition(".250 ")
    assert len(clock) == len("2026-11-18 12:00:00")
    assert words == (
        "a published, attempt 2, took 3 min 20 s, as a.ready b.xml, goes on as a~01 "
        "by 3 on alpha: exit: exit code 3"
    )


def test_a_description_leaves_out_what_is_not_known() -> None:
    assert describe_event(Event(at=1795000000.0, event="closed")).endswith(".000 closed")


@given(
    st.builds(
        Event,
        at=st.floats(),
        event=st.text(),
        docid=st.text(),
        message=st.none() | st.text(),
        seconds=st.none() | st.floats(),
        outputs=st.none() | st.tuples(st.text()),
    )
)
@example(Event(at=1e300, event="x", docid="\x1b[2J\n\r\u202e\udcff"))
def test_nothing_in_a_description_can_steer_a_terminal(event: Event) -> None:
    assert describe_event(event).isprintable()
