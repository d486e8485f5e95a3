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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from queuedriver.errors import (
    BadDocid,
    ConfigError,
    ProcessorFailed,
    QueueClosed,
    RemoteProtocolError,
)
from queuedriver.filesystem import read_up_to
from queuedriver.hands import Hands, Job
from queuedriver.lane import Lane
from queuedriver.limits import Limits
from queuedriver.network.line import Line
from queuedriver.network.meter import Meter
from queuedriver.network.requests import Reply, Requests
from queuedriver.network.transport import AROUND, Gone, Joined, Message, Transport
from queuedriver.outcome import Failed, Failure, Released
from queuedriver.outputs import Output
from queuedriver.picking import Candidate
from queuedriver.protocols.dealing import (
    Answered,
    Asked,
    BrokerSession,
    Close,
    Done,
    Effects,
    Lost,
    Request,
    Say,
    Send,
    SetBack,
    Work,
)


class Desk(NamedTuple):
    """One service: the input its documents wait in, and in which order."""

    service: str
    lane: Lane
    line: Line
    requests: Requests


class Dealt(msgspec.Struct, frozen=True):
    """What is in a worker's hands."""

    job: Job
    desk: Desk
    request: Request | None
    began: int


OnQueues = Done | SetBack | Lost | Asked | Answered
_ON_QUEUES = (Done, SetBack, Lost, Asked, Answered)
# Bytes of requests that are not on disk yet.
_MOST_ASKED = 256 << 20


