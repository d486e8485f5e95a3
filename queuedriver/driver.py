"""A driver: takes documents from input queues and hands over what comes of them. Read this first.

startup.py   what must be so before the first claim
loop.py      look, plan, act, until there is a reason to leave
turn.py      one turn of work: claim, process, complete or set back
hands.py     the claims at hand, and how each ends
handoff.py   the names on disk that a claim goes through
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

from queuedriver import names
from queuedriver.backpressure import BackPressure
from queuedriver.beats import Beats
from queuedriver.board import Board
from queuedriver.errors import QueueError
from queuedriver.hands import Hands
from queuedriver.limits import Limits
from queuedriver.liveness import CRASHED, Counters, Observer, draw_salt
from queuedriver.loop import Loop
from queuedriver.options import Options
from queuedriver.plan import Quit
from queuedriver.presence import cascade, forget_ended, register, say_goodbye
from queuedriver.processors.base import Processor, check_output
from queuedriver.processors.call import CallProcessor
from queuedriver.runtime import stacks_file
from queuedriver.startup import Crew, assemble
from queuedriver.tally import Tally
from queuedriver.turn import Turn
from queuedriver.wake import Waker

Path = str | os.PathLike[str]


class Left(NamedTuple):
    """How a driver left: its last word, why, and the exit code that says so."""

    word: str
    why: str
    exit_code: int
    counters: Counters


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
        outputs: Path | Sequence[Path] | None = None,
        *,
        id: str | None = None,
        options: Options | None = None,
        board: Board | None = None,
    ) -> None:
        self.options = (options or Options()).check()
        self.processor: Processor = (
            processor if isinstance(processor, Processor) else CallProcessor(processor)
        )
        self._inputs = _paths(inputs)
        # None: nobody has said that there is to be none.
        self._outputs = _paths(outputs or ())
        if not self._outputs:
            check_output(self.processor, outputs is not None)
        self._wanted_id = id
        # The id it got, once it runs.
        self.id = ""
        # Where a watchdog sees what it does.
        self._board = board
        self._tally = Tally(board)
        self._loop: Loop | None = None
        self._limits: Limits | None = None
        # The N of every claim at hand: what else carries our id on disk was lost track of.
        self._held: set[str] = set()
        # What could not be noted in the journals, once it has left.
        self.unnoted: tuple[str, ...] = ()

    def run(self) -> Left:
        """Drive until told to leave. QueueError when it cannot even start."""
        options = self.options
        with contextlib.ExitStack() as at_end:
            dump = at_end.enter_context(self._stacks())
            limits = Limits(options.timeout, options.hard_after, options.grace, dump, self._board)
            at_end.callback(limits.close)
            observer, held = Observer(), self._held
            with assemble(
                self._inputs, self._outputs, self._wanted_id, options, observer, held
            ) as crew:
                beats = register(crew, options, self.processor.name, self._report, limits, dump)
            self.id, self._limits = crew.driver, limits
            paths = [lane.queue.path for lane in crew.lanes]
            waker = Waker(paths, options.poll, limits.wake_fd, is_waiting)
            mint = names.Mint(crew.driver, crew.salt)
            _mints.add(mint)
            hands = Hands(mint, held, self._tally)
            turn = Turn(self.processor, limits, hands, beats, options.batch)
            pressure = BackPressure(
                options, crew.targets, observer, lambda: max(lane.sharers for lane in crew.lanes)
            )
            loop = Loop(crew.lanes, turn, limits, pressure, waker, self._tally, options)
            return self._drive(crew, loop, limits, waker, beats)

    def _drive(self, crew: Crew, loop: Loop, limits: Limits, waker: Waker, beats: Beats) -> Left:
        end = Quit(CRASHED, "it ended by an error", 70)
        # Signals, and the time-outs made of them, are the main thread's alone.
        in_main = threading.current_thread() is threading.main_thread()
        if in_main:
            limits.install()
        try:
            self.processor.start(f"{crew.driver}-{crew.salt}")
            self._tally.start()
            self._loop = loop
            if self._board is not None:
                self._board.ready(time.monotonic())
            end = loop.run()
            if end.word in ("done", "drained"):
                forget_ended(crew.lanes)
            if end.word == "done":
                cascade(crew)
        except QueueError as error:
            end = Quit("failed", str(error), error.exit_code)
            raise
        finally:
            self.processor.stop()
            waker.close()
            if in_main:
                limits.restore()
            say_goodbye(crew, beats, end)
            journals = (lane.journal for lane in crew.lanes)
            self.unnoted = tuple(one.unnoted for one in journals if one.unnoted)
            if self._board is not None:
                self._board.left(end.word, end.why, end.exit_code)
        code = end.exit_code
        if self.options.drain and self._tally.discarded and not code:
            code = 1
        return Left(end.word, end.why, code, self._tally.counters())

    @contextlib.contextmanager
    def _stacks(self) -> Iterator[FileIO | None]:
        """Where this driver's stacks go when it hangs: by its own hard limit, or by SIGUSR2 of the
        watchdog that is about to end it."""
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
        """What it does right now; to be asked from another thread."""
        limits = self._limits
        leaving = limits.why if limits is not None and limits.leaving_at is not None else ""
        state, why, counters = self._report()
        return Progress(state, why, len(self._held), leaving, counters)

    def _report(self) -> tuple[str, str, Counters]:
        loop = self._loop
        state, why = ("starting", "") if loop is None else (loop.state, loop.why)
        return state, why, self._tally.counters()


# Those of this process. A fork that goes on as a driver must never form an N that we form, too.
_mints: "weakref.WeakSet[names.Mint]" = weakref.WeakSet()


def _draw_anew() -> None:
    for mint in _mints:
        mint.salt = draw_salt()


os.register_at_fork(after_in_child=_draw_anew)


def _paths(given: Path | Sequence[Path]) -> tuple[Path, ...]:
    return (given,) if isinstance(given, str | os.PathLike) else tuple(given)


def is_waiting(name: str) -> bool:
    """Whether a name that appears in an input is worth waking for. Our own claims are not."""
    if not name.endswith((".working", ".written")):
        return name in names.CONTROLS or names.parse(name) is not None
    return False
