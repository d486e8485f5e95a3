"""Which session and which transport make which front door: what the command line asked for, put
together."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from queuedriver.doors.broker import Broker
from queuedriver.doors.fuq import settings as fuq
from queuedriver.doors.settings import ZmqBroker, ZmqWorker
from queuedriver.doors.transports.addresses import need_zmq, own_name
from queuedriver.doors.transports.base import Transport
from queuedriver.doors.words import Leave
from queuedriver.doors.worker import run
from queuedriver.driving.live_status import Board
from queuedriver.processors.base import Processor

if TYPE_CHECKING:
    from queuedriver.doors.fuq.broker_life import FuqBroker


def broker(
    told: ZmqBroker | fuq.BrokerSettings,
    say: Callable[[str], None],
    listening: Callable[[Sequence[str]], None] = lambda endpoints: None,
    board: Board | None = None,
) -> "Broker | FuqBroker":
    """Return the broker that was asked for; `listening` is told where it listens, once it does, and
    a watchdog sees on the board what it does."""
    told.check_listen()
    if isinstance(told, fuq.BrokerSettings):
        from queuedriver.doors.fuq.broker_life import FuqBroker

        return FuqBroker(told, say, listening, board)
    need_zmq()
    from queuedriver.doors.transports.curve import keys_in
    from queuedriver.doors.transports.zmq import Hub

    keys = keys_in(told.curve)

    def transport() -> Transport:
        hub = Hub(told.listen, told.identity, keys, told.max_message)
        listening(hub.endpoints)
        return hub

    return Broker(
        told.protocol,
        told.services,
        told.session,
        transport,
        id=told.id,
        options=told.options,
        max_message=told.max_message,
        level=told.level,
        say=say,
        board=board,
    )


def work(
    told: ZmqWorker, processor: Processor, say: Callable[[str], None], board: Board | None = None
) -> Leave:
    """Work until told to leave; a watchdog sees on the board what is done."""
    told.check_listen()
    need_zmq()
    from queuedriver.doors.transports.curve import keys_in
    from queuedriver.doors.transports.zmq import Hub, Spoke

    keys = keys_in(told.curve)
    # The same for as long as we live: a broker knows us again after a reconnection.
    name = own_name()
    identity, hub = told.identity(name), told.hub

    def connect(to: str) -> Transport:
        if told.is_server:
            return Hub((told.where,), told.where.encode(), keys, told.max_message)
        return Spoke(to or told.where, identity, hub, keys, told.max_message)

    return run(
        told.session(name),
        connect,
        processor,
        f"worker-{name}",
        options=told.options,
        max_message=told.max_message,
        level=told.level,
        say=say,
        board=board,
    )
