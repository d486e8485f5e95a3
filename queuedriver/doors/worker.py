"""A worker: takes what a broker deals, runs a processor on it, sends what comes of it.

One document at a time, in the main thread, so that time-outs and signals work as they do in a
driver; to have more, start more workers. While a document is processed nothing is heard or said,
and no protocol takes that for a death.
"""

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from io import FileIO

from queuedriver.claims.outcomes import Failed, Postponed, Released, Setback, from_exception
from queuedriver.doors.transports.base import Arrival, Joined, Message, Transport
from queuedriver.doors.words import (
    Effects,
    Leave,
    Process,
    Reconnect,
    Result,
    Say,
    Send,
    Work,
    WorkerSession,
)
from queuedriver.doors.workspace import Workspace
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.driving.recycling import Recycling
from queuedriver.errors import ConfigError, Interrupted, RemoteProtocolError
from queuedriver.options import Options
from queuedriver.processors.base import Processor

# Longest sleep in seconds, so that age and memory are looked at.
_LONGEST = 5.0
# How much later a document is to be tried that failed where the disk is full.
_DISK_PAUSE = 60.0
_STDERR = 2


class Worker:
    """One worker of one broker."""

    def __init__(
        self,
        session: WorkerSession,
        connect: Callable[[str], Transport],
        processor: Processor,
        *,
        options: Options | None = None,
        max_message: int,
        level: int = 0,
        say: Callable[[str], None] = lambda words: None,
        serve: Callable[[bytes, Sequence[bytes], float, float], Effects] | None = None,
        board: Board | None = None,
    ) -> None:
        self.options = (options or Options()).check()
        self.tally = Tally(board)
        self._session = session
        self._connect = connect
        self._processor = processor
        self._max_message = max_message
        self._level = level
        self._say = say
        # Without a broker: what is done with the frames of a client.
        self._serve = serve

    def run(self, marker: str) -> Leave:
        """Work until told to leave, by a signal or by the broker."""
        options = self.options
        with contextlib.ExitStack() as at_end:
            dump = at_end.enter_context(self._stacks())
            limits = Limits(options.timeout, options.hard_after, options.grace, dump)
            at_end.callback(limits.close)
            workspace = Workspace()
            at_end.callback(workspace.close)
            limits.install()
            at_end.callback(limits.restore)
            self._processor.start(marker)
            at_end.callback(self._processor.stop)
            self.tally.start()
            if self.tally.board is not None:
                self.tally.board.ready(time.monotonic())
            loop = _Loop(self, limits, workspace, self._connect(""))
            at_end.callback(loop.close)
            return loop.run()

    @contextlib.contextmanager
    def _stacks(self) -> Iterator[FileIO | None]:
        """Where its stacks go when it hangs beyond its hard limit, which ends it: to stderr, for
        no recoverer of this host will ever look for them."""
        if self.options.timeout is None:
            yield None
            return
        try:
            fd = os.dup(_STDERR)
        except OSError:
            fd = os.open(os.devnull, os.O_WRONLY)
        with FileIO(fd, "w") as dump:
            yield dump


