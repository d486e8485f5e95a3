"""Everything that happens is written down once, whatever the disk says, and told to whom it may
concern, who cannot hold anything up."""

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.waiting import PATIENCE, is_alive, until
from watchdogd.children import Children
from watchdogd.events import Event, EventLog, describe, read_events
from watchdogd.hooks import Hooks, words


def messages(path: Path) -> list[str]:
    return [event.message for event in read_events(str(path))]


# The log


def test_event_is_one_line_and_is_passed_on(tmp_path: Path) -> None:
    told: list[Event] = []
    log = EventLog(str(tmp_path), "rose", told.append)
    log.note("started", stage="parse", driver="parse-2", pid=4711)
    log.note("exited", "it crashed", stage="parse", driver="parse-2", pid=4711, signal="SIGSEGV")
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=Event) for line in lines] == told
    assert [event.event for event in told] == ["started", "exited"]
    assert told[1].host == "rose"
    # What an event is not about is left out.
    assert b"docid" not in lines[0]
    assert b"message" not in lines[0]


def test_log_is_rotated_and_nothing_is_lost(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), "rose", max_bytes=1000, keep=3)
    for number in range(45):
        log.note("note", f"{number:03} {'x' * 50}", at=0.0)
    names = sorted(os.listdir(tmp_path), reverse=True)
    assert names == ["events.jsonl.3", "events.jsonl.2", "events.jsonl.1", "events.jsonl"]
    kept = [message[:3] for name in names for message in messages(tmp_path / name)]
    assert kept == [f"{number:03}" for number in range(45 - len(kept), 45)]
    assert len(kept) > 30


def test_bytes_that_are_no_text_are_written_all_the_same(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), "rose")
    log.note("discarded", "a\udcffb", docid="c\udcff", at=1.0)
    (event,) = read_events(str(tmp_path / "events.jsonl"))
    assert event == Event(
        at=1.0, host="rose", event="discarded", message="a\\udcffb", docid="c\\udcff"
    )


def test_events_wait_while_they_cannot_be_written(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "later"), "rose")
    log.note("note", "one")
    log.note("note", "two")
    assert "No such file" in log.trouble
    (tmp_path / "later").mkdir()
    log.flush()
    assert messages(tmp_path / "later/events.jsonl") == ["one", "two"]
    assert log.trouble == ""


def test_too_many_that_wait_are_dropped_and_counted(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "later"), "rose")
    for number in range(1010):
        log.note("note", f"{number}")
    (tmp_path / "later").mkdir()
    log.flush()
    found = messages(tmp_path / "later/events.jsonl")
    assert found[0] == "10 events before this could not be written"
    assert found[1:] == [f"{number}" for number in range(10, 1010)]


def test_full_disk_tears_no_line_and_loses_none(tmp_path: Path) -> None:
    # A file may not grow beyond the limit; as on a full disk, a write may be cut short before.
    script = """
        import resource, signal, sys
        from watchdogd.events import EventLog
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        log = EventLog(sys.argv[1], "rose")
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        for number in range(30):
            log.note("note", f"{number:03} {'x' * 60}")
        assert log.trouble
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        log.flush()
        assert not log.trouble
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], check=True, timeout=PATIENCE
    )
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=Event).message[:3] for line in lines]
    assert found == [f"{number:03}" for number in range(30)]


def test_lines_that_are_not_understood_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'rubbish\n\xff\xfe\n{"at":1,"host":"h","event":"ready"}\n{"at":2,"ho')
    assert read_events(str(path)) == [Event(at=1.0, host="h", event="ready")]


SIGNALLED = "it was ended by SIGSEGV, with 'a' at hand"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event(at=0, host="h", event="ready", driver="parse-2", stage="parse"), "parse-2 ready"),
        (
            Event(at=0, host="h", event="exited", driver="parse-2", exit_code=70, message="a bug"),
            "parse-2 exited: a bug, exit code 70",
        ),
        (
            Event(at=0, host="h", event="killed", driver="parse-2", signal="SIGKILL"),
            "parse-2 killed: ended by SIGKILL",
        ),
        (
            Event(at=0, host="h", event="exited", signal="SIGSEGV", message=SIGNALLED),
            "exited: it was ended by SIGSEGV, with 'a' at hand",
        ),
        (
            Event(at=0, host="h", event="exited", exit_code=3, message="it crashed (exit code 3)"),
            "exited: it crashed (exit code 3)",
        ),
        (Event(at=0, host="h", event="waiting-fs", message="full"), "waiting-fs: full"),
        (Event(at=0, host="h", event="note", message="\x1b[2J\n"), "note: \\x1b[2J\\n"),
    ],
)
def test_event_is_described_in_one_line_that_steers_no_terminal(event: Event, line: str) -> None:
    assert describe(event) == line


# Hooks


def an_event(message: str = "", driver: str = "parse-2") -> Event:
    return Event(at=0.0, host="rose", event="hung", stage="parse", driver=driver, message=message)


@contextlib.contextmanager
def hooks(directory: Path, command: Sequence[str]) -> Iterator[Hooks]:
    """On a clock of the test's own, which begins at 0."""
    children = Children()
    made = Hooks(command, children, str(directory))
    try:
        yield made
    finally:
        # Whoever has not ended yet is ended, and reaped.
        children.close()


