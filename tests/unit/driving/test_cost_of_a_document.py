"""An ordinary document costs so many bytecodes and frames in the driver, and no more.

Counts, not timings: they are the same on a machine that is busy with others. The mean is of many
documents, with the looks of the loop between them, as often as if each took 50 microseconds.
"""

import itertools
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from queuedriver.claims.document import Document
from queuedriver.claims.input_queue import InputQueue
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.driver import Driver
from queuedriver.driving.live_status import Board
from queuedriver.driving.setup import Opened
from queuedriver.options import Options
from queuedriver.processors.command import CommandProcessor

DOCUMENTS, FIRST, LAST = 500, 50, 450
# On Python 3.11; later ones have other bytecodes, and fewer frames. And as much again for being
# watched: it shows a document when it begins and when it ends.
BYTECODES, FRAMES = 460, 12
BYTECODES_SHOWN, FRAMES_SHOWN = 70, 3
BYTECODES_OF_A_COMMAND, FRAMES_OF_A_COMMAND = 1700, 82


class Count:
    """Bytecodes executed, and Python functions called, while it counts."""

    def __init__(self) -> None:
        self.bytecodes = self.frames = 0
        self.counting = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self.frames += self.counting
            return self
        self.bytecodes += self.counting and event == "opcode"
        return self


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted on Python 3.11")
@pytest.mark.parametrize("limit", [None, 10 * DOCUMENTS])
@pytest.mark.parametrize("watched", [False, True])
def test_ordinary_document_costs_no_more_than_was_measured(
    watched: bool, limit: int | None, tmp_path: Path
) -> None:
    """Also under a watchdog, and between two stages: there a limit holds the first one back."""
    (tmp_path / "in").mkdir()
    board = Board.create(str(tmp_path / "board")) if watched else None
    for number in range(DOCUMENTS):
        (tmp_path / "in" / f"doc{number:07}.ready").write_bytes(b"x" * 1024)
    count, done = Count(), itertools.count()

    def process(document: Document) -> bytes:
        count.counting = FIRST <= next(done) < LAST
        document.read()
        return b"x" * 1024

    driver = Driver(
        tmp_path / "in",
        process,
        tmp_path / "out",
        options=Options(drain=True, max_output_items=limit),
        board=board,
        # It is asked twice for each document; after the last one time flies.
        clock=itertools.chain(
            itertools.islice(itertools.count(0.0, 25e-6), 3 * DOCUMENTS), itertools.count(1.0)
        ).__next__,
    )
    before = sys.gettrace()
    sys.settrace(count)
    try:
        driver.run()
    finally:
        sys.settrace(before)
    each = LAST - FIRST
    assert count.bytecodes / each <= BYTECODES + watched * BYTECODES_SHOWN
    assert count.frames / each <= FRAMES + watched * FRAMES_SHOWN
    if board is not None:
        assert board.read().totals.documents == DOCUMENTS
        board.close()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted on Python 3.11")
def test_document_of_a_command_costs_no_more_than_was_measured(tmp_path: Path) -> None:
    """Besides the command itself; that is four times what it costs to call a function."""
    documents, first, last = 40, 5, 35
    (tmp_path / "in").mkdir()
    for number in range(documents):
        (tmp_path / "in" / f"doc{number:07}.ready").touch()
    count, done = Count(), itertools.count()

    class Command(CommandProcessor):
        def process(self, *given: Any) -> None:
            count.counting = first <= next(done) < last
            super().process(*given)

    clock = itertools.chain(itertools.repeat(0.0, 3 * documents), itertools.count(1.0)).__next__
    options = Options(drain=True)
    driver = Driver(
        tmp_path / "in", Command("true"), tmp_path / "out", options=options, clock=clock
    )
    before = sys.gettrace()
    sys.settrace(count)
    try:
        driver.run()
    finally:
        sys.settrace(before)
    assert len([*(tmp_path / "out").glob("*.ready")]) == documents
    assert count.bytecodes / (last - first) <= BYTECODES_OF_A_COMMAND
    assert count.frames / (last - first) <= FRAMES_OF_A_COMMAND


@pytest.mark.parametrize("watched", [False, True])
def test_what_a_driver_keeps_of_what_it_has_done_does_not_grow_until_it_looks(
    watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is new to the process costs a tenth of a short document."""
    (tmp_path / "in").mkdir()
    for number in range(2 * DOCUMENTS):
        (tmp_path / "in" / f"doc{number:07}.ready").touch()
    board = Board.create(str(tmp_path / "board")) if watched else None
    queues, kept = list[InputQueue](), list[int]()
    opened = InputQueue.__init__

    def noted(queue: InputQueue, *told: Any, **more: Any) -> None:
        opened(queue, *told, **more)
        queues.append(queue)

    monkeypatch.setattr(InputQueue, "__init__", noted)

    def process(document: Document) -> bytes:
        kept.append(len(queues[0].handed_over) + len(queues[0].journal.pending))
        return b""

    # No time passes until all is done.
    clock = itertools.chain(itertools.repeat(0.0, 7 * DOCUMENTS), itertools.count(1.0)).__next__
    options = Options(drain=True)
    out = tmp_path / "out"
    Driver(tmp_path / "in", process, out, options=options, clock=clock, board=board).run()
    assert len(kept) == 2 * DOCUMENTS
    assert max(kept) < 512
    if board is not None:
        board.close()


@pytest.mark.parametrize(("network", "asked"), [(False, 100), (True, 20)])
def test_control_files_are_asked_for_less_often_where_each_time_is_a_request_to_a_server(
    network: bool, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(100):
        (tmp_path / "in" / f"doc{number:07}.ready").touch()
    monkeypatch.setattr(Opened, "network", network)
    present, names_asked = Directory.present, list[str]()

    def noted(directory: Directory, name: str) -> bool:
        names_asked.append(name)
        return present(directory, name)

    monkeypatch.setattr(Directory, "present", noted)
    # Each document takes a tenth of a second by this clock.
    clock = itertools.count(0.0, 0.05)
    driver = Driver(
        tmp_path / "in",
        lambda document: b"",
        tmp_path / "out",
        options=Options(drain=True),
        clock=clock.__next__,
    )
    assert driver.run().word == "drained"
    # Some more in the end, when nothing is left.
    assert asked * 0.8 <= names_asked.count("PAUSE") <= asked * 1.5 + 10
