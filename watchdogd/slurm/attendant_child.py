"""The attendant as a child of its watchdog: started anew when it ends; nobody waits for it."""

import fcntl
import os
import sys
from contextlib import suppress

from queuedriver.disk.filesystem import open_fd
from watchdogd.children import Child, Children

_STDERR = 2
# Seconds from one start to the next.
_EVERY = 10.0


class AttendantChild:
    """Sees to it that there is an attendant, for the pipeline's file and what its watchdog is
    called, and keeps on this host."""

    def __init__(self, file: str, host: str, local: str, children: Children) -> None:
        words = ("-P", "-m", "watchdogd.slurm.attendant", str(os.getpid()), file, host, local)
        self._argv = (sys.executable, *words)
        self._children = children
        self._child: Child | None = None
        self._start_at = 0.0

    def start_missing(self, now: float) -> None:
        """Start an attendant if there is none, and the last start was a while ago."""
        if now < self._start_at or (self._child is not None and self._child.exit is None):
            return
        self._start_at = now + _EVERY
        # What it says belongs beside what the watchdog says: into the element's log.
        with suppress(OSError), open_fd(fcntl.fcntl(_STDERR, fcntl.F_DUPFD_CLOEXEC, 3)) as log:
            self._child = self._children.start(
                self._argv, os.environ, output=log, directory="/", tied=True
            )
