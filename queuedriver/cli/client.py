"""`client`: bring files to a broker, and take back what comes of them."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from queuedriver.cli import say
from queuedriver.cli.network import CONSOLE, CURVE, DEBUG, MAX_MESSAGE, PORTS
from queuedriver.cli.words import argument, flag, option
from queuedriver.doors.transports.addresses import check_endpoint, need_zmq
from queuedriver.errors import BadArgument, BadDocid, NotFound

if TYPE_CHECKING:
    from queuedriver.doors.client import ClientSession, Reply
    from queuedriver.doors.transports.base import Transport


def client(
    protocol: Literal["roundrobin", "scale0"] = argument("PROTOCOL", "roundrobin or scale0."),
    address: str | None = argument("ADDRESS", "The broker, as tcp://HOST:6714."),
    words: list[str] | None = argument("[send FILE... | request SERVICE FILE...]", "What to do."),
    exec: bool = flag("roundrobin: do not wait for answers; at most once."),
    to: str | None = option("DIR", "Write answers there; else to stdout."),
    parallel: int = option("N", "How many requests may be under way at once.", default=10),
    timeout: float = option("TIME", "How long to wait for an answer.", default=600.0),
    curve: str | None = CURVE,
    max_message: int = MAX_MESSAGE,
    console: bool = CONSOLE,
    debug: int = DEBUG,
) -> int:
    """Bring files to a broker, or to a plain server, and take back what comes of them.

    A request without an answer is sent again under its id: a broker does it once.

    \b
    exit 0   all were answered, and well
         1   some were not: each is named on stderr
         65  a file's name, or an answer's, cannot be used
         69  no broker answers
    """
    need_zmq()
    if address is None and not console:
        raise BadArgument("say which broker to ask, as tcp://127.0.0.1:6714")
    where = check_endpoint(address or PORTS[protocol][-1])
    if console:
        if protocol != "roundrobin":
            raise BadArgument("--console is for roundrobin")
        from queuedriver.doors.roundrobin.console import run_client_console
        from queuedriver.doors.transports.curve import keys_in

        return run_client_console(where, debug, keys_in(curve))
    service, files = _what(protocol, words or [])
    from queuedriver.doors.client import Client

    session, transport = _opened(protocol, where, service, timeout, not exec, curve, max_message)
    try:
        running = Client(session, transport, parallel, timeout, say)
        return _collect(running.run(_documents(files, max_message)), to)
    finally:
        transport.close()


def _what(protocol: str, words: list[str]) -> tuple[str, list[str]]:
    """The service and the files that the words name."""
    if protocol == "roundrobin" and len(words) > 1 and words[0] == "send":
        return "", words[1:]
    if protocol == "scale0" and len(words) > 2 and words[0] == "request":
        return words[1], words[2:]
    right = "send FILE..." if protocol == "roundrobin" else "request SERVICE FILE..."
    raise BadArgument(f"say what to do: queuedriver client {protocol} ADDRESS {right}")


def _opened(
    protocol: str,
    where: str,
    service: str,
    timeout: float,
    tracked: bool,
    curve: str | None,
    max_message: int,
) -> "tuple[ClientSession, Transport]":
    from queuedriver.doors import asking
    from queuedriver.doors.transports.curve import keys_in
    from queuedriver.doors.transports.zmq import Spoke

    keys = keys_in(curve)
    name = f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}".encode()
    serial = int.from_bytes(os.urandom(3))
    if protocol == "roundrobin":
        hub = where.encode()
        spoke = Spoke(where, hub + b":" + name, hub, keys, max_message)
        return asking.RoundRobin(serial, timeout, tracked), spoke
    spoke = Spoke(where, name, None, keys, max_message)
    return asking.Scale0(service, f"{serial:x}.", timeout), spoke


def _documents(files: Iterable[str], most: int) -> Iterator[tuple[str, bytes]]:
    for path in files:
        try:
            with open(path, "rb") as file:
                data = file.read(most + 1)
        except OSError as error:
            raise NotFound(f"{path!r} cannot be read: {error.strerror}") from None
        if len(data) > most:
            raise BadArgument(f"{path!r} is larger than --max-message")
        yield os.path.basename(path), data


def _collect(replies: "Iterator[tuple[str, Reply]]", to: str | None) -> int:
    """Write answers down as they come; the exit code."""
    from queuedriver.doors.client import write_results

    failed = 0
    for name, reply in replies:
        if reply.why:
            failed += 1
            say(f"{name!r}: {reply.why}")
        elif to is None:
            for result in reply.results:
                sys.stdout.buffer.write(result.data)
        else:
            try:
                write_results(to, name, reply.results)
            except FileExistsError as error:
                raise BadDocid(name, f"{error.filename} is there already") from None
    sys.stdout.buffer.flush()
    return 1 if failed else 0
