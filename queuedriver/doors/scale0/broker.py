"""Scale0: workers offer services, and learn their configuration from their broker.

    worker                              broker                            frontend
    CHECKCONFIG config_version
                                        CONFIG, or {unchanged: true}
    READY services, time, version
                                        READYOK: it is listed
    PING time, version                  PONG both times, version
                                                                          WORKREQUEST service, body
                                        WORKREQUEST identifier, body
    WORKREPLY identifier, body
                                        WORKREPLY                         (or DISCONNECTERROR)
    READY: listed again

One READY is one request. What a worker is sent is known by its identifier: `<broker>:<serial>` for
a document, `<frontend>:<message id>` for a frontend's request; a reply to anything else is dropped.

A worker of which the broker is not sure (it never asked for its configuration, or has another
version of it) is told FORCENEGOTIATE and begins with CHECKCONFIG; the second time in a row that its
version is another, it is disconnected.

The wall clock is compared with what workers say of theirs, and is shown to them; who lives and
whose turn it is follows `now` alone.
"""

import hashlib
from collections import deque
from collections.abc import Sequence

import msgspec

from queuedriver.claims.outcomes import Released
from queuedriver.doors import exchange, words
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.scale0 import wire
from queuedriver.doors.scale0.wire import Message, Options
from queuedriver.doors.table import SAME, Row, Table, ours
from queuedriver.doors.words import Effects, End, Processed, Request, Say, Send, Work, shown
from queuedriver.errors import RemoteProtocolError

UNKNOWN, CONFIGURED, LISTED, BUSY = "unknown", "configured", "listed", "busy"
_IDLE = f"{CONFIGURED} | {LISTED}"
_KNOWN = f"{_IDLE} | {BUSY}"
_ANYBODY = f"{UNKNOWN} | {_KNOWN}"
_FULL = "301 to another broker, or 503; disconnected"
_BACK = "its turns are taken back"
_DONE = "published, or passed on to the frontend"


def _of_both(event: str) -> list[Row]:
    """Return the rows that READY and PING have alike."""
    return [
        Row(UNKNOWN, event, "", "FORCENEGOTIATE", UNKNOWN),
        Row(_IDLE, event, "other version", f"FORCENEGOTIATE; {_BACK}", CONFIGURED),
        Row(BUSY, event, "other version", f"FORCENEGOTIATE; {_BACK}", BUSY),
        ours(_KNOWN, event, "other version again", "426; disconnected", UNKNOWN),
        Row(_KNOWN, event, "other time", "409; disconnected", UNKNOWN),
    ]


BROKER = Table(
    "scale0: what a broker knows of a worker",
    [
        Row(UNKNOWN, "CHECKCONFIG", "", "CONFIG", CONFIGURED),
        Row(_IDLE, "CHECKCONFIG", "", f"CONFIG; {_BACK}", CONFIGURED),
        ours(BUSY, "CHECKCONFIG", "", f"CONFIG; {_BACK}", BUSY),
        ours(BUSY, "CHECKCONFIG", "nothing in hand", f"CONFIG; {_BACK}", CONFIGURED),
        ours(_ANYBODY, "CHECKCONFIG", "not JSON", "501; disconnected", UNKNOWN),
        ours(UNKNOWN, "CHECKCONFIG", "full", _FULL, UNKNOWN),
        ours(_ANYBODY, "CHECKCONFIG", "leaving", _FULL, UNKNOWN),
        Row(_IDLE, "READY", "", "READYOK; it is listed, for one request more", LISTED),
        Row(BUSY, "READY", "", "READYOK; it takes one request more", BUSY),
        ours(_KNOWN, "READY", "no such service", "501; disconnected", UNKNOWN),
        ours(_KNOWN, "READY", "leaving", _FULL, UNKNOWN),
        Row(_KNOWN, "PING", "", "PONG; it lives", SAME),
        *_of_both("READY"),
        *_of_both("PING"),
        Row(f"{LISTED} | {BUSY}", "a request waits", "", "WORKREQUEST; one turn less", BUSY),
        Row(BUSY, "WORKREPLY", "", _DONE, CONFIGURED),
        Row(BUSY, "WORKREPLY", "it has turns", _DONE, LISTED),
        ours(BUSY, "WORKREPLY", "more in hand", _DONE, BUSY),
        ours(_ANYBODY, "WORKREPLY", "not matched", "the reply is dropped", SAME),
        Row(_ANYBODY, "NEEDBROKER", "", "301 to this broker, or 503", SAME),
        ours(UNKNOWN, "DISCONNECTERROR", "", "nothing", UNKNOWN),
        ours(_KNOWN, "DISCONNECTERROR", "", "what it had is given back", UNKNOWN),
        ours(UNKNOWN, "anything else", "", "400 or 501", UNKNOWN),
        ours(_KNOWN, "anything else", "", "400 or 501; what it had is lost", UNKNOWN),
        Row(_IDLE, "silence", "", "it is forgotten", UNKNOWN),
        ours(BUSY, "each second", "", "PONG, to see whether it is there", BUSY),
        ours(BUSY, "time-out", "", "what it had is lost", UNKNOWN),
        ours(_KNOWN, "unreachable", "", "what it had is lost", UNKNOWN),
        ours(BUSY, "unreachable", "not sent", "what it was sent is given back", UNKNOWN),
        ours(_IDLE, "leaving", "", _FULL, UNKNOWN),
    ],
)

