"""Scale0, a frontend: requests for a service. Pure."""

from collections.abc import Sequence

from queuedriver.doors.scale0.wire import MALFORMED, Options, decode, encode, unpack
from queuedriver.doors.table import Row, Table, ours
from queuedriver.doors.words import DONE, NEW, ClientSession, Effects, Result, Send
from queuedriver.errors import RemoteProtocolError

WAITING, OVER = "waiting", "over"

CLIENT = Table(
    "scale0: a frontend's request",
    [
        Row(NEW, "ask", "", "WORKREQUEST", WAITING),
        Row(WAITING, "WORKREPLY", "", "its outputs, or why there are none", OVER),
        Row(WAITING, "DISCONNECTERROR", "", "why it is not done", OVER),
        ours(WAITING, "time-out", "", "WORKREQUEST, the same", WAITING),
        ours(WAITING, "time-out", "too often", "it is given up", OVER),
        ours(OVER, "WORKREPLY", "", "dropped", OVER),
        ours(OVER, "DISCONNECTERROR", "", "dropped", OVER),
    ],
)

# A broker says 503 long before a client gives up.
GIVE_UP_AFTER = 600.0


class Client(ClientSession):
    """One frontend. Its message ids are `prefix` with a serial: a prefix that no other life of its
    identity used keeps its requests apart from that one's."""

    def __init__(self, service: str, prefix: str = "", timeout: float = GIVE_UP_AFTER) -> None:
        super().__init__(CLIENT, timeout)
        self._service = service
        self._prefix = prefix
        self._serial = 0

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Effects]:
        self._serial += 1
        id = f"{self._prefix}{self._serial}"
        options = Options(service=self._service, message_id=id, docid=docid)
        send = Send(b"", encode("WORKREQUEST", options, payload))
        return id.encode(), self.begin(id.encode(), "WORKREQUEST", "", send, now)

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        message = decode(frames)
        results: tuple[Result, ...] = ()
        why = ""
        command, options = message.command, message.options
        match command:
            case "WORKREPLY":
                # The broker forwards what the worker was told: <frontend>:<message id>.
                id = options.identifier.partition(":")[2].encode()
                if options.status != DONE:
                    why = options.error_message or "its worker did not say why"
                else:
                    try:
                        results = unpack(options, message.body)
                    except RemoteProtocolError as error:
                        # To ask again would bring the same answer again.
                        why = str(error)
            case "DISCONNECTERROR":
                id = options.message_id.encode()
                why = f"{options.error_code}: {options.error_message}"
            case _:
                raise RemoteProtocolError(f"{command} is not for frontends", MALFORMED)
        one = self.under_way.get(id)
        state = self.table.step(one.state if one else OVER, command)
        if one is None:
            return []
        one.state = state
        return self.end(id, results, why)
