"""What is left of a driver that was ended, and whom it blames."""

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from queuedriver.disk.runtime import (
    Ending,
    note_ending,
    read_ending,
    stacks_file,
    unnote_ending,
    waited_for_files,
)

_BEAT = """Timeout (0:00:40)!
Thread 0x00007f00 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/site/queuedriver/liveness.py", line 288 in _run

"""
_OURS = """Thread 0x00007f01 (most recent call first):
{innermost}  File "/site/queuedriver/turn.py", line 120 in _work_one
  File "/site/queuedriver/loop.py", line 160 in _work
"""
_IN_FILES = '  File "/site/queuedriver/filesystem.py", line 104 in rename\n'
_IN_USERS = '  File "/home/ann/words.py", line 3 in count\n'


@pytest.mark.parametrize(
    ("stacks", "files"),
    [
        (_BEAT + _OURS.format(innermost=_IN_FILES), True),
        (_OURS.format(innermost=_IN_FILES) + "\n" + _BEAT, True),
        (_BEAT + _OURS.format(innermost=_IN_USERS), False),
        # The user's code called ours, which then hung: it is the file system all the same.
        (_BEAT + _OURS.format(innermost=_IN_FILES + _IN_USERS), True),
        # Our code called the user's.
        (_BEAT + _OURS.format(innermost=_IN_USERS + _IN_FILES), False),
        (_BEAT, False),
        ("", False),
    ],
)
def test_a_driver_that_waited_for_its_file_system_is_told_from_one_whose_document_hung(
    stacks: str, files: bool
) -> None:
    assert waited_for_files(stacks) is files


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileIO]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with stacks_file() as file:
        yield file


def name_of(dump: FileIO) -> str:
    return os.path.basename(str(dump.name))


def test_a_driver_that_nobody_ended_left_nothing(dump: FileIO) -> None:
    assert read_ending(name_of(dump)) is None


def test_stacks_of_its_own_hard_limit_say_that_the_driver_hung(dump: FileIO) -> None:
    dump.write(b"Timeout (0:00:40)!\nThread 1:\n  in process\n")
    expected = Ending("hung", "", "Timeout (0:00:40)!\nThread 1:\n  in process")
    assert read_ending(name_of(dump)) == expected


def test_stacks_that_somebody_only_wanted_to_see_blame_nobody(dump: FileIO) -> None:
    dump.write(b"Current thread 0x1 (most recent call first):\n  in process\n")
    assert read_ending(name_of(dump)) is None


def test_driver_that_went_on_after_all_is_not_said_to_have_hung(dump: FileIO) -> None:
    note_ending(name_of(dump), "hung", "")
    dump.write(b"Thread 1:\n  in process\n")
    unnote_ending(name_of(dump))
    assert read_ending(name_of(dump)) is None
    # What it writes later is at the beginning again.
    dump.write(b"Timeout (0:00:40)!\n")
    assert read_ending(name_of(dump)) == Ending("hung", "", "Timeout (0:00:40)!")


def test_whoever_ends_a_driver_can_say_why_and_the_first_reason_stands(dump: FileIO) -> None:
    note_ending(name_of(dump), "memory", "3 GB of 2 GB\nand more")
    dump.write(b"Thread 1:\n  in process\n")
    note_ending(name_of(dump), "ended", "to be sure")
    expected = Ending("memory", "3 GB of 2 GB and more", "Thread 1:\n  in process")
    assert read_ending(name_of(dump)) == expected


@pytest.mark.parametrize("name", ["nowhere.stacks", "../x.stacks", "/etc/passwd", ""])
def test_reason_is_written_into_no_other_file(dump: FileIO, name: str) -> None:
    note_ending(name, "hung", "")
    assert read_ending(name_of(dump)) is None
    assert os.listdir(os.path.dirname(dump.name)) == [name_of(dump)]
