"""What a broker's session wants done: frames sent, claims dealt, and claims ended on disk.

The session is pure (`protocols/`), the transport blocks never; in between, effects are carried out
in their order. Those on queues may fail with the file system: then the claim is given back when
that is well again, and the rest waits until then.

    a document    claimed, dealt; `Done` → written, committed, published like any driver's
    a request     kept on disk, claimed, dealt; `Answered` → answer kept, request finished, sent
"""

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from queuedriver.claims.charging import give_back_later
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.outcomes import DONE, Doubted, Ending, Released, from_exception
from queuedriver.claims.outputs import Output
from queuedriver.disk.filesystem import read_up_to
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.former import exchange_of
from queuedriver.doors.line import Line
from queuedriver.doors.meter import Meter
from queuedriver.doors.requests import Reply, Requests
from queuedriver.doors.transports.base import AROUND, Gone, Joined, Message, Transport
from queuedriver.doors.words import (
    Answer,
    Asked,
    BrokerSession,
    Close,
    Effects,
    End,
    Processed,
    Request,
    Say,
    Send,
    Work,
)
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.errors import (
    BadDocid,
    ConfigError,
    ProcessorFailed,
    QueueClosed,
    RemoteProtocolError,
)
from queuedriver.format.records import Failure


class Desk(NamedTuple):
    """One service: the input its documents wait in, and in which order."""

    service: str
    queue: InputQueue
    line: Line
    requests: Requests


class Dealt(msgspec.Struct, frozen=True):
    """What is in a worker's hands."""

    claim: Claim
    desk: Desk
    request: Request | None
    began: int


OnQueues = End | Asked
# Bytes of requests that are not on disk yet.
_MOST_ASKED = 256 << 20


