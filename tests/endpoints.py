"""Where brokers of tests listen: at hosts of their own, on the loopback.

At 127.0.0.1 a port that was found free, or that a broker comes back to, may be taken by then: the
kernel gives it away to who listens at any port, and to every connection that is made from there.
"""

import itertools
import os
import socket
from pathlib import Path

from queuedriver.doors.transports.addresses import host_and_port

# A state in /proc/net/tcp.
_LISTEN = "0A"
# Below what the kernel gives away by itself, to those that listen at every host.
_PORTS = itertools.cycle(range(20_000, 32_000))


def own_host() -> str:
    """A host at which no other process of any test listens, and from which none connects."""
    high, middle, low = os.getpid().to_bytes(3, "big")
    return f"127.{128 + high}.{middle}.{low}"


def own_endpoint() -> str:
    """An address of this process's own, whose port the kernel chooses."""
    return f"tcp://{own_host()}:*"


def is_listening(endpoint: str) -> bool:
    """Whether somebody listens at an address."""
    host, port = host_and_port(endpoint)
    place = f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(line[1] == place and line[3] == _LISTEN for line in lines)


def free_port() -> int:
    """A port of `own_host` that no test of this process has used lately."""
    return next(_PORTS)


def free_endpoint() -> str:
    """An address of this process's own, and so free until a broker listens there."""
    return f"tcp://{own_host()}:{free_port()}"
