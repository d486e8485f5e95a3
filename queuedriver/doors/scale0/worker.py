"""Scale0, a worker: asks for its configuration, offers itself for one request at a time. Pure.

It fails to start when no broker answers. Once one did, it tries for ever: its own broker again,
or, where it knows of a group, the others in turn with NEEDBROKER.
"""

import re
from collections import deque
from collections.abc import Sequence

from queuedriver.claims.outcomes import Released, Setback
from queuedriver.doors.scale0.tables import (
    ASKING,
    CHECKING,
    CLOSED,
    GREETING,
    LEFT,
    READY,
    WORKER,
    WORKING,
    WorkerOptions,
)
from queuedriver.doors.scale0.wire import (
    CLOCK,
    NOT_ACCEPTING,
    REDIRECT,
    UNKNOWN,
    VERSION,
    CheckConfig,
    Config,
    DisconnectError,
    Event,
    ForceNegotiate,
    NeedBroker,
    Ping,
    Ready,
    ReadyOk,
    WorkReply,
    WorkRequest,
    decode,
    encode,
    pack,
    reply_of,
)
from queuedriver.doors.words import (
    Effects,
    Leave,
    Process,
    Reconnect,
    Result,
    Say,
    Send,
    Work,
    WorkerSession,
)
from queuedriver.errors import LocalProtocolError, RemoteProtocolError
from queuedriver.format import names

# A worker's one peer.
_BROKER = b""
# No broker; something about how we were set up; anything else.
_UNAVAILABLE, _SETUP, _PROTOCOL = 69, 78, 70
_ADDRESS = re.compile(r"[a-z]{2,8}://[!-~]{1,200}")
# Until READYOK says how often; in seconds.
_FIRST_INTERVAL = 5.0
_NEVER = float("inf")


