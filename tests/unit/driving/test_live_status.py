"""What a driver says of itself to whoever watches it, without a system call; and what it counts."""

import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from queuedriver import Driver, Options
from queuedriver.claims.document import Document
from queuedriver.driving.live_status import SIZE, Board, Glimpse, Tally, Totals
from queuedriver.driving.measurements import CAUSES, NUMBERS, Counted
from queuedriver.errors import ConfigError
from queuedriver.format.names import MAX_DOCID, Mint
from tests.drivers import FORKS, PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "rose-parse-1.board")


def test_board_is_blank_until_its_driver_signs_it(path: str) -> None:
    glimpse = Board.create(path).read()
    assert (glimpse.pid, glimpse.state, glimpse.word, glimpse.began_at) == (0, "starting", "", 0.0)


def test_reader_sees_what_the_driver_wrote_last(path: str) -> None:
    driver, watchdog = Board.create(path), Board.open(path)
    driver.sign(7, 70)
    driver.ready(3.5)
    driver.began("a\udcff", 12.5)
    glimpse = watchdog.read()
    assert (glimpse.pid, glimpse.ticks, glimpse.ready_at) == (7, 70, 3.5)
    assert (glimpse.state, glimpse.docid, glimpse.began_at) == ("busy", "a\udcff", 12.5)
    assert glimpse.claimed
    driver.ended(1.5, 2)
    glimpse = watchdog.read()
    assert (glimpse.state, glimpse.docid, glimpse.began_at) == ("ready", "", 0.0)
    assert glimpse.totals[:2] == (1_500_000_000, 2)
    driver.began("b", 13.5)
    driver.count(Totals(1, 5, 2, 3, 4, 6, 7))
    glimpse = watchdog.read()
    assert (glimpse.state, glimpse.docid, glimpse.began_at) == ("ready", "", 0.0)
    assert glimpse.totals == Totals(
        work=1, wait=2, block=3, overhead=4, documents=5, failed=6, discarded=7
    )
    driver.files((4, 3, 2, 1))
    assert watchdog.read() == glimpse._replace(files=(4, 3, 2, 1))
    driver.show("waiting-fs", "no space left")
    glimpse = watchdog.read()
    assert (glimpse.state, glimpse.why) == ("waiting-fs", "no space left")
    driver.stacks_go_to("x.stacks")
    driver.left("recycled", "it has reached its age", 0)
    glimpse = watchdog.read()
    assert (glimpse.word, glimpse.why, glimpse.exit_code) == (
        "recycled",
        "it has reached its age",
        0,
    )
    assert glimpse.dump == "x.stacks"


def test_each_look_shows_what_a_first_look_would(path: str) -> None:
    driver, watchdog = Board.create(path), Board.open(path)

    def seen() -> Glimpse:
        glimpse = watchdog.read()
        with closing(Board.open(path)) as anew:
            assert glimpse == anew.read()
        assert watchdog.read() is glimpse
        return glimpse

    driver.sign(7, 70)
    driver.ready(3.5)
    # Nothing is new but the time for which it has waited.
    waits = []
    for wait in (1, 2, 3):
        driver.count(Totals(wait=wait))
        waits.append(seen().totals.wait)
    assert waits == [1, 2, 3]
    # Between two looks it has begun another, and counted what it waited for that one.
    driver.count(Totals(1, 1, 4))
    driver.began("a", 12.5)
    assert seen().docid == "a"
    driver.count(Totals(2, 2, 5))
    driver.measured([1] * NUMBERS)
    assert seen().counted == Counted.of([1] * NUMBERS)
    driver.count(Totals(2, 2, 6))
    driver.files((4, 3, 2, 1))
    assert seen().files == (4, 3, 2, 1)
    driver.left("quit", "told to", 0)
    assert seen().word == "quit"


def test_longest_docid_fits_and_longer_words_are_cut(path: str) -> None:
    board = Board.create(path)
    board.began("d" * MAX_DOCID, 1.0)
    board.show("state " * 50, "why " * 500)
    board.left("word " * 50, "why " * 500, 70)
    assert board.read().docid == "d" * MAX_DOCID
    assert board.read().why.startswith("why why")


def test_new_board_does_not_disturb_whoever_reads_the_old_one(path: str) -> None:
    old = Board.create(path)
    old.left("done", "", 0)
    new = Board.create(path)
    assert (old.read().word, new.read().word) == ("done", "")


