"""Everything that happens is written down once, whatever the disk says, and told to whom it may
concern, who cannot hold anything up."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.children import few_descriptors
from tests.holdings import open_files, without_collections
from tests.waiting import PATIENCE, is_alive, until, until_ended
from watchdogd.children import Children
from watchdogd.events import Event, Events, describe, words


class Voice:
    """Events of one watchdog, and whom it told of them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.told: list[Event] = []
        self.children = Children()
        (place / "local").mkdir()
        (place / "pipeline").mkdir()
        self.events = Events(
            f"{place}/local", "rose", f"{place}/pipeline", self.children, self.told.append
        )

    def run(self, *command: str) -> None:
        """The command for events from now on."""
        self.events.command = command

    def lines(self) -> list[dict[str, Any]]:
        path = self.place / "local/events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def log(self) -> str:
        """What the commands have said."""
        return (self.place / "local/on_event.log").read_text()

    def quiet(self, now: float) -> None:
        """Wait for all commands that may be started by then."""

        def quiet() -> bool:
            self.children.reap(now)
            self.events.tend(now)
            return not self.children.running

        until(quiet, "the end of all commands")


@pytest.fixture
def voice(tmp_path: Path) -> Iterator[Voice]:
    voice = Voice(tmp_path)
    yield voice
    voice.children.close()


# The log


def test_event_is_one_line_and_is_passed_on(voice: Voice) -> None:
    voice.events.say("started", stage="parse", driver="parse-2", pid=4711)
    voice.events.say("exited", "it crashed", stage="parse", driver="parse-2", signal="SIGSEGV")
    first, second = voice.lines()
    assert second.pop("at") > 0
    assert second == {
        "host": "rose",
        "event": "exited",
        "stage": "parse",
        "driver": "parse-2",
        "message": "it crashed",
        "signal": "SIGSEGV",
    }
    assert [one.event for one in voice.told] == ["started", "exited"]
    # What an event is not about is left out.
    assert first.keys() == {"at", "host", "event", "stage", "driver", "pid"}
    assert voice.children.running == []
    assert voice.events.tend(time.monotonic()) == float("inf")


def test_log_that_has_grown_is_rotated(voice: Voice) -> None:
    with open(voice.place / "local/events.jsonl", "wb") as file:
        file.truncate(10_000_000)
    voice.events.say("ready")
    assert [one["event"] for one in voice.lines()] == ["ready"]
    assert (voice.place / "local/events.jsonl.1").stat().st_size == 10_000_000


def test_bytes_that_are_no_text_are_written_all_the_same(voice: Voice) -> None:
    voice.events.say("discarded", "a\udcffb", queue="c\udcff", at=1.0)
    (line,) = voice.lines()
    assert (line["message"], line["queue"]) == ("a\\udcffb", "c\\udcff")


def test_events_that_could_not_be_written_are_told_and_counted(voice: Voice) -> None:
    # Something else is where their directory was; one that is only removed is made again.
    (voice.place / "local").rename(voice.place / "away")
    (voice.place / "local").touch()
    for _ in range(3):
        voice.events.say("ready")
    (voice.place / "local").unlink()
    voice.events.say("exited")
    assert [one.event for one in voice.told] == ["ready"] * 3 + ["exited"]
    note, last = voice.lines()
    assert (note["event"], last["event"]) == ("note", "exited")
    assert note["message"] == "3 events before this could not be written"
    voice.events.say("ready")
    assert [one["event"] for one in voice.lines()] == ["note", "exited", "ready"]


