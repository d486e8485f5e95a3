"""A client's side of roundrobin. Pure.

The same whether it talks to a broker or to a server. Nothing is ever heard of a request that is not
tracked; so a PING goes behind it, and is repeated in its place: its PONG says that both have come.
"""

from collections.abc import Sequence

from queuedriver.claims.outcomes import Failed
from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin.wire import Message, decode, encode
from queuedriver.doors.table import SAME, Row, Table, ours
from queuedriver.doors.words import NEW, Awaited, ClientSession, Effects, Processed, Result, Send
from queuedriver.errors import RemoteProtocolError

SENT, WAITING, READING, ANSWERED, GIVEN_UP = "sent", "waiting", "reading", "answered", "given up"
_TRACKED = f"{WAITING} | {READING}"

CLIENT = Table(
    "How a client sees one request",
    [
        Row(NEW, "ask", "EXEC", "EXEC; PING, to know when it has come", SENT),
        Row(NEW, "ask", "TRACKEXEC", "TRACKEXEC", WAITING),
        Row(SENT, "PONG", "", "count it", ANSWERED),
        ours(SENT, "time-out", "", "PING again", SENT),
        Row(_TRACKED, "RESPONSE", "", "count it", ANSWERED),
        Row(_TRACKED, "RESPONSE", "more to come", "mqs_more to that worker", READING),
        Row(WAITING, "RESPONSE", "bad", "count it as failed", GIVEN_UP),
        Row(READING, "RESPONSE", "bad", "mqs_more that wants no more", GIVEN_UP),
        Row(_TRACKED, "TRACKADDRESS", "", "wait as long again", SAME),
        ours(WAITING, "time-out", "", "the same again, with the same id", WAITING),
        Row(READING, "time-out", "", "ongoing: it still reads", READING),
        Row(f"{SENT} | {_TRACKED}", "time-out", "too often", "count it as failed", GIVEN_UP),
    ],
)

STREAM_ID = b"STREAM_ID"
# Seconds after which an unanswered request is given up.
GIVE_UP_AFTER = 15.0


class Client(ClientSession):
    """One client. Its ids are `serial` and up, of as many bytes as the original's: four, and eight
    for its PING. Without `tracked` nobody waits for what comes of its documents."""

    def __init__(
        self, timeout: float = GIVE_UP_AFTER, *, serial: int = 0, tracked: bool = True
    ) -> None:
        super().__init__(CLIENT, timeout)
        self._serial = serial
        self._tracked = tracked
        # What has come of streams, by the id that the answer with their next part has.
        self._readers: dict[bytes, streams.Reader] = {}

    # What is asked

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Effects]:
        name = docid.encode("utf-8", "backslashreplace")
        return self._ask("DOCUMENT", (wire.DOCUMENT, name, b"0", payload), now, self._tracked)

    def ping(self, now: float, tracked: bool = True) -> tuple[bytes, Effects]:
        """PING as an application's command: a worker answers it."""
        return self._ask("PING", (wire.PING,), now, tracked, 8)

    def stream(self, now: float) -> tuple[bytes, Effects]:
        """STREAM: the answer comes in parts."""
        return self._ask("STREAM", (wire.STREAM, STREAM_ID, b"%d" % streams.SIZE), now)

    def _ask(
        self, kind: str, args: tuple[bytes, ...], now: float, tracked: bool = True, length: int = 4
    ) -> tuple[bytes, Effects]:
        id = self._new_id(length)
        if tracked:
            send = _send(Message(wire.TRACKEXEC, id, args))
            return id, self.begin(id, kind, "TRACKEXEC", send, now)
        knock = self.begin(id, kind, "EXEC", _send(Message(wire.PING, id)), now)
        return id, [_send(Message(wire.EXEC, id, args)), *knock]

    def _new_id(self, length: int = 4) -> bytes:
        self._serial = (self._serial + 1) & 0xFFFFFFFF
        return self._serial.to_bytes(length, "little")

    def end(self, id: bytes, results: tuple[Result, ...] = (), why: str = "") -> Effects:
        self._readers.pop(id, None)
        return super().end(id, results, why)

    # What comes

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        message = decode(frames)
        if message.hops:
            return []
        if message.command == wire.PING:
            return [_send(Message(wire.PONG, message.id, hops=message.way_home))]
        one = self.under_way.get(message.id)
        if one is None:
            # An answer that came twice, or too late.
            return []
        match message.command:
            case wire.RESPONSE if one.kind == "STREAM":
                return self._part(one, message, now)
            case wire.RESPONSE:
                one.state = self.table.step(one.state, "RESPONSE")
                return self.end(message.id, *_outcome(one.kind, message.args))
            case wire.PONG:
                one.state = self.table.step(one.state, "PONG")
                return self.end(message.id)
            case wire.TRACKADDRESS:
                one.state = self.table.step(one.state, "TRACKADDRESS")
                one.wait(now)
        return []

    def _part(self, one: Awaited, message: Message, now: float) -> Effects:
        reader = self._readers.pop(message.id, None) or streams.Reader()
        try:
            over = reader.take(streams.decode_part(message.args[0] if message.args else b""))
        except RemoteProtocolError as error:
            reading = one.state == READING
            one.state = self.table.step(one.state, "RESPONSE", "bad")
            effects = self.end(message.id, why=str(error))
            return [*effects, self._more(message, reader, streams.ABORT)[1]] if reading else effects
        one.state = self.table.step(one.state, "RESPONSE", "" if over else "more to come")
        if over:
            return self.end(message.id)
        id, more = self._more(message, reader, streams.GO_ON)
        self._readers[id] = reader
        self.under_way[id] = self.under_way.pop(message.id)
        one.wait(now)
        still = Message(wire.TRACKEXEC, self._new_id(), (wire.ONGOING, STREAM_ID), message.way_home)
        one.send = _send(still)
        return [more]

    def _more(self, answer: Message, reader: streams.Reader, want: bytes) -> tuple[bytes, Send]:
        """Ask the very worker that an answer came from for more; return the request's id, too."""
        args = (wire.MORE, STREAM_ID, reader.handle, want)
        more = Message(wire.TRACKEXEC, self._new_id(), args, answer.way_home)
        return more.id, _send(more)


def _outcome(kind: str, args: tuple[bytes, ...]) -> tuple[tuple[Result, ...], str]:
    """Return what a RESPONSE brought, or why it brought nothing."""
    if kind != "DOCUMENT" and args[:1] not in ((wire.FAILED,), (wire.PERMANENT,), (wire.LATER,)):
        return (), ""
    outcome = wire.outcome_of(args)
    if isinstance(outcome, Processed):
        return outcome.results, ""
    return (), outcome.failure.message if isinstance(outcome, Failed) else outcome.reason


def _send(message: Message) -> Send:
    """All goes to whom we are connected to, addresses included."""
    return Send(b"", encode(message))
