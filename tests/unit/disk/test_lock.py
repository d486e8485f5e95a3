"""The lock of a file is held by one at a time, and let go of by whoever ends."""

import errno
import fcntl
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from queuedriver.disk.lock import Held, locked, pauses

HOLD = """
import sys
from queuedriver.disk.lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "start.lock")


def hold(path: str) -> "subprocess.Popen[bytes]":
    """Start a process that holds a lock until its stdin ends."""
    words = [sys.executable, "-c", HOLD, path]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_lock_that_nobody_holds_is_had_at_once_and_let_go_of_at_the_end(path: str) -> None:
    for _ in range(2):
        with locked(path), pytest.raises(Held), locked(path):
            pass


def test_lock_of_a_process_that_was_killed_is_free(path: str) -> None:
    with hold(path) as holder:
        with pytest.raises(Held), locked(path):
            pass
        holder.kill()
        holder.wait()
    with locked(path):
        pass


def test_who_is_patient_gets_the_lock_once_it_is_let_go_of(path: str) -> None:
    with hold(path) as holder:
        assert holder.stdin is not None
        threading.Timer(0.2, holder.stdin.close).start()
        with locked(path, 60.0), pytest.raises(Held), locked(path):
            pass


def test_who_waits_for_long_asks_ever_more_seldom() -> None:
    asked_at = list(itertools.accumulate(itertools.islice(pauses(), 100)))
    # A start or two of others take no longer; a hundred of them wait for minutes.
    assert sum(at <= 0.2 for at in asked_at) >= 2
    assert sum(at <= 60.0 for at in asked_at) <= 70


def test_child_that_has_the_descriptor_holds_nothing_up(path: str) -> None:
    with locked(path):
        child = os.fork()
        if not child:
            os.read(0, 1)
            os._exit(0)
    try:
        with locked(path):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_where_the_kernel_has_no_locks_one_holds_it_all_the_same(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for _ in range(2):
        with locked(path), pytest.raises(Held), locked(path):
            pass


def test_lock_that_may_not_be_opened_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(str(tmp_path / "missing" / "start.lock")):
        pass
