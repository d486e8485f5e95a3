"""Waiting for facts, in the tests' own process: looked for again and again, and not for ever."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

# Seconds: more than anything takes on a busy machine.
PATIENCE = 120.0
_PAUSE = 0.005

Fact = TypeVar("Fact")


def until(fact: Callable[[], Fact], words: str = "it", timeout: float = PATIENCE) -> Fact:
    """Wait for a fact, and return it."""
    ends_at = time.monotonic() + timeout
    while not (found := fact()):
        assert time.monotonic() < ends_at, f"never, in {timeout:g} s: {words}"
        time.sleep(_PAUSE)
    return found


def next_line(stream: IO[bytes], timeout: float = PATIENCE) -> str:
    """Wait for the next line of a pipe that is read by nothing else, and return it; empty at its
    end. What is behind it stays in the pipe."""
    line, ends_at = b"", time.monotonic() + timeout
    while not line.endswith(b"\n"):
        seconds = max(0.0, ends_at - time.monotonic())
        ready, _, _ = select.select([stream], [], [], seconds)
        assert ready, f"never, in {timeout:g} s: the rest of the line {line!r}"
        if not (byte := os.read(stream.fileno(), 1)):
            break
        line += byte
    return line.decode()


def contents(directory: Path) -> dict[str, bytes]:
    """Read the files of a directory that are not hidden, each under its name. What is unfinished
    may be published, or removed, while one looks."""
    found = {}
    for one in sorted(directory.iterdir()) if directory.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            if one.is_file() and not one.name.startswith("."):
                found[one.name] = one.read_bytes()
    return found


def state_of(pid: int) -> str:
    """The letter that /proc has for a process; Z also for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def stands_still(pid: int) -> bool:
    """Whether a process was stopped, with all its threads: a signal reaches each by itself."""
    states = (one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/stat"))
    return all(state.rpartition(")")[2].split()[0] in "tTZ" for state in states)


def is_alive(pid: int) -> bool:
    """Whether a process has not ended, be it that nobody has reaped it."""
    return state_of(pid) != "Z"


def until_heard(pid: int, number: signal.Signals) -> None:
    """Wait until a signal has reached its process: it is noted there before anything else is."""

    def is_heard() -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        pending = [line.split()[1] for line in status.splitlines() if "Pnd:" in line]
        return not any(int(one, 16) >> (number - 1) & 1 for one in pending)

    until(is_heard, f"{number.name} has reached {pid}")


def until_ended(*pids: int) -> None:
    """Wait for the end of processes, whether somebody has reaped them or not."""
    until(lambda: not any(map(is_alive, pids)), f"the end of {pids}")
