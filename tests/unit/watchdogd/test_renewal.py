"""A file is read again for whoever asks, and taken only if the watchdog can change to it."""

import socket
import time
from pathlib import Path

import pytest

from tests.waiting import until
from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.read import read
from watchdogd.renewal import Outcome, Renewal

PATIENCE = 60.0
FILE = '[pipeline]\nname = "yard"\nroot = "queues"\n[[stage]]\nname = "one"\ncommand = ["true"]\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE)
    return path


def outcome(renewal: Renewal, current: Pipeline) -> Outcome:
    found = until(lambda: renewal.outcome(current, time.monotonic()), "its outcome")
    assert found is not None
    return found


def test_changed_file_is_taken_and_whoever_asked_is_told(file: Path) -> None:
    host = socket.gethostname()
    current, renewal = read(file, host), Renewal(host)
    file.write_text(FILE.replace("yard", "other") + "drivers = 3\n")
    renewal.ask(str(file), time.monotonic(), "first")
    renewal.ask(str(file), time.monotonic(), "second")
    assert renewal.fds
    found = outcome(renewal, current)
    assert found.pipeline is not None
    assert found.pipeline.stages[0].drivers.max == 3
    # That is only what people call it.
    assert found.pipeline.name == "other"
    assert (found.error, found.serials) == ("", ("first", "second"))
    assert renewal.fds == []
    assert renewal.outcome(current, time.monotonic()) is None


def test_what_people_should_know_of_the_file_is_said_of_the_file_as_it_is_now(file: Path) -> None:
    host = socket.gethostname()
    current, renewal = read(file, host), Renewal(host)
    many = FILE + 'memory = "1 GB"\ndrivers = { min = 1, max = 4 }\n[host]\nmemory = "2 GB"\n'
    for text, notes in ((many, ["one gets at most 2 of 4 drivers"]), (FILE, [])):
        file.write_text(text)
        renewal.ask(str(file), time.monotonic())
        found = outcome(renewal, current)
        assert [note.partition(":")[0] for note in found.notes] == notes


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('command = ["true"]', 'comand = ["true"]', "comand"),
        ('command = ["true"]', 'command = ["no-such-tool"]', "no-such-tool"),
        ('root = "queues"', 'root = "elsewhere"', "root has changed"),
        ('name = "yard"', 'name = "yard"\nadopt = true', "adopt has changed"),
    ],
)
def test_file_that_cannot_be_taken_changes_nothing(
    file: Path, old: str, new: str, said: str
) -> None:
    current, renewal = read(file), Renewal(socket.gethostname())
    file.write_text(FILE.replace(old, new))
    renewal.ask(str(file), time.monotonic())
    found = outcome(renewal, current)
    assert found.pipeline is None
    assert said in found.error
