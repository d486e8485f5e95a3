"""Tries whether what the `call` stages of a pipeline name can be imported, before anything starts.

Each in a process of its own, `python -m watchdogd.trying`, set up like a driver: what a module does
while it is imported happens there, and ends with it. One that takes long is taken to be merely
slow: models load for minutes, and slips show at once.
"""

import contextlib
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from queuedriver.disk.processes import KILL_WAIT, MARKER, kill_marked
from queuedriver.format.records import decode
from queuedriver.processors.child import Tail
from watchdogd.children import Children, Exit
from watchdogd.pipeline.complaints import Slip
from watchdogd.pipeline.model import Pipeline
from watchdogd.trying import Order, Outcome, last_lines

# Seconds for one trial. Long for an import that fails, short for somebody who waits.
LIMIT = 5.0
_CHUNK = 1 << 16


class Trials(NamedTuple):
    """What all trials came to."""

    slips: tuple[Slip, ...]
    # The stages of which nothing is known, because they take long.
    slow: tuple[str, ...]


def try_calls(pipeline: Pipeline, limit: float = LIMIT) -> Trials:
    """Import what the stages call that get drivers here, a few at a time; return what it came to,
    in the order of the file."""
    waiting = [
        index
        for index, stage in enumerate(pipeline.stages)
        if stage.kind == "call" and stage.drivers.max
    ]
    children = Children()
    marker = f"trial-{os.getpid()}-{secrets.token_hex(4)}"
    at_once = max(len(os.sched_getaffinity(0)), 2)
    # By stage; None of one that takes long.
    ended: dict[int, Outcome | None] = {}
    running: list[_Trial] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_Trial(children, pipeline, waiting.pop(0), marker, limit))
            _wait(running)
            for trial in [one for one in running if one.over()]:
                running.remove(trial)
                ended[trial.index] = trial.end()
    finally:
        for trial in running:
            trial.end()
        # And what has left its process group.
        kill_marked([marker])
    in_order = [(index, ended[index]) for index in sorted(ended)]
    return Trials(
        tuple(_slip(index, one) for index, one in in_order if one is not None and one.problem),
        tuple(pipeline.stages[index].name for index, one in in_order if one is None),
    )


def _slip(index: int, outcome: Outcome) -> Slip:
    path = ("stage", index, outcome.key)
    return Slip(path, outcome.problem, outcome.right, detail=outcome.detail)


def _wait(running: Iterable["_Trial"]) -> None:
    """Until something ends, has something to say, or has had its time."""
    poll = select.poll()
    until = min(trial.until for trial in running)
    for trial in running:
        for fd in trial.fds:
            poll.register(fd, select.POLLIN)
    poll.poll(max(0.0, until - time.monotonic()) * 1000 + 1)
    for trial in running:
        trial.listen()


class _Trial:
    """One process that imports."""

    def __init__(
        self, children: Children, pipeline: Pipeline, index: int, marker: str, limit: float
    ) -> None:
        self._children = children
        stage = pipeline.stages[index]
        self.index = index
        self._report, report = os.pipe2(os.O_CLOEXEC)
        self._noise, noise = os.pipe2(os.O_CLOEXEC)
        for fd in (self._report, self._noise):
            os.set_blocking(fd, False)
        order = Order(
            directory=pipeline.directory,
            call=str(stage.work),
            preload=stage.preload if isinstance(stage.preload, str) else "",
            report=report,
            parent=os.getpid(),
        )
        try:
            # The last word is for people who list processes.
            self._process = children.start(
                (sys.executable, "-P", "-m", "watchdogd.trying", stage.name),
                {**os.environ, **stage.env, MARKER: marker},
                order=msgspec.json.encode(order),
                stdout=noise,
                stderr=noise,
                keep=(report,),
            )
        finally:
            os.close(report)
            os.close(noise)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._tail = Tail()
        # Whether somebody may still print.
        self._open = True
        self.until = time.monotonic() + limit

    @property
    def fds(self) -> list[int]:
        return [self._pidfd, *([self._noise] if self._open else [])]

    def listen(self) -> None:
        """Take what it prints, so that it never waits for us."""
        with contextlib.suppress(BlockingIOError):
            if self._open:
                chunk = os.read(self._noise, _CHUNK)
                self._open = bool(chunk)
                self._tail.add(chunk)

    def over(self) -> bool:
        return time.monotonic() >= self.until or _ends(self._pidfd, 0.0)

    def end(self) -> Outcome | None:
        """What came of it; None when it takes too long to know."""
        by_itself = _ends(self._pidfd, 0.0)
        # What it started ends with it. It is not reaped yet, so its group is still its own.
        self._process.signal_group(signal.SIGKILL)
        # One that hangs in a file system is left to it.
        _ends(self._pidfd, KILL_WAIT)
        self._children.reap(0.0)
        exited = self._process.exit
        self.listen()
        try:
            with contextlib.suppress(BlockingIOError, msgspec.DecodeError):
                return decode(os.read(self._report, _CHUNK), Outcome)
        finally:
            os.close(self._pidfd)
            os.close(self._report)
            os.close(self._noise)
        if exited is not None and exited.signal == signal.SIGKILL:
            # By us, or by somebody else, as when memory is short: nothing is known of the module.
            return None
        return self._crashed(exited) if by_itself else None

    def _crashed(self, exited: Exit | None) -> Outcome:
        lines = (self._tail.text() or "").splitlines()
        return Outcome(
            key="call",
            problem=f"cannot work: importing it ended the process: {exited}",
            right="see what the module does while it is imported",
            detail=last_lines(lines),
        )


def _ends(pidfd: int, seconds: float) -> bool:
    """Whether a process ends within that time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
