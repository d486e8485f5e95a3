"""The pipeline's file is read again by a process that may wait for it."""

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.drivers import PATIENCE
from tests.waiting import until
from watchdogd.children import Children
from watchdogd.rereading import Read, Rereading

GOOD = '[pipeline]\nname = "p"\n\n[[stage]]\nname = "one"\ncommand = "cat"\n'


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "pipeline.toml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def children() -> Iterator[Children]:
    """Whatever was started has ended, or will at once."""
    children = Children()
    yield children
    until(lambda: children.reap(0.0) or not children.running, "the end of all readers")


def result(reading: Rereading) -> Read:
    poll = select.poll()
    poll.register(reading.fd, select.POLLIN)
    while (read := reading.result(0.0)) is None:
        assert poll.poll(PATIENCE * 1000)
    return read


def test_what_the_file_says_comes_as_a_pipeline(
    write: Callable[[str], str], children: Children
) -> None:
    read = result(Rereading(write(GOOD), "rose", children, 0.0))
    assert read.error == ""
    assert read.pipeline is not None
    assert [stage.name for stage in read.pipeline.stages] == ["one"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + 'timeout = "soon"\n', "timeout"),
        ("[pipeline", "pipeline.toml"),
        # What only the host can tell.
        (GOOD.replace('"cat"', '"no-such-program"'), "not on the PATH"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(
    write: Callable[[str], str], children: Children, text: str, says: str
) -> None:
    read = result(Rereading(write(text), "rose", children, 0.0))
    assert read.pipeline is None
    assert says in read.error


def test_file_that_cannot_be_read_is_waited_for_no_longer_than_patience(
    tmp_path: Path, children: Children
) -> None:
    # Nobody ever writes into it, so its reader waits for ever.
    path = str(tmp_path / "pipeline.toml")
    os.mkfifo(path)
    now = time.monotonic()
    reading = Rereading(path, "rose", children, now)
    if (read := reading.result(now)) is None:
        read = reading.result(now + 3600)
    assert read is not None
    assert path in read.error


def test_reading_that_is_abandoned_leaves_nothing_behind(
    write: Callable[[str], str], children: Children
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    Rereading(write(GOOD), "rose", children, 0.0).abandon()
    assert set(os.listdir("/proc/self/fd")) == before
