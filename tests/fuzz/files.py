"""Targets that read files which others may have written: in a queue, and below a pipeline's root.

The bytes are put in the place of one file of ours, and the commands that read it are called in this
process. None may end by a bug or print what steers a terminal, and the documents that wait there
are not lost; what is outside of the queue stays as it is.
"""

import contextlib
import functools
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec

from queuedriver.check import check as checking
from queuedriver.claims.liveness import identify
from queuedriver.cli import run as queuedriver
from queuedriver.disk.journal import read_events, read_history
from queuedriver.driving.closing import close_if_fed
from queuedriver.driving.live_status import Board
from queuedriver.errors import ConfigError
from queuedriver.format.records import Event, Record, Registration, describe_event, encode_report
from queuedriver.operating.queue import Queue
from tests.fuzz.memory import HOST, PIPELINE, TOKEN
from tests.fuzz.promise import Target, check_error, check_shown
from tests.unit.format.test_records import a_report, an_attempt
from watchdogd.cli import run as watchdogd

_BUG = 70
_SECRET = b"not for everybody"
# The document whose files are forged, one that is none of theirs, and what is in them.
_DOCS = {"doc": b"what somebody submitted", "other": b"what somebody else submitted"}


def called(program: Callable[[list[str]], int], *args: object) -> None:
    """Call a command, and look at what it says."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = program([str(one) for one in args])
    assert code != _BUG, f"{args}: {err.getvalue()}"
    check_shown((out.getvalue(), err.getvalue()))
    if code == 0 and "--json" in args:
        lines = out.getvalue().splitlines() if "list" in args else [out.getvalue()]
        for line in lines:
            json.loads(line)


class Yard:
    """A directory of this process's own, with a queue and something beside it."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="queuedriver-fuzz-"))
        self.queue = self.root / "queues/in"
        self.outside = self.root / "outside"

    def fresh(self) -> None:
        """As it is before each run."""
        shutil.rmtree(self.root / "queues", ignore_errors=True)
        shutil.rmtree(self.outside, ignore_errors=True)
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(_SECRET)
        (self.root / "queues/out").mkdir(parents=True)
        with Queue.open(self.queue, create=True) as queue:
            for docid, content in _DOCS.items():
                queue.submit(docid, content, durable=False)

    def put(self, path: str, data: bytes) -> None:
        file = self.queue / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def check_kept(self) -> None:
        """Nothing was lost, and nothing was done elsewhere."""
        assert os.listdir(self.outside) == ["secret"]
        assert (self.outside / "secret").read_bytes() == _SECRET
        left = [path.read_bytes() for path in (self.root / "queues").rglob("*") if path.is_file()]
        for content in _DOCS.values():
            assert left.count(content) == 1, content


@functools.cache
def yard() -> Yard:
    return Yard()


def clean_up() -> None:
    """Nothing is left of this process's files."""
    if yard.cache_info().currsize:
        shutil.rmtree(yard().root, ignore_errors=True)
        yard.cache_clear()


def _look(queue: Path) -> None:
    called(queuedriver, "status", queue)
    called(queuedriver, "status", "--json", queue)
    called(queuedriver, "show", queue, "doc")
    called(queuedriver, "history", "--json", queue, "doc")
    called(queuedriver, "why", queue, "doc")
    called(queuedriver, "list", queue)


def _forged(path: str, move: Callable[[Path], None] = lambda _: None) -> Callable[[bytes], None]:
    """Whoever reads a queue with these bytes in one of its files; `move` first brings the document
    into the state in which that file counts. Its inode takes the place of INODE in the path."""

    def read(data: bytes) -> None:
        place = yard()
        place.fresh()
        move(place.queue)
        if "INODE" in path:
            docs = (one for one in place.queue.rglob("doc*") if one.read_bytes() in _DOCS.values())
            place.put(path.replace("INODE", str(next(docs).stat().st_ino)), data)
        else:
            place.put(path, data)
        _look(place.queue)
        called(queuedriver, "recover", "--lease", "0", place.queue)
        with Queue.open(place.queue) as queue:
            checking.repair(queue, pause=0.0)
            close_if_fed(queue.directory)
        # Between its two looks a check waits for others, of whom there are none.
        with mock.patch("queuedriver.check.check.time.sleep"):
            called(queuedriver, "check", "--json", place.queue)
        place.check_kept()

    return read


