"""roundrobin: clients bring, a broker deals by free slots, workers answer. The broker's side. Pure.

    client → broker    EXEC or TRACKEXEC: what is to be done, for whichever worker
    broker → worker    the same, and documents of a queue as TRACKEXEC DOCUMENT
    worker → broker    REGISTER, DEREGISTER, INCREMENT (one slot is free again); RESPONSE
    broker → client    a worker's RESPONSE, as it came

What has addresses on top is only passed on. A worker is dealt to as long as it has free slots, the
one that was dealt to longest ago first. RESPONSE ends a document or a request, INCREMENT frees its
slot: they come one after the other, and each says nothing of the other.

Who is listed, with which slots free and what in hand, is the exchange's. What is kept here besides:
in whose hands each client's request is, and on which ways each worker may send.
"""

from collections.abc import Sequence

import msgspec

from queuedriver.doors import exchange, words
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin.wire import Message, decode, encode, outcome_of, question
from queuedriver.doors.table import SAME, Row, Table, ours
from queuedriver.doors.words import Effects, End, Request, Say, Send, Work, shown
from queuedriver.errors import LATER, RemoteProtocolError

# Ways home that one worker is remembered to have been given.
_MOST_WAYS = 1024

UNKNOWN, REGISTERED, LEAVING = "unknown", "registered", "leaving"

_ANYBODY = f"{UNKNOWN} | {REGISTERED} | {LEAVING}"
_LISTED = f"{REGISTERED} | {LEAVING}"

# What goes to somebody else than a worker, or on a way that was not given, has no row.
BROKER = Table(
    "How the broker sees a peer",
    [
        Row(UNKNOWN, "REGISTER", "", "list it with its slots; RESPONSE", REGISTERED),
        ours(UNKNOWN, "REGISTER", "no room", "say so", UNKNOWN),
        Row(_LISTED, "REGISTER", "", "set its slots, less those taken; RESPONSE", REGISTERED),
        ours(_LISTED, "REGISTER", "connected again", "set back what it does not name", REGISTERED),
        Row(f"{UNKNOWN} | {LEAVING}", "DEREGISTER", "", "ignore", SAME),
        Row(REGISTERED, "DEREGISTER", "", "strike it off", UNKNOWN),
        ours(REGISTERED, "DEREGISTER", "in hand", "deal it nothing more", LEAVING),
        Row(UNKNOWN, "INCREMENT", "", "ignore; ask it to register", UNKNOWN),
        Row(REGISTERED, "INCREMENT", "", "one slot is free, at most all", REGISTERED),
        Row(LEAVING, "INCREMENT", "", "ignore", LEAVING),
        ours(UNKNOWN, "RESPONSE", "late", "drop; ask it to register", UNKNOWN),
        ours(_LISTED, "RESPONSE", "late", "drop", SAME),
        ours(_LISTED, "RESPONSE", "in hand", "publish or set back", SAME),
        ours(LEAVING, "RESPONSE", "last", "publish or set back; strike it off", UNKNOWN),
        Row(_ANYBODY, "PING", "", "PONG", SAME),
        ours(_ANYBODY, "PONG", "", "it is there", SAME),
        Row(_ANYBODY, "request", "", "keep; deal when it is its turn", SAME),
        Row(UNKNOWN, "pass", "to a worker", "pass it on", UNKNOWN),
        Row(_LISTED, "pass", "given", "pass it on, unchanged", SAME),
        ours(_LISTED, "pass", "answer", "keep, finish, pass it on", SAME),
        ours(LEAVING, "pass", "last", "the same; strike it off", UNKNOWN),
        ours(_LISTED, "pass", "late", "drop", SAME),
        Row(REGISTERED, "deal", "", "EXEC or TRACKEXEC; one slot is taken", REGISTERED),
        ours(_LISTED, "each second", "busy", "PING, to see whether it is there", SAME),
        ours(_LISTED, "lost", "", "charge what it had, if just one", UNKNOWN),
        ours(REGISTERED, "lost", "not sent", "the same; give back what was not sent", UNKNOWN),
    ],
)


class Worker(exchange.Worker):
    """A worker that has registered. It has less than nothing free when it now offers fewer slots
    than it has taken."""

    # On which it may send, as something that it was given came on them.
    ways: words.Recent[tuple[bytes, ...], None] = msgspec.field(
        default_factory=lambda: words.Recent(_MOST_WAYS)
    )


