"""What `broker`, `worker` and `client` have in common: addresses, keys, and who can speak what."""

from typing import Literal

from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument

Protocol = Literal["roundrobin", "fuq", "pingpong", "scale0"]
PROTOCOL = argument("PROTOCOL", "roundrobin, fuq, pingpong or scale0.")
CURVE = option("DIR", "Encrypt, and know each other by the keys there: see keys.")
TLS = option("DIR", "fuq: TLS with cert.pem, key.pem and ca.pem of DIR.")
SECRET_FILE = option("FILE", "fuq: both sides prove that they know what is in FILE.")
INSECURE = flag("Listen for other hosts without asking who they are.")
MAX_MESSAGE = option("SIZE", "The largest document that is sent.", default=64_000_000)
DEBUG = option("N", "How much to tell: 0 to 9.", "-d", "--debug", default=0)
CONSOLE = flag("roundrobin: take commands from stdin.")

# Where each listens unless told otherwise.
PORTS = {
    "roundrobin": ("tcp://127.0.0.1:6714",),
    "fuq": ("tcp://127.0.0.1:5429",),
    "pingpong": ("tcp://127.0.0.1:6715",),
    # Workers first, then clients.
    "scale0": ("tcp://127.0.0.1:8081", "tcp://127.0.0.1:8080"),
}


def refuse(protocol: str, given: dict[str, object], allowed: dict[str, tuple[str, ...]]) -> None:
    """BadArgument for an option that another protocol has."""
    for name, protocols in allowed.items():
        if given.get(name) and protocol not in protocols:
            words = name.replace("_", "-")
            raise BadArgument(f"--{words} is for {' and '.join(protocols)}, not for {protocol}")