def _discard(queue: Path) -> None:
    (queue / "discarded").mkdir()
    (queue / "doc.ready").rename(queue / "discarded/doc")


def _claim(queue: Path) -> None:
    (queue / "doc.ready").rename(queue / f"doc.{TOKEN}.working")


def _commit(queue: Path) -> None:
    settings = queue / ".queuedriver/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_bytes(b'{"outputs":["../out"],"archive":"../old"}')
    (queue / "doc.ready").rename(queue / f"doc.{TOKEN}.written")


def read_journal(data: bytes) -> None:
    """Whatever happens to the lines of others, what is written whole after them is found."""
    place = yard()
    place.fresh()
    last = msgspec.json.encode(Event(at=4e9, event="published", docid="doc"))
    place.put(".queuedriver/journal/h-1.jsonl", data + b"\n" + last + b"\n")
    journal = str(place.queue / ".queuedriver/journal")
    found = read_events(journal)
    assert "published" in [one.event for one in found.events if one.at == 4e9]
    assert "published" in [one.event for one in read_history(journal, "doc").events]
    check_shown(describe_event(one) for one in found.events)
    called(queuedriver, "history", place.queue, "doc")


def read_board(data: bytes) -> None:
    """A board is one, or an error says that it is none."""
    place = yard()
    path = place.root / "x.board"
    path.write_bytes(data)
    try:
        board = Board.open(str(path))
    except ConfigError as error:
        check_error(error, str(path))
        return
    board.read()
    board.close()


def read_below_root(data: bytes) -> None:
    """What watchdogs of other hosts said, read by every command that does."""
    place = yard()
    place.fresh()
    file = place.root / "pipeline.toml"
    file.write_bytes(PIPELINE)
    control = place.root / "queues/.watchdogd"
    (control / "hosts").mkdir(parents=True)
    (control / "hosts/rose.json").write_bytes(data)
    (control / "scale").write_bytes(data)
    (control / "QUIT").write_bytes(data)
    (control / "logs/rose").mkdir(parents=True)
    (control / "logs/rose/parse-1.log").write_bytes(data)
    for words in (["status"], ["status", "--json"], ["trace", "doc"], ["retry", "--yes", "doc"]):
        called(watchdogd, *words, "-p", file)
    place.check_kept()


def _registration() -> bytes:
    return msgspec.json.encode(
        Registration(
            id="h-1",
            salt="5a17",
            identity=identify(os.getpid()),
            started_at=1.0,
            state="blocked",
            why="no room",
            outputs=("../out",),
        )
    )


_PRIVATE = ".queuedriver/"
_PLAN = f'{{"outputs":[[0,"doc.{TOKEN}.writing","doc.ready"]]}}'.encode()
_JOURNAL = (
    b'{"at":1.5,"event":"published","docid":"doc","driver":"h-1","outputs":["doc.ready"]}\n'
    b'{"at":2.5,"event":"failed","docid":"doc","message":"no good","seconds":1.5}\n'
)

FILES = {
    "settings": Target(
        _forged(f"{_PRIVATE}settings.json"),
        (b'{"outputs":["../out"],"publish":"{docid}.xml","retries":2,"archive":"../old"}',),
    ),
    "registration": Target(_forged(f"{_PRIVATE}drivers/h-1.json", _claim), (_registration(),)),
    "report": Target(_forged("discarded/doc.report.json", _discard), (encode_report(a_report()),)),
    "interrupted-discard": Target(
        _forged(f"{_PRIVATE}attempts/doc.INODE.1.json", _discard), (encode_report(a_report()),)
    ),
    "attempts": Target(
        _forged(f"{_PRIVATE}attempts/doc.INODE.1.json", _claim),
        (encode_report(Record("doc", (an_attempt(),))), encode_report(a_report())),
    ),
    "plan": Target(_forged(f"{_PRIVATE}claims/{TOKEN}.json", _commit), (_PLAN,)),
    "feed": Target(_forged(f"{_PRIVATE}feeds/1.json"), (b'{"path":"../out"}',)),
    "landmarks": Target(
        _forged(f"{_PRIVATE}landmarks.json", _commit), (b'{"../out":"0123456789abcdef"}',)
    ),
    "journal": Target(read_journal, (_JOURNAL,)),
    "board": Target(read_board, (b"qdboard6" + bytes(1528),)),
    "root": Target(read_below_root, (HOST, b"parse=4\n")),
}
