"""A client's side of roundrobin: requests, repeated until they are answered, and counted. Pure.

The same whether it talks to a broker or to a server. What is tracked and gets no answer within
`task_timeout` is sent again with the same id, so that a broker knows it for the same, and given up
after `give_up_after`.
"""

from collections.abc import Sequence

import msgspec

from queuedriver.doors.roundrobin import frames as wire
from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import tables as rr
from queuedriver.doors.roundrobin.frames import Message, decode, encode
from queuedriver.doors.table import Table
from queuedriver.doors.words import Send
from queuedriver.errors import RemoteProtocolError

STREAM_ID = b"STREAM_ID"


class Ended(msgspec.Struct, frozen=True):
    """A request is over."""

    id: bytes
    # PING, STREAM, DOCUMENT …
    kind: str
    good: bool
    # What a RESPONSE brought, and, when it is not good, why.
    args: tuple[bytes, ...] = ()
    why: str = ""


Effect = Send | Ended
Effects = list[Effect]


class Count(msgspec.Struct):
    """A line of the table of results."""

    total: int = 0
    success: int = 0


class _Asked(msgspec.Struct):
    """One request that is under way."""

    kind: str
    # As it was sent last: the request itself, or what asks for more of its stream.
    message: Message
    asked_at: float
    repeat_at: float
    state: str = rr.WAITING
    reader: streams.Reader | None = None
    ongoing_at: float = 0.0


