"""Scale0, a worker: asks for its configuration, offers itself for one request at a time. Pure.

It fails to start when no broker answers. Once one did, it tries for ever: its own broker again,
or, where it knows of a group, the others in turn with NEEDBROKER. What it was sent and has not
begun when its broker sends it away is the broker's again.
"""

import re
from collections import deque
from collections.abc import Sequence

from queuedriver.claims.outcomes import Released, Setback
from queuedriver.doors import words
from queuedriver.doors.scale0 import wire
from queuedriver.doors.scale0.wire import Options
from queuedriver.doors.table import SAME, Row, Table, ours
from queuedriver.doors.words import Effects, Leave, Process, Reconnect, Say, Send, Work
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

CLOSED, CHECKING, ASKING, GREETING = "closed", "checking", "asking", "greeting"
READY, WORKING, LEFT = "ready", "working", "left"
_LISTENING = f"{CHECKING} | {GREETING} | {READY} | {WORKING}"
_CONNECTED = f"{_LISTENING} | {ASKING}"
_AT_WORK = f"{GREETING} | {READY} | {WORKING}"
_HOP = "another connection, to another broker of the group if there is one"

WORKER = Table(
    "scale0: a worker",
    [
        Row(CLOSED, "connected", "", "CHECKCONFIG", CHECKING),
        Row(CLOSED, "connected", "our own broker does not answer", "NEEDBROKER", ASKING),
        ours(CLOSED, "connected", "503 before", "nothing, for a while", CLOSED),
        ours(CLOSED, "time-out", "", "CHECKCONFIG", CHECKING),
        ours(CLOSED, "another broker", "too often", "we leave, 69", LEFT),
        Row(CHECKING, "CONFIG", "", "READY", GREETING),
        ours(CHECKING, "CONFIG", "work in hand", "it is finished first", WORKING),
        ours(CHECKING, "WORKREQUEST", "", "dropped: it was sent before our CHECKCONFIG", CHECKING),
        ours(CHECKING, "processed", "", "WORKREPLY", CHECKING),
        Row(f"{CHECKING} | {ASKING}", "time-out", "", "we leave, 69", LEFT),
        Row(f"{CHECKING} | {ASKING}", "time-out", "others, or it answered before", _HOP, CLOSED),
        Row(ASKING, "DISCONNECTERROR", "301 to this broker", "CHECKCONFIG", CHECKING),
        Row(GREETING, "READYOK", "", "we are listed", READY),
        ours(GREETING, "time-out", "", "READY, once more", GREETING),
        ours(GREETING, "time-out", "again", _HOP, CLOSED),
        Row(f"{GREETING} | {READY}", "WORKREQUEST", "", "it is processed", WORKING),
        ours(f"{GREETING} | {READY}", "silence", "", _HOP, CLOSED),
        ours(f"{CHECKING} | {READY} | {WORKING}", "READYOK", "", "it answers one before", SAME),
        Row(_LISTENING, "PONG", "", "the broker lives", SAME),
        Row(_AT_WORK, "heartbeat_interval", "", "PING", SAME),
        ours(WORKING, "WORKREQUEST", "", "it waits here", WORKING),
        Row(WORKING, "processed", "", "WORKREPLY; READY", GREETING),
        ours(WORKING, "processed", "more in hand", "WORKREPLY", WORKING),
        Row(_CONNECTED, "FORCENEGOTIATE", "", "CHECKCONFIG", CHECKING),
        ours(_CONNECTED, "FORCENEGOTIATE", "too often", "we leave", LEFT),
        ours(_CONNECTED, "joined again", "", "CHECKCONFIG", CHECKING),
        ours(_CONNECTED, "DISCONNECTERROR", "301, 426, or 503 and others", _HOP, CLOSED),
        ours(_CONNECTED, "DISCONNECTERROR", "503, it answered before", "the same, later", CLOSED),
        Row(_CONNECTED, "DISCONNECTERROR", "", "we leave", LEFT),
        ours(CLOSED, "leave", "", "we leave", LEFT),
        ours(_CONNECTED, "leave", "", "DISCONNECTERROR 503; we leave", LEFT),
        ours(f"{CHECKING} | {WORKING}", "leave", "work in hand", "after the reply", SAME),
    ],
)

