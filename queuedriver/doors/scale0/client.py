"""Scale0, a frontend: requests for a service, repeated until they are answered. Pure.

A request is repeated with its own message id, so that the broker knows it for the same one; it is
given up when that has been in vain for too long.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from queuedriver.doors.scale0.tables import CLIENT, NEW, OVER, WAITING
from queuedriver.doors.scale0.wire import (
    DONE,
    MALFORMED,
    DisconnectError,
    WorkReply,
    WorkRequest,
    decode,
    encode,
    unpack,
)
from queuedriver.doors.words import Result, Send
from queuedriver.errors import ConfigError, RemoteProtocolError

# A frontend's one peer.
_BROKER = b""


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a frontend was told. Seconds."""

    service: str = ""
    # When an unanswered request is sent again.
    repeat_after: float = 5.0
    # When it is given up; a broker says 503 long before.
    give_up_after: float = 600.0

    def check(self) -> "ClientOptions":
        """ConfigError for what cannot be meant."""
        if not (self.repeat_after > 0 and self.give_up_after > 0):
            raise ConfigError("the time-outs of a client must be above 0")
        return self


class Ended(msgspec.Struct, frozen=True):
    """What became of one request."""

    id: bytes
    results: tuple[Result, ...] = ()
    # Why there is none, and the code or status that says so; empty and 0 when all went well.
    why: str = ""
    code: int = 0


Effects = list[Send | Ended]


class _Asked(msgspec.Struct):
    frames: tuple[bytes, ...]
    repeat_at: float
    give_up_at: float


class Client:
    """One frontend. Its message ids are `prefix` with a serial: a prefix that no other life of its
    identity used keeps its requests apart from that one's."""

    def __init__(self, options: ClientOptions | None = None, prefix: str = "") -> None:
        self._options = (options or ClientOptions()).check()
        self._prefix = prefix
        self._serial = 0
        # By message id; whose turn to be repeated comes first is first.
        self._asked: OrderedDict[str, _Asked] = OrderedDict()

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Effects]:
        """Request it; the request's id, by which its end goes."""
        self._serial += 1
        id = f"{self._prefix}{self._serial}"
        CLIENT.own_step(NEW, "asked")
        event = WorkRequest(service=self._options.service, message_id=id, docid=docid)
        frames = encode(event, payload)
        options = self._options
        self._asked[id] = _Asked(frames, now + options.repeat_after, now + options.give_up_after)
        return id.encode(), [Send(_BROKER, frames)]

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """One message of the broker."""
        message = decode(frames)
        match message.event:
            case WorkReply() as event:
                # The broker forwards what the worker was told: <frontend>:<message id>.
                id = event.identifier.partition(":")[2]
                ended = _reply(id, event, message.body)
            case DisconnectError() as event:
                id, code = event.message_id, event.error_code
                ended = Ended(id.encode(), why=f"{code}: {event.error_message}", code=code)
            case event:
                raise RemoteProtocolError(f"{event.command} is not for frontends", MALFORMED)
        CLIENT.step(WAITING if id in self._asked else OVER, event.command)
        return [ended] if self._asked.pop(id, None) else []

    def tick(self, now: float, wall: float) -> Effects:
        """What has no answer is repeated, or given up."""
        effects: Effects = []
        while (at := self.next_tick_at()) is not None and at <= now:
            id, asked = self._asked.popitem(last=False)
            if now >= asked.give_up_at:
                CLIENT.own_step(WAITING, "time-out")
                effects.append(Ended(id.encode(), why="there was no answer"))
                continue
            CLIENT.own_step(WAITING, "no answer")
            asked.repeat_at = now + self._options.repeat_after
            self._asked[id] = asked
            effects.append(Send(_BROKER, asked.frames))
        return effects

    def next_tick_at(self) -> float | None:
        """When the first of them is due."""
        return next((asked.repeat_at for asked in self._asked.values()), None)


def _reply(id: str, event: WorkReply, body: bytes) -> Ended:
    if event.status != DONE:
        why = event.error_message or "its worker did not say why"
        return Ended(id.encode(), why=why, code=event.status)
    try:
        return Ended(id.encode(), unpack(event, body))
    except RemoteProtocolError as error:
        # To ask again would bring the same answer again.
        return Ended(id.encode(), why=str(error), code=error.code)
