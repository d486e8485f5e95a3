"""A driver: takes documents from input queues and hands over what comes of them. Read this first.

    setup.py        what must be so before the first claim
    driver.py       start; claim and turn, or pause, until there is a reason to leave
    loop.py         the looks and pauses in between, and trouble with the file system
    group.py        finished documents of a durable queue that wait for one sync
    breaker.py      whether the stage stops itself, as its documents all fail for one cause
    plan.py         whether to wait, and how long, or to leave; pure
    input_queue.py  one open queue: claims, and how each ends
    handoff.py      the names on disk that a claim goes through

Signals only record (`limits.py`). What the file system cannot do right now pauses the driver and
charges no document. Everything that was asked of it is in `Options`.
"""

import contextlib
import faulthandler
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from typing import NamedTuple

from queuedriver.claims.handoff import Claim, hand_over
from queuedriver.claims.heartbeat import Heartbeat
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import CRASHED, draw_salt
from queuedriver.claims.outcomes import DONE, Ending, Released, from_exception
from queuedriver.disk.runtime import stacks_file
from queuedriver.driving.group import Group, Process
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.driving.loop import Left, Loop, finish, left, register, say_goodbye
from queuedriver.driving.plan import Quit
from queuedriver.driving.setup import Opened, check_output, opened
from queuedriver.errors import ConfigError, FileSystemTrouble, Interrupted, QueueError
from queuedriver.format import names
from queuedriver.format.records import Counters
from queuedriver.options import Options
from queuedriver.processors.base import BatchProcessor, Processor
from queuedriver.processors.call import CallProcessor

# How a turn ends that went as usual.
_ONE_DONE: tuple[Ending, ...] = (DONE,)

Path = str | os.PathLike[str]


# The last word of a life that ends because an output was replaced; another one begins.
REPLACED = "replaced"


class Progress(NamedTuple):
    """What a driver does right now, for whoever shows it."""

    state: str
    why: str
    # How many documents it has claimed, and why it is to leave; empty while it is not.
    at_hand: int
    leaving: str
    counters: Counters


