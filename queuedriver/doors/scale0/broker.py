"""Scale0, a broker: configuration for workers, and what they are dealt. Pure.

The wall clock is compared with what workers say of theirs, and is shown to them; who lives and
whose turn it is follows `now` alone.
"""

from collections.abc import Sequence

import msgspec

from queuedriver.claims.outcomes import Failed, Postponed, Released
from queuedriver.doors.roster import Order, Policy, Roster
from queuedriver.doors.scale0.requests import Requests, name_of
from queuedriver.doors.scale0.tables import BROKER, BUSY, CONFIGURED, LISTED, UNKNOWN, Options
from queuedriver.doors.scale0.wire import (
    CLOCK,
    DONE,
    MALFORMED,
    NOT_ACCEPTING,
    REDIRECT,
    VERSION,
    CheckConfig,
    Config,
    DisconnectError,
    Event,
    ForceNegotiate,
    Message,
    NeedBroker,
    Ping,
    Pong,
    Ready,
    ReadyOk,
    WorkReply,
    WorkRequest,
    decode,
    encode,
    frontend_identity,
    frontend_name,
    has_envelope,
    setback,
    unpack,
)
from queuedriver.doors.scale0.wire import UNKNOWN as NO_SUCH
from queuedriver.doors.words import (
    Answered,
    Done,
    Effects,
    Lost,
    Request,
    Say,
    Send,
    SetBack,
    Work,
    undelivered,
)
from queuedriver.errors import RemoteProtocolError
from queuedriver.format.records import Failure

# The longest that a worker may ask to be silent, in seconds.
_MAX_INTERVAL = 3600.0


class _Peer(msgspec.Struct):
    """A worker that has had CONFIG."""

    envelope: bool
    # It was told FORCENEGOTIATE for its version, and has not had the right one since.
    warned: bool = False
    # It was told READYOK: what is said of start-ups is said.
    greeted: bool = False


class _Dealt(msgspec.Struct, frozen=True):
    claim: str
    identifier: str
    attempt: int
    request: Request | None


