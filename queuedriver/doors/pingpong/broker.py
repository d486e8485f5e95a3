"""Pingpong: the smallest worker that can be written. READY, PING and PONG, a document, its result.

    worker                                broker
    ['', READY]  at start, and after a reconnection
    ['', PING]   each second while idle
                                          ['', PONG]  at once, to whatever a worker sends
                                          ['', payload]  a document
    ['', result]                          ['', PONG]
    ['', ERROR, code, text]               ['', PONG]  65 permanent, 75 later, others failed
    ['', DISCONNECT]  leaving             ['', EXIT]  leave
    ['']         connected again          nothing

The words are these ASCII bytes. A payload that equals one of them gets one more empty frame in
front; all others have none. Nothing names the document that a result belongs to: a worker has one
at a time. Therefore one that was given up while it had a document is not listed again before it
says READY or brings that result, and its PINGs go unanswered: if it waits for work, it soon takes
the broker for dead, reconnects and says READY. Answered and listed, it might bring the old result
for a new document. For the same reason one that a broker hears of by a PING is listed by the next
message: it may have said that just before it got a document of an earlier broker, now dead.
"""

from collections.abc import Sequence

from queuedriver.claims.outcomes import Released
from queuedriver.doors import exchange, words
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.pingpong import wire
from queuedriver.doors.pingpong.wire import Said
from queuedriver.doors.table import SAME, Row, Table, ours
from queuedriver.doors.words import Effects, End, Processed, Result, Say, Send, Work, shown

UNKNOWN, HEARD, LISTED, BUSY, OWING = "unknown", "heard of", "listed", "busy", "owing"
_ASIDE = f"{HEARD} | {OWING}"
# The condition of the PING that tells that a worker whose connection broke has nothing in hand.
_TOO_OFTEN = "the last of N_TIMEOUTS since it joined again"

BROKER = Table(
    "pingpong: what a broker knows of a worker",
    [
        Row(UNKNOWN, "READY", "", "PONG", LISTED),
        ours(UNKNOWN, "PING", "", "PONG; it may have a document of an earlier broker", HEARD),
        Row(UNKNOWN, "result", "", "PONG; the result is dropped", LISTED),
        ours(UNKNOWN, "ERROR", "", "PONG", LISTED),
        ours(_ASIDE, "READY", "", "PONG", LISTED),
        ours(_ASIDE, "result", "", "PONG; the result is dropped", LISTED),
        ours(_ASIDE, "ERROR", "", "PONG", LISTED),
        ours(HEARD, "PING", "", "PONG: whoever has a document says none", LISTED),
        ours(OWING, "PING", "", "nothing", OWING),
        ours(f"{UNKNOWN} | {_ASIDE}", "DISCONNECT", "", "nothing", UNKNOWN),
        ours(f"{UNKNOWN} | {_ASIDE} | {LISTED}", "joined again", "", "nothing", SAME),
        Row(LISTED, "READY", "", "PONG; it lives", LISTED),
        Row(LISTED, "PING", "", "PONG; it lives", LISTED),
        Row(LISTED, "result", "", "PONG; the result is dropped", LISTED),
        ours(LISTED, "ERROR", "", "PONG", LISTED),
        ours(LISTED, "DISCONNECT", "", "it is dropped from the list", UNKNOWN),
        Row(LISTED, "a document waits", "", "the document is sent", BUSY),
        Row(LISTED, "silence", "", "after WORKER_EXPIRE_SECONDS it is dropped", UNKNOWN),
        ours(LISTED, "unreachable", "", "it is dropped from the list", UNKNOWN),
        # Leaving, a broker says EXIT where it would list somebody.
        ours(LISTED, "leaving", "", "EXIT", UNKNOWN),
        Row(BUSY, "result", "", "PONG; the result is published", LISTED),
        ours(BUSY, "ERROR", "", "PONG; the document is set back", LISTED),
        ours(BUSY, "PING", "", "PONG; it lives", BUSY),
        ours(BUSY, "joined again", "", "from now on its PINGs count", BUSY),
        ours(BUSY, "PING", _TOO_OFTEN, "the document, or its result, was lost", OWING),
        ours(BUSY, "READY", "", "PONG; the document, or its result, was lost", LISTED),
        ours(BUSY, "DISCONNECT", "", "the document is given back", UNKNOWN),
        ours(BUSY, "each second", "", "PONG, to see whether it is there", BUSY),
        ours(BUSY, "unreachable", "", "the document is lost", OWING),
        ours(BUSY, "unreachable", "not sent", "the document is given back", UNKNOWN),
        ours(BUSY, "time-out", "", "the document is lost", OWING),
    ],
)


