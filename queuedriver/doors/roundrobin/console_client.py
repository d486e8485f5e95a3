"""The client's console: `ping`, `pingt` and `data` ask once, `bulkping N` and `bulkdata N` N times,
up to ten at once, and count what came of it.

While a command is under way the next ones wait.
"""

import select
import time
from collections import deque
from collections.abc import Callable

from queuedriver.doors.roundrobin import tables as roundrobin
from queuedriver.doors.roundrobin.client import Effects, Ended, RoundRobinClient
from queuedriver.doors.roundrobin.console_terminal import QUIT, Terminal
from queuedriver.doors.transports.base import Message, Transport
from queuedriver.doors.words import Send
from queuedriver.errors import RemoteProtocolError

# Requests of one bulk that are under way at once.
PARALLEL = 10
# Progress marks of one bulk.
_MARKS = 10
_MOST = 1_000_000
# Longest sleep in seconds; and how soon what could not be sent is tried again, and for how long.
_LONGEST = 5.0
_AGAIN = 0.02
_PATIENCE = roundrobin.Options().task_timeout

Ask = Callable[[float], Effects]


class Bulk:
    """One command: so many requests, and what came of them."""

    def __init__(self, kind: str, ask: Ask, total: int, single: bool) -> None:
        self.kind = kind
        self.ask = ask
        self.total = total
        self.single = single
        self.asked = 0
        self.ended = 0
        self.good = 0

    @property
    def over(self) -> bool:
        return self.ended == self.total

    @property
    def more(self) -> bool:
        """Whether one more may be asked."""
        return self.asked < self.total and self.asked - self.ended < PARALLEL

    def at_a_mark(self) -> bool:
        """Whether it is time to say how far it is."""
        return self.ended % max(1, self.total // _MARKS) == 0 or self.over

    def results(self) -> list[str]:
        """The table of results."""
        return [
            "type\t# total\t# success",
            "----\t-------\t---------",
            f"{self.kind}\t{self.total:7d}\t{self.good:9d}",
        ]


class ClientConsole:
    """A client at a terminal."""

    def __init__(
        self, terminal: Terminal, transport: Transport, endpoint: str, level: int, serial: int
    ) -> None:
        self._terminal = terminal
        self._transport = transport
        self._endpoint = endpoint
        self._level = level
        self._client = RoundRobinClient(serial=serial)
        self._bulk: Bulk | None = None
        self._lines: deque[list[str]] = deque()
        # What could not be sent yet, and since when: at first the connection takes a moment.
        self._unsent: deque[tuple[float, Send]] = deque()
        self._quits = False
        self._poll = select.poll()
        for fd in (terminal.fd, *transport.fds()):
            self._poll.register(fd, select.POLLIN)

    def run(self) -> int:
        self._say(1, "up and running")
        self._terminal.prompt()
        try:
            while not (self._quits and self._bulk is None):
                self._sleep()
                now = time.monotonic()
                self._hear(now)
                self._lines.extend(self._terminal.lines())
                while self._lines and self._bulk is None and not self._quits:
                    self._obey(self._lines.popleft())
                    self._go_on(now)
        except KeyboardInterrupt:
            return 0
        return 0

    def _obey(self, words: list[str]) -> None:
        match words:
            case []:
                pass
            case ["ping"]:
                self._begin("PING", lambda now: self._client.ping(now, tracked=False))
            case ["pingt"]:
                self._begin("PING", self._client.ping)
            case ["data"]:
                self._begin("STREAM", self._client.stream)
            case ["bulkping", number] if self._counts(number):
                self._begin("PING", self._client.ping, int(number))
            case ["bulkdata", number] if self._counts(number):
                self._begin("STREAM", self._client.stream, int(number))
            case ["quit"]:
                self._quits = True
                return
            case ["bulkping" | "bulkdata", *_]:
                self._terminal.say(f"{words[0]} takes a number, as in {words[0]} 100")
            case _:
                known = f"ping, pingt, data, bulkping N, bulkdata N, {QUIT}"
                self._terminal.say(f"no command {words[0]!r}; there are: {known}")
        if self._bulk is None:
            self._terminal.prompt()

    def _counts(self, number: str) -> bool:
        return number.isascii() and number.isdigit() and 0 < int(number[:9]) <= _MOST

    def _begin(self, kind: str, ask: Ask, total: int = 0) -> None:
        self._bulk = Bulk(kind, ask, total or 1, single=not total)
        if total:
            self._say(1, f"{total} times {kind}, up to {PARALLEL} at once")

    def _go_on(self, now: float) -> None:
        """Ask what may be asked; sum up when all is over."""
        bulk = self._bulk
        while bulk is not None and bulk.more and not self._unsent:
            bulk.asked += 1
            self._carry_out(bulk.ask(now), now)
        if bulk is None or not bulk.over or self._unsent:
            return
        self._bulk = None
        if not bulk.single:
            for line in bulk.results():
                self._terminal.say(line)
        elif bulk.good:
            self._say(1, f"{bulk.kind}: done")
        self._terminal.prompt()

    def _hear(self, now: float) -> None:
        for arrival in self._transport.arrivals():
            if not isinstance(arrival, Message):
                continue
            try:
                self._carry_out(self._client.receive(arrival.frames, now, 0.0), now)
            except RemoteProtocolError as error:
                self._say(0, f"{self._endpoint} sent what it may not: {error}")
        if (at := self._client.next_tick_at()) is not None and at <= now:
            self._carry_out(self._client.tick(now, 0.0), now)
        if (at := self._transport.next_tick_at()) is not None and at <= now:
            self._transport.tick(now)
        self._send_again(now)
        self._go_on(now)

    def _carry_out(self, effects: Effects, now: float) -> None:
        for effect in effects:
            if isinstance(effect, Ended):
                self._count(effect)
            elif self._unsent or not self._transport.send(effect.peer, effect.frames):
                self._unsent.append((now, effect))

    def _count(self, ended: Ended) -> None:
        bulk = self._bulk
        if bulk is None:
            return
        bulk.ended += 1
        if ended.good:
            bulk.good += 1
        else:
            self._say(0, f"{ended.kind} {ended.id.hex()} failed: {ended.why}")
        if not bulk.single and bulk.at_a_mark():
            self._say(1, f"{bulk.kind} {bulk.ended} of {bulk.total} completed")

    def _send_again(self, now: float) -> None:
        while self._unsent:
            since, send = self._unsent[0]
            if not self._transport.send(send.peer, send.frames):
                if now - since < _PATIENCE:
                    return
                self._say(0, f"nobody answers at {self._endpoint}; is a broker running there?")
                if self._bulk is not None and self._bulk.over:
                    # Not tracked, it was taken for good before it left.
                    self._bulk.good = 0
            self._unsent.popleft()

    def _say(self, level: int, words: str) -> None:
        if level <= self._level:
            self._terminal.say(words)

    def _sleep(self) -> None:
        if self._transport.pending() or (self._lines and self._bulk is None):
            return
        now = time.monotonic()
        instants = [self._client.next_tick_at(), self._transport.next_tick_at()]
        instants.append(now + _AGAIN if self._unsent else None)
        until = min((one for one in instants if one is not None), default=now + _LONGEST)
        self._poll.poll(min(max(0.0, until - now), _LONGEST) * 1000)
