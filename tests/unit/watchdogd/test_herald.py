"""The watchdog's voice: into its log, and by the command of its pipeline's file."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from watchdogd.children import Children
from watchdogd.events import Event, EventLog
from watchdogd.herald import Herald


def writes_to(path: Path) -> tuple[str, ...]:
    code = "import sys; open(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + chr(10))"
    return (sys.executable, "-S", "-c", code, str(path), "{event}", "{driver}", "{message}")


class Voice:
    """A herald, and what it said to whom."""

    def __init__(self, place: Path, *command: str) -> None:
        self.place = place
        self.told: list[Event] = []
        self.children = Children()
        log = EventLog(str(place), "rose", self.told.append)
        self.herald = Herald(log, self.children, str(place), command)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.place / "events.jsonl").read_text().splitlines()]

    @property
    def running(self) -> int:
        return len(self.children.running)

    def quiet(self) -> None:
        """Wait for all its commands."""

        def quiet() -> bool:
            self.children.reap(time.monotonic())
            self.herald.tend(time.monotonic())
            return not self.running

        until(quiet)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


def test_event_is_written_and_told_with_all_that_belongs_to_it(place: Path) -> None:
    voice = Voice(place)
    voice.herald.say("exited", "it crashed", stage="parse", driver="parse-2", signal="SIGSEGV")
    (line,) = voice.lines()
    assert line.pop("at") > 0
    assert line == {
        "host": "rose",
        "event": "exited",
        "stage": "parse",
        "driver": "parse-2",
        "message": "it crashed",
        "signal": "SIGSEGV",
    }
    assert [one.event for one in voice.told] == ["exited"]
    # Nothing runs, so nothing is waited for.
    assert voice.running == 0
    assert voice.herald.tend(time.monotonic()) == float("inf")


def test_command_gets_the_words_and_is_reaped(place: Path) -> None:
    out = place / "out"
    voice = Voice(place, *writes_to(out))
    voice.herald.say("ready", "after 2 s; `rm`", stage="one", driver="one-1")
    assert voice.running == 1
    voice.quiet()
    assert out.read_text() == "ready one-1 after 2 s; `rm`\n"


def test_another_command_takes_over_and_the_former_one_is_still_seen_to(place: Path) -> None:
    first, second = place / "first", place / "second"
    voice = Voice(place, *writes_to(first))
    voice.herald.say("started", driver="one-1")
    voice.herald.configure(writes_to(second))
    voice.herald.say("ready", driver="one-1")
    assert voice.running == 2
    # Each has a minute.
    now = time.monotonic()
    assert now < voice.children.tend(now) <= now + 60.0
    voice.quiet()
    assert first.read_text().split()[0] == "started"
    assert second.read_text().split()[0] == "ready"


def test_same_command_after_a_reload_is_the_same(place: Path) -> None:
    command = writes_to(place / "out")
    voice = Voice(place, *command)
    voice.herald.say("started")
    voice.herald.configure(list(command))
    assert voice.running == 1
    voice.quiet()


def test_command_that_is_not_there_harms_nobody(place: Path) -> None:
    voice = Voice(place, "/nowhere/notify", "{event}")
    voice.herald.say("started")
    voice.quiet()
    assert [one["event"] for one in voice.lines()] == ["started"]
    assert "/nowhere/notify" in (place / "hooks.log").read_text()
