"""`worker`: process what a broker deals, on a machine that does not mount its queues."""

from functools import partial
from typing import Annotated, Any

from queuedriver.cli import program, say
from queuedriver.cli.arguments import CALL, COMMAND, QUIET, SERVER
from queuedriver.cli.run import processor_of
from queuedriver.cli.settings import exits, rows_of, settings_of
from queuedriver.doors.fuq import settings as of_fuq
from queuedriver.doors.pingpong import settings as of_pingpong
from queuedriver.doors.roundrobin import settings as of_roundrobin
from queuedriver.doors.scale0 import settings as of_scale0
from queuedriver.doors.settings import ZmqWorker
from queuedriver.doors.transports.addresses import need_zmq
from queuedriver.doors.words import Leave
from queuedriver.processors.base import Processor

_WAITS = "It waits for a broker that is not there, and for one that is gone to come back."
_ends = partial(
    exits,
    of={
        0: "it was asked to leave, by a signal or by its broker",
        1: "a document hung beyond --timeout and --hard-after, and was ended with it",
        69: "no broker answers",
        78: "this can never work: see the message",
    },
)


@_ends(0, 1, 78, words=_WAITS)
def roundrobin(
    call: str | None = CALL,
    command: str | None = COMMAND,
    server: str | None = SERVER,
    quiet: bool = QUIET,
    **told: Annotated[Any, *rows_of(of_roundrobin.WorkerSettings)],
) -> int:
    """Process what a broker deals, one document after another. To have more, start more."""
    settings = settings_of(of_roundrobin.WorkerSettings, told)
    if settings.console:
        need_zmq()
        from queuedriver.doors.roundrobin import console_worker

        return console_worker.run(settings)
    return _work(settings, processor_of(call, command, server), quiet)


@_ends(0, 78, words=_WAITS)
def fuq(quiet: bool = QUIET, **told: Annotated[Any, *rows_of(of_fuq.WorkerSettings)]) -> int:
    """Run the tasks that a broker deals, each a program that --allow names."""
    from queuedriver.doors.fuq.life import run_worker

    settings = settings_of(of_fuq.WorkerSettings, told)
    if not quiet:
        programs = ", ".join(one.partition("=")[0] for one in settings.allow)
        say(f"{programs} for fuq at {settings.broker}; Ctrl-C to leave")
    return _left(run_worker(settings, say, last=program.ends_process), quiet)


@_ends(0, 1, 78, words=_WAITS)
def pingpong(
    call: str | None = CALL,
    command: str | None = COMMAND,
    server: str | None = SERVER,
    quiet: bool = QUIET,
    **told: Annotated[Any, *rows_of(of_pingpong.WorkerSettings)],
) -> int:
    """Process what a broker deals, one document after another. To have more, start more."""
    settings = settings_of(of_pingpong.WorkerSettings, told)
    return _work(settings, processor_of(call, command, server), quiet)


@_ends(0, 1, 69, 78)
def scale0(
    call: str | None = CALL,
    command: str | None = COMMAND,
    server: str | None = SERVER,
    quiet: bool = QUIET,
    **told: Annotated[Any, *rows_of(of_scale0.WorkerSettings)],
) -> int:
    """Process what a broker deals, one document after another. To have more, start more."""
    settings = settings_of(of_scale0.WorkerSettings, told)
    return _work(settings, processor_of(call, command, server), quiet)


def _work(settings: ZmqWorker, processor: Processor, quiet: bool) -> int:
    """Work until told to leave; return the exit code."""
    from queuedriver.doors.worker import work

    settings = settings.placed()
    if not quiet:
        say(f"{processor.name} for {settings.protocol} at {settings.where}; Ctrl-C to leave")
    return _left(work(settings, processor, say, last=program.ends_process), quiet)


def _left(leave: Leave, quiet: bool) -> int:
    if not quiet:
        say(leave.why)
    return leave.exit_code
