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

from watchdogd.children import Child, Children

ARGV = (sys.executable, "-m", "watchdogd.programs.io_helper")
_STDERR = 2


class HelperProcess(NamedTuple):
    """A helper, and our end of its socket."""

    child: Child
    socket: socket.socket

    def end(self) -> None:
        """Hang up, and end it: it touches nothing any more."""
        self.socket.close()
        self.child.send(signal.SIGKILL)


def begin(children: Children, argv: Sequence[str] = ARGV) -> HelperProcess:
    """Start a helper; OSError when that cannot be done. It ends when it has no Brief and the socket
    is closed. What it has to complain of before it knows its log goes to our stderr."""
    ours, theirs = socket.socketpair()
    stderr = -1
    try:
        stderr = fcntl.fcntl(_STDERR, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
        fd = theirs.fileno()
        # No file system that somebody wants to unmount is to be held by it.
        child = children.start(argv, os.environ, stdin=fd, stdout=fd, stderr=stderr, directory="/")
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
        if stderr >= 0:
            os.close(stderr)
    return HelperProcess(child, ours)
