"""What a broker and a worker of fuq are told."""

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from queuedriver.doors import settings
from queuedriver.doors.fuq.wire import MAX_NPROC, NONCE
from queuedriver.doors.settings import AnyBroker, AnyPeer, Service
from queuedriver.doors.transports.addresses import check_listen, is_loopback
from queuedriver.errors import ConfigError, NotPermitted
from queuedriver.options import Options, Said

if TYPE_CHECKING:
    from queuedriver.doors.broker import BrokerLoop, Source
    from queuedriver.doors.fuq.broker import Broker
    from queuedriver.doors.fuq.client import Client
    from queuedriver.doors.transports.base import Listening
    from queuedriver.doors.transports.tcp import Caller
    from queuedriver.driving.setup import Opened

_ENDPOINT = "tcp://127.0.0.1:5429"
# A worker's own.
_DESCRIPTORS = 128
# Bytes: what a secret must have at least; the original drew 32.
_SHORTEST_SECRET = 16
_LONGEST_SECRET = 4096


class BrokerSettings(AnyBroker, frozen=True, kw_only=True):
    """What a broker of fuq is told."""

    protocol: ClassVar[str] = "fuq"
    # Each task's document has a name of its own.
    driving: ClassVar[tuple[str, ...]] = tuple(
        name for name in AnyBroker.driving if name != "publish"
    )
    listen: settings.Listen = (_ENDPOINT,)
    tls: settings.Tls = None
    secret_file: settings.SecretFile = None

    def check_listen(self) -> None:
        check_listen(self.listen, self.tls is not None, self.insecure, "--tls DIR")

    @property
    def loop_options(self) -> Options:
        # Jobs first come, first served; each is somebody's own: that many fail says nothing about
        # the next.
        return msgspec.structs.replace(self.options, order="age", trip_after=0)

    def session(self, id: str) -> "Broker":
        from queuedriver.doors.fuq.broker import Broker

        return Broker(_secret(self, self.listen), _nonce, job_timeout=self.job_timeout)

    def transport(self) -> "Listening":
        from queuedriver.doors.transports import tcp, tls

        proof = _secret(self, self.listen) is not None
        context = tls.serving(self.tls, other_proof=proof) if self.tls else None
        tcp.raise_descriptors()
        return tcp.Listener(self.listen, context)

    def source(self, service: Service, found: "Opened", loop: "BrokerLoop") -> "Source":
        from queuedriver.jobs.scheduler import Scheduler

        exchange: Any = loop.exchange
        listener: Any = loop.talk.transport
        (queue,), network = found.queues, found.network
        return Scheduler(queue, exchange, listener, loop.tally, loop.limits, network=network)


class WorkerSettings(AnyPeer, frozen=True, kw_only=True):
    """What a worker of fuq is told."""

    protocol: ClassVar[str] = "fuq"
    driving: ClassVar[tuple[str, ...]] = ("timeout", "grace")
    broker: settings.Address = _ENDPOINT
    nproc: Annotated[
        int | None, Said("How many processors it has; else all.", "N", 1, MAX_NPROC)
    ] = None
    allow: Annotated[
        tuple[str, ...], Said("A program that jobs may run; repeatable.", "NAME=/PATH")
    ] = ()
    root: Annotated[str, Said("Jobs work nowhere but beneath it.", "DIR")] = "."
    log_root: Annotated[str, Said("They log nowhere but beneath it.", "DIR")] = "fuq-logs"
    tls: settings.Tls = None
    secret_file: settings.SecretFile = None

    def session(self, nproc: int) -> "Client":
        from queuedriver.doors.fuq.client import Client

        return Client(nproc, _secret(self, (self.broker,)), _nonce)

    def transport(self) -> "Caller":
        from queuedriver.doors.transports import tcp, tls

        # No more than it needs: tasks inherit that, and some programs can do with a thousand only.
        tcp.raise_descriptors(_DESCRIPTORS + 2 * (self.nproc or os.cpu_count() or 1))
        return tcp.Caller(self.broker, tls.calling(self.tls) if self.tls else None)


# What draws a nonce.
_nonce = partial(os.urandom, NONCE)


def _secret(told: BrokerSettings | WorkerSettings, addresses: Sequence[str]) -> bytes | None:
    """Return what both sides know, if it was given; raise ConfigError where others may read it or
    could guess it."""
    if told.secret_file is None:
        return None
    for address in addresses if told.tls is None else ():
        if not is_loopback(address):
            raise ConfigError(
                f"{address} is not on this host, and --secret-file alone hides nothing: "
                "whoever is in between could go on with the conversation; add --tls DIR"
            )
    path = told.secret_file
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(_LONGEST_SECRET).strip()
    except OSError as error:
        raise NotPermitted(f"--secret-file {path!r}: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigError(f"--secret-file {path!r} can be read by others: chmod 600 it")
    if len(secret) < _SHORTEST_SECRET:
        raise ConfigError(
            f"--secret-file {path!r} has {len(secret)} bytes; at least {_SHORTEST_SECRET}, as "
            "head -c 32 /dev/urandom | base64 gives them"
        )
    return secret
