"""What is left of a driver that was ended, and whom it blames."""

import faulthandler
import functools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from queuedriver.disk.filesystem import copy_all
from queuedriver.disk.runtime import (
    note_crash,
    note_ending,
    read_ending,
    runtime_directory,
    stacks_file,
    unnote_ending,
    waited_for_files,
)
from queuedriver.driving.group import Group
from queuedriver.errors import ConfigError
from queuedriver.format.records import Failure


class Waiting:
    """A thread that waits for a pipe: in a call of ours to the file system, or in its own."""

    def __init__(self, work: Callable[[int], object]) -> None:
        self.source, self._writer = os.pipe()
        self._work = work
        self._began = threading.Event()
        self.dump = ""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._began.wait()
        while not self._is_waiting():
            time.sleep(0.001)

    def _run(self) -> None:
        with stacks_file() as file:
            self.dump = str(file.name)
            self._began.set()
            self._work(self.source)

    def _is_waiting(self) -> bool:
        with open(f"/proc/self/task/{self._thread.native_id}/syscall") as file:
            return file.read().split()[:2] == ["0", hex(self.source)]

    def end(self) -> None:
        os.close(self._writer)
        self._thread.join()
        os.close(self.source)


def found(cause: str, message: str, stacks: str) -> Failure:
    return Failure(cause=cause, message=message, stacks=stacks)


def ours(source: int) -> None:
    """What the file system cannot copy, is read."""
    target = os.open(os.devnull, os.O_WRONLY)
    copy_all(source, target)
    os.close(target)


def theirs(source: int) -> None:
    os.read(source, 1)


def the_thread_of_a_group(source: int) -> None:
    """A document is finished, and those that wait are handed over beside it."""
    group: Any = Group(lambda *_: None, time.monotonic)
    group._lock = SimpleNamespace(
        release=lambda: None, acquire=functools.partial(os.read, source, 1)
    )
    group.around(lambda *_: None)(None, None, None)


@pytest.fixture
def dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("work", "beside"), [(ours, theirs), (theirs, ours), (the_thread_of_a_group, theirs)]
)
@pytest.mark.parametrize("beside_first", [True, False])
def test_a_driver_that_waited_for_its_file_system_is_told_from_one_whose_document_hung(
    dumps: Path,
    work: Callable[[int], object],
    beside: Callable[[int], object],
    beside_first: bool,
) -> None:
    threads = [Waiting(one) for one in ((beside, work) if beside_first else (work, beside))]
    driver, other = threads[::-1] if beside_first else threads
    try:
        with open(dumps / "stacks", "w+") as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            stacks = file.read()
    finally:
        for one in threads:
            one.end()
    assert waited_for_files(driver.dump, stacks) is (work is not theirs)
    assert waited_for_files(other.dump, stacks) is (beside is not theirs)


@pytest.mark.parametrize("stacks", ["", "Timeout (0:00:40)!\n", "Thread 0x1 (most recent"])
@pytest.mark.parametrize("name", ["", "x.stacks", "x-1.stacks"])
def test_stacks_that_say_nothing_blame_no_file_system(name: str, stacks: str) -> None:
    assert not waited_for_files(name, stacks)


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileIO]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with stacks_file() as file:
        yield file


def name_of(dump: FileIO) -> str:
    return str(dump.name)


def test_file_of_stacks_that_somebody_removed_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "of a session"))
    with stacks_file() as file:
        shutil.rmtree(tmp_path / "of a session")
        assert file.write(b"late")


@pytest.mark.parametrize("made", ["a file", "a link that leads nowhere"])
def test_runtime_directory_that_cannot_be_used_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    wanted, temporary = tmp_path / "wanted", tmp_path / "temporary"
    temporary.mkdir()
    if made == "a file":
        wanted.write_bytes(b"")
    else:
        wanted.symlink_to(tmp_path / "nowhere" / "deep")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(wanted))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert runtime_directory() == str(temporary / f"queuedriver-{os.getuid()}")


def test_nothing_is_kept_where_it_would_go_at_a_logout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert runtime_directory() == str(tmp_path / f"queuedriver-{os.getuid()}")


def test_directory_that_another_user_made_in_our_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = os.getuid() + 1
    (tmp_path / f"queuedriver-{ours}").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: ours)
    with pytest.raises(ConfigError, match="belongs to another user; set XDG_RUNTIME_DIR"):
        runtime_directory()


def test_a_driver_that_nobody_ended_left_nothing(dump: FileIO) -> None:
    assert read_ending(name_of(dump)) is None


def test_stacks_of_its_own_hard_limit_say_that_the_driver_hung(dump: FileIO) -> None:
    dump.write(b"Timeout (0:00:40)!\nThread 1:\n  in process\n")
    expected = Failure(
        cause="hung", message="", stacks="Timeout (0:00:40)!\nThread 1:\n  in process"
    )
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
    assert read_ending(name_of(dump)) == Failure(
        cause="hung", message="", stacks="Timeout (0:00:40)!"
    )


def test_whoever_ends_a_driver_can_say_why_and_the_first_reason_stands(dump: FileIO) -> None:
    note_ending(name_of(dump), "memory", "3 GB of 2 GB\nand more")
    dump.write(b"Thread 1:\n  in process\n")
    note_ending(name_of(dump), "ended", "to be sure")
    expected = Failure(
        cause="memory", message="3 GB of 2 GB and more", stacks="Thread 1:\n  in process"
    )
    assert read_ending(name_of(dump)) == expected


@pytest.mark.parametrize(
    ("code", "signal", "how"),
    [
        (9, "", "the driver's process ended with exit code 9 while it had the document"),
        (None, "SIGSEGV", "the driver's process was ended by SIGSEGV while it had the document"),
    ],
)
def test_how_a_driver_ended_by_itself_is_known_to_whoever_recovers_what_it_left(
    dump: FileIO, code: int | None, signal: str, how: str
) -> None:
    note_crash(name_of(dump), code, signal)
    expected = Failure(cause="crashed", message=how, exit_code=code, signal=signal or None)
    assert read_ending(name_of(dump)) == expected
    # That it was ended for a reason says more.
    note_ending(name_of(dump), "memory", "too much")
    assert read_ending(name_of(dump)) == Failure(cause="memory", message="too much")


def test_crash_by_its_own_hard_limit_is_one_of_a_driver_that_hung(dump: FileIO) -> None:
    dump.write(b"Timeout (0:00:40)!\n")
    note_crash(name_of(dump), 1, "")
    assert read_ending(name_of(dump)) == Failure(
        cause="hung", message="", stacks="Timeout (0:00:40)!"
    )


def test_stacks_are_found_by_whoever_has_another_environment(
    dump: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    note_ending(name_of(dump), "ended", "it was stopped")
    assert read_ending(name_of(dump)) == Failure(cause="ended", message="it was stopped")
    copied = tmp_path / "of-nobody"
    copied.mkdir()
    elsewhere = str(shutil.copy(name_of(dump), copied))
    assert read_ending(elsewhere) is None


@pytest.mark.parametrize(
    "name", ["nowhere.stacks", "../x.stacks", "/etc/passwd", "", "a/b.stacks", "\0.stacks"]
)
def test_reason_is_written_into_no_other_file(dump: FileIO, name: str) -> None:
    note_ending(name, "hung", "")
    directory = os.path.dirname(name_of(dump))
    note_ending(os.path.join(directory, name), "hung", "")
    assert read_ending(name_of(dump)) is None
    assert os.listdir(directory) == [os.path.basename(name_of(dump))]
