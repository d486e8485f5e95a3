"""One watchdog for each host and pipeline: the second refuses, and names the first.

Of two with one state directory the kernel's lock tells, however the first has ended. Another one,
with another state directory, in a container, or on another host of the same name, is known by what
it says of itself below the root: it is there if its process is, or if it goes on saying so.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from queuedriver.claims.liveness import identify
from queuedriver.disk.lock import Held, locked
from queuedriver.disk.processes import HIDDEN
from queuedriver.errors import IdHeld, NotPermitted
from queuedriver.format.units import format_instant
from watchdogd.control import report_name
from watchdogd.driver_ids import lock_path
from watchdogd.host import answers
from watchdogd.report import HOSTS, Alien, HostReport, decode, last_report, ticks_of

# Seconds of silence after which a watchdog that cannot be seen from here is gone: it says something
# every four or five, which is copied with the next look at all queues, eleven seconds after the one
# before where a root is slow. And how often it is listened to.
_GONE_AFTER = 20.0
_LISTEN_EVERY = 0.5


@contextmanager
def only_one(root: str, host: str, local: str) -> Iterator[None]:
    """Hold the lock of this root and host; the kernel drops it however the process ends."""
    path = lock_path(root, host)
    with ExitStack() as at_end:
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            at_end.enter_context(locked(path))
        except Held:
            # The last report may be of the one before.
            report = last_report(local)
            raise _held(report if report and _runs(report) else None, host) from None
        except PermissionError as error:
            raise NotPermitted(
                f"{error.filename}: permission denied; set WATCHDOGD_STATE to a directory of yours"
            ) from None
        yield


def refuse_another(
    root: str, host: str, say: Callable[[str], None], silence: float = _GONE_AFTER
) -> None:
    """Raise IdHeld if a watchdog of another place keeps this root under this host's name."""
    path = os.path.join(root, HOSTS, report_name(host))
    # While the root does not answer, nobody can tell; and its drivers would not get their ids.
    if not answers(lambda: os.stat(path)):
        return
    first = _read(path)
    if first is None or first.host != host or first.state == "stopped":
        return
    is_there = _runs(first)
    if is_there is None:
        say(f"{_who(first)} may be elsewhere: listening to it for {silence:g} s")
        is_there = _goes_on(path, first, silence)
    if is_there:
        raise _held(first, host)


def _goes_on(path: str, first: HostReport, seconds: float) -> bool:
    """Listen to a watchdog for so long; return whether it says anything."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        time.sleep(min(_LISTEN_EVERY, seconds / 10))
        if (latest := _read(path)) is not None and latest != first:
            return latest.state != "stopped"
    return False


def _runs(report: HostReport) -> bool | None:
    """Return whether the process of a watchdog is there; None where it cannot be seen."""
    ticks = ticks_of(report, identify(os.getpid()))
    return None if ticks == HIDDEN else ticks == report.identity.ticks


def _held(report: HostReport | None, host: str) -> IdHeld:
    who = _who(report) if report is not None else "another watchdogd"
    return IdHeld(
        f"{who} keeps this pipeline on {host!r} already; stop that one, or give this host another "
        "name (--host)"
    )


def _who(report: HostReport) -> str:
    since = format_instant(report.started_at)
    return (
        f"watchdogd, process {report.pid}, with {report.pipeline} and its records in "
        f"{report.local} since {since},"
    )


def _read(path: str) -> HostReport | None:
    with suppress(OSError, Alien), open(path, "rb") as file:
        return decode(file.read())
    return None