class Broker:
    """All the workers and frontends of one broker, whose name begins its documents' identifiers."""

    def __init__(
        self, name: str, options: Options | None = None, job_timeout: float | None = None
    ) -> None:
        self._name = name
        self._options = (options or Options()).check()
        self._job_timeout = job_timeout
        self._config = self._options.config()
        self._version = str(self._config.config_version)
        silent_after = self._options.heartbeat_interval * self._options.liveness
        self._roster = Roster(
            Policy(Order.LISTED, silent_after, max_workers=self._options.max_workers)
        )
        self._peers: dict[bytes, _Peer] = {}
        self._requests = Requests(self._options)
        self._by_claim: dict[str, _Dealt] = {}
        self._by_identifier: dict[str, _Dealt] = {}
        self._leaving = False
        self._next_of_group = 0
        self._probe_at: float | None = None
        # What the wall clock is ahead of `now`.
        self._wall_ahead = 0.0

    def joined(self, peer: bytes, now: float) -> Effects:
        """A connection says nothing yet."""
        return []

    def receive(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """One message of a worker or of a frontend."""
        self._wall_ahead = wall - now
        if not frames:
            raise RemoteProtocolError("a message without frames", MALFORMED)
        try:
            return self._hear(peer, decode(frames), tuple(frames), now)
        except RemoteProtocolError as error:
            # A worker whose every reply is nonsense must not try a document for ever: it is lost.
            lost = self._roster.leave(peer, "left")
            effects = self._lost(lost, now) if lost is not None and lost.claims else []
            told = DisconnectError(error_code=error.code or MALFORMED, error_message=str(error))
            return [*effects, *self._disconnect(peer, told, has_envelope(frames), now)]

    def gone(self, peer: bytes, now: float, unsent: str = "") -> Effects:
        """It cannot be reached any more."""
        effects: Effects = []
        if unsent and self._roster.settle(peer, unsent):
            self._take_back(unsent, now)
            effects.append(undelivered(unsent))
        self._peers.pop(peer, None)
        lost = self._roster.leave(peer, "unroutable")
        return [*effects, *self._lost(lost, now)] if lost is not None else effects

    def ready(self, service: str = "", alone: bool = False) -> bool:
        """Whether a worker waits that offers this service."""
        return not self._leaving and self._roster.pick(service, alone=alone) is not None

    def spare(self, service: str, wanted: bool) -> None:
        """Keep a worker of this service for what goes alone, or no longer."""
        self._roster.spare(service, wanted)

    def deal(self, work: Work, now: float) -> Effects:
        """To the worker whose READY is oldest of those that offer the service."""
        request = work.request
        if request is not None and (effects := self._requests.refused_before(work.claim, request)):
            return effects
        worker = None if self._leaving else self._roster.pick(work.service, alone=work.alone)
        if worker is None:
            return [SetBack(work.claim, Released("no worker is ready"))]
        try:
            identifier, body = self._what_to_send(work)
        except RemoteProtocolError as error:
            failure = Failure(cause="bad-request", message=str(error), permanent=True)
            return [SetBack(work.claim, Failed(failure))]
        if identifier in self._by_identifier:
            # Repeated after so long that it was kept a second time.
            again = Postponed(self._options.later_after, "a worker has the same request in hand")
            return [SetBack(work.claim, again)]
        state = self._state(worker)
        BROKER.own_step(state, "a request waits", "it has turns" if state == BUSY else "")
        if request is not None:
            self._requests.dealt(request)
        dealt = _Dealt(work.claim, identifier, work.attempt, request)
        self._by_claim[work.claim] = self._by_identifier[identifier] = dealt
        deadline = None if self._job_timeout is None else now + self._job_timeout
        self._roster.assign(worker, work.claim, now, deadline=deadline, alone=work.alone)
        if self._probe_at is None:
            self._probe_at = now + self._options.probe_interval
        event = WorkRequest(
            service=work.service,
            work_request_identifier=identifier,
            time=now + self._wall_ahead,
            config_version=self._version,
            docid="" if request else work.docid,
            attempt=work.attempt,
        )
        return [msgspec.structs.replace(self._send(worker, event, body), claim=work.claim)]

    def leave(self, now: float) -> Effects:
        """Elsewhere with those that have nothing in hand; the others go after their reply."""
        self._leaving = True
        effects: Effects = []
        for worker in self._roster.names():
            if not self._roster.busy(worker):
                effects.append(self._send(worker, self._elsewhere()))
                self._roster.leave(worker, "left")
                self._peers.pop(worker, None)
        return effects

    def tick(self, now: float) -> Effects:
        """Drop the silent and the overdue, tell frontends that wait, try the busy."""
        effects: Effects = []
        for lost in self._roster.expire(now):
            self._peers.pop(lost.worker, None)
            effects += self._lost(lost, now)
        effects += self._requests.tick(now)
        if self._probe_at is not None and self._probe_at <= now:
            busy = self._roster.who_is_busy()
            probe = Pong(broker_time=now + self._wall_ahead, config_version=self._version)
            effects += [self._send(worker, probe) for worker in busy]
            self._probe_at = now + self._options.probe_interval if busy else None
        return effects

    def next_tick_at(self) -> float | None:
        """When one of these may be due."""
        instants = (self._roster.next_tick_at(), self._requests.next_tick_at(), self._probe_at)
        return min((at for at in instants if at is not None), default=None)

    # What peers say

    def _hear(
        self, peer: bytes, message: Message, frames: tuple[bytes, ...], now: float
    ) -> Effects:
        envelope = message.envelope
        match message.event:
            case Ping() as event:
                return self._ping(peer, event, envelope, now)
            case Ready() as event:
                return self._ready(peer, event, envelope, now)
            case WorkReply() as event:
                return self._work_reply(peer, event, message, now)
            case WorkRequest() as event:
                return self._requests.ask(peer, frames, event, now, self._leaving)
            case CheckConfig() as event:
                return self._check_config(peer, event, envelope, now)
            case NeedBroker():
                BROKER.step(self._state(peer), "NEEDBROKER")
                return [Send(peer, encode(self._offer_of_us(peer), envelope=envelope))]
            case DisconnectError():
                BROKER.step(self._state(peer), "DISCONNECTERROR")
                return self._release(peer, now)
        raise RemoteProtocolError(f"{message.event.command} is not for brokers", MALFORMED)

    def _check_config(self, peer: bytes, event: CheckConfig, envelope: bool, now: float) -> Effects:
        state = self._state(peer)
        if event.config_type not in ("", "JSON"):
            BROKER.step(state, "CHECKCONFIG", "not JSON")
            text = f"config_type {event.config_type[:40]!r}: there is JSON only"
            return self._disconnect(peer, _error(NO_SUCH, text), envelope, now)
        if self._leaving or not self._roster.join(peer, now, self._options.max_turns, ()):
            BROKER.step(state, "CHECKCONFIG", "full or leaving")
            return self._disconnect(peer, self._elsewhere(), envelope, now)
        BROKER.step(state, "CHECKCONFIG")
        self._roster.withdraw(peer)
        warned = peer in self._peers and self._peers[peer].warned
        self._peers[peer] = _Peer(envelope, warned)
        config = msgspec.structs.replace(self._config, identity=frontend_name(peer))
        if event.config_version is not None and str(event.config_version) == self._version:
            config = Config(unchanged=True)
        return [
            Say(1, "C --- CHECKCONFIG ---> B"),
            *self._not_in_hand(peer, event, now),
            self._send(peer, config),
            Say(1, "B --- CONFIG ---> C"),
        ]

    def _not_in_hand(self, peer: bytes, event: CheckConfig, now: float) -> Effects:
        """What a worker was sent and says it has not is lost: on its way, or in its last life."""
        if event.work_in_hand is None:
            return []
        kept = frozenset(event.work_in_hand)
        claims = [
            claim
            for claim in self._roster.claims(peer)
            if self._by_claim[claim].identifier not in kept
        ]
        for claim in claims:
            self._roster.settle(peer, claim)
        return self._lost(Lost(peer, tuple(claims), "left", doubted=True), now) if claims else []

    def _ready(self, peer: bytes, event: Ready, envelope: bool, now: float) -> Effects:
        state = self._state(peer)
        if state == UNKNOWN:
            BROKER.step(state, "READY")
            return [_negotiate(peer, envelope, "no CHECKCONFIG came before this READY")]
        if doubts := self._doubts(peer, event, envelope, now):
            return doubts
        services = [name for name in event.services if name in self._options.services]
        if not services:
            BROKER.step(state, "READY", "no such service")
            has = ", ".join(map(repr, self._options.services))
            error = _error(NO_SUCH, f"none of its services is one of this broker: {has}")
            return self._disconnect(peer, error, envelope, now)
        if self._leaving:
            BROKER.step(state, "READY", "full or leaving")
            return self._disconnect(peer, self._elsewhere(), envelope, now)
        BROKER.step(state, "READY")
        known = self._peers[peer]
        # Longer than ours, if it wishes; never shorter.
        interval = max(event.heartbeat_interval or 0.0, self._options.heartbeat_interval)
        interval = min(interval, max(_MAX_INTERVAL, self._options.heartbeat_interval))
        silent_after = interval * self._options.liveness
        self._roster.join(peer, now, self._options.max_turns, services, silent_after)
        self._roster.offer(peer, now)
        known.warned = False
        answer = self._send(
            peer,
            ReadyOk(
                heartbeat_interval=interval,
                time=now + self._wall_ahead,
                config_version=self._version,
            ),
        )
        if known.greeted:
            return [answer]
        known.greeted = True
        return [Say(1, "C --- READY ---> B"), answer, Say(1, "B --- READYOK ---> C")]

    def _ping(self, peer: bytes, event: Ping, envelope: bool, now: float) -> Effects:
        if not self._roster.heard(peer, now):
            BROKER.step(UNKNOWN, "PING")
            return [_negotiate(peer, envelope, "this broker does not know this worker")]
        if doubts := self._doubts(peer, event, envelope, now):
            return doubts
        self._peers[peer].warned = False
        pong = Pong(
            time=event.time, broker_time=now + self._wall_ahead, config_version=self._version
        )
        return [Send(peer, encode(pong, envelope=envelope))]

    def _doubts(self, peer: bytes, event: Ready | Ping, envelope: bool, now: float) -> Effects:
        """What is wrong with a worker's clock or with its configuration."""
        wall, version = now + self._wall_ahead, event.config_version
        if event.time is not None and abs(event.time - wall) > self._options.clock_limit:
            BROKER.step(self._state(peer), event.command, "other time")
            text = f"its clock is {event.time - wall:+.0f} s off; set it"
            return self._disconnect(peer, _error(CLOCK, text), envelope, now)
        if version is None or str(version) == self._version:
            return []
        known = self._peers[peer]
        if known.warned:
            BROKER.step(self._state(peer), event.command, "other version again")
            text = f"config_version is still not {self._version}"
            return self._disconnect(peer, _error(VERSION, text), envelope, now)
        BROKER.step(self._state(peer), event.command, "other version")
        known.warned = True
        self._roster.withdraw(peer)
        return [_negotiate(peer, envelope, f"config_version is {self._version}")]

    def _work_reply(self, peer: bytes, event: WorkReply, message: Message, now: float) -> Effects:
        self._roster.heard(peer, now)
        dealt = self._by_identifier.get(event.identifier)
        if dealt is None or dealt.claim not in self._roster.claims(peer):
            BROKER.step(self._state(peer), "WORKREPLY", "not matched")
            return []
        effects = self._ended(dealt, event, message)
        self._roster.settle(peer, dealt.claim)
        self._drop(dealt.claim)
        to = self._state(peer)
        when = {BUSY: "more in hand", LISTED: "it has turns", CONFIGURED: ""}[to]
        BROKER.step(BUSY, "WORKREPLY", when)
        if self._leaving and to != BUSY:
            effects += self._disconnect(peer, self._elsewhere(), message.envelope, now)
        return effects

    def _ended(self, dealt: _Dealt, event: WorkReply, message: Message) -> Effects:
        """What a reply means to what it is for. RemoteProtocolError: nothing at all."""
        if dealt.request is not None:
            self._requests.answered(dealt.request)
            frames: tuple[bytes, ...] = (b"WORKREPLY", message.options, message.body)
            if has_envelope(dealt.request.frames):
                frames = (b"", *frames)
            return [Answered(dealt.claim, frontend_identity(dealt.identifier), frames)]
        if event.status == DONE:
            return [Done(dealt.claim, unpack(event, message.body))]
        return [SetBack(dealt.claim, setback(event, self._options.later_after))]

    # What becomes of workers and of what they had

    def _state(self, peer: bytes) -> str:
        if peer not in self._roster:
            return UNKNOWN
        if self._roster.busy(peer):
            return BUSY
        return LISTED if self._roster.turns(peer) else CONFIGURED

    def _drop(self, claim: str) -> _Dealt:
        dealt = self._by_claim.pop(claim)
        del self._by_identifier[dealt.identifier]
        return dealt

    def _lost(self, lost: Lost, now: float) -> Effects:
        """Each document is charged; a frontend's request is, too, and given up in the end."""
        charged: list[str] = []
        effects: Effects = []
        for claim in lost.claims:
            dealt = self._drop(claim)
            if dealt.request is not None:
                # What is not charged is tried again in any case.
                attempt = -1 if lost.doubted else dealt.attempt
                answer = self._requests.give_up(claim, dealt.request, attempt)
                if answer:
                    effects += answer
                    continue
                self._requests.again(dealt.request, now)
            charged.append(claim)
        return [msgspec.structs.replace(lost, claims=tuple(charged)), *effects]

    def _take_back(self, claim: str, now: float) -> None:
        """A claim is in no worker's hands any more; a frontend's request waits again."""
        dealt = self._drop(claim)
        if dealt.request is not None:
            self._requests.again(dealt.request, now)

    def _release(self, peer: bytes, now: float) -> Effects:
        """It leaves, or has to: what it had is given back uncharged."""
        claims = self._roster.claims(peer)
        self._roster.leave(peer, "left")
        self._peers.pop(peer, None)
        effects: Effects = []
        for claim in claims:
            self._take_back(claim, now)
            effects.append(SetBack(claim, Released("its worker left")))
        return effects

    def _disconnect(
        self, peer: bytes, error: DisconnectError, envelope: bool, now: float
    ) -> Effects:
        words = Say(1, f"{peer!r} is told {error.error_code}: {error.error_message}")
        told = Send(peer, encode(error, envelope=envelope))
        return [*self._release(peer, now), told, words]

    def _elsewhere(self) -> DisconnectError:
        """Another broker of the group, each in turn; or that there is none."""
        text = "this broker leaves" if self._leaving else "this broker has all the workers it may"
        others = [one for one in self._options.group if one != self._options.broker]
        if not others:
            return _error(NOT_ACCEPTING, text)
        self._next_of_group = (self._next_of_group + 1) % len(others)
        to = others[self._next_of_group]
        return DisconnectError(error_code=REDIRECT, error_message=text, broker=to)

    def _offer_of_us(self, peer: bytes) -> DisconnectError:
        """What NEEDBROKER is answered."""
        room = peer in self._roster or len(self._roster) < self._options.max_workers
        if self._leaving or not room:
            return _error(NOT_ACCEPTING, "this broker takes nobody")
        text = "this broker takes you"
        return DisconnectError(error_code=REDIRECT, error_message=text, broker=self._options.broker)

    # What is sent

    def _send(self, worker: bytes, event: Event, body: bytes | None = None) -> Send:
        return Send(worker, encode(event, body, self._peers[worker].envelope))

    def _what_to_send(self, work: Work) -> tuple[str, bytes]:
        """Identifier and body. RemoteProtocolError: a request from disk that is none."""
        if work.request is not None:
            return name_of(work.request), decode(work.request.frames).body
        # The end of a claim's N is never used twice: a reply that is late by a whole life of this
        # broker matches nothing.
        return f"{self._name}:{work.claim.rpartition('-')[2]}", work.payload


def _error(code: int, text: str) -> DisconnectError:
    return DisconnectError(error_code=code, error_message=text)


def _negotiate(peer: bytes, envelope: bool, why: str) -> Send:
    return Send(peer, encode(ForceNegotiate(error_message=why), envelope=envelope))
