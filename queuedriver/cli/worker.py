"""`worker`: process what a broker deals, on a machine that does not mount its queues."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from queuedriver.cli import program
from queuedriver.cli.arguments import CALL, COMMAND, QUIET, SERVER
from queuedriver.cli.run import processor_of
from queuedriver.cli.settings import exits, rows_of, settings_of
from queuedriver.cli.stderr_thread import StderrThread
from queuedriver.doors.fuq import settings as of_fuq
from queuedriver.doors.pingpong import settings as of_pingpong
from queuedriver.doors.roundrobin import settings as of_roundrobin
from queuedriver.doors.scale0 import settings as of_scale0
from queuedriver.doors.settings import ZmqWorker
from queuedriver.doors.transports.addresses import need_zmq
from queuedriver.doors.words import Leave

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


def _of(settings: type[ZmqWorker], *codes: int, words: str = "") -> Callable[..., int]:
    """Return the command of a worker that has a processor."""

    @_ends(*codes, words=words)
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


roundrobin = _of(of_roundrobin.WorkerSettings, 0, 1, 78, words=_WAITS)
pingpong = _of(of_pingpong.WorkerSettings, 0, 1, 78, words=_WAITS)
scale0 = _of(of_scale0.WorkerSettings, 0, 1, 69, 78)


@_ends(0, 78, words=_WAITS)
def fuq(quiet: bool = QUIET, **told: Annotated[Any, *rows_of(of_fuq.WorkerSettings)]) -> int:
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
