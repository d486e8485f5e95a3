"""The watchdog's last will: while it lives, so does a warden that sees to what it leaves."""

import math
import os
import sys

from watchdogd.children import Child, Children, begin_of_lives
from watchdogd.events import Say
from watchdogd.logs import open_log

# A warden that ends by itself has been ended by somebody; that is nothing to wait for.
_RESTART_EVERY = 10.0
_LOG_SIZE = 1_000_000


class Will:
    """Instants are monotonic, and arguments."""

    def __init__(self, local: str, say: Say, children: Children, *, needed: bool) -> None:
        self._local = local
        self._say = say
        self._children = children
        # Drivers that may outlive their watchdog need nobody who ends them.
        self._needed = needed
        self._warden: Child | None = None
        self._may_start_at = -math.inf

    def tend(self, now: float) -> float:
        """See to it that there is a warden; when to come back at the latest."""
        if self._warden is not None and self._warden.exit is not None:
            self._warden = None
        if self._needed and self._warden is None and now >= self._may_start_at:
            self._may_start_at = now + _RESTART_EVERY
            try:
                self._warden = self._start()
            except OSError as error:
                self._say("note", f"cannot start the warden, which would end deaf drivers: {error}")
        waits = self._needed and self._warden is None
        return self._may_start_at if waits else math.inf

    def _start(self) -> Child:
        argv = (sys.executable, "-P", "-m", "watchdogd.warden", str(os.getpid()))
        log = open_log(os.path.join(self._local, "warden.log"), _LOG_SIZE, 1)
        try:
            words = (*argv, begin_of_lives(), self._local)
            return self._children.start(words, os.environ, stderr=log)
        finally:
            os.close(log)