class Dealer:
    """Carries out what one session wants."""

    def __init__(
        self,
        session: BrokerSession | Exchange[Any],
        transport: Transport,
        desks: Sequence[Desk],
        tally: Tally,
        limits: Limits,
        max_message: int,
        level: int = 0,
    ) -> None:
        self.session: Exchange[Any] = exchange_of(session)
        self.transport = transport
        self._desks = {desk.service: desk for desk in desks}
        self._tally = tally
        self._limits = limits
        self._max_message = max_message
        self._level = level
        self._meter = Meter()
        self._dealt: dict[str, Dealt] = {}
        for desk in desks:
            # What else carries our id on disk was lost track of.
            desk.queue.at_hand = self._dealt.keys()
        # Effects on queues that are yet to be carried out.
        self._wanted: deque[OnQueues] = deque()
        self._asked_bytes = 0
        # Who spoke while an answer is held for it.
        self._back: set[bytes] = set()
        # What was said, for whoever shows it.
        self.said: deque[str] = deque(maxlen=1000)
        self._left = False

    @property
    def at_hand(self) -> int:
        """How many documents and requests workers have."""
        return len(self._dealt)

    # The conversation

    def converse(self, now: float) -> bool:
        """Take in what has come and what time has brought; whether queues are to be touched."""
        for arrival in self.transport.arrivals():
            try:
                self._send_all(self._hear(arrival, now), now)
            except RemoteProtocolError as error:
                self._complain(arrival, error)
        if (at := self.session.next_tick_at()) is not None and at <= now:
            self._send_all(self.session.tick(now), now)
        if (at := self.transport.next_tick_at()) is not None and at <= now:
            self.transport.tick(now)
        return bool(self._wanted or self._back)

    def next_tick_at(self) -> float | None:
        """When to converse again, whatever comes."""
        at, other = self.session.next_tick_at(), self.transport.next_tick_at()
        if at is None or other is None:
            return other if at is None else at
        return min(at, other)

    def _hear(self, arrival: Joined | Message | Gone, now: float) -> Effects:
        peer = arrival.peer
        if type(arrival) is Message:
            if not self._meter.allow(peer, now):
                raise RemoteProtocolError("it sends more than anybody may; some of it is dropped")
            for desk in self._desks.values():
                if desk.requests.holds(peer):
                    self._back.add(peer)
            return self.session.hear(peer, arrival.frames, now, time.time())
        if type(arrival) is Joined:
            return self.session.joined(peer, now)
        self._meter.forget(peer)
        return self.session.gone(peer, now)

    def _complain(self, arrival: Joined | Message | Gone, error: RemoteProtocolError) -> None:
        # A peer that sends nonsense may send much of it.
        if self._level >= 1:
            self.said.append(f"{arrival.peer!r}: {error}")

    def _send_all(self, effects: Effects, now: float) -> None:
        """Carry out what needs no queue; keep the rest."""
        while effects:
            gone: Effects = []
            for effect in effects:
                if type(effect) is Send:
                    if not self.transport.send(effect.peer, effect.frames):
                        gone += self.session.gone(effect.peer, now)
                elif isinstance(effect, End | Asked):
                    self._want(effect)
                elif type(effect) is Close:
                    self.transport.drop(effect.peer)
                elif type(effect) is Say and effect.level <= self._level:
                    self.said.append(effect.words)
            effects = gone

    def _want(self, effect: OnQueues) -> None:
        if isinstance(effect, Asked):
            size = sum(map(len, effect.request.frames))
            if self._asked_bytes + size > _MOST_ASKED:
                # The disk is slower than the clients, or not well: they will ask again.
                return
            self._asked_bytes += size
        self._wanted.append(effect)

    # The queues

    def settle(self, now: float) -> None:
        """Carry out what is to be done on queues. An OSError says that one is not well."""
        handed_over = self._hand_over_held(now) if self._back else set()
        while self._wanted:
            effect = self._wanted.popleft()
            if isinstance(effect, Asked):
                # Not on disk, not promised: on trouble its client will ask again.
                self._asked_bytes -= sum(map(len, effect.request.frames))
                if effect.request.key not in handed_over:
                    self._keep(effect.request, now)
            elif isinstance(effect.how, Answer):
                self._answer(effect, effect.how, now)
            else:
                self._end(effect)

    def choose(self, desk: Desk, now: float) -> str | None:
        """The next item of a service that somebody would take."""
        line = desk.line
        if not self.would_take(desk, now):
            return None
        alone = line.suspects_wait and self._ready(desk, now, alone=True)
        return line.next_suspect() if alone else line.next()

    def would_take(self, desk: Desk, now: float) -> bool:
        """Whether something of a service waits that somebody would take."""
        # Filled even if nobody would take anything: that is how the end of a queue is noticed.
        desk.line.fill(now)
        self.session.new_round()
        return self._would_take(desk, now)

    def _would_take(self, desk: Desk, now: float) -> bool:
        line = desk.line
        if line.suspects_wait and self._ready(desk, now, alone=True):
            return True
        return line.others_wait and self._ready(desk, now)

    def _ready(self, desk: Desk, now: float, *, alone: bool = False) -> bool:
        return self.session.pick(desk.service, now, alone=alone) is not None

    def readiness(self) -> list[bool]:
        """For which services somebody would take what waits."""
        now = time.monotonic()
        return [self._would_take(desk, now) for desk in self._desks.values()]

    def work(self, desk: Desk, name: str) -> None:
        """Claim one item and deal it."""
        alone = desk.line.is_suspect(name)
        if not self._ready(desk, time.monotonic(), alone=alone):
            # Whoever was, when this was chosen, is gone.
            desk.line.put_back(name)
            return
        for claim in desk.queue.claim([name]):
            self._deal(desk, claim, alone)

    def _deal(self, desk: Desk, claim: Claim, alone: bool) -> None:
        try:
            work = self._work_of(desk, claim, alone)
        except (ProcessorFailed, OSError) as error:
            # It cannot be read, or not be sent.
            self._end_claim(claim, from_exception(error))
            return
        now = time.monotonic()
        if work is None:
            if self._finish(claim):
                desk.requests.finished(claim.docid, now)
            return
        if work.request is None or work.request.answered:
            self._dealt[claim.token] = Dealt(claim, desk, work.request, time.perf_counter_ns())
            self._tally.began(claim.docid, 1)
        elif not self._finish(claim):
            # At most once: it is finished before it is sent, and by us.
            return
        else:
            self._tally.worked(0, 1)
        worker = self.session.pick(desk.service, now, work.need, alone=alone)
        if worker is None:
            self._want(End(work.claim, Released("no worker is ready")))
            return
        dealt = self.session.deal(worker, work, now)
        if type(dealt) is Send and not self.transport.send(dealt.peer, dealt.frames):
            self._send_all(self.session.undelivered(dealt.peer, work.claim, now), now)
        elif type(dealt) is End:
            self._want(dealt)

    def _work_of(self, desk: Desk, claim: Claim, alone: bool) -> Work | None:
        """What is to be dealt; None of a request that is answered, and only to be finished."""
        requests = desk.requests
        if requests.answered(claim.docid):
            return None
        payload, size = _read(claim, self._max_message + AROUND)
        request = requests.recognize(claim.docid, payload)
        # What came as a message can go as one.
        if size > self._max_message and (request is None or size > len(payload)):
            message = f"it has {size} bytes; a message may have {self._max_message}"
            raise ProcessorFailed(Failure(cause="too-large", message=message, permanent=True))
        return Work(claim.token, claim.docid, claim.attempt, payload, desk.service, request, alone)

    def _finish(self, claim: Claim, work: int = 0) -> bool:
        """Whether it was still ours to finish."""
        claim.of.end([claim], [DONE], work / 1e9)
        return claim.fate != "revoked"

    def _end_claim(self, claim: Claim, ending: Ending, work: int = 0) -> None:
        """End a claim, and count what became of it."""
        try:
            claim.of.end([claim], [ending], work / 1e9)
        finally:
            # Of what workers do none is our work.
            self._tally.book([claim.fate], 0)

    def _keep(self, request: Request, now: float) -> None:
        desk = self._desks.get(request.service)
        if desk is None:
            return
        try:
            found = desk.requests.keep(request, time.time_ns() // 1000, now)
        except QueueClosed as error:
            self.said.append(str(error))
            return
        if isinstance(found, str):
            desk.line.join(found)
        elif found is not None:
            # It has been answered, and that was lost on its way.
            self.transport.send(found.peer, found.frames)

    def _answer(self, effect: End, answer: Answer, now: float) -> None:
        dealt = self._dealt.get(effect.claim)
        if dealt is None or dealt.request is None:
            return
        reply = Reply(dealt.claim.docid, dealt.request.key, answer.peer, answer.frames)
        try:
            dealt.desk.requests.write(reply)
        except OSError:
            # The answer is nowhere but here: it is tried again.
            self._wanted.appendleft(effect)
            raise
        del self._dealt[effect.claim]
        try:
            self._clear(dealt)
            if self._finish(dealt.claim, time.perf_counter_ns() - dealt.began):
                dealt.desk.requests.finished(reply.docid, now)
        finally:
            # The answer is on disk: whatever becomes of the request, it will not be done again.
            self._hand_over(dealt.desk, reply, now)
        self._tally.worked(0, 1)

    def _hand_over(self, desk: Desk, reply: Reply, now: float) -> None:
        if self.transport.send(reply.peer, reply.frames):
            desk.requests.sent(reply, now)
        else:
            desk.requests.hold(reply, now)

    def _hand_over_held(self, now: float) -> set[bytes]:
        """Somebody is there again for whom answers were held; the keys of those requests."""
        keys = set()
        while self._back:
            peer = self._back.pop()
            for desk in self._desks.values():
                for reply in desk.requests.held(peer):
                    self._hand_over(desk, reply, now)
                    keys.add(reply.key)
        return keys

    def _end(self, effect: End) -> None:
        dealt = self._dealt.pop(effect.claim, None)
        if dealt is None:
            return
        work = time.perf_counter_ns() - dealt.began
        how = effect.how
        if isinstance(how, Processed):
            self._clear(dealt)
            self._end_claim(dealt.claim, self._written(dealt.claim, how), work)
        elif not isinstance(how, Answer):
            if isinstance(how, Doubted):
                dealt.desk.line.suspect(dealt.claim.docid)
            self._end_claim(dealt.claim, how)
            dealt.desk.line.wake()

    def _clear(self, dealt: Dealt) -> None:
        """It is done. That it was taken back before is nothing its name says, so nobody else would
        forget it; a crash before it is committed costs it no more than that."""
        claim, queue = dealt.claim, dealt.claim.of
        if dealt.desk.line.clear(claim.docid) and not claim.attempt:
            queue.attempts.forget(claim.docid, queue.inode(claim))

    def _written(self, claim: Claim, processed: Processed) -> Ending:
        """Write down what came of a document; return how that ended."""
        try:
            for result in processed.results:
                name = result.name
                claim.outputs.take(
                    result.data if name is None else Output(result.data, name), self._limits
                )
        except (ProcessorFailed, BadDocid, ConfigError, OSError) as error:
            # A name that cannot be used, no output at all, or a disk that is not well.
            return from_exception(error)
        return DONE

    # The end, and trouble

    def clean(self) -> None:
        """The file system is well again."""
        for desk in self._desks.values():
            desk.requests.reopen()
            desk.line.restart()
            give_back_later(desk.queue.later)

    def leave(self, now: float) -> None:
        """Tell the workers, once."""
        if not self._left:
            self._left = True
            self._send_all(self.session.leave(now), now)

    def give_back(self, why: str) -> None:
        """What workers still have is others' from now on; it is charged to nobody."""
        for dealt in self._dealt.values():
            # What cannot be given back is so by whoever recovers it, and charged to nobody either.
            with suppress(OSError):
                self._end_claim(dealt.claim, Released(why))
        self._dealt.clear()


def _read(claim: Claim, most: int) -> tuple[bytes, int]:
    """A document's contents, but not more than so much; and its size."""
    fd = claim.descriptor()
    try:
        size = os.fstat(fd).st_size
        return read_up_to(fd, min(size, most)), size
    finally:
        os.close(fd)
