"""What a broker, a worker and a client of scale0 are told."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec

from queuedriver.doors import settings
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.scale0.wire import Group
from queuedriver.doors.settings import AnyClient, Service, ZmqBroker, ZmqWorker
from queuedriver.doors.transports.addresses import check_endpoint, host_and_port
from queuedriver.doors.words import ClientSession, WorkerSession
from queuedriver.errors import BadArgument, ConfigError
from queuedriver.options import Said

# Where brokers listen for workers, and for clients: to a broker they are the same.
_WORKERS = "tcp://127.0.0.1:8081"
_CLIENTS = "tcp://127.0.0.1:8080"
# Where one listens at every address that the host has.
_ANYWHERE = ("*", "0.0.0.0", "::")

_Group = Annotated[
    tuple[str, ...], Said("Another broker of its group, or a file of them; repeatable.", "ADDRESS")
]


class BrokerSettings(ZmqBroker, frozen=True, kw_only=True):
    """What a broker of scale0 is told."""

    protocol: ClassVar[str] = "scale0"
    input: Annotated[str, Said("The queue to deal from.", "[INPUT]", flags=())] = ""
    listen: settings.Listen = (_WORKERS, _CLIENTS)
    advertise: Annotated[str, Said("The address that workers know it by.", "ADDRESS")] = ""
    service: Annotated[
        tuple[str, ...], Said("A service and its queues; repeatable.", "NAME=INPUT:OUTPUT")
    ] = ()
    group: _Group = ()
    preferred: Annotated[str, Said("The broker where workers are to go.", "ADDRESS")] = ""
    heartbeat_interval: Annotated[
        float, Said("How often workers say PING, unless they ask for longer.", "TIME")
    ] = 5.0

    @property
    def services(self) -> tuple[Service, ...]:
        return tuple(map(_service, self.service)) or super().services

    def check(self) -> Self:
        found = self.services
        if not found:
            raise BadArgument("say which queue to deal from")
        if self.service and (self.input or self.outputs):
            raise BadArgument(
                "name the queues either as INPUT --to OUTPUT or by --service, not both"
            )
        if len({one.name for one in found}) < len(found):
            raise BadArgument("each --service needs a name of its own")
        if self.preferred:
            check_endpoint(self.preferred)
        host, _ = host_and_port(self.address)
        if addresses_of(self.group) and host in _ANYWHERE:
            raise BadArgument(
                f"workers of a group are told where to go, and {self.address} is everywhere: say "
                "by which address they know this broker, with --advertise tcp://HOST:PORT"
            )
        return super().check()

    @property
    def address(self) -> str:
        """Return the address that workers know it by."""
        return self.advertise or self.listen[0]

    def session(self, id: str) -> Exchange[Any]:
        from queuedriver.doors.scale0.broker import Broker

        return Broker(
            id,
            services=[service.name for service in self.services],
            address=self.address,
            group=addresses_of(self.group),
            preferred=self.preferred,
            heartbeat_interval=self.heartbeat_interval,
            job_timeout=self.job_timeout,
        )


class WorkerSettings(ZmqWorker, frozen=True, kw_only=True):
    """What a worker of scale0 is told."""

    protocol: ClassVar[str] = "scale0"
    broker: settings.Address = _WORKERS
    service: Annotated[
        tuple[str, ...], Said("A service that it offers; repeatable; else all.", "NAME")
    ] = ()
    group: _Group = ()
    heartbeat_interval: Annotated[
        float | None, Said("Say PING no more often than that.", "TIME")
    ] = None

    def check(self) -> Self:
        addresses_of(self.group)
        return super().check()

    def session(self, name: str) -> WorkerSession:
        from queuedriver.doors.scale0.worker import Worker

        group = addresses_of(self.group)
        return Worker(name, self.broker, self.service or None, group, self.heartbeat_interval)


class ClientSettings(AnyClient, frozen=True, kw_only=True):
    """What a client of scale0 is told."""

    protocol: ClassVar[str] = "scale0"
    broker: Annotated[str, Said("Where its broker is.", "ADDRESS", flags=())]
    action: Annotated[Literal["request"], Said("What to do.", "request", flags=())]
    service: Annotated[str, Said("Which service to ask.", "SERVICE", flags=())]
    files: Annotated[tuple[str, ...], Said("What to bring.", "FILE...", flags=())]

    def session(self) -> ClientSession:
        from queuedriver.doors.scale0.client import Client

        return Client(self.service, f"{os.urandom(3).hex()}.", self.timeout)


def addresses_of(group: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses that a group's words name, each once; a word may be one, or a file."""
    named = (_in_file(word) if "://" not in word else (word,) for word in group)
    return tuple(dict.fromkeys(check_endpoint(one) for addresses in named for one in addresses))


def _in_file(path: str) -> tuple[str, ...]:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Group).brokers
    except OSError as error:
        raise BadArgument(
            f"--group {path!r} is no address as tcp://HOST:8081, nor a file of them: "
            f"{error.strerror}"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f'{path!r} is no broker group ({error}); write {{"brokers": ["tcp://HOST:8081", …]}}'
        ) from None


def _service(text: str) -> Service:
    name, equals, queues = text.partition("=")
    input, _, output = queues.partition(":")
    if not (name and equals and input):
        raise BadArgument(f"--service {text}: write NAME=INPUT:OUTPUT")
    return Service(name, input, (output,) if output else ())
