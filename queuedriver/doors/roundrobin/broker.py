"""The broker's side of roundrobin. Pure.

Whose turn it is, who has which slots and which claims, is the roster's. What is kept here besides:
by which id and return path each claim is answered, and which return paths each worker was given.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence

import msgspec

from queuedriver.claims.outcomes import Failed, Released
from queuedriver.doors.roster import Order, Policy, Roster
from queuedriver.doors.roundrobin import frames as wire
from queuedriver.doors.roundrobin import tables as rr
from queuedriver.doors.roundrobin.documents import outcome_of, question
from queuedriver.doors.roundrobin.frames import Message, decode, encode
from queuedriver.doors.table import Table
from queuedriver.doors.words import (
    Answered,
    Asked,
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

# Return paths that one worker is remembered to have been given.
_MOST_PATHS = 1024


class Seen(msgspec.Struct, frozen=True):
    """A line of the table of workers, for people."""

    address: bytes
    free_slots: int
    # One of the children of another worker in the table.
    child: bool


class _Kept(msgspec.Struct, frozen=True):
    """A claim in a worker's hands."""

    worker: bytes
    # The key of a client's request; empty for a document.
    key: bytes = b""


class RoundRobinBroker:
    """All workers and clients of one broker."""

    def __init__(self, options: rr.Options | None = None, table: Table = rr.BROKER) -> None:
        self._table = table
        self._options = (options or rr.Options()).check()
        self._roster = Roster(Policy(Order.ASSIGNED, max_workers=self._options.max_workers))
        # Workers that deregistered and have claims in hand.
        self._leaving: set[bytes] = set()
        self._in_hand: dict[str, _Kept] = {}
        # Requests that were dealt, by key: their claims.
        self._asked: dict[bytes, str] = {}
        self._paths: dict[bytes, OrderedDict[tuple[bytes, ...], None]] = {}
        self._probe_at: float | None = None
        self._serial = 0

    def workers(self) -> tuple[Seen, ...]:
        """Those registered, in the order in which they would be dealt to."""
        names = [name for name in self._roster.names() if name not in self._leaving]
        known = frozenset(names)
        return tuple(
            Seen(name, max(0, self._roster.free(name)), _is_child(name, known)) for name in names
        )

    # Peers

    def joined(self, peer: bytes, now: float) -> Effects:
        return []

    def gone(self, peer: bytes, now: float, unsent: str = "") -> Effects:
        """It cannot be reached."""
        effects: Effects = []
        if unsent and self._roster.settle(peer, unsent):
            self._forget(unsent)
            effects.append(undelivered(unsent))
        lost = self._roster.leave(peer, "unroutable")
        if lost is not None:
            effects += self._lose(lost)
        return effects

    def receive(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        message = decode(frames, peer)
        if peer in self._roster:
            self._roster.heard(peer, now)
        if message.hops:
            return self._pass(peer, message)
        if message.command in (wire.EXEC, wire.TRACKEXEC):
            return self._application(peer, message, now)
        if message.command == wire.PING:
            return self._answer(peer, "PING", Message(wire.PONG, message.id, hops=message.way_home))
        if message.command == wire.RESPONSE:
            return self._response(peer, message)
        # TRACKADDRESS says what PONG says: it is there.
        self._table.step(self.state_of(peer), "PONG")
        return []

    def state_of(self, peer: bytes) -> str:
        """In which state of the table it is."""
        if peer in self._leaving:
            return rr.LEAVING
        return rr.REGISTERED if peer in self._roster else rr.UNKNOWN

    def _application(self, peer: bytes, message: Message, now: float) -> Effects:
        match message.key:
            case wire.REGISTER:
                return self._register(peer, message, now)
            case wire.DEREGISTER:
                return self._deregister(peer)
            case wire.INCREMENT:
                return self._increment(peer)
        self._table.step(self.state_of(peer), "request")
        request = Request(
            wire.key_of(message.way_home, message.id), encode(message), answered=message.tracked
        )
        return [Say(1, f"{_shown(peer)} asks: {message.name}"), Asked(request)]

    # Workers

    def _register(self, peer: bytes, message: Message, now: float) -> Effects:
        slots = wire.slots_of(message)
        state = self.state_of(peer)
        if not self._roster.join(peer, now, slots):
            self._table.step(state, "REGISTER", "no room")
            return [Say(0, f"{_shown(peer)} cannot register: there are too many workers")]
        self._table.step(state, "REGISTER")
        self._leaving.discard(peer)
        effects = self._reconcile(peer, message)
        if state != rr.REGISTERED:
            effects.append(Say(1, f"{_shown(peer)} registered with {slots} slots"))
        if message.tracked:
            effects.append(_to(Message(wire.RESPONSE, message.id, hops=message.way_home)))
        return effects

    def _reconcile(self, worker: bytes, message: Message) -> Effects:
        """Give back what a worker of ours does not have after its connection broke: it, or its
        answer, was lost on its way before anybody noticed."""
        has = wire.in_hand_of(message)
        if has is None:
            return []
        claims = self._roster.claims(worker)
        if not (claims or has):
            # It has nothing in hand, and nothing is on its way: an INCREMENT may have been lost.
            while self._roster.busy(worker):
                self._roster.increment(worker)
        effects: Effects = []
        for claim in claims:
            key = self._in_hand[claim].key or wire.key_of((), claim.encode("ascii"))
            if key not in has:
                self._roster.settle(worker, claim)
                self._forget(claim)
                effects.append(SetBack(claim, Released("it was lost on its way")))
        return effects

    def _deregister(self, peer: bytes) -> Effects:
        claims = self._roster.claims(peer)
        state = self.state_of(peer)
        left = state == rr.REGISTERED and claims
        to = self._table.step(state, "DEREGISTER", "in hand" if left else "")
        if state == rr.UNKNOWN:
            return [Say(5, f"{_shown(peer)} deregistered, and was not registered")]
        if to == rr.LEAVING:
            self._roster.limit(peer, 0)
            self._leaving.add(peer)
        else:
            self._strike_off(peer)
        return [Say(1, f"{_shown(peer)} deregistered")]

    def _increment(self, peer: bytes) -> Effects:
        self._table.step(self.state_of(peer), "INCREMENT")
        if self._roster.increment(peer):
            return []
        return [Say(5, f"INCREMENT of {_shown(peer)}, which is not registered"), self._call(peer)]

    def _strike_off(self, worker: bytes) -> None:
        self._roster.leave(worker, "left")
        self._leaving.discard(worker)
        self._paths.pop(worker, None)

    def _call(self, peer: bytes) -> Send:
        """It takes itself for registered, so it registered with another: our former life."""
        return Send(peer, encode(Message(wire.EXEC, self._new_id(), (wire.REGISTER,))))

    def _new_id(self) -> bytes:
        self._serial = (self._serial + 1) & 0xFFFFFFFF
        return self._serial.to_bytes(4, "little")

    # Answers

    def _response(self, peer: bytes, message: Message) -> Effects:
        """An answer that ends here: a document's."""
        claim = message.id.decode("ascii", "replace")
        state = self.state_of(peer)
        kept = self._in_hand.get(claim)
        if kept is None or kept.worker != peer or kept.key:
            self._table.step(state, "RESPONSE", "late")
            say = Say(5, f"a late RESPONSE of {_shown(peer)} is dropped")
            return [say, self._call(peer)] if state == rr.UNKNOWN else [say]
        effects: Effects = [outcome_of(claim, message.args)]
        self._settle(peer, claim, "RESPONSE", "in hand")
        return effects

    def _settle(self, worker: bytes, claim: str, event: str, when: str) -> None:
        """A claim is ended. Its slot is freed by INCREMENT, as its worker may need a moment."""
        self._forget(claim)
        self._roster.settle(worker, claim, free_slot=False)
        state = self.state_of(worker)
        last = state == rr.LEAVING and not self._roster.claims(worker)
        if self._table.step(state, event, "last" if last else when) == rr.UNKNOWN:
            self._strike_off(worker)

    def _pass(self, peer: bytes, message: Message) -> Effects:
        """Something that is to go further: from clients to workers, and back where it came from."""
        state = self.state_of(peer)
        hop = message.hops[0]
        onward = Send(hop, encode(message)[1:])
        if state == rr.UNKNOWN:
            if hop not in self._roster:
                raise RemoteProtocolError(f"{message.name} for {_shown(hop)}, which is no worker")
            self._table.step(state, "pass", "to a worker")
            self._give(hop, message.way_home)
            return [onward]
        if message.hops not in self._paths.get(peer, ()):
            raise RemoteProtocolError(f"{message.name} on a way that this worker was not given")
        if message.command == wire.RESPONSE:
            claim = self._asked.get(wire.key_of(message.hops, message.id))
            if claim is not None:
                return self._answered(peer, claim, onward)
        self._table.step(state, "pass", "given")
        return [Say(1, f"{message.name} of {_shown(peer)} is passed to {_shown(hop)}"), onward]

    def _answered(self, peer: bytes, claim: str, onward: Send) -> Effects:
        if self._in_hand[claim].worker != peer:
            # Its request was taken from it, and is in other hands.
            self._table.step(self.state_of(peer), "pass", "late")
            return [Say(5, f"a late RESPONSE of {_shown(peer)} is dropped")]
        self._settle(peer, claim, "pass", "answer")
        said = Say(1, f"the RESPONSE of {_shown(peer)} is passed to {_shown(onward.peer)}")
        return [said, Answered(claim, onward.peer, onward.frames)]

    def _answer(self, peer: bytes, event: str, message: Message) -> Effects:
        self._table.step(self.state_of(peer), event)
        return [_to(message)]

    # Work

    def ready(self, service: str = "", alone: bool = False) -> bool:
        return self._roster.pick(service, alone=alone) is not None

    def spare(self, service: str, wanted: bool) -> None:
        self._roster.spare(service, wanted)

    def deal(self, work: Work, now: float) -> Effects:
        worker = self._roster.pick(work.service, alone=work.alone)
        if worker is None:
            return [SetBack(work.claim, Released("no worker has a free slot"))]
        request = work.request
        if request is None:
            frames = encode(question(work))
            self._assign(worker, _Kept(worker), work, now)
        else:
            try:
                path = decode(request.frames).way_home
            except RemoteProtocolError as error:
                # Somebody else wrote that into the queue.
                failure = Failure(cause="bad-request", message=str(error), permanent=True)
                return [SetBack(work.claim, Failed(failure))]
            if request.answered and request.key in self._asked:
                # Asked again after so long that it was taken for another.
                return [Done(work.claim, ())]
            frames = request.frames
            self._give(worker, path)
            kept = _Kept(worker, request.key) if request.answered else None
            self._assign(worker, kept, work, now)
        if self._probe_at is None:
            self._probe_at = now + self._options.probe_interval
        said = Say(1, f"{work.docid} is dealt to {_shown(worker)}")
        return [said, Send(worker, frames, work.claim)]

    def _assign(self, worker: bytes, kept: _Kept | None, work: Work, now: float) -> None:
        self._table.own_step(rr.REGISTERED, "deal")
        claim = work.claim
        if kept is None:
            # Nobody waits for it, and it is finished: it only takes a slot.
            self._roster.assign(worker, None, now)
            return
        timeout = self._options.job_timeout
        deadline = None if timeout is None else now + timeout
        self._roster.assign(worker, claim, now, deadline=deadline, alone=work.alone)
        self._in_hand[claim] = kept
        if kept.key:
            self._asked[kept.key] = claim

    def _give(self, worker: bytes, path: tuple[bytes, ...]) -> None:
        """From now on it may send there."""
        paths = self._paths.setdefault(worker, OrderedDict())
        paths[path] = None
        paths.move_to_end(path)
        if len(paths) > _MOST_PATHS:
            paths.popitem(last=False)

    def _forget(self, claim: str) -> None:
        kept = self._in_hand.pop(claim, None)
        if kept is not None and kept.key and self._asked.get(kept.key) == claim:
            del self._asked[kept.key]

    def _lose(self, lost: Lost) -> Effects:
        """Its claims are charged, or doubted. It is not struck off: the roster has done that."""
        state = rr.LEAVING if lost.worker in self._leaving else rr.REGISTERED
        self._table.own_step(state, "lost")
        self._leaving.discard(lost.worker)
        self._paths.pop(lost.worker, None)
        for claim in lost.claims:
            self._forget(claim)
        return [Say(1, f"{_shown(lost.worker)} is lost: {lost.why}"), lost]

    # Time

    def leave(self, now: float) -> Effects:
        """The protocol has no word for it."""
        return []

    def tick(self, now: float) -> Effects:
        """Lose who is overdue, and see whether those who are busy can still be reached."""
        effects: Effects = []
        for lost in self._roster.expire(now):
            effects += self._lose(lost)
        if self._probe_at is not None and now >= self._probe_at:
            busy = self._roster.who_is_busy()
            self._probe_at = now + self._options.probe_interval if busy else None
            probe = encode(Message(wire.PING, self._new_id()))
            effects += [Send(worker, probe) for worker in busy]
        return effects

    def next_tick_at(self) -> float | None:
        instants = (self._probe_at, self._roster.next_tick_at())
        return min((one for one in instants if one is not None), default=None)


def _to(message: Message) -> Send:
    """Off to its first hop."""
    return Send(message.hops[0], encode(message)[1:])


def _is_child(name: bytes, known: Collection[bytes]) -> bool:
    parent, dot, number = name.rpartition(b".")
    return bool(dot) and number.isdigit() and parent in known


def _shown(peer: bytes) -> str:
    return peer[:80].decode("ascii", "backslashreplace")
