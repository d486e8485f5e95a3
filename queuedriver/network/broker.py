"""A broker: a driver whose work is done elsewhere.

It registers, claims, recovers and leaves as any driver does, and its loop is a driver's, but for
what it does with an item (`dealer.py`) and for what else wakes it. Killed at any moment it loses
nothing: documents and requests are in its queues, what it had dealt is released by whoever notices,
charged to nobody, and a result that comes too late is dropped.
"""

import contextlib
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from queuedriver.claims.hands import Hands
from queuedriver.claims.heartbeat import Heartbeat
from queuedriver.claims.lane import Lane
from queuedriver.claims.liveness import CRASHED, Counters, Observer, draw_salt
from queuedriver.claims.picking import Candidate
from queuedriver.driving.backpressure import BackPressure
from queuedriver.driving.driver import Left, is_waiting
from queuedriver.driving.limits import QUIT_FILE, Limits
from queuedriver.driving.live_status import Tally
from queuedriver.driving.loop import Loop
from queuedriver.driving.plan import Quit, Seen
from queuedriver.driving.presence import cascade, forget_ended, register, say_goodbye
from queuedriver.driving.startup import Crew, assemble, free_id
from queuedriver.driving.wake import Waker, Woken
from queuedriver.errors import QueueError
from queuedriver.format import names
from queuedriver.network.dealer import Dealer, Desk
from queuedriver.network.line import Line
from queuedriver.network.requests import Requests, brought_to
from queuedriver.network.transport import MAX_MESSAGE, Transport
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from queuedriver.protocols.dealing import BrokerSession

# How often answers are dropped whose clients did not come back, in seconds.
_EXPIRE_EVERY = 5.0
# How much is done before the loop looks at what is not frames.
_ROUNDS = 32
# How old it may be what is known of other brokers of a queue, in seconds.
_WHO_LIVES = 1.0
# Idle workers' heartbeats are answered together, so many seconds after the first.
_COALESCE = 0.02

Path = str | os.PathLike[str]


class Service(NamedTuple):
    """Which queue a service's documents wait in, and where its results go."""

    name: str
    input: Path
    outputs: Sequence[Path] = ()


