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

from collections import OrderedDict
from collections.abc import Sequence

from queuedriver.claims.outcomes import Failed, Postponed, Released, Setback
from queuedriver.doors.pingpong.wire import (
    DISCONNECT,
    EXIT,
    FAILED,
    LATER,
    PERMANENT,
    PING,
    PONG,
    READY,
    Error,
    Event,
    Options,
    Payload,
    Word,
    decode,
    encode,
)
from queuedriver.doors.roster import Order, Policy, Roster
from queuedriver.doors.table import Row, Table
from queuedriver.doors.words import (
    Done,
    Effects,
    Leave,
    Lost,
    Process,
    Reconnect,
    Result,
    Say,
    Send,
    SetBack,
    Work,
    undelivered,
)
from queuedriver.errors import LocalProtocolError
from queuedriver.format.records import Failure

__all__ = ["BROKER", "WORKER", "Broker", "Options", "Worker"]

# The broker's side


def _name(event: Event) -> str:
    match event:
        case Word(word=word):
            return word.decode()
        case Error():
            return "ERROR"
        case Payload():
            return "result"


UNKNOWN, HEARD, LISTED, BUSY, OWING = "unknown", "heard of", "listed", "busy", "owing"


def _ours(state: str, event: str, when: str, action: str, to: str) -> Row:
    return Row(state, event, when, action, to, ours=True)


BROKER = Table(
    "pingpong: what a broker knows of a worker",
    [
        Row(UNKNOWN, "READY", "", "PONG", LISTED),
        _ours(UNKNOWN, "PING", "", "PONG; it may have a document of an earlier broker", HEARD),
        Row(UNKNOWN, "result", "", "PONG; the result is dropped", LISTED),
        _ours(UNKNOWN, "ERROR", "", "PONG", LISTED),
        _ours(UNKNOWN, "DISCONNECT", "", "nothing", UNKNOWN),
        _ours(HEARD, "READY", "", "PONG", LISTED),
        _ours(HEARD, "PING", "", "PONG: whoever has a document says none", LISTED),
        _ours(HEARD, "result", "", "PONG; the result is dropped", LISTED),
        _ours(HEARD, "ERROR", "", "PONG", LISTED),
        _ours(HEARD, "DISCONNECT", "", "nothing", UNKNOWN),
        Row(LISTED, "READY", "", "PONG; it lives", LISTED),
        Row(LISTED, "PING", "", "PONG; it lives", LISTED),
        Row(LISTED, "result", "", "PONG; the result is dropped", LISTED),
        _ours(LISTED, "ERROR", "", "PONG", LISTED),
        _ours(LISTED, "DISCONNECT", "", "it is dropped from the list", UNKNOWN),
        Row(LISTED, "a document waits", "", "the document is sent", BUSY),
        Row(LISTED, "WORKER_EXPIRE_SECONDS", "", "it is dropped from the list", UNKNOWN),
        _ours(LISTED, "unreachable", "", "it is dropped from the list", UNKNOWN),
        # Leaving, a broker says EXIT where it would list somebody.
        _ours(LISTED, "leaving", "", "EXIT", UNKNOWN),
        Row(BUSY, "result", "", "PONG; the result is published", LISTED),
        _ours(BUSY, "ERROR", "", "PONG; the document is set back", LISTED),
        _ours(BUSY, "PING", "", "PONG; it lives", BUSY),
        _ours(BUSY, "joined again", "", "from now on its PINGs count", BUSY),
        _ours(
            BUSY, "PING × N_TIMEOUTS", "joined again", "the document, or its result, is lost", OWING
        ),
        _ours(BUSY, "READY", "", "PONG; the document is lost", LISTED),
        _ours(BUSY, "DISCONNECT", "", "the document is given back", UNKNOWN),
        _ours(BUSY, "each second", "", "PONG, to see whether it is there", BUSY),
        _ours(BUSY, "unreachable", "", "the document is lost", OWING),
        _ours(BUSY, "unreachable", "not sent", "the document is given back", UNKNOWN),
        _ours(BUSY, "time-out", "", "the document is lost", OWING),
        _ours(OWING, "READY", "", "PONG", LISTED),
        _ours(OWING, "result", "", "PONG; the result is dropped", LISTED),
        _ours(OWING, "ERROR", "", "PONG", LISTED),
        _ours(OWING, "PING", "", "nothing", OWING),
        _ours(OWING, "DISCONNECT", "", "nothing", UNKNOWN),
    ],
)

_PONG = (b"", PONG)
_EXIT = (b"", EXIT)


