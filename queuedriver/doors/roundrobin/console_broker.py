"""The broker's console: `workers` shows who is registered, `quit` leaves.

It is the broker's own loop that runs: stdin is one descriptor more of its transport.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing

import msgspec

from queuedriver.doors.broker import Broker
from queuedriver.doors.roundrobin.broker import RoundRobinBroker, Worker
from queuedriver.doors.roundrobin.console import Terminal
from queuedriver.doors.roundrobin.settings import BrokerSettings
from queuedriver.doors.settings import keys_of
from queuedriver.doors.transports.base import Arrival
from queuedriver.doors.transports.zmq import Hub
from queuedriver.doors.workspace import PrivateDirectory
from queuedriver.operating.queue import Queue

# Somebody waits at the terminal: what workers have is given back after so many seconds.
_GRACE = 5.0


def run(told: BrokerSettings) -> int:
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


def table(workers: Sequence[Worker]) -> list[str]:
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
