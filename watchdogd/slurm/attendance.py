"""The watchdog's side of its attendant: starts it, and another when it ends; waits for nothing."""

import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import open_fd
from watchdogd.children import Child, Children
from watchdogd.slurm.attendant import Post
from watchdogd.slurm.script import SUBMISSION

_ARGV = (sys.executable, "-P", "-m", "watchdogd.slurm.attendant")
_STDERR = 2
# Seconds from one start to the next.
_EVERY = 10.0


def post_of(
    file: str, host: str, local: str, program: Sequence[str], environ: Mapping[str, str]
) -> Post:
    """Return what an attendant is to do here, by what Slurm says in an element's environment."""
    number = environ.get(SUBMISSION, "")
    return Post(
        watchdog=os.getpid(),
        file=file,
        host=host,
        local=local,
        program=tuple(program),
        number=int(number) if number.isdecimal() else 0,
        job=environ.get("SLURM_JOB_ID", ""),
    )


class Attendance:
    """Sees to it that there is an attendant."""

    def __init__(self, post: Post, children: Children) -> None:
        self._post = post
        self._children = children
        self._child: Child | None = None
        self._start_at = 0.0

    def tend(self, now: float) -> None:
        """Start one if there is none."""
        if now < self._start_at or (self._child is not None and self._child.exit is None):
            return
        self._start_at = now + _EVERY
        # What it says belongs beside what the watchdog says: into the element's log.
        with suppress(OSError), open_fd(fcntl.fcntl(_STDERR, fcntl.F_DUPFD_CLOEXEC, 3)) as log:
            order = msgspec.json.encode(self._post)
            self._child = self._children.start(
                _ARGV, os.environ, order=order, output=log, directory="/", tied=True
            )
