"""What a broker, a worker and a client of roundrobin are told."""

import os
from typing import Annotated, Any, ClassVar, Self

import msgspec

from queuedriver.doors import settings
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.settings import AnyClient, ZmqBroker, ZmqWorker
from queuedriver.doors.transports.addresses import check_endpoint, check_listen, with_port
from queuedriver.doors.transports.base import Transport
from queuedriver.doors.words import ClientSession, WorkerSession
from queuedriver.errors import BadArgument
from queuedriver.options import Said

_ENDPOINT = "tcp://127.0.0.1:6714"


class BrokerSettings(ZmqBroker, frozen=True, kw_only=True):
    """What a broker of roundrobin is told."""

    protocol: ClassVar[str] = "roundrobin"
    input: Annotated[str, Said("The queue to deal from.", "[INPUT]", flags=())] = ""
    listen: settings.Listen = (_ENDPOINT,)
    advertise: Annotated[str, Said("The address that peers know it by.", "ADDRESS")] = ""
    console: settings.Console = False

    @property
    def identity(self) -> bytes:
        return (self.advertise or self.listen[0]).encode()

    def check(self) -> Self:
        if not (self.input or self.console):
            raise BadArgument("say which queue to deal from")
        check_endpoint(self.identity.decode())
        return super().check()

    def session(self, id: str) -> Exchange[Any]:
        from queuedriver.doors.roundrobin.broker import RoundRobinBroker

        return RoundRobinBroker(self.job_timeout)


class WorkerSettings(ZmqWorker, frozen=True, kw_only=True):
    """What a worker of roundrobin is told."""

    protocol: ClassVar[str] = "roundrobin"
    names_hub: ClassVar[bool] = True
    broker: settings.Address = _ENDPOINT
    slots: Annotated[int, Said("How many documents may be sent ahead.", "N", 1)] = 10
    listen: Annotated[str, Said("Be a plain server, without a broker.", "ADDRESS")] = ""
    insecure: settings.Insecure = False
    console: settings.Console = False

    @property
    def where(self) -> str:
        return self.listen or self.broker

    def check(self) -> Self:
        if self.listen and self.broker != _ENDPOINT:
            raise BadArgument(
                "a worker that listens itself has no broker: give ADDRESS or --listen"
            )
        return super().check()

    def placed(self) -> Self:
        return msgspec.structs.replace(self, listen=with_port(self.listen))

    def check_listen(self) -> None:
        if self.listen:
            check_listen((self.listen,), self.curve is not None, self.insecure, "--curve DIR")

    def session(self, name: str) -> WorkerSession:
        from queuedriver.doors.roundrobin.worker import Server, Worker

        serial = int.from_bytes(os.urandom(3))
        return Server(serial=serial) if self.listen else Worker(self.slots, serial=serial)

    def transport(self, name: str, to: str = "") -> Transport:
        if not self.listen:
            return super().transport(name, to)
        keys = settings.keys_of(self.curve)
        from queuedriver.doors.transports.zmq import Hub

        return Hub((self.listen,), self.listen.encode(), keys, self.max_message)


class ClientSettings(AnyClient, frozen=True, kw_only=True):
    """What a client of roundrobin is told."""

    protocol: ClassVar[str] = "roundrobin"
    names_hub: ClassVar[bool] = True
    broker: settings.Address = _ENDPOINT
    words: Annotated[tuple[str, ...], Said("What to bring.", "[send FILE...]", flags=())] = ()
    exec: Annotated[bool, Said("Do not wait for answers; at most once.")] = False
    console: settings.Console = False

    def check(self) -> Self:
        send, *files = self.words or ("",)
        if not self.console and (send != "send" or not files):
            raise BadArgument("say what to do: queuedriver client roundrobin ADDRESS send FILE...")
        return msgspec.structs.replace(super().check(), files=tuple(files))

    def session(self) -> ClientSession:
        from queuedriver.doors.roundrobin.client import Client

        serial = int.from_bytes(os.urandom(3))
        return Client(self.timeout, serial=serial, tracked=not self.exec)