class RoundRobinBroker(Exchange[Worker]):
    """All workers and clients of one broker."""

    worker = Worker
    # RESPONSE ends a claim, and INCREMENT frees its slot.
    settling_frees = False

    def __init__(self, job_timeout: float | None = None) -> None:
        super().__init__(job_timeout=job_timeout)
        # The claims of clients' requests that are in hand, by the requests' keys.
        self._asked: dict[bytes, str] = {}
        self._serial = 0

    def registered(self) -> list[Worker]:
        """Return those registered, in the order in which they would be dealt to."""
        return [worker for worker in self.workers.values() if worker.state != LEAVING]

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        message = decode(frames, peer)
        worker = self.workers.get(peer)
        if message.hops:
            return self._pass(peer, worker, message, frames)
        command = message.command
        if command == wire.RESPONSE:
            return self._response(peer, worker, message)
        if command in (wire.EXEC, wire.TRACKEXEC):
            match message.key:
                case wire.INCREMENT:
                    return self._increment(peer, worker, now)
                case wire.REGISTER:
                    return self._register(peer, worker, message, now)
                case wire.DEREGISTER:
                    return self._deregister(peer, worker)
            self._step(worker, "request")
            key = wire.key_of(message.way_home, message.id)
            request = Request(key, (*frames, peer), answered=message.tracked)
            return [Say(1, f"{shown(peer)} asks: {message.name}"), words.Asked(request)]
        if command == wire.PING:
            self._step(worker, "PING")
            return [_answer(message, wire.PONG)]
        # TRACKADDRESS says what PONG says: it is there.
        self._step(worker, "PONG")
        return []

    def _step(self, worker: Worker | None, event: str, when: str = "") -> None:
        if worker is None:
            BROKER.step(UNKNOWN, event, when)
        else:
            worker.state = BROKER.step(worker.state, event, when)

    # Workers come and go

    def _register(
        self, peer: bytes, worker: Worker | None, message: Message, now: float
    ) -> Effects:
        slots = wire.slots_of(message)
        has = wire.in_hand_of(message) if worker is not None else None
        effects: Effects = []
        if worker is None or worker.state == LEAVING:
            effects.append(Say(1, f"{shown(peer)} registered with {slots} slots"))
        if worker is None:
            worker = self.join(peer, now)
            if worker is None:
                BROKER.step(UNKNOWN, "REGISTER", "no room")
                return [Say(0, f"{shown(peer)} cannot register: there are too many workers")]
            worker.state, worker.slots = UNKNOWN, 0
        self._step(worker, "REGISTER", "" if has is None else "connected again")
        taken = worker.slots - worker.free
        if has is not None:
            # What it does not name was lost on its way, or its answer was; INCREMENTs, too.
            held = {_key(work): claim for claim, (work, _) in worker.in_hand.items()}
            effects += self.keep_only(worker, {held[key] for key in has if key in held})
            taken = len(worker.in_hand)
        worker.slots = slots
        self.offer(worker, slots - taken, now)
        if message.tracked:
            effects.append(_answer(message, wire.RESPONSE))
        return effects

    def _deregister(self, peer: bytes, worker: Worker | None) -> Effects:
        if worker is None:
            self._step(worker, "DEREGISTER")
            return []
        was = worker.state
        self._step(worker, "DEREGISTER", "in hand" if worker.in_hand and was != LEAVING else "")
        self.offer(worker, worker.free - worker.slots, worker.heard_at)
        worker.slots = 0
        if worker.state == UNKNOWN:
            self.lose(worker, exchange.LEFT)
        return [Say(1, f"{shown(peer)} deregistered")]

    def _increment(self, peer: bytes, worker: Worker | None, now: float) -> Effects:
        self._step(worker, "INCREMENT")
        if worker is None:
            return [self._call(peer)]
        self.offer(worker, min(worker.free + 1, worker.slots), now)
        return []

    def _call(self, peer: bytes) -> Send:
        """Ask a peer that registered with an earlier broker here to register again."""
        return Send(peer, encode(Message(wire.EXEC, self._new_id(), (wire.REGISTER,))))

    def _new_id(self) -> bytes:
        self._serial = (self._serial + 1) & 0xFFFFFFFF
        return self._serial.to_bytes(4, "little")

    # Answers, and what is passed on

    def _response(self, peer: bytes, worker: Worker | None, message: Message) -> Effects:
        """End a document by its answer."""
        claim = message.id.decode("ascii", "replace")
        if worker is None or self.settle(worker, claim) is None:
            self._step(worker, "RESPONSE", "late")
            return [self._call(peer)] if worker is None else []
        end = End(claim, outcome_of(message.args))
        return [end, *self._ended(worker, "RESPONSE", "in hand")]

    def _ended(self, worker: Worker, event: str, when: str) -> Effects:
        """Step the table for a claim that its worker has ended. Its slot is freed by INCREMENT, as
        the worker may need a moment."""
        last = worker.state == LEAVING and not worker.in_hand
        self._step(worker, event, "last" if last else when)
        return self.lose(worker, exchange.LEFT) if last else []

    def _pass(
        self, peer: bytes, worker: Worker | None, message: Message, frames: Sequence[bytes]
    ) -> Effects:
        """Pass on what is to go further: from clients to workers, and back where it came from."""
        hop = message.hops[0]
        onward = (*frames[1:], peer)
        if worker is None:
            to = self.workers.get(hop)
            self._step(None, *_allowed(to is not None, "to a worker", message))
            if to is not None:
                to.ways[message.way_home] = None
            return [Send(hop, onward)]
        if message.command == wire.RESPONSE:
            # Before its way is looked at: others may have asked so often that it is forgotten.
            claim = self._asked.get(wire.key_of(message.hops, message.id))
            if claim is not None and self.settle(worker, claim) is None:
                self._step(worker, "pass", "late")
                return []
            if claim is not None:
                said = Say(1, f"the RESPONSE of {shown(peer)} is passed to {shown(hop)}")
                end = End(claim, words.Answer(hop, onward))
                return [said, end, *self._ended(worker, "pass", "answer")]
        self._step(worker, *_allowed(message.hops in worker.ways, "given", message))
        said = Say(1, f"{message.name} of {shown(peer)} is passed to {shown(hop)}")
        return [said, Send(hop, onward)]

    # What the exchange asks

    def deal(self, worker: Worker, work: Work, now: float) -> Send | End:
        request = work.request
        if request is not None and request.answered and request.key in self._asked:
            # Asked again after so long that it was taken for another.
            return End(work.claim, words.Processed(()))
        return super().deal(worker, work, now)

    def frames_of(self, worker: Worker, work: Work) -> tuple[bytes, ...]:
        request = work.request
        frames = encode(question(work)) if request is None else request.frames
        if request is not None:
            worker.ways[decode(frames).way_home] = None
            if request.answered:
                self._asked[request.key] = work.claim
        worker.state = BROKER.own_step(worker.state, "deal")
        return frames

    def settle(self, worker: Worker, claim: str) -> Work | None:
        work = super().settle(worker, claim)
        if work is not None and work.request is not None:
            del self._asked[work.request.key]
        return work

    def forget(self, worker: Worker, why: str) -> None:
        for work, _ in worker.in_hand.values():
            if work.request is not None:
                del self._asked[work.request.key]
        if why != exchange.LEFT:
            unsent = why == exchange.UNDELIVERED
            worker.state = BROKER.own_step(worker.state, "lost", "not sent" if unsent else "")

    def probe(self, worker: Worker) -> tuple[bytes, ...]:
        worker.state = BROKER.own_step(worker.state, "each second", "busy")
        return encode(Message(wire.PING, self._new_id()))

    def refusal(self, request: Request, why: str, *, late: bool = False) -> words.Answer | None:
        try:
            message = decode(request.frames)
        except RemoteProtocolError:
            return None
        if message.key != wire.DOCUMENT or not message.senders:
            # What would tell its client so is not known.
            return None
        code = LATER if late else words.PERMANENT
        told = _answer(message, wire.RESPONSE, b"%d" % code, why.encode())
        return words.Answer(told.peer, told.frames)


def _answer(message: Message, command: bytes, *args: bytes) -> Send:
    """Return what goes back the way a message came."""
    hops = message.way_home
    return Send(hops[0], encode(Message(command, message.id, args, hops))[1:])


def _allowed(is_allowed: bool, when: str, message: Message) -> tuple[str, ...]:
    """Return the event of the table for a message that goes on; what is not allowed has no row."""
    return ("pass", when) if is_allowed else (f"{message.name} for {shown(message.hops[0])}",)


def _key(work: Work) -> bytes:
    """Return the name by which a worker knows what it has in hand."""
    if work.request is not None:
        return work.request.key
    return wire.key_of((), work.claim.encode("ascii"))
