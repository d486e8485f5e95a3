"""`worker`: process what a broker deals, on a machine that does not mount its queues."""

from typing import Annotated, Any

from queuedriver.cli import say
from queuedriver.cli.arguments import CALL, COMMAND, QUIET, SERVER
from queuedriver.cli.run import processor_of
from queuedriver.cli.settings import rows_of, settings_of
from queuedriver.doors.fuq import settings as of_fuq
from queuedriver.doors.pingpong import settings as of_pingpong
from queuedriver.doors.roundrobin import settings as of_roundrobin
from queuedriver.doors.scale0 import settings as of_scale0
from queuedriver.doors.settings import ZmqWorker
from queuedriver.doors.transports.addresses import need_zmq
from queuedriver.doors.words import Leave
from queuedriver.processors.base import Processor


def roundrobin(
    call: str | None = CALL,
    command: str | None = COMMAND,
    server: str | None = SERVER,
    quiet: bool = QUIET,
    **told: Annotated[Any, *rows_of(of_roundrobin.WorkerSettings)],
) -> int:
    """Process what a broker deals, one document after another. To have more, start more.

    It waits for a broker that is not there, and for one that is gone to come back.

    \b
    exit 0   it was asked to leave, by a signal or by its broker
         1   a document hung beyond --timeout and --hard-after, and was ended with it
         78  this can never work: see the message
    """
    settings = settings_of(of_roundrobin.WorkerSettings, told)
    if settings.console:
        need_zmq()
        from queuedriver.doors.roundrobin import console_worker

        return console_worker.run(settings)
    return _work(settings, processor_of(call, command, server), quiet)


def fuq(quiet: bool = QUIET, **told: Annotated[Any, *rows_of(of_fuq.WorkerSettings)]) -> int:
    """Run the tasks that a broker deals, each a program that --allow names.

    It waits for a broker that is not there, and for one that is gone to come back.

    \b
    exit 0   it was asked to leave, by a signal or by its broker
         78  this can never work: see the message
    """
    from queuedriver.doors.fuq.life import run_worker

    return _left(run_worker(settings_of(of_fuq.WorkerSettings, told), say), quiet)


def pingpong(
    call: str | None = CALL,
    command: str | None = COMMAND,
    server: str | None = SERVER,
    quiet: bool = QUIET,
    **told: Annotated[Any, *rows_of(of_pingpong.WorkerSettings)],
) -> int:
    """Process what a broker deals, one document after another. To have more, start more.

    It waits for a broker that is not there, and for one that is gone to come back.

    \b
    exit 0   it was asked to leave, by a signal or by its broker
         1   a document hung beyond --timeout and --hard-after, and was ended with it
         78  this can never work: see the message
    """
    settings = settings_of(of_pingpong.WorkerSettings, told)
    return _work(settings, processor_of(call, command, server), quiet)


def scale0(
    call: str | None = CALL,
    command: str | None = COMMAND,
    server: str | None = SERVER,
    quiet: bool = QUIET,
    **told: Annotated[Any, *rows_of(of_scale0.WorkerSettings)],
) -> int:
    """Process what a broker deals, one document after another. To have more, start more.

    \b
    exit 0   it was asked to leave, by a signal or by its broker
         1   a document hung beyond --timeout and --hard-after, and was ended with it
         69  no broker answers
         78  this can never work: see the message
    """
    settings = settings_of(of_scale0.WorkerSettings, told)
    return _work(settings, processor_of(call, command, server), quiet)


def _work(settings: ZmqWorker, processor: Processor, quiet: bool) -> int:
    """Work until told to leave; return the exit code."""
    from queuedriver.doors.worker import work

    if not quiet:
        say(f"{processor.name} for {settings.protocol} at {settings.where}; Ctrl-C to leave")
    return _left(work(settings, processor, say), quiet)


def _left(leave: Leave, quiet: bool) -> int:
    if not quiet:
        say(leave.why)
    return leave.exit_code
