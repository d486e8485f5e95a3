"""Drivers that were there before their watchdog was: found by the boards they write.

With adoption they outlive a watchdog that is killed, and are the next one's. Without, the kernel
tells them to leave, which they do after the document at hand.
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from queuedriver.claims.liveness import process_ticks
from queuedriver.driving.live_status import Board
from queuedriver.errors import ConfigError
from watchdogd import places
from watchdogd.children import Child, Children

BOARDS = "boards"


class Found(NamedTuple):
    """A driver that lives."""

    slot: int
    process: Child
    board: Board


def find(children: Children, local: str, host: str, stage: str) -> Iterator[Found]:
    """Those of one stage."""
    for slot, path in _boards(local, host, stage):
        try:
            board = Board.open(path)
        except (OSError, ConfigError):
            continue
        glimpse = board.read()
        process = children.adopt(glimpse.pid, glimpse.ticks) if glimpse.pid else None
        if process is None:
            board.close()
        else:
            yield Found(slot, process, board)


def stages_with_boards(local: str, host: str) -> set[str]:
    """The stages that have, or had, drivers here."""
    board = re.compile(rf"{re.escape(places.short_host(host))}-(.+)-[0-9]+\.board")
    found = (board.fullmatch(name) for name in os.listdir(os.path.join(local, BOARDS)))
    return {one[1] for one in found if one is not None}


def dump_of(local: str, pid: int) -> str:
    """Where the stacks of a driver go; empty when no driver has this pid."""
    directory = os.path.join(local, BOARDS)
    for name in os.listdir(directory):
        try:
            board = Board.open(os.path.join(directory, name))
        except (OSError, ConfigError):
            continue
        with closing(board):
            glimpse = board.read()
        if glimpse.pid == pid and glimpse.ticks == process_ticks(pid):
            return glimpse.dump
    return ""


def _boards(local: str, host: str, stage: str) -> Iterator[tuple[int, str]]:
    directory = os.path.join(local, BOARDS)
    begins = places.driver_id(host, stage, 0).removesuffix("0")
    for name in os.listdir(directory):
        number = name.removeprefix(begins).removesuffix(".board")
        if number.isdecimal() and name == f"{begins}{number}.board":
            yield int(number), os.path.join(directory, name)
