"""A worker's side of roundrobin, and that of a server which has no broker. Pure.

Both do the same: a server answers clients as a worker answers them through a broker, which is why
a client cannot tell the two apart. A worker registers besides, and gives its slots back. PING,
STREAM and what belongs to it are answered at once; DOCUMENT is for the processor.
"""

import random
from collections import Counter
from collections.abc import Sequence

from queuedriver.claims.outcomes import Failed, Postponed, Setback
from queuedriver.doors import words
from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin.wire import Message, decode, encode
from queuedriver.doors.table import SAME, Row, Table, ours
from queuedriver.doors.words import Effects, Leave, Process, Say, Send
from queuedriver.format.records import Failure

NEW, REGISTERING, REGISTERED, LEAVING, GONE = "new", "registering", "registered", "leaving", "gone"
_KNOWN = f"{REGISTERING} | {REGISTERED}"
_ANYWHERE = f"{NEW} | {_KNOWN}"

WORKER = Table(
    "How a worker sees itself",
    [
        Row(_ANYWHERE, "register", "", "REGISTER, with so many slots", REGISTERING),
        Row(_KNOWN, "RESPONSE", "", "", REGISTERED),
        ours(_KNOWN, "time-out", "", "REGISTER again", SAME),
        ours(_KNOWN, "joined again", "", "REGISTER again; to ours, with what is in hand", SAME),
        ours(REGISTERED, "called", "", "REGISTER again", REGISTERING),
        ours(f"{NEW} | {REGISTERING} | {LEAVING}", "called", "", "ignore", SAME),
        Row(_ANYWHERE, "task", "", "do it", SAME),
        ours(LEAVING, "task", "", "do it: it was on its way", SAME),
        Row(_ANYWHERE, "task ended", "", "RESPONSE, INCREMENT", SAME),
        ours(LEAVING, "task ended", "", "RESPONSE, INCREMENT", SAME),
        ours(LEAVING, "task ended", "last", "RESPONSE, INCREMENT", GONE),
        Row(_KNOWN, "deregister", "", "DEREGISTER", NEW),
        Row(NEW, "leave", "", "", GONE),
        Row(_KNOWN, "leave", "", "DEREGISTER", GONE),
        ours(NEW, "leave", "in hand", "finish what is in hand", LEAVING),
        ours(_KNOWN, "leave", "in hand", "DEREGISTER; finish", LEAVING),
        ours(LEAVING, "leave", "in hand", "ignore", LEAVING),
    ],
)

# How many tasks a worker takes at a time, unless it is told otherwise.
SLOTS = 10
# A worker says so often, in seconds, that it is there, for a broker that has been started anew.
REGISTER_INTERVAL = 15.0


class Server(words.WorkerSession):
    """A server without a broker: clients connect to it, and nobody counts its slots.

    `serial` begins its ids, `chance` cuts its streams into pieces; without a `processor` it puts
    documents back.
    """

    def __init__(
        self, *, serial: int = 0, chance: random.Random | None = None, processor: bool = True
    ) -> None:
        self.state = NEW
        # How many messages were done, by their names.
        self.passed: Counter[str] = Counter()
        # The DOCUMENTs in hand, by claim.
        self.tasks: dict[str, Message] = {}
        self._serial = serial
        self._processor = processor
        self._streams = streams.Streams(chance or random.Random(serial))

    def start(self, now: float, wall: float) -> Effects:
        return []

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        message = decode(frames, peer)
        if message.hops:
            return [Say(1, f"{message.name} for somebody else is dropped")]
        match message.command:
            case wire.PING:
                return [self._answer(message, (), wire.PONG)]
            case wire.EXEC | wire.TRACKEXEC:
                return self._asked(message, now)
            case wire.RESPONSE:
                return self._answered(message, now)
        return []

    def finished(self, claim: str, results: tuple[words.Result, ...], now: float) -> Effects:
        return self._done(self.tasks.pop(claim), wire.answer_of(results))

    def failed(self, claim: str, how: Setback, now: float) -> Effects:
        return self._done(self.tasks.pop(claim), wire.refusal_of(how))

    def leave(self, now: float) -> Effects:
        """Finish, leave."""
        self.state = WORKER.own_step(self.state, "leave", "in hand" if self.tasks else "")
        return [Leave("nothing is in hand")] if self.state == GONE else []

    # What is asked, and what is answered

    def _asked(self, message: Message, now: float) -> Effects:
        if message.key in (wire.MORE, wire.ONGOING):
            # These take no slot.
            answer = self._streams.hear(message.args, now)
            return [self._answer(message, (answer,))] if message.tracked else []
        self.state = WORKER.step(self.state, "task")
        match message.key:
            case wire.PING:
                return self._done(message, ())
            case wire.STREAM:
                return self._stream(message, now)
            case wire.DOCUMENT:
                return self._document(message)
        shown = message.key[:20].decode("ascii", "backslashreplace")
        return self._refuse(message, f"this worker does not know the command {shown!r}")

    def _stream(self, message: Message, now: float) -> Effects:
        size = wire.count_of(message.args[2]) if len(message.args) > 2 else None
        if size != streams.SIZE:
            return self._refuse(message, f"a STREAM of {streams.SIZE} bytes is all there is")
        handle = self._new_id().ljust(streams.HANDLE, b"\0")
        return self._done(message, (self._streams.begin(handle, message.args[1], now),))

    def _document(self, message: Message) -> Effects:
        claim = self._new_id().hex()
        work = wire.document_of(message, claim)
        if work is None:
            return self._refuse(message, "DOCUMENT takes docid, attempt and payload")
        if not self._processor:
            text = "this worker has no processor"
            return self._done(message, wire.refusal_of(Postponed(60.0, text)))
        self.tasks[claim] = message
        return [Process(work)]

    def _answered(self, message: Message, now: float) -> Effects:
        """Take in the answer to something that was asked here."""
        return []

    def _refuse(self, message: Message, text: str) -> Effects:
        failure = Failure(cause="bad-request", message=text, permanent=True)
        return [Say(1, text), *self._done(message, wire.refusal_of(Failed(failure)))]

    def _done(self, message: Message, args: tuple[bytes, ...]) -> Effects:
        """Answer what was tracked, and give the slot back, whatever came of it."""
        self.passed[message.name] += 1
        last = self.state == LEAVING and not self.tasks
        self.state = WORKER.own_step(self.state, "task ended", "last" if last else "")
        effects: Effects = [Say(1, f"{message.name} is done")]
        if message.tracked:
            effects.append(self._answer(message, args))
        effects += self._slot_back()
        if last:
            effects.append(Leave("nothing is in hand"))
        return effects

    def _answer(
        self, message: Message, args: tuple[bytes, ...], command: bytes = wire.RESPONSE
    ) -> Send:
        """Answer back the way a message came."""
        return self._send(Message(command, message.id, args, message.way_home))

    def _send(self, message: Message) -> Send:
        """Send a message to whoever is next on its way."""
        return Send(message.hops[0], encode(message)[1:])

    def _slot_back(self) -> Effects:
        return []

    def _new_id(self) -> bytes:
        self._serial = (self._serial + 1) & 0xFFFFFFFF
        return self._serial.to_bytes(4, "little")