@pytest.mark.parametrize("content", [b"", b"x" * SIZE, b"qdboard3" + bytes(SIZE - 8)])
def test_file_that_is_no_board_is_refused(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    with pytest.raises(ConfigError, match="no board"):
        Board.open(path)


def test_board_tells_how_a_driver_left_and_what_it_did(tmp_path: Path, path: str) -> None:
    (tmp_path / "in").mkdir()
    for docid in "abc":
        (tmp_path / "in" / f"{docid}.ready").write_text("text")
    board = Board.create(path)
    options = Options(drain=True)
    Driver(
        tmp_path / "in", lambda one: one.read(), tmp_path / "out", options=options, board=board
    ).run()
    glimpse = board.read()
    assert (glimpse.word, glimpse.totals.documents, glimpse.claimed, glimpse.state) == (
        "drained",
        3,
        True,
        "stopped",
    )
    assert glimpse.ready_at


def _hang(root: Path, path: str) -> None:
    def hang(document: object) -> None:
        time.sleep(PATIENCE)

    Driver(root / "in", hang, root / "out", board=Board.open(path)).run()


def test_board_shows_the_document_at_hand_of_a_driver_that_was_killed(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.ready").write_text("text")
    board = Board.create(path)
    driver = FORKS.Process(target=_hang, args=(tmp_path, path))
    driver.start()
    ends_at = time.monotonic() + PATIENCE
    while not board.read().began_at:
        assert time.monotonic() < ends_at
        time.sleep(0.01)
    os.kill(driver.pid or 0, signal.SIGKILL)
    driver.join()
    glimpse = board.read()
    assert (glimpse.docid, glimpse.word) == ("a", "")
    assert 0 < glimpse.began_at <= time.monotonic()


def test_what_was_done_just_before_a_long_document_is_counted_while_that_is_at_hand(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(20):
        (tmp_path / "in" / f"{number:02}.ready").write_text("text")
    board, seen = Board.create(path), list[Glimpse]()

    def process(document: Document) -> bytes:
        seen.append(board.read())
        return document.read()

    options = Options(drain=True, max_output_items=1000)
    Driver(tmp_path / "in", process, tmp_path / "out", options=options, board=board).run()
    assert [one.totals.documents for one in seen] == list(range(20))
    assert [one.totals.work for one in seen] == sorted({one.totals.work for one in seen})
    assert {one.state for one in seen} == {"busy"}
    assert len({one.docid for one in seen}) == 20


def test_nothing_is_at_hand_between_two_documents(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is killed there is not said to have had the one before at hand."""
    (tmp_path / "in").mkdir()
    for number in range(20):
        (tmp_path / "in" / f"{number:02}.ready").write_text("text")
    board, between = Board.create(path), list[Glimpse]()
    claim = Mint.next

    def noted(mint: Mint, now: int) -> str:
        between.append(board.read())
        return claim(mint, now)

    monkeypatch.setattr(Mint, "next", noted)
    options = Options(drain=True)
    Driver(tmp_path / "in", Document.read, tmp_path / "out", options=options, board=board).run()
    assert [one.totals.documents for one in between] == list(range(20))
    assert {(one.state, one.docid) for one in between} == {("ready", "")}


# How long documents waited and took, and why they failed


def test_board_tells_how_long_each_document_waited_and_took_and_why_it_failed(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "in").mkdir()
    for docid in ("a", "b", "bad", "c"):
        (tmp_path / "in" / f"{docid}.ready").write_text("text")
    board = Board.create(path)

    def process(document: Document) -> bytes:
        if document.docid == "bad":
            raise ValueError("bad")
        return document.read()

    options = Options(drain=True, retries=1)
    Driver(tmp_path / "in", process, tmp_path / "out", options=options, board=board).run()
    counted = board.read().counted
    # Of three that were done, and two attempts that failed: each was claimed once.
    assert sum(counted.services.counts) == 3
    assert sum(counted.waits.counts) == 5
    causes = dict(zip(CAUSES, zip(counted.failed, counted.discarded, strict=True), strict=True))
    assert {cause: both for cause, both in causes.items() if any(both)} == {"exception": (2, 1)}


def test_batch_is_counted_document_by_document(tmp_path: Path, path: str) -> None:
    (tmp_path / "in").mkdir()
    for number in range(10):
        (tmp_path / "in" / f"{number}.ready").write_text("text")
    board = Board.create(path)
    options = Options(drain=True, batch=4)

    def process(documents: list[Document]) -> list[bytes]:
        return [document.read() for document in documents]

    Driver(tmp_path / "in", process, tmp_path / "out", options=options, board=board).run()
    counted = board.read().counted
    assert (sum(counted.services.counts), sum(counted.waits.counts)) == (10, 10)


# What it spent its time on


def test_every_moment_is_booked_once() -> None:
    began_at = time.monotonic_ns()
    tally = Tally()
    tally.worked(0, 1)
    tally.paused(blocked=False)
    tally.paused(blocked=True)
    tally.worked(0, 2)
    passed = time.monotonic_ns() - began_at
    work, documents, wait, block, overhead, *_ = tally.totals
    assert work + wait + block + overhead <= passed
    assert min(work, wait, block, overhead) >= 0
    assert documents == tally.documents == 3


def test_what_was_not_work_in_a_turn_is_overhead() -> None:
    tally = Tally()
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        pass
    tally.worked(0.015, 1)
    counters = tally.counters()
    assert counters.work == 15
    assert counters.overhead >= 5
    assert (counters.wait, counters.block) == (0, 0)


def test_loading_is_no_overhead() -> None:
    tally = Tally()
    time.sleep(0.02)
    started_at = time.monotonic_ns()
    tally.start()
    tally.worked(0, 0)
    assert sum(tally.totals) <= time.monotonic_ns() - started_at


def test_counters_are_never_read_in_the_middle_of_a_turn() -> None:
    tally = Tally()
    stop = threading.Event()
    torn = []

    def read() -> None:
        while not stop.is_set():
            counters = tally.counters()
            # Each turn books a second of work and one document.
            if counters.work != counters.documents * 1000:
                torn.append(counters)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(20_000):
            tally.worked(1.0, 1)
    finally:
        stop.set()
        reader.join()
    assert torn == []


def test_what_went_wrong_is_counted_beside() -> None:
    tally = Tally()
    tally.failed, tally.discarded, tally.lost_races = 3, 1, 7
    counters = tally.counters()
    assert (counters.failed, counters.discarded, counters.lost_races) == (3, 1, 7)


def test_document_at_hand_is_shown_while_those_before_it_are_counted(tmp_path: Path) -> None:
    """As of a durable queue, where finished ones are handed over while the next is processed: a
    watchdog has to see since when."""
    board = Board.create(str(tmp_path / "d.board"))
    tally = Tally(board)
    tally.began("long")
    since = board.read().began_at
    tally.book(["published", "published"], 0.1)
    glimpse = board.read()
    assert (glimpse.docid, glimpse.began_at) == ("long", since)
    tally.ended()
    glimpse = board.read()
    assert (glimpse.docid, glimpse.totals.documents) == ("", 2)
    board.close()
