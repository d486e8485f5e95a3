"""A broker of each protocol, put together as the command line asked for it."""

import os
import resource
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from queuedriver.doors.broker import Broker, Source
from queuedriver.doors.fuq import settings as fuq
from queuedriver.doors.settings import Service, ZmqBroker
from queuedriver.doors.transports.addresses import need_zmq
from queuedriver.doors.transports.base import Transport
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Board
from queuedriver.driving.setup import Opened

# More than connections and open jobs together may come to.
_DESCRIPTORS = 16_384

Say = Callable[[str], None]
Listening = Callable[[Sequence[str]], None]


def broker(
    told: ZmqBroker | fuq.BrokerSettings,
    say: Say,
    listening: Listening = lambda endpoints: None,
    board: Board | None = None,
) -> Broker:
    """Return the broker that was asked for; `listening` is told where it listens, once it does, and
    a watchdog sees on the board what it does."""
    told.check_listen()
    if isinstance(told, fuq.BrokerSettings):
        return _job_broker(told, say, listening, board)
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


class _JobBroker(Broker):
    """Deals the tasks of jobs."""

    def _source(
        self,
        service: Service,
        found: Opened,
        exchange: Any,
        transport: Any,
        limits: Limits,
    ) -> Source:
        from queuedriver.jobs.scheduler import Scheduler

        return Scheduler(
            found.queues[0],
            exchange,
            self._tally,
            limits,
            network=found.network,
            endpoints=transport.endpoints,
            address=transport.address,
        )


def _job_broker(
    told: fuq.BrokerSettings, say: Say, listening: Listening, board: Board | None
) -> Broker:
    from queuedriver.doors.fuq.broker import Broker as Clients
    from queuedriver.doors.transports.tcp import Listener

    secret, context = fuq.security(told.listen, told.tls, told.secret_file, serving=True)

    def transport() -> Transport:
        raise_descriptors()
        listener = Listener(told.listen, context)
        listening(listener.endpoints)
        return listener

    # Jobs first come, first served; each is somebody's own: that many fail says nothing about the
    # next.
    options = msgspec.structs.replace(told.options, order="age", trip_after=0)
    return _JobBroker(
        told.protocol,
        told.services,
        lambda id: Clients(secret, lambda: os.urandom(32), job_timeout=told.job_timeout),
        transport,
        id=told.id,
        options=options,
        level=told.level,
        say=say,
        board=board,
    )


def raise_descriptors() -> None:
    """Have as many descriptors as this process may: a connection is one, and an open job some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