class Dealer:
    """Carries out what one session wants."""

    def __init__(
        self,
        session: BrokerSession,
        transport: Transport,
        desks: Sequence[Desk],
        hands: Hands,
        limits: Limits,
        max_message: int,
        level: int = 0,
    ) -> None:
        self.session = session
        self.transport = transport
        self._desks = {desk.service: desk for desk in desks}
        self._at = {desk.lane.queue.path: desk for desk in desks}
        self._hands = hands
        self._limits = limits
        self._max_message = max_message
        self._level = level
        self._meter = Meter()
        self._dealt: dict[str, Dealt] = {}
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

    @property
    def published(self) -> int:
        """How many outputs have become visible."""
        return self._hands.published

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
            return self.session.receive(peer, arrival.frames, now, time.time())
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
                elif isinstance(effect, _ON_QUEUES):
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
            if isinstance(effect, Done | SetBack):
                self._end(effect)
            elif isinstance(effect, Lost):
                self._wanted.extendleft(_charged(effect))
            elif isinstance(effect, Asked):
                # Not on disk, not promised: on trouble its client will ask again.
                self._asked_bytes -= sum(map(len, effect.request.frames))
                if effect.request.key not in handed_over:
                    self._keep(effect.request, now)
            else:
                self._answer(effect, now)

    def work(self, lane: Lane, candidate: Candidate) -> None:
        """Claim one item and deal it."""
        desk = self._at[lane.queue.path]
        if not self.session.ready(desk.service):
            # Whoever was, when this was chosen, is gone.
            desk.line.put_back(candidate)
            return
        job = self._hands.claim(lane, candidate)
        if job is None:
            return
        try:
            work = self._work_of(desk, job)
        except (ProcessorFailed, OSError) as error:
            # It cannot be read, or not be sent.
            try:
                self._hands.set_back(job, error)
            finally:
                self._hands.put_down(job)
            self._hands.tally.worked(0, 0)
            return
        now = time.monotonic()
        if work is None:
            if self._finish(job):
                desk.requests.finished(job.claim.docid, now)
            return
        if work.request is None or work.request.answered:
            dealt = Dealt(job, desk, work.request, time.perf_counter_ns())
            self._dealt[job.claim.token] = dealt
            self._hands.tally.began(job.claim.docid, 1)
        elif not self._finish(job):
            # At most once: it is finished before it is sent, and by us.
            return
        else:
            self._hands.tally.worked(0, 1)
        self._send_all(self.session.deal(work, now), now)

    def _work_of(self, desk: Desk, job: Job) -> Work | None:
        """What is to be dealt; None of a request that is answered, and only to be finished."""
        claim, requests = job.claim, desk.requests
        if requests.answered(claim.docid):
            return None
        payload, size = _read(job, self._max_message + AROUND)
        request = requests.recognize(claim.docid, payload)
        # What came as a message can go as one.
        if size > self._max_message and (request is None or size > len(payload)):
            message = f"it has {size} bytes; a message may have {self._max_message}"
            raise ProcessorFailed(Failure(cause="too-large", message=message, permanent=True))
        return Work(claim.token, claim.docid, claim.attempt, payload, desk.service, request)

    def _finish(self, job: Job, work: int = 0) -> bool:
        """Whether it was still ours to finish."""
        try:
            return not self._hands.complete(job, work).revoked
        finally:
            self._hands.put_down(job)

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

    def _answer(self, effect: Answered, now: float) -> None:
        dealt = self._dealt.get(effect.claim)
        if dealt is None or dealt.request is None:
            return
        reply = Reply(dealt.job.claim.docid, dealt.request.key, effect.peer, effect.frames)
        try:
            dealt.desk.requests.write(reply)
        except OSError:
            # The answer is nowhere but here: it is tried again.
            self._wanted.appendleft(effect)
            raise
        del self._dealt[effect.claim]
        try:
            if self._finish(dealt.job, time.perf_counter_ns() - dealt.began):
                dealt.desk.requests.finished(reply.docid, now)
        finally:
            # The answer is on disk: whatever becomes of the request, it will not be done again.
            self._hand_over(dealt.desk, reply, now)
        self._hands.tally.worked(0, 1)

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

    def _end(self, effect: Done | SetBack) -> None:
        dealt = self._dealt.pop(effect.claim, None)
        if dealt is None:
            return
        work = time.perf_counter_ns() - dealt.began
        try:
            if isinstance(effect, Done):
                self._complete(dealt, effect, work)
            else:
                self._hands.end_by(dealt.job, effect.how)
                self._hands.tally.worked(0, 0)
                dealt.desk.line.wake()
        finally:
            self._hands.put_down(dealt.job)

    def _complete(self, dealt: Dealt, effect: Done, work: int) -> None:
        job = dealt.job
        try:
            for result in effect.results:
                name = result.name
                job.outputs.take(
                    result.data if name is None else Output(result.data, name), self._limits
                )
        except (ProcessorFailed, BadDocid, ConfigError, OSError) as error:
            # A name that cannot be used, no output at all, or a disk that is not well.
            self._hands.set_back(job, error)
            self._hands.tally.worked(0, 0)
            return
        try:
            self._hands.complete(job, work)
        except PermissionError:
            if not job.claim.committed:
                raise
            # What is in the way of this one output is another user's: who recovers says so.
            job.lane.check_writable()
        self._hands.tally.worked(0, 1)

    # The end, and trouble

    def clean(self) -> None:
        """The file system is well again."""
        for desk in self._desks.values():
            desk.requests.reopen()
            desk.line.restart()
        self._hands.clean()

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
                self._hands.end_by(dealt.job, Released(why))
            self._hands.put_down(dealt.job)
        self._dealt.clear()


def _read(job: Job, most: int) -> tuple[bytes, int]:
    """A document's contents, but not more than so much; and its size."""
    fd = job.document.descriptor()
    try:
        size = os.fstat(fd).st_size
        return read_up_to(fd, min(size, most)), size
    finally:
        os.close(fd)


def _charged(lost: Lost) -> Iterator[SetBack]:
    """Each document that a lost worker had has failed once."""
    message = f"its worker was lost ({lost.why}) while it had the document"
    how = Failed(Failure(cause="worker-lost", message=message))
    return (SetBack(claim, how) for claim in lost.claims)
