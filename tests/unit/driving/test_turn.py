"""A turn of work ends one way or another, whatever a processor or a file system comes up with."""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from queuedriver.claims import picking
from queuedriver.claims.attempts import attempts_of
from queuedriver.claims.charging import give_back_later
from queuedriver.claims.document import Document, Output
from queuedriver.claims.liveness import CRASHED
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.driver import Driver, Turns
from queuedriver.driving.group import SHORT
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.driving.loop import Left
from queuedriver.errors import ConfigError, NotFound, PermanentError, TryLater
from queuedriver.format import names
from queuedriver.format.settings import Settings
from queuedriver.options import Options
from queuedriver.processors.base import Processor
from queuedriver.processors.call import CallProcessor
from queuedriver.processors.command import CommandProcessor
from tests.faults import by_steps
from tests.openings import opened_with, registrations

if TYPE_CHECKING:
    from tests.conftest import Bench


class Ailing(Directory):
    """A directory on a network file system that loses its replies, or fails, when told to."""

    # A rename to a name that ends so fails; or it is done, and said to have failed.
    fails: tuple[str, ...] = ()
    lies: tuple[str, ...] = ()

    def rename(self, old: str, new: str) -> None:
        if new.endswith(self.fails):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().rename(old, new)
        if new.endswith(self.lies):
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def rename_new(self, old: str, new: str, to: Directory | None = None) -> None:
        if new.endswith(self.fails):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().rename_new(old, new, to)


class Bank:
    """An open queue, and the turns of a driver on it."""

    def __init__(
        self,
        bench: "Bench",
        function: Callable[..., Any],
        batch: int = 1,
        settings: Settings | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.directory = Ailing.open(bench.directory("in").path)
        self.queue = queue = bench.open(directory=self.directory, settings=settings)
        found = opened_with(queue)
        self.registration = found.beats.registration
        self.limits = Limits()
        self.tally = Tally()
        self.batch = batch
        options = Options(batch=batch, poll=True)
        processor = CallProcessor(function)
        self.turns = Turns(found, processor, self.limits, self.tally, options, clock)

    def work(self, docid: str = "doc") -> None:
        if self.batch > 1:
            self.turns.turn(list(self.queue.claim([f"{docid}.ready"])))
        else:
            self.turns.work_off(self.queue, [f"{docid}.ready"])

    def mend(self) -> None:
        """All is well again."""
        self.directory.lies = self.directory.fails = ()
        give_back_later(self.queue.later)
        self.queue.recoverer.recover()

    def close(self) -> None:
        self.turns.waker.close()
        self.limits.close()
        self.directory.close()


@pytest.fixture
def banks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Bank]]:
    monkeypatch.setattr("queuedriver.driving.driver.hand_over", by_steps)
    opened: list[Bank] = []
    yield opened
    for bank in opened:
        bank.close()


def bank_for(
    bench: "Bench", banks: list[Bank], function: Callable[..., Any], batch: int = 1
) -> Bank:
    bench.put("in/doc.ready", b"content")
    banks.append(bank := Bank(bench, function, batch))
    return bank


def drain(
    bench: "Bench",
    function: Processor | Callable[..., Any],
    clock: Callable[[], float] | None = None,
    **options: Any,
) -> Left:
    """A driver over all there is."""
    source, to = bench.directory("in").path, bench.directory("out").path
    asked = Options(drain=True, poll=True, **options)
    return Driver(source, function, to, options=asked, clock=clock).run()


# Durable documents that wait for one sync


def works_but_for_bad_ones(document: Document) -> bytes:
    if document.docid.startswith("bad"):
        raise ValueError("no good")
    if document.docid == "hopeless":
        raise ConfigError("its program is gone")
    return document.read()


