"""The worker's console: it registers when told to, and brings children along.

Each child is a worker of its own, with a connection and slots of its own; nothing can be said to
one but to leave. All of them, and the terminal, are heard by one loop.
"""

import select
import time
from collections.abc import Callable, Sequence

from queuedriver.doors.roundrobin import tables as roundrobin
from queuedriver.doors.roundrobin.console_terminal import QUIT, Terminal
from queuedriver.doors.roundrobin.frames import PING, PONG, decode, encode
from queuedriver.doors.roundrobin.frames import Message as Wire
from queuedriver.doors.roundrobin.worker import RoundRobinWorker
from queuedriver.doors.transports.base import Message, Transport
from queuedriver.doors.words import Effects, Say, Send
from queuedriver.errors import RemoteProtocolError

# How many `bulk` starts.
CHILDREN = 10
# From which level of -d on it is said which messages each has done.
SUMMED_UP = 5
# Seconds: the longest sleep; how long a broker may take to answer before it is said that it does
# not; and the same when a worker ends.
_LONGEST = 5.0
_PATIENCE = roundrobin.Options().task_timeout
_LAST_WORD = 1.0


class Member:
    """One worker of the console, and its connection."""

    def __init__(
        self, name: str, session: RoundRobinWorker, transport: Transport, say: Callable[[Say], None]
    ) -> None:
        self.name = name
        self.session = session
        self.transport = transport
        # Until when an answer to REGISTER may take.
        self.answer_by: float | None = None
        # Whether nothing more is on its way to it.
        self.ended = False
        self._say = say

    def hear(self, now: float) -> None:
        """Take in what has come, and what time has brought."""
        for arrival in self.transport.arrivals():
            if not isinstance(arrival, Message):
                continue
            try:
                if decode(arrival.frames).command == PONG:
                    self.ended = True
                self.carry_out(self.session.receive(arrival.frames, now, 0.0))
            except RemoteProtocolError as error:
                self._say(Say(0, f"{self.name}: the broker sent what it may not: {error}"))
        if (at := self.session.next_tick_at()) is not None and at <= now:
            self.carry_out(self.session.tick(now, 0.0))
        if (at := self.transport.next_tick_at()) is not None and at <= now:
            self.transport.tick(now)

    def register(self, now: float) -> None:
        self.answer_by = now + _PATIENCE
        self.carry_out(self.session.register(now))

    def goodbye(self, now: float) -> None:
        """Deregister. Once PONG comes, nothing that was dealt before is on its way any more."""
        self.carry_out(self.session.deregister(now))
        last = Send(b"", encode(Wire(PING, b"LAST")))
        self.ended = not self.transport.send(last.peer, last.frames)

    @property
    def known(self) -> bool:
        """Whether the broker may know it."""
        return self.session.state in (roundrobin.REGISTERING, roundrobin.REGISTERED)

    def carry_out(self, effects: Effects) -> None:
        """A worker without a processor only sends."""
        for effect in effects:
            if isinstance(effect, Send):
                self.transport.send(effect.peer, effect.frames)
            elif isinstance(effect, Say):
                self._say(Say(effect.level, f"{self.name}: {effect.words}"))

    def next_tick_at(self) -> float | None:
        instants = (self.session.next_tick_at(), self.transport.next_tick_at())
        return min((one for one in instants if one is not None), default=None)

    def sum_up(self) -> str:
        """Which messages it has done."""
        done = [f"{count} {name}" for name, count in sorted(self.session.passed.items())]
        return f"{self.name} passed {', '.join(done) or 'no messages'}"