class Worker(WorkerSession):
    """One worker, with one document at a time."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options.check()
        self._state = CLOSED
        # Which broker we are at, and which others there are.
        self._at = options.broker
        self._group = options.group
        self._tried = 0
        # Our own broker does not answer: another is asked whether it would have us.
        self._needy = False
        self._config: Config | None = None
        # It has been listed once: from then on it does not give up.
        self._started = False
        self._hops = 0
        self._interval = options.heartbeat_interval or _FIRST_INTERVAL
        # What was sent to us, in its order; the first is being processed.
        self._in_hand: deque[Work] = deque()
        self._serial = 0
        # Until when there must be an answer, and how often it has been waited for.
        self._answer_at = _NEVER
        self._repeated = False
        self._silent_at = _NEVER
        self._ping_at = _NEVER
        # What the wall clock was ahead of `now` when it was last heard of.
        self._wall_ahead = 0.0
        # Why we leave, once we are to; and what we do when the document in hand is done.
        self._leaving = ""
        self._then: Reconnect | Leave | None = None

    # The connection

    def start(self, now: float, wall: float) -> Effects:
        """CHECKCONFIG to our own broker, NEEDBROKER to another."""
        self._wall_ahead = wall - now
        when = "our own broker does not answer" if self._needy else ""
        self._state = WORKER.own_step(CLOSED, "connected", when)
        self._hear_from_now_on(now)
        self._answer_at = now + self._options.check_timeout
        if self._needy:
            return [_send(NeedBroker(identity=self._options.identity, services=self._services()))]
        return self._check_config(now)

    def joined(self, peer: bytes, now: float) -> Effects:
        """CHECKCONFIG, with what is in hand: what was on its way may be lost."""
        if self._state in (CLOSED, LEFT):
            return []
        self._state = WORKER.own_step(self._state, "joined again")
        self._hear_from_now_on(now)
        self._answer_at = now + self._options.check_timeout
        return self._check_config(now)

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """One message of the broker."""
        self._wall_ahead = wall - now
        message = decode(frames)
        event = message.event
        if isinstance(event, DisconnectError):
            return self._told_off(event, now)
        self._check(event)
        config = isinstance(event, Config)
        when = "work in hand" if config and self._in_hand and self._state == CHECKING else ""
        was, self._state = self._state, WORKER.step(self._state, event.command, when)
        self._silent_at = now + self._interval * self._options.liveness
        match event:
            case Config():
                return self._configured(event, now)
            case ReadyOk() if was == GREETING:
                return self._listed(event, now)
            case WorkRequest():
                return self._request(event, message.body, was)
            case ForceNegotiate():
                self._answer_at = now + self._options.check_timeout
                return self._begin_anew(event, now)
        return []

    def finished(self, claim: str, results: tuple[Result, ...], now: float) -> Effects:
        """WORKREPLY; READY again."""
        outputs, body = pack(results)
        reply = WorkReply(work_request_identifier=claim, outputs=outputs)
        return self._processed(claim, _send(reply, body), now)

    def failed(self, claim: str, how: Setback, now: float) -> Effects:
        """WORKREPLY with a status; when we leave, what we have is given back by saying so."""
        if isinstance(how, Released) and self._leaving:
            return self._goodbye()
        return self._processed(claim, _send(reply_of(claim, how), b""), now)

    def leave(self, now: float) -> Effects:
        """At once, or after the document in hand."""
        if self._leaving or self._state == LEFT:
            return []
        self._leaving = "asked to leave"
        if self._state == WORKING:
            self._state = WORKER.own_step(WORKING, "leave", "work in hand")
        return [] if self._in_hand else self._goodbye()

    def tick(self, now: float, wall: float) -> Effects:
        """PING; and what to do about answers that do not come."""
        self._wall_ahead = wall - now
        if self._state in (CLOSED, LEFT):
            return []
        if now >= self._answer_at:
            return self._no_answer(now)
        if now >= self._silent_at and not self._in_hand and self._state in (GREETING, READY):
            self._state = WORKER.own_step(self._state, "silence")
            return self._hop("the broker is silent", self._at)
        if now >= self._ping_at and self._state in (GREETING, READY, WORKING):
            self._ping_at = now + self._interval
            version = self._config.config_version if self._config else None
            return [_send(Ping(time=wall, config_version=version))]
        return []

    def next_tick_at(self) -> float | None:
        """When the next of these is due."""
        if self._state in (CLOSED, LEFT):
            return None
        instants = [self._answer_at]
        if self._state in (GREETING, READY, WORKING):
            instants.append(self._ping_at)
        if not self._in_hand and self._state in (GREETING, READY):
            instants.append(self._silent_at)
        at = min(instants)
        return None if at == _NEVER else at

    # What the broker says

    def _check(self, event: Event) -> None:
        """What no state allows."""
        if isinstance(event, Config) and event.unchanged and self._config is None:
            raise RemoteProtocolError("CONFIG says unchanged, and there was none before")
        if isinstance(event, WorkRequest) and not event.identifier:
            raise RemoteProtocolError("a WORKREQUEST without a work_request_identifier")

    def _configured(self, event: Config, now: float) -> Effects:
        if not event.unchanged:
            self._config = event
            self._group = event.group_config.brokers or self._group
        self._tried = 0
        self._answer_at = _NEVER
        said: Effects = [Say(1, "B --- CONFIG ---> C")]
        if self._state == WORKING:
            return said
        return [*said, *self._say_ready(now), Say(1, "C --- READY ---> B")]

    def _listed(self, event: ReadyOk, now: float) -> Effects:
        self._answer_at = _NEVER
        self._hops = 0
        first, self._started = not self._started, True
        if event.heartbeat_interval is not None and event.heartbeat_interval > 0:
            self._interval = event.heartbeat_interval
        self._hear_from_now_on(now)
        return [Say(1 if first else 2, "B --- READYOK ---> C")]

    def _request(self, event: WorkRequest, body: bytes, was: str) -> Effects:
        if was == CHECKING:
            # Its broker takes it for lost: CHECKCONFIG said that we have it not.
            return [Say(1, "a request that was sent before our CHECKCONFIG is dropped")]
        self._answer_at = _NEVER
        self._serial += 1
        docid = event.docid
        if names.objection(docid) is not None:
            docid = f"request-{self._serial}"
        work = Work(event.identifier, docid, event.attempt, body, event.service)
        self._in_hand.append(work)
        return [Process(work)] if len(self._in_hand) == 1 else []

    def _begin_anew(self, event: ForceNegotiate, now: float) -> Effects:
        self._hops += 1
        if self._hops > self._options.max_hops:
            return self._end(_PROTOCOL, f"again and again told to negotiate: {event.error_message}")
        return [Say(1, "B --- FORCENEGOTIATE ---> C"), *self._check_config(now)]

    def _told_off(self, event: DisconnectError, now: float) -> Effects:
        """DISCONNECTERROR: elsewhere, or the end."""
        code, text = event.error_code, event.error_message
        why = f"the broker says {code}: {text}"
        here = not event.broker or event.broker == self._at
        if code == REDIRECT and self._state == ASKING and here:
            self._state = WORKER.step(ASKING, "DISCONNECTERROR", "301 to this broker")
            self._needy = False
            self._answer_at = now + self._options.check_timeout
            return self._check_config(now)
        other = self._other() if code == NOT_ACCEPTING else ""
        on = code in (REDIRECT, VERSION) or bool(other)
        self._state = WORKER.step(
            self._state, "DISCONNECTERROR", "301, 426, or 503 and others" if on else ""
        )
        if other:
            return self._plead(other, why)
        match code:
            case 301:
                if event.broker and not _ADDRESS.fullmatch(event.broker):
                    return self._end(_PROTOCOL, "the broker sends us to what is no address")
                self._needy = False
                return self._hop(why, event.broker or self._at)
            case 426:
                # What we know of the configuration is wrong: it is asked for as if we had none.
                self._config, self._needy = None, False
                return self._hop(why, self._at)
            case 503:
                return self._end(_UNAVAILABLE, why)
        return self._end(_SETUP if code in (CLOCK, UNKNOWN) else _PROTOCOL, why)

    def _no_answer(self, now: float) -> Effects:
        """CONFIG, READYOK or the answer to NEEDBROKER did not come."""
        seconds = f"{self._options.check_timeout:g} s"
        if self._state == GREETING:
            if not self._repeated:
                self._state = WORKER.own_step(GREETING, "time-out")
                effects = self._say_ready(now)
                self._repeated = True
                return effects
            self._state = WORKER.own_step(GREETING, "time-out", "again")
            return self._hop(f"no READYOK came within {seconds}", self._at)
        why = f"no answer to {'NEEDBROKER' if self._needy else 'CHECKCONFIG'} within {seconds}"
        other = self._other()
        if other or self._started:
            self._state = WORKER.own_step(self._state, "time-out", "others, or it answered before")
            if other:
                return self._plead(other, why)
            preferred = self._config.preferred_broker if self._config else ""
            self._at = preferred if _ADDRESS.fullmatch(preferred) else self._options.broker
            self._needy, self._tried = False, 0
            return self._do(Reconnect(why, self._at))
        self._state = WORKER.own_step(self._state, "time-out")
        where = f" at {self._at}" if self._at else ""
        return self._end(_UNAVAILABLE, f"{why}: is there a broker{where}?")

    # Where to go

    def _other(self) -> str:
        """The next of the group, each once; empty when there is none left."""
        others = [one for one in self._group if one != self._options.broker]
        if self._tried >= len(others):
            return ""
        self._tried += 1
        return others[self._tried - 1]

    def _plead(self, to: str, why: str) -> Effects:
        """NEEDBROKER to another broker."""
        self._at, self._needy = to, True
        return self._do(Reconnect(why, to))

    def _hop(self, why: str, to: str) -> Effects:
        self._hops += 1
        if self._hops > self._options.max_hops:
            return self._end(_UNAVAILABLE, f"sent from broker to broker; in the end {why}")
        self._at = to
        return self._do(Reconnect(why, to))

    def _end(self, code: int, why: str) -> Effects:
        return self._do(Leave(why, code))

    def _do(self, effect: Reconnect | Leave) -> Effects:
        """Now, or when the document in hand is done."""
        self._state = LEFT if isinstance(effect, Leave) else CLOSED
        self._answer_at = _NEVER
        if not self._in_hand:
            return [effect]
        self._then = effect
        return []

    # What we say

    def _services(self) -> tuple[str, ...]:
        if self._options.services is not None:
            return self._options.services
        return self._config.services if self._config else ()

    def _check_config(self, now: float) -> Effects:
        version = self._config.config_version if self._config else None
        event = CheckConfig(
            config_type="JSON",
            config_version=version,
            work_in_hand=tuple(work.claim for work in self._in_hand),
        )
        return [Say(1, "C --- CHECKCONFIG ---> B"), _send(event)]

    def _say_ready(self, now: float) -> Effects:
        self._answer_at = now + self._options.check_timeout
        self._ping_at = now + self._interval
        self._repeated = False
        event = Ready(
            services=self._services(),
            heartbeat_interval=self._options.heartbeat_interval,
            time=now + self._wall_ahead,
            config_version=self._config.config_version if self._config else None,
        )
        return [_send(event)]

    def _goodbye(self) -> Effects:
        connected = self._state not in (CLOSED, LEFT)
        self._in_hand.clear()
        self._state = LEFT
        error = DisconnectError(error_code=NOT_ACCEPTING, error_message="this worker leaves")
        said: Effects = [_send(error)] if connected else []
        return [*said, Leave(self._leaving)]

    def _processed(self, claim: str, reply: Send, now: float) -> Effects:
        if not self._in_hand or self._in_hand[0].claim != claim:
            raise LocalProtocolError(f"request {claim} is not in hand")
        self._in_hand.popleft()
        self._hear_from_now_on(now)
        if self._then is not None:
            # Who was told off may still answer: the broker drops what it has given to another.
            then, self._then = self._then, None
            self._in_hand.clear()
            return [reply, then]
        if self._leaving:
            return [reply, *self._goodbye()]
        more = bool(self._in_hand) and self._state == WORKING
        self._state = WORKER.own_step(self._state, "processed", "more in hand" if more else "")
        if self._in_hand:
            return [reply, Process(self._in_hand[0])]
        if self._state == GREETING:
            return [reply, *self._say_ready(now)]
        return [reply]

    def _hear_from_now_on(self, now: float) -> None:
        """While a document was processed nothing was read: it is not known who was silent."""
        self._silent_at = now + self._interval * self._options.liveness
        self._ping_at = now + self._interval


def _send(event: Event, body: bytes | None = None) -> Send:
    return Send(_BROKER, encode(event, body))