# Seconds that CONFIG, READYOK and the answer to NEEDBROKER may take, and for which a broker that
# takes nobody is left alone.
_CHECK_TIMEOUT = 5.0
# So many heartbeats of the broker may be missed; until READYOK says how often, in seconds.
_LIVENESS = 3
_FIRST_INTERVAL = 5.0
# How often in a row it is sent elsewhere, or told to begin anew, before it gives up.
_MAX_HOPS = 8
# Exit codes: no broker; anything that we do not understand; and why we are sent away for good.
_UNAVAILABLE, _PROTOCOL = 69, 70
_EXIT_CODES = {wire.NOT_ACCEPTING: _UNAVAILABLE, wire.CLOCK: 78, wire.UNKNOWN: 78}
_ADDRESS = re.compile(r"[a-z]{2,8}://[!-~]{1,200}")
_NEVER = float("inf")


class _Way:
    """At which broker it is, and where it may go."""

    def __init__(self, own: str, group: tuple[str, ...]) -> None:
        self.own = own
        # Where it begins again, as the configuration says.
        self.preferred = own
        self.group = group
        self.at = own
        # Whether our own broker does not answer, and another is asked whether it would have us.
        self.needy = False
        # How often it went elsewhere since it was listed, and how many of the group it asked.
        self.hops = 0
        self.tried = 0

    def other(self) -> str:
        """Return the next of the group, each once; empty when there is none left."""
        others = [one for one in self.group if one != self.own]
        self.tried += 1
        return others[self.tried - 1] if self.tried <= len(others) else ""


