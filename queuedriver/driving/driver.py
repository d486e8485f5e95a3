"""A driver: takes documents from input queues and hands over what comes of them. Read this first.

    setup.py        what must be so before the first claim
    driver.py       start; claim and turn, or pause, until there is a reason to leave
    loop.py         the looks and pauses in between, and trouble with the file system; how it comes
                    and goes: registered, shown, its last word
    group.py        finished documents of a durable queue that wait for one sync
    breaker.py      whether the stage stops itself, as its documents all fail for one cause
    lifetime.py     how long it goes on: until it has done enough, or its time ends
    plan.py         whether to wait, and how long, or to leave; pure

and of `claims/`, in the order in which a document meets them:

    picking.py      the names to be tried next
    input_queue.py  one open queue: claims, and how each ends
    document.py     what the processor sees of it, and what it writes before the commit
    handoff.py      the names on disk that a claim goes through
    charging.py     what an attempt that is not done costs

Signals only record, but into code of the user's they raise (`limits.py`). What the file system
cannot do right now pauses the driver and charges no document. What was asked of it is in `Options`.
"""

import contextlib
import faulthandler
import functools
import itertools
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from typing import NamedTuple

from queuedriver.claims.charging import abandoning
from queuedriver.claims.handoff import Claim, hand_over
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.outcomes import ANYTHING, DONE, Ending, Released, from_exception
from queuedriver.disk.filesystem import is_replaced
from queuedriver.disk.runtime import stacks_file
from queuedriver.driving.group import Group
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.driving.loop import Left, Life, Loop
from queuedriver.driving.plan import Quit
from queuedriver.driving.setup import Opened, check_output, opened
from queuedriver.errors import ConfigError, FileSystemTrouble
from queuedriver.format.names import life_name
from queuedriver.format.records import Counters
from queuedriver.options import Options
from queuedriver.processors.base import BatchProcessor, Processor
from queuedriver.processors.call import CallProcessor

Path = str | os.PathLike[str]


# More documents than are ever claimed in a turn.
_MANY = 1 << 30
# So many that were handed over are noted, though there was no look yet: what is remembered of more
# of them takes memory that is new to the process, and that costs a tenth of a short document.
_NOTED_TOGETHER = 256
# The last word of a life that ends because an output was replaced; another one begins.
REPLACED = "replaced"


class Progress(NamedTuple):
    """The doings of a driver right now, for whoever shows them."""

    state: str
    why: str
    counters: Counters
    # How many documents it has claimed, and why it is to leave; empty while it is not.
    at_hand: int = 0
    leaving: str = ""


class Driver(Life):
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
        super().__init__(options or Options(), board)
        self.processor: Processor = (
            processor if isinstance(processor, Processor) else CallProcessor(processor)
        )
        self._inputs = _paths(inputs)
        self._outputs = _paths(outputs)
        check_output(self.processor, bool(self._outputs), no_output=self.options.no_output)
        self._wanted_id = id
        self._clock = clock

    def run(self, *, last: bool = False) -> Left:
        """Drive until told to leave. QueueError when it cannot even start.

        `last`: the process is about to end; what asks it to leave once more changes nothing.
        """
        # Of an earlier run nothing is left.
        self.id, self.since, self._loop, self.unnoted = "", 0.0, None, ()
        with (
            self._stacks() as dump,
            contextlib.closing(Limits(self.options, dump, self._board, last=last)) as limits,
        ):
            while (end := self._live(limits)).word == REPLACED:
                # Another life follows. It has an N of its own, so nobody takes what was committed
                # to the one directory for published in the other.
                pass
            if self._board is not None:
                self._board.left(end.word, end.why, end.exit_code)
        return self._left(end)

    def _live(self, limits: Limits) -> Quit:
        """Open, register and drive, until there is a reason to leave, or an output was replaced;
        return it."""
        queues = self._inputs, self._outputs, self.id or self._wanted_id
        how = self._tally, self.options, self._clock
        register = functools.partial(self._register, processor=self.processor.name, limits=limits)
        with opened(*queues, self.options, register, follows=self._loop is not None) as found:
            return self._lead([found], limits, lambda: Turns(found, self.processor, limits, *how))

    @contextlib.contextmanager
    def _stacks(self) -> Iterator[FileIO | None]:
        """Open where this driver's stacks go when it hangs: by its own hard limit, or by SIGUSR2
        of the watchdog that is about to end it."""
        if self.options.timeout is None and self._board is None:
            yield None
            return
        with stacks_file() as dump:
            if self._board is not None:
                self._board.stacks_go_to(str(dump.name))
                faulthandler.register(signal.SIGUSR2, dump, all_threads=True)
            try:
                yield dump
            finally:
                if self._board is not None:
                    faulthandler.unregister(signal.SIGUSR2)

    def progress(self) -> Progress:
        """Return what it does right now; to be asked from another thread."""
        loop = self._loop
        if not isinstance(loop, Turns):
            return Progress(*self._report())
        leaving = loop.limits.why if loop.limits.leaving_at is not None else ""
        return Progress(*self._report(), len(loop.at_hand), leaving)