@pytest.fixture
def group(bench: "Bench", banks: list[Bank]) -> Iterator[Bank]:
    """A driver of a durable queue, by whose clock documents take no time, and the next good ones
    wait for company: the last of those that were done does."""
    banks.append(
        bank := Bank(bench, works_but_for_bad_ones, 1, Settings(durable=True), lambda: 0.0)
    )
    with bank.turns.group:
        for number in range(SHORT):
            bench.put(f"in/doc{number}.ready")
            bank.work(f"doc{number}")
        assert [claim.docid for claim in bank.turns.group.claims.values()] == [f"doc{SHORT - 1}"]
        yield bank


def test_a_claim_is_given_back_at_once_when_those_before_it_cannot_be_handed_over(
    bench: "Bench", group: Bank
) -> None:
    bench.put("in/next.failed")
    group.directory.fails = (".written",)
    with pytest.raises(OSError, match="Input/output"):
        group.turns.work_off(group.queue, ["next.failed"])
    assert bench.ls() == [f"doc{SHORT - 1}.ready", "next.failed"]
    assert group.queue.later == []


def test_a_document_that_failed_is_given_back_when_those_before_it_cannot_be_handed_over(
    bench: "Bench", group: Bank
) -> None:
    bench.put("in/bad.ready")
    group.directory.fails = (".written",)
    with pytest.raises(OSError, match="Input/output"):
        group.work("bad")
    assert bench.ls() == ["bad.ready", f"doc{SHORT - 1}.ready"]
    assert group.tally.failed == 0


def test_a_driver_that_cannot_go_on_hands_over_what_waits_and_gives_its_document_back(
    bench: "Bench", group: Bank
) -> None:
    bench.put("in/hopeless.ready")
    with pytest.raises(ConfigError):
        group.work("hopeless")
    assert bench.ls() == ["hopeless.ready"]
    assert len(bench.ls("out")) == SHORT


def test_a_success_that_waits_for_its_sync_ends_a_streak_of_failures(
    bench: "Bench", group: Bank
) -> None:
    for docid in ("bad1", "good", "bad2"):
        bench.put(f"in/{docid}.ready")
        group.work(docid)
    assert group.registration.streak == 1
    assert bench.ls() == ["bad1.failed", "bad2.failed"]


def test_a_success_after_failures_is_told_before_the_next_document(tmp_path: Path) -> None:
    """Others count our failures as their own: the next document may take an hour."""
    for number in range(4):
        path = tmp_path / f"in/{number}.ready"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    told: list[int] = []

    def process(document: Document) -> bytes:
        assert isinstance(driver._loop, Turns)
        told.append(driver._loop.breaker.beats[0].registration.streak)
        if document.docid in "01":
            raise ValueError("bad")
        return b""

    options = Options(retries=0, drain=True, order="name")
    driver = Driver(tmp_path / "in", process, tmp_path / "out", options=options)
    driver.run()
    assert told == [0, 1, 2, 0]


@pytest.mark.parametrize("order", ["fair", "name", "age"])
def test_what_nobody_may_claim_keeps_neither_what_is_behind_it_nor_a_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Literal["fair", "name", "age"]
) -> None:
    monkeypatch.setattr(picking, "_KEEP_SORTED", 16)
    (tmp_path / "in").mkdir()
    for number in range(40):
        path = tmp_path / f"in/theirs{number:02}.ready"
        path.touch()
        # As age goes by whole seconds on some file systems.
        os.utime(path, (number, number))
    (tmp_path / "in/zebra.ready").touch()
    rename, done = os.rename, []

    def refuse(source: str, target: str, **where: Any) -> None:
        if source.startswith("theirs") and source.endswith(".ready"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), source)
        rename(source, target, **where)

    monkeypatch.setattr(os, "rename", refuse)

    def process(document: Document) -> bytes:
        done.append(document.docid)
        return b""

    options = Options(drain=True, order=order)
    left = Driver(tmp_path / "in", process, tmp_path / "out", options=options).run()
    assert (done, left.exit_code) == (["zebra"], 75)


# A file system in trouble


