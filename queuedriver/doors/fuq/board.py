"""What a broker of fuq and its operator tell each other by files, in `.queuedriver/fuq/`.

    <broker id>.json        who is connected to that broker, and with what in hand; by the broker
    stop-<serial>.json      a wish: take processors from clients; the broker does it, and removes it

Wishes are written aside and renamed in, so each is read whole. One that a broker did not live to do
is dropped by its next life: its clients' numbers mean others by then.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.doors.fuq.broker import Broker, FuqEffects
from queuedriver.doors.transports.tcp import Listener
from queuedriver.errors import NotRegular
from queuedriver.format.records import decode
from queuedriver.jobs.foreman import Foreman
from queuedriver.operating.queue import Queue

DIRECTORY = "fuq"
# How often wishes are looked for, and how often at most it is written who is there; in seconds.
_LOOK_EVERY = 0.25
_WRITE_EVERY = 0.5
# Tasks that are named of one client.
_MOST_TASKS = 100


class Seen(msgspec.Struct, frozen=True):
    """One client."""

    client: str
    address: str
    # Processors it may use, and those of them that are free.
    nproc: int
    free: int
    tasks: int
    # Docids of some of them.
    at: tuple[str, ...]
    # Jobs that it will not run.
    refused: tuple[int, ...]


class Presence(msgspec.Struct, frozen=True):
    """A broker, and who is connected to it."""

    broker: str
    endpoints: tuple[str, ...]
    clients: tuple[Seen, ...]


class Wish(msgspec.Struct, frozen=True):
    """Take so many processors: 0 is all, 0xFFFFFFFF all and at once."""

    number: int
    # Of whose clients, and of which; empty: of all.
    broker: str
    client: str = ""


class Board:
    """One broker's part in it."""

    def __init__(self, queue: Queue, broker: str, listener: Listener) -> None:
        self._directory = queue.private.subdirectory(DIRECTORY, create=True)
        self._broker = broker
        self._listener = listener
        self._file = f"{broker}.json"
        self._look_at = 0.0
        self._write_at = 0.0
        self._written = -1
        for name, _ in self._wishes():
            self._directory.remove(name)

    def turn(self, session: Broker, foreman: Foreman, now: float) -> FuqEffects:
        """Say who is there, when that has changed; do what is wished."""
        if session.changes != self._written and now >= self._write_at:
            self._write_at = now + _WRITE_EVERY
            self._written = session.changes
            self._directory.write_aside(self._file, self._presence(session, foreman))
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_EVERY
        effects: FuqEffects = []
        for name, wish in self._wishes():
            self._directory.remove(name)
            to = {wish.client.encode()} if wish.client else None
            effects += session.stop(wish.number, to)
        return effects

    def _wishes(self) -> Iterator[tuple[str, Wish]]:
        """Those for this broker, in the order in which they were made."""
        for name in sorted(self._directory.names()):
            if name.startswith("stop-") and name.endswith(".json"):
                wish = read_wish(self._directory, name)
                if wish is not None and wish.broker == self._broker:
                    yield name, wish

    def close(self) -> None:
        """Nobody is connected any more."""
        with suppress(OSError):
            self._directory.remove(self._file)
        self._directory.close()

    def _presence(self, session: Broker, foreman: Foreman) -> bytes:
        clients = tuple(
            Seen(
                one.client.decode(),
                self._listener.address(one.client),
                one.limit,
                one.free,
                len(one.claims),
                tuple(foreman.docids(one.claims[:_MOST_TASKS])),
                one.refused,
            )
            for one in session.clients()
        )
        found = Presence(self._broker, tuple(self._listener.endpoints), clients)
        return msgspec.json.encode(found)


def read_wish(directory: Directory, name: str) -> Wish | None:
    """What was wished; None when that cannot be read."""
    try:
        wish = decode(directory.read(name), Wish)
    except (FileNotFoundError, NotRegular, msgspec.DecodeError):
        return None
    return wish if 0 <= wish.number <= 0xFFFFFFFF else None


def write_wish(directory: Directory, wish: Wish) -> str:
    """Make a wish; its name."""
    name = f"stop-{time.time_ns() // 1000:014x}-{os.urandom(2).hex()}.json"
    directory.write_aside(name, msgspec.json.encode(wish))
    return name
