"""What a broker and a worker of fuq are told."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from queuedriver.doors.fuq.wire import MAX_NPROC
from queuedriver.doors.settings import (
    Address,
    AnyBroker,
    AnyWorker,
    Listen,
    SecretFile,
    Tls,
)
from queuedriver.doors.transports.addresses import is_loopback
from queuedriver.errors import ConfigError, NotPermitted
from queuedriver.options import Said

if TYPE_CHECKING:
    import ssl

_ENDPOINT = "tcp://127.0.0.1:5429"
# Bytes: what a secret must have at least; the original drew 32.
_SHORTEST_SECRET = 16
_LONGEST_SECRET = 4096


class BrokerSettings(AnyBroker, frozen=True, kw_only=True):
    """What a broker of fuq is told."""

    protocol: ClassVar[str] = "fuq"
    keys_by: ClassVar[str] = "--tls DIR"
    # Each task's document has a name of its own.
    driving: ClassVar[tuple[str, ...]] = tuple(
        name for name in AnyBroker.driving if name != "publish"
    )
    listen: Listen = (_ENDPOINT,)
    tls: Tls = None
    secret_file: SecretFile = None

    @property
    def keys(self) -> str | None:
        return self.tls


class WorkerSettings(AnyWorker, frozen=True, kw_only=True):
    """What a worker of fuq is told."""

    protocol: ClassVar[str] = "fuq"
    broker: Address = _ENDPOINT
    nproc: Annotated[
        int | None, Said("How many processors it has; else all.", "N", 1, MAX_NPROC)
    ] = None
    allow: Annotated[
        tuple[str, ...], Said("A program that jobs may run; repeatable.", "NAME=/PATH")
    ] = ()
    root: Annotated[str, Said("Jobs work nowhere but beneath it.", "DIR")] = "."
    log_root: Annotated[str, Said("They log nowhere but beneath it.", "DIR")] = "fuq-logs"
    tls: Tls = None
    secret_file: SecretFile = None


def security(
    addresses: Sequence[str], directory: str | None, secret_file: str | None, *, serving: bool
) -> tuple[bytes | None, "ssl.SSLContext | None"]:
    """Return the secret and the TLS of one side; raise ConfigError for what would not be safe."""
    from queuedriver.doors.transports import tls

    secret = None if secret_file is None else read_secret(secret_file)
    if secret is not None and directory is None:
        for address in addresses:
            if not is_loopback(address):
                raise ConfigError(
                    f"{address} is not on this host, and --secret-file alone hides nothing: "
                    "whoever is in between could go on with the conversation; add --tls DIR"
                )
    if directory is None:
        return secret, None
    if serving:
        return secret, tls.serving(directory, other_proof=secret is not None)
    return secret, tls.calling(directory)


def read_secret(path: str) -> bytes:
    """Return what both sides know; raise ConfigError where others may read or could guess it."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(_LONGEST_SECRET).strip()
    except OSError as error:
        raise NotPermitted(f"--secret-file {path!r}: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigError(f"--secret-file {path!r} can be read by others: chmod 600 it")
    if len(secret) < _SHORTEST_SECRET:
        raise ConfigError(
            f"--secret-file {path!r} has {len(secret)} bytes; at least {_SHORTEST_SECRET}, as "
            "head -c 32 /dev/urandom | base64 gives them"
        )
    return secret
