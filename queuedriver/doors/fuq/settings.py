"""What a broker and a worker of fuq are told. Pure."""

from typing import Annotated, ClassVar

from queuedriver.doors.fuq.wire import MAX_NPROC
from queuedriver.doors.settings import (
    Address,
    AnyBroker,
    AnyWorker,
    Listen,
    SecretFile,
    Tls,
)
from queuedriver.options import Said

_ENDPOINT = "tcp://127.0.0.1:5429"


class BrokerSettings(AnyBroker, frozen=True, kw_only=True):
    """What a broker of fuq is told."""

    protocol: ClassVar[str] = "fuq"
    keys_by: ClassVar[str] = "--tls DIR"
    # Each task's document has a name of its own.
    driving: ClassVar[tuple[str, ...]] = tuple(
        name for name in AnyBroker.driving if name != "publish"
    )
    listen: Listen = (_ENDPOINT,)
    tls: Tls = None
    secret_file: SecretFile = None

    @property
    def keys(self) -> str | None:
        return self.tls


class WorkerSettings(AnyWorker, frozen=True, kw_only=True):
    """What a worker of fuq is told."""

    protocol: ClassVar[str] = "fuq"
    broker: Address = _ENDPOINT
    nproc: Annotated[
        int | None, Said("How many processors it has; else all.", "N", 1, MAX_NPROC)
    ] = None
    allow: Annotated[
        tuple[str, ...], Said("A program that jobs may run; repeatable.", "NAME=/PATH")
    ] = ()
    root: Annotated[str, Said("Jobs work nowhere but beneath it.", "DIR")] = "."
    log_root: Annotated[str, Said("They log nowhere but beneath it.", "DIR")] = "fuq-logs"
    tls: Tls = None
    secret_file: SecretFile = None