class Worker(words.WorkerSession):
    """One worker, with one document at a time."""

    def __init__(
        self,
        identity: str,
        broker: str,
        services: tuple[str, ...] | None = None,
        group: tuple[str, ...] = (),
        heartbeat_interval: float | None = None,
    ) -> None:
        """Without `services` it offers all that its broker has; the heartbeats are its broker's,
        unless longer ones are wished."""
        self._identity = identity
        self._state = CLOSED
        self._way = _Way(broker, group)
        # The configuration: its version, None when it is not known, and what we offer.
        self._version: wire.Version | None = None
        self._services = services or ()
        self._offers_all = services is None
        # It has been listed once: from then on it does not give up.
        self._started = False
        self._wished_interval = heartbeat_interval
        self._interval = heartbeat_interval or _FIRST_INTERVAL
        # What was sent to us, in its order; the first is being processed.
        self._in_hand: deque[Work] = deque()
        # Until when there must be an answer, and whether READY has been repeated for it.
        self._answer_at = _NEVER
        self._repeated = False
        # Whether our broker, which had us before, takes nobody now.
        self._refused = False
        self._silent_at = _NEVER
        self._ping_at = _NEVER
        # What the wall clock was ahead of `now` when it was last heard of.
        self._wall_ahead = 0.0
        self._leaving = False

    # The connection

    def start(self, now: float, wall: float) -> Effects:
        """CHECKCONFIG to our own broker, NEEDBROKER to another."""
        self._wall_ahead = wall - now
        self._answer_at = now + _CHECK_TIMEOUT
        self._hear_from_now_on(now)
        if self._refused:
            self._refused = False
            self._state = WORKER.own_step(self._state, "connected", "503 before")
            return []
        if not self._way.needy:
            self._state = WORKER.own_step(self._state, "connected")
            return self._check_config(now)
        self._state = WORKER.own_step(self._state, "connected", "our own broker does not answer")
        told = Options(identity=self._identity, services=self._services)
        return [_send("NEEDBROKER", told)]

    def joined(self, peer: bytes, now: float) -> Effects:
        """CHECKCONFIG, with what is in hand: what was on its way may be lost."""
        if self._state in (CLOSED, LEFT):
            return []
        self._state = WORKER.own_step(self._state, "joined again")
        self._hear_from_now_on(now)
        return self._check_config(now)

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        self._wall_ahead = wall - now
        message = wire.decode(frames)
        command, options = message.command, message.options
        if command == "DISCONNECTERROR":
            return self._told_off(options, now)
        if command == "CONFIG" and options.unchanged and self._version is None:
            raise RemoteProtocolError("CONFIG says unchanged, and there was none before")
        if command == "WORKREQUEST" and not options.identifier:
            raise RemoteProtocolError("a WORKREQUEST without a work_request_identifier")
        when = "work in hand" if command == "CONFIG" and self._in_hand else ""
        if command == "FORCENEGOTIATE":
            self._way.hops += 1
            when = "too often" if self._way.hops > _MAX_HOPS else ""
        was, self._state = self._state, WORKER.step(self._state, command, when)
        self._silent_at = now + self._interval * _LIVENESS
        match command:
            case "CONFIG":
                return self._configured(options, now)
            case "READYOK" if was == GREETING:
                return self._listed(options, now)
            case "WORKREQUEST" if was == CHECKING:
                # Its broker takes it for lost: CHECKCONFIG said that we have it not.
                return [Say(1, "a request that was sent before our CHECKCONFIG is dropped")]
            case "WORKREQUEST":
                return self._request(options, message.body)
            case "FORCENEGOTIATE":
                if self._state == LEFT:
                    why = f"again and again told to negotiate: {options.error_message}"
                    return self._end(_PROTOCOL, why)
                return [Say(1, "B --- FORCENEGOTIATE ---> C"), *self._check_config(now)]
        return []

    def finished(self, claim: str, results: tuple[words.Result, ...], now: float) -> Effects:
        """WORKREPLY; READY again."""
        outputs, body = wire.pack(results)
        reply = Options(work_request_identifier=claim, outputs=outputs)
        return self._processed(claim, _send("WORKREPLY", reply, body), now)

    def failed(self, claim: str, how: Setback, now: float) -> Effects:
        """WORKREPLY with a status; when we leave, what we have is given back by saying so."""
        if isinstance(how, Released) and self._leaving:
            return self._goodbye() if self._in_hand else []
        return self._processed(claim, _send("WORKREPLY", wire.reply_of(claim, how), b""), now)

    def leave(self, now: float) -> Effects:
        """Say goodbye at once, or after the document in hand."""
        if self._leaving or self._state == LEFT:
            return []
        self._leaving = True
        if not self._in_hand:
            return self._goodbye()
        self._state = WORKER.own_step(self._state, "leave", "work in hand")
        return []

    def tick(self, now: float, wall: float) -> Effects:
        """Say PING; see to answers that do not come."""
        self._wall_ahead = wall - now
        if now >= self._answer_at:
            return self._no_answer(now)
        if self._state not in (GREETING, READY, WORKING):
            return []
        if now >= self._silent_at and not self._in_hand:
            self._state = WORKER.own_step(self._state, "silence")
            return self._hop("the broker is silent", self._way.at)
        if now >= self._ping_at:
            self._state = WORKER.own_step(self._state, "heartbeat_interval")
            self._ping_at = now + self._interval
            return [_send("PING", Options(time=wall, config_version=self._version))]
        return []

    def next_tick_at(self) -> float | None:
        instants = [self._answer_at]
        if self._state in (GREETING, READY, WORKING):
            instants.append(self._ping_at)
            if not self._in_hand:
                instants.append(self._silent_at)
        at = min(instants)
        return None if at == _NEVER else at

    # What the broker says

    def _configured(self, options: Options, now: float) -> Effects:
        way = self._way
        if not options.unchanged:
            self._version = "" if options.config_version is None else options.config_version
            self._services = options.services if self._offers_all else self._services
            way.group = options.group_config.brokers or way.group
            preferred = options.preferred_broker
            way.preferred = preferred if _ADDRESS.fullmatch(preferred) else way.own
        way.tried = 0
        self._answer_at = _NEVER
        said = Say(1, "B --- CONFIG ---> C")
        if self._state == WORKING:
            return [said]
        return [said, *self._say_ready(now), Say(1, "C --- READY ---> B")]

    def _listed(self, options: Options, now: float) -> Effects:
        self._answer_at = _NEVER
        self._way.hops = 0
        first, self._started = not self._started, True
        if options.heartbeat_interval is not None and options.heartbeat_interval > 0:
            self._interval = options.heartbeat_interval
        self._hear_from_now_on(now)
        return [Say(1 if first else 2, "B --- READYOK ---> C")]

    def _request(self, options: Options, body: bytes) -> Effects:
        self._answer_at = _NEVER
        work = Work(options.identifier, options.docid, options.attempt, body, options.service)
        self._in_hand.append(work)
        return [Process(work)] if len(self._in_hand) == 1 else []

    def _told_off(self, options: Options, now: float) -> Effects:
        """DISCONNECTERROR: elsewhere, or the end."""
        code, way, to = options.error_code, self._way, options.broker or self._way.at
        why = f"the broker says {code}: {options.error_message}"
        if code == wire.REDIRECT and self._state == ASKING and to == way.at:
            self._state = WORKER.step(ASKING, "DISCONNECTERROR", "301 to this broker")
            way.needy = False
            return self._check_config(now)
        other = way.other() if code == wire.NOT_ACCEPTING else ""
        self._refused = code == wire.NOT_ACCEPTING and not other and self._started
        hops = code == wire.VERSION or (code == wire.REDIRECT and bool(_ADDRESS.fullmatch(to)))
        when = "503, it answered before" if self._refused else ""
        if other or hops:
            when = "301, 426, or 503 and others"
        self._state = WORKER.step(self._state, "DISCONNECTERROR", when)
        if other or self._refused:
            return self._connect(why, other, needy=bool(other))
        if not hops:
            where = f" ({to[:80]!r} is no address)" if code == wire.REDIRECT else ""
            return self._end(_EXIT_CODES.get(code, _PROTOCOL), why + where)
        if code == wire.VERSION:
            # What we know of the configuration is wrong: it is asked for as if we had none.
            self._version = None
        return self._hop(why, way.at if code == wire.VERSION else to)

    def _no_answer(self, now: float) -> Effects:
        """See to a CONFIG, a READYOK or an answer to NEEDBROKER that did not come."""
        way, seconds = self._way, f"{_CHECK_TIMEOUT:g} s"
        if self._state == GREETING:
            again = "again" if self._repeated else ""
            self._state = WORKER.own_step(GREETING, "time-out", again)
            if again:
                return self._hop(f"no READYOK came within {seconds}", way.at)
            effects = self._say_ready(now)
            self._repeated = True
            return effects
        if self._state == CLOSED:
            self._state = WORKER.own_step(CLOSED, "time-out")
            return self._check_config(now)
        why = f"no answer to {'NEEDBROKER' if way.needy else 'CHECKCONFIG'} within {seconds}"
        other = way.other()
        on = "others, or it answered before" if other or self._started else ""
        self._state = WORKER.own_step(self._state, "time-out", on)
        if on:
            return self._connect(why, other, needy=bool(other))
        where = f" at {way.at}" if way.at else ""
        return self._end(_UNAVAILABLE, f"{why}: is there a broker{where}?")

    # Where to go

    def _hop(self, why: str, to: str) -> Effects:
        self._way.hops += 1
        if self._way.hops > _MAX_HOPS:
            self._state = WORKER.own_step(self._state, "another broker", "too often")
            return self._end(_UNAVAILABLE, f"sent from broker to broker; in the end {why}")
        return self._connect(why, to)

    def _connect(self, why: str, to: str = "", *, needy: bool = False) -> Effects:
        """Go to a broker; without an address, back to the one that we are to prefer."""
        if not to:
            self._way.tried, to = 0, self._way.preferred
        self._way.at, self._way.needy = to, needy
        self._in_hand.clear()
        self._answer_at = _NEVER
        return [Reconnect(why, to)]

    def _end(self, code: int, why: str) -> Effects:
        self._in_hand.clear()
        self._answer_at = _NEVER
        return [Leave(why, code)]

    # What we say

    def _check_config(self, now: float) -> Effects:
        self._answer_at = now + _CHECK_TIMEOUT
        told = Options(
            config_type="JSON",
            config_version=self._version,
            work_in_hand=tuple(work.claim for work in self._in_hand),
        )
        return [Say(1, "C --- CHECKCONFIG ---> B"), _send("CHECKCONFIG", told)]

    def _say_ready(self, now: float) -> Effects:
        self._answer_at = now + _CHECK_TIMEOUT
        self._ping_at = now + self._interval
        self._repeated = False
        told = Options(
            services=self._services,
            heartbeat_interval=self._wished_interval,
            time=now + self._wall_ahead,
            config_version=self._version,
        )
        return [_send("READY", told)]

    def _goodbye(self) -> Effects:
        connected = self._state != CLOSED
        self._state = WORKER.own_step(self._state, "leave")
        error = Options(error_code=wire.NOT_ACCEPTING, error_message="this worker leaves")
        said: Effects = [_send("DISCONNECTERROR", error)] if connected else []
        return [*said, *self._end(0, "asked to leave")]

    def _processed(self, claim: str, reply: Send, now: float) -> Effects:
        if not self._in_hand or self._in_hand[0].claim != claim:
            raise LocalProtocolError(f"request {claim} is not in hand")
        self._in_hand.popleft()
        self._hear_from_now_on(now)
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
        """Begin to count anew: while a document was processed nothing was read, so it is not known
        who was silent."""
        self._silent_at = now + self._interval * _LIVENESS
        self._ping_at = now + self._interval


def _send(command: str, options: Options, body: bytes | None = None) -> Send:
    return Send(b"", wire.encode(command, options, body))
