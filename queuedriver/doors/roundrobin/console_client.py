"""The client's console: `ping`, `pingt` and `data` ask once, `bulkping N` and `bulkdata N` N times,
up to ten at once, and count what came of it.

While a command is under way the next ones wait.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing

import msgspec

from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.roundrobin.client import Client
from queuedriver.doors.roundrobin.console_terminal import QUIT, Terminal
from queuedriver.doors.roundrobin.settings import ClientSettings
from queuedriver.doors.transports.addresses import own_name
from queuedriver.doors.transports.base import Transport
from queuedriver.doors.words import Effect, Effects, Ended

# Requests of one bulk that are under way at once.
PARALLEL = 10
# Progress marks of one bulk.
_MARKS = 10
_MOST = 1_000_000

Ask = Callable[[float], tuple[bytes, Effects]]


def run(told: ClientSettings) -> int:
    """Be a client that asks when it is told to; return the exit code."""
    with (
        closing(Terminal(told.level)) as terminal,
        closing(told.transport(own_name())) as spoke,
    ):
        return ClientConsole(terminal, spoke).run()


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


class ClientConsole:
    """A client at a terminal."""

    def __init__(self, terminal: Terminal, transport: Transport) -> None:
        self._terminal = terminal
        client = Client(serial=int.from_bytes(os.urandom(3)))
        self._talk = Conversation(client, transport, self._count, terminal.say, terminal.level)
        self._asks: dict[str, tuple[str, Ask]] = {
            "ping": ("PING", lambda now: client.ping(now, tracked=False)),
            "pingt": ("PING", client.ping),
            "data": ("STREAM", client.stream),
            "bulkping": ("PING", client.ping),
            "bulkdata": ("STREAM", client.stream),
        }
        self._bulk: Bulk | None = None
        # What was typed while a command was under way.
        self._lines: deque[list[str]] = deque()

    def run(self) -> int:
        self._terminal.show(1, "up and running")
        self._terminal.prompt()
        try:
            while True:
                sleep([self._talk], [self._terminal.fd])
                now = time.monotonic()
                self._talk.turn(now, 0.0)
                self._go_on(now)
                self._lines.extend(self._terminal.lines())
                while self._lines and self._bulk is None:
                    words = self._lines.popleft()
                    if words == [QUIT]:
                        return 0
                    self._obey(words)
                    self._go_on(now)
        except KeyboardInterrupt:
            return 0

    def _obey(self, words: list[str]) -> None:
        match words:
            case []:
                pass
            case ["ping" | "pingt" | "data" as name]:
                self._bulk = Bulk(*self._asks[name], 1, single=True)
            case ["bulkping" | "bulkdata" as name, number] if _counts(number):
                self._bulk = Bulk(*self._asks[name], int(number), single=False)
                self._terminal.show(
                    1, f"{number} times {self._bulk.kind}, up to {PARALLEL} at once"
                )
            case ["bulkping" | "bulkdata" as name, *_]:
                self._terminal.say(f"{name} takes a number, as in {name} 100")
            case [name, *_]:
                self._terminal.refuse(name, "ping, pingt, data, bulkping N, bulkdata N")
        if self._bulk is None:
            self._terminal.prompt()

    def _go_on(self, now: float) -> None:
        """Ask what may be asked; sum up when all is over."""
        bulk = self._bulk
        if bulk is None:
            return
        while bulk.more:
            bulk.asked += 1
            self._talk.carry_out(bulk.ask(now)[1], now)
        if not bulk.over:
            return
        self._bulk = None
        if not bulk.single:
            for line in bulk.results():
                self._terminal.say(line)
        elif bulk.good:
            self._terminal.show(1, f"{bulk.kind}: done")
        self._terminal.prompt()

    def _count(self, effect: Effect) -> None:
        bulk = self._bulk
        if bulk is None or not isinstance(effect, Ended):
            return
        bulk.ended += 1
        if effect.why:
            self._terminal.show(0, f"{bulk.kind} {effect.id.hex()} failed: {effect.why}")
        else:
            bulk.good += 1
        if not bulk.single and bulk.at_a_mark():
            self._terminal.show(1, f"{bulk.kind} {bulk.ended} of {bulk.total} completed")


def _counts(number: str) -> bool:
    return number.isascii() and number.isdigit() and 0 < int(number[:9]) <= _MOST
