"""A broker: a driver whose work is done elsewhere.

It registers, claims, recovers and leaves as any driver does, and its loop is a driver's, but for
what it does with an item and for what else wakes it:

    hear     frames and time → what the exchange wants: frames sent at once, ends of claims later
    deal     whoever is free gets what waits, before the last result is put away
    settle   each end is written down by the source that its claim is of

Killed at any moment it loses nothing: documents and requests are in its queues, what it had dealt
is released by whoever notices, charged to nobody, and a result that comes too late is dropped.
"""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import Heartbeat, Observer
from queuedriver.doors import words
from queuedriver.doors.conversation import PATIENCE, Conversation
from queuedriver.doors.exchange import DEAF_AFTER, Exchange
from queuedriver.doors.service_queue import Head, ServiceQueue
from queuedriver.doors.services import Breakers, Pressures
from queuedriver.doors.settings import AnyBroker
from queuedriver.doors.transports.base import Transport
from queuedriver.doors.words import Asked, End, Send, shown
from queuedriver.driving.backpressure import BackPressure
from queuedriver.driving.breaker import Breaker
from queuedriver.driving.limits import QUIT_FILE, Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.driving.loop import Left, Life, Loop
from queuedriver.driving.plan import Quit, Seen, Wait
from queuedriver.driving.setup import Opened, Place, free_id, opened
from queuedriver.driving.wake import Woken
from queuedriver.format.records import Counters
from queuedriver.options import Options

if TYPE_CHECKING:
    from queuedriver.jobs.scheduler import Scheduler

    # Where work comes from, and where its ends go: a queue's documents and requests, or jobs.
    Source = ServiceQueue | Scheduler

# How much is done before the loop looks at what is not frames.
_ROUNDS = 32
# Idle workers' heartbeats are answered together, so many seconds after the first; not while there
# was work within the last second.
_COALESCE = 0.02
_AT_WORK = 1.0
# Seconds, where one service has no room, from one look at the others to the next: a watch would
# wake for each document of the one.
_OTHERS_WITHIN = 0.25


class Broker(Life):
    """Deals the documents of queues to workers that speak one protocol."""

    def __init__(
        self,
        told: AnyBroker,
        say: Callable[[str], None] = lambda text: None,
        listening: Callable[[Sequence[str]], None] = lambda endpoints: None,
        board: Board | None = None,
    ) -> None:
        """`listening` is told where it listens, once it does; a watchdog sees on the board what it
        does."""
        told.check_listen()
        self.told = told.placed()
        super().__init__(self.told.loop_options, board)
        self._say = say
        self._listening = listening

    def run(self, *, last: bool = False) -> Left:
        """Deal until told to leave. QueueError when it cannot even start.

        `last`: the process is about to end; what asks it to leave once more changes nothing.
        """
        with contextlib.ExitStack() as at_end:
            limits = Limits(msgspec.structs.replace(self.options, timeout=None), last=last)
            at_end.callback(limits.close)
            # First of all: an address that is taken is said before any queue is touched.
            transport = self.told.transport()
            at_end.callback(transport.close)
            self._listening(transport.endpoints)
            found: list[Opened] = []

            def make_loop() -> BrokerLoop:
                self._open(at_end, found, limits)
                return self._make_loop(found, transport, limits)

            return self._left(self._lead(found, limits, make_loop))

    def _open(self, at_end: contextlib.ExitStack, found: list[Opened], limits: Limits) -> None:
        """Open, agree and register for every service: one driver, in one life, of them all."""
        wanted, mint = self.told.id, None
        services = self.told.services
        if wanted is None and len(services) > 1:
            with contextlib.ExitStack() as looked_at:
                places = [Place(one.input, Observer(), looked_at) for one in services]
                wanted = free_id([place.roster for place in places])

        def register(one: Opened) -> Heartbeat:
            return self._register(one, f"broker {self.told.protocol}", limits, broker=True)

        for service in services:
            inputs, outputs = (service.input,), tuple(service.outputs)
            one = opened(inputs, outputs, wanted, self.options, register, mint)
            found.append(at_end.enter_context(one))
            mint = found[0].mint

    def _make_loop(
        self, found: Sequence[Opened], transport: Transport, limits: Limits
    ) -> "BrokerLoop":
        exchange = self.told.session(self.id)
        everything = found[0]._replace(
            queues=[queue for one in found for queue in one.queues],
            targets=tuple(target for one in found for target in one.targets),
        )
        told = self.options, self.told.level, self._say
        loop = BrokerLoop(everything, exchange, transport, limits, self._tally, *told)
        for one, service in zip(found, self.told.services, strict=True):
            loop.breaker.of[one.queues[0]].beats = (one.beats,)
            source = self.told.source(service, one, loop)
            loop.sources.append(source)
            loop.unpack = loop.unpack or source.unpack
        return loop


