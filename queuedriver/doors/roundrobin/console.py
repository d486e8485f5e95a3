"""A terminal, and a broker, a worker or a client of roundrobin that is told there what to do.

Nothing here blocks on reading: whoever polls a terminal among others goes on hearing frames while
somebody types. The end of the input is `quit`.

    broker    `workers` shows who is registered; its own loop runs, which hears of the terminal, too
    worker    it registers when told to, and brings children along: each is a worker of its own,
              with a connection and slots of its own; nothing can be said to one but to leave
    client    `ping`, `pingt` and `data` ask once, `bulkping N` and `bulkdata N` N times, up to ten
              at once, and count what came of it; while a command is under way the next ones wait
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

import msgspec

from queuedriver.doors.broker import Broker
from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.roundrobin import broker, wire
from queuedriver.doors.roundrobin.broker import RoundRobinBroker
from queuedriver.doors.roundrobin.client import Client
from queuedriver.doors.roundrobin.settings import BrokerSettings, ClientSettings, WorkerSettings
from queuedriver.doors.roundrobin.worker import REGISTERED, REGISTERING, Worker
from queuedriver.doors.settings import keys_of
from queuedriver.doors.transports.addresses import own_name
from queuedriver.doors.transports.base import Arrival, Transport
from queuedriver.doors.transports.zmq import Hub
from queuedriver.doors.words import Effect, Effects, Ended, Send
from queuedriver.doors.workspace import PrivateDirectory
from queuedriver.operating.queue import Queue

PROMPT = "> "
QUIT = "quit"
# Bytes of a line: more is no command.
_LONGEST = 64 * 1024
# How many children `bulk` starts.
CHILDREN = 10
# From which level of -d on it is said which messages each has done.
SUMMED_UP = 5
# Somebody waits at the terminal: what workers have is given back after so many seconds.
_GRACE = 5.0
# Seconds that a broker has to answer when workers end.
_LAST_WORD = 1.0
# Requests of one bulk that are under way at once.
PARALLEL = 10
# Progress marks of one bulk, and its most requests.
_MARKS = 10
_MOST = 1_000_000

Ask = Callable[[float], tuple[bytes, Effects]]


class Terminal:
    """Lines from one descriptor, words to another."""

    def __init__(self, level: int = 0, reads: int = 0, writes: int = 1) -> None:
        # How much is shown that nobody asked for: 0 to 9.
        self.level = level
        # Our own: what is done with it at the end of the input concerns nobody else.
        self.fd = os.dup(reads)
        self._writes = writes
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)
        self._rest = b""
        self._prompted = False

    def close(self) -> None:
        """Leave the descriptors as they were."""
        os.close(self.fd)

    def lines(self) -> Iterator[list[str]]:
        """Yield the words of each line that has come."""
        while self._poll.poll(0):
            data = os.read(self.fd, 4096)
            if not data:
                self._silence()
                yield [QUIT]
                return
            self._rest += data
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                self._prompted = False
                yield line.decode("utf-8", "replace").split()
            if len(self._rest) > _LONGEST:
                self._rest = b""

    def prompt(self) -> None:
        """Await the next command."""
        if not self._prompted:
            self._prompted = True
            self._write(PROMPT)

    def say(self, words: str) -> None:
        """Write a line of words; the prompt comes after it again."""
        if self._prompted:
            self._write(f"\r{words}\n{PROMPT}")
        else:
            self._write(f"{words}\n")

    def show(self, level: int, words: str) -> None:
        """Say what is worth saying from a level of -d on."""
        if level <= self.level:
            self.say(words)

    def refuse(self, name: str, known: str) -> None:
        """Say which commands there are."""
        self.say(f"no command {name!r}; there are: {known}, {QUIT}")

    def _silence(self) -> None:
        """Let nothing come from now on, and no poll wake for it: the end would wake each."""
        silent = os.eventfd(0)
        os.dup2(silent, self.fd)
        os.close(silent)

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self._writes, data) :]


class Console:
    """Sessions that are told by hand what to do, and their terminal: one loop hears all."""

    def __init__(self, level: int) -> None:
        self.terminal = Terminal(level)
        # What was typed while a command was under way.
        self._lines: deque[list[str]] = deque()

    def talks(self) -> list[Conversation]:
        """Return the conversations of its sessions."""
        raise NotImplementedError

    def obey(self, words: list[str]) -> None:
        """Do what was typed."""
        raise NotImplementedError

    def go_on(self) -> bool:
        """Go on with the command that is under way; return whether one is."""
        return False

    def close(self) -> None:
        """End all sessions."""
        for talk in self.talks():
            talk.close()

    def run(self) -> int:
        """Do what is typed until that is `quit`; return the exit code."""
        self.terminal.show(1, "up and running")
        self.terminal.prompt()
        try:
            while True:
                _hear(self.talks(), [self.terminal.fd])
                self._lines.extend(self.terminal.lines())
                while not self.go_on() and self._lines:
                    words = self._lines.popleft()
                    if words == [QUIT]:
                        return 0
                    if words:
                        self.obey(words)
                    if not self.go_on():
                        self.terminal.prompt()
        except KeyboardInterrupt:
            self.terminal.say("")
            return 0
        finally:
            self.close()
            self.terminal.close()


def _hear(talks: Sequence[Conversation], fds: Sequence[int], until: float | None = None) -> None:
    sleep(talks, fds, until)
    now = time.monotonic()
    for talk in talks:
        talk.turn(now, 0.0)


# A broker


def run_broker(told: BrokerSettings) -> int:
    """Be a broker; without an input, one that deals from a queue of its own, which goes with it.
    Return the exit code."""
    with ExitStack() as at_end:
        terminal = at_end.enter_context(closing(Terminal(told.level)))
        options = msgspec.structs.replace(told.options, grace=min(told.options.grace, _GRACE))
        facts = msgspec.structs.asdict(told)
        facts |= {"input": told.input or _private_queue(at_end), "options": options}
        exchange = RoundRobinBroker(told.job_timeout)
        attended = Attended(**facts, terminal=terminal, exchange=exchange)
        return Broker(attended, terminal.say).run().exit_code


def _private_queue(at_end: ExitStack) -> str:
    private = at_end.enter_context(closing(PrivateDirectory("broker")))
    path = os.path.join(private.path, "requests")
    Queue.open(path, create=True).close()
    return path


class Attended(BrokerSettings, frozen=True, kw_only=True):
    """What a broker with a terminal is told."""

    terminal: Terminal
    exchange: RoundRobinBroker

    def session(self, id: str) -> RoundRobinBroker:
        return self.exchange

    def transport(self) -> "AttendedHub":
        hub = AttendedHub(self)
        self.terminal.show(1, f"up and running at {' '.join(hub.endpoints)}")
        self.terminal.prompt()
        return hub


def attend(terminal: Terminal, session: RoundRobinBroker) -> None:
    """Obey what was typed."""
    for words in terminal.lines():
        match words:
            case []:
                pass
            case ["workers"]:
                for line in table(session.registered()):
                    terminal.say(line)
            case ["quit"]:
                # As from anybody else: the loop knows how to leave.
                os.kill(os.getpid(), signal.SIGTERM)
                return
            case _:
                terminal.refuse(words[0], "workers")
        terminal.prompt()


def table(workers: Sequence[broker.Worker]) -> list[str]:
    """Return the table of workers, a line each; the children of another one in it are marked."""
    names = {worker.name for worker in workers}
    lines = []
    for place, one in enumerate(workers):
        address = one.name.decode("utf-8", "backslashreplace")
        parent, _, number = one.name.rpartition(b".")
        mark = " (child)" if parent in names and number.isdigit() else ""
        facts = f"address = {address} free_slots = {max(0, one.free)}"
        lines.append(f"worker_table[{place:2d}] = {{ {facts} }}{mark}")
    return lines or ["no workers are registered"]


class AttendedHub(Hub):
    """A hub whose loop hears of a terminal besides."""

    def __init__(self, told: Attended) -> None:
        super().__init__(told.listen, told.identity, keys_of(told.curve), told.max_message)
        self._told = told

    def fds(self) -> list[int]:
        return [*super().fds(), self._told.terminal.fd]

    def arrivals(self) -> Iterator[Arrival]:
        attend(self._told.terminal, self._told.exchange)
        return super().arrivals()


# A worker


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
        self.ended = self.ended or wire.decode(frames).command == wire.PONG
        return super().hear(peer, frames, now, wall)

    def does(self, what: Callable[[float], Effects]) -> None:
        """Register or deregister."""
        now = time.monotonic()
        self.talk.carry_out(what(now), now)

    def goodbye(self, now: float) -> Effects:
        """Deregister. Once PONG comes, nothing that was dealt before is on its way any more."""
        return [*self.deregister(now), Send(b"", wire.encode(wire.Message(wire.PING, b"LAST")))]

    def sum_up(self) -> str:
        """Return which messages it has done."""
        done = [f"{count} {name}" for name, count in sorted(self.passed.items())]
        return f"{self.name} passed {', '.join(done) or 'no messages'}"


class WorkerConsole(Console):
    """A worker at a terminal, and its children."""

    def __init__(self, told: WorkerSettings) -> None:
        super().__init__(told.level)
        self._told = told
        self._name = own_name()
        self._serial = int.from_bytes(os.urandom(3))
        self._parent = self._member("worker", self._name)
        self._children: list[Member] = []

    def talks(self) -> list[Conversation]:
        return [member.talk for member in (self._parent, *self._children)]

    def obey(self, words: list[str]) -> None:
        match words:
            case ["register"]:
                self._parent.does(self._parent.register)
            case ["deregister"] if self._parent.known:
                self._parent.does(self._parent.deregister)
            case ["deregister"]:
                self.terminal.say("this worker is not registered")
            case ["bulk"]:
                self._bulk()
            case ["endbulk"]:
                self._end_bulk()
            case [name, *_]:
                self.terminal.refuse(name, "register, deregister, bulk, endbulk")

    def close(self) -> None:
        self._end([self._parent, *self._children])

    def _member(self, name: str, called: str) -> Member:
        spoke = self._told.transport(called)
        # Each counts from another number on.
        self._serial = (self._serial + (1 << 16)) & 0xFFFFFFFF
        return Member(name, spoke, self._told.slots, self._serial, self.terminal)

    def _bulk(self) -> None:
        if not self._parent.known:
            self.terminal.say("this worker is to be registered first: say register")
        elif self._children:
            self.terminal.say(f"{len(self._children)} children are there already; say endbulk")
        else:
            for number in range(1, CHILDREN + 1):
                # By this the broker's table knows whose child it is.
                child = self._member(f"child {number:2d}", f"{self._name}.{number}")
                self._children.append(child)
                child.does(child.register)
            self.terminal.show(1, f"{CHILDREN} children are registering")

    def _end_bulk(self) -> None:
        if not self._children:
            self.terminal.say("there are no children; bulk starts them")
            return
        children, self._children = self._children, []
        self._end(children)
        for child in children:
            self.terminal.show(SUMMED_UP, child.sum_up())
        self.terminal.show(1, f"{len(children)} children have left")

    def _end(self, members: Sequence[Member]) -> None:
        """Deregister who is registered, answer what is on its way to them, close."""
        leaving = [member for member in members if member.known]
        for member in leaving:
            member.does(member.goodbye)
        until = time.monotonic() + _LAST_WORD
        while leaving and time.monotonic() < until:
            _hear([member.talk for member in leaving], (), until)
            leaving = [member for member in leaving if not member.ended]
        for member in members:
            member.talk.close()


# A client


class Bulk(msgspec.Struct):
    """One command: so many requests, and what came of them."""

    kind: str
    ask: Ask
    total: int
    single: bool
    asked: int = 0
    ended: int = 0
    good: int = 0

    @property
    def over(self) -> bool:
        return self.ended == self.total

    @property
    def more(self) -> bool:
        """Tell whether one more may be asked."""
        return self.asked < self.total and self.asked - self.ended < PARALLEL

    def at_a_mark(self) -> bool:
        """Tell whether it is time to say how far it is."""
        return self.ended % max(1, self.total // _MARKS) == 0 or self.over

    def results(self) -> list[str]:
        """Return the table of results."""
        return [
            "type\t# total\t# success",
            "----\t-------\t---------",
            f"{self.kind}\t{self.total:7d}\t{self.good:9d}",
        ]


class ClientConsole(Console):
    """A client at a terminal."""

    def __init__(self, told: ClientSettings) -> None:
        super().__init__(told.level)
        client = Client(serial=int.from_bytes(os.urandom(3)))
        spoke, say = told.transport(own_name()), self.terminal.say
        self._talk = Conversation(client, spoke, self._count, say, told.level)
        self._asks: dict[str, tuple[str, Ask]] = {
            "ping": ("PING", lambda now: client.ping(now, tracked=False)),
            "pingt": ("PING", client.ping),
            "data": ("STREAM", client.stream),
            "bulkping": ("PING", client.ping),
            "bulkdata": ("STREAM", client.stream),
        }
        self._bulk: Bulk | None = None

    def talks(self) -> list[Conversation]:
        return [self._talk]

    def obey(self, words: list[str]) -> None:
        match words:
            case ["ping" | "pingt" | "data" as name]:
                self._bulk = Bulk(*self._asks[name], 1, single=True)
            case ["bulkping" | "bulkdata" as name, number] if _counts(number):
                self._bulk = Bulk(*self._asks[name], int(number), single=False)
                said = f"{number} times {self._bulk.kind}, up to {PARALLEL} at once"
                self.terminal.show(1, said)
            case ["bulkping" | "bulkdata" as name, *_]:
                self.terminal.say(f"{name} takes a number, as in {name} 100")
            case [name, *_]:
                self.terminal.refuse(name, "ping, pingt, data, bulkping N, bulkdata N")

    def go_on(self) -> bool:
        """Ask what may be asked; sum up when all is over."""
        bulk = self._bulk
        if bulk is None:
            return False
        now = time.monotonic()
        while bulk.more:
            bulk.asked += 1
            self._talk.carry_out(bulk.ask(now)[1], now)
        if not bulk.over:
            return True
        self._bulk = None
        if not bulk.single:
            for line in bulk.results():
                self.terminal.say(line)
        elif bulk.good:
            self.terminal.show(1, f"{bulk.kind}: done")
        self.terminal.prompt()
        return False

    def _count(self, effect: Effect) -> None:
        bulk = self._bulk
        if bulk is None or not isinstance(effect, Ended):
            return
        bulk.ended += 1
        if effect.why:
            self.terminal.show(0, f"{bulk.kind} {effect.id.hex()} failed: {effect.why}")
        else:
            bulk.good += 1
        if not bulk.single and bulk.at_a_mark():
            self.terminal.show(1, f"{bulk.kind} {bulk.ended} of {bulk.total} completed")


def _counts(number: str) -> bool:
    return number.isascii() and number.isdigit() and 0 < int(number[:9]) <= _MOST
