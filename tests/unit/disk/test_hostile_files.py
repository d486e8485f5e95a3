"""Whatever stands where a file or a directory of ours should be: nothing waits for it, nothing is
read, written or deleted through it, and whoever cannot go on says what is in the way."""

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from queuedriver.check.check import check, repair
from queuedriver.cli import run as queuedriver
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.driver import Driver
from queuedriver.errors import QueueError
from queuedriver.format.records import encode
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.cli import pipelines
from watchdogd import control
from watchdogd.cli import run as watchdogd
from watchdogd.cli.logs import Tail
from watchdogd.operators.hosts import read_hosts
from watchdogd.queues import control_files
from watchdogd.queues.log_copies import Copies
from watchdogd.queues.root import Root

SECRET = b"not for everybody"
TOKEN = "gone-1-0605d3a1f2b0c05a17"
_BUG = 70


class Yard:
    """A queue, its output, and a directory beside them that nobody may touch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.queue = root / "in"
        self.outside = root / "outside"
        for directory in (self.queue, self.outside, self.outside / "inner"):
            directory.mkdir()
        (self.outside / "secret").write_bytes(SECRET)
        (self.outside / "inner/secret").write_bytes(SECRET)
        self._before = self._seen()

    def _seen(self) -> list[tuple[str, int, int, int]]:
        found = []
        for directory, inner, files in os.walk(self.outside):
            for name in (".", *inner, *files):
                at = os.stat(os.path.join(directory, name))
                found.append((os.path.join(directory, name), at.st_ino, at.st_mtime_ns, at.st_mode))
        return sorted(found)

    def check_outside(self) -> None:
        """Nothing was written, made or deleted there, and nothing of it is in the queues."""
        assert self._seen() == self._before
        for path in self.root.rglob("*"):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and self.outside not in path.parents:
                with open(path, "rb") as file:
                    assert SECRET not in file.read(100_000), path


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def fifo(path: Path, yard: Yard) -> None:
    os.mkfifo(path)


def listener(path: Path, yard: Yard) -> None:
    """A socket. A path may be longer than its address."""
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def link_to_file(path: Path, yard: Yard) -> None:
    path.symlink_to(yard.outside / "secret")


def link_to_directory(path: Path, yard: Yard) -> None:
    path.symlink_to(yard.outside / "inner")


def link_to_zeros(path: Path, yard: Yard) -> None:
    path.symlink_to("/dev/zero")


def link_to_nowhere(path: Path, yard: Yard) -> None:
    path.symlink_to(yard.outside / "not there")


def link_to_itself(path: Path, yard: Yard) -> None:
    path.symlink_to(path.name)


def directory(path: Path, yard: Yard) -> None:
    path.mkdir()
    (path / "inside").write_bytes(b"something")


def huge(path: Path, yard: Yard) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


KINDS = [
    fifo,
    listener,
    link_to_file,
    link_to_directory,
    link_to_zeros,
    link_to_nowhere,
    link_to_itself,
    directory,
    huge,
]
_PRIVATE = ".queuedriver"
PARTS = [
    _PRIVATE,
    f"{_PRIVATE}/settings.json",
    f"{_PRIVATE}/landmarks.json",
    f"{_PRIVATE}/landmark",
    f"{_PRIVATE}/start.lock",
    f"{_PRIVATE}/drivers",
    f"{_PRIVATE}/drivers/h-1.json",
    f"{_PRIVATE}/drivers/gone-1.json",
    f"{_PRIVATE}/claims",
    f"{_PRIVATE}/claims/{TOKEN}.json",
    f"{_PRIVATE}/attempts",
    f"{_PRIVATE}/attempts/doc.7.1.json",
    f"{_PRIVATE}/orphans",
    f"{_PRIVATE}/incoming",
    f"{_PRIVATE}/feeds",
    f"{_PRIVATE}/feeds/1.json",
    f"{_PRIVATE}/journal",
    f"{_PRIVATE}/journal/h-1.jsonl",
    f"{_PRIVATE}/journal/gone-1.jsonl",
    "discarded",
    "discarded/old",
    "discarded/old.report.json",
]


def ask(*args: object) -> int:
    code = queuedriver([str(one) for one in args])
    assert code != _BUG, args
    return code


def look(queue: Path) -> None:
    """Every command that only looks."""
    for words in (
        ["status", queue],
        ["status", "--json", queue],
        ["list", queue],
        ["show", queue, "doc"],
        ["show", queue, "old"],
        ["why", queue, "doc"],
        ["history", queue, "doc"],
    ):
        ask(*words)
    with contextlib.suppress(QueueError), Queue.open(queue) as opened:
        check(opened, pause=0.0)


def drive(yard: Yard, name: str = "h-1") -> str:
    """Drain the queue; why not, where that cannot be done."""

    def process(document: object) -> bytes:
        return b"done"

    options = Options(drain=True)
    try:
        Driver(yard.queue, process, yard.root / "out", id=name, options=options).run()
    except QueueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("dress", KINDS)
@pytest.mark.parametrize("part", PARTS)
def test_part_of_a_queue_that_is_something_else_leads_nobody_elsewhere(
    yard: Yard, part: str, dress: Callable[[Path, Yard], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = yard.queue / part
    path.parent.mkdir(parents=True, exist_ok=True)
    dress(path, yard)
    (yard.queue / "doc.ready").write_bytes(b"text")
    (yard.root / "more").write_bytes(b"more")
    look(yard.queue)
    why = drive(yard)
    if why:
        # It could not start: then it says what is in the way, and the document waits.
        assert path.name in why
        assert (yard.queue / "doc.ready").read_bytes() == b"text"
    else:
        assert (yard.root / "out/doc.ready").read_bytes() == b"done"
        (yard.queue / f"doc.{TOKEN}.written").write_bytes(b"text")
    ask("put", "--no-durable", yard.queue, "--docid", "more", yard.queue.parent / "more")
    ask("recover", "--lease", "0", yard.queue)
    ask("retry", yard.queue, "old")
    with contextlib.suppress(QueueError), Queue.open(yard.queue) as queue:
        repair(queue, pause=0.0)
    look(yard.queue)
    yard.check_outside()
    capsys.readouterr()


@pytest.mark.parametrize("dress", KINDS)
@pytest.mark.parametrize("part", [_PRIVATE, f"{_PRIVATE}/landmark", f"{_PRIVATE}/orphans"])
def test_part_of_an_output_that_is_something_else_leads_nobody_elsewhere(
    yard: Yard, part: str, dress: Callable[[Path, Yard], None]
) -> None:
    path = yard.root / "out" / part
    path.parent.mkdir(parents=True, exist_ok=True)
    dress(path, yard)
    (yard.queue / "doc.ready").write_bytes(b"text")
    if why := drive(yard):
        assert path.name in why
        assert (yard.queue / "doc.ready").read_bytes() == b"text"
    else:
        assert (yard.root / "out/doc.ready").read_bytes() == b"done"
    yard.check_outside()


# Items


STATES = [
    "doc.ready",
    "doc.failed",
    f"doc.{TOKEN}.working",
    f"doc.failed.{TOKEN}.working",
    f"doc.{TOKEN}.written",
    "doc.1.later",
    f"doc.{TOKEN}.writing",
    f"doc.{TOKEN}.writing.xml",
    "doc.7.working",
]


@pytest.mark.parametrize("dress", KINDS[:-1])
@pytest.mark.parametrize("name", STATES)
def test_item_that_is_no_file_is_never_opened_and_stops_nobody(
    yard: Yard, name: str, dress: Callable[[Path, Yard], None]
) -> None:
    dress(yard.queue / name, yard)
    (yard.root / "out").mkdir()
    dress(yard.root / "out" / f"doc.{TOKEN}.writing", yard)
    (yard.queue / "good.ready").write_bytes(b"text")
    look(yard.queue)

    def process(document: object) -> bytes:
        return b"done"

    # Until the good one is through: some of these are a claim that nobody can judge yet.
    options = Options(max_documents=1)
    Driver(yard.queue, process, yard.root / "out", id="h-1", options=options).run()
    assert (yard.root / "out/good.ready").read_bytes() == b"done"
    ask("recover", "--lease", "0", yard.queue)
    with Queue.open(yard.queue) as queue:
        repair(queue, pause=0.0)
    look(yard.queue)
    yard.check_outside()


@pytest.mark.parametrize("dress", KINDS)
@pytest.mark.parametrize(
    ("name", "set_it", "undo"),
    [("PAUSE", "pause", "resume"), ("QUIT", "quit", "resume"), ("done", "close", "")],
)
def test_control_file_counts_whatever_it_is(
    yard: Yard, name: str, set_it: str, undo: str, dress: Callable[[Path, Yard], None]
) -> None:
    dress(yard.queue / name, yard)
    with Queue.open(yard.queue) as queue:
        assert any(queue.controls())
    look(yard.queue)
    assert ask(set_it, yard.queue) == 0
    if undo:
        ask(undo, yard.queue)
        assert dress is directory or not os.path.lexists(yard.queue / name)
    yard.check_outside()


# Below a pipeline's root


_CONTROL = control.CONTROL
ROOT_PARTS = [
    _CONTROL,
    f"{_CONTROL}/landmark",
    f"{_CONTROL}/hosts",
    f"{_CONTROL}/hosts/rose.json",
    f"{_CONTROL}/hosts/fern.json",
    f"{_CONTROL}/logs",
    f"{_CONTROL}/logs/rose",
    f"{_CONTROL}/logs/rose/parse-1.log",
    f"{_CONTROL}/logs/rose/parse-1.log.1",
    f"{_CONTROL}/events",
    f"{_CONTROL}/events/rose.jsonl",
    f"{_CONTROL}/PAUSE",
    f"{_CONTROL}/QUIT",
    f"{_CONTROL}/scale",
    f"{_CONTROL}/scale-parse",
    f"{_CONTROL}/restart-parse-0605d3a1f2b0c05a17",
]


def called(*args: object) -> int:
    code = watchdogd([str(one) for one in args])
    assert code != _BUG, args
    return code


@pytest.mark.parametrize("dress", KINDS)
@pytest.mark.parametrize("part", ROOT_PARTS)
def test_part_of_the_control_directory_that_is_something_else_leads_nobody_elsewhere(
    yard: Yard, part: str, dress: Callable[[Path, Yard], None], capsys: pytest.CaptureFixture[str]
) -> None:
    file = pipelines.make(yard.root)
    root = yard.root / "queues"
    path = root / part
    path.parent.mkdir(parents=True, exist_ok=True)
    dress(path, yard)
    for words in (["status"], ["status", "--json"], ["trace", "doc"], ["logs", "parse"]):
        called(*words, "-p", file)
    for words in (["pause"], ["resume"], ["scale", "parse=2"], ["stop"], ["reload"]):
        called(*words, "-p", file)
    # The watchdog's side: each of these is one of its chores, whose errors are told and survived.
    local = yard.root / "local"
    (local / "logs").mkdir(parents=True)
    (local / "logs/parse-1.log").write_bytes(b"a line\n")
    (local / "events.jsonl").write_bytes(b"{}\n")
    with contextlib.suppress(OSError, QueueError):
        Root(str(root), str(local)).check()
    for chore in (
        lambda opened: control.read(opened, "rose"),
        lambda opened: control_files.publish(opened, "rose", encode(pipelines.report())),
        control_files.expire,
        Copies(str(local), "rose").turn,
    ):
        with contextlib.suppress(OSError):
            opened = Directory.open(root / _CONTROL, inside=1)
            try:
                chore(opened)
            finally:
                opened.close()
    yard.check_outside()
    capsys.readouterr()


@pytest.mark.parametrize("dress", KINDS)
def test_document_of_a_host_that_cannot_be_read_hides_no_other(
    yard: Yard, dress: Callable[[Path, Yard], None]
) -> None:
    file = pipelines.make(yard.root)
    pipelines.publish(file, pipelines.report("rose"))
    dress(yard.root / "queues/.watchdogd/hosts/fern.json", yard)
    found = read_hosts(str(yard.root / "queues"))
    assert [one.report.host for one in found.seen] == ["rose"]
    assert [one for one in found.unreadable if "fern.json" in one] or dress is link_to_nowhere


@pytest.mark.parametrize("dress", KINDS)
def test_pipeline_file_that_is_something_else_is_refused_at_once(
    yard: Yard,
    dress: Callable[[Path, Yard], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dress(yard.root / "pipeline.toml", yard)
    assert called("status", "-p", yard.root / "pipeline.toml") not in (0, 74)
    assert "pipeline.toml" in capsys.readouterr().err
    # One that nobody named, and that might be meant.
    shutil.rmtree(yard.root / "in")
    os.rename(yard.root / "pipeline.toml", yard.root / "another.toml")
    monkeypatch.chdir(yard.root)
    assert called("status") == 66


@pytest.mark.parametrize("dress", KINDS[:-1])
@pytest.mark.parametrize("name", ["parse-1.log", "parse-1.log.1"])
def test_log_that_is_no_file_shows_nothing_and_is_not_waited_for(
    yard: Yard, name: str, dress: Callable[[Path, Yard], None]
) -> None:
    if name != "parse-1.log":
        (yard.root / "parse-1.log").write_bytes(b"a line\n")
    dress(yard.root / name, yard)
    tail = Tail(str(yard.root / "parse-1.log"))
    shown = tail.last(5) + list(tail.more())
    tail.close()
    assert shown == ([] if name == "parse-1.log" else [b"a line"])


def test_endless_line_of_a_log_is_not_read_whole(yard: Yard) -> None:
    path = yard.root / "parse-1.log"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe end\n")
    with contextlib.closing(Tail(str(path))) as tail:
        (zeros, last) = tail.last(2)
    assert last == b"the end"
    assert len(zeros) <= 32 << 20
