"""What a watchdog or a broker tells, where nobody takes it for a while."""

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from queuedriver.cli.stderr_thread import StderrThread
from tests.waiting import PATIENCE, until

FULL = b"-"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe that takes nothing, which stands for a terminal."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, FULL)
    os.set_blocking(writing, True)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def read(reading: int) -> bytes:
    return os.read(reading, 1 << 20).replace(FULL, b"")


def test_terminal_that_stands_still_is_waited_for_by_nobody_and_told_how_much_was_left_out(
    pipe: tuple[int, int],
) -> None:
    reading, writing = pipe
    thread = StderrThread(writing, "; see events.jsonl")
    # One is being written, so many wait, and the last ones are too much.
    thread.put("first\n")
    until(lambda: not thread._texts.qsize())
    for number in range(1002):
        thread.put(f"{number}\n")
    thread.put("a line that is drawn anew soon", counts=False)
    assert not thread.finish(0.01)
    said = b""

    def is_told() -> bool:
        nonlocal said
        said += read(reading)
        return b"see events.jsonl\n" in said

    until(is_told)
    lines = said.decode().splitlines()
    assert lines[:-1] == ["first", *map(str, range(1000))]
    assert lines[-1].endswith(": 2 messages left out, as nobody took them; see events.jsonl")
    assert thread.finish(PATIENCE)
    thread.put("last\n")
    until(lambda: read(reading) == b"last\n")
