"""Which session and which transport make which front door: what the command line asked for, put
together."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from queuedriver.doors.broker import Broker, Service
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.transports.base import MAX_MESSAGE, Transport
from queuedriver.doors.words import BrokerSession, Effects, Leave, WorkerSession
from queuedriver.doors.worker import Worker
from queuedriver.driving.live_status import Board
from queuedriver.errors import BadArgument
from queuedriver.options import Options
from queuedriver.processors.base import Processor

if TYPE_CHECKING:
    from queuedriver.doors.fuq.broker_life import FuqBroker

Serve = Callable[[bytes, Sequence[bytes], float, float], Effects]


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker was told."""

    protocol: str
    services: tuple[Service, ...]
    listen: tuple[str, ...]
    id: str | None = None
    options: Options = Options()
    job_timeout: float | None = None
    max_message: int = MAX_MESSAGE
    level: int = 0
    # How peers know it, where that is not how it listens.
    advertise: str | None = None
    group: tuple[str, ...] = ()
    preferred: str = ""
    curve: str | None = None
    tls: str | None = None
    secret_file: str | None = None


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker was told."""

    protocol: str
    broker: str
    options: Options = Options()
    slots: int = 1
    # Without a broker: clients connect to it.
    plain: bool = False
    # None: all that its broker has.
    services: tuple[str, ...] | None = None
    max_message: int = MAX_MESSAGE
    level: int = 0
    group: tuple[str, ...] = ()
    curve: str | None = None


def services(
    protocol: str, input: str | None, to: Sequence[str], named: Sequence[str]
) -> tuple[Service, ...]:
    """Which queues a broker deals from."""
    found = tuple(_service(text) for text in named)
    if found and (input is not None or to):
        raise BadArgument("name the queues either as INPUT --to OUTPUT or by --service, not both")
    if len({one.name for one in found}) < len(found):
        raise BadArgument("each --service needs a name of its own")
    if found or input is None:
        return found
    return (Service("", input, tuple(to)),)


def _service(text: str) -> Service:
    name, equals, queues = text.partition("=")
    input, _, output = queues.partition(":")
    if not (name and equals and input):
        raise BadArgument(f"--service {text}: write NAME=INPUT:OUTPUT")
    return Service(name, input, (output,) if output else ())


def broker(
    door: Door,
    say: Callable[[str], None],
    listening: Callable[[Sequence[str]], None] = lambda endpoints: None,
    board: Board | None = None,
) -> "Broker | FuqBroker":
    """Return the broker that was asked for; `listening` is told where it listens, once it does, and
    a watchdog sees on the board what it does."""
    if door.protocol == "fuq":
        return _fuq_broker(door, say, listening, board)
    from queuedriver.doors.transports.curve import keys_in
    from queuedriver.doors.transports.zmq import Hub

    keys = keys_in(door.curve)
    identity = (door.advertise or door.listen[0]).encode() if door.protocol == "roundrobin" else b""

    def transport() -> Transport:
        hub = Hub(door.listen, identity, keys, door.max_message)
        listening(hub.endpoints)
        return hub

    return Broker(
        door.protocol,
        door.services,
        lambda id: _broker_session(door, id),
        transport,
        id=door.id,
        options=door.options,
        max_message=door.max_message,
        level=door.level,
        say=say,
        board=board,
    )


def _fuq_broker(
    door: Door,
    say: Callable[[str], None],
    listening: Callable[[Sequence[str]], None],
    board: Board | None,
) -> "FuqBroker":
    from queuedriver.doors.fuq.broker_life import BrokerOptions, FuqBroker

    (service,) = door.services
    asked = BrokerOptions(
        input=service.input,
        outputs=tuple(service.outputs),
        listen=door.listen,
        id=door.id,
        options=door.options,
        job_timeout=door.job_timeout,
        tls=door.tls,
        secret_file=door.secret_file,
        level=door.level,
    )
    return FuqBroker(asked, say, listening, board)


def _broker_session(door: Door, id: str) -> BrokerSession | Exchange[Any]:
    if door.protocol == "roundrobin":
        from queuedriver.doors.roundrobin import tables as roundrobin
        from queuedriver.doors.roundrobin.broker import RoundRobinBroker

        return RoundRobinBroker(roundrobin.Options(job_timeout=door.job_timeout))
    if door.protocol == "scale0":
        from queuedriver.doors.scale0 import broker as scale0_broker
        from queuedriver.doors.scale0 import tables as scale0

        options = scale0.Options(
            services=tuple(one.name for one in door.services),
            broker=door.advertise or door.listen[0],
            group=door.group,
            preferred_broker=door.preferred,
        )
        return scale0_broker.Broker(id, options, door.job_timeout)
    from queuedriver.doors.pingpong import broker as pingpong

    return pingpong.Broker(job_timeout=door.job_timeout)


def work(
    post: Post, processor: Processor, say: Callable[[str], None], board: Board | None = None
) -> Leave:
    """Work until told to leave; a watchdog sees on the board what is done."""
    from queuedriver.doors.transports.curve import keys_in
    from queuedriver.doors.transports.zmq import Hub, Spoke

    keys = keys_in(post.curve)
    # The same for as long as we live: a broker knows us again after a reconnection.
    name = f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}"
    identity, hub = name.encode(), None
    if post.protocol == "roundrobin":
        hub = post.broker.encode()
        identity = hub + b":" + identity

    def connect(to: str) -> Transport:
        if post.plain:
            return Hub((post.broker,), post.broker.encode(), keys, post.max_message)
        return Spoke(to or post.broker, identity, hub, keys, post.max_message)

    session, serve = _worker_session(post, name)
    worker = Worker(
        session,
        connect,
        processor,
        options=post.options,
        max_message=post.max_message,
        level=post.level,
        say=say,
        serve=serve,
        board=board,
    )
    return worker.run(f"worker-{name}")


def _worker_session(post: Post, name: str) -> tuple[WorkerSession, Serve | None]:
    """A session; for a plain server, also what it does with the frames of a client."""
    if post.protocol == "roundrobin":
        from queuedriver.doors.roundrobin.worker import RoundRobinServer, RoundRobinWorker

        serial = int.from_bytes(os.urandom(3))
        if post.plain:
            server = RoundRobinServer(post.slots, serial=serial)
            return server, server.serve
        return RoundRobinWorker(post.slots, serial=serial), None
    if post.protocol == "scale0":
        from queuedriver.doors.scale0 import tables as scale0
        from queuedriver.doors.scale0 import worker as scale0_worker

        asked = scale0.WorkerOptions(
            identity=name,
            services=post.services or None,
            broker=post.broker,
            group=post.group,
        )
        return scale0_worker.Worker(asked), None
    from queuedriver.doors.pingpong import worker as pingpong

    return pingpong.Worker(), None