def wait(running: Hooks, now: float) -> None:
    """Until all that run have ended."""

    def ended() -> bool:
        running.children.reap(now)
        running.tend(now)
        return not running.running

    until(ended, "the end of all commands")


@pytest.mark.parametrize(
    ("command", "filled"),
    [
        (("notify", "{event}"), ["notify", "hung"]),
        (("x", "{stage}/{driver} on {host}"), ["x", "parse/parse-2 on rose"]),
        (("x", "{message}"), ["x", "a {event}; $(rm -rf /) b"]),
        (("x", "{unknown}", "{}", "{{event}}"), ["x", "{unknown}", "{}", "{hung}"]),
    ],
)
def test_fields_are_filled_in_once(command: tuple[str, ...], filled: list[str]) -> None:
    assert words(command, an_event("a {event}; $(rm\0 -rf /) b")) == filled


def test_command_gets_its_words_and_no_shell_sees_them(tmp_path: Path) -> None:
    script = 'printf "%s\\n" "$@"; echo complaint >&2'
    with hooks(tmp_path, ["sh", "-c", script, "x", "{event}", "{message}"]) as running:
        running.tell(an_event("$(echo no) *"), now=0.0)
        wait(running, now=0.0)
    assert (tmp_path / "hooks.log").read_text() == "hung\n$(echo no) *\ncomplaint\n"


def test_four_run_at_once_and_the_others_wait(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with hooks(tmp_path, ["sh", "-c", f"read go < {fifo}; echo {{message}}"]) as running:
        for number in range(6):
            running.tell(an_event(f"{number}"), now=0.0)
        assert len(running.children.running) == 4
        holder = os.open(fifo, os.O_RDWR)
        os.write(holder, b"\n" * 6)
        wait(running, now=0.0)
        os.close(holder)
    assert sorted((tmp_path / "hooks.log").read_text()) == sorted("\n" * 6 + "012345")


def test_command_that_takes_longer_than_a_minute_is_killed_with_its_children(
    tmp_path: Path,
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The child holds the FIFO open for writing until it ends.
    with hooks(tmp_path, ["sh", "-c", f"exec 9> {fifo}; sleep 1000 & wait"]) as running:
        running.tell(an_event(), now=0.0)
        with open(fifo, "rb") as file:
            assert running.children.tend(now=59.0) == 60.0
            assert is_alive(running.children.running[0].pid)
            running.children.tend(now=60.0)
            wait(running, now=61.0)
            assert file.read() == b""


def test_flood_of_events_is_told_in_measure(tmp_path: Path) -> None:
    with hooks(tmp_path, ["true"]) as running:
        for _ in range(200):
            running.tell(an_event(), now=1000.0)
            wait(running, now=1000.0)
        # The first twenty went out at once; then one a second.
        assert running.due_at == pytest.approx(1001.0)
        for second in range(1, 4):
            running.tend(now=1000.0 + second)
            assert len(running.children.running) == 1
            wait(running, now=1000.0 + second)
    # Of the other 180, only a hundred had room.
    (line,) = (tmp_path / "hooks.log").read_text().splitlines()
    assert line.endswith("80 events had no room, and were not told")


def test_command_that_is_not_there_is_said_in_the_log_and_nowhere_else(tmp_path: Path) -> None:
    with hooks(tmp_path, ["/nowhere/notify"]) as running:
        running.tell(an_event(), now=0.0)
        wait(running, now=0.0)
    log = (tmp_path / "hooks.log").read_text()
    assert log == "/nowhere/notify cannot be run: No such file or directory\n"


def test_without_a_command_nothing_runs(tmp_path: Path) -> None:
    with hooks(tmp_path, []) as running:
        running.tell(an_event(), now=0.0)
        assert running.children.running == []
        assert running.due_at == float("inf")
    assert os.listdir(tmp_path) == []