@pytest.mark.parametrize("batch", [1, 8])
def test_a_commit_that_happened_though_it_was_said_to_fail_loses_nothing(
    bench: "Bench", banks: list[Bank], batch: int
) -> None:
    def function(documents: Any) -> Any:
        return [b"result" for _ in documents] if batch > 1 else b"result"

    bank = bank_for(bench, banks, function, batch)
    bank.directory.lies = (".written",)
    # Where it is looked at again, it is found to have been done.
    with contextlib.suppress(OSError):
        bank.work()
    bank.mend()
    assert bench.ls() == []
    assert bench.ls("out") == ["doc.ready"]
    assert bench.read("out/doc.ready") == b"result"


@pytest.mark.parametrize("batch", [1, 8])
def test_a_commit_that_failed_gives_the_document_back(
    bench: "Bench", banks: list[Bank], batch: int
) -> None:
    def function(documents: Any) -> Any:
        return [b"result" for _ in documents] if batch > 1 else b"result"

    bank = bank_for(bench, banks, function, batch)
    bank.directory.fails = (".written",)
    with pytest.raises(OSError, match="Input/output"):
        bank.work()
    assert bench.ls() == ["doc.ready"]
    assert bench.ls("out") == []
    bank.directory.fails = ()
    bank.work()
    assert bench.ls("out") == ["doc.ready"]
    assert bank.tally.failed == 0


@pytest.mark.parametrize("committed", [True, False])
def test_what_could_not_be_given_back_is_when_all_is_well_again(
    bench: "Bench", banks: list[Bank], committed: bool
) -> None:
    bank = bank_for(bench, banks, lambda document: b"result")
    # Neither the commit nor the release is said to work; the commit may have.
    bank.directory.lies = (".written",) if committed else ()
    bank.directory.fails = (".ready",) if committed else (".written", ".ready")
    with contextlib.suppress(OSError):
        bank.work()
    assert len(bench.ls("out")) == 1
    bank.mend()
    assert (bench.ls(), bench.ls("out")) == (
        ([], ["doc.ready"]) if committed else (["doc.ready"], [])
    )


def test_an_error_of_the_documents_own_is_charged_though_it_is_an_os_error(
    bench: "Bench", banks: list[Bank]
) -> None:
    def function(document: Document) -> bytes:
        raise OSError(errno.EIO, "a scanner, and not the queue")

    bank = bank_for(bench, banks, function)
    bank.work()
    assert bench.ls() == ["doc.failed"]


def test_an_output_directory_that_was_exchanged_charges_no_document(bench: "Bench") -> None:
    out = bench.root / "out"
    seen = []

    def function(document: Document) -> bytes:
        seen.append(document.docid)
        if len(seen) == 1:
            # Another inode under the same name; what the driver holds open is deleted.
            shutil.copytree(out, bench.root / "copy")
            shutil.rmtree(out)
            os.rename(bench.root / "copy", out)
        return b"result"

    for docid in ("a", "b"):
        bench.put(f"in/{docid}.ready")
    left = drain(bench, function)
    assert (left.word, left.exit_code, left.counters.failed) == ("drained", 0, 0)
    assert bench.ls("out") == ["a.ready", "b.ready"]
    assert len(seen) == 3


@pytest.mark.parametrize("first", ["write", "move"])
def test_an_optional_output_is_not_dropped_when_its_directory_is_moved_meanwhile(
    bench: "Bench", first: str
) -> None:
    """Be it that it was written before that, or thereafter, by the path that it was given."""
    out, aside = bench.root / "out", bench.root / "aside"
    write = 'printf result > "$1"'
    move = f"[ -e {aside} ] || {{ mv {out} {aside}; mkdir {out}; }}"
    script = f"{write}; {move}" if first == "write" else f"{move}; {write}"
    bench.put("in/doc.ready")
    left = drain(bench, CommandProcessor(["sh", "-c", script, "sh", "{output?}"]))
    assert (left.word, left.counters.failed) == ("drained", 0)
    assert bench.ls() == []
    assert bench.read(f"{'aside' if first == 'write' else 'out'}/doc.ready") == b"result"


