"""Where to listen and to connect, and what is safe there.

Whoever can connect can bring work and take it. So a broker listens on this host alone unless
connections are authenticated, or somebody says that they need not be.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Sequence

from queuedriver.errors import BadArgument, ConfigError

_ENDPOINT = re.compile(
    r"tcp://(?P<host>\[[0-9a-fA-F:.%\w]+\]|[A-Za-z0-9_.*-]+):(?P<port>[0-9]{1,5}|\*)"
)
_MOST_PORTS = 65_535


def check_endpoint(text: str) -> str:
    """Return the endpoint itself, or raise BadArgument that shows what would be right."""
    found = _ENDPOINT.fullmatch(text)
    if found is None or (found["port"] != "*" and int(found["port"]) > _MOST_PORTS):
        raise BadArgument(f"{text!r} is no address; write tcp://HOST:PORT, as tcp://127.0.0.1:6714")
    return text


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Return what an endpoint is made of; a port of * is 0, to be chosen by the kernel."""
    found = _ENDPOINT.fullmatch(check_endpoint(endpoint))
    if found is None:
        raise BadArgument(f"{endpoint!r} is no address")
    return found["host"].strip("[]"), 0 if found["port"] == "*" else int(found["port"])


def with_port(endpoint: str) -> str:
    """Return an endpoint with a port that is free now, where any would do."""
    if not endpoint.endswith(":*"):
        return endpoint
    with socket.create_server(("", 0)) as probe:
        return f"{endpoint[:-1]}{probe.getsockname()[1]}"


def is_name(endpoint: str) -> bool:
    """Return whether an endpoint has a name, which is to be looked up, and no address."""
    host, _ = host_and_port(endpoint)
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return False


def look_up(endpoint: str) -> list[str]:
    """Return the endpoints at all addresses of an endpoint's name. OSError: there are none."""
    host, port = host_and_port(endpoint)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    hosts = dict.fromkeys(str(address[0]) for *_, address in found)
    return [f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}" for host in hosts]


def is_loopback(endpoint: str) -> bool:
    """Return whether only this host can connect there."""
    host, _ = host_and_port(endpoint)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        # A name, an interface or *: it may mean anything.
        return False


def check_listen(listen: Sequence[str], secured: bool, insecure: bool, how: str) -> None:
    """Raise ConfigError for an address that others can reach, and nobody asks who they are."""
    if secured or insecure:
        return
    for endpoint in listen:
        if not is_loopback(endpoint):
            raise ConfigError(
                f"{endpoint} can be reached from other hosts, and whoever connects could bring "
                f"and take documents: use {how}, or say --insecure if the network itself is safe"
            )


def own_name() -> str:
    """Return a name for this process that nobody else has, or ever had."""
    return f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}"


def need_zmq() -> None:
    """Raise ConfigError where the extra is not installed."""
    try:
        import zmq  # noqa: F401 - only whether it is there
    except ImportError:
        raise ConfigError(
            "this needs ZeroMQ: pip install 'queuedriver[network]' (fuq does without)"
        ) from None
