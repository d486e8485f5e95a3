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

The frames come first here, then the broker's side, then a worker's. Pure.
"""

import re
from collections.abc import Sequence

import msgspec

from queuedriver.claims.outcomes import Released, Setback
from queuedriver.doors import exchange, words
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.table import SAME, Row, Table, ours
from queuedriver.doors.words import Effects, End, Leave, Process, Reconnect, Say, Send, Work, shown
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

# What is said

READY = (b"", b"READY")
PING = (b"", b"PING")
PONG = (b"", b"PONG")
EXIT = (b"", b"EXIT")
DISCONNECT = (b"", b"DISCONNECT")
BACK = (b"",)
_ERROR = b"ERROR"
WORDS = {word: word.decode() for _, word in (READY, PING, PONG, EXIT, DISCONNECT)}
_CODE = re.compile(rb"-?[0-9]{1,3}")


class Said(msgspec.Struct, frozen=True, gc=False):
    """A message, taken apart."""

    # READY, PING, PONG, EXIT, DISCONNECT, ERROR, "joined again" or "payload".
    event: str
    # A payload; of ERROR, its text.
    data: bytes = b""
    # What ERROR says, as a command's exit code would.
    code: int = 0


def decode(frames: Sequence[bytes]) -> Said:
    """Return what a message means, whoever sent it."""
    match frames:
        case [b"", word] if word in WORDS:
            return Said(WORDS[word])
        case [b"", data] if data != _ERROR:
            return Said("payload", data)
        case [b"", b"", data]:
            return Said("payload", data)
        case [b"", b"ERROR", code, text] if _CODE.fullmatch(code):
            return Said("ERROR", text[: words.MAX_TEXT], int(code))
        case [b""]:
            return Said("joined again")
    raise RemoteProtocolError(
        f"{len(frames)} frames that are neither a word, nor a payload, nor an ERROR with code "
        "and text, each after one empty frame"
    )


def payload(data: bytes) -> tuple[bytes, ...]:
    """Return the frames of a document, or of its result."""
    return (b"", b"", data) if data in WORDS or data == _ERROR else (b"", data)


def error(code: int, text: str) -> tuple[bytes, ...]:
    """Return the frames that say that a document was not processed."""
    return (b"", _ERROR, b"%d" % code, text.encode(errors="replace")[: words.MAX_TEXT])


# The broker

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


class Peer(exchange.Worker):
    """A worker that is listed, or busy."""

    # How often it said PING since its connection broke while it had a document; None: it did not.
    pings: int | None = None


class Broker(Exchange[Peer]):
    """All the workers of one broker."""

    worker = Peer

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
        said = decode(frames)
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
        return effects + (self.rest(worker) or [Send(peer, PONG)])

    def _hear_stranger(self, peer: bytes, event: str, now: float) -> Effects:
        """Take in a message of somebody who is not listed, and be it by it."""
        event = "result" if event == "payload" else event
        was = self._aside.get(peer, UNKNOWN)
        to = BROKER.step(was, event)
        if to != was:
            self._aside.pop(peer, None)
        if to == HEARD:
            self._aside[peer] = HEARD
            return [Send(peer, PONG)]
        if to != LISTED:
            return []
        worker = self.join(peer, now)
        if worker is None:
            text = f"no room for worker {shown(peer)}: there are {len(self.workers)}"
            return [Say(1, text)]
        worker.state = LISTED
        self.offer(worker, 1, now)
        return self.rest(worker) or [Send(peer, PONG)]

    def _end(self, worker: Peer, event: str, said: Said) -> Effects:
        """End the document that a worker has, by what it said."""
        if event == "READY":
            # Whether the document ever came there is not known.
            return self.keep_only(worker, ())
        (claim,) = worker.in_hand
        self.settle(worker, claim)
        if event == "result":
            return [End(claim, words.Processed((words.Result(said.data),)))]
        return [End(claim, words.setback(said.code, said.data.decode(errors="replace")))]

    def _part(self, worker: Peer) -> Effects:
        """Lose a worker by what it said."""
        if worker.state == UNKNOWN:
            return self.lose(worker, exchange.LEFT, Released("its worker left"))
        # It lives, and nothing says that the document ever came there.
        return [*self.keep_only(worker, ()), *self.lose(worker, exchange.LEFT)]

    # What the exchange asks

    def frames_of(self, worker: Peer, work: Work) -> tuple[bytes, ...]:
        worker.state = BROKER.own_step(worker.state, "a document waits")
        return payload(work.payload)

    def probe(self, worker: Peer) -> tuple[bytes, ...]:
        worker.state = BROKER.own_step(worker.state, "each second")
        return PONG

    def farewell(self, worker: Peer) -> tuple[bytes, ...]:
        return EXIT

    def forget(self, worker: Peer, why: str) -> None:
        if why in exchange.ENDS:
            worker.state = BROKER.own_step(worker.state, *exchange.ENDS[why])
        if worker.state == OWING:
            self._aside[worker.name] = OWING


# A worker

CLOSED, HELLO, IDLE, WORKING, LEFT = "closed", "hello", "idle", "working", "left"

WORKER = Table(
    "pingpong: a worker",
    [
        Row(CLOSED, "connected", "", "READY", HELLO),
        ours(f"{HELLO} | {IDLE}", "connected", "", "READY", HELLO),
        ours(WORKING, "connected", "", "nothing: the result will say that we live", WORKING),
        Row(f"{HELLO} | {IDLE}", "PONG", "", "the broker lives", IDLE),
        Row(WORKING, "PONG", "", "the broker lives", WORKING),
        ours(HELLO, "document", "", "dropped: it was sent before the READY", HELLO),
        Row(IDLE, "document", "", "it is processed", WORKING),
        Row(f"{HELLO} | {IDLE}", "EXIT", "", "we leave", LEFT),
        ours(WORKING, "EXIT", "", "we leave after the result", WORKING),
        Row(WORKING, "processed", "", "the result, or ERROR; the timers start anew", IDLE),
        ours(WORKING, "processed", "leaving", "the result, or ERROR; we leave", LEFT),
        ours(WORKING, "interrupted", "", "DISCONNECT; we leave", LEFT),
        Row(f"{HELLO} | {IDLE}", "each second", "", "PING", SAME),
        Row(f"{HELLO} | {IDLE}", "N_TIMEOUTS", "", "the connection is closed and opened", CLOSED),
        ours(f"{HELLO} | {IDLE} | {WORKING}", "joined again", "", "an empty frame alone", SAME),
        ours(CLOSED, "leave", "", "we leave", LEFT),
        ours(f"{HELLO} | {IDLE}", "leave", "", "DISCONNECT; we leave", LEFT),
        ours(WORKING, "leave", "", "we leave after the result", WORKING),
    ],
)

# A worker's one peer.
_BROKER = b""


class Worker(words.WorkerSession):
    """One worker, with one document at a time."""

    def __init__(self, broker_timeout: float = 1.0, n_timeouts: int = 3) -> None:
        # So often it says PING while it waits; and so long it is patient with a silent broker.
        self._period = broker_timeout
        self._patience = n_timeouts * broker_timeout
        self._state = CLOSED
        self._claim = 0
        self._silent_at = 0.0
        self._ping_at = 0.0
        # Why we leave, once we are to; and whether the broker wants it.
        self._leaving = ""
        self._told_to = False

    def start(self, now: float, wall: float) -> Effects:
        """Say READY, unless a document is in hand."""
        self._state = WORKER.own_step(self._state, "connected")
        self._restart_timers(now)
        return [] if self._state == WORKING else [Send(_BROKER, READY)]

    def joined(self, peer: bytes, now: float) -> Effects:
        """Say an empty frame alone: what was on its way may be lost, and our PINGs will tell. No
        READY: a document, or a PONG, that came before it could be taken for one that came after it,
        and each result from then on for another document's."""
        if self._state in (CLOSED, LEFT):
            return []
        self._state = WORKER.own_step(self._state, "joined again")
        return [Send(_BROKER, BACK)]

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """Take in one message of the broker."""
        said = decode(frames)
        was, event = self._state, "document" if said.event == "payload" else said.event
        self._state = WORKER.step(was, event)
        self._silent_at = now + self._patience
        if event == "EXIT":
            self._leaving, self._told_to = "the broker says EXIT", True
            return [Leave(self._leaving)] if self._state == LEFT else []
        if event != "document":
            return []
        if was == HELLO:
            # The broker counts it lost when it sees our READY; its answer to that comes first.
            return [Say(1, "a document that was sent before our READY is dropped")]
        self._claim += 1
        claim = str(self._claim)
        return [Process(Work(claim, f"document-{claim}", 0, said.data))]

    def finished(self, claim: str, results: tuple[words.Result, ...], now: float) -> Effects:
        """Say the result; anything but exactly one cannot be said."""
        if len(results) != 1:
            text = f"it has {len(results)} outputs; a worker of pingpong has exactly one"
            return self._processed(claim, error(words.PERMANENT, text), now)
        return self._processed(claim, payload(results[0].data), now)

    def failed(self, claim: str, how: Setback, now: float) -> Effects:
        """Say ERROR; interrupted because we leave, DISCONNECT: that is charged to nobody."""
        if isinstance(how, Released) and self._leaving:
            self._require(claim)
            self._state = WORKER.own_step(self._state, "interrupted")
            return [Send(_BROKER, DISCONNECT), Leave(self._leaving)]
        return self._processed(claim, error(*words.status(how)), now)

    def leave(self, now: float) -> Effects:
        """Say DISCONNECT, at once or after the result."""
        if self._leaving:
            return []
        was, self._leaving = self._state, "asked to leave"
        self._state = WORKER.own_step(was, "leave")
        if self._state != LEFT:
            return []
        goodbye: Effects = [] if was == CLOSED else [Send(_BROKER, DISCONNECT)]
        return [*goodbye, Leave(self._leaving)]

    def tick(self, now: float, wall: float) -> Effects:
        """Say PING, whether or not the broker is heard of; after too much silence, reconnect."""
        if self._state not in (HELLO, IDLE):
            return []
        if now >= self._silent_at:
            self._state = WORKER.own_step(self._state, "N_TIMEOUTS")
            return [Reconnect(f"the broker has been silent for {self._patience:g} s")]
        if now >= self._ping_at:
            self._state = WORKER.own_step(self._state, "each second")
            self._ping_at = now + self._period
            return [Send(_BROKER, PING)]
        return []

    def next_tick_at(self) -> float | None:
        """Return when the next PING is due, or our patience ends."""
        if self._state not in (HELLO, IDLE):
            return None
        return min(self._silent_at, self._ping_at)

    def _processed(self, claim: str, frames: tuple[bytes, ...], now: float) -> Effects:
        self._require(claim)
        when = "leaving" if self._leaving else ""
        self._state = WORKER.own_step(self._state, "processed", when)
        # While we worked we read nothing: that the broker was silent is not known.
        self._restart_timers(now)
        effects: Effects = [Send(_BROKER, frames)]
        if self._leaving:
            if not self._told_to:
                effects.append(Send(_BROKER, DISCONNECT))
            effects.append(Leave(self._leaving))
        return effects

    def _require(self, claim: str) -> None:
        if self._state != WORKING or claim != str(self._claim):
            raise LocalProtocolError(f"document {claim} is not in hand")

    def _restart_timers(self, now: float) -> None:
        self._silent_at = now + self._patience
        self._ping_at = now + self._period