class Turns(Loop):
    """The loop of a driver: claims what waits, and processes it turn by turn."""

    def __init__(
        self,
        found: Opened,
        processor: Processor,
        limits: Limits,
        tally: Tally,
        options: Options,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(found, limits, tally, options, clock)
        self._processor = processor
        # The claims at hand.
        self.at_hand: Sequence[Claim] = ()
        durable = options.batch == 1 and any(queue.durable for queue in self.queues)
        # Finished documents of a durable queue that wait for one sync.
        self.group = Group(self._hand_over_group, self.clock)
        self._process = self.group.around(processor.process) if durable else processor.process
        self._batches: BatchProcessor | None = None
        if options.batch > 1 and isinstance(processor, BatchProcessor):
            self._batches = processor
        self._beats = found.beats
        # The paths of the outputs, and what each was when it was opened: after trouble another may
        # be.
        outputs = [target.directory for target in found.targets]
        self._outputs = [(one.path, one.status()) for one in outputs]
        # Whether another document may have to be handed over before the next.
        self._durable = durable
        # Whether somebody wants all counts after each turn.
        self._counts = bool(tally.board or options.max_documents)
        # Why it cannot go on, though what it had at hand is given back.
        self._hopeless: ConfigError | None = None
        if durable:
            for queue in self.queues:
                queue.group(self.group.claims.keys())

    def begin(self) -> None:
        """Load the processor."""
        mint = self.queues[0].mint
        self._processor.start(life_name(mint.driver, mint.salt))

    def close(self) -> None:
        """End the processor; then as any loop."""
        self._processor.stop()
        super().close()

    def run(self) -> Quit:
        """Look, claim and work, or pause, until there is a reason to leave."""
        with self.group:
            while True:
                try:
                    if self.clock() >= self.look_at or self.limits.leaving_at is not None:
                        self.look()
                    if not (self.go and self._work()) and (end := self.rest()) is not None:
                        return end
                except OSError as error:
                    self.at_hand = ()
                    self.group.give_back(error)
                    self.on_trouble(error)

    def mend(self) -> None:
        """Open everything anew, to see whether all is well again; unless an output was replaced,
        which only another life can follow."""
        if not self._replaced():
            super().mend()

    def _replaced(self) -> str:
        """Return the path of an output in whose place another directory is by now."""
        return next((path for path, was in self._outputs if is_replaced(path, was)), "")

    def wish(self) -> tuple[str, str]:
        """Return the last word on leaving, and why; "" while there is nothing to leave for."""
        word, why = super().wish()
        if not word and (path := self._replaced()):
            return REPLACED, f"another directory is at {path} by now"
        return word, why

    def rest(self) -> Quit | None:
        """Pause, as there is nothing to do now. Return why to leave, if that is it."""
        self.group.flush()
        if self.may_try() and self._most():
            if claims := self.breaker.claim(self.clock(), self.unpaused):
                self.turn(claims)
            return None
        return super().rest()

    # Work

    def _work(self) -> bool:
        """Work off what waits in the first queue that has anything and is not paused. Return
        whether one has."""
        most = self._most()
        now = self.clock()
        for queue in self.unpaused if most else ():
            waiting = queue.waiting
            if not (waiting.names or waiting.list_more(now)):
                continue
            if self.tally.board is not None:
                self.tally.waited(waiting.waited(waiting.names[-1]))
            if self.options.batch == 1:
                self.work_off(queue, waiting.names, most, usual=waiting.usual)
                return True
            if claims := queue.claim_some(most, now):
                self.turn(claims)
                return True
        return False

    @property
    def published(self) -> int:
        """Return how many outputs have become visible, or will when their group is handed over."""
        return super().published + len(self.group.claims)

    @property
    def _done_or_waiting(self) -> int:
        """Return how many documents are done, or will be when their group is handed over."""
        return self.tally.documents + len(self.group.claims)

    def _most(self) -> int:
        """Return how many documents may be claimed before one asks again: a batch, or those that
        are handed over one by one; 0 while the outputs take no more, or none would be done in
        time."""
        batch, published = self.options.batch, self.published
        room = self.pressure.room(published) if self.limited else math.inf
        fitting = math.inf if self._time_left is None else self._time_left.documents(time.time())
        if not fitting:
            self._look_soon()
        if batch == 1 <= min(room, fitting):
            enough = self.recycling.documents - self._done_or_waiting
            room = max(1.0, min(enough, self.pressure.until_look(published)))
        return int(max(0.0, min(room, fitting, batch if batch > 1 else _MANY)))

    def work_off(
        self,
        queue: InputQueue,
        waiting: list[str],
        most: int = _MANY,
        *,
        usual: bool = False,
    ) -> None:
        """Claim these names one by one, process each document and end it: handed over, charged,
        postponed or given back; until that were so many, it is time to look, or something was not
        as usual.

        An OSError says that the file system is not well; what is charged then: `charging.set_back`.
        """
        clock, clocks, limits, process = self.clock, self.clocks, self.limits, self._process
        board, is_limited = self.tally.board, limits.timeout is not None
        work, documents, _ = self.tally.done
        apart, durable = self._is_apart(queue, usual=usual), queue.durable
        look_at, note = 0.0 if apart else self.look_at, queue.handed_over.append
        failed: Ending | None = None
        for claim in itertools.islice(queue.claim(waiting, usual=usual), most):
            self.at_hand = (claim,)
            if apart:
                self._begin(self.at_hand)
            outputs = claim.outputs
            began = clock()
            if board is not None:
                board.began(claim.docid, began)
            if is_limited:
                limits.begun(began)
            try:
                process(claim, outputs, limits)
                if not claim.seen:
                    claim.check()
            except ANYTHING as error:
                failed = self._ending(error)
            ended = clock()
            if ended >= look_at:
                self._fence(self.at_hand)
                apart = True
            if failed is not None or not (
                durable or ((outputs.blind or outputs.make_blind()) and hand_over(claim))
            ):
                with abandoning(self.at_hand):
                    # Those before it were done: nobody is to believe that many failed in a row.
                    self.group.flush()
                self._end(self.at_hand, (failed or DONE,), ended - began)
                break
            if durable:
                self.group.add(claim, ended - began)
            else:
                note((ended + clocks, claim, ended - began))
                if board is not None:
                    work += ended - began
                    documents += 1
                    board.ended(work, documents)
            if apart or limits.leaving_at is not None:
                break
        self._end_turn()

    def _is_apart(self, queue: InputQueue, *, usual: bool) -> bool:
        """Tell whether there is to be a look at the other queues, or at what waits, after each
        document of a queue; or whether others may have to be handed over before it."""
        if self.resting or queue is not self.queues[0] or self.breaker.fails:
            return True
        return self._durable and not (usual and self.group.is_of(queue))

    def turn(self, claims: Sequence[Claim]) -> None:
        """Process claimed documents together, and end each."""
        self.at_hand = claims
        self._begin(claims)
        self.tally.began(claims[0].docid)
        began = self.clock()
        endings = self._process_some(claims)
        ended = self.clock()
        self._fence(claims)
        self._end(claims, endings, ended - began)
        self._end_turn()

    def _begin(self, claims: Sequence[Claim]) -> None:
        """Get ready for documents that are taken up."""
        if self.resting:
            self.begin_work()
        with abandoning(claims):
            self.group.before(claims[0])

    def _end_turn(self) -> None:
        """Show that nothing is at hand; raise why the driver cannot go on, if that is so."""
        self.at_hand = ()
        if self._hopeless is not None:
            raise self._hopeless
        for queue in self.queues:
            if len(queue.handed_over) >= _NOTED_TOGETHER or self.breaker.fails:
                queue.note_handed_over()
        if self._counts:
            self.count()
            if self._done_or_waiting >= self.recycling.documents:
                self.group.flush()
                self._look_soon()
            self.tally.ended()

    def _process_some(self, claims: Sequence[Claim]) -> list[Ending]:
        """Process several documents in one call; who spoils it for all is found by trying each
        alone. One by one, where the processor takes one at a time."""
        if self._hopeless is not None:
            return [Released(str(self._hopeless))] * len(claims)
        if self._batches is not None or len(claims) == 1:
            self.limits.begin()
            batch = [(claim, claim.outputs) for claim in claims]
            try:
                errors: list[BaseException | None] = [None]
                if self._batches is not None:
                    errors = self._batches.process_batch(batch, self.limits)
                else:
                    self._process(*batch[0], self.limits)
                ended = zip(batch, errors, strict=True)
                return [DONE if error is None else self._ending(error) for _, error in ended]
            except ANYTHING as error:
                ending = self._ending(error)
                for_all = isinstance(ending, Released) or isinstance(error, FileSystemTrouble)
                if len(claims) == 1 or for_all:
                    return [ending] * len(claims)
        endings: list[Ending] = []
        for claim in claims:
            claim.outputs.discard()
            endings += self._process_some([claim])
        return endings

    def _ending(self, error: BaseException) -> Ending:
        """Return what a processor's exception means for its document."""
        if isinstance(error, ConfigError):
            # No document can be blamed for a program that cannot start: leave, and say so.
            self._hopeless = error
            return Released(str(error))
        return self.limits.fair(from_exception(error))

    def _fence(self, claims: Sequence[Claim]) -> None:
        """Show life before a commit: who has not for long may have been declared dead."""
        with abandoning(claims):
            self._beats.fresh()

    def _hand_over_group(self, claims: Sequence[Claim], seconds: float) -> None:
        """Hand over finished documents that waited for each other."""
        self._fence(claims)
        self._end(claims, [DONE] * len(claims), seconds)

    def _end(self, claims: Sequence[Claim], endings: Sequence[Ending], seconds: float) -> None:
        try:
            claims[0].of.end(claims, endings, seconds)
        finally:
            self.tally.book([claim.fate for claim in claims], seconds)


def _paths(given: Path | Sequence[Path]) -> tuple[Path, ...]:
    return (given,) if isinstance(given, str | os.PathLike) else tuple(given)
