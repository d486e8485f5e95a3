"""`broker`: deal the documents of queues to workers that do not mount them."""

from collections.abc import Sequence
from typing import Annotated, Literal

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
    limit,
    need_zmq,
    refuse,
)
from queuedriver.cli.render import escape_name
from queuedriver.cli.run import summary
from queuedriver.cli.words import Argument, Option
from queuedriver.errors import BadArgument
from queuedriver.format.names import check_driver_id
from queuedriver.network import doors
from queuedriver.network.addresses import check_endpoint, check_listen
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
    protocol: Protocol,
    input: Annotated[str | None, Argument(metavar="INPUT", help="The queue to deal from.")] = None,
    to: Annotated[
        list[str] | None,
        Option("--to", metavar="OUTPUT", help="Queue for what comes back; repeatable."),
    ] = None,
    listen: Annotated[
        list[str] | None,
        Option(metavar="ADDRESS", help="As tcp://127.0.0.1:6714; repeatable."),
    ] = None,
    advertise: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="roundrobin: the address that peers know it by."),
    ] = None,
    service: Annotated[
        list[str] | None,
        Option(metavar="NAME=INPUT:OUTPUT", help="scale0: a service; repeatable."),
    ] = None,
    group: Annotated[
        list[str] | None,
        Option(metavar="ADDRESS", help="scale0: another broker of its group; repeatable."),
    ] = None,
    preferred: Annotated[
        str | None, Option(metavar="ADDRESS", help="scale0: where workers are to go.")
    ] = None,
    id: Annotated[str | None, Option(metavar="ID", help="This broker's id.")] = None,
    curve: Curve = None,
    tls: Tls = None,
    secret_file: SecretFile = None,
    insecure: Insecure = False,
    job_timeout: Annotated[
        str | None,
        Option(metavar="TIME", help="How long a worker may have a document; else for ever."),
    ] = None,
    retries: Annotated[
        int, Option(metavar="N", help="How often a document is dealt again after a failure.")
    ] = 1,
    retry_delay: Annotated[
        str, Option(metavar="TIME", help="How long to wait before that.")
    ] = "0s",
    grace: Annotated[
        str, Option(metavar="TIME", help="How long to wait for workers when asked to leave.")
    ] = "60s",
    drain: Annotated[bool, Option("--drain", help="Leave when the queue is empty.")] = False,
    publish: Annotated[
        str, Option(metavar="NAME", help="Names of outputs; {docid} and {stem} may be used.")
    ] = "{docid}.ready",
    existing: Annotated[
        Literal["keep", "replace"],
        Option(help="What becomes of an output of the same name."),
    ] = "keep",
    max_output_items: Annotated[
        int | None, Option(metavar="N", help="Deal nothing while so much waits in an output.")
    ] = None,
    durable: Annotated[
        bool | None,
        Option(help="Make every promise hold over a power cut; else as its other drivers do."),
    ] = None,
    archive: Annotated[
        str | None, Option(metavar="DIR", help="Keep finished inputs there; else they go.")
    ] = None,
    poll: Annotated[bool, Option("--poll", help="Never rely on inotify.")] = False,
    max_message: MaxMessage = "64MB",
    console: Console = False,
    debug: Debug = 0,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Say nothing but errors.")] = False,
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
    options = checked(
        Options(
            drain=drain,
            retries=retries,
            retry_delay=duration("--retry-delay", retry_delay),
            grace=duration("--grace", grace),
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
        job_timeout=limit("--job-timeout", job_timeout),
        max_message=size("--max-message", max_message),
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
        from queuedriver.network.console import run_broker_console

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
