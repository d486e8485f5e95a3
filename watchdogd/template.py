"""The watchdog's side of templates: orders go in, drivers come out. Nothing here waits.

    Template     a process that has loaded what drivers have in common, and forks them
    Templates    that of a stage, and those that it replaces

A template takes one order at a time. Whoever is to have a driver while it loads, or forks another,
asks again in a later turn, so that nobody is late by that. A fork that was asked for is a child
with pid 0; when it hangs, it is given up, and the template is asked for its stacks, and ended, for
which nobody waits. Drivers outlive their template.
"""

import math
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import open_fd
from queuedriver.errors import BUG, LATER
from queuedriver.format.records import decode_by
from watchdogd.children import Child, Children, Exit
from watchdogd.driver_ids import load_name, log_path
from watchdogd.driver_orders import LIMIT, Answer, Came, Failed, Fork, Load, Loaded, Unfit
from watchdogd.linux import with_huge_pages
from watchdogd.logs import open_log
from watchdogd.pipeline.model import Stage
from watchdogd.policy import START_UP, Life, Past, remember

COMMAND = (sys.executable, "-P", "-m", "watchdogd.programs.template")
# A library that starts threads while it loads is of no use to forks: most can be told to have one.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Seconds for a fork to come, which takes milliseconds, whatever its stage may take to start: the
# next one is not asked for before.
FORK_TAKES = 30.0
# For what was loaded to clean up, once nobody needs it any more.
CLEANING_TAKES = 10.0
# How many may be there that not even SIGKILL ends: one, and one that stands in for it. What they
# wait for keeps the next one, too, and each keeps the memory that it has.
_MOST_STUCK = 2
_ANSWER = msgspec.json.Decoder(Answer)