class Complaint(msgspec.Struct):
    """Says which workers are missing for what waits, after a while, and once."""

    _say: Callable[[str], None]
    # The workers that are missing, in words; and when to say so.
    _missing: str = ""
    _say_at: float = math.inf

    def consider(self, missing: str, now: float) -> None:
        """Say which workers are missing, if it is time to; empty: none are."""
        if missing != self._missing:
            self._missing, self._say_at = missing, now + PATIENCE
        elif missing and now >= self._say_at:
            self._say_at = math.inf
            self._say(f"{missing}; what waits is dealt when one comes")


class BrokerLoop(Loop):
    """A driver's loop; it also listens, and its work is to deal."""

    # Services do not stop one another; to the loop they are as one.
    breaker: Breakers  # type: ignore[assignment]
    pressure: Pressures  # type: ignore[assignment]

    def __init__(
        self,
        found: Opened,
        exchange: Exchange[Any],
        transport: Transport,
        limits: Limits,
        tally: Tally,
        options: Options,
        level: int,
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(found, limits, tally, options)
        self._level = level
        self.exchange = exchange
        self.talk = Conversation(exchange, transport, self._act, tell, level, DEAF_AFTER)
        told = options.trip_after, self.clock, self._look_soon
        breakers = {queue: Breaker((queue,), *told) for queue in self.queues}
        for breaker in breakers.values():
            breaker.beats = (found.beats,)
        self.breaker = Breakers(breakers, tally)
        # Several services may have one output.
        watch = found.observer, lambda: self.crowd * len(self.queues)
        of = {queue: BackPressure(options, queue.targets, *watch) for queue in self.queues}
        self.pressure = Pressures(of, self._served)
        # Whose turn it is: the one that had one longest ago is first.
        self.sources: deque[Source] = deque()
        # What begins with documents that hold many works, of the one source that has them.
        self.unpack: Callable[[float], bool] | None = None
        # What is yet to be written down.
        self._wanted: deque[words.Effect] = deque()
        # When something was dealt last.
        self._dealt_at = 0.0
        self._complaint = Complaint(lambda text: self.talk.say(0, text))
        for fd in self.talk.fds:
            self.waker.also(fd)

    @property
    def at_hand(self) -> int:
        """Return how many documents and requests workers have."""
        return sum(len(source.dealt) for source in self.sources)

    def close(self) -> None:
        """Give back what workers have; no more frames, no more hints."""
        if not self.trouble:
            with contextlib.suppress(OSError):
                self._settle(self.clock())
        for source in self.sources:
            source.give_back("the broker was asked to leave")
        super().close()
        for source in self.sources:
            source.close()

    def run(self) -> Quit:
        while True:
            try:
                self._turn()
                if self.clock() >= self.look_at or (self.limits.leaving_at is not None and self.go):
                    self.look()
                if self.go and self._deal(self.clock()):
                    continue
                if (end := self.rest()) is not None:
                    return end
            except OSError as error:
                self.on_trouble(error)

    def _turn(self) -> None:
        for _ in range(_ROUNDS):
            now = self.clock()
            self.talk.hold()
            try:
                self.talk.turn(now, time.time())
                # Workers that are free get their next document before the last one is put away; but
                # not before the control files have been looked at, as often as any driver does.
                if self.go and self.limits.leaving_at is None and now < self.look_at:
                    for _ in range(_ROUNDS):
                        if self.exchange.busy or not self._deal(now):
                            break
            finally:
                self.talk.flush(now)
            if self.trouble:
                break
            self._settle(now)
            if not self.talk.transport.pending():
                break

    def _act(self, effect: words.Effect) -> None:
        """Keep what is to be done on queues; in trouble no requests: their clients ask again."""
        if not (self.trouble and type(effect) is Asked):
            self._wanted.append(effect)

    def _ready(self, now: float) -> "Iterator[tuple[Source, Head, Any]]":
        """Yield what is next of each source that has something for a worker, and for which."""
        self.exchange.reserved.clear()
        pick = self.exchange.pick
        for source in self.sources:
            queue = source.queue
            if queue not in self.unpaused or (
                queue.stopped and not self.breaker.of[queue].due(now)
            ):
                continue
            for head in source.heads(now):
                worker = pick(head.service, now, head.need, alone=head.alone)
                if worker is not None:
                    yield source, head, worker
                    break
                if head.alone and not (self.limited and self.pressure.is_full(queue)):
                    self.exchange.keep_one(head.service)

    def _deal(self, now: float) -> bool:
        """Deal one item, if there is one for which a worker is ready, and room; else see whether
        there may be more. Return whether."""
        found = None
        for found in self._ready(now):
            if not (self.limited and self.pressure.is_full(found[0].queue)):
                break
        else:
            return found is None and self.unpack is not None and self.unpack(now)
        source, head, worker = found
        if len(self.sources) > 1:
            self.sources.remove(source)
            self.sources.append(source)
        if self.resting:
            self.begin_work()
        self._dealt_at = now
        if source.queue.stopped:
            self.breaker.of[source.queue].tried(now)
        work = source.take(head, now)
        if work is None:
            return True
        dealt = self.exchange.deal(worker, work, now)
        if type(dealt) is not Send:
            self._act(dealt)
        elif not self.talk.send(dealt.peer, dealt.frames):
            gone = self.exchange.undelivered(dealt.peer, work.claim, now)
            self.talk.carry_out(gone, now)
        elif self._level >= 1:
            self.talk.say(1, f"{work.docid} is dealt to {shown(dealt.peer)}")
        return True

    def _settle(self, now: float) -> None:
        """Write down what has ended, and what clients asked; OSError: a queue is not well."""
        waiting = self._wanted
        while waiting:
            wanted = waiting[0]
            if type(wanted) is End:
                for source in self.sources:
                    if source.end(wanted.claim, wanted.how, now):
                        break
                # Only now: an answer that could not be kept is nowhere but here.
                waiting.popleft()
                continue
            waiting.popleft()
            if type(wanted) is Asked:
                # What is not on disk is not promised: on trouble its client asks again.
                request = wanted.request
                for source in self.sources:
                    if source.service == request.service and (why := source.ask(request, now)):
                        self.talk.say(0, why)
        for source in self.sources:
            self.talk.carry_out(source.turn(now), now)

    def look(self) -> None:
        """Look as any driver does; and deal no more once we are to leave, be it later."""
        super().look()
        if self.limits.leaving_at is not None:
            self.go = False

    def rest(self) -> Quit | None:
        """Pause; but deal a document now and then while the stage has stopped itself."""
        # What a watchdog is about to be shown has what was just handed over in it.
        self.count()
        now = self.clock()
        if self.go and self.at_hand and not self.resting and now < self.look_at:
            # Workers are at it: what else there is to see is looked at as often as by any driver.
            if self.wait(self.look_at - now) == "signal":
                self.limits.clear()
            return None
        if self.may_try() and self._deal(now):
            return None
        self._complaint.consider(self._missing(now), now)
        return super().rest()

    def _missing(self, now: float) -> str:
        """Say of which services, where something waits, no worker is there; empty: of none."""
        workers, missing = self.exchange.workers.values(), []
        for source in self.sources if self.go and not self.trouble else ():
            name = source.service
            served = any(name in one.services for one in workers) if name else workers
            if source.queue in self.unpaused and not served and any(source.heads(now)):
                missing.append(f"of {name!r} " if name else "")
        return f"no worker {'or '.join(missing)}is connected" if missing else ""

    def waits(self, now: float) -> bool:
        """Tell whether there is something to deal, and somebody to take it."""
        return bool(self._served(now))

    def _served(self, now: float) -> list[InputQueue]:
        """Return the queues of which there is something to deal, and somebody to take it."""
        return [] if self.exchange.busy else [source.queue for source, *_ in self._ready(now)]

    def pause(self, decision: Wait) -> None:
        """Pause; where one service has no room, look soon for what comes for the others."""
        if decision.state == "blocked" and len(self.sources) > 1:
            decision = Wait(min(decision.seconds, _OTHERS_WITHIN), decision.why, "blocked")
        super().pause(decision)

    def before_sleep(self) -> None:
        """While workers are at it, there is no rest that would be worth a write."""
        if not self.at_hand:
            super().before_sleep()

    def wait(self, seconds: float) -> Woken:
        """Answer what needs no queue as it comes; wake for what does."""
        now = time.monotonic()
        end, served, naps = now + seconds, self._served(now), False
        while True:
            # While a file system is not well they do nothing.
            sources = self.sources if not self.trouble else ()
            due = words.soonest(*(source.next_turn_at() for source in sources))
            at = min(one for one in (end, self.talk.next_turn_at(), due) if one is not None)
            if naps:
                # Nothing waits for anything: let the heartbeats of many come together.
                time.sleep(_COALESCE)
            woken: Woken = "other"
            if not self.talk.transport.pending():
                woken = self.waker.wait(at - time.monotonic())
            now = time.monotonic()
            if woken in ("hint", "signal") or now >= end:
                for source in self.sources:
                    source.wake()
                return woken if woken in ("hint", "signal") else "timeout"
            self.talk.hold()
            self.talk.turn(now, time.time())
            if not self.trouble and (
                self._wanted or (due is not None and due <= now) or self._served(now) != served
            ):
                # What is held goes with what is dealt now.
                return "other"
            self.talk.flush(now)
            if self._wanted and not self.trouble:
                # Somebody was not there: what it had is to be given back.
                return "other"
            naps = woken == "other" and not self.at_hand and now - self._dealt_at > _AT_WORK

    def mend(self) -> None:
        """Open everything anew: requests, too."""
        super().mend()
        if not self.trouble:
            try:
                for source in self.sources:
                    source.clean()
            except OSError as error:
                self.on_trouble(error)

    def counters(self) -> Counters:
        """Return the counters with what was handed over a moment ago; from any thread."""
        return self.tally.counters(0.0, sum(len(queue.handed_over) for queue in self.queues))

    def wish(self) -> tuple[str, str]:
        """Leave only when workers have brought what they have, or the time for that is up."""
        word, why = super().wish()
        if not word or not self.at_hand or self.trouble:
            return word, why
        if why == QUIT_FILE:
            # They will not come back if the file goes away again.
            self._send_away(self.clock())
        return (word, why) if self.limits.reason() is not None else ("", "")

    def farewell(self, end: Quit) -> None:
        """Send the workers away; asked to leave by a signal, it may be back soon: then they wait
        for it."""
        if end.word in ("done", "drained") or end.why == QUIT_FILE:
            self._send_away(time.monotonic())

    def _send_away(self, now: float) -> None:
        if not self.exchange.leaving:
            self.talk.carry_out(self.exchange.leave(now), now)

    def seen(self) -> Seen:
        seen = super().seen()
        if not seen.leaving and self.limits.leaving_at is not None:
            seen = msgspec.structs.replace(seen, paused=True)
        if left := sum(source.unfinished for source in self.sources):
            # What was claimed is in the queue, whatever an old listing says.
            passed = msgspec.structs.replace(seen.passed, working=max(left, seen.passed.working))
            seen = msgspec.structs.replace(seen, passed=passed)
        now = self.clock()
        if missing := self._missing(now):
            seen = msgspec.structs.replace(seen, rest=missing)
        waiting = [one.queue.stopped for one in self.sources if any(True for _ in one.heads(now))]
        if self.at_hand or not all(waiting):
            return seen
        return self.breaker.facts(seen, now, self.clocks, waits=bool(waiting))
