"""The process of a helper as it begins: it loads, and waits for its Brief.

Imports little, so that it can be begun before anything else, and loads beside whoever needs it.
"""

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NamedTuple

from queuedriver.disk.filesystem import open_fd
from watchdogd.children import Child, Children
from watchdogd.logs import open_log

ARGV = (sys.executable, "-m", "watchdogd.programs.io_helper")
_STDERR = 2
_LOG_SIZE = 1_000_000
# What the helpers of a local directory have to complain of.
LOG = "io-helper.log"


def log_path(local: str) -> str:
    """Return where the helpers of a local directory say what they have to complain of."""
    return os.path.join(local, LOG)


def open_helper_log(local: str) -> int:
    """Open that log to append to."""
    return open_log(log_path(local), _LOG_SIZE, 1)


class HelperProcess(NamedTuple):
    """A helper, and our end of its socket."""

    child: Child
    socket: socket.socket

    def end(self) -> None:
        """Hang up, and end it: it touches nothing any more."""
        self.socket.close()
        self.child.send(signal.SIGKILL)


def begin(
    children: Children, argv: Sequence[str] = ARGV, local: str | None = None
) -> HelperProcess:
    """Start a helper; OSError when that cannot be done. Without a Brief it ends when the socket is
    closed. Where the local directory is not known yet, what it has to complain of goes to our
    stderr, until it has its Brief."""
    ours, theirs = socket.socketpair()
    try:
        with theirs, open_fd(_log_of(local)) as log:
            fd = theirs.fileno()
            # No file system that somebody wants to unmount is to be held by it.
            child = children.start(argv, os.environ, stdin=fd, output=log, directory="/")
    except OSError:
        ours.close()
        raise
    return HelperProcess(child, ours)


def _log_of(local: str | None) -> int:
    if local is None:
        return fcntl.fcntl(_STDERR, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    return open_helper_log(local)
