"""`worker`: process what a broker deals, on a machine that does not mount its queues."""

from typing import Any

from queuedriver.cli import say
from queuedriver.cli.network import (
    CONSOLE,
    CURVE,
    DEBUG,
    INSECURE,
    MAX_MESSAGE,
    PORTS,
    PROTOCOL,
    SECRET_FILE,
    TLS,
    Protocol,
    refuse,
)
from queuedriver.cli.run import checked, processor_of
from queuedriver.cli.words import argument, flag, option
from queuedriver.doors.transports.addresses import check_endpoint, check_listen, need_zmq
from queuedriver.errors import BadArgument
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
    protocol: Protocol = PROTOCOL,
    address: str | None = argument(
        "[ADDRESS]", "Its broker, as tcp://HOST:6714; else one on this host."
    ),
    call: str | None = option("PKG.MOD:FUNCTION", "Call a Python function for each document."),
    command: str | None = option("WORDS", "Run a program for each: 'tool {input} {output}'."),
    server: str | None = option("WORDS", "Keep a program running: JSON lines in and out."),
    slots: int | None = option("N", "roundrobin: so many documents may be sent ahead; else 10."),
    listen: str | None = option("ADDRESS", "roundrobin: be a plain server, without a broker."),
    service: list[str] | None = option("NAME", "scale0: a service that it offers; repeatable."),
    group: list[str] | None = option("ADDRESS", "scale0: other brokers to ask; repeatable."),
    nproc: int | None = option("N", "fuq: processors that it has; else all."),
    allow: list[str] | None = option("NAME=/PATH", "fuq: a program that jobs may run; repeatable."),
    root: str | None = option("DIR", "fuq: jobs work nowhere but beneath it."),
    log_root: str | None = option("DIR", "fuq: they log nowhere but beneath it."),
    timeout: float | None = option("TIME", "How long a document may take, as in 10min."),
    hard_after: float = option(
        "TIME", "How much later the worker is ended if it hangs.", default=30.0
    ),
    grace: float = option("TIME", "How long it may take once asked to leave.", default=60.0),
    max_documents: int | None = option("N", "Leave, to be started anew, after about N."),
    max_age: float | None = option("TIME", "The same after a while."),
    max_memory: int | None = option("SIZE", "The same when it uses more memory."),
    curve: str | None = CURVE,
    tls: str | None = TLS,
    secret_file: str | None = SECRET_FILE,
    insecure: bool = INSECURE,
    max_message: int = MAX_MESSAGE,
    console: bool = CONSOLE,
    debug: int = DEBUG,
    quiet: bool = flag("Say nothing but errors.", "--quiet", "-q"),
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
            timeout=timeout,
            hard_after=hard_after,
            grace=grace,
            max_documents=max_documents,
            max_age=max_age,
            max_memory=max_memory,
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
    from queuedriver.doors import door as doors

    post = doors.Post(
        protocol=protocol,
        broker=where,
        options=options,
        slots=slots or 10,
        plain=listen is not None,
        services=tuple(service) if service else None,
        max_message=max_message,
        level=debug,
        group=tuple(group or ()),
        curve=curve,
    )
    if console:
        from queuedriver.doors.roundrobin.console import run_worker_console

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
    from queuedriver.doors.fuq.client_life import WorkerOptions, run_worker

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