class _Loop:
    """Hears, processes, says; one connection at a time."""

    def __init__(
        self, worker: Worker, limits: Limits, workspace: Workspace, transport: Transport
    ) -> None:
        self._worker = worker
        self._session = worker._session
        self._limits = limits
        self._workspace = workspace
        self._transport = transport
        self._recycling = Recycling(worker.options, time.monotonic())
        self._work: deque[Work] = deque()
        self._leave: Leave | None = None
        # Why we leave, once we have said so.
        self._leaving = ""
        # Said once, until it is heard of again.
        self._silent = False
        self._poll = self._polling()

    def close(self) -> None:
        self._transport.close()

    def run(self) -> Leave:
        self._carry_out(self._session.start(time.monotonic(), time.time()))
        while self._leave is None:
            self._hear()
            self._consider_leaving()
            if self._work and self._leave is None:
                self._process(self._work.popleft())
            elif self._leave is None:
                self._sleep()
        return self._leave

    def _hear(self) -> None:
        now, wall = time.monotonic(), time.time()
        transport = self._transport
        for arrival in transport.arrivals():
            try:
                self._carry_out(self._effects_of(arrival, now, wall))
            except RemoteProtocolError as error:
                self._worker._say(f"the broker sent what it may not: {error}")
            if self._transport is not transport:
                # The connection was closed amid this.
                break
        if (at := self._session.next_tick_at()) is not None and at <= now:
            self._carry_out(self._session.tick(now, wall))
        if (at := self._transport.next_tick_at()) is not None and at <= now:
            self._transport.tick(now)

    def _effects_of(self, arrival: Arrival, now: float, wall: float) -> Effects:
        if isinstance(arrival, Joined):
            return self._session.rejoined(now, wall)
        if not isinstance(arrival, Message):
            return []
        self._silent = False
        serve = self._worker._serve
        if serve is None:
            return self._session.receive(arrival.frames, now, wall)
        return serve(arrival.peer, arrival.frames, now, wall)

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if type(effect) is Send:
                self._transport.send(effect.peer, effect.frames)
            elif type(effect) is Process:
                self._work.append(effect.work)
            elif type(effect) is Reconnect:
                if not self._silent:
                    self._worker._say(f"{effect.why}; connecting anew, until it answers")
                self._silent = True
                # What else was to be done was for the connection that is no more.
                self._carry_out(self._reconnect(effect.to))
                return
            elif type(effect) is Leave:
                self._leave = effect
            elif type(effect) is Say and effect.level <= self._worker._level:
                self._worker._say(effect.words)

    def _reconnect(self, to: str) -> Effects:
        self._transport.close()
        self._transport = self._worker._connect(to)
        self._poll = self._polling()
        return self._session.start(time.monotonic(), time.time())

    def _consider_leaving(self) -> None:
        """Told to leave, or used up: what is not begun goes back, and then we go."""
        limits, now = self._limits, time.monotonic()
        asked = limits.leaving_at
        why = limits.why if asked is not None else ""
        why = why or self._leaving or self._recycling.due(now, self._worker.tally.documents)
        if not why:
            return
        self._say_goodbye(why, now)
        self._give_back(now)
        if asked is not None and (limits.hurried or now >= asked + limits.grace):
            # Whom we have said goodbye to may be gone, and never answer.
            self._leave = self._leave or Leave(why)

    def _say_goodbye(self, why: str, now: float) -> None:
        if not self._leaving:
            self._leaving = why
            self._carry_out(self._session.leave(now))

    def _give_back(self, now: float) -> None:
        """What was dealt to us and not begun."""
        while self._work:
            work = self._work.popleft()
            self._carry_out(self._session.failed(work.claim, Released(self._leaving), now))

    def _process(self, work: Work) -> None:
        tally = self._worker.tally
        tally.began(work.docid, 1)
        started = time.perf_counter()
        self._limits.begin()
        try:
            answer = self._answer(work)
        except ConfigError as error:
            # No document can be blamed for a program that cannot start: leave, and say so.
            self._work.appendleft(work)
            now = time.monotonic()
            self._say_goodbye(f"the worker cannot work: {error}", now)
            self._give_back(now)
            raise
        self._limits.idle()
        failed = not isinstance(answer, tuple)
        tally.worked(time.perf_counter() - started, 0 if failed else 1)
        now = time.monotonic()
        if self._limits.leaving_at is not None:
            # First, so that nothing more is dealt to us for it.
            self._say_goodbye(self._limits.why, now)
        if isinstance(answer, tuple):
            self._carry_out(self._session.finished(work.claim, answer, now))
        else:
            tally.failed += 1
            self._carry_out(self._session.failed(work.claim, answer, now))
        tally.ended()

    def _answer(self, work: Work) -> tuple[Result, ...] | Setback:
        """What comes of one document."""
        workspace = self._workspace
        document, outputs = workspace.lay_out(work)
        try:
            self._worker._processor.process(document, outputs, self._limits)
            return outputs.results(self._worker._max_message)
        except ConfigError:
            raise
        except (Exception, Interrupted, SystemExit) as error:  # noqa: BLE001 - the user's code
            setback = from_exception(error)
            if isinstance(setback, Failed) and (trouble := workspace.trouble()):
                return Postponed(_DISK_PAUSE, f"not its fault: {trouble}")
            return setback
        finally:
            workspace.clear()

    def _sleep(self) -> None:
        if self._transport.pending():
            return
        now = time.monotonic()
        until = now + _LONGEST
        for at in (self._session.next_tick_at(), self._transport.next_tick_at()):
            if at is not None and at < until:
                until = at
        seconds = max(0.0, until - now)
        woken = self._poll.poll(seconds * 1000)
        self._worker.tally.paused(blocked=False)
        if any(fd == self._limits.wake_fd for fd, _ in woken):
            self._limits.clear()

    def _polling(self) -> select.poll:
        poll = select.poll()
        for fd in (self._limits.wake_fd, *self._transport.fds()):
            poll.register(fd, select.POLLIN)
        return poll
