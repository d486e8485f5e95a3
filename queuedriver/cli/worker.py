"""`worker`: process what a broker deals, on a machine that does not mount its queues."""

from typing import Annotated, Any

from queuedriver.cli import say
from queuedriver.cli.arguments import checked, duration, size
from queuedriver.cli.network import (
    PORTS,
    Console,
    Curve,
    Debug,
    Insecure,
    MaxMessage,
    Protocol,
    SecretFile,
    Tls,
    need_zmq,
    refuse,
)
from queuedriver.cli.run import processor_of
from queuedriver.cli.words import Argument, Option
from queuedriver.errors import BadArgument
from queuedriver.network.addresses import check_endpoint, check_listen
from queuedriver.options import Options

_ONLY = {
    "curve": ("roundrobin", "pingpong", "scale0"),
    "tls": ("fuq",),
    "secret_file": ("fuq",),
    "nproc": ("fuq",),
    "allow": ("fuq",),
    "root": ("fuq",),
    "log_root": ("fuq",),
    "console": ("roundrobin",),
    "slots": ("roundrobin",),
    "listen": ("roundrobin",),
    "service": ("scale0",),
    "group": ("scale0",),
}


def worker(
    protocol: Protocol,
    address: Annotated[
        str | None,
        Argument(metavar="ADDRESS", help="Its broker, as tcp://HOST:6714; else one on this host."),
    ] = None,
    call: Annotated[
        str | None,
        Option(metavar="PKG.MOD:FUNCTION", help="Call a Python function for each document."),
    ] = None,
    command: Annotated[
        str | None,
        Option(metavar="WORDS", help="Run a program for each: 'tool {input} {output}'."),
    ] = None,
    server: Annotated[
        str | None,
        Option(metavar="WORDS", help="Keep a program running: JSON lines in and out."),
    ] = None,
    slots: Annotated[
        int | None,
        Option(metavar="N", help="roundrobin: so many documents may be sent ahead; else 10."),
    ] = None,
    listen: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="roundrobin: be a plain server, without a broker."),
    ] = None,
    service: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="scale0: a service that it offers; repeatable."),
    ] = None,
    group: Annotated[
        list[str] | None,
        Option(metavar="ADDRESS", help="scale0: other brokers to ask; repeatable."),
    ] = None,
    nproc: Annotated[
        int | None, Option(metavar="N", help="fuq: processors that it has; else all.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option(metavar="NAME=/PATH", help="fuq: a program that jobs may run; repeatable."),
    ] = None,
    root: Annotated[
        str | None, Option(metavar="DIR", help="fuq: jobs work nowhere but beneath it.")
    ] = None,
    log_root: Annotated[
        str | None, Option(metavar="DIR", help="fuq: they log nowhere but beneath it.")
    ] = None,
    timeout: Annotated[
        str | None, Option(metavar="TIME", help="How long a document may take, as in 10min.")
    ] = None,
    hard_after: Annotated[
        str, Option(metavar="TIME", help="How much later the worker is ended if it hangs.")
    ] = "30s",
    grace: Annotated[
        str, Option(metavar="TIME", help="How long it may take once asked to leave.")
    ] = "60s",
    max_documents: Annotated[
        int | None, Option(metavar="N", help="Leave, to be started anew, after about N.")
    ] = None,
    max_age: Annotated[str | None, Option(metavar="TIME", help="The same after a while.")] = None,
    max_memory: Annotated[
        str | None, Option(metavar="SIZE", help="The same when it uses more memory.")
    ] = None,
    curve: Curve = None,
    tls: Tls = None,
    secret_file: SecretFile = None,
    insecure: Insecure = False,
    max_message: MaxMessage = "64MB",
    console: Console = False,
    debug: Debug = 0,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> int:
    """Process what a broker deals, one document after another. To have more, start more.

    It waits for a broker that is not there, and for one that is gone to come back.

    \b
    exit 0   it was asked to leave, by a signal or by its broker
         1   a document hung beyond --timeout and --hard-after, and was ended with it
         69  scale0: no broker answers
         78  this can never work: see the message
    """
    given = dict(locals())
    refuse(protocol, given, _ONLY)
    options = checked(
        Options(
            timeout=None if timeout is None else duration("--timeout", timeout),
            hard_after=duration("--hard-after", hard_after),
            grace=duration("--grace", grace),
            max_documents=max_documents,
            max_age=None if max_age is None else duration("--max-age", max_age),
            max_memory=None if max_memory is None else size("--max-memory", max_memory),
        )
    )
    if address is not None and listen is not None:
        raise BadArgument("a worker that listens itself has no broker: give ADDRESS or --listen")
    where = check_endpoint(address or listen or PORTS[protocol][0])
    if slots is not None and slots < 1:
        raise BadArgument(f"--slots {slots}: at least 1")
    if listen is not None:
        check_listen((listen,), curve is not None, insecure, "--curve DIR")
    if protocol == "fuq":
        return _run_tasks(where, options, given)
    need_zmq()
    from queuedriver.network import doors

    post = doors.Post(
        protocol=protocol,
        broker=where,
        options=options,
        slots=slots or 10,
        plain=listen is not None,
        services=tuple(service) if service else None,
        max_message=size("--max-message", max_message),
        level=debug,
        group=tuple(group or ()),
        curve=curve,
    )
    if console:
        from queuedriver.network.console import run_worker_console

        return run_worker_console(post)
    processor = processor_of(call, command, server)
    if not quiet:
        say(f"{processor.name} for {protocol} at {where}; Ctrl-C to leave")
    leave = doors.work(post, processor, say)
    if not quiet:
        say(leave.why)
    return leave.exit_code


def _run_tasks(where: str, options: Options, given: dict[str, Any]) -> int:
    """fuq deals tasks, which say themselves what is to be run."""
    if given["call"] or given["command"] or given["server"]:
        raise BadArgument("a job of fuq names its command; say which may be run with --allow")
    from queuedriver.network.fuq_worker import WorkerOptions, run_worker

    told = {key: given[key] for key in ("nproc", "tls", "secret_file") if given[key] is not None}
    roots = {key: given[key] for key in ("root", "log_root") if given[key] is not None}
    asked = WorkerOptions(
        broker=where,
        allow=tuple(given["allow"] or ()),
        timeout=options.timeout,
        grace=options.grace,
        level=given["debug"],
        **told,
        **roots,
    )
    leave = run_worker(asked, say)
    if not given["quiet"]:
        say(leave.why)
    return leave.exit_code
