"""The two tokens of whoever serves, in a file that nobody else can read."""

import os
import secrets
import stat

from queuedriver.disk.filesystem import open_fd
from queuedriver.errors import BadArgument, NotPermitted
from watchdogd.operators.web.page_inputs import Keys

_BYTES = 16
# A file of two tokens is shorter.
_MOST = 1000
_HOW = "remove it, and serve makes one; or write two lines: read TOKEN, act TOKEN"


def read_keys(path: str) -> Keys:
    """Return the tokens of a file; one that is not there is made, of random digits."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _made(path)
    with open_fd(fd):
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o77:
            raise NotPermitted(f"{path} can be read by others; chmod 600 it, or remove it")
        lines = os.read(fd, _MOST).decode(errors="replace").splitlines()
    said = dict(line.partition(" ")[::2] for line in lines)
    keys = Keys(said.get("read", "").strip(), said.get("act", "").strip())
    if min(map(len, keys)) < _BYTES or keys.read == keys.act:
        raise BadArgument(f"{path} has not two tokens of {_BYTES} characters or more; {_HOW}")
    return keys


def _made(path: str) -> Keys:
    keys = Keys(secrets.token_hex(_BYTES), secrets.token_hex(_BYTES))
    with open_fd(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)) as fd:
        os.write(fd, f"read {keys.read}\nact {keys.act}\n".encode())
    return keys
