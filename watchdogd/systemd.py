"""Tells the service manager, by systemd's protocol: datagrams to `$NOTIFY_SOCKET`.

Silently nothing where nobody asked to be told. Only the watchdog's own loop calls this, in its
turns: a beat from a thread would say that a loop is well that hangs.
"""

import contextlib
import re
import socket
from collections.abc import MutableMapping

# A status line that is longer tells nobody more.
_MOST = 500
_KIND = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK


class Notifier:
    """Whoever is told; or nobody."""

    def __init__(self, environ: MutableMapping[str, str], pid: int) -> None:
        """Take what the environment of this process says out of it: our children must not speak."""
        address = environ.pop("NOTIFY_SOCKET", "")
        interval = environ.pop("WATCHDOG_USEC", "")
        is_meant = environ.pop("WATCHDOG_PID", str(pid)) == str(pid)
        # Seconds within which the service manager wants to hear `beat`; None: it does not care.
        self.interval: float | None = None
        if address and is_meant and interval.isdecimal():
            self.interval = int(interval) / 1e6 or None
        # Empty where nobody wants to hear anything.
        self._address = re.sub("^@", "\0", address) if address.startswith(("/", "@")) else ""
        self._status = ""
        self._is_started = False

    def started(self) -> None:
        """Say that it is ready, the first time that this is known."""
        if not self._is_started:
            self._is_started = True
            self.ready()

    def ready(self) -> None:
        self._send("READY=1")

    def status(self, words: str) -> None:
        """Say a line for people; again only when it has changed."""
        words = " ".join(words.split())[:_MOST]
        if words != self._status and self._send(f"STATUS={words}"):
            self._status = words

    def beat(self) -> None:
        """Say that the loop is well; at least twice in each interval."""
        self._send("WATCHDOG=1")

    def reloading(self, now: float) -> None:
        """Say that the file is read again, `ready` being next. `now` is monotonic."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(now * 1e6)}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def extend(self, seconds: float) -> None:
        """Say that starting or stopping will take so many seconds more."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def _send(self, words: str) -> bool:
        if not self._address:
            return False
        # A service manager that is not there, or has no time, is no trouble of the queues.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, _KIND) as ours:
            ours.sendto(words.encode(errors="replace"), self._address)
            return True
        return False