# So many heartbeats may be missed; and the longest that a worker may ask for, in seconds.
_LIVENESS = 3
_MAX_INTERVAL = 3600.0
# How far a worker's clock may be off, in seconds.
_CLOCK_LIMIT = 30.0
# Requests that one worker may have asked for and not been sent yet.
MAX_TURNS = 100
# How long a frontend's request waits for a worker, in seconds.
PATIENCE = 30.0


class Worker(exchange.Worker):
    """A worker that has had CONFIG."""

    # Whether an empty frame stands in front of what it says and hears.
    envelope: bool = False
    # Whether it was told FORCENEGOTIATE for its version, and has not had the right one since.
    warned: bool = False
    # Whether it was told READYOK: what is said of start-ups is said.
    greeted: bool = False
    # What it was sent and has not answered: identifiers, and their claims.
    sent: dict[str, str] = msgspec.field(default_factory=dict)


class Broker(Exchange[Worker]):
    """All the workers and frontends of one broker, whose name begins its documents' identifiers."""

    worker = Worker
    settling_frees = False
    request_patience = PATIENCE

    def __init__(
        self,
        name: str,
        *,
        services: Sequence[str] = ("",),
        address: str = "",
        group: Sequence[str] = (),
        preferred: str = "",
        heartbeat_interval: float = 5.0,
        job_timeout: float | None = None,
    ) -> None:
        super().__init__(silent_after=heartbeat_interval * _LIVENESS, job_timeout=job_timeout)
        self._name = name
        # Where workers reach it, and the other brokers of its group.
        self._address = address
        self._others = deque(one for one in group if one != address)
        self._interval = heartbeat_interval
        self._services = tuple(services)
        config = Options(
            services=self._services,
            group_config=wire.Group(brokers=tuple(group)),
            preferred_broker=preferred,
        )
        # All brokers of a group come to the same.
        self._version = hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:12]
        self._config = msgspec.structs.replace(config, config_version=self._version)
        # What the wall clock is ahead of `now`, and the latter at the last deal.
        self._wall_ahead = self._now = 0.0
        # How old what is heard may be, in seconds, and until when.
        self._oldest, self._old_until = 0.0, 0.0

    # What peers say

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        self._now, self._wall_ahead = now, wall - now
        worker = self.workers.get(peer) or Worker(peer, now, UNKNOWN)
        worker.heard_at = now
        worker.envelope = not frames[0] if frames else False
        try:
            return self._hear(worker, wire.decode(frames), tuple(frames))
        except RemoteProtocolError as error:
            was = worker.state
            self._step(worker, "anything else")
            # A worker whose every reply is nonsense must not try a document for ever: it is lost.
            lost = self.lose(worker, exchange.LEFT) if was != UNKNOWN else []
            return [*lost, *_told(worker, _error(error.code or wire.MALFORMED, str(error)))]

    def _hear(self, worker: Worker, message: Message, frames: tuple[bytes, ...]) -> Effects:
        match message.command:
            case "WORKREPLY":
                return self._work_reply(worker, message)
            case "READY":
                return self._ready(worker, message)
            case "PING":
                return self._ping(worker, message)
            case "WORKREQUEST":
                return self._request(worker, message.options, frames)
            case "CHECKCONFIG":
                return self._check_config(worker, message)
            case "NEEDBROKER":
                self._step(worker, "NEEDBROKER")
                return _told(worker, self._offer_of_us(worker))
            case "DISCONNECTERROR":
                return self._part(worker, "DISCONNECTERROR")
        raise RemoteProtocolError(f"{message.command} is not for brokers")

    def _check_config(self, worker: Worker, message: Message) -> Effects:
        options = message.options
        if options.config_type not in ("", "JSON"):
            text = f"config_type {options.config_type[:40]!r}: there is JSON only"
            return self._disconnect(worker, message, "not JSON", _error(wire.UNKNOWN, text))
        if self.leaving:
            return self._disconnect(worker, message, "leaving", self._elsewhere())
        was = worker.state
        if was == UNKNOWN:
            joined = self.join(worker.name, self._now)
            if joined is None:
                return self._disconnect(worker, message, "full", self._elsewhere())
            joined.state, joined.envelope = was, worker.envelope
            worker = joined
        self.offer(worker, 0, self._now)
        worker.greeted = False
        lost = self._not_in_hand(worker, options)
        nothing = was == BUSY and not worker.in_hand
        self._step(worker, "CHECKCONFIG", "nothing in hand" if nothing else "")
        config = msgspec.structs.replace(self._config, identity=wire.frontend_name(worker.name))
        if options.config_version is not None and str(options.config_version) == self._version:
            config = Options(unchanged=True)
        return [
            Say(1, "C --- CHECKCONFIG ---> B"),
            *lost,
            _send(worker, "CONFIG", config),
            Say(1, "B --- CONFIG ---> C"),
        ]

    def _not_in_hand(self, worker: Worker, options: Options) -> Effects:
        """Set back what a worker was sent and says it has not: it was lost on its way, or in its
        last life."""
        if options.work_in_hand is None:
            return []
        has = {one: worker.sent[one] for one in options.work_in_hand if one in worker.sent}
        worker.sent = has
        return self.keep_only(worker, has.values())

    def _ready(self, worker: Worker, message: Message) -> Effects:
        if doubts := self._doubts(worker, message):
            return doubts
        options = message.options
        services = frozenset(self._services).intersection(options.services)
        if not services:
            has = ", ".join(map(repr, self._services))
            error = _error(wire.UNKNOWN, f"none of its services is one of this broker: {has}")
            return self._disconnect(worker, message, "no such service", error)
        if self.leaving:
            return self._disconnect(worker, message, "leaving", self._elsewhere())
        self._step(worker, "READY")
        # Longer than ours, if it wishes; never shorter.
        interval = min(options.heartbeat_interval or 0.0, _MAX_INTERVAL)
        interval = max(interval, self._interval)
        worker.silent_after = interval * _LIVENESS
        worker.services = services
        if not worker.free:
            self.to_the_end(worker)
        self.offer(worker, min(worker.free + 1, MAX_TURNS), self._now)
        listed = Options(
            heartbeat_interval=interval, time=self._wall(), config_version=self._version
        )
        answer = _send(worker, "READYOK", listed)
        if worker.greeted:
            return [answer]
        worker.greeted = True
        return [Say(1, "C --- READY ---> B"), answer, Say(1, "B --- READYOK ---> C")]

    def _ping(self, worker: Worker, message: Message) -> Effects:
        if doubts := self._doubts(worker, message):
            return doubts
        self._step(worker, "PING")
        time, version = message.options.time, self._version
        pong = Options(time=time, broker_time=self._wall(), config_version=version)
        return [_send(worker, "PONG", pong)]

    def _doubts(self, worker: Worker, message: Message) -> Effects:
        """Tell a worker what is wrong with it; nothing, if it is known and its clock and version
        are right."""
        command, options = message.command, message.options
        if worker.state == UNKNOWN:
            self._step(worker, command)
            return [_negotiate(worker, f"no CHECKCONFIG came before this {command}")]
        off = options.time is not None and abs(ahead := options.time - self._wall()) > _CLOCK_LIMIT
        oldest = self._oldest if self._now < self._old_until else 0.0
        if off and not -(_CLOCK_LIMIT + oldest) <= ahead <= 0:
            error = _error(wire.CLOCK, f"its clock is {ahead:+.0f} s off; set it")
            return self._disconnect(worker, message, "other time", error)
        warned, worker.warned = worker.warned, False
        if options.config_version is None or str(options.config_version) == self._version:
            return []
        if warned:
            error = _error(wire.VERSION, f"config_version is still not {self._version}")
            return self._disconnect(worker, message, "other version again", error)
        self._step(worker, command, "other version")
        worker.warned = True
        self.offer(worker, 0, self._now)
        return [_negotiate(worker, f"config_version is {self._version}")]

    def _work_reply(self, worker: Worker, message: Message) -> Effects:
        identifier = message.options.identifier
        claim = worker.sent.get(identifier)
        if claim is None:
            self._step(worker, "WORKREPLY", "not matched")
            return []
        work, _ = worker.in_hand[claim]
        how = _how(work, message)
        del worker.sent[identifier]
        self.settle(worker, claim)
        turns = "it has turns" if worker.free else ""
        self._step(worker, "WORKREPLY", "more in hand" if worker.in_hand else turns)
        return [End(claim, how), *self.rest(worker)]

    # What becomes of workers

    def _step(self, worker: Worker, event: str, when: str = "") -> None:
        worker.state = BROKER.step(worker.state, event, when)

    def _part(self, worker: Worker, event: str, when: str = "") -> Effects:
        """Part from a worker by what it did: what it has is given back uncharged."""
        was = worker.state
        self._step(worker, event, when)
        how = Released("its worker left")
        return self.lose(worker, exchange.LEFT, how) if was != UNKNOWN else []

    def _disconnect(self, worker: Worker, message: Message, when: str, error: Options) -> Effects:
        return [*self._part(worker, message.command, when), *_told(worker, error)]

    def _elsewhere(self) -> Options:
        """Name another broker of the group, each in turn; or say that there is none."""
        text = "this broker leaves" if self.leaving else "this broker has all the workers it may"
        if not self._others:
            return _error(wire.NOT_ACCEPTING, text)
        self._others.rotate()
        return _error(wire.REDIRECT, text, self._others[0])

    def _offer_of_us(self, worker: Worker) -> Options:
        """Return what NEEDBROKER is answered."""
        if self.leaving or (worker.state == UNKNOWN and len(self.workers) >= self.max_workers):
            return _error(wire.NOT_ACCEPTING, "this broker takes nobody")
        return _error(wire.REDIRECT, "this broker takes you", self._address)

    # Frontends

    def _request(self, peer: Worker, options: Options, frames: tuple[bytes, ...]) -> Effects:
        identifier = f"{wire.frontend_name(peer.name)}:{options.message_id}"
        request = Request(identifier.encode(), frames, options.service)
        if not 0 < len(options.message_id) <= wire.MAX_NAME:
            code = wire.MALFORMED
            text = f"a request needs a message_id of at most {wire.MAX_NAME} characters"
        elif options.service not in self._services:
            code = wire.UNKNOWN
            text = f"no such service; there are: {', '.join(map(repr, self._services))}"
        elif self.leaving:
            code, text = wire.NOT_ACCEPTING, "the broker leaves"
        else:
            return [words.Asked(request)]
        return [Send(peer.name, _refusal(request, code, text))]

    def refusal(self, request: Request, why: str, *, late: bool = False) -> words.Answer | None:
        code = wire.NOT_ACCEPTING if late else wire.NO_RESPONSE
        try:
            peer = wire.frontend_identity(_name_of(request))
        except RemoteProtocolError:
            # Somebody else wrote that into the queue.
            return None
        return words.Answer(peer, _refusal(request, code, why))

    # Time

    def was_deaf(self, seconds: float, now: float) -> None:
        self._oldest, self._old_until = seconds, now + exchange.HEARS_OUT

    def _wall(self) -> float:
        """Return the time of day."""
        return self._now + self._wall_ahead

    # What the exchange asks

    def deal(self, worker: Worker, work: Work, now: float) -> Send | End:
        self._now = now
        return super().deal(worker, work, now)

    def frames_of(self, worker: Worker, work: Work) -> tuple[bytes, ...]:
        # The end of a claim's N is never used twice: a reply that is late by a whole life of this
        # broker matches nothing.
        identifier, body = f"{self._name}:{work.claim.rpartition('-')[2]}", work.payload
        if (request := work.request) is not None:
            identifier, body = _name_of(request), wire.decode(request.frames).body
            wire.frontend_identity(identifier)
            if identifier in worker.sent:
                raise RemoteProtocolError("a worker has a request of that name")
        worker.state = BROKER.own_step(worker.state, "a request waits")
        worker.sent[identifier] = work.claim
        options = Options(
            service=work.service,
            work_request_identifier=identifier,
            time=self._wall(),
            config_version=self._version,
            docid="" if request else work.docid,
            attempt=work.attempt,
        )
        return wire.encode("WORKREQUEST", options, body, worker.envelope)

    def probe(self, worker: Worker) -> tuple[bytes, ...]:
        worker.state = BROKER.own_step(worker.state, "each second")
        return _send(worker, "PONG", Options(config_version=self._version)).frames

    def farewell(self, worker: Worker) -> tuple[bytes, ...]:
        return _send(worker, "DISCONNECTERROR", self._elsewhere()).frames

    def forget(self, worker: Worker, why: str) -> None:
        if why in exchange.ENDS:
            worker.state = BROKER.own_step(worker.state, *exchange.ENDS[why])


