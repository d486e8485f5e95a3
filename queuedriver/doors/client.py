"""A client: brings files to a broker (or to a plain server), and writes down what comes of them."""

import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from queuedriver.doors.transports.base import Message, Transport
from queuedriver.doors.words import Result, Send
from queuedriver.errors import RemoteProtocolError, Unreachable
from queuedriver.format import names

# Longest sleep in seconds, and how soon what could not be sent is tried again.
_LONGEST = 1.0
_SOON = 0.02


class Reply(msgspec.Struct, frozen=True):
    """What became of one request."""

    id: bytes
    results: tuple[Result, ...]
    # Why there is none; empty when all went well.
    why: str = ""


class ClientSession(Protocol):
    """A client's side of a protocol."""

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Sequence[Send | Reply]]:
        """Request it; the request's id, by which its `Reply` goes."""

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Sequence[Send | Reply]:
        """Frames of one message."""

    def tick(self, now: float, wall: float) -> Sequence[Send | Reply]:
        """Time has passed."""

    def next_tick_at(self) -> float | None:
        """When `tick` is worth calling."""


class Client:
    """Requests, some of them under way at once."""

    def __init__(
        self,
        session: ClientSession,
        transport: Transport,
        parallel: int,
        timeout: float,
        say: Callable[[str], None],
    ) -> None:
        self._session = session
        self._transport = transport
        self._parallel = parallel
        self._timeout = timeout
        self._say = say
        self._asked: dict[bytes, str] = {}
        self._ended: deque[tuple[str, Reply]] = deque()
        # What could not be sent: the connection is not there yet, or not any more.
        self._unsent: deque[Send] = deque()
        # Since when something is under way, if it is.
        self._stuck_since: float | None = None
        self._poll = select.poll()
        for fd in transport.fds():
            self._poll.register(fd, select.POLLIN)

    def run(self, documents: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Reply]]:
        """Each document's name and what became of it, in the order in which they end."""
        waiting = iter(documents)
        more = True
        while more or self._asked or self._ended or self._under_way():
            while more and not self._under_way() and len(self._asked) < self._parallel:
                document = next(waiting, None)
                if document is None:
                    more = False
                    break
                self._ask(*document)
            while self._ended:
                yield self._ended.popleft()
            if self._asked or self._under_way():
                self._converse()

    def _under_way(self) -> bool:
        """Whether something has not left yet: the transport may keep what its socket has no room
        for, and drops it when it is closed, or when that becomes too much."""
        return bool(self._unsent) or self._transport.next_tick_at() is not None

    def _ask(self, name: str, payload: bytes) -> None:
        now = time.monotonic()
        docid = name if names.objection(name) is None else "document"
        id, effects = self._session.ask(docid, payload, now)
        self._asked[id] = name
        self._carry_out(effects)

    def _converse(self) -> None:
        if not self._transport.pending():
            now = time.monotonic()
            instants = (self._session.next_tick_at(), self._transport.next_tick_at())
            until = min((one for one in instants if one is not None), default=now + _LONGEST)
            seconds = min(max(0.0, until - now), _LONGEST)
            self._poll.poll(min(seconds, _SOON if self._unsent else seconds) * 1000)
        now, wall = time.monotonic(), time.time()
        for arrival in self._transport.arrivals():
            if isinstance(arrival, Message):
                try:
                    self._carry_out(self._session.receive(arrival.frames, now, wall))
                except RemoteProtocolError as error:
                    self._say(f"the broker sent what it may not: {error}")
        if (at := self._session.next_tick_at()) is not None and at <= now:
            self._carry_out(self._session.tick(now, wall))
        if (due := self._transport.next_tick_at()) is not None and due <= now:
            self._transport.tick(now)
        self._send_again()
        if not self._under_way():
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > self._timeout:
            raise Unreachable("no broker answers there; is one running?")

    def _send_again(self) -> None:
        while self._unsent:
            if not self._transport.send(self._unsent[0].peer, self._unsent[0].frames):
                return
            self._unsent.popleft()

    def _carry_out(self, effects: Sequence[Send | Reply]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if self._unsent or not self._transport.send(effect.peer, effect.frames):
                    self._unsent.append(effect)
            elif (name := self._asked.pop(effect.id, None)) is not None:
                self._ended.append((name, effect))


def write_results(directory: str, name: str, results: Sequence[Result]) -> list[str]:
    """Into files of a directory, none of which may be there; their paths.

    One result without a name gets the document's; a name that came by the network is no path.
    """
    os.makedirs(directory, exist_ok=True)
    paths = []
    for result in results:
        wanted = name if result.name is None else result.name
        if (objection := names.objection(wanted)) is not None:
            raise Unreachable(f"the answer names a file {wanted!r}, which is refused: {objection}")
        path = os.path.join(directory, wanted)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with os.fdopen(fd, "wb") as file:
            file.write(result.data)
        paths.append(path)
    return paths