class Broker:
    """Deals the documents of queues to workers that speak one protocol."""

    def __init__(
        self,
        protocol: str,
        services: Sequence[Service],
        session: Callable[[str], BrokerSession],
        transport: Callable[[], Transport],
        *,
        id: str | None = None,
        options: Options | None = None,
        max_message: int = MAX_MESSAGE,
        level: int = 0,
        say: Callable[[str], None] = lambda words: None,
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
        self._tally = Tally()
        self._loop: BrokerLoop | None = None
        self._held: set[str] = set()

    def run(self) -> Left:
        """Deal until told to leave. QueueError when it cannot even start."""
        with contextlib.ExitStack() as at_end:
            limits = Limits(grace=self.options.grace)
            at_end.callback(limits.close)
            # First of all: an address that is taken is said before any queue is touched.
            transport = self._transport()
            at_end.callback(transport.close)
            observer = Observer()
            crews: list[Crew] = []
            beats: list[Heartbeat] = []
            try:
                self._assemble(crews, beats, observer, limits)
                loop = self._loop_over(crews, transport, observer, limits)
            except BaseException:
                self._farewell(crews, beats, Quit(CRASHED, "it could not start", 70))
                raise
            return self._drive(crews, beats, loop, limits)

    def _assemble(
        self, crews: list[Crew], beats: list[Heartbeat], observer: Observer, limits: Limits
    ) -> None:
        """Open, agree and register for every service: one driver, in one life, of them all."""
        salt = draw_salt()
        wanted = self._wanted_id
        if wanted is None and len(self._services) > 1:
            with contextlib.ExitStack() as opened:
                queues = [opened.enter_context(Queue.open(one.input)) for one in self._services]
                wanted = free_id(queues, observer)
        for service in self._services:
            inputs, outputs = (service.input,), tuple(service.outputs)
            with assemble(
                inputs, outputs, wanted, self.options, observer, self._held, salt
            ) as crew:
                crews.append(crew)
                name = f"broker {self._protocol}"
                beats.append(register(crew, self.options, name, self._report, limits, broker=True))
        self.id = crews[0].driver

    def _loop_over(
        self, crews: Sequence[Crew], transport: Transport, observer: Observer, limits: Limits
    ) -> "BrokerLoop":
        mint = names.Mint(crews[0].driver, crews[0].salt)
        desks = [
            desk
            for crew, service in zip(crews, self._services, strict=True)
            for desk in self._desks(crew, service, mint)
        ]
        dealer = Dealer(
            self._session(self.id),
            transport,
            desks,
            Hands(mint, self._held, self._tally),
            limits,
            self._max_message,
            self._level,
        )
        return BrokerLoop(
            desks,
            dealer,
            limits,
            self._pressure(crews, observer),
            self._waker(desks, limits),
            self._tally,
            self.options,
            self._say,
        )

    def _desks(self, crew: Crew, service: Service, mint: names.Mint) -> Iterator[Desk]:
        for lane in crew.lanes:
            requests = Requests(lane.queue, mint, lane.handoff.settings.durable)
            requests.load(time.monotonic())
            elsewhere = OtherBrokers(lane, crew.driver)
            line = Line(lane, elsewhere.have)
            line.load()
            yield Desk(service.name, lane, line, requests)

    def _pressure(self, crews: Sequence[Crew], observer: Observer) -> BackPressure:
        targets = [target for crew in crews for target in crew.targets]
        return BackPressure(self.options, targets, observer, lambda: 1)

    def _waker(self, desks: Sequence[Desk], limits: Limits) -> Waker:
        paths = [desk.lane.queue.path for desk in desks]
        return Waker(paths, self.options.poll, limits.wake_fd, is_waiting)

    def _drive(
        self,
        crews: Sequence[Crew],
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
            end = loop.run()
            if end.word in ("done", "drained") or end.why == QUIT_FILE:
                # Asked to leave by a signal, it may be back soon: then its workers wait for it.
                dealer.leave(time.monotonic())
            if end.word in ("done", "drained"):
                forget_ended([lane for crew in crews for lane in crew.lanes])
            if end.word == "done":
                for crew in crews:
                    cascade(crew)
        except QueueError as error:
            end = Quit("failed", str(error), error.exit_code)
            raise
        finally:
            dealer.give_back("the broker was asked to leave")
            loop.close()
            limits.restore()
            self._farewell(crews, beats, end)
        code = end.exit_code
        if self.options.drain and self._tally.discarded and not code:
            code = 1
        return Left(end.word, end.why, code, self._tally.counters())

    def _farewell(self, crews: Sequence[Crew], beats: Sequence[Heartbeat], end: Quit) -> None:
        for crew, beat in itertools.zip_longest(crews, beats):
            if beat is None:
                # It could not even register.
                for lane in crew.lanes:
                    lane.close()
                continue
            say_goodbye(crew, beat, end)
            self.unnoted += tuple(
                lane.journal.unnoted for lane in crew.lanes if lane.journal.unnoted
            )

    def _report(self) -> tuple[str, str, Counters]:
        loop = self._loop
        state, why = ("starting", "") if loop is None else (loop.state, loop.why)
        return state, why, self._tally.counters()


class OtherBrokers:
    """Brokers that deal from the same queue: each has clients of its own."""

    def __init__(self, lane: Lane, me: str) -> None:
        self._lane = lane
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
            roster = self._lane.recoverer.roster
            roster.refresh()
            self._living = {one.id for one in roster.alive if one.is_broker}
        return broker in self._living


class BrokerLoop(Loop):
    """A driver's loop; it also listens, and its work is to deal."""

    def __init__(
        self,
        desks: Sequence[Desk],
        dealer: Dealer,
        limits: Limits,
        pressure: BackPressure,
        waker: Waker,
        tally: Tally,
        options: Options,
        say: Callable[[str], None],
    ) -> None:
        lanes = [desk.lane for desk in desks]
        super().__init__(lanes, dealer, limits, pressure, waker, tally, options)
        # Whose turn it is: the service that had one longest ago is first.
        self._desks = deque(desks)
        self.dealer = dealer
        self._grace = options.grace
        self._tell = say
        self._expire_at = 0.0
        # Until when workers may bring what they have, once we are to leave.
        self._leaves_at: float | None = None
        for fd in dealer.transport.fds():
            waker.also(fd)

    def close(self) -> None:
        """No more frames, no more hints."""
        self._waker.close()
        for desk in self._desks:
            desk.requests.close()

    def _look(self) -> Seen:
        dealer = self.dealer
        for _ in range(_ROUNDS):
            now = time.monotonic()
            dealer.converse(now)
            if self._trouble:
                break
            # Workers that are free get their next document before the last one is put away.
            self._deal(now)
            dealer.settle(now)
            if not dealer.transport.pending():
                break
        while dealer.said:
            self._tell(dealer.said.popleft())
        if now >= self._expire_at and not self._trouble:
            self._expire_at = now + _EXPIRE_EVERY
            for desk in self._desks:
                desk.requests.expire(now)
        return super()._look()

    def _deal(self, now: float) -> None:
        """Deal to all who are ready, as long as nothing speaks against it that is known."""
        leaving = self._leaving or self._limits.leaving_at is not None
        # Not before the control files have been looked at, as often as any driver does.
        if now >= self._glance_at or self._paused or leaving:
            return
        for _ in range(_ROUNDS):
            if not self._pressure.has_room(self.dealer.published):
                return
            candidate = self._next(now)
            if candidate is None:
                return
            self.state, self._idle_turns = "busy", 0
            self.dealer.work(self._lane, candidate)

    def _settle_down(self) -> None:
        """While workers are at it, there is no rest that would be worth a write."""
        if not self.dealer.at_hand:
            super()._settle_down()

    def _next(self, now: float) -> Candidate | None:
        """The first item of a service for which a worker is ready."""
        for desk in self._desks:
            candidate = self.dealer.choose(desk, now)
            if candidate is not None:
                self._lane = desk.lane
                self._desks.remove(desk)
                self._desks.append(desk)
                return candidate
        return None

    def _facts(self, now: float, leaving: str, why: str) -> Seen:
        at_hand = self.dealer.at_hand
        if leaving and at_hand and not self._trouble:
            if why == QUIT_FILE:
                # They will not come back if the file goes away again: so no more do we.
                self._limits.leave("quit", QUIT_FILE)
                self.dealer.leave(now)
            if self._leaves_at is None:
                self._leaves_at = now + self._grace
            if not self._limits.hurried and now < self._leaves_at:
                return msgspec.structs.replace(super()._facts(now, "", ""), paused=True)
        seen = super()._facts(now, leaving, why)
        if at_hand and not seen.unfinished:
            # What workers have is in the queue, whatever an old listing says.
            return msgspec.structs.replace(seen, unfinished=at_hand)
        return seen

    def _wait(self, seconds: float) -> Woken:
        """Answer what needs no queue as it comes; wake for what does."""
        end = time.monotonic() + seconds
        ready = self.dealer.readiness()
        while True:
            now = time.monotonic()
            at = self.dealer.next_tick_at()
            until = end if at is None else min(end, at)
            woken: Woken = "other"
            if not self.dealer.transport.pending():
                woken = self._waker.wait(max(0.0, until - now))
                now = time.monotonic()
            if woken in ("hint", "signal"):
                for desk in self._desks:
                    desk.line.wake()
                return woken
            if woken == "other" and not (self.dealer.at_hand or any(map(len, self._lines()))):
                # Nothing waits for anything: let the heartbeats of many come together.
                time.sleep(_COALESCE)
            wanted = self.dealer.converse(now)
            if not self._trouble and (wanted or self.dealer.readiness() != ready):
                return "other"
            if now >= end:
                for desk in self._desks:
                    desk.line.wake()
                return "timeout"

    def _lines(self) -> Iterator[Line]:
        return (desk.line for desk in self._desks)