class Broker:
    """All the workers of one broker."""

    def __init__(self, options: Options | None = None, job_timeout: float | None = None) -> None:
        self._options = (options or Options()).check()
        self._job_timeout = job_timeout
        expire = self._options.worker_expire_seconds
        self._roster = Roster(
            Policy(Order.HEARD, silent_after=expire, max_workers=self._options.max_workers)
        )
        # Those that were given up with a document in hand, and have not said READY since.
        self._owing: OrderedDict[bytes, None] = OrderedDict()
        # How often a worker with a document said PING since its connection broke.
        self._pings: dict[bytes, int] = {}
        # Those of whom only one PING was heard.
        self._heard: OrderedDict[bytes, None] = OrderedDict()
        self._leaving = False
        self._probe_at: float | None = None

    def joined(self, peer: bytes, now: float) -> Effects:
        """A connection says nothing yet."""
        return []

    def receive(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """One message of a worker."""
        # What a thousand workers send each second; the rows of PING for those we know are alike.
        if len(frames) == 2 and frames[1] == PING and not frames[0]:
            if self._roster.busy(peer):
                return self._waits(peer, now)
            if self._roster.heard(peer, now):
                return [Send(peer, _PONG)]
            event: Event = Word(PING)
        elif len(frames) == 1 and not frames[0]:
            return self._joined_again(peer)
        else:
            event = decode(frames)
        self._pings.pop(peer, None)
        name = _name(event)
        to = BROKER.step(self._state(peer), name)
        effects = self._end(peer, event)
        if to == OWING:
            return effects
        self._owing.pop(peer, None)
        self._heard.pop(peer, None)
        if to == HEARD:
            _remember(self._heard, peer, self._options.max_workers)
            return [*effects, Send(peer, _PONG)]
        if to == LISTED and self._leaving:
            effects.append(Send(peer, _EXIT))
            to = BROKER.own_step(LISTED, "leaving")
        if to == UNKNOWN:
            self._roster.leave(peer, "left")
            return effects
        if not self._roster.join(peer, now, 1):
            return [*effects, Say(1, f"no room for worker {peer!r}: there are {len(self._roster)}")]
        return [*effects, Send(peer, _PONG)]

    def _joined_again(self, peer: bytes) -> Effects:
        """Its connection broke: what was on its way, to or fro, may be lost."""
        if self._roster.busy(peer):
            BROKER.own_step(BUSY, "joined again")
            self._pings[peer] = 0
        return []

    def _waits(self, peer: bytes, now: float) -> Effects:
        """PING of one that should be at work. It may have crossed the document, or may come from
        beside its work; but of one whose connection broke, and that says so, it means each time
        more surely that it has nothing in hand."""
        self._roster.heard(peer, now)
        pings = self._pings.get(peer)
        if pings is None or pings + 1 < self._options.n_timeouts:
            BROKER.step(BUSY, "PING")
            if pings is not None:
                self._pings[peer] = pings + 1
            return [Send(peer, _PONG)]
        BROKER.own_step(BUSY, "PING × N_TIMEOUTS", "joined again")
        del self._pings[peer]
        self._owe(peer)
        claims = self._roster.claims(peer)
        self._roster.leave(peer, "left")
        # It lives, and nothing says that the document ever came there.
        return [Lost(peer, claims, "left", doubted=True)]

    def gone(self, peer: bytes, now: float, unsent: str = "") -> Effects:
        """It cannot be reached any more."""
        self._pings.pop(peer, None)
        if unsent and self._roster.settle(peer, unsent):
            # It has no result for it, either: it may say PING again.
            BROKER.own_step(BUSY, "unreachable", "not sent")
            self._roster.leave(peer, "unroutable")
            return [undelivered(unsent)]
        lost = self._roster.leave(peer, "unroutable")
        if lost is None:
            return []
        if lost.claims:
            self._owe(peer)
        return [lost]

    def ready(self, service: str = "", alone: bool = False) -> bool:
        """Whether a worker waits."""
        return not self._leaving and self._roster.pick(service) is not None

    def spare(self, service: str, wanted: bool) -> None:
        """Nothing to do: a worker has one document at a time."""

    def deal(self, work: Work, now: float) -> Effects:
        """To the worker that waits and was heard of longest ago."""
        worker = None if self._leaving else self._roster.pick(work.service)
        if worker is None:
            return [SetBack(work.claim, Released("no worker is ready"))]
        deadline = None if self._job_timeout is None else now + self._job_timeout
        self._roster.assign(worker, work.claim, now, deadline=deadline)
        if self._probe_at is None:
            self._probe_at = now + self._options.ping_interval
        return [Send(worker, encode(Payload(work.payload)), work.claim)]

    def leave(self, now: float) -> Effects:
        """EXIT to those that wait; the others get it after their result."""
        self._leaving = True
        waiting = [worker for worker in self._roster.names() if not self._roster.busy(worker)]
        for worker in waiting:
            self._roster.leave(worker, "left")
        return [Send(worker, _EXIT) for worker in waiting]

    def tick(self, now: float) -> Effects:
        """Drop the silent and the overdue; see whether the busy are there."""
        effects: Effects = []
        for lost in self._roster.expire(now):
            self._pings.pop(lost.worker, None)
            if lost.claims:
                self._owe(lost.worker)
            effects.append(lost)
        if self._probe_at is not None and self._probe_at <= now:
            busy = self._roster.who_is_busy()
            effects.extend(Send(worker, _PONG) for worker in busy)
            self._probe_at = now + self._options.ping_interval if busy else None
        return effects

    def next_tick_at(self) -> float | None:
        """When somebody may be silent or overdue, or the busy are to be tried."""
        instants = (self._roster.next_tick_at(), self._probe_at)
        return min((at for at in instants if at is not None), default=None)

    def _state(self, peer: bytes) -> str:
        if peer in self._owing:
            return OWING
        if peer not in self._roster:
            return HEARD if peer in self._heard else UNKNOWN
        return BUSY if self._roster.busy(peer) else LISTED

    def _end(self, peer: bytes, event: Event) -> Effects:
        """What a message does to the document that its sender has in hand."""
        claims = self._roster.claims(peer)
        if not claims:
            return []
        (claim,) = claims
        match event:
            case Payload(data=data):
                self._roster.settle(peer, claim)
                return [Done(claim, (Result(data),))]
            case Error():
                self._roster.settle(peer, claim)
                return [SetBack(claim, self._setback(event))]
            case Word(word=b"READY"):
                lost = self._roster.leave(peer, "left")
                return [lost] if lost else []
            case Word(word=b"DISCONNECT"):
                return [SetBack(claim, Released("its worker left"))]
        return []

    def _setback(self, error: Error) -> Setback:
        text = error.text or "its worker did not say why"
        if error.code == LATER:
            return Postponed(self._options.later_after, text)
        permanent = error.code == PERMANENT
        cause = "permanent" if permanent else "exit"
        return Failed(Failure(cause=cause, message=text, permanent=permanent, exit_code=error.code))

    def _owe(self, peer: bytes) -> None:
        # Most of them are dead and will never say READY.
        _remember(self._owing, peer, self._options.max_workers)


def _remember(peers: OrderedDict[bytes, None], peer: bytes, most: int) -> None:
    """One more; the oldest is forgotten when there are too many."""
    peers[peer] = None
    if len(peers) > most:
        peers.popitem(last=False)


# The worker's side

CLOSED, HELLO, IDLE, WORKING, LEFT = "closed", "hello", "idle", "working", "left"

WORKER = Table(
    "pingpong: a worker",
    [
        Row(CLOSED, "connected", "", "READY", HELLO),
        _ours(HELLO, "connected", "", "READY", HELLO),
        _ours(IDLE, "connected", "", "READY", HELLO),
        _ours(WORKING, "connected", "", "nothing: the result will say that we live", WORKING),
        Row(HELLO, "PONG", "", "the broker lives", IDLE),
        _ours(HELLO, "document", "", "dropped: it was sent before the READY", HELLO),
        Row(HELLO, "EXIT", "", "we leave", LEFT),
        Row(IDLE, "PONG", "", "the broker lives", IDLE),
        Row(IDLE, "document", "", "it is processed", WORKING),
        Row(IDLE, "EXIT", "", "we leave", LEFT),
        Row(WORKING, "PONG", "", "the broker lives", WORKING),
        _ours(WORKING, "EXIT", "", "we leave after the result", WORKING),
        Row(WORKING, "processed", "", "the result, or ERROR; the timers start anew", IDLE),
        _ours(WORKING, "interrupted", "", "DISCONNECT; we leave", LEFT),
        Row(HELLO, "each second", "", "PING", HELLO),
        Row(IDLE, "each second", "", "PING", IDLE),
        Row(HELLO, "N_TIMEOUTS", "", "the connection is closed and opened", CLOSED),
        Row(IDLE, "N_TIMEOUTS", "", "the connection is closed and opened", CLOSED),
        _ours(CLOSED, "leave", "", "we leave", LEFT),
        _ours(HELLO, "leave", "", "DISCONNECT; we leave", LEFT),
        _ours(IDLE, "leave", "", "DISCONNECT; we leave", LEFT),
        _ours(WORKING, "leave", "", "we leave after the result", WORKING),
    ],
)

# A worker's one peer.
_BROKER = b""


class Worker:
    """One worker, with one document at a time."""

    def __init__(self, options: Options | None = None) -> None:
        self._options = (options or Options()).check()
        self._state = CLOSED
        self._claim = 0
        self._silent_at = 0.0
        self._ping_at = 0.0
        # Why we leave, once we are to; and whether the broker wants it.
        self._leaving = ""
        self._told_to = False

    def start(self, now: float, wall: float) -> Effects:
        """READY, unless a document is in hand."""
        self._state = WORKER.own_step(self._state, "connected")
        self._restart_timers(now)
        return [] if self._state == WORKING else [Send(_BROKER, (b"", READY))]

    def rejoined(self, now: float, wall: float) -> Effects:
        """An empty frame alone: what was on its way may be lost, and our PINGs will tell. No READY:
        a document, or a PONG, that came before it could be taken for one that came after it, and
        each result from then on for another document's."""
        return [] if self._state in (CLOSED, LEFT) else [Send(_BROKER, (b"",))]

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """One message of the broker."""
        event = decode(frames)
        was, name = self._state, "document" if isinstance(event, Payload) else _name(event)
        self._state = WORKER.step(was, name)
        self._silent_at = now + self._options.n_timeouts * self._options.broker_timeout
        if name == "EXIT":
            self._leaving, self._told_to = "the broker says EXIT", True
            return [Leave(self._leaving)] if self._state == LEFT else []
        if not isinstance(event, Payload):
            return []
        if was == HELLO:
            # The broker counts it lost when it sees our READY; its answer to that comes first.
            return [Say(1, "a document that was sent before our READY is dropped")]
        self._claim += 1
        claim = str(self._claim)
        return [Process(Work(claim, f"document-{claim}", 0, event.data))]

    def finished(self, claim: str, results: tuple[Result, ...], now: float) -> Effects:
        """The result; anything but exactly one cannot be said."""
        if len(results) != 1:
            text = f"it has {len(results)} outputs; a worker of pingpong has exactly one"
            return self._processed(claim, Error(PERMANENT, text), now)
        return self._processed(claim, Payload(results[0].data), now)

    def failed(self, claim: str, how: Setback, now: float) -> Effects:
        """ERROR; interrupted because we leave, DISCONNECT: that is charged to nobody."""
        match how:
            case Failed(failure=failure) if failure.permanent:
                error = Error(PERMANENT, failure.message)
            case Failed(failure=failure):
                error = Error(FAILED, failure.message)
            case Postponed(reason=reason):
                error = Error(LATER, reason)
            case Released(reason=reason):
                if self._leaving:
                    self._require(claim)
                    self._state = WORKER.own_step(self._state, "interrupted")
                    return [Send(_BROKER, (b"", DISCONNECT)), Leave(self._leaving)]
                error = Error(LATER, reason)
        return self._processed(claim, error, now)

    def leave(self, now: float) -> Effects:
        """DISCONNECT, at once or after the result."""
        if self._leaving:
            return []
        was, self._leaving = self._state, "asked to leave"
        self._state = WORKER.own_step(was, "leave")
        if self._state != LEFT:
            return []
        goodbye: Effects = [] if was == CLOSED else [Send(_BROKER, (b"", DISCONNECT))]
        return [*goodbye, Leave(self._leaving)]

    def tick(self, now: float, wall: float) -> Effects:
        """PING, whether or not the broker is heard of; after too much silence, reconnect."""
        if self._state not in (HELLO, IDLE):
            return []
        if now >= self._silent_at:
            self._state = WORKER.own_step(self._state, "N_TIMEOUTS")
            options = self._options
            silence = f"{options.n_timeouts} × {options.broker_timeout:g} s"
            return [Reconnect(f"the broker has been silent for {silence}")]
        if now >= self._ping_at:
            self._ping_at = now + self._options.ping_interval
            return [Send(_BROKER, (b"", PING))]
        return []

    def next_tick_at(self) -> float | None:
        """The next PING, or the end of our patience."""
        if self._state not in (HELLO, IDLE):
            return None
        return min(self._silent_at, self._ping_at)

    def _processed(self, claim: str, event: Event, now: float) -> Effects:
        self._require(claim)
        self._state = WORKER.own_step(self._state, "processed")
        # While we worked we read nothing: that the broker was silent is not known.
        self._restart_timers(now)
        effects: Effects = [Send(_BROKER, encode(event))]
        if self._leaving:
            self._state = LEFT
            if not self._told_to:
                effects.append(Send(_BROKER, (b"", DISCONNECT)))
            effects.append(Leave(self._leaving))
        return effects

    def _require(self, claim: str) -> None:
        if self._state != WORKING or claim != str(self._claim):
            raise LocalProtocolError(f"document {claim} is not in hand")

    def _restart_timers(self, now: float) -> None:
        self._silent_at = now + self._options.n_timeouts * self._options.broker_timeout
        self._ping_at = now + self._options.ping_interval
