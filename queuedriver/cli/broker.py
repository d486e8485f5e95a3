"""`broker`: deal the documents of queues to workers that do not mount them; `keys`: by which they
know each other."""

from collections.abc import Sequence
from typing import Annotated, Any

from queuedriver.cli import program
from queuedriver.cli.arguments import QUIET
from queuedriver.cli.render import escape_name
from queuedriver.cli.run import summary
from queuedriver.cli.settings import exits, rows_of, settings_of
from queuedriver.cli.stderr_thread import StderrThread
from queuedriver.cli.words import argument
from queuedriver.doors.fuq import settings as of_fuq
from queuedriver.doors.pingpong import settings as of_pingpong
from queuedriver.doors.roundrobin import settings as of_roundrobin
from queuedriver.doors.scale0 import settings as of_scale0
from queuedriver.doors.settings import AnyBroker
from queuedriver.doors.transports.addresses import need_zmq

_ends = exits(
    *(0, 1, 66, 73),
    of={
        0: "it was asked to leave, or all there was is done",
        1: "--drain: finished, but documents were discarded",
        66: "no such queue          69  another driver has the id",
        73: "the address is taken   78  this can never work: see the message",
    },
    words="Killed at any moment it loses nothing: what it had dealt is dealt again.",
)


@_ends
def roundrobin(
    quiet: bool = QUIET, **told: Annotated[Any, *rows_of(of_roundrobin.BrokerSettings)]
) -> int:
    """Deal documents, and what clients ask, to workers that take several ahead."""
    settings = settings_of(of_roundrobin.BrokerSettings, told)
    if settings.console:
        settings.check_listen()
        need_zmq()
        from queuedriver.doors.roundrobin.console import run_broker

        return run_broker(settings)
    return _deal(settings, quiet)


@_ends
def fuq(quiet: bool = QUIET, **told: Annotated[Any, *rows_of(of_fuq.BrokerSettings)]) -> int:
    """Deal the tasks of jobs to clients that run them as programs."""
    return _deal(settings_of(of_fuq.BrokerSettings, told), quiet)


@_ends
def pingpong(
    quiet: bool = QUIET, **told: Annotated[Any, *rows_of(of_pingpong.BrokerSettings)]
) -> int:
    """Deal one document at a time to each worker; each has one result."""
    return _deal(settings_of(of_pingpong.BrokerSettings, told), quiet)


@_ends
def scale0(quiet: bool = QUIET, **told: Annotated[Any, *rows_of(of_scale0.BrokerSettings)]) -> int:
    """Deal the documents and requests of services to workers that offer them."""
    return _deal(settings_of(of_scale0.BrokerSettings, told), quiet)


def _deal(settings: AnyBroker, quiet: bool) -> int:
    """Deal until there is a reason to leave; return the exit code."""
    from queuedriver.doors.broker import Broker

    def listening(endpoints: Sequence[str]) -> None:
        if not quiet:
            queues = ", ".join(escape_name(str(one.input)) for one in settings.services)
            where = f"{queues} at {' '.join(endpoints)}"
            stderr.say(f"{settings.protocol} over {where}; Ctrl-C to leave")

    with StderrThread() as stderr:
        broker = Broker(settings, stderr.say, listening)
        left = broker.run(last=program.ends_process)
        for words in broker.unnoted:
            stderr.say(words)
        if not quiet:
            stderr.say(summary(left))
    return left.exit_code


def keys(directory: str = argument("DIR", "Where to put them; made where it is missing.")) -> int:
    """Make a pair of CURVE keys.

    \b
    A broker's DIR    own.key_secret, which nobody else may read
                      authorized/*.key: the own.key of each worker and client that may connect
    A worker's DIR    own.key_secret
                      broker.key: the own.key of its broker
    """
    need_zmq()
    from queuedriver.doors.transports.curve import make_keys

    print(make_keys(directory))
    return 0