class Template:
    """A process that has loaded what the drivers of a stage have in common, and forks them."""

    def __init__(
        self,
        load: Load,
        children: Children,
        now: float,
        log: int | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        """Start loading. What the template prints goes to `log`."""
        self.load = load
        self.started_at = now
        # 0: it loads.
        self.ready_at = 0.0
        # Bytes that its forks have in common.
        self.shared = 0
        self._children = children
        # What it said of its end.
        self._why = ""
        # The driver that it forks now, the number of that order, which the answer has, too, and
        # when it was asked.
        self._forking: Child | None = None
        self._serial = 0
        self._asked_at = 0.0
        self.is_leaving = False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # The last word is for people who list processes.
            argv = (*command, load.stage)
            environ = with_huge_pages({**os.environ, **ONE_THREAD, **load.env})
            stdin = theirs.fileno()
            try:
                self.child = children.start(argv, environ, stdin=stdin, output=log)
            except OSError:
                ours.close()
                raise
        self._control: socket.socket | None = ours
        self._send(load)

    # Look

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when `receive` has something to do."""
        return [self._control.fileno()] if self._control else []

    @property
    def is_usable(self) -> bool:
        """Return whether it forks, or will."""
        is_there = self.child.exit is None and self._control is not None
        return is_there and self.child.rung == "run" and not self.is_leaving

    @property
    def is_free(self) -> bool:
        """Return whether it can fork a driver now."""
        return self.is_usable and bool(self.ready_at) and self._forking is None

    @property
    def is_stuck(self) -> bool:
        """Return whether not even SIGKILL has ended it."""
        return self.child.rung == "stuck" and self.child.exit is None

    @property
    def has_ended(self) -> bool:
        return self.child.exit is not None and self._control is None

    @property
    def has_failed(self) -> bool:
        """Return whether it has ended and could not even load."""
        return self.has_ended and not self.ready_at

    def life(self, now: float) -> Life:
        """Return what kind of run has ended now, as that of a driver without documents."""
        ended = self.child.exit or Exit()
        return Life(
            started_at=self.started_at,
            ready_at=self.ready_at,
            ended_at=now,
            exit_code=ended.code,
            signal=str(ended.signal or ""),
        )

    # Act

    def fork(self, order: bytes, now: float) -> Child:
        """Ask for a driver with this order. It is free; or it could not load, and why and its exit
        code are those of the driver."""
        ended = self.child.exit
        if ended is not None:
            words = self._why or f"the process that stage {self.load.stage} is loaded in: {ended}"
            return _fail(Child(), words, BUG if ended.code is None else ended.code)
        if len(order) > LIMIT // 2:
            words = f"an order of {len(order)} bytes is too long for a stage with preload"
            return _fail(Child(), words, BUG)
        child = self._forking = self._children.expect(self.child)
        self._serial, self._asked_at = self._serial + 1, now
        self._send(Fork(self._serial, child.life, msgspec.Raw(order)))
        return child

    def receive(self, now: float) -> None:
        """Take in what it has said. May be called at any time."""
        # First: what it sent before its end has come by then.
        ended = self.child.exit
        while self._control is not None:
            try:
                data = self._control.recv(LIMIT, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            try:
                answer = decode_by(_ANSWER, data) if data else None
            except msgspec.DecodeError as error:
                self._why = f"stage {self.load.stage} is loaded by another version: {error}"
                answer = None
            if answer is not None:
                self._take(answer, now)
                continue
            # It ends, or is of no use any more; what it forks has it open until it is there.
            self._control.close()
            self._control = None
            if ended is None and self.child.rung == "run":
                self.child.ask("kill", self._why, now)
            if self._forking is not None:
                words = self._why or "what it was to be forked from has gone"
                _fail(self._forking, words, LATER)
                self._forking = None

    def tend(self, startup_timeout: float, now: float) -> float:
        """Ask one for its stacks, and so end it, that is late, or whose fork is. Return when it
        will be late."""
        late_at = math.inf if self.ready_at else self.started_at + startup_timeout
        if self._forking is not None:
            late_at = self._asked_at + FORK_TAKES
        is_stuck = self._forking is not None and self._forking.rung not in ("run", "leave")
        if self.is_usable and (is_stuck or now >= late_at):
            self._why = "it was not ready in time"
            self.child.ask("stacks", START_UP, now)
            if self._forking is not None:
                self._hang_up(now)
        return late_at if self.is_usable else math.inf

    def _hang_up(self, now: float) -> None:
        """Give up the driver that it was to fork, unless that is there: it may take long to end. A
        fork that comes all the same cannot say so, and leaves."""
        # What it has said by now is still to be heard.
        with suppress(OSError):
            if self._control is not None:
                self._control.shutdown(socket.SHUT_RD)
        self.receive(now)

    def leave(self, now: float) -> None:
        """Have it leave; drivers stay, and one that it forks now may still come: nobody else would
        know of it."""
        is_well, self.is_leaving = self.is_usable, True
        if is_well and self.ready_at:
            self.child.ask("run", "not needed", now, CLEANING_TAKES)
        elif is_well:
            # It does not listen yet, and has nothing to clean up.
            self.child.ask("terminate", "not needed", now)
        # It may have ended, and we are about to hear of it.
        with suppress(OSError):
            if self._control is not None:
                self._control.shutdown(socket.SHUT_WR)

    # Between

    def _send(self, told: Load | Fork) -> None:
        # It may have ended, or could not even be executed, and we are about to hear of it.
        with suppress(OSError):
            if self._control is not None:
                self._control.send(msgspec.json.encode(told))

    def _take(self, answer: Answer, now: float) -> None:
        match answer, self._forking:
            case Loaded(pss), _:
                self.ready_at, self.shared = now, pss
            case Unfit(why), _:
                self._why = why
            case Came(serial, pid), Child() as child if serial == self._serial:
                self._children.came(child, pid)
                self._forking = None
            case Failed(serial, why, code), Child() as child if serial == self._serial:
                _fail(child, why, code)
                self._forking = None


class Templates:
    """What the drivers of a stage are forked from, and what it was before."""

    def __init__(self, load: Load | None, local: str, children: Children) -> None:
        # What one would be told now; None: drivers begin anew.
        self.load = load
        # Those that have not gone yet, the latest last.
        self._all: list[Template] = []
        # What is remembered of those that ended by themselves.
        self._past = Past()
        self._local = local
        self._children = children

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when a template has said something."""
        return [fd for one in self._all for fd in one.fds]

    @property
    def template(self) -> Template | None:
        """Return the one that was not told to leave."""
        return next((one for one in self._all if not one.is_leaving), None)

    @property
    def shared(self) -> int:
        """Return the bytes that drivers have in common."""
        return self.template.shared if self.template else 0

    @property
    def settled(self) -> bool:
        """Return whether nothing is loaded any more, but for what not even SIGKILL ends."""
        return all(one.is_stuck for one in self._all)

    @property
    def stuck(self) -> str:
        """Return why no further one is loaded; "" while one may be."""
        pids = [str(one.child.pid) for one in self._all if one.is_stuck]
        if len(pids) < _MOST_STUCK:
            return ""
        return (
            f"what its drivers were to be forked from, processes {' and '.join(pids)} cannot be "
            "killed: they wait in the kernel, as for a dead mount; it is loaded again when one ends"
        )

    def receive(self, now: float) -> None:
        """Take in what the templates have said."""
        for one in self._all:
            one.receive(now)

    def tend(self, stage: Stage, now: float, *, needed: bool, again: bool) -> float:
        """Let a template go that is not needed, not what it would be now, or of no use; with
        `again`, load anew one that has ended by itself. Return when to come back."""
        self._all = [one for one in self._all if not (one.is_leaving and one.has_ended)]
        due = math.inf
        if (template := self.template) is not None:
            due = template.tend(stage.startup_timeout, now)
            if not needed or template.load != self.load:
                template.leave(now)
                self._past = Past()
            elif template.has_ended or template.is_stuck:
                self._past = remember(self._past, template.life(now), stage, 0.0)
                template.leave(now)
        if again and self.load is not None and self.template is None and not self.stuck:
            if now < self._past.not_before:
                return self._past.not_before
            self._begin(self.load, stage, now)
        return due

    def free(self, stage: Stage, now: float) -> Template | None:
        """Return one that forks a driver now, or that could not load and says why; None while it
        loads, or forks another. If there is none, it begins to load."""
        one = self.template
        if self.load is not None and (one is None or (one.ready_at and not one.is_usable)):
            if one is not None:
                one.leave(now)
            if not self.stuck:
                self._begin(self.load, stage, now)
        return one if one is not None and (one.is_free or one.has_failed) else None

    def _begin(self, load: Load, stage: Stage, now: float) -> None:
        path = log_path(self._local, load_name(stage.name))
        with open_fd(open_log(path, stage.log_size, stage.log_keep)) as log:
            self._all.append(Template(load, self._children, now, log))


def _fail(child: Child, words: str, code: int) -> Child:
    """Note that a driver will never come, and return it."""
    child.failure, child.exit = words, Exit(code=code)
    return child
