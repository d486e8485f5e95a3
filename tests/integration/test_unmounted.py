"""An output that is not mounted is an empty directory, or none: nothing may be lost to it."""

import os
from pathlib import Path

import pytest

from queuedriver import ConfigError, Document, Driver, FileSystemTrouble, Options, Queue
from queuedriver.claims import handoff
from queuedriver.claims.handoff import Claim
from queuedriver.claims.liveness import Observer
from queuedriver.driving import driver
from queuedriver.driving.setup import opened, queue_of
from queuedriver.operating.operations import journal_of
from tests.openings import unregistered

DRAIN = Options(drain=True)


def _copy(document: Document) -> bytes:
    return document.read()


def _refuse(claim: Claim) -> bool:
    return False


def _die(*_: object, **__: object) -> None:
    os._exit(9)


def _leave_a_written(root: Path) -> str:
    """A queue whose driver died between commit and publish; the name that it left."""
    with Queue.open(root / "in", create=True) as queue:
        queue.submit("doc", b"contents", durable=False)
    pid = os.fork()
    if not pid:
        # In this process only: it commits, and is gone before it publishes.
        setattr(driver, "hand_over", _refuse)  # noqa: B010 - a module has no such word
        setattr(handoff, "publish", _die)  # noqa: B010
        Driver(root / "in", _copy, root / "out", id="a", options=DRAIN).run()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    (written,) = (root / "in").glob("*.written")
    return written.name


@pytest.mark.parametrize("there", ["nothing", "an empty directory"])
def test_what_was_committed_waits_until_its_output_is_mounted(tmp_path: Path, there: str) -> None:
    written = _leave_a_written(tmp_path)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    if there != "nothing":
        (tmp_path / "out").mkdir()

    with pytest.raises(ConfigError, match="is not the directory"):
        Driver(tmp_path / "in", _copy, tmp_path / "out", id="b", options=DRAIN).run()
    assert (tmp_path / "in" / written).exists()

    (tmp_path / "out").rename(tmp_path / "empty")
    (tmp_path / "elsewhere").rename(tmp_path / "out")
    Driver(tmp_path / "in", _copy, tmp_path / "out", id="b", options=DRAIN).run()
    assert (tmp_path / "out" / "doc.ready").read_bytes() == b"contents"
    assert not (tmp_path / "in" / written).exists()


def test_an_operator_recovers_nothing_into_another_directory(tmp_path: Path) -> None:
    written = _leave_a_written(tmp_path)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    (tmp_path / "out").mkdir()
    with (
        Queue.open(tmp_path / "in") as queue,
        journal_of(queue) as journal,
        queue_of(queue.directory, journal, Observer()) as one,
    ):
        assert not one.targets
        one.recoverer.recover()
    assert (tmp_path / "in" / written).exists()


def test_a_driver_waits_while_its_output_is_another_directory(tmp_path: Path) -> None:
    Queue.open(tmp_path / "in", create=True).close()
    with opened([tmp_path / "in"], [tmp_path / "out"], "a", DRAIN, unregistered) as found:
        queue = found.queues[0]
        queue.reopen()
        queue.check_well()
        (tmp_path / "out").rename(tmp_path / "elsewhere")
        (tmp_path / "out").mkdir()
        queue.reopen()
        with pytest.raises(FileSystemTrouble, match="is it mounted"):
            queue.check_well()
        (tmp_path / "out").rmdir()
        (tmp_path / "elsewhere").rename(tmp_path / "out")
        queue.reopen()
        queue.check_well()


def test_a_driver_waits_while_its_input_is_another_directory(tmp_path: Path) -> None:
    Queue.open(tmp_path / "in", create=True).close()
    with opened([tmp_path / "in"], [tmp_path / "out"], "a", DRAIN, unregistered) as found:
        queue = found.queues[0]
        (tmp_path / "in").rename(tmp_path / "elsewhere")
        (tmp_path / "in").mkdir()
        with pytest.raises(FileSystemTrouble, match="is it mounted"):
            queue.reopen()
        assert not list((tmp_path / "in").iterdir())