def test_full_disk_tears_no_line_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    # A file may not grow beyond the limit; as on a full disk, a write may be cut short before.
    script = """
        import resource, signal, sys
        from watchdogd.children import Children
        from watchdogd.events import Events
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        events = Events(sys.argv[1], "rose", "/", Children())
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        for number in range(30):
            events.say("note", f"{number:03} {'x' * 60}")
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        events.say("note", "030")
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], check=True, timeout=PATIENCE
    )
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    said = [msgspec.json.decode(line, type=Event).message for line in lines]
    written = len(said) - 2
    assert [message[:3] for message in said[:written]] == [f"{n:03}" for n in range(written)]
    assert 0 < written < 30
    assert said[written:] == [f"{30 - written} events before this could not be written", "030"]


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


# The command


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
    message = "a {event}; $(rm\0 -rf /) b"
    event = Event(
        at=0.0, host="rose", event="hung", stage="parse", driver="parse-2", message=message
    )
    assert words(command, event) == filled


def test_command_gets_its_words_in_the_pipelines_directory_and_no_shell_sees_them(
    voice: Voice,
) -> None:
    script = 'printf "%s\\n" "$@" "$(pwd)"; echo complaint >&2'
    voice.run("sh", "-c", script, "x", "{event}", "{message}")
    voice.events.say("hung", "$(echo no) *")
    voice.quiet(0.0)
    assert voice.log() == f"hung\n$(echo no) *\n{voice.place}/pipeline\ncomplaint\n"


def test_command_beside_the_file_is_found_from_anywhere(voice: Voice) -> None:
    tell = voice.place / "pipeline/tell"
    tell.write_text('#!/bin/sh\necho "$1"\n')
    tell.chmod(0o755)
    voice.run("./tell", "{event}")
    voice.events.say("hung")
    voice.quiet(0.0)
    assert voice.log() == "hung\n"


def test_four_run_at_once_and_the_others_wait(voice: Voice) -> None:
    fifo = voice.place / "fifo"
    os.mkfifo(fifo)
    voice.run("sh", "-c", f"read go < {fifo}; echo {{message}}")
    for number in range(6):
        voice.events.say("note", f"{number}")
    assert len(voice.children.running) == 4
    holder = os.open(fifo, os.O_RDWR)
    os.write(holder, b"\n" * 6)
    voice.quiet(0.0)
    os.close(holder)
    assert sorted(voice.log()) == sorted("\n" * 6 + "012345")


def test_command_that_takes_longer_than_a_minute_is_ended_with_its_children(voice: Voice) -> None:
    fifo = voice.place / "fifo"
    os.mkfifo(fifo)
    # The child holds the FIFO open for writing until it ends.
    voice.run("sh", "-c", f"exec 9> {fifo}; sleep 1000 & wait")
    voice.events.say("hung")
    now = time.monotonic()
    with open(fifo, "rb") as file:
        due = voice.children.tend(now)
        assert now + 50 < due <= now + 60
        (child,) = voice.children.running
        assert is_alive(child.pid)
        voice.children.tend(due)
        voice.quiet(0.0)
        assert file.read() == b""


def test_flood_of_events_is_told_in_measure(voice: Voice) -> None:
    voice.run("echo")
    began = time.monotonic()
    for _ in range(200):
        voice.events.say("ready")
    now = time.monotonic()
    voice.quiet(now)
    # The first twenty went out at once; then one a second, as perhaps by now.
    lines = voice.log().count("\n")
    assert 20 + 1 <= lines <= 20 + 1 + math.ceil(now - began)
    for second in range(1, 4):
        assert voice.events.tend(now + second - 1) <= now + second
        voice.quiet(now + second)
        assert voice.log().count("\n") == lines + second
    # Four ran at once, and only a hundred had room to wait.
    assert "96 events had no room, and were not told\n" in voice.log()


def test_another_command_takes_over_and_what_waits_for_the_former_one_is_told(
    voice: Voice,
) -> None:
    voice.run("echo", "first", "{message}")
    for number in range(6):
        voice.events.say("note", f"{number}")
    voice.run("echo", "second", "{message}")
    voice.events.say("note", "6")
    voice.quiet(0.0)
    said = [f"first {number}" for number in range(6)]
    assert sorted(voice.log().splitlines()) == [*said, "second 6"]


def test_command_that_is_not_there_is_said_in_its_log_and_harms_nobody(voice: Voice) -> None:
    voice.run("/nowhere/notify", "{event}")
    voice.events.say("started")
    voice.quiet(0.0)
    assert [one["event"] for one in voice.lines()] == ["started"]
    assert voice.log() == "/nowhere/notify cannot be run: No such file or directory\n"


def test_command_whose_log_cannot_be_written_runs_all_the_same(voice: Voice) -> None:
    (voice.place / "local/on_event.log").mkdir()
    voice.run("touch", "{event}")
    voice.events.say("started")
    voice.quiet(0.0)
    assert (voice.place / "pipeline/started").exists()


@without_collections()
def test_event_for_which_no_file_can_be_opened_is_counted_and_keeps_nothing_open(
    voice: Voice,
) -> None:
    voice.run("true")
    for free in range(5):
        before = open_files()
        with few_descriptors(free):
            voice.events.say("hung")
        assert open_files() == before, free
    voice.events.say("ready")
    assert [one.event for one in voice.told] == [*["hung"] * 5, "ready"]
    lost = voice.lines()[0]["message"]
    assert lost == "1 event before this could not be written"
    voice.quiet(0.0)
    assert "had no room, and were not told" in voice.log()


def test_end_waits_for_commands_but_not_for_ever(voice: Voice) -> None:
    voice.run("sh", "-c", "sleep 0.1; : > {event}")
    voice.events.say("watchdog-stopped")
    voice.events.close(PATIENCE)
    assert (voice.place / "pipeline/watchdog-stopped").exists()
    voice.run("sleep", "1000")
    voice.events.say("note")
    voice.events.close(0.1)
    (left,) = voice.children.running
    # What takes longer ends with the watchdog.
    voice.children.close()
    until_ended(left.pid)


_WATCHDOG = """
import os, sys, time
from watchdogd.children import Children
from watchdogd.events import Events
events = Events(sys.argv[1], "rose", "/", Children())
events.command = ("sh", "-c", "echo $$ > " + sys.argv[2] + "; exec sleep 1000")
events.say("note")
time.sleep(1000)
"""


def test_command_does_not_outlive_a_watchdog_that_is_killed(voice: Voice) -> None:
    told = voice.place / "told"
    argv = [sys.executable, "-c", _WATCHDOG, str(voice.place / "local"), str(told)]
    with subprocess.Popen(argv) as watchdog:
        pid = int(until(lambda: told.exists() and told.read_text().strip()))
        watchdog.send_signal(signal.SIGKILL)
    until_ended(pid)