class WorkerConsole:
    """A worker at a terminal, and its children."""

    def __init__(
        self,
        terminal: Terminal,
        connect: Callable[[bytes], Transport],
        identity: bytes,
        slots: int,
        level: int,
        serial: int,
    ) -> None:
        self._terminal = terminal
        self._connect = connect
        self._identity = identity
        self._slots = slots
        self._level = level
        self._serial = serial
        self._parent = self._member("worker", identity)
        self._children: list[Member] = []

    def run(self) -> int:
        try:
            self._show(Say(1, "up and running"))
            self._terminal.prompt()
            while self._round():
                pass
        except KeyboardInterrupt:
            self._terminal.say("")
        finally:
            self._end(self._members())
        return 0

    def _round(self) -> bool:
        """Hear everybody; False: it was told to quit."""
        self._sleep(self._members(), self._terminal.fd)
        now = time.monotonic()
        for member in self._members():
            member.hear(now)
            self._miss(member, now)
        for words in self._terminal.lines():
            if words == [QUIT]:
                return False
            self._obey(words, now)
            self._terminal.prompt()
        return True

    def _miss(self, member: Member, now: float) -> None:
        """Say once of an answer that does not come. The session goes on asking."""
        if member.session.state != roundrobin.REGISTERING:
            member.answer_by = None
        elif member.answer_by is not None and now >= member.answer_by:
            member.answer_by = None
            self._show(Say(0, f"{member.name}: nobody answers yet; is a broker running?"))

    def _members(self) -> list[Member]:
        return [self._parent, *self._children]

    def _member(self, name: str, identity: bytes) -> Member:
        self._serial += 1 << 16
        session = RoundRobinWorker(
            self._slots, serial=self._serial & 0xFFFFFFFF, processor=False, at_once=False
        )
        return Member(name, session, self._connect(identity), self._show)

    def _obey(self, words: list[str], now: float) -> None:
        match words:
            case []:
                pass
            case ["register"]:
                self._parent.register(now)
            case ["deregister"]:
                if self._parent.known:
                    self._parent.carry_out(self._parent.session.deregister(now))
                else:
                    self._terminal.say("this worker is not registered")
            case ["bulk"]:
                self._bulk(now)
            case ["endbulk"]:
                self._end_bulk(now)
            case _:
                known = f"register, deregister, bulk, endbulk, {QUIT}"
                self._terminal.say(f"no command {words[0]!r}; there are: {known}")

    def _bulk(self, now: float) -> None:
        if not self._parent.known:
            self._terminal.say("this worker is to be registered first: say register")
            return
        if self._children:
            self._terminal.say(f"{len(self._children)} children are there already; say endbulk")
            return
        for number in range(1, CHILDREN + 1):
            # By this the broker's table knows whose child it is.
            child = self._member(f"child {number:2d}", self._identity + b".%d" % number)
            self._children.append(child)
            child.register(now)
        self._show(Say(1, f"{CHILDREN} children are registering"))

    def _end_bulk(self, now: float) -> None:
        if not self._children:
            self._terminal.say("there are no children; bulk starts them")
            return
        children, self._children = self._children, []
        self._end(children)
        for child in children:
            self._show(Say(SUMMED_UP, child.sum_up()))
        self._show(Say(1, f"{len(children)} children have left"))

    def _end(self, members: Sequence[Member]) -> None:
        """Deregister who is registered, answer what is on its way to them, close."""
        now = time.monotonic()
        leaving = [member for member in members if member.known]
        for member in leaving:
            member.goodbye(now)
        until = now + _LAST_WORD
        while now < until and (leaving := [one for one in leaving if not one.ended]):
            self._sleep(leaving, None, until)
            now = time.monotonic()
            for member in leaving:
                member.hear(now)
        for member in members:
            member.transport.close()

    def _show(self, said: Say) -> None:
        if said.level <= self._level:
            self._terminal.say(said.words)

    def _sleep(
        self, members: Sequence[Member], terminal: int | None, until: float | None = None
    ) -> None:
        if any(member.transport.pending() for member in members):
            return
        poll = select.poll()
        fds = [fd for member in members for fd in member.transport.fds()]
        for fd in (*fds, *(() if terminal is None else (terminal,))):
            poll.register(fd, select.POLLIN)
        now = time.monotonic()
        instants = [member.next_tick_at() for member in members]
        instants += [until, *(member.answer_by for member in members)]
        end = min((at for at in instants if at is not None), default=now + _LONGEST)
        poll.poll(min(max(0.0, end - now), _LONGEST) * 1000)
