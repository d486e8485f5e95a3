"""A life of a driver, or of a broker: from queues that are open to its last word."""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from queuedriver.claims.heartbeat import Heartbeat
from queuedriver.claims.liveness import CRASHED, PAST, draw_salt
from queuedriver.disk.processes import process_ticks
from queuedriver.driving.closing import close_if_fed
from queuedriver.driving.limits import QUIT_FILE, Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.driving.loop import Loop
from queuedriver.driving.plan import Quit
from queuedriver.driving.setup import Opened
from queuedriver.errors import QueueError
from queuedriver.format import names
from queuedriver.format.records import Counters, Registration
from queuedriver.options import Options


class Left(NamedTuple):
    """The end of a driver: its last word, why, and the exit code that says so."""

    word: str
    why: str
    exit_code: int
    counters: Counters


class Life:
    """How drivers and brokers come and go."""

    def __init__(self, options: Options, board: Board | None) -> None:
        self.options = options.check()
        # The id it got, once it runs.
        self.id = ""
        # What could not be noted in the journals, once it has left.
        self.unnoted: tuple[str, ...] = ()
        # Where a watchdog sees what it does, and the process that is; 0: none, or it need not live.
        self._board = board
        self.supervisor = 0
        self._tally = Tally(board)
        self._loop: Loop | None = None

    def _register(
        self, found: Opened, processor: str, limits: Limits, *, broker: bool = False
    ) -> Heartbeat:
        """Say that it is there, and go on saying it. Inside `opened`, so that nobody else does."""
        self.id = found.mint.driver
        mints.add(found.mint)
        queues, supervisor = found.queues, self.supervisor
        output_ids = queues[0].opened_as
        past = tuple(found.past)[:PAST]
        registration = Registration(
            id=self.id,
            salt=found.mint.salt,
            past=past,
            left=found.left[:PAST],
            identity=found.observer.me,
            processor=processor,
            inputs=tuple(queue.path for queue in queues),
            outputs=tuple(target.directory.path for target in found.targets),
            output_ids=output_ids,
            past_output_ids={
                salt: found.past[salt] for salt in past if found.past[salt] != output_ids
            },
            started_at=time.time(),
            dump=str(limits.dump.name) if limits.dump is not None else "",
            broker=broker,
            network=found.network,
            batch=self.options.batch,
            supervisor=supervisor,
            supervisor_ticks=(supervisor and process_ticks(supervisor)) or 0,
        )

        def look() -> None:
            # The loop looks between documents, and a document may take hours.
            if any(queue.directory.present(names.QUIT) for queue in queues):
                limits.leave("quit", QUIT_FILE)
            if limits.leaving_at is not None and not registration.leaving:
                # It may be ended before it has left, and that will not be the document's doing.
                registration.leaving = limits.why
                beats.write()

        directories = [queue.drivers for queue in queues]
        durable = any(queue.durable for queue in queues)
        beats = Heartbeat(registration, directories, self._report, look, durable)
        beats.start()
        return beats

    def _lead(self, found: Sequence[Opened], limits: Limits, make_loop: Callable[[], Loop]) -> Quit:
        """Loop over queues that are open and registered for, at the latest when the loop is made,
        until there is a reason to leave; return it."""
        end = Quit(CRASHED, "it ended by an error", 70)
        loop: Loop | None = None
        try:
            loop = make_loop()
            is_first = self._loop is None
            # Signals, and the time-outs made of them, are the main thread's alone.
            if is_first and threading.current_thread() is threading.main_thread():
                limits.install()
            loop.begin()
            if is_first:
                self._tally.start()
            self._loop = loop
            if self._board is not None:
                self._board.ready(time.monotonic())
            end = loop.run()
            loop.farewell(end)
            for one in found:
                finish(one, end)
        except QueueError as error:
            end = Quit("failed", str(error), error.exit_code)
            raise
        finally:
            if loop is not None:
                loop.close()
            # One that could not even register has no last word.
            for one in found:
                self.unnoted += say_goodbye(one, end)
        return end

    def _report(self) -> tuple[str, str, Counters]:
        """Return what it does right now; asked by another thread."""
        loop = self._loop
        if loop is None:
            return "starting", "", self._tally.counters()
        return loop.state, loop.why, loop.counters()

    def _left(self, end: Quit) -> Left:
        """Return how it left, with the exit code that says what became of its documents."""
        code = end.exit_code or int(self.options.drain and self._tally.discarded > 0)
        return Left(end.word, end.why, code, self._tally.counters())


def finish(found: Opened, end: Quit) -> None:
    """Forget what has ended, where all has; and close the outputs of inputs that are done: an
    output is done when all that feed it are."""
    with contextlib.suppress(OSError):
        for queue in found.queues if end.word in ("done", "drained") else ():
            queue.recoverer.forget_ended()
    for target in found.targets if end.word == "done" else ():
        if target.publication.is_queue:
            close_if_fed(target.directory)


def say_goodbye(found: Opened, end: Quit) -> tuple[str, ...]:
    """Say the last word, so that nobody takes our absence for a crash; on a file system that is
    not well, it has to be noticed without. Return what could not be noted in the journals."""
    with contextlib.suppress(OSError):
        found.beats.leave(end.word, end.why)
    found.beats.stop()
    for queue in found.queues:
        queue.note_handed_over()
        queue.journal.close()
    return tuple(queue.journal.unnoted for queue in found.queues if queue.journal.unnoted)


# Those of this process. A fork that goes on as a driver must never form an N that we form, too.
mints: "weakref.WeakSet[names.Mint]" = weakref.WeakSet()


def _draw_anew() -> None:
    for mint in mints:
        mint.renew(draw_salt())


os.register_at_fork(after_in_child=_draw_anew)
