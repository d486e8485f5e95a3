"""`broker`: deal the documents of queues to workers that do not mount them; `worker`: process what
it deals; `keys`: by which they know each other."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from queuedriver.cli import program
from queuedriver.cli.arguments import CALL, COMMAND, QUIET, SERVER
from queuedriver.cli.render import escape_name
from queuedriver.cli.run import processor_of, summary
from queuedriver.cli.settings import exits, rows_of, settings_of
from queuedriver.cli.stderr_thread import StderrThread
from queuedriver.cli.words import argument
from queuedriver.doors.fuq import settings as of_fuq
from queuedriver.doors.pingpong import settings as of_pingpong
from queuedriver.doors.roundrobin import settings as of_roundrobin
from queuedriver.doors.scale0 import settings as of_scale0
from queuedriver.doors.settings import AnyBroker, ZmqWorker
from queuedriver.doors.transports.addresses import need_zmq
from queuedriver.doors.words import Leave

_of_broker = exits(
    *(0, 1, 66, 73),
    of={
        0: "it was asked to leave, or all there was is done",
        1: "--drain: finished, but documents were discarded",
        66: "no such queue          69  another driver has the id",
        73: "the address is taken   78  this can never work: see the message",
    },
    words="Killed at any moment it loses nothing: what it had dealt is dealt again.",
)


def _broker(settings: type[AnyBroker], line: str) -> Callable[..., int]:
    """Return the command of a broker; the line says what it does."""

    def deal(quiet: bool = QUIET, **told: Annotated[Any, *rows_of(settings)]) -> int:
        asked = settings_of(settings, told)
        if isinstance(asked, of_roundrobin.BrokerSettings) and asked.console:
            asked.check_listen()
            need_zmq()
            from queuedriver.doors.roundrobin.console import run_broker

            return run_broker(asked)
        from queuedriver.doors.broker import Broker

        def listening(endpoints: Sequence[str]) -> None:
            if not quiet:
                queues = ", ".join(escape_name(str(one.input)) for one in asked.services)
                where = f"{queues} at {' '.join(endpoints)}"
                stderr.say(f"{asked.protocol} over {where}; Ctrl-C to leave")

        with StderrThread() as stderr:
            broker = Broker(asked, stderr.say, listening)
            left = broker.run(last=program.ends_process)
            for words in broker.unnoted:
                stderr.say(words)
            if not quiet:
                stderr.say(summary(left))
        return left.exit_code

    deal.__doc__ = line
    return _of_broker(deal)


broker_roundrobin = _broker(
    of_roundrobin.BrokerSettings,
    "Deal documents, and what clients ask, to workers that take several ahead.",
)
broker_fuq = _broker(
    of_fuq.BrokerSettings, "Deal the tasks of jobs to clients that run them as programs."
)
broker_pingpong = _broker(
    of_pingpong.BrokerSettings, "Deal one document at a time to each worker; each has one result."
)
broker_scale0 = _broker(
    of_scale0.BrokerSettings,
    "Deal the documents and requests of services to workers that offer them.",
)
_WAITS = "It waits for a broker that is not there, and for one that is gone to come back."
_of_worker = partial(
    exits,
    of={
        0: "it was asked to leave, by a signal or by its broker",
        1: "a document hung beyond --timeout and --hard-after, and was ended with it",
        69: "no broker answers",
        78: "this can never work: see the message",
    },
)


def _worker(settings: type[ZmqWorker], *codes: int, words: str = "") -> Callable[..., int]:
    """Return the command of a worker that has a processor."""

    @_of_worker(*codes, words=words)
    def process(
        call: str | None = CALL,
        command: str | None = COMMAND,
        server: str | None = SERVER,
        quiet: bool = QUIET,
        **told: Annotated[Any, *rows_of(settings)],
    ) -> int:
        """Process what a broker deals, one document after another. To have more, start more."""
        asked = settings_of(settings, told)
        if isinstance(asked, of_roundrobin.WorkerSettings) and asked.console:
            need_zmq()
            from queuedriver.doors.roundrobin.console import WorkerConsole

            return WorkerConsole(asked).run()
        from queuedriver.doors.worker import work

        processor, asked = processor_of(call, command, server), asked.placed()
        with StderrThread() as stderr:
            if not quiet:
                where = f"{asked.protocol} at {asked.where}"
                stderr.say(f"{processor.name} for {where}; Ctrl-C to leave")
            leave = work(asked, processor, stderr.say, last=program.ends_process)
            return _left(leave, stderr, quiet)

    return process


worker_roundrobin = _worker(of_roundrobin.WorkerSettings, 0, 1, 78, words=_WAITS)
worker_pingpong = _worker(of_pingpong.WorkerSettings, 0, 1, 78, words=_WAITS)
worker_scale0 = _worker(of_scale0.WorkerSettings, 0, 1, 69, 78)


@_of_worker(0, 78, words=_WAITS)
def worker_fuq(quiet: bool = QUIET, **told: Annotated[Any, *rows_of(of_fuq.WorkerSettings)]) -> int:
    """Run the tasks that a broker deals, each a program that --allow names."""
    from queuedriver.doors.fuq.runner import run_worker

    settings = settings_of(of_fuq.WorkerSettings, told)
    with StderrThread() as stderr:
        if not quiet:
            programs = ", ".join(one.partition("=")[0] for one in settings.allow)
            stderr.say(f"{programs} for fuq at {settings.broker}; Ctrl-C to leave")
        leave = run_worker(settings, stderr.say, last=program.ends_process)
        return _left(leave, stderr, quiet)


def _left(leave: Leave, stderr: StderrThread, quiet: bool) -> int:
    if not quiet:
        stderr.say(leave.why)
    return leave.exit_code


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
