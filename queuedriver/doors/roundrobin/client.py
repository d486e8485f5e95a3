"""A client's side of roundrobin. Pure.

The same whether it talks to a broker or to a server. Nothing is ever heard of a request that is not
tracked; so a PING goes behind it, and is repeated in its place: its PONG says that both have come.
"""

from collections.abc import Sequence

from queuedriver.claims.outcomes import Failed
from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import wire
from queuedriver.doors.roundrobin.wire import Message, decode, encode
from queuedriver.doors.words import Awaited, ClientSession, Effects, Processed, Result, Send
from queuedriver.errors import RemoteProtocolError

STREAM_ID = b"STREAM_ID"
# The kind of a request of which nothing is ever heard, but of the PING behind it.
_UNTRACKED = "EXEC"
# Seconds after which an unanswered request is given up.
GIVE_UP_AFTER = 15.0


class Client(ClientSession):
    """One client. Its ids are `serial` and up, of as many bytes as the original's: four, and eight
    for its PING. Without `tracked` nobody waits for what comes of its documents."""

    def __init__(
        self, timeout: float = GIVE_UP_AFTER, *, serial: int = 0, tracked: bool = True
    ) -> None:
        super().__init__(timeout)
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
            return id, self.begin(id, kind, _send(Message(wire.TRACKEXEC, id, args)), now)
        knock = self.begin(id, _UNTRACKED, _send(Message(wire.PING, id)), now)
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
            case wire.PONG if one.kind == _UNTRACKED:
                return self.end(message.id)
            case wire.RESPONSE if one.kind == "STREAM":
                return self._part(one, message, now)
            case wire.RESPONSE if one.kind != _UNTRACKED:
                return self.end(message.id, *_outcome(one.kind, message.args))
            case wire.TRACKADDRESS:
                one.wait(now)
        return []

    def _part(self, one: Awaited, message: Message, now: float) -> Effects:
        known = self._readers.pop(message.id, None)
        reader = known or streams.Reader()
        try:
            over = reader.take(streams.decode_part(message.args[0] if message.args else b""))
        except RemoteProtocolError as error:
            effects = self.end(message.id, why=str(error))
            return [*effects, self._more(message, reader, streams.ABORT)[1]] if known else effects
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
