"""The broker's side of fuq: one conversation per client, over one roster. Pure.

fuq_wire.py     header, messages, bodies
fuq_tables.py   both tables
fuq_auth.py     the proof that both sides know a secret
fuq_client.py   the client's side

How many processors a client has free is counted here: its limit, less what the tasks in its hands
take. The limit is what it offered in its greeting; what it reports later bounds it from both sides.
After a task, `reported` are free there. It may run all that it was dealt, or all but what was sent
since our last OK and may have crossed the report:

    reported + dealt - crossing  <=  its true maximum  <=  reported + dealt

So the limit only rises where the client said in its greeting less than it has, because it was still
at tasks of an earlier connection; and it never rises again after a STOP.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from queuedriver.claims.outcomes import Released
from queuedriver.doors.fuq import auth, wire
from queuedriver.doors.fuq.roster import Roster
from queuedriver.doors.fuq.tables import CLIENT, ELSE, HOLDS, PENDING, SERVER
from queuedriver.doors.fuq.wire import Code, JobStatusUpdate, Message, Receiver, Type
from queuedriver.doors.table import Table
from queuedriver.doors.words import (
    Close,
    Effect,
    Lost,
    Say,
    Send,
    SetBack,
    Work,
    soonest,
    undelivered,
)
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["CLIENT", "SERVER", "Broker", "Capacity", "Finished", "FuqEffect", "FuqEffects"]

# Seconds from the connection to the client's OK.
GREETING = 10.0
# What a client says of a task that it did not begin, or may not.
CANNOT_RUN = "cannot_run_job"
# How many refused jobs are remembered of one client; more is no client but a mistake.
_MOST_REFUSED = 10_000
# Seconds until a client is asked again that cannot run a job: doubled each time, up to the longest.
_FIRST_REFUSAL = 1.0
_LONGEST_REFUSAL = 300.0
# Seconds in which a client that has said ERROR may say which task it was; after that, and from one
# that knows no more than the protocol's own description, it was the last that was sent.
_SAYS_WHICH = 1.0
# Characters of a client's reason that are noted.
_MOST_REASON = 300


class Finished(msgspec.Struct, frozen=True):
    """A task has run to its end, well or not: record it, then go on with the effects after this."""

    claim: str
    client: bytes
    update: JobStatusUpdate


FuqEffect = Effect | Finished
FuqEffects = list[FuqEffect]


class Capacity(msgspec.Struct, frozen=True):
    """One client, for whoever looks on."""

    client: bytes
    limit: int
    free: int
    claims: tuple[str, ...]
    refused: tuple[int, ...]


class _Dealt(msgspec.Struct, frozen=True):
    claim: str
    need: int


class _Conversation(msgspec.Struct):
    """One connection."""

    state: str
    receiver: Receiver
    nonce: bytes
    greeting_until: float
    limit: int = 0
    # What is in its hands, by job and task.
    dealt: dict[tuple[int, int], _Dealt] = msgspec.field(default_factory=dict)
    # Claims that were sent since our last OK: its next report may not know of them yet.
    crossing: set[str] = msgspec.field(default_factory=set)
    # Jobs it said it cannot run: not before when they are offered to it again, and the wait until
    # then. What was in the way may have been a moment's.
    refused: dict[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    # Tasks that an ERROR may have meant, and until when the client may say which.
    doubted: dict[tuple[int, int], float] = msgspec.field(default_factory=dict)
    stopped: bool = False
    # It was told to drop everything: what it has is not its fault.
    ended: bool = False

    @property
    def taken(self) -> int:
        return sum(one.need for one in self.dealt.values())

    def may(self, job: int, now: float) -> bool:
        """Whether a job may be offered to it."""
        at, _ = self.refused.get(job, (now, 0.0))
        return at <= now

    @property
    def greeted(self) -> bool:
        return self.state == "SV_LOOP2"


class Broker:
    """All clients of one broker. `nonce` draws 32 random bytes; it is asked only with a secret."""

    def __init__(
        self,
        secret: bytes | None = None,
        nonce: Callable[[], bytes] | None = None,
        *,
        job_timeout: float | None = None,
        greeting: float = GREETING,
        max_body: int = wire.MAX_BODY,
        max_clients: int = 10_000,
        table: Table = SERVER,
    ) -> None:
        self._table = table
        self._secret = secret
        if secret is not None and nonce is None:
            raise LocalProtocolError("a secret needs nonces")
        self._nonce = nonce or bytes
        self._job_timeout = job_timeout
        self._greeting = greeting
        self._max_body = max_body
        self._roster = Roster(max_clients)
        self._peers: dict[bytes, _Conversation] = {}
        # Connections that are yet to greet, in the order in which their time ends.
        self._greeting_peers: dict[bytes, float] = {}
        # Counts every change of who is there and what it may take.
        self.changes = 0

    # What comes

    def joined(self, peer: bytes, now: float) -> FuqEffects:
        """A connection was made: it has so many seconds for the greeting."""
        nonce = self._nonce() if self._secret is not None else b""
        state = "SV_INIT0" if self._secret is None else "SV_AUTH0"
        until = now + self._greeting
        one = _Conversation(state, Receiver(self._max_body), nonce, until)
        self._peers[peer] = one
        self._greeting_peers[peer] = until
        if self._secret is None:
            return self._greet(peer, one)
        self._own(one, "")
        return [_send(peer, wire.encode_body(Type.AUTH, nonce))]

    def receive(
        self, peer: bytes, frames: Sequence[bytes], now: float, wall: float = 0.0
    ) -> FuqEffects:
        """One chunk of a client's stream. Whoever sends nonsense is told so, and cut off."""
        one = self._peers.get(peer)
        if one is None:
            return []
        effects: FuqEffects = []
        try:
            for chunk in frames:
                for message in one.receiver.feed(chunk):
                    effects += self._hear(peer, one, message, now)
                    if peer not in self._peers:
                        return effects
        except RemoteProtocolError as error:
            effects += self._cut_off(peer, str(error))
        return effects

    def gone(self, peer: bytes, now: float, unsent: str = "") -> FuqEffects:
        """The connection is no more. `unsent` is a claim that could not be sent to it."""
        if unsent and self._roster.settle(peer, unsent):
            return [undelivered(unsent), *self._forget(peer, "left")]
        return self._forget(peer, "left")

    def tick(self, now: float) -> FuqEffects:
        """Cut off who did not greet in time, or has had a task for too long."""
        effects: FuqEffects = []
        late = [peer for peer, until in self._greeting_peers.items() if until <= now]
        for peer in late:
            self._own(self._peers[peer], "TIMEOUT")
            effects += self._cut_off(peer, "it did not greet in time", "")
        for peer, one in self._peers.items():
            for key in [each for each, until in one.doubted.items() if until <= now]:
                del one.doubted[key]
                effects += self._refused_without_a_word(peer, one, key, now)
        for lost in self._roster.expire(now):
            self._drop(lost.worker)
            effects += [lost, Close(lost.worker, "it has had a task for too long")]
        return effects

    def next_tick_at(self) -> float | None:
        """When `tick` is worth calling."""
        first = next(iter(self._greeting_peers.values()), None)
        doubts = (until for one in self._peers.values() for until in one.doubted.values())
        return soonest(first, self._roster.next_tick_at(), *doubts)

    # What is dealt

    def ready(self, service: str = "") -> bool:
        """Whether anybody has a processor free."""
        return self._roster.pick() is not None

    def takes(self, job: int, need: int, now: float, reserved: bytes | None = None) -> bytes | None:
        """Which client would take a task of this job now; all but the reserved one."""
        first = self._roster.pick(need=need)
        if first is None or (first != reserved and self._peers[first].may(job, now)):
            return first
        for peer in self._roster.names():
            one = self._peers[peer]
            if peer != reserved and self._roster.free(peer) >= need and one.may(job, now):
                return peer
        return None

    def reserve(self, job: int, need: int, now: float) -> bytes | None:
        """Which client is to be kept from smaller tasks until it has room for one of this job:
        the one that lacks least. None: there is none so large."""
        fitting = [
            (need - self._roster.free(peer), peer)
            for peer, one in self._peers.items()
            if one.greeted and one.limit >= need and one.may(job, now)
        ]
        return min(fitting)[1] if fitting else None

    def deal(self, work: Work, now: float, to: bytes | None = None) -> FuqEffects:
        """Send a task to whose turn it is, or to this client. Its payload is the body of JOB."""
        task = wire.decode_task(work.payload)
        job = task.description
        peer = to if to is not None else self.takes(job.job_id, job.num_proc, now)
        one = self._peers.get(peer) if peer is not None else None
        if peer is None or one is None or self._roster.free(peer) < job.num_proc:
            return [SetBack(work.claim, Released("no client has so many processors free"))]
        self._own(one, "JOB_QUEUED")
        self._own(one, "")
        self._own(one, "", PENDING)
        deadline = None if self._job_timeout is None else now + self._job_timeout
        self._roster.assign(peer, work.claim, job.num_proc, deadline)
        one.dealt[job.job_id, task.task] = _Dealt(work.claim, job.num_proc)
        one.crossing.add(work.claim)
        self.changes += 1
        return [_send(peer, wire.encode_body(Type.JOB, work.payload), work.claim)]

    def stop(self, number: int, to: Collection[bytes] | None = None) -> FuqEffects:
        """Take so many processors from these clients, or from all: 0 is all they have, STOP_NOW all
        and at once."""
        effects: FuqEffects = []
        for peer, one in self._peers.items():
            if not one.greeted or (to is not None and peer not in to):
                continue
            now = number == wire.STOP_NOW
            self._own(one, "STOP_IMMED" if now else "STOP_REQ")
            self._rest(one)
            one.stopped = True
            one.ended = one.ended or now
            all_of_it = number in (wire.STOP_ALL, wire.STOP_NOW)
            self._limit(peer, one, 0 if all_of_it else max(0, one.limit - number))
            effects.append(_send(peer, wire.encode(Type.STOP, number)))
        return effects

    def leave(self, now: float) -> FuqEffects:
        """The broker leaves: clients that live longer connect again."""
        return []

    # For whoever looks on

    @property
    def connected(self) -> int:
        """How many have greeted."""
        return len(self._roster)

    def clients(self) -> list[Capacity]:
        """Everybody who has greeted."""
        return [
            Capacity(
                peer,
                one.limit,
                max(0, self._roster.free(peer)),
                self._roster.claims(peer),
                tuple(sorted(one.refused)),
            )
            for peer, one in self._peers.items()
            if one.greeted
        ]

    # Messages

    def _hear(self, peer: bytes, one: _Conversation, message: Message, now: float) -> FuqEffects:
        match message.type, one.state:
            case Type.AUTH, _:
                return self._authenticate(peer, one, message.body)
            case Type.OK, "SV_INIT1":
                return self._welcome(peer, one, message.arg0, now)
            case Type.UPDATE, _:
                return self._update(peer, one, message.body, now)
            case Type.ERROR, _:
                one.state = self._table.step(one.state, "ERROR")
                if message.arg0 in (Code.OVERFLOW, Code.CANNOT_RUN_JOB):
                    sent = [key for key in one.dealt if key not in one.doubted]
                    if sent:
                        one.doubted[sent[-1]] = now + _SAYS_WHICH
                return [Say(1, f"{peer.decode()}: ERROR({message.arg0})")]
        one.state = self._table.step(one.state, message.type.name)
        return []

    def _authenticate(self, peer: bytes, one: _Conversation, body: bytes) -> FuqEffects:
        if not self._table.allows(one.state, "AUTH(nonce, proof)") or self._secret is None:
            raise RemoteProtocolError("AUTH is not allowed now", Code.BAD_MESSAGE)
        theirs, proof = body[: auth.NONCE], body[auth.NONCE :]
        wanted = auth.client_proof(self._secret, one.nonce, theirs)
        if len(body) != auth.NONCE + auth.PROOF or not auth.holds(proof, wanted):
            self._own(one, "AUTH(nonce, proof)", ELSE)
            return self._cut_off(peer, "it does not know our secret", "")
        self._own(one, "AUTH(nonce, proof)", HOLDS)
        ours = auth.broker_proof(self._secret, one.nonce, theirs)
        return [_send(peer, wire.encode_body(Type.AUTH, ours)), *self._greet(peer, one)]

    def _greet(self, peer: bytes, one: _Conversation) -> FuqEffects:
        self._own(one, "")
        return [_send(peer, wire.encode(Type.OK, 0))]

    def _welcome(self, peer: bytes, one: _Conversation, nproc: int, now: float) -> FuqEffects:
        one.limit = wire.check_nproc(nproc)
        one.state = self._table.step(one.state, "OK")
        if not self._roster.join(peer, nproc):
            return self._cut_off(peer, "there are as many clients as may be")
        del self._greeting_peers[peer]
        self._own(one, "")
        self._rest(one)
        self.changes += 1
        return [_send(peer, wire.encode(Type.OK, nproc))]

    def _update(self, peer: bytes, one: _Conversation, body: bytes, now: float) -> FuqEffects:
        update = wire.decode_update(body)
        one.state = self._table.step(one.state, "UPDATE")
        effects: FuqEffects = []
        key = update.job_id, update.task
        dealt = one.dealt.pop(key, None)
        if one.doubted and (key in one.doubted or update.status == CANNOT_RUN):
            # That is what it meant.
            del one.doubted[key if key in one.doubted else next(iter(one.doubted))]
        if dealt is None:
            effects.append(Say(2, f"{peer.decode()}: a late result, of nothing it has in hand"))
        else:
            self._roster.settle(peer, dealt.claim)
            one.crossing.discard(dealt.claim)
        self._recount(peer, one, update)
        if dealt is not None:
            effects.append(self._ended(peer, one, update, dealt, now))
        self._own(one, "")
        self._rest(one)
        one.crossing.clear()
        self.changes += 1
        free = max(0, self._roster.free(peer))
        return [*effects, _send(peer, wire.encode(Type.OK, free))]

    def _ended(
        self,
        peer: bytes,
        one: _Conversation,
        update: JobStatusUpdate,
        dealt: _Dealt,
        now: float,
    ) -> FuqEffect:
        if update.success or update.status != CANNOT_RUN:
            one.refused.pop(update.job_id, None)
            return Finished(dealt.claim, peer, update)
        # One that had room for it will not run it next time, either.
        if update.new_job is None or update.new_job.num_proc >= dealt.need:
            if len(one.refused) >= _MOST_REFUSED:
                one.refused.clear()
            at, before = one.refused.get(update.job_id, (0.0, 0.0))
            # Several tasks that were on their way are one refusal.
            if at <= now:
                wait = min(max(_FIRST_REFUSAL, 2 * before), _LONGEST_REFUSAL)
                one.refused[update.job_id] = (now + wait, wait)
        reason = (update.log or "it gave no reason")[:_MOST_REASON]
        return SetBack(dealt.claim, Released(f"client {peer.decode()} cannot run it: {reason}"))

    def _refused_without_a_word(
        self, peer: bytes, one: _Conversation, key: tuple[int, int], now: float
    ) -> FuqEffects:
        """Take a task back from a client that has said ERROR, and nothing else: it is not told that
        this has ended, and counts as if it had never come."""
        dealt = one.dealt.pop(key, None)
        if dealt is None:
            return []
        self._roster.settle(peer, dealt.claim)
        one.crossing.discard(dealt.claim)
        self.changes += 1
        job, task = key
        report = JobStatusUpdate(job, task, success=False, status=CANNOT_RUN)
        return [self._ended(peer, one, report, dealt, now)]

    def _recount(self, peer: bytes, one: _Conversation, update: JobStatusUpdate) -> None:
        """What its report says of how much it may take."""
        if update.new_job is None:
            return
        most = update.new_job.num_proc + one.taken
        if one.stopped:
            self._limit(peer, one, min(one.limit, most))
            return
        crossing = sum(each.need for each in one.dealt.values() if each.claim in one.crossing)
        least = min(most - crossing, wire.MAX_NPROC)
        self._limit(peer, one, min(max(one.limit, least), most))

    def _limit(self, peer: bytes, one: _Conversation, limit: int) -> None:
        one.limit = limit
        self._roster.limit(peer, limit)
        self.changes += 1

    # States

    def _own(self, one: _Conversation, event: str, when: str = "") -> None:
        one.state = self._table.own_step(one.state, event, when)

    def _rest(self, one: _Conversation) -> None:
        """From SV_LOOP0 on to where events are waited for: tasks are dealt one by one, as they are
        queued."""
        self._own(one, "")
        self._own(one, "", ELSE)

    # Ends

    def _cut_off(self, peer: bytes, why: str, event: str = "DISCONNECT") -> FuqEffects:
        sent = _send(peer, wire.encode(Type.ERROR, Code.BAD_MESSAGE))
        words = Say(1, f"{peer.decode()}: {why}; its connection is closed")
        return [sent, Close(peer, why), words, *self._forget(peer, why, event)]

    def _forget(self, peer: bytes, why: str, event: str = "DISCONNECT") -> FuqEffects:
        one = self._drop(peer)
        if one is None:
            return []
        if event and self._table.allows(one.state, event):
            self._own(one, event)
        lost = self._roster.leave(peer, why)
        if lost is None or not lost.claims:
            return []
        if one.ended:
            return [SetBack(claim, Released("its client was stopped")) for claim in lost.claims]
        return [Lost(peer, lost.claims, why)]

    def _drop(self, peer: bytes) -> _Conversation | None:
        self._greeting_peers.pop(peer, None)
        self.changes += 1
        return self._peers.pop(peer, None)


def _send(peer: bytes, message: bytes, claim: str = "") -> Send:
    if len(peer) == 0:
        raise LocalProtocolError("a client without a name")
    return Send(peer, (message,), claim)