def _how(work: Work, message: Message) -> words.How:
    """Return what a reply means to what it is for; RemoteProtocolError: nothing at all."""
    if (request := work.request) is not None:
        front = request.frames[:1] if request.frames[:1] == (b"",) else ()
        frames = (*front, b"WORKREPLY", message.as_sent, message.body)
        return words.Answer(wire.frontend_identity(_name_of(request)), frames)
    options = message.options
    if options.status == words.DONE:
        return Processed(wire.unpack(options, message.body))
    return words.setback(options.status, options.error_message)


def _name_of(request: Request) -> str:
    """Return the identifier of a frontend's request."""
    return request.key.decode(errors="replace")


def _refusal(request: Request, code: int, text: str) -> tuple[bytes, ...]:
    """Return how a frontend is told that its request will not be done."""
    id = _name_of(request).partition(":")[2][: wire.MAX_NAME]
    error = Options(error_code=code, error_message=text, message_id=id)
    return wire.encode("DISCONNECTERROR", error, envelope=request.frames[:1] == (b"",))


def _error(code: int, text: str, broker: str = "") -> Options:
    return Options(error_code=code, error_message=text, broker=broker)


def _send(worker: Worker, command: str, options: Options) -> Send:
    return Send(worker.name, wire.encode(command, options, envelope=worker.envelope))


def _told(worker: Worker, error: Options) -> Effects:
    text = f"{shown(worker.name)} is told {error.error_code}: {error.error_message}"
    return [_send(worker, "DISCONNECTERROR", error), Say(1, text)]


def _negotiate(worker: Worker, why: str) -> Send:
    return _send(worker, "FORCENEGOTIATE", Options(error_message=why))