@pytest.mark.parametrize("command", ["ln", "cp -l"])
def test_a_command_that_links_its_document_leaves_nothing_unfinished(
    bench: "Bench", command: str
) -> None:
    """Also when the same file comes a second time, and its output is to replace itself."""
    (bench.root / "in").mkdir()
    file = bench.put("file")
    for _ in range(2):
        os.link(file, bench.root / "in/doc.ready")
        words = [*command.split(), "{input}", "{output}"]
        left = drain(bench, CommandProcessor(words), existing="replace")
        assert left.word == "drained"
        assert (bench.ls(), bench.ls("out")) == ([], ["doc.ready"])


@pytest.mark.parametrize("removed", ["in/discarded", "in/.queuedriver/attempts"])
def test_a_directory_of_the_queue_that_was_removed_by_hand_is_made_again(
    bench: "Bench", removed: str
) -> None:
    def function(document: Document) -> bytes:
        once = bench.root / "once"
        if not once.exists():
            once.touch()
            shutil.rmtree(bench.root / removed)
        raise PermanentError("bad") if document.docid == "a" else ValueError("bad")

    for docid in ("a", "b"):
        bench.put(f"in/{docid}.ready")
    left = drain(bench, function)
    assert (left.word, left.exit_code) == ("drained", 1)
    assert bench.queue().discarded() == ["a", "b"]
    assert all(bench.queue().report(docid) for docid in ("a", "b"))


def test_a_queue_that_is_taken_away_ends_its_driver(bench: "Bench") -> None:
    path = bench.directory("in").path
    driver = Driver(path, lambda document: None, options=Options(poll=True))
    caught: list[BaseException] = []

    def drive() -> None:
        try:
            driver.run()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            caught.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    while driver.progress().state != "ready":
        time.sleep(0.001)
    os.rename(path, bench.root / "away")
    os.mkdir(path)
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(caught[0], NotFound)
    assert caught[0].exit_code == 66


@pytest.mark.parametrize("batch", [1, 8])
def test_a_program_that_cannot_start_costs_its_documents_nothing(
    bench: "Bench", banks: list[Bank], batch: int
) -> None:
    def function(documents: Any) -> Any:
        raise ConfigError("no such program")

    bank = bank_for(bench, banks, function, batch)
    bench.put("in/another.ready")
    with pytest.raises(ConfigError):
        bank.turns.turn(list(bank.queue.claim(["another.ready", "doc.ready"])))
    assert bench.ls() == ["another.ready", "doc.ready"]
    assert bank.tally.failed == 0


def test_too_many_open_files_are_charged_to_nobody(bench: "Bench", banks: list[Bank]) -> None:
    def function(document: Document) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    bank = bank_for(bench, banks, function)
    with pytest.raises(OSError, match="open files"):
        bank.work()
    assert bench.ls() == ["doc.ready"]
    # But it may have been this document.
    (strike,) = attempts_of(bank.queue.attempts.directory, "doc")
    assert not strike.counted


# A processor's ideas


