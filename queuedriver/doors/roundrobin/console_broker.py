"""The broker's console: `workers` shows who is registered, `quit` leaves.

It is the broker's own loop that runs: stdin is one descriptor more of its transport.
"""

import os
import signal
from collections.abc import Callable, Iterator

import msgspec

from queuedriver.doors.broker import Broker
from queuedriver.doors.roundrobin import tables as roundrobin
from queuedriver.doors.roundrobin.broker import RoundRobinBroker, Seen
from queuedriver.doors.roundrobin.console_terminal import Terminal
from queuedriver.doors.roundrobin.settings import BrokerSettings
from queuedriver.doors.settings import Service
from queuedriver.doors.transports.base import Arrival, Transport
from queuedriver.doors.transports.curve import keys_in
from queuedriver.doors.transports.zmq import Hub
from queuedriver.doors.workspace import PrivateDirectory
from queuedriver.operating.queue import Queue

# Somebody waits at the terminal: what workers have is given back after so many seconds.
_GRACE = 5.0


def table(seen: tuple[Seen, ...]) -> list[str]:
    """The table of workers, a line each."""
    lines = []
    for number, one in enumerate(seen):
        address = one.address.decode("utf-8", "backslashreplace")
        mark = " (child)" if one.child else ""
        facts = f"address = {address} free_slots = {one.free_slots}"
        lines.append(f"worker_table[{number:2d}] = {{ {facts} }}{mark}")
    return lines or ["no workers are registered"]


class Attended:
    """A transport, and whatever else is to be heard of by the loop that has it."""

    def __init__(self, transport: Transport, fd: int, attend: Callable[[], None]) -> None:
        self._transport = transport
        self._fd = fd
        self._attend = attend

    def arrivals(self) -> Iterator[Arrival]:
        self._attend()
        return self._transport.arrivals()

    def fds(self) -> list[int]:
        return [*self._transport.fds(), self._fd]

    def pending(self) -> bool:
        return self._transport.pending()

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        return self._transport.send(peer, frames)

    def drop(self, peer: bytes) -> None:
        self._transport.drop(peer)

    def missing(self) -> str:
        return ""

    def next_tick_at(self) -> float | None:
        return self._transport.next_tick_at()

    def tick(self, now: float) -> None:
        self._transport.tick(now)

    def close(self) -> None:
        self._transport.close()


class BrokerConsole:
    """One broker at a terminal."""

    def __init__(self, door: BrokerSettings, terminal: Terminal) -> None:
        self._door = door
        self._terminal = terminal
        self._session = RoundRobinBroker(roundrobin.Options(job_timeout=door.job_timeout))

    def run(self) -> int:
        if self._door.services:
            return self._run(self._door.services)
        private = PrivateDirectory("broker")
        try:
            path = os.path.join(private.path, "requests")
            Queue.open(path, create=True).close()
            return self._run((Service("", path),))
        finally:
            private.close()

    def _run(self, services: tuple[Service, ...]) -> int:
        door, terminal = self._door, self._terminal
        grace = min(door.options.grace, _GRACE)
        broker = Broker(
            door.protocol,
            services,
            lambda id: self._session,
            self._connect,
            id=door.id,
            options=msgspec.structs.replace(door.options, grace=grace),
            max_message=door.max_message,
            level=door.level,
            say=terminal.say,
        )
        return broker.run().exit_code

    def _connect(self) -> Transport:
        door = self._door
        hub = Hub(door.listen, door.identity, keys_in(door.curve), door.max_message)
        self._terminal.show(1, f"up and running at {' '.join(hub.endpoints)}")
        self._terminal.prompt()
        return Attended(hub, self._terminal.fd, self._attend)

    def _attend(self) -> None:
        for words in self._terminal.lines():
            match words:
                case []:
                    pass
                case ["workers"]:
                    for line in table(self._session.workers()):
                        self._terminal.say(line)
                case ["quit"]:
                    # As from anybody else: the loop knows how to leave.
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                case _:
                    self._terminal.refuse(words[0], "workers")
            self._terminal.prompt()
