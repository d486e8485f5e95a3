"""A broker of each protocol, put together as the command line asked for it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from queuedriver.doors.broker import Broker
from queuedriver.doors.fuq import settings as fuq
from queuedriver.doors.settings import ZmqBroker
from queuedriver.doors.transports.addresses import need_zmq
from queuedriver.doors.transports.base import Transport
from queuedriver.driving.live_status import Board

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
    told = told.placed()
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
