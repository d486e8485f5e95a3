"""A broker: a driver whose work is done elsewhere.

It registers, claims, recovers and leaves as any driver does, and its loop is a driver's, but for
what it does with an item (`dealer.py`) and for what else wakes it. Killed at any moment it loses
nothing: documents and requests are in its queues, what it had dealt is released by whoever notices,
charged to nobody, and a result that comes too late is dropped.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from queuedriver.claims.heartbeat import Heartbeat
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import CRASHED, Observer
from queuedriver.doors.dealer import Dealer, Desk
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.line import Line
from queuedriver.doors.requests import Requests, brought_to
from queuedriver.doors.settings import Service
from queuedriver.doors.transports.base import MAX_MESSAGE, Transport
from queuedriver.doors.words import BrokerSession
from queuedriver.driving.driver import mints
from queuedriver.driving.limits import QUIT_FILE, Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.driving.loop import Left, Loop, finish, left, register, say_goodbye
from queuedriver.driving.plan import Quit, Seen
from queuedriver.driving.setup import Opened, Place, free_id, opened
from queuedriver.driving.wake import Woken
from queuedriver.errors import QueueError
from queuedriver.format.records import Counters
from queuedriver.operating.queue import Queue
from queuedriver.options import Options

# How often answers are dropped whose clients did not come back, in seconds.
_EXPIRE_EVERY = 5.0
# How much is done before the loop looks at what is not frames.
_ROUNDS = 32
# How old it may be what is known of other brokers of a queue, in seconds.
_WHO_LIVES = 1.0
# Idle workers' heartbeats are answered together, so many seconds after the first.
_COALESCE = 0.02


class Broker:
    """Deals the documents of queues to workers that speak one protocol."""

    def __init__(
        self,
        protocol: str,
        services: Sequence[Service],
        session: Callable[[str], BrokerSession | Exchange[Any]],
        transport: Callable[[], Transport],
        *,
        id: str | None = None,
        options: Options | None = None,
        max_message: int = MAX_MESSAGE,
        level: int = 0,
        say: Callable[[str], None] = lambda words: None,
        board: Board | None = None,
    ) -> None:
        self.options = (options or Options()).check()
        self.id = ""
        self.unnoted: tuple[str, ...] = ()
        self._protocol = protocol
        self._services = tuple(services)
        self._session = session
        self._transport = transport
        self._wanted_id = id
        self._max_message = max_message
        self._level = level
        self._say = say
        # Where a watchdog sees what it does.
        self._board = board
        self._tally = Tally(board)
        self._loop: BrokerLoop | None = None

    def run(self) -> Left:
        """Deal until told to leave. QueueError when it cannot even start."""
        with contextlib.ExitStack() as at_end:
            limits = Limits(grace=self.options.grace)
            at_end.callback(limits.close)
            # First of all: an address that is taken is said before any queue is touched.
            transport = self._transport()
            at_end.callback(transport.close)
            found: list[Opened] = []
            beats: list[Heartbeat] = []
            try:
                self._open(at_end, found, beats, limits)
                loop = self._loop_over(found, transport, limits)
                loop.breaker.beats = beats
            except BaseException:
                self._farewell(found, beats, Quit(CRASHED, "it could not start", 70))
                raise
            return self._drive(found, beats, loop, limits)

    def _open(
        self,
        at_end: contextlib.ExitStack,
        found: list[Opened],
        beats: list[Heartbeat],
        limits: Limits,
    ) -> None:
        """Open, agree and register for every service: one driver, in one life, of them all."""
        wanted, mint = self._wanted_id, None
        if wanted is None and len(self._services) > 1:
            with contextlib.ExitStack() as looked_at:
                places = [Place(one.input, Observer(), looked_at) for one in self._services]
                wanted = free_id([place.roster for place in places])

        def register_one(one: Opened) -> None:
            name = f"broker {self._protocol}"
            beats.append(register(one, self.options, name, self._report, limits, broker=True))

        for service in self._services:
            inputs, outputs = (service.input,), tuple(service.outputs)
            one = at_end.enter_context(
                opened(inputs, outputs, wanted, self.options, register_one, mint)
            )
            found.append(one)
            mint = one.mint
            mints.add(mint)
        self.id = found[0].mint.driver

    def _loop_over(
        self, found: Sequence[Opened], transport: Transport, limits: Limits
    ) -> "BrokerLoop":
        desks = [
            desk
            for one, service in zip(found, self._services, strict=True)
            for desk in self._desks(one, service)
        ]
        dealer = Dealer(
            self._session(self.id),
            transport,
            desks,
            self._tally,
            limits,
            self._max_message,
            self._level,
        )
        everything = found[0]._replace(
            queues=[queue for one in found for queue in one.queues],
            targets=tuple(target for one in found for target in one.targets),
        )
        return BrokerLoop(everything, desks, dealer, limits, self._tally, self.options, self._say)

    def _desks(self, found: Opened, service: Service) -> Iterator[Desk]:
        for queue in found.queues:
            requests = Requests(Queue(queue.directory), found.mint, queue.durable)
            requests.load(time.monotonic())
            elsewhere = OtherBrokers(queue, found.mint.driver)
            line = Line(queue, elsewhere.have)
            line.load()
            yield Desk(service.name, queue, line, requests)

    def _drive(
        self,
        found: Sequence[Opened],
        beats: Sequence[Heartbeat],
        loop: "BrokerLoop",
        limits: Limits,
    ) -> Left:
        dealer = loop.dealer
        end = Quit(CRASHED, "it ended by an error", 70)
        limits.install()
        try:
            self._tally.start()
            self._loop = loop
            if self._board is not None:
                self._board.ready(time.monotonic())
            end = loop.run()
            if end.word in ("done", "drained") or end.why == QUIT_FILE:
                # Asked to leave by a signal, it may be back soon: then its workers wait for it.
                dealer.leave(time.monotonic())
            for one in found:
                finish(one, end)
        except QueueError as error:
            end = Quit("failed", str(error), error.exit_code)
            raise
        finally:
            dealer.give_back("the broker was asked to leave")
            loop.close()
            limits.restore()
            self._farewell(found, beats, end)
        return left(end, self._tally, self.options)

    def _farewell(self, found: Sequence[Opened], beats: Sequence[Heartbeat], end: Quit) -> None:
        # One that could not even register has no last word.
        for one, beat in zip(found, beats, strict=False):
            self.unnoted += say_goodbye(one, beat, end)

    def _report(self) -> tuple[str, str, Counters]:
        loop = self._loop
        state, why = ("starting", "") if loop is None else (loop.state, loop.why)
        return state, why, self._tally.counters()


class OtherBrokers:
    """Brokers that deal from the same queue: each has clients of its own."""

    def __init__(self, queue: InputQueue, me: str) -> None:
        self._queue = queue
        self._me = me
        self._living: set[str] = set()
        self._asked_at = -_WHO_LIVES

    def have(self, docid: str) -> bool:
        """Whether this is a request whose client is with another broker that lives."""
        broker = brought_to(docid)
        if not broker or broker == self._me:
            return False
        now = time.monotonic()
        if now - self._asked_at >= _WHO_LIVES:
            self._asked_at = now
            roster = self._queue.recoverer.roster
            roster.refresh()
            self._living = {one.id for one in roster.alive if one.is_broker}
        return broker in self._living


class BrokerLoop(Loop):
    """A driver's loop; it also listens, and its work is to deal."""

    def __init__(
        self,
        found: Opened,
        desks: Sequence[Desk],
        dealer: Dealer,
        limits: Limits,
        tally: Tally,
        options: Options,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(found, limits, tally, options)
        # Whose turn it is: the service that had one longest ago is first.
        self._desks = deque(desks)
        self.dealer = dealer
        self._grace = options.grace
        self._tell = say
        self._expire_at = 0.0
        # Until when workers may bring what they have, once we are to leave.
        self._leaves_at: float | None = None
        for fd in dealer.transport.fds():
            self.waker.also(fd)

    def close(self) -> None:
        """No more frames, no more hints."""
        self.waker.close()
        for desk in self._desks:
            desk.requests.close()

    def run(self) -> Quit:
        """Converse, deal and settle, or pause, until there is a reason to leave."""
        while True:
            try:
                self._converse()
                if self.clock() >= self.look_at or (self.limits.leaving_at is not None and self.go):
                    self.look()
                if self.go and self._deal(self.clock()):
                    continue
                if (end := self.rest()) is not None:
                    return end
            except OSError as error:
                self.on_trouble(error)

    def _converse(self) -> None:
        dealer = self.dealer
        for _ in range(_ROUNDS):
            now = self.clock()
            dealer.converse(now)
            if self.trouble:
                break
            # Workers that are free get their next document before the last one is put away; but not
            # before the control files have been looked at, as often as any driver does.
            if self.go and self.limits.leaving_at is None and now < self.look_at:
                for _ in range(_ROUNDS):
                    if not self._deal(now):
                        break
            dealer.settle(now)
            if not dealer.transport.pending():
                break
        while dealer.said:
            self._tell(dealer.said.popleft())
        if now >= self._expire_at and not self.trouble:
            self._expire_at = now + _EXPIRE_EVERY
            for desk in self._desks:
                desk.requests.expire(now)

    def _deal(self, now: float) -> bool:
        """Deal one item, if there is one for which a worker is ready, and room. Return whether."""
        desk = self._next_desk(now)
        if desk is None or self.pressure.full(self.published):
            return False
        self._desks.remove(desk)
        self._desks.append(desk)
        if (name := self.dealer.choose(desk, now)) is None:
            return False
        self.resting, self.state, self._idle_turns, self.troubles = False, "busy", 0, 0
        self.dealer.work(desk, name)
        return True

    def look(self) -> None:
        """Look as any driver does; and deal no more once we are to leave, be it later."""
        super().look()
        if self.limits.leaving_at is not None:
            self.go = False

    def rest(self) -> Quit | None:
        """Pause, but deal a document now and then while the stage has stopped itself."""
        now = self.clock()
        if self.may_try() and self._deal(now):
            self.breaker.tried(now)
            return None
        return super().rest()

    def _next_desk(self, now: float) -> Desk | None:
        """The service whose turn it is of those of which somebody would take something."""
        would_take = self.dealer.would_take
        return next((desk for desk in self._desks if would_take(desk, now)), None)

    def waits(self, now: float) -> bool:
        """Tell whether there is something to deal, and somebody to take it."""
        return self._next_desk(now) is not None

    def before_sleep(self) -> None:
        """While workers are at it, there is no rest that would be worth a write."""
        if not self.dealer.at_hand:
            super().before_sleep()

    def mend(self) -> None:
        """Open everything anew: requests, too."""
        super().mend()
        if not self.trouble:
            try:
                self.dealer.clean()
            except OSError as error:
                self.on_trouble(error)

    def wish(self) -> tuple[str, str]:
        """Leave only when workers have brought what they have, or the time for that is up."""
        word, why = super().wish()
        at_hand = self.dealer.at_hand
        if not word or not at_hand or self.trouble:
            return word, why
        now = self.clock()
        if why == QUIT_FILE:
            # They will not come back if the file goes away again.
            self.dealer.leave(now)
        if self._leaves_at is None:
            self._leaves_at = now + self._grace
        if self.limits.hurried or now >= self._leaves_at:
            return word, why
        return "", ""

    def seen(self) -> Seen:
        seen = super().seen()
        at_hand = self.dealer.at_hand
        if not seen.leaving and self.limits.leaving_at is not None:
            seen = msgspec.structs.replace(seen, paused=True)
        if at_hand and not seen.unfinished:
            # What workers have is in the queue, whatever an old listing says.
            seen = msgspec.structs.replace(seen, unfinished=at_hand)
        return seen

    def wait(self, seconds: float) -> Woken:
        """Answer what needs no queue as it comes; wake for what does."""
        end = time.monotonic() + seconds
        ready = self.dealer.readiness()
        while True:
            now = time.monotonic()
            at = self.dealer.next_tick_at()
            until = end if at is None else min(end, at)
            woken: Woken = "other"
            if not self.dealer.transport.pending():
                woken = self.waker.wait(max(0.0, until - now))
                now = time.monotonic()
            if woken in ("hint", "signal"):
                for desk in self._desks:
                    desk.line.wake()
                return woken
            if woken == "other" and not (self.dealer.at_hand or any(map(len, self._lines()))):
                # Nothing waits for anything: let the heartbeats of many come together.
                time.sleep(_COALESCE)
            wanted = self.dealer.converse(now)
            if not self.trouble and (wanted or self.dealer.readiness() != ready):
                return "other"
            if now >= end:
                for desk in self._desks:
                    desk.line.wake()
                return "timeout"

    def _lines(self) -> Iterator[Line]:
        return (desk.line for desk in self._desks)
