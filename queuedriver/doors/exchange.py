"""All workers of one broker: who is listed, what each has in hand, and whose turn it is. Pure.

A worker is one object: its state, how much more it takes, its works in hand, and what its protocol
knows of it. The next work goes to whoever was put at the end of the order longest ago (`to_the_end`
and each deal do that), of those with room for it. Work that goes alone goes to a worker with
nothing in hand, and nothing goes behind it.

What a lost worker had in hand ends in one place, `lose`: of one work its worker is blamed; of
several, any may have ended it, and none is known to have.

A protocol's broker is a subclass. It supplies these, and nothing else:

    worker         the class of its workers, with what it knows of each
    settling_frees whether a settled work gives back what it took, or the protocol does (`offer`)
    one_process    whether all that a worker has is in one process, which any of it may end
    hear           what a message does: step the table, then `offer`, `settle`, `lose`, `keep_only`
    frames_of      how a work is said; steps the table. RemoteProtocolError: it cannot be
    was_deaf       that what is heard now may be old
    probe          how a busy worker is asked once a second whether it is there
    farewell       how a worker is sent away; None: there is no word for it
    forget         that a worker is listed no more, and why: step the table, drop its own books
    refusal        how a client is told that its request will not be done; `request_patience` and
                   `max_requests` say when it is not
    joined         what a new connection is told, where the transport has them

and, where not every worker may have every work, its own `pick` around this one.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from queuedriver.claims.outcomes import Doubted, Failed, Released, Setback
from queuedriver.doors import words
from queuedriver.doors.words import Answer, Effects, End, Request, Say, Send, Work, shown
from queuedriver.errors import RemoteProtocolError
from queuedriver.format.records import Failure

# Why a worker is lost.
SILENT = "silent"
OVERDUE = "overdue"
UNROUTABLE = "unroutable"
UNDELIVERED = "undelivered"
LEFT = "left"
# Why it is listed no more though it is not lost: the broker leaves.
LEAVING = "leaving"
# What tables call the ends that only the exchange sees: event and condition.
ENDS = {
    SILENT: ("silence", ""),
    OVERDUE: ("time-out", ""),
    UNROUTABLE: ("unreachable", ""),
    UNDELIVERED: ("unreachable", "not sent"),
    LEAVING: ("leaving", ""),
}
# The service of whoever has no services.
ANY = frozenset({""})
# How often it is looked who is silent, overdue or unreachable, in seconds.
LOOK_EVERY = 1.0
# After so many seconds in which a broker with workers heard nobody, as it was stopped, or a disk
# kept it, peers are heard out for so many before any is silent or overdue: what they said is on its
# way, or comes when they have connected anew.
DEAF_AFTER, HEARS_OUT = 5.0, 6.0
_BY_TURN = attrgetter("turn")


class Worker(msgspec.Struct, eq=False):
    """A worker that is listed."""

    name: bytes
    # When it was heard of last.
    heard_at: float
    # The state of its table.
    state: str = ""
    # Seconds of silence after which it is lost while it has nothing in hand.
    silent_after: float = math.inf
    # The most that it takes at a time; 0: nothing more is dealt to it.
    slots: int = 1
    # How much more it takes now; set by `offer`.
    free: int = 0
    services: frozenset[str] = ANY
    # Its works, and since when it is at each, by claim; None while it has others before it.
    in_hand: dict[str, tuple[Work, float | None]] = msgspec.field(default_factory=dict)
    # How much it was dealt of what nobody waits for, which has no end.
    besides: int = 0
    # Whether what it has in hand goes alone.
    alone: bool = False
    # Its place in the order: the lowest is next.
    turn: int = 0


W = TypeVar("W", bound=Worker)


class Exchange(words.Session, Generic[W]):
    """The workers of one broker. `now` is the loop's monotonic clock, in seconds."""

    worker: type[W]
    settling_frees = True
    one_process = True
    # How long a client's request waits for a worker, in seconds; and how many may.
    request_patience = math.inf
    max_requests = 100_000
    # How many workers are listed at most.
    max_workers = 10_000

    def __init__(self, *, silent_after: float = math.inf, job_timeout: float | None = None) -> None:
        # Those that are listed, by name, in the order in which they would be dealt to.
        self.workers: OrderedDict[bytes, W] = OrderedDict()
        # Whether nothing is dealt any more, and workers are sent away.
        self.leaving = False
        # Workers that are kept for something; cleared before each look at what waits.
        self.reserved: set[W] = set()
        self._silent_after = silent_after
        self._job_timeout = math.inf if job_timeout is None else job_timeout
        # Those with something free.
        self._free: set[W] = set()
        self._turn = 0
        self._look_at = 0.0

    # What a protocol supplies

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        raise NotImplementedError

    def frames_of(self, worker: W, work: Work) -> tuple[bytes, ...]:
        """Return how a work is said to a worker."""
        raise NotImplementedError

    def probe(self, worker: W) -> tuple[bytes, ...] | None:
        """Return what a busy worker is sent once a second; None for nothing."""
        return None

    def farewell(self, worker: W) -> tuple[bytes, ...] | None:
        """Return how a worker is sent away; None where there is no word for it."""
        return None

    def forget(self, worker: W, why: str) -> None:
        """Note that a worker is listed no more."""

    def refusal(self, request: Request, why: str, *, late: bool = False) -> Answer | None:
        """Return how a client is told that its request was discarded, or is not taken: nobody did
        in time, too many wait, or the queue is closed (`late`); None: there is no word for it."""
        return None

    # A worker's life

    def join(self, name: bytes, now: float) -> W | None:
        """List a worker; return it, or None when there are as many as may be."""
        if len(self.workers) >= self.max_workers:
            return None
        worker = self.workers[name] = self.worker(name, now, silent_after=self._silent_after)
        self.to_the_end(worker)
        return worker

    def to_the_end(self, worker: W) -> None:
        """Put a worker behind all others."""
        self._turn += 1
        worker.turn = self._turn
        self.workers.move_to_end(worker.name)

    def offer(self, worker: W, free: int, now: float) -> None:
        """Note that a worker takes so much more now."""
        worker.heard_at = now
        worker.free = free
        if worker.besides:
            in_hand = sum(work.need for work, _ in worker.in_hand.values())
            worker.besides = min(worker.besides, max(0, worker.slots - free - in_hand))
        if free > 0:
            self._free.add(worker)
        else:
            self._free.discard(worker)

    def gone(self, peer: bytes, now: float) -> Effects:
        """Lose whoever cannot be reached any more."""
        worker = self.workers.get(peer)
        return self.lose(worker, UNROUTABLE) if worker is not None else []

    def lose(self, worker: W, why: str, how: Setback | None = None) -> Effects:
        """Strike a worker off; end what it had in hand as is said, or as its loss asks for."""
        self._strike_off(worker, why)
        in_hand = worker.in_hand
        if not in_hand:
            return [Say(1, f"worker {shown(worker.name)} is no longer listed: {why}")]
        if how is None:
            message = f"its worker was lost ({why}) while it had the document"
            failure = Failure(cause="worker-lost", message=message)
            to_blame = not self.one_process or (len(in_hand) == 1 and not worker.besides)
            how = Failed(failure) if to_blame else Doubted(failure)
        # An orderly end is not worth a word.
        level = 1 if isinstance(how, Released) else 0
        docids = ", ".join(work.docid for work, _ in in_hand.values())
        said = Say(level, f"worker {shown(worker.name)} is gone ({why}); it had {docids}")
        return [*(End(claim, how) for claim in in_hand), said]

    def keep_only(self, worker: W, claims: Collection[str]) -> Effects:
        """End what a worker has in hand for all we know, and has not: it, or what came of it, was
        lost on its way, or in the worker's earlier life."""
        message = "it was lost on its way to its worker, or back"
        failure = Failure(cause="worker-lost", message=message)
        missing = [claim for claim in worker.in_hand if claim not in claims]
        for claim in missing:
            self.settle(worker, claim)
        return [End(claim, Doubted(failure)) for claim in missing]

    def _strike_off(self, worker: W, why: str) -> None:
        del self.workers[worker.name]
        self._free.discard(worker)
        self.forget(worker, why)

    # Work

    @property
    def busy(self) -> bool:
        """Tell whether nobody would take anything."""
        return not self._free

    def pick(self, service: str, now: float, need: int = 1, *, alone: bool = False) -> W | None:
        """Return whose turn it is of those that would take this; `alone`: and have nothing in
        hand."""
        if self.leaving:
            return None
        # Where most have something free, the first of them is soon found; else they are few.
        many = 2 * len(self._free) > len(self.workers)
        for worker in self.workers.values() if many else sorted(self._free, key=_BY_TURN):
            if (
                worker.free >= need
                and service in worker.services
                and not (worker.alone or (alone and worker.in_hand))
                and now - worker.heard_at < worker.silent_after
                and (alone or worker not in self.reserved)
            ):
                return worker
        return None

    def keep_one(self, service: str) -> None:
        """Keep a worker for what goes alone, for which nobody is free, until the next round: that
        with the least in hand."""
        able = (
            worker
            for worker in self.workers.values()
            if service in worker.services
            and worker.slots > 0
            and not worker.alone
            # One whose every slot was lost would be kept for ever.
            and (worker.in_hand or worker.free > 0)
        )
        first = min(able, key=lambda worker: (len(worker.in_hand), worker.turn), default=None)
        if first is not None:
            self.reserved.add(first)

    def deal(self, worker: W, work: Work, now: float) -> Send | End:
        """Give a work to the worker that was picked for it: return what it is sent; or, of what
        cannot be said, how it ends."""
        try:
            frames = self.frames_of(worker, work)
        except RemoteProtocolError as error:
            # Somebody else wrote that into the queue.
            failure = Failure(cause="bad-request", message=str(error), permanent=True)
            return End(work.claim, Failed(failure))
        worker.free -= work.need
        if worker.free <= 0:
            self._free.discard(worker)
        self.to_the_end(worker)
        if work.request is None or work.request.answered:
            # What is behind others in one process has not begun.
            begun = None if worker.in_hand and self.one_process else now
            worker.in_hand[work.claim] = work, begun
            worker.alone = work.alone
        else:
            worker.besides += work.need
        return Send(worker.name, frames)

    def undelivered(self, peer: bytes, claim: str, now: float) -> Effects:
        """Give back what was dealt to a worker and could not be sent to it: nobody has had it, and
        its worker is gone."""
        worker = self.workers.get(peer)
        if worker is None:
            return []
        found = self.settle(worker, claim)
        released = Released("its worker was gone before it was sent")
        ends: Effects = [End(claim, released)] if found is not None else []
        return ends + self.lose(worker, UNDELIVERED)

    def settle(self, worker: W, claim: str) -> Work | None:
        """Take a work out of a worker's hands; return None if it has not got it: it is late, or
        unknown."""
        found = worker.in_hand.pop(claim, None)
        if found is None:
            return None
        work, _ = found
        worker.alone = False
        if self.settling_frees:
            worker.free += work.need
        if worker.free > 0:
            self._free.add(worker)
        return work

    # Time, and the end

    def tick(self, now: float, wall: float = 0.0) -> Effects:
        """Lose who is silent or overdue, and see whether the busy are there."""
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_EVERY
        effects: Effects = []
        for worker in list(self.workers.values()):
            if not (worker.in_hand or worker.besides):
                if now - worker.heard_at >= worker.silent_after:
                    effects += self.lose(worker, SILENT)
            elif any(now - since >= self._job_timeout for since in self._begun(worker, now)):
                effects += self.lose(worker, OVERDUE)
                effects.append(words.Close(worker.name, "it has had something for too long"))
            elif (frames := self.probe(worker)) is not None:
                effects.append(Send(worker.name, frames))
        return effects

    def _begun(self, worker: W, now: float) -> list[float]:
        """Return since when a worker is at what it is at. In one process that is the first of what
        it has: what was behind others begins when it is seen to have come up."""
        in_hand = worker.in_hand
        if self.one_process and in_hand:
            first = next(iter(in_hand))
            work, since = in_hand[first]
            if since is None:
                in_hand[first] = work, now
        return [since for _, since in in_hand.values() if since is not None]

    def next_tick_at(self) -> float | None:
        """Return when `tick` is worth calling; None: not before somebody is listed."""
        return self._look_at if self.workers else None

    def leave(self, now: float) -> Effects:
        """Deal nothing more; send everybody away who has nothing in hand."""
        self.leaving = True
        return [sent for worker in [*self.workers.values()] for sent in self.rest(worker)]

    def rest(self, worker: W) -> Effects:
        """Send a worker away that has nothing in hand, once the broker leaves."""
        if not self.leaving or worker.in_hand:
            return []
        frames = self.farewell(worker)
        if frames is None:
            return []
        self._strike_off(worker, LEAVING)
        return [Send(worker.name, frames)]
