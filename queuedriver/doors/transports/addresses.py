"""Where to listen and to connect, what is safe there, and what may take long on the way.

Whoever can connect can bring work and take it. So a broker listens on this host alone unless
connections are authenticated, or somebody says that they need not be.
"""

import ipaddress
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from queuedriver.errors import BadArgument, ConfigError

_ENDPOINT = re.compile(
    r"tcp://(?P<host>\[[0-9a-fA-F:.%\w]+\]|[A-Za-z0-9_.*-]+):(?P<port>[0-9]{1,5}|\*)"
)
_MOST_PORTS = 65_535
# Seconds for one address of a name to answer.
CONNECT_WITHIN = 4.0
T = TypeVar("T")


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
    if not endpoint or host_and_port(endpoint)[1]:
        return endpoint
    with socket.create_server(("", 0)) as probe:
        return f"{endpoint.rpartition(':')[0]}:{probe.getsockname()[1]}"


def _address_of(endpoint: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in an endpoint; None where there is a name, an interface or *."""
    host, _ = host_and_port(endpoint)
    with suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0])
    return None


def is_name(endpoint: str) -> bool:
    """Tell whether an endpoint has a name, which is to be looked up, and no address."""
    return _address_of(endpoint) is None


def answering(endpoint: str) -> str:
    """Return the endpoint of the first address of a name at which somebody answers. OSError:
    nobody does."""
    with socket.create_connection(host_and_port(endpoint), CONNECT_WITHIN) as found:
        host, port, *_ = found.getpeername()
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


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


class Background(Generic[T]):
    """One call that may take long, in a thread of its own. Once it has ended `fd`, an eventfd of
    its owner's, is readable."""

    def __init__(
        self, call: Callable[[], T], fd: int, discard: Callable[[T], None] = lambda found: None
    ) -> None:
        self._call = call
        self._fd = fd
        # What becomes of what nobody waits for any more.
        self._discard = discard
        self._lock = threading.Lock()
        self._abandoned = False
        self._found: list[T] = []
        self._error: OSError | None = None
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def ended(self) -> bool:
        """Return whether it has ended."""
        return bool(self._found) or self._error is not None

    def take(self) -> T:
        """Return what it has found; OSError where it has failed. It is said to have ended a moment
        before it can be taken, and that is waited for."""
        with self._lock:
            os.eventfd_read(self._fd)
            if self._error is not None:
                raise self._error
            return self._found.pop()

    def abandon(self) -> None:
        """Want its result no more. Its descriptor may be closed then."""
        with self._lock:
            self._abandoned = True
            while self._found:
                self._discard(self._found.pop())

    def _run(self) -> None:
        # Signals are for the main thread, which they wake.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        found, error = [], None
        try:
            found.append(self._call())
        except (OSError, UnicodeError) as failed:
            # Of some names no question can be made.
            error = failed if isinstance(failed, OSError) else OSError(str(failed))
        with self._lock:
            if self._abandoned:
                for one in found:
                    self._discard(one)
                return
            self._found, self._error = found, error
            os.eventfd_write(self._fd, 1)
