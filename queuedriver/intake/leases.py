"""Whether anybody has a file open for writing: asked of the kernel by a lease on it (fcntl(2)).

A lease for reading is refused with EAGAIN while somebody has the file open for writing. Only
whoever owns the file may ask, and few network file systems answer; some answer always alike. So a
file system is tried first, with a file of ours.
"""

import errno
import fcntl
import os
import signal
from contextlib import suppress

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import is_trouble
from queuedriver.intake.rules import Writers


def writers(fd: int) -> Writers:
    """Return whether anybody has an open file open for writing, as far as that can be known."""
    try:
        # Whoever opens it meanwhile breaks the lease; what the kernel then sends us would end us.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return "some" if error.errno == errno.EAGAIN else "unknown"
    with suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return "none"


def answer(directory: Directory) -> bool:
    """Return whether leases tell of writers in a directory, by a file that is made for that. What
    speaks of the file system is raised: nobody knows then, and would go by less for long."""
    name = f".probe-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with open_fd(directory.open_new(name)), open_fd(directory.open_read(name)) as fd:
            busy = writers(fd)
        with open_fd(directory.open_read(name)) as fd:
            return (busy, writers(fd)) == ("some", "none")
    except OSError as error:
        if is_trouble(error):
            raise
        return False
    finally:
        with suppress(OSError):
            directory.remove(name)