class Driver:
    """Drives a processor over input queues.

    Driver("in", lambda document: document.read().upper(), "out").run()
    """

    def __init__(
        self,
        inputs: Path | Sequence[Path],
        processor: Processor | Callable[..., object],
        outputs: Path | Sequence[Path] = (),
        *,
        id: str | None = None,
        options: Options | None = None,
        board: Board | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.options = (options or Options()).check()
        self.processor: Processor = (
            processor if isinstance(processor, Processor) else CallProcessor(processor)
        )
        self._inputs = _paths(inputs)
        self._outputs = _paths(outputs)
        check_output(self.processor, bool(self._outputs), no_output=self.options.no_output)
        self._wanted_id = id
        # The id it got, once it runs.
        self.id = ""
        # What could not be noted in the journals, once it has left.
        self.unnoted: tuple[str, ...] = ()
        # Where a watchdog sees what it does.
        self._board = board
        self._tally = Tally(board)
        self._limits: Limits | None = None
        self._loop: Turns | None = None
        self._clock = clock

    def run(self) -> Left:
        """Drive until told to leave. QueueError when it cannot even start."""
        # Of an earlier run nothing is left.
        self.id, self._loop, self.unnoted = "", None, ()
        with contextlib.ExitStack() as at_end:
            dump = at_end.enter_context(self._stacks())
            options = self.options
            limits = Limits(options.timeout, options.hard_after, options.grace, dump, self._board)
            at_end.callback(limits.close)
            at_end.callback(limits.restore)
            while True:
                end = self._live(limits, dump)
                if end.word != REPLACED:
                    break
            if self._board is not None:
                self._board.left(end.word, end.why, end.exit_code)
            return left(end, self._tally, self.options)

    def _live(self, limits: Limits, dump: FileIO | None) -> Quit:
        """Open, register and drive, until there is a reason to leave; return it. A life ends also
        when an output was replaced: the next one has an N of its own, so nobody takes what was
        committed to the one directory for published in the other."""
        beats: list[Heartbeat] = []
        with opened(
            self._inputs,
            self._outputs,
            self.id or self._wanted_id,
            self.options,
            lambda found: beats.append(self._register(found, limits, dump)),
            follows=self._loop is not None,
        ) as found:
            self.id, self._limits = found.mint.driver, limits
            mints.add(found.mint)
            options, tally = self.options, self._tally
            loop = Turns(found, self.processor, beats[0], limits, tally, options, self._clock)
            return self._drive(found, loop, beats[0], limits)

    def _register(self, found: Opened, limits: Limits, dump: FileIO | None) -> Heartbeat:
        return register(found, self.options, self.processor.name, self._report, limits, dump)

    def _drive(self, found: Opened, loop: "Turns", beats: Heartbeat, limits: Limits) -> Quit:
        end = Quit(CRASHED, "it ended by an error", 70)
        # Signals, and the time-outs made of them, are the main thread's alone.
        if self._loop is None and threading.current_thread() is threading.main_thread():
            limits.install()
        try:
            self.processor.start(f"{found.mint.driver}-{found.mint.salt}")
            if self._loop is None:
                self._tally.start()
            self._loop = loop
            if self._board is not None:
                self._board.ready(time.monotonic())
            end = loop.run()
            finish(found, end)
        except QueueError as error:
            end = Quit("failed", str(error), error.exit_code)
            raise
        finally:
            self.processor.stop()
            loop.count()
            loop.waker.close()
            self.unnoted += say_goodbye(found, beats, end)
            if self._board is not None and end.word in (CRASHED, "failed"):
                self._board.left(end.word, end.why, end.exit_code)
        return end

    @contextlib.contextmanager
    def _stacks(self) -> Iterator[FileIO | None]:
        """Open where this driver's stacks go when it hangs: by its own hard limit, or by SIGUSR2
        of the watchdog that is about to end it."""
        if self.options.timeout is None and self._board is None:
            yield None
            return
        with stacks_file() as dump:
            if self._board is not None:
                self._board.stacks_go_to(os.path.basename(dump.name))
                faulthandler.register(signal.SIGUSR2, dump, all_threads=True)
            try:
                yield dump
            finally:
                if self._board is not None:
                    faulthandler.unregister(signal.SIGUSR2)

    def progress(self) -> Progress:
        """Return what it does right now; to be asked from another thread."""
        limits = self._limits
        leaving = limits.why if limits is not None and limits.leaving_at is not None else ""
        state, why, counters = self._report()
        at_hand = len(self._loop.at_hand) if self._loop is not None else 0
        return Progress(state, why, at_hand, leaving, counters)

    def _report(self) -> tuple[str, str, Counters]:
        loop = self._loop
        if loop is None:
            return "starting", "", self._tally.counters()
        return loop.state, loop.why, loop.counters()


class Turns(Loop):
    """The loop of a driver: claims what waits, and processes it turn by turn."""

    def __init__(
        self,
        found: Opened,
        processor: Processor,
        beats: Heartbeat,
        limits: Limits,
        tally: Tally,
        options: Options,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(found, limits, tally, options, clock)
        # The claims at hand.
        self.at_hand: Sequence[Claim] = ()
        self._process: Process = processor.process
        self._batches = processor if isinstance(processor, BatchProcessor) else None
        self._beats = beats
        self.breaker.beats = (beats,)
        self._alone = options.batch == 1
        # Whether somebody wants to know when each document begins and ends: a watchdog, a limit, a
        # group of documents that wait.
        durable = any(queue.durable for queue in self.queues)
        self._watched = any((options.timeout, options.max_documents, tally.board, durable))
        self._outputs = [target.directory for target in found.targets]
        # The path of an output in whose place another directory is by now.
        self._replaced = ""
        # Why it cannot go on, though what it had at hand is given back.
        self._hopeless: ConfigError | None = None
        # Finished documents of a durable queue that wait for one sync; None: there are no syncs.
        self.group: Group | None = None
        if self._alone and durable:
            self.group = Group(self._hand_over_group, self._look_soon, self.clock)
            self._process = self.group.around(processor.process)
            for queue in self.queues:
                queue.at_hand = self.group.claims.keys()

    def run(self) -> Quit:
        """Look, claim and turn, or pause, until there is a reason to leave."""
        if self.group is None:
            return self._run()
        self.group.start()
        try:
            return self._run()
        finally:
            try:
                self.group.flush()
            except OSError as error:
                self.group.give_back(error)
            finally:
                self.group.close()

    def _run(self) -> Quit:
        clock, limits, queues, most = self.clock, self.limits, self.queues, self.options.batch
        while True:
            try:
                if clock() >= self.look_at or (limits.leaving_at is not None and self.go):
                    self.look()
                if self.go and (not self.limited or (most := self._room())):
                    for queue in queues:
                        claims = queue.claim(queue.waiting, most) if queue.waiting else None
                        if (claims and most == 1) or (claims := self._more(queue, claims, most)):
                            break
                    if claims:
                        self.turn(claims)
                        continue
                if (end := self.rest()) is not None:
                    return end
            except OSError as error:
                self.at_hand = ()
                if self.group is not None:
                    self.group.give_back(error)
                self.on_trouble(error)

    def look(self) -> None:
        """Look at what need not be looked at before each document."""
        if self.group is not None:
            self.group.raise_error()
        self._see_outputs()
        super().look()

    def mend(self) -> None:
        """Open everything anew, to see whether all is well again; unless an output was replaced,
        which only another life can follow."""
        self._see_outputs()
        if not self._replaced:
            super().mend()

    def _see_outputs(self) -> None:
        self._replaced = next((one.path for one in self._outputs if one.replaced()), "")

    def wish(self) -> tuple[str, str]:
        """Return the last word on leaving, and why; "" while there is nothing to leave for."""
        word, why = super().wish()
        if not word and self._replaced:
            return REPLACED, f"another directory is at {self._replaced} by now"
        return word, why

    def rest(self) -> Quit | None:
        """Pause, as there is nothing to do now. Return why to leave, if that is it."""
        if self.group is not None:
            self.group.flush()
        if self.may_try() and (not self.limited or self._room()):
            if claims := self.breaker.claim(self.clock()):
                self.turn(claims)
            return None
        return super().rest()

    # Claim

    def _room(self) -> int:
        """Return how many documents may be claimed: 0 while the outputs take no more."""
        return int(max(0, min(self.options.batch, self.pressure.room(self.published))))

    def _more(self, queue: InputQueue, claims: list[Claim] | None, most: int) -> list[Claim] | None:
        """List what waits, and claim it, until there are as many claims as there may be."""
        claims = claims or []
        now, alone = self.clock(), len(self.queues) == 1
        while True:
            if not queue.waiting and not queue.list_more(now, alone=alone):
                return claims
            if len(claims) >= most or not queue.may_join(claims):
                return claims
            claims += queue.claim(queue.waiting, most - len(claims))

    # Act

    def turn(self, claims: list[Claim]) -> None:
        """Process claimed documents, and end each: handed over, charged, postponed or given back.

        An OSError says that the file system is not well; nothing has been charged for it.
        """
        first = claims[0]
        queue = first.of
        self.at_hand = claims
        if self.resting:
            self.begin_work()
        if self._watched:
            self.tally.began(first.docid, len(claims))
            self.limits.begin()
            if self.group is not None:
                self.group.before(first)
        began = self.clock()
        endings: Sequence[Ending] = _ONE_DONE
        if self._alone:
            try:
                self._process(first, first.outputs, self.limits)
                if not first.seen:
                    first.check()
            except (Exception, Interrupted, SystemExit) as error:  # noqa: BLE001 - the user's code
                endings = (self._ending(error),)
        else:
            endings = self._process_batch(claims)
        ended = self.clock()
        if ended >= self.look_at:
            self._fence(claims)
        if endings is _ONE_DONE and first.outputs.blind and hand_over(first):
            at, worked = ended + self.clocks, ended - began
            queue.handed_over.append(
                (at, "published", first.docid, first.token, worked, first.published)
            )
        elif self.group is not None and endings is _ONE_DONE:
            self.group.add(first, ended - began)
        else:
            self._end(queue, claims, endings, ended - began)
        if self._watched:
            self.count()
            if self.tally.documents >= self.recycling.documents:
                self.look_at = 0.0
            self.tally.ended()
        self.at_hand = ()

    def _process_batch(self, claims: list[Claim]) -> list[Ending]:
        """Process several documents in one call; who spoils it for all is found by trying each
        alone. One by one, where the processor takes one at a time."""
        processor = self._batches
        if processor is None:
            return [self._process_alone(claim) for claim in claims]
        self.limits.begin()
        try:
            batch = [(claim, claim.outputs) for claim in claims]
            found = processor.process_batch(batch, self.limits)
            return [
                _unread(claim) if error is None else self._ending(error)
                for claim, error in zip(claims, found, strict=True)
            ]
        except (Exception, Interrupted, SystemExit) as error:  # noqa: BLE001 - the user's code
            ending = self._ending(error)
            for_all = isinstance(ending, Released) or isinstance(error, FileSystemTrouble)
            if len(claims) == 1 or for_all:
                return [ending for _ in claims]
        endings: list[Ending] = []
        for claim in claims:
            claim.outputs.discard()
            endings += self._process_batch([claim])
        return endings

    def _process_alone(self, claim: Claim) -> Ending:
        """Process one document of several, unless what speaks against it has come meanwhile."""
        if self._hopeless is not None:
            return Released(str(self._hopeless))
        self.limits.begin()
        try:
            self._process(claim, claim.outputs, self.limits)
        except (Exception, Interrupted, SystemExit) as error:  # noqa: BLE001 - the user's code
            return self._ending(error)
        return _unread(claim)

    def _ending(self, error: BaseException) -> Ending:
        """Return what a processor's exception means for its document."""
        if isinstance(error, ConfigError):
            # No document can be blamed for a program that cannot start: leave, and say so.
            self._hopeless = error
            return Released(str(error))
        return from_exception(error)

    def _fence(self, claims: Sequence[Claim]) -> None:
        """Show life before a commit: who has not for long may have been declared dead."""
        try:
            self._beats.fresh()
        except OSError as error:
            for claim in claims:
                claim.of.abandon(claim, error)
            raise

    def _hand_over_group(self, claims: Sequence[Claim], seconds: float) -> None:
        """Hand over finished documents that waited for each other."""
        self._fence(claims)
        self._end(claims[0].of, claims, [DONE] * len(claims), seconds)

    def _end(
        self, queue: InputQueue, claims: Sequence[Claim], endings: Sequence[Ending], seconds: float
    ) -> None:
        try:
            queue.end(claims, endings, seconds)
        finally:
            self.tally.book([claim.fate for claim in claims], seconds)
        if self._hopeless is not None:
            raise self._hopeless


# Those of this process. A fork that goes on as a driver must never form an N that we form, too.
mints: "weakref.WeakSet[names.Mint]" = weakref.WeakSet()


def _draw_anew() -> None:
    for mint in mints:
        mint.renew(draw_salt())


os.register_at_fork(after_in_child=_draw_anew)


def _paths(given: Path | Sequence[Path]) -> tuple[Path, ...]:
    return (given,) if isinstance(given, str | os.PathLike) else tuple(given)


def _unread(claim: Claim) -> Ending:
    """Return "done", unless nobody has looked at the document, and it is none."""
    try:
        if not claim.seen:
            claim.check()
    except (Exception, Interrupted) as error:  # noqa: BLE001 - what it cannot be is told as any
        return from_exception(error)
    return DONE
