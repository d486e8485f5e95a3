"""A worker's side of roundrobin, and that of a server which has no broker. Pure.

Both do the same: a server answers clients as a worker answers them through a broker, which is why
a client cannot tell the two apart. A worker registers besides, and gives its slots back.
"""

import random
from collections.abc import Sequence

from queuedriver.doors.roundrobin import frames as wire
from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import tables as rr
from queuedriver.doors.roundrobin.frames import Message, decode, encode
from queuedriver.doors.roundrobin.tasks import Tasks
from queuedriver.doors.table import Table
from queuedriver.doors.words import Effects, Leave, Say, Send
from queuedriver.errors import LocalProtocolError


class RoundRobinWorker(Tasks):
    """One worker of one broker.

    `serial` begins its ids, `chance` cuts its streams into pieces; without a `processor` it puts
    documents back. With `at_once` it registers as soon as it is connected.
    """

    def __init__(
        self,
        slots: int = rr.SLOTS,
        options: rr.Options | None = None,
        *,
        serial: int = 0,
        chance: random.Random | None = None,
        processor: bool = True,
        at_once: bool = True,
        part: int = streams.PART,
        table: Table = rr.WORKER,
    ) -> None:
        super().__init__(options, serial, chance, processor, part, table)
        self.slots = slots
        self._at_once = at_once
        # The REGISTER that waits for its answer.
        self._asked: bytes | None = None
        self._repeat_at: float | None = None
        self._wait = rr.FIRST_REPEAT

    def start(self, now: float, wall: float) -> Effects:
        return self.register(now) if self._at_once else []

    def rejoined(self, now: float, wall: float) -> Effects:
        """REGISTER, with what is in hand, without waiting until it is due."""
        if self.state != rr.REGISTERED:
            return []
        self.state = self.table.own_step(self.state, "register")
        self._wait = rr.FIRST_REPEAT
        return [self._ask(now, wire.in_hand([task.key for task in self.tasks.values()]))]

    def register(self, now: float) -> Effects:
        """Ask for work, for so many slots; again: for other ones."""
        self.state = self.table.own_step(self.state, "register")
        # It doubles with each REGISTER that is not answered.
        self._wait = rr.FIRST_REPEAT
        return [Say(1, f"registering with {self.slots} slots"), self._ask(now)]

    def deregister(self, now: float) -> Effects:
        """Ask for no more. What is in hand is finished and answered."""
        self.state = self.table.own_step(self.state, "deregister")
        self._repeat_at = self._asked = None
        return [Say(1, "deregistering"), self._goodbye()]

    def leave(self, now: float) -> Effects:
        """Deregister, finish, leave."""
        known = self.state in (rr.REGISTERING, rr.REGISTERED)
        self.state = self.table.own_step(self.state, "leave", "in hand" if self.tasks else "")
        self._repeat_at = self._asked = None
        effects: Effects = [self._goodbye()] if known else []
        if self.state == rr.GONE:
            effects.append(Leave("nothing is in hand"))
        return effects

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        message = decode(frames)
        if message.hops:
            return [Say(1, f"{message.name} for somebody else is dropped")]
        if message.command == wire.PING:
            return [self.answer(message, (), wire.PONG)]
        if message.command == wire.RESPONSE:
            return self._registered(message, now)
        if message.command not in (wire.EXEC, wire.TRACKEXEC):
            return []
        if message.key == wire.REGISTER and not message.senders:
            # The broker does not know us: it was started anew.
            before, self.state = self.state, self.table.step(self.state, "called")
            return [self._ask(now)] if before == rr.REGISTERED else []
        return self.application(message, now)

    def tick(self, now: float, wall: float) -> Effects:
        self.forget_streams(now)
        if self._repeat_at is None or now < self._repeat_at:
            return []
        self.state = self.table.own_step(self.state, "time-out")
        self._wait = min(2 * self._wait, self.options.task_timeout)
        return [self._ask(now)]

    def next_tick_at(self) -> float | None:
        instants = (self._repeat_at, self.next_silence_at())
        return min((one for one in instants if one is not None), default=None)

    def send(self, message: Message) -> Send:
        """All goes to the broker, addresses included."""
        return Send(b"", encode(message))

    def slot_back(self) -> Effects:
        return [self.send(Message(wire.EXEC, self.new_id(), (wire.INCREMENT,)))]

    def _registered(self, message: Message, now: float) -> Effects:
        if message.id != self._asked or message.senders:
            return []
        before, self.state = self.state, self.table.step(self.state, "RESPONSE")
        self._asked = None
        self._wait = rr.FIRST_REPEAT
        self._repeat_at = now + self.options.register_interval
        return [] if before == self.state else [Say(1, "registered")]

    def _ask(self, now: float, *in_hand: bytes) -> Send:
        self._asked = self.new_id()
        args = (wire.REGISTER, b"%d" % self.slots, *in_hand)
        self._repeat_at = now + max(self._wait, self._calm())
        return self.send(Message(wire.TRACKEXEC, self._asked, args))

    def _calm(self) -> float:
        return self.options.register_interval if self.state == rr.REGISTERED else 0.0

    def _goodbye(self) -> Send:
        return self.send(Message(wire.EXEC, b"WORKER", (wire.DEREGISTER,)))


class RoundRobinServer(Tasks):
    """The same without a broker: clients connect to it (`serve`), and nobody counts its slots."""

    def __init__(
        self,
        slots: int = rr.SLOTS,
        options: rr.Options | None = None,
        *,
        serial: int = 0,
        chance: random.Random | None = None,
        processor: bool = True,
        part: int = streams.PART,
        table: Table = rr.WORKER,
    ) -> None:
        super().__init__(options, serial, chance, processor, part, table)

    def start(self, now: float, wall: float) -> Effects:
        return []

    def rejoined(self, now: float, wall: float) -> Effects:
        return []

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        raise LocalProtocolError("a server without a broker hears nothing from it")

    def serve(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """From a client that is connected to us."""
        message = decode(frames, peer)
        if message.hops:
            return [Say(1, f"{message.name} for somebody else is dropped")]
        if message.command == wire.PING:
            return [self.answer(message, (), wire.PONG)]
        if message.command not in (wire.EXEC, wire.TRACKEXEC):
            return []
        return self.application(message, now)

    def leave(self, now: float) -> Effects:
        """Finish, leave."""
        self.state = self.table.own_step(self.state, "leave", "in hand" if self.tasks else "")
        return [Leave("nothing is in hand")] if self.state == rr.GONE else []

    def tick(self, now: float, wall: float) -> Effects:
        self.forget_streams(now)
        return []

    def next_tick_at(self) -> float | None:
        return self.next_silence_at()

    def send(self, message: Message) -> Send:
        """To whoever is next on its way."""
        return Send(message.hops[0], encode(message)[1:])

    def slot_back(self) -> Effects:
        return []
