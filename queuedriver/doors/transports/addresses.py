"""Where to listen and to connect, and what is safe there.

Whoever can connect can bring work and take it. So a broker listens on this host alone unless
connections are authenticated, or somebody says that they need not be.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from contextlib import suppress

from queuedriver.errors import BadArgument, ConfigError

_ENDPOINT = re.compile(
    r"tcp://(?P<host>\[[0-9a-fA-F:.%\w]+\]|[A-Za-z0-9_.*-]+):(?P<port>[0-9]{1,5}|\*)"
)
_MOST_PORTS = 65_535


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Return what an endpoint is made of, a port of * as 0, to be chosen by the kernel; raise
    BadArgument that shows what would be right."""
    found = _ENDPOINT.fullmatch(endpoint)
    port = 0 if found is None or found["port"] == "*" else int(found["port"])
    if found is None or port > _MOST_PORTS:
        raise BadArgument(
            f"{endpoint!r} is no address; write tcp://HOST:PORT, as tcp://127.0.0.1:6714"
        )
    return found["host"].strip("[]"), port


def check_endpoint(text: str) -> str:
    """Return the endpoint itself, or raise BadArgument."""
    host_and_port(text)
    return text


def with_port(endpoint: str) -> str:
    """Return an endpoint with a port that is free now, where any would do."""
    if not endpoint.endswith(":*"):
        return endpoint
    with socket.create_server(("", 0)) as probe:
        return f"{endpoint[:-1]}{probe.getsockname()[1]}"


def _address_of(endpoint: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in an endpoint; None where there is a name, an interface or *."""
    host, _ = host_and_port(endpoint)
    with suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0])
    return None


def is_name(endpoint: str) -> bool:
    """Tell whether an endpoint has a name, which is to be looked up, and no address."""
    return _address_of(endpoint) is None


def look_up(endpoint: str) -> list[str]:
    """Return the endpoints at all addresses of an endpoint's name. OSError: there are none."""
    host, port = host_and_port(endpoint)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    hosts = dict.fromkeys(str(address[0]) for *_, address in found)
    return [f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}" for host in hosts]


def is_loopback(endpoint: str) -> bool:
    """Tell whether only this host can connect there."""
    address = _address_of(endpoint)
    # Any other name may mean anything.
    return address.is_loopback if address else host_and_port(endpoint)[0] == "localhost"


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
