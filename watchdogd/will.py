"""The watchdog's last will: while it lives, so does a warden that sees to what it leaves."""

import math
import os
import sys

from watchdogd.events import Say
from watchdogd.logs import open_log
from watchdogd.orphans import begin_of_lives
from watchdogd.process import Process, spawn

# A warden that ends by itself has been ended by somebody; that is nothing to wait for.
_RESTART_EVERY = 10.0
# SIGKILL works at once, but for a process that waits in the kernel.
_KILL_TAKES = 2.0
_LOG_SIZE = 1_000_000


class Will:
    """Instants are monotonic, and arguments."""

    def __init__(self, local: str, say: Say, *, needed: bool) -> None:
        self._local = local
        self._say = say
        # Drivers that may outlive their watchdog need nobody who ends them.
        self._needed = needed
        self._warden: Process | None = None
        self._may_start_at = -math.inf

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when there is no warden any more."""
        return [self._warden.pidfd] if self._warden is not None else []

    @property
    def pids(self) -> set[int]:
        return {self._warden.pid} if self._warden is not None else set()

    def tend(self, now: float) -> float:
        """See to it that there is a warden; when to come back at the latest."""
        if self._warden is not None and self._warden.reap() is not None:
            self._warden.close()
            self._warden = None
        if self._needed and self._warden is None and now >= self._may_start_at:
            self._may_start_at = now + _RESTART_EVERY
            try:
                self._warden = self._start()
            except OSError as error:
                self._say("note", f"cannot start the warden, which would end deaf drivers: {error}")
        waits = self._needed and self._warden is None
        return self._may_start_at if waits else math.inf

    def _start(self) -> Process:
        argv = (sys.executable, "-P", "-m", "watchdogd.warden", str(os.getpid()))
        log = open_log(os.path.join(self._local, "warden.log"), _LOG_SIZE, 1)
        try:
            return spawn((*argv, begin_of_lives(), self._local), os.environ, stderr=log)
        finally:
            os.close(log)

    def close(self) -> None:
        """The watchdog leaves, and leaves nothing."""
        if self._warden is None:
            return
        self._warden.kill()
        self._warden.await_end(_KILL_TAKES)
        self._warden.close()
        self._warden = None
