"""What a broker and a worker of pingpong are told."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from queuedriver.doors.pingpong.wire import Options
from queuedriver.doors.settings import Address, Listen, ZmqBroker, ZmqWorker
from queuedriver.errors import BadArgument
from queuedriver.options import Said

if TYPE_CHECKING:
    from queuedriver.doors.pingpong.broker import Broker
    from queuedriver.doors.pingpong.worker import Worker

_ENDPOINT = "tcp://127.0.0.1:6715"

# What is for a broker and its workers to be told alike, by the protocol's own names.
_Timeout = Annotated[float, Said("A period in which a worker expects a message.", "TIME")]
_Periods = Annotated[int, Said("After so many without one it connects anew.", "N", 1)]
_Expire = Annotated[float, Said("After so long a silent worker that waits is dropped.", "TIME")]


class BrokerSettings(ZmqBroker, frozen=True, kw_only=True):
    """What a broker of pingpong is told."""

    protocol: ClassVar[str] = "pingpong"
    listen: Listen = (_ENDPOINT,)
    broker_timeout: _Timeout = 1.0
    n_timeouts: _Periods = 3
    worker_expire_seconds: _Expire = 3.0

    def check(self) -> Self:
        if not self.outputs:
            raise BadArgument(
                "each document of pingpong has a result: say where to, with --to OUTPUT"
            )
        super().check()
        _intervals(self).check()
        return self

    def session(self, id: str) -> "Broker":
        from queuedriver.doors.pingpong.broker import Broker

        return Broker(_intervals(self), self.job_timeout)


class WorkerSettings(ZmqWorker, frozen=True, kw_only=True):
    """What a worker of pingpong is told."""

    protocol: ClassVar[str] = "pingpong"
    broker: Address = _ENDPOINT
    broker_timeout: _Timeout = 1.0
    n_timeouts: _Periods = 3
    worker_expire_seconds: _Expire = 3.0

    def check(self) -> Self:
        super().check()
        _intervals(self).check()
        return self

    def session(self, name: str) -> "Worker":
        from queuedriver.doors.pingpong.worker import Worker

        return Worker(_intervals(self))


def _intervals(told: BrokerSettings | WorkerSettings) -> Options:
    """Return the protocol's intervals: a worker that waits says PING in each period."""
    return Options(
        broker_timeout=told.broker_timeout,
        n_timeouts=told.n_timeouts,
        worker_expire_seconds=told.worker_expire_seconds,
        ping_interval=told.broker_timeout,
    )
