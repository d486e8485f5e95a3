"""TLS for a transport: what one side shows, and whom it believes.

A directory holds `cert.pem` and `key.pem`, what this side shows, and `ca.pem`, who signs what the
other side may show. A caller needs `ca.pem`; a listener needs the other two, and `ca.pem` unless
its peers prove themselves by a secret.
"""

import os
import ssl

from queuedriver.errors import ConfigError

CERT, KEY, CA = "cert.pem", "key.pem", "ca.pem"


def serving(directory: str, *, other_proof: bool) -> ssl.SSLContext:
    """Return what a listener shows and believes; `other_proof`: peers prove by other means who
    they are."""
    context = _context(directory, ssl.PROTOCOL_TLS_SERVER)
    _show(context, directory, needed=True)
    if _there(directory, CA):
        _believe(context, directory)
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
    _believe(context, directory)
    _show(context, directory, needed=False)
    return context


def _context(directory: str, protocol: int) -> ssl.SSLContext:
    if not os.path.isdir(directory):
        raise ConfigError(f"{directory!r} is no directory; it is to hold {CERT}, {KEY} and {CA}")
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _show(context: ssl.SSLContext, directory: str, *, needed: bool) -> None:
    if not (_there(directory, CERT) and _there(directory, KEY)):
        if needed:
            raise ConfigError(f"{directory!r} needs {CERT} and {KEY}")
        return
    try:
        context.load_cert_chain(os.path.join(directory, CERT), os.path.join(directory, KEY))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{CERT} and {KEY} of {directory!r} cannot be used: {error}") from None


def _believe(context: ssl.SSLContext, directory: str) -> None:
    try:
        context.load_verify_locations(os.path.join(directory, CA))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{CA} of {directory!r} cannot be used: {error}") from None


def _there(directory: str, name: str) -> bool:
    return os.path.exists(os.path.join(directory, name))
