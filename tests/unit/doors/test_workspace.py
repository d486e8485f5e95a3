"""Where a worker processes: in memory or in files, nothing of one document is found by the next."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.claims.document import Output
from queuedriver.disk.filesystem import Directory, Room
from queuedriver.doors.words import Result, Work
from queuedriver.doors.workspace import PrivateDirectory, Workspace
from queuedriver.driving.limits import Limits
from queuedriver.errors import ProcessorFailed
from queuedriver.processors.command import CommandProcessor

MOST = 1000


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    workspace = Workspace(MOST)
    yield workspace
    workspace.close()
    assert not os.path.exists(workspace.path)


def work(docid: str = "doc", payload: bytes = b"content") -> Work:
    return Work("claim", docid, 2, payload, "service")


def left(workspace: Workspace) -> list[str]:
    return [name for _, _, files in os.walk(workspace.path) for name in files]


def test_document_is_what_the_broker_sent_and_makes_no_file(
    workspace: Workspace, limits: Limits
) -> None:
    document, outputs = workspace.lay_out(work())
    assert (document.docid, document.attempt, document.queue) == ("doc", 2, "service")
    document.check()
    outputs.take(document.read().upper(), limits)
    assert outputs.results() == (Result(b"CONTENT"),)
    assert left(workspace) == []


@pytest.mark.parametrize("docid", ["../../etc/passwd", "", ".hidden", "a\0b", "x" * 500])
def test_name_that_a_broker_made_up_forms_no_path(workspace: Workspace, docid: str) -> None:
    document, _ = workspace.lay_out(work(docid))
    assert Path(document.path).parent == Path(workspace.path)
    assert Path(document.path).read_bytes() == b"content"


def test_document_can_be_read_as_a_file_and_a_stream_as_often_as_one_likes(
    workspace: Workspace,
) -> None:
    document, _ = workspace.lay_out(work())
    for _ in range(2):
        with document.open() as stream:
            assert stream.read() == Path(document.path).read_bytes() == b"content"


def test_nothing_of_a_document_is_found_by_the_next(workspace: Workspace, limits: Limits) -> None:
    document, outputs = workspace.lay_out(work())
    assert document.path
    Path(outputs.reserve()).mkdir()
    Path(outputs.reserve("more")).write_bytes(b"a file")
    workspace.clear()
    assert left(workspace) == []
    document, outputs = workspace.lay_out(work("next", b"another"))
    assert Path(document.path).read_bytes() == b"another"
    outputs.take(None, limits)
    assert outputs.results() == ()


def test_several_outputs_have_names(workspace: Workspace, limits: Limits) -> None:
    _, outputs = workspace.lay_out(work())
    outputs.take([b"its own", Output(b"1", "one"), Output("two", "two")], limits)
    assert outputs.results() == (
        Result(b"its own"),
        Result(b"1", "one"),
        Result(b"two", "two"),
    )


def test_output_of_a_command_is_sent(workspace: Workspace, limits: Limits) -> None:
    processor = CommandProcessor(["tr", "a-z", "A-Z"])
    processor.start("worker-test")
    document, outputs = workspace.lay_out(work())
    processor.process(document, outputs, limits)
    assert outputs.results() == (Result(b"CONTENT"),)
    processor.stop()


@pytest.mark.parametrize("in_a_file", [False, True])
def test_what_is_more_than_a_message_is_not_even_read(
    workspace: Workspace, limits: Limits, in_a_file: bool
) -> None:
    _, outputs = workspace.lay_out(work())
    outputs.take(b"x" * (MOST - 9), limits)
    if in_a_file:
        path = Path(outputs.reserve("large"))
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        outputs.take(Output(b"x" * 10, "more"), limits)
    with pytest.raises(ProcessorFailed) as caught:
        outputs.results()
    assert (caught.value.failure.cause, caught.value.failure.permanent) == ("too-large", True)


def test_output_that_is_not_wanted_is_not_sent(workspace: Workspace, limits: Limits) -> None:
    _, outputs = workspace.lay_out(work())
    outputs.take(b"result", limits)
    outputs.discard()
    assert outputs.results() == ()


class Full(Directory):
    """On a disk without room."""

    __slots__ = ()

    def room(self) -> Room:
        return Room(1000, read_only=False)


def test_no_document_is_to_blame_where_the_disk_is_full_or_the_directory_gone(
    workspace: Workspace,
) -> None:
    assert workspace.trouble() == ""
    workspace._results.__class__ = Full
    assert "full" in workspace.trouble()
    workspace._results.__class__ = Directory
    shutil.rmtree(workspace.path)
    assert "removed" in workspace.trouble()


def test_directory_that_somebody_tidied_away_is_made_again(workspace: Workspace) -> None:
    shutil.rmtree(workspace.path)
    document, outputs = workspace.lay_out(work())
    assert Path(document.path).read_bytes() == b"content"
    Path(outputs.reserve()).write_bytes(b"result")
    assert outputs.results() == (Result(b"result"),)
    assert workspace.trouble() == ""


def test_what_a_killed_worker_left_is_removed_and_what_a_living_one_has_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, young, others = (tmp_path / f"queuedriver-worker-{name}" for name in "abc")
    for path in (left, young):
        (path / "results").mkdir(parents=True)
    others.symlink_to(left)
    os.utime(left, (1.0, 1.0))
    living = Workspace(MOST)
    try:
        assert not left.exists()
        assert young.exists()
        assert others.is_symlink()
        (own,) = {one for one in tmp_path.iterdir() if one not in (young, others)}
        os.utime(own, (1.0, 1.0))
        Workspace(MOST).close()
        assert own.exists()
    finally:
        living.close()


def test_each_kind_of_process_removes_what_its_own_kind_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for kind in ("broker", "worker"):
        left = tmp_path / f"queuedriver-{kind}-left"
        left.mkdir()
        os.utime(left, (1.0, 1.0))
    private = PrivateDirectory("broker")
    assert {path.name for path in tmp_path.iterdir()} == {
        Path(private.path).name,
        "queuedriver-worker-left",
    }
    private.close()
    assert not os.path.exists(private.path)
