"""Asks a driver for its stacks, which say what it is at."""

import os
import signal
import time
from contextlib import closing

from queuedriver.disk.processes import process_ticks
from queuedriver.disk.runtime import read_stacks
from queuedriver.driving.live_status import Board
from queuedriver.errors import NotFound
from watchdogd.driver_ids import board_path
from watchdogd.operators.hosts import Chosen

# Seconds that a driver may take to write its stacks, and how often one looks whether it has.
_PATIENCE, _LOOK_AGAIN = 1.0, 0.02


def stacks_of(chosen: Chosen, name: str, host: str) -> str:
    """Ask a driver that a watchdog of this host keeps for its stacks, and return them: it writes
    them and goes on. Another driver the signal would end."""
    for seen in chosen.hosts.alive:
        driver = next((one for one in seen.report.drivers if one.name == name), None)
        local = seen.report.local
        if driver is None or not (seen.here and local) or seen.report.host != host:
            continue
        with closing(Board.open(board_path(local, driver.id))) as board:
            shown = board.read()
        if not shown.dump or process_ticks(shown.pid) != shown.ticks:
            continue
        before = read_stacks(shown.dump) or ""
        os.kill(shown.pid, signal.SIGUSR2)
        ends_at = time.monotonic() + _PATIENCE
        while (text := read_stacks(shown.dump) or "") == before and time.monotonic() < ends_at:
            time.sleep(_LOOK_AGAIN)
        if text != before:
            return text[len(before) :]
    raise NotFound(f"{name}@{host} has no process on this host, or does not answer")
