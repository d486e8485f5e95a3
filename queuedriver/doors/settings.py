"""What brokers, workers and clients are told, and the sessions, sockets and sources that they have
by that.

A field with `Said` is an option of the command line (`cli/settings.py`), and a field without is
none. Each protocol has structs of its own, in `<protocol>/settings.py`; so what it does not know
cannot be said to it.
"""

import importlib
import time
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

import msgspec

from queuedriver.doors.transports.addresses import check_endpoint, check_listen, need_zmq, with_port
from queuedriver.doors.transports.base import MAX_MESSAGE
from queuedriver.format.names import check_driver_id
from queuedriver.options import Options, Said, check_ranges

if TYPE_CHECKING:
    from queuedriver.doors.broker import BrokerLoop, Source
    from queuedriver.doors.exchange import Exchange
    from queuedriver.doors.transports.base import Listening, Transport
    from queuedriver.doors.transports.curve import Keys
    from queuedriver.doors.words import ClientSession, WorkerSession
    from queuedriver.driving.setup import Opened

# What several structs have, or have with a default of their own.
Address = Annotated[str, Said("Where its broker is.", "[ADDRESS]", flags=())]
Listen = Annotated[tuple[str, ...], Said("Where to listen; repeatable.", "ADDRESS")]
Level = Annotated[int, Said("How much to tell: 0 to 9.", "N", 0, 9, ("-d", "--debug"))]
Curve = Annotated[str | None, Said("Encrypt, and know each other by these keys.", "DIR")]
Tls = Annotated[str | None, Said("TLS with cert.pem, key.pem and ca.pem of DIR.", "DIR")]
SecretFile = Annotated[str | None, Said("Both sides prove that they know what is in FILE.", "FILE")]
MaxMessage = Annotated[int, Said("The largest document that is sent.", "SIZE")]
Insecure = Annotated[bool, Said("Listen for other hosts without asking who they are.")]
Console = Annotated[bool, Said("Take commands from stdin.")]