class Worker(exchange.Worker):
    """A worker that is listed, or busy."""

    # How often it said PING since its connection broke while it had a document; None: it did not.
    pings: int | None = None


class Broker(Exchange[Worker]):
    """All the workers of one broker."""

    worker = Worker

    def __init__(
        self,
        job_timeout: float | None = None,
        worker_expire_seconds: float = 3.0,
        n_timeouts: int = 3,
    ) -> None:
        super().__init__(silent_after=worker_expire_seconds, job_timeout=job_timeout)
        self._n_timeouts = n_timeouts
        # Those of whom only one PING was heard, and those that were given up with a document in
        # hand and have not said READY since. Most of the latter are dead and never will.
        self._aside: words.Recent[bytes, str] = words.Recent(self.max_workers)

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        said = wire.decode(frames)
        worker = self.workers.get(peer)
        if worker is None:
            return self._hear_stranger(peer, said.event, now)
        worker.heard_at = now
        self.to_the_end(worker)
        was, event, when = worker.state, said.event, ""
        if event == "payload":
            event = "result"
        elif event == "PING" and worker.pings is not None:
            # It may have crossed the document, or may come from beside its work; but each time it
            # means more surely that it has nothing in hand.
            worker.pings += 1
            when = _TOO_OFTEN if worker.pings >= self._n_timeouts else ""
        worker.state = BROKER.step(was, event, when)
        if event == "joined again":
            worker.pings = 0 if was == BUSY else None
            return []
        if event != "PING":
            worker.pings = None
        if worker.state in (UNKNOWN, OWING):
            return self._part(worker)
        effects = self._end(worker, event, said) if was == BUSY and event != "PING" else []
        return effects + (self.rest(worker) or [Send(peer, wire.PONG)])

    def _hear_stranger(self, peer: bytes, event: str, now: float) -> Effects:
        """Take in a message of somebody who is not listed, and be it by it."""
        event = "result" if event == "payload" else event
        was = self._aside.get(peer, UNKNOWN)
        to = BROKER.step(was, event)
        if to != was:
            self._aside.pop(peer, None)
        if to == HEARD:
            self._aside[peer] = HEARD
            return [Send(peer, wire.PONG)]
        if to != LISTED:
            return []
        worker = self.join(peer, now)
        if worker is None:
            text = f"no room for worker {shown(peer)}: there are {len(self.workers)}"
            return [Say(1, text)]
        worker.state = LISTED
        self.offer(worker, 1, now)
        return self.rest(worker) or [Send(peer, wire.PONG)]

    def _end(self, worker: Worker, event: str, said: Said) -> Effects:
        """End the document that a worker has, by what it said."""
        if event == "READY":
            # Whether the document ever came there is not known.
            return self.keep_only(worker, ())
        (claim,) = worker.in_hand
        self.settle(worker, claim)
        if event == "result":
            return [End(claim, Processed((Result(said.data),)))]
        return [End(claim, words.setback(said.code, said.data.decode(errors="replace")))]

    def _part(self, worker: Worker) -> Effects:
        """Lose a worker by what it said."""
        if worker.state == UNKNOWN:
            return self.lose(worker, exchange.LEFT, Released("its worker left"))
        # It lives, and nothing says that the document ever came there.
        return [*self.keep_only(worker, ()), *self.lose(worker, exchange.LEFT)]

    # What the exchange asks

    def frames_of(self, worker: Worker, work: Work) -> tuple[bytes, ...]:
        worker.state = BROKER.own_step(worker.state, "a document waits")
        return wire.payload(work.payload)

    def probe(self, worker: Worker) -> tuple[bytes, ...]:
        worker.state = BROKER.own_step(worker.state, "each second")
        return wire.PONG

    def farewell(self, worker: Worker) -> tuple[bytes, ...]:
        return wire.EXIT

    def forget(self, worker: Worker, why: str) -> None:
        if why in exchange.ENDS:
            worker.state = BROKER.own_step(worker.state, *exchange.ENDS[why])
        if worker.state == OWING:
            self._aside[worker.name] = OWING
