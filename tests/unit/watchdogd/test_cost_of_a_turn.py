"""A turn over drivers that have nothing to do costs so many bytecodes each, and opens no file.

Counts, not timings: they are the same on a machine that is busy with others.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from queuedriver.disk.processes import resident_memory
from queuedriver.driving.live_status import Totals
from tests.unit.watchdogd.test_stages import House, stage
from tests.waiting import until
from watchdogd.helper_messages import QueueSeen

STAGES, EACH = 8, 4
# On Python 3.11; later ones have other bytecodes.
BYTECODES = 1500


class Count:
    """Bytecodes executed, and files opened, while it counts."""

    def __init__(self) -> None:
        self.bytecodes = self.opened = 0
        self.counting = False
        sys.addaudithook(self._audit)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.bytecodes += event == "opcode"
        return self

    def _audit(self, event: str, _: Any) -> None:
        self.opened += self.counting and event == "open"


@pytest.fixture
def idle(tmp_path: Path) -> Any:
    """All drivers of a host, each ready and without a document."""
    names = [f"s{number}" for number in range(STAGES)]
    house: Any = House(tmp_path, *(stage(name, EACH) for name in names))
    house.see(**{f"to_{name}": QueueSeen() for name in names})
    house.begin()
    house.boards = []
    for slot in house.stages.slots:
        _, board = house.live(slot.name, 100.0)
        assert slot.run is not None
        board.sign(slot.run.child.pid, 1)
        house.boards.append(board)
    yield house
    for slot in house.stages.slots:
        if slot.run is not None:
            slot.run.child.send(signal.SIGKILL)
    house.reap_all()


def test_idle_drivers_cost_little_in_a_turn(idle: Any) -> None:
    count, turns = Count(), 3
    for now in (101.0, 102.0):
        idle.stages.turn(now, 1.0, fs_ok=True)
    for now in range(103, 103 + turns):
        for board in idle.boards:
            # As each does that looks for documents and finds none.
            board.count(Totals(wait=now * 10**9))
        count.counting = True
        sys.settrace(count)
        try:
            idle.stages.turn(float(now), 1.0, fs_ok=True)
        finally:
            sys.settrace(None)
            count.counting = False
    # What a process takes is looked at every five seconds, while it does nothing.
    assert count.opened == 0
    if sys.version_info[:2] == (3, 11):
        assert count.bytecodes / turns / (STAGES * EACH) < BYTECODES


def _has_no_memory(pid: int) -> bool:
    return resident_memory(pid) == 0


def test_memory_of_idle_drivers_is_looked_at_now_and_then(idle: House) -> None:
    for now in (101.0, 102.0):
        idle.stages.turn(now, 1.0, fs_ok=True)
    for slot in idle.stages.slots:
        assert slot.memory > 0
        assert slot.run is not None
        pid = slot.run.child.pid
        os.kill(pid, signal.SIGKILL)
        until(partial(_has_no_memory, pid), f"the end of {pid}")
    # Nothing reaps them, so that there is nothing to be seen of their memory but that it is gone.
    idle.stages.turn(108.0, 6.0, fs_ok=True)
    assert {slot.memory for slot in idle.stages.slots} == {0}
