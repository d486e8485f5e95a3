"""`broker`: deal the documents of queues to workers that do not mount them."""

from collections.abc import Sequence
from typing import Literal

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
from queuedriver.cli.render import escape_name
from queuedriver.cli.run import checked, summary
from queuedriver.cli.words import argument, flag, option
from queuedriver.doors import door as doors
from queuedriver.doors.transports.addresses import check_endpoint, check_listen, need_zmq
from queuedriver.errors import BadArgument
from queuedriver.format.names import check_driver_id
from queuedriver.options import Options

_ONLY = {
    "curve": ("roundrobin", "pingpong", "scale0"),
    "tls": ("fuq",),
    "secret_file": ("fuq",),
    "console": ("roundrobin",),
    "advertise": ("roundrobin",),
    "service": ("scale0",),
    "preferred": ("scale0",),
    "group": ("scale0",),
}


def broker(
    protocol: Protocol = PROTOCOL,
    input: str | None = argument("[INPUT]", "The queue to deal from."),
    to: list[str] | None = option("OUTPUT", "Queue for what comes back; repeatable."),
    listen: list[str] | None = option("ADDRESS", "As tcp://127.0.0.1:6714; repeatable."),
    advertise: str | None = option("ADDRESS", "roundrobin: the address that peers know it by."),
    service: list[str] | None = option("NAME=INPUT:OUTPUT", "scale0: a service; repeatable."),
    group: list[str] | None = option("ADDRESS", "scale0: another broker of its group; repeatable."),
    preferred: str | None = option("ADDRESS", "scale0: where workers are to go."),
    id: str | None = option("ID", "This broker's id."),
    curve: str | None = CURVE,
    tls: str | None = TLS,
    secret_file: str | None = SECRET_FILE,
    insecure: bool = INSECURE,
    job_timeout: float | None = option(
        "TIME", "How long a worker may have a document; else for ever."
    ),
    retries: int = option("N", "How often a document is dealt again after a failure.", default=1),
    retry_delay: float = option("TIME", "How long to wait before that.", default=0.0),
    grace: float = option(
        "TIME", "How long to wait for workers when asked to leave.", default=60.0
    ),
    drain: bool = flag("Leave when the queue is empty."),
    publish: str = option(
        "NAME", "Names of outputs; {docid} and {stem} may be used.", default="{docid}.ready"
    ),
    existing: Literal["keep", "replace"] = option(
        "", "What becomes of an output of the same name.", default="keep"
    ),
    max_output_items: int | None = option("N", "Deal nothing while so much waits in an output."),
    durable: bool | None = flag(
        "Make every promise hold over a power cut; else as its other drivers do.", default=None
    ),
    archive: str | None = option("DIR", "Keep finished inputs there; else they go."),
    poll: bool = flag("Never rely on inotify."),
    max_message: int = MAX_MESSAGE,
    console: bool = CONSOLE,
    debug: int = DEBUG,
    quiet: bool = flag("Say nothing but errors.", "--quiet", "-q"),
) -> int:
    """Deal the documents of a queue to workers that speak one of four protocols.

    Killed at any moment it loses nothing: what it had dealt is dealt again. A worker that is lost
    costs its document one attempt.

    \b
    exit 0   it was asked to leave, or all there was is done
         1   --drain: finished, but documents were discarded
         66  no such queue          69  another driver has the id
         73  the address is taken   78  this can never work: see the message
    """
    given = dict(locals())
    refuse(protocol, given, _ONLY)
    if job_timeout is not None and job_timeout <= 0:
        raise BadArgument("--job-timeout: more than 0")
    options = checked(
        Options(
            drain=drain,
            retries=retries,
            retry_delay=retry_delay,
            grace=grace,
            publish=publish,
            existing=existing,
            max_output_items=max_output_items,
            durable=durable,
            archive=archive,
            poll=poll,
        )
    )
    where = [check_endpoint(one) for one in listen or PORTS[protocol]]
    secured = curve is not None or tls is not None
    check_listen(where, secured, insecure, "--tls DIR" if protocol == "fuq" else "--curve DIR")
    if input is None and not (service or console):
        raise BadArgument("say which queue to deal from")
    if protocol == "pingpong" and not to:
        raise BadArgument("each document of pingpong has a result: say where to, with --to OUTPUT")
    door = doors.Door(
        protocol=protocol,
        services=doors.services(protocol, input, to or [], service or []),
        listen=tuple(where),
        id=id and check_driver_id(id),
        options=options,
        job_timeout=job_timeout,
        max_message=max_message,
        level=debug,
        advertise=advertise,
        group=tuple(group or ()),
        preferred=preferred or "",
        curve=curve,
        tls=tls,
        secret_file=secret_file,
    )
    if protocol != "fuq":
        need_zmq()
    if console:
        from queuedriver.doors.roundrobin.console import run_broker_console

        return run_broker_console(door)
    return _deal(door, quiet)


def _deal(door: doors.Door, quiet: bool) -> int:
    def listening(endpoints: Sequence[str]) -> None:
        if not quiet:
            queues = ", ".join(escape_name(str(one.input)) for one in door.services)
            say(f"{door.protocol} over {queues} at {' '.join(endpoints)}; Ctrl-C to leave")

    made = doors.broker(door, say, listening)
    left = made.run()
    for words in made.unnoted:
        say(words)
    if not quiet:
        say(summary(left))
    return left.exit_code
