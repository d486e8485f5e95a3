"""What a broker and a worker of pingpong are told."""

from typing import Annotated, Any, ClassVar, Self

from queuedriver.doors.exchange import Exchange
from queuedriver.doors.settings import Address, Listen, ZmqBroker, ZmqWorker
from queuedriver.doors.words import WorkerSession
from queuedriver.errors import BadArgument, ConfigError
from queuedriver.options import Said

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
        _check_intervals(self)
        return self

    def session(self, id: str) -> Exchange[Any]:
        from queuedriver.doors.pingpong.protocol import Broker

        return Broker(self.job_timeout, self.worker_expire_seconds, self.n_timeouts)


class WorkerSettings(ZmqWorker, frozen=True, kw_only=True):
    """What a worker of pingpong is told."""

    protocol: ClassVar[str] = "pingpong"
    broker: Address = _ENDPOINT
    broker_timeout: _Timeout = 1.0
    n_timeouts: _Periods = 3
    worker_expire_seconds: _Expire = 3.0

    def check(self) -> Self:
        super().check()
        _check_intervals(self)
        return self

    def session(self, name: str) -> WorkerSession:
        from queuedriver.doors.pingpong.protocol import Worker

        return Worker(self.broker_timeout, self.n_timeouts)


def _check_intervals(told: BrokerSettings | WorkerSettings) -> None:
    """Raise ConfigError for what would make workers and broker give each other up."""
    period, expire = told.broker_timeout, told.worker_expire_seconds
    silence = told.n_timeouts * period
    if not (0 < period < expire and silence <= expire):
        raise ConfigError(
            f"N_TIMEOUTS × BROKER_TIMEOUT is {silence:g} s, WORKER_EXPIRE_SECONDS {expire:g} s: "
            f"raise the latter, or a worker, which says PING each BROKER_TIMEOUT, {period:g} s, "
            "would be dropped before it says so again or notices that its broker is silent"
        )