class RoundRobinClient:
    """One client. Its ids are `serial` and up, of as many bytes as the original's: four, and eight
    for its PING."""

    def __init__(
        self, options: rr.Options | None = None, *, serial: int = 0, table: Table = rr.CLIENT
    ) -> None:
        self._table = table
        self._options = (options or rr.Options()).check()
        self._serial = serial
        # By the id that the next answer has: a stream has another for each part.
        self._asked: dict[bytes, _Asked] = {}
        self.counts: dict[str, Count] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def state_of(self, id: bytes) -> str:
        """In which state of the table a request is; over, when its id is not waited for."""
        asked = self._asked.get(id)
        return asked.state if asked else "over"

    # What is asked

    def ping(self, now: float, tracked: bool = True) -> Effects:
        """PING as an application's command: a worker answers it."""
        return self._ask("PING", (wire.PING,), now, tracked, 8)

    def knock(self, now: float) -> Effects:
        """PING as a command: whoever is next answers it with PONG."""
        message = Message(wire.PING, self._new_id(8))
        return self._begin("knock", message, now)

    def stream(self, now: float) -> Effects:
        """STREAM: the answer comes in parts."""
        return self._ask("STREAM", (wire.STREAM, STREAM_ID, b"%d" % streams.SIZE), now)

    def document(self, docid: str, payload: bytes, now: float, tracked: bool = True) -> Effects:
        """A document, to be processed as one of a queue would be."""
        name = docid.encode("utf-8", "backslashreplace")
        return self._ask("DOCUMENT", (wire.DOCUMENT, name, b"0", payload), now, tracked)

    def _ask(
        self,
        kind: str,
        args: tuple[bytes, ...],
        now: float,
        tracked: bool = True,
        length: int = 4,
    ) -> Effects:
        command = wire.TRACKEXEC if tracked else wire.EXEC
        return self._begin(kind, Message(command, self._new_id(length), args), now)

    def _begin(self, kind: str, message: Message, now: float) -> Effects:
        self.counts.setdefault(kind, Count()).total += 1
        state = self._table.own_step(rr.NEW, "ask", wire.COMMANDS[message.command])
        if state == rr.ANSWERED:
            # Nothing will ever be heard of it; it is not sent twice.
            self.counts[kind].success += 1
            return [_send(message), Ended(message.id, kind, good=True)]
        again = now + self._options.task_timeout
        self._asked[message.id] = _Asked(kind, message, now, again, state)
        return [_send(message)]

    def _new_id(self, length: int = 4) -> bytes:
        self._serial = (self._serial + 1) & 0xFFFFFFFF
        return self._serial.to_bytes(length, "little")

    # What comes

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        message = decode(frames)
        if message.hops:
            return []
        if message.command == wire.PING:
            return [_send(Message(wire.PONG, message.id, hops=message.way_home))]
        asked = self._asked.get(message.id)
        if asked is None:
            # An answer that came twice, or too late.
            return []
        match message.command:
            case wire.RESPONSE:
                return self._response(asked, message, now)
            case wire.PONG:
                asked.state = self._table.step(asked.state, "PONG")
                return self._end(asked, good=True)
            case wire.TRACKADDRESS:
                asked.state = self._table.step(asked.state, "TRACKADDRESS")
                asked.asked_at = now
                asked.repeat_at = now + self._options.task_timeout
        return []

    def _response(self, asked: _Asked, message: Message, now: float) -> Effects:
        if asked.kind == "STREAM":
            return self._part(asked, message, now)
        asked.state = self._table.step(asked.state, "RESPONSE")
        args = message.args
        if asked.kind != "DOCUMENT" or args[:1] == (rr.DONE,):
            return self._end(asked, good=True, args=args)
        why = args[1].decode("utf-8", "replace") if len(args) > 1 else "it was not processed"
        return self._end(asked, good=False, args=args, why=why)

    def _part(self, asked: _Asked, message: Message, now: float) -> Effects:
        try:
            part = streams.decode_part(message.args[0] if message.args else b"")
            asked.reader = asked.reader or streams.Reader()
            over = asked.reader.take(part)
        except RemoteProtocolError as error:
            return self._bad(asked, message, str(error))
        if over:
            asked.state = self._table.step(asked.state, "RESPONSE")
            return self._end(asked, good=True)
        asked.state = self._table.step(asked.state, "RESPONSE", "more to come")
        del self._asked[asked.message.id]
        if not asked.ongoing_at:
            asked.ongoing_at = now + self._options.ongoing_interval
        asked.message = self._more(message, part.handle, streams.GO_ON)
        asked.asked_at, asked.repeat_at = now, now + self._options.task_timeout
        self._asked[asked.message.id] = asked
        return [_send(asked.message)]

    def _more(self, answer: Message, handle: bytes, want: bytes) -> Message:
        """To the very worker that the answer came from."""
        args = (wire.MORE, STREAM_ID, handle, want)
        return Message(wire.TRACKEXEC, self._new_id(), args, answer.way_home)

    def _bad(self, asked: _Asked, message: Message, why: str) -> Effects:
        reading = asked.state == rr.READING
        asked.state = self._table.step(asked.state, "RESPONSE", "bad")
        effects = self._end(asked, good=False, why=why, args=message.args)
        if reading and asked.reader is not None:
            effects.append(_send(self._more(message, asked.reader.handle, streams.ABORT)))
        return effects

    def _end(
        self, asked: _Asked, good: bool, args: tuple[bytes, ...] = (), why: str = ""
    ) -> Effects:
        del self._asked[asked.message.id]
        if good:
            self.counts[asked.kind].success += 1
        return [Ended(asked.message.id, asked.kind, good, args, why)]

    # Time

    def tick(self, now: float, wall: float) -> Effects:
        effects: Effects = []
        for asked in list(self._asked.values()):
            if asked.asked_at + self._options.give_up_after <= now:
                asked.state = self._table.own_step(asked.state, "time-out", "too often")
                effects += self._end(asked, good=False, why="no answer")
            elif asked.state == rr.WAITING and asked.repeat_at <= now:
                asked.state = self._table.own_step(asked.state, "time-out")
                asked.repeat_at = now + self._options.task_timeout
                effects.append(_send(asked.message))
            elif asked.state == rr.READING and asked.ongoing_at <= now:
                asked.ongoing_at = now + self._options.ongoing_interval
                args = (wire.ONGOING, STREAM_ID)
                still = Message(wire.TRACKEXEC, self._new_id(), args, asked.message.hops)
                effects.append(_send(still))
        return effects

    def next_tick_at(self) -> float | None:
        return min((self._next(asked) for asked in self._asked.values()), default=None)

    def _next(self, asked: _Asked) -> float:
        end = asked.asked_at + self._options.give_up_after
        return min(end, asked.ongoing_at if asked.state == rr.READING else asked.repeat_at)

    def retry(self, id: bytes, now: float) -> None:
        """It could not be sent: the connection is not there yet, or not any more."""
        asked = self._asked.get(id)
        if asked is not None:
            asked.repeat_at = min(asked.repeat_at, now + rr.FIRST_REPEAT)


def _send(message: Message) -> Send:
    """All goes to whom we are connected to, addresses included."""
    return Send(b"", encode(message))