class Service(NamedTuple):
    """A service's queues: where its documents wait, and where its results go."""

    name: str
    input: str | PathLike[str]
    outputs: Sequence[str | PathLike[str]] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them are told; times in seconds, sizes in bytes."""

    protocol: ClassVar[str]
    # The options of a driver that they have, too.
    driving: ClassVar[tuple[str, ...]] = ()
    options: Options = Options()
    level: Level = 0

    def check(self) -> Self:
        """Return the settings themselves; QueueError for what cannot be meant."""
        check_ranges(self)
        return self

    def check_listen(self) -> None:
        """Raise ConfigError for an address that it listens on and that is not safe."""

    def placed(self) -> Self:
        """Return the settings with the ports that are listened at, where any would do."""
        return self


class AnyBroker(Settings, frozen=True, kw_only=True):
    """What every broker is told."""

    driving: ClassVar[tuple[str, ...]] = (
        *("drain", "retries", "retry_delay", "grace", "publish", "existing"),
        *("max_output_items", "until", "durable", "archive", "poll"),
    )
    input: Annotated[str, Said("The queue to deal from.", "INPUT", flags=())]
    outputs: Annotated[
        tuple[str, ...], Said("Queue for what comes back; repeatable.", "OUTPUT", flags=("--to",))
    ] = ()
    listen: Listen
    id: Annotated[str | None, Said("This broker's id.", "ID")] = None
    job_timeout: Annotated[
        float | None, Said("How long a worker may have a document; else for ever.", "TIME")
    ] = None
    insecure: Insecure = False

    @property
    def services(self) -> tuple[Service, ...]:
        """Return the queues that it deals from."""
        return (Service("", self.input, self.outputs),) if self.input else ()

    @property
    def loop_options(self) -> Options:
        """Return the options of its loop."""
        return self.options

    def check(self) -> Self:
        for address in self.listen:
            check_endpoint(address)
        if self.id is not None:
            check_driver_id(self.id)
        return super().check()

    def session(self, id: str) -> "Exchange[Any]":
        """Return the session of a broker that registered by an id."""
        raise NotImplementedError

    def transport(self) -> "Listening":
        """Return its sockets, at which it listens from now on."""
        raise NotImplementedError

    def source(self, service: Service, found: "Opened", loop: "BrokerLoop") -> "Source":
        """Return where the work of a service comes from, whose queue was opened."""
        raise NotImplementedError


class ZmqBroker(AnyBroker, frozen=True, kw_only=True):
    """What every broker over ZeroMQ is told."""

    curve: Curve = None
    max_message: MaxMessage = MAX_MESSAGE

    def check_listen(self) -> None:
        check_listen(self.listen, self.curve is not None, self.insecure, "--curve DIR")

    @property
    def identity(self) -> bytes:
        """Return the name by which ZeroMQ knows its socket, where peers are to know that."""
        return b""

    def placed(self) -> Self:
        # By that address peers are told of a broker, and know it.
        return msgspec.structs.replace(self, listen=tuple(map(with_port, self.listen)))

    def transport(self) -> "Listening":
        keys = keys_of(self.curve)
        from queuedriver.doors.transports.zmq import Hub

        return Hub(self.listen, self.identity, keys, self.max_message)

    def source(self, service: Service, found: "Opened", loop: "BrokerLoop") -> "Source":
        from queuedriver.doors.requests import Requests
        from queuedriver.doors.service_queue import ServiceQueue
        from queuedriver.operating.queue import Queue

        (queue,) = found.queues
        send, durable = loop.talk.transport.send, queue.durable
        requests = Requests(Queue(queue.directory), queue.mint, send, durable=durable)
        requests.load(time.monotonic())
        told = loop.exchange, loop.tally, loop.limits, self.max_message
        return ServiceQueue(service.name, queue, requests, *told)


class AnyPeer(Settings, frozen=True, kw_only=True):
    """What every worker and client is told."""

    broker: Address

    @property
    def where(self) -> str:
        """Return where its broker is, or where it listens itself."""
        return self.broker

    def check(self) -> Self:
        check_endpoint(self.where)
        return super().check()


class ZmqPeer(AnyPeer, frozen=True, kw_only=True):
    """What every worker and client over ZeroMQ is told."""

    # Whether it has to know the name of its broker's socket: that is its address.
    names_hub: ClassVar[bool] = False
    curve: Curve = None
    max_message: MaxMessage = MAX_MESSAGE

    def transport(self, name: str, to: str = "") -> "Transport":
        """Return the socket of a process that is called so, to its own broker or another one."""
        keys = keys_of(self.curve)
        from queuedriver.doors.transports.zmq import Spoke

        identity, hub = name.encode(), None
        if self.names_hub:
            hub = self.where.encode()
            identity = hub + b":" + identity
        return Spoke(to or self.where, identity, hub, keys, self.max_message)


class ZmqWorker(ZmqPeer, frozen=True, kw_only=True):
    """What every worker over ZeroMQ is told."""

    driving: ClassVar[tuple[str, ...]] = (
        *("timeout", "hard_after", "grace", "max_documents", "max_age", "max_memory", "until"),
    )

    def session(self, name: str) -> "WorkerSession":
        """Return the session of a worker, or of a server, that is called so."""
        raise NotImplementedError


class AnyClient(ZmqPeer, frozen=True, kw_only=True):
    """What every client is told."""

    to: Annotated[str | None, Said("Write answers there; else to stdout.", "DIR")] = None
    parallel: Annotated[int, Said("How many requests may be under way at once.", "N", 1)] = 10
    timeout: Annotated[float, Said("How long to wait for an answer.", "TIME")] = 600.0
    # What is to be brought.
    files: tuple[str, ...] = ()

    def session(self) -> "ClientSession":
        """Return the session of a client."""
        raise NotImplementedError


def keys_of(directory: str | None) -> "Keys | None":
    """Return the keys of one side, if it was given any; ConfigError also where ZeroMQ is not
    installed."""
    need_zmq()
    from queuedriver.doors.transports.curve import load_keys

    return None if directory is None else load_keys(directory)


def settings_of(protocol: str) -> Any:
    """Return the module with a protocol's structs."""
    return importlib.import_module(f"queuedriver.doors.{protocol}.settings")
