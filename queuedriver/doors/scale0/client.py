"""Scale0, a frontend: requests for a service. Pure."""

from collections.abc import Sequence

from queuedriver.doors.scale0.wire import MALFORMED, Options, decode, encode, unpack
from queuedriver.doors.words import DONE, ClientSession, Effects, Result, Send
from queuedriver.errors import RemoteProtocolError

# A broker says 503 long before a client gives up.
GIVE_UP_AFTER = 600.0


class Client(ClientSession):
    """One frontend. Its message ids are `prefix` with a serial: a prefix that no other life of its
    identity used keeps its requests apart from that one's."""

    def __init__(self, service: str, prefix: str = "", timeout: float = GIVE_UP_AFTER) -> None:
        super().__init__(timeout)
        self._service = service
        self._prefix = prefix
        self._serial = 0

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Effects]:
        self._serial += 1
        id = f"{self._prefix}{self._serial}"
        options = Options(service=self._service, message_id=id, docid=docid)
        send = Send(b"", encode("WORKREQUEST", options, payload))
        return id.encode(), self.begin(id.encode(), "WORKREQUEST", send, now)

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
        return self.end(id, results, why) if id in self.under_way else []
