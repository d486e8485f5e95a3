"""The watchdog's side of templates: orders go in, drivers come out. Nothing here waits.

    Template     a process that has loaded what drivers have in common, and forks them
    Templates    that of a stage, and those that it replaces

A fork that was asked for is a child with pid 0. The template takes one order at a time: a driver
that waits for its turn, behind a template that loads or behind other forks, is not late yet. One
that is asked to leave meanwhile is forgotten; and when the fork that is under way hangs, the
template is asked for its stacks, and ended. Drivers outlive their template.
"""

import math
import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from queuedriver.format.records import decode_by
from watchdogd.children import Child, Children, Exit
from watchdogd.driver_ids import log_path
from watchdogd.logs import open_log
from watchdogd.orders import (
    LIMIT,
    Answer,
    Came,
    Failed,
    Fork,
    Load,
    Loaded,
    Order,
    Unfit,
    encode,
)
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
# For what was loaded to clean up, once nobody needs it any more.
CLEANING_TAKES = 10.0
_CANNOT_FORK, _LATER = 70, 75
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
        # What a user had better know of what is loaded.
        self.note = ""
        # What it said of its end.
        self.why = ""
        self._children = children
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # The last word is for people who list processes.
            argv = (*command, load.stage)
            environ = {**os.environ, **ONE_THREAD, **load.env}
            stdin = theirs.fileno()
            try:
                self.child = children.start(argv, environ, stdin=stdin, stdout=log, stderr=log)
            except OSError:
                ours.close()
                raise
        self._control: socket.socket | None = ours
        # Orders that it has not been given, and the drivers that these are for.
        self._waiting: deque[tuple[Child, Fork]] = deque()
        # The driver that it forks now, and the number of the order; how many orders there were.
        self._forking: tuple[Child, int] | None = None
        self._serial = 0
        # Told to leave; and before it was late.
        self._is_leaving = self._is_let_go = False
        # Where it could not even be executed, it has ended by now, and we are about to hear of it.
        with suppress(BrokenPipeError):
            ours.send(msgspec.json.encode(load))

    # Look

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when `receive` has something to do."""
        return [self._control.fileno()] if self._control else []

    @property
    def is_usable(self) -> bool:
        """Return whether it forks, or will."""
        return self.child.exit is None and self.child.rung == "run" and self._control is not None

    @property
    def is_ending(self) -> bool:
        """Return whether it has hung up by itself, and how it ends is about to be known."""
        return self._control is None and self.child.exit is None and self.child.rung == "kill"

    @property
    def takes_orders(self) -> bool:
        """Return whether orders belong here: it forks, or how it ends is what becomes of them."""
        return self.is_usable or self.is_ending

    @property
    def has_ended(self) -> bool:
        return self.child.exit is not None and self._control is None

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

    def waits(self, child: Child) -> bool:
        """Return whether it is not the turn of this fork yet."""
        return any(child is one for one, _ in self._waiting)

    # Act

    def fork(self, order: bytes, parent: int) -> Child:
        """Ask for a driver with this order, which does not outlive `parent`; 0: it outlives all."""
        child = self._children.expect(self.child)
        if len(order) > LIMIT // 2:
            words = f"an order of {len(order)} bytes is too long for a stage with preload"
            _give_up(child, words, _CANNOT_FORK)
        else:
            self._serial += 1
            self._waiting.append((child, Fork(self._serial, parent, msgspec.Raw(order))))
            self._ask_next()
        return child

    def receive(self, now: float) -> None:
        """Take in what it has said. May be called at any time."""
        # First: what it sent before its end has come by then.
        ended = self.child.exit
        while self._control is not None:
            try:
                data = self._control.recv(LIMIT, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            try:
                answer = decode_by(_ANSWER, data) if data else None
            except msgspec.DecodeError as error:
                self.why = f"stage {self.load.stage} is loaded by another version: {error}"
                answer = None
            if answer is None:
                # It ends, or is of no use any more; what it forks has it open until it is there.
                self._close()
                if ended is None:
                    self.child.ask("kill", self.why, now)
            else:
                self._take(answer, now)
        if self._is_leaving and self._forking is None:
            self._close()
        if self._control is None and not self.is_ending:
            self._fail_all()
        self._ask_next()

    def tend(self, startup_timeout: float, now: float) -> float:
        """Forget drivers that are wanted no more; ask a template for its stacks, and so end it,
        that is late, or whose fork is. Return when it will be late."""
        for one in [one for one in self._waiting if one[0].rung != "run"]:
            self._waiting.remove(one)
            _give_up(one[0], "", 0)
        late_at = math.inf if self.ready_at else self.started_at + startup_timeout
        is_stuck = self._forking is not None and self._forking[0].rung not in ("run", "leave")
        if self.is_usable and (is_stuck or now >= late_at):
            self.why = "it was not ready in time"
            self.child.ask("stacks", START_UP, now)
        return late_at if self.is_usable else math.inf

    def leave(self, now: float) -> None:
        """Have it leave; drivers stay, and those that are still to come never do, but for one that
        it forks now: that may have come already, and nobody else would know of it."""
        if self._is_leaving:
            return
        is_well, self._is_leaving = self.child.rung == "run", True
        self._is_let_go = is_well and self.child.exit is None
        if is_well and self.ready_at:
            self.child.ask("run", "not needed", now, CLEANING_TAKES)
        elif is_well:
            # It does not listen yet, and has nothing to clean up.
            self.child.ask("terminate", "not needed", now)
        # What it has said by now counts.
        self.receive(now)
        if self.is_ending:
            # Who waits fails by how it ends.
            return
        forking = self._forking if is_well else None
        if forking is None:
            self._close()
        elif self._control is not None:
            self._forking = None
            self._control.shutdown(socket.SHUT_WR)
        self._fail_all()
        self._forking = forking

    # Between

    def _ask_next(self) -> None:
        if not (self._waiting and self.ready_at and self._control) or self._forking is not None:
            return
        if self._is_leaving:
            return
        child, fork = self._waiting.popleft()
        self._forking = child, fork.serial
        # It may have ended, and we are about to hear of it.
        with suppress(OSError):
            self._control.send(msgspec.json.encode(fork))

    def _take(self, answer: Answer, now: float) -> None:
        match answer, self._forking:
            case Loaded(pss, note), _:
                self.ready_at, self.shared, self.note = now, pss, note
            case Unfit(why), _:
                self.why = why
            case Came(serial, pid), (child, asked) if serial == asked:
                self._children.came(child, pid)
                self._forking = None
            case Failed(serial, why, code), (child, asked) if serial == asked:
                _give_up(child, why, code)
                self._forking = None
        self._ask_next()

    def _fail_all(self) -> None:
        """Give up the drivers that were to come: when it could not even load, by its exit code, and
        else only for this time."""
        children = [child for child, _ in self._waiting]
        if self._forking is not None:
            children.append(self._forking[0])
        self._waiting.clear()
        self._forking = None
        ended, code = self.child.exit, _LATER
        words = "what it was to be forked from has gone"
        if not (self.ready_at or self._is_let_go):
            words = self.why or f"the process that stage {self.load.stage} is loaded in: {ended}"
            code = _CANNOT_FORK if ended is None or ended.code is None else ended.code
        for child in children:
            _give_up(child, words, code)

    def _close(self) -> None:
        """Close the socket: a template that listens leaves by that."""
        if self._control is not None:
            self._control.close()
            self._control = None


class Templates:
    """What the drivers of a stage are forked from, and what it was before."""

    def __init__(self, load: Load | None, local: str, children: Children) -> None:
        # What one would be told now; None: drivers begin anew.
        self.load = load
        self.template: Template | None = None
        # Told to leave, and not gone yet.
        self._former: list[Template] = []
        # What is remembered of those that ended by themselves.
        self._past = Past()
        self._local = local
        self._children = children

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when a template has said something."""
        return [fd for one in self._all for fd in one.fds]

    @property
    def _all(self) -> list[Template]:
        return [*self._former, *([self.template] if self.template else [])]

    @property
    def shared(self) -> int:
        """Return the bytes that drivers have in common."""
        return self.template.shared if self.template else 0

    @property
    def settled(self) -> bool:
        """Return whether nothing is loaded any more, but for what not even SIGKILL ends."""
        return self.template is None and all(one.child.rung == "stuck" for one in self._former)

    def receive(self, now: float) -> None:
        """Take in what the templates have said."""
        for one in self._all:
            one.receive(now)

    @property
    def restart(self) -> str:
        """The request by which the template was loaded anew."""
        return self.load.restart if self.load else ""

    def tend(self, stage: Stage, now: float, *, needed: bool, again: bool) -> float:
        """Let a template go that is not needed, not what it would be now, or of no use; with
        `again`, load anew one that has ended by itself. Return when to come back."""
        self._former = [one for one in self._former if not one.has_ended]
        due = math.inf
        if (template := self.template) is not None:
            due = template.tend(stage.startup_timeout, now)
            if not needed or template.load != self.load:
                self.leave(now)
                self._past = Past()
            elif not template.takes_orders:
                self._past = remember(self._past, template.life(now), stage, 0.0)
                self.leave(now)
        if again and self.load is not None and self.template is None:
            if now < self._past.not_before:
                return self._past.not_before
            self._get(self.load, stage, now)
        return due

    def fork(self, order: Order, stage: Stage, now: float) -> Child | None:
        """Ask for a driver with this order, of one that begins to load if there is none; return
        None for a stage whose drivers begin anew."""
        if self.load is None:
            return None
        return self._get(self.load, stage, now).fork(encode(order), order.parent)

    def _get(self, load: Load, stage: Stage, now: float) -> Template:
        if self.template is None or not self.template.takes_orders:
            self.leave(now)
            path = log_path(self._local, f"{stage.name}-load")
            log = open_log(path, stage.log_size, stage.log_keep)
            try:
                self.template = Template(load, self._children, now, log)
            finally:
                os.close(log)
        return self.template

    def leave(self, now: float) -> None:
        """Let what is loaded go; drivers stay."""
        if self.template is not None:
            self.template.leave(now)
            self._former.append(self.template)
            self.template = None


def _give_up(child: Child, words: str, code: int) -> None:
    child.failure, child.exit = words, Exit(code=code)