class TimeIsUp(BaseException):
    """What libraries raise that is to pass by `except Exception`."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [
        Unprintable(),
        TryLater(1e300, "milliseconds"),
        TryLater(float("nan"), "never"),
        ValueError(10_000_000 * "x"),
        ValueError("caf\udce9"),
        SystemExit(0),
        MemoryError(),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        TimeIsUp(),
    ],
)
def test_whatever_a_processor_raises_ends_its_document_and_not_the_driver(
    bench: "Bench", error: BaseException
) -> None:
    def function(document: Document) -> bytes:
        if document.docid == "bad":
            raise error
        return b"good"

    for docid in ("bad", "good"):
        bench.put(f"in/{docid}.ready", b"content")
    left = drain(bench, function)
    assert (left.word, left.exit_code) == ("drained", 1)
    assert bench.ls("out") == ["good.ready"]
    report = bench.queue().report("bad")
    assert report is not None
    assert len(report.attempts) == 2


@pytest.mark.parametrize("reason", [ValueError("busy"), "caf\udce9", Unprintable()])
def test_whatever_is_given_as_the_reason_postpones_the_document_and_ends_no_driver(
    bench: "Bench", reason: Any
) -> None:
    def function(document: Document) -> bytes:
        raise TryLater(60.0, reason)

    bench.put("in/doc.ready")
    left = drain(bench, function)
    assert (left.word, left.exit_code) == ("later", 75)
    (waits,) = bench.ls()
    assert waits.endswith(f".{names.LATER}")
    assert bench.queue().report("doc") is None


class OurBug(BaseException):
    """What nobody expects."""


def test_a_document_that_brings_its_driver_down_is_tried_once_more_and_set_aside(
    bench: "Bench",
) -> None:
    last = ""

    def function(document: Document) -> bytes:
        nonlocal last
        last = document.docid
        return b"good"

    def clock() -> float:
        nonlocal last
        if last == "bad":
            last = ""
            raise OurBug
        return time.monotonic()

    for docid in ("bad", "good"):
        bench.put(f"in/{docid}.ready", b"content")
    crashes = 0
    for _ in range(4):
        try:
            left = drain(bench, function, clock)
            break
        except OurBug:
            crashes += 1
            (gone,) = registrations(bench.queue())
            assert gone.last_word == CRASHED
    assert crashes == 2
    assert left.word == "drained"
    assert bench.ls("out") == ["good.ready"]
    assert bench.queue().discarded() == ["bad"]


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("kind", ["directory", "symlink", "fifo"])
def test_what_is_no_file_is_set_aside_though_its_processor_never_looks(
    bench: "Bench", kind: str, batch: int
) -> None:
    bench.directory("in")
    path = bench.root / "in/a.ready"
    match kind:
        case "directory":
            (path / "deep").mkdir(parents=True)
        case "symlink":
            path.symlink_to(bench.put("secret"))
        case _:
            os.mkfifo(path)
    bench.put("in/b.ready")

    def function(documents: Any) -> Any:
        return [b"x" for _ in documents] if batch > 1 else b"x"

    left = drain(bench, function, batch=batch)
    assert (left.word, left.exit_code) == ("drained", 1)
    assert bench.ls("out") == ["b.ready"]
    report = bench.queue().report("a")
    assert report is not None
    assert report.failure.cause == "not-a-file"


def test_the_other_documents_of_a_batch_do_not_pay_for_one(bench: "Bench") -> None:
    def function(documents: list[Document]) -> list[Any]:
        if any(document.docid == "bad" for document in documents):
            raise ValueError("one of them is bad")
        return [Output(document.read()) for document in documents]

    for docid in ("a", "b", "bad", "c"):
        bench.put(f"in/{docid}.ready", docid.encode())
    left = drain(bench, function, batch=8)
    assert left.counters.discarded == 1
    assert bench.ls("out") == ["a.ready", "b.ready", "c.ready"]
    assert bench.queue().discarded() == ["bad"]


# Draining


def test_what_became_due_while_draining_is_done_and_not_left_for_later(bench: "Bench") -> None:
    bench.put(f"in/a.{int(time.time()) - 5:x}.later")
    bench.put(f"in/b.failed.{int(time.time()) - 5:x}.later")
    left = drain(bench, lambda document: b"x")
    assert (left.word, left.exit_code) == ("drained", 0)
    assert bench.ls("out") == ["a.ready", "b.ready"]


def test_a_driver_that_is_run_again_begins_anew(bench: "Bench") -> None:
    heard = []

    def process(document: Document) -> bytes:
        heard.append(signal.getsignal(signal.SIGTERM))
        return document.read()

    options = Options(drain=True, poll=True)
    driver = Driver(bench.directory("in").path, process, bench.root / "out", options=options)
    before = signal.getsignal(signal.SIGTERM)
    for docid in ("first", "second"):
        bench.put(f"in/{docid}.ready", b"text")
        assert driver.run().counters.documents == 1
    assert len(heard) == 2
    assert before not in heard
