"""TLS for a transport: what one side shows, and whom it believes.

A directory holds `cert.pem` and `key.pem`, what this side shows, and `ca.pem`, who signs what the
other side may show. A caller needs `ca.pem`; a listener needs the other two, and `ca.pem` unless
its peers prove themselves by a secret.
"""

import os
import ssl
from collections.abc import Callable

from queuedriver.errors import ConfigError

CERT, KEY, CA = "cert.pem", "key.pem", "ca.pem"


def serving(directory: str, *, other_proof: bool) -> ssl.SSLContext:
    """Return what a listener shows and believes; `other_proof`: peers prove by other means who
    they are."""
    context = _context(directory, ssl.PROTOCOL_TLS_SERVER)
    _load(context.load_cert_chain, directory, CERT, KEY)
    if _there(directory, CA):
        _load(context.load_verify_locations, directory, CA)
        context.verify_mode = ssl.CERT_REQUIRED
    elif not other_proof:
        raise ConfigError(
            f"{directory!r} has no {CA}, so anybody could connect: put the authority there that "
            "signs the workers' certificates, or use --secret-file"
        )
    return context


def calling(directory: str) -> ssl.SSLContext:
    """Return what a caller shows and believes: its peer's certificate must be for the host that
    was called."""
    context = _context(directory, ssl.PROTOCOL_TLS_CLIENT)
    if not _there(directory, CA):
        raise ConfigError(f"{directory!r} has no {CA}: put the authority of the broker there")
    _load(context.load_verify_locations, directory, CA)
    if _there(directory, CERT, KEY):
        _load(context.load_cert_chain, directory, CERT, KEY)
    return context


def _context(directory: str, protocol: int) -> ssl.SSLContext:
    if not os.path.isdir(directory):
        raise ConfigError(f"{directory!r} is no directory; it is to hold {CERT}, {KEY} and {CA}")
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(load: Callable[..., None], directory: str, *names: str) -> None:
    """Let a context load what it shows, or whom it believes."""
    try:
        load(*(os.path.join(directory, name) for name in names))
    except (OSError, ssl.SSLError) as error:
        what = " and ".join(names)
        raise ConfigError(f"{what} of {directory!r} cannot be used: {error}") from None


def _there(directory: str, *names: str) -> bool:
    return all(os.path.exists(os.path.join(directory, name)) for name in names)