class Worker(Server):
    """One worker of one broker, which deals it so many tasks at a time."""

    def __init__(
        self,
        slots: int = SLOTS,
        *,
        serial: int = 0,
        chance: random.Random | None = None,
        processor: bool = True,
    ) -> None:
        super().__init__(serial=serial, chance=chance, processor=processor)
        self.slots = slots
        # The id of the REGISTER that waits for its answer, and when the next is due.
        self._registering: bytes | None = None
        self._register_at: float | None = None
        # Whether its broker has dealt it a document: then it is one of ours.
        self._ours = False

    def start(self, now: float, wall: float) -> Effects:
        return self.register(now)

    def joined(self, peer: bytes, now: float) -> Effects:
        """REGISTER at once, with what is in hand: what was on its way may be lost."""
        if self.state not in (REGISTERING, REGISTERED):
            return []
        self.state = WORKER.own_step(self.state, "joined again")
        return [self._register(now, rejoins=self._ours)]

    def register(self, now: float) -> Effects:
        """Ask for work, for so many slots; again: for other ones."""
        self.state = WORKER.own_step(self.state, "register")
        return [Say(1, f"registering with {self.slots} slots"), self._register(now)]

    def deregister(self, now: float) -> Effects:
        """Ask for no more. What is in hand is finished and answered."""
        self.state = WORKER.own_step(self.state, "deregister")
        return [Say(1, "deregistering"), self._goodbye()]

    def leave(self, now: float) -> Effects:
        """Deregister, finish, leave."""
        known = self.state in (REGISTERING, REGISTERED)
        return [*([self._goodbye()] if known else ()), *super().leave(now)]

    def tick(self, now: float, wall: float) -> Effects:
        if self._register_at is None or now < self._register_at:
            return []
        self.state = WORKER.own_step(self.state, "time-out")
        return [self._register(now)]

    def next_tick_at(self) -> float | None:
        return self._register_at

    def _asked(self, message: Message, now: float) -> Effects:
        if message.senders:
            return super()._asked(message, now)
        if message.key == wire.REGISTER:
            # The broker does not know us: it was started anew.
            before, self.state = self.state, WORKER.step(self.state, "called")
            return [self._register(now)] if before == REGISTERED else []
        self._ours = self._ours or message.key == wire.DOCUMENT
        return super()._asked(message, now)

    def _answered(self, message: Message, now: float) -> Effects:
        if message.id != self._registering or message.senders:
            return []
        before, self.state = self.state, WORKER.step(self.state, "RESPONSE")
        self._registering = None
        self._register_at = now + REGISTER_INTERVAL
        return [] if before == self.state else [Say(1, "registered")]

    def _register(self, now: float, rejoins: bool = False) -> Send:
        self._registering = self._new_id()
        self._register_at = now + REGISTER_INTERVAL
        args: tuple[bytes, ...] = (wire.REGISTER, b"%d" % self.slots)
        if rejoins:
            # Only then: the original's server would take what is added for an address, and end.
            keys = [wire.key_of(one.way_home, one.id) for one in self.tasks.values()]
            args = (*args, wire.in_hand(keys))
        return self._send(Message(wire.TRACKEXEC, self._registering, args))

    def _goodbye(self) -> Send:
        self._register_at = self._registering = None
        return self._send(Message(wire.EXEC, b"WORKER", (wire.DEREGISTER,)))

    def _send(self, message: Message) -> Send:
        """Send all to the broker, addresses included."""
        return Send(b"", encode(message))

    def _slot_back(self) -> Effects:
        return [self._send(Message(wire.EXEC, self._new_id(), (wire.INCREMENT,)))]
