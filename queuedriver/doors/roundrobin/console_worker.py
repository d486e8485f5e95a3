"""The worker's console: it registers when told to, and brings children along.

Each child is a worker of its own, with a connection and slots of its own; nothing can be said to
one but to leave. All of them, and the terminal, are heard by one loop.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.roundrobin.console_terminal import QUIT, Terminal
from queuedriver.doors.roundrobin.frames import PING, PONG, Message, decode, encode
from queuedriver.doors.roundrobin.settings import WorkerSettings
from queuedriver.doors.roundrobin.worker import REGISTERED, REGISTERING, Worker
from queuedriver.doors.transports.addresses import own_name
from queuedriver.doors.transports.base import Transport
from queuedriver.doors.words import Effects, Send

# How many `bulk` starts.
CHILDREN = 10
# From which level of -d on it is said which messages each has done.
SUMMED_UP = 5
# Seconds that a broker has to answer when workers end.
_LAST_WORD = 1.0


def run(told: WorkerSettings) -> int:
    """Be a worker that registers when it is told to; return the exit code."""
    with closing(Terminal(told.level)) as terminal:
        return WorkerConsole(told, terminal).run()


class Member(Worker):
    """One worker of the console, and its connection."""

    def __init__(
        self, name: str, transport: Transport, slots: int, serial: int, terminal: Terminal
    ) -> None:
        super().__init__(slots, serial=serial, processor=False)
        self.name = name

        def say(words: str) -> None:
            terminal.say(f"{name}: {words}")

        # Without a processor, nothing is left to act upon.
        self.talk = Conversation(self, transport, lambda effect: None, say, terminal.level)
        # Whether nothing more is on its way to it.
        self.ended = False

    @property
    def known(self) -> bool:
        """Tell whether the broker may know it."""
        return self.state in (REGISTERING, REGISTERED)

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        self.ended = self.ended or decode(frames).command == PONG
        return super().hear(peer, frames, now, wall)

    def does(self, what: Callable[[float], Effects]) -> None:
        """Register or deregister."""
        now = time.monotonic()
        self.talk.carry_out(what(now), now)

    def goodbye(self, now: float) -> Effects:
        """Deregister. Once PONG comes, nothing that was dealt before is on its way any more."""
        return [*self.deregister(now), Send(b"", encode(Message(PING, b"LAST")))]

    def sum_up(self) -> str:
        """Return which messages it has done."""
        done = [f"{count} {name}" for name, count in sorted(self.passed.items())]
        return f"{self.name} passed {', '.join(done) or 'no messages'}"


class WorkerConsole:
    """A worker at a terminal, and its children."""

    def __init__(self, told: WorkerSettings, terminal: Terminal) -> None:
        self._told = told
        self._terminal = terminal
        self._name = own_name()
        self._serial = int.from_bytes(os.urandom(3))
        self._parent = self._member("worker", self._name)
        self._children: list[Member] = []

    def run(self) -> int:
        try:
            self._terminal.show(1, "up and running")
            self._terminal.prompt()
            while self._round():
                pass
        except KeyboardInterrupt:
            self._terminal.say("")
        finally:
            self._end([self._parent, *self._children])
        return 0

    def _round(self) -> bool:
        """Hear everybody; return False when told to quit."""
        _hear([self._parent, *self._children], [self._terminal.fd])
        for words in self._terminal.lines():
            if words == [QUIT]:
                return False
            self._obey(words)
        return True

    def _obey(self, words: list[str]) -> None:
        match words:
            case []:
                pass
            case ["register"]:
                self._parent.does(self._parent.register)
            case ["deregister"] if self._parent.known:
                self._parent.does(self._parent.deregister)
            case ["deregister"]:
                self._terminal.say("this worker is not registered")
            case ["bulk"]:
                self._bulk()
            case ["endbulk"]:
                self._end_bulk()
            case [name, *_]:
                self._terminal.refuse(name, "register, deregister, bulk, endbulk")
        self._terminal.prompt()

    def _member(self, name: str, called: str) -> Member:
        spoke = self._told.transport(called)
        # Each counts from another number on.
        self._serial = (self._serial + (1 << 16)) & 0xFFFFFFFF
        return Member(name, spoke, self._told.slots, self._serial, self._terminal)

    def _bulk(self) -> None:
        if not self._parent.known:
            self._terminal.say("this worker is to be registered first: say register")
        elif self._children:
            self._terminal.say(f"{len(self._children)} children are there already; say endbulk")
        else:
            for number in range(1, CHILDREN + 1):
                # By this the broker's table knows whose child it is.
                child = self._member(f"child {number:2d}", f"{self._name}.{number}")
                self._children.append(child)
                child.does(child.register)
            self._terminal.show(1, f"{CHILDREN} children are registering")

    def _end_bulk(self) -> None:
        if not self._children:
            self._terminal.say("there are no children; bulk starts them")
            return
        children, self._children = self._children, []
        self._end(children)
        for child in children:
            self._terminal.show(SUMMED_UP, child.sum_up())
        self._terminal.show(1, f"{len(children)} children have left")

    def _end(self, members: Sequence[Member]) -> None:
        """Deregister who is registered, answer what is on its way to them, close."""
        leaving = [member for member in members if member.known]
        for member in leaving:
            member.does(member.goodbye)
        until = time.monotonic() + _LAST_WORD
        while leaving and time.monotonic() < until:
            _hear(leaving, (), until)
            leaving = [member for member in leaving if not member.ended]
        for member in members:
            member.talk.close()


def _hear(members: Sequence[Member], fds: Sequence[int], until: float | None = None) -> None:
    sleep([member.talk for member in members], fds, until)
    now = time.monotonic()
    for member in members:
        member.talk.turn(now, 0.0)
