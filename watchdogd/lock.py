"""One watchdog for each host and pipeline: the second refuses, and names the first.

Of two with one state directory the kernel's lock tells, however the first has ended. Another one,
with another state directory, in a container, or on another host of the same name, is known by what
it says of itself below the root: it is there if its process is, or if it goes on saying so.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
from filelock import FileLock, Timeout

from queuedriver.claims.liveness import HIDDEN, identify, process_ticks
from queuedriver.errors import IdHeld, NotPermitted
from queuedriver.format.records import decode
from queuedriver.format.units import format_instant
from watchdogd.control import host_file
from watchdogd.places import lock_path
from watchdogd.report import HOSTS, Alien, HostReport
from watchdogd.report import decode as decode_report
from watchdogd.report_file import answers

# Seconds of silence after which a watchdog that cannot be seen from here is gone: it says something
# every two. And how often it is listened to.
SILENCE = 10.0
_LISTEN_EVERY = 0.5


class Holder(msgspec.Struct, frozen=True):
    """Who holds the lock; beside it, for people."""

    pid: int
    file: str
    since: float


@contextmanager
def only_one(root: str, host: str, file: str, now: float) -> Iterator[None]:
    """Hold the lock of this root and host; the kernel drops it however the process ends."""
    path = lock_path(root, host)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        lock = FileLock(path, blocking=False, thread_local=False, is_singleton=False)
        lock.acquire()
    except Timeout:
        raise IdHeld(
            f"{_holder(path)} keeps this pipeline on {host!r} already; stop that one"
        ) from None
    except PermissionError as error:
        raise NotPermitted(
            f"{error.filename}: permission denied; set WATCHDOGD_STATE to a directory of yours"
        ) from None
    try:
        with open(f"{path}.holder", "wb") as file_of_holder:
            file_of_holder.write(msgspec.json.encode(Holder(os.getpid(), file, now)))
        yield
    finally:
        lock.release()


def _holder(path: str) -> str:
    with suppress(OSError, msgspec.DecodeError), open(f"{path}.holder", "rb") as file:
        holder = decode(file.read(), Holder)
        return (
            f"watchdogd, process {holder.pid}, with {holder.file} "
            f"since {format_instant(holder.since)},"
        )
    return "another watchdogd"


def refuse_another(
    root: str, host: str, say: Callable[[str], None], silence: float = SILENCE
) -> None:
    """Raise IdHeld if a watchdog of another place keeps this root under this host's name."""
    path = os.path.join(root, HOSTS, f"{host_file(host)}.json")
    # While the root does not answer, nobody can tell; and its drivers would not get their ids.
    if not answers(lambda: os.stat(path)):
        return
    first = _read(path)
    if first is None or first.host != host or first.state == "stopped":
        return
    who = f"watchdogd, process {first.pid}, with {first.pipeline} and its records in {first.local},"
    them, me = first.identity, identify(os.getpid())
    if (them.boot, them.namespace) == (me.boot, me.namespace):
        is_there = process_ticks(them.pid) in (them.ticks, HIDDEN)
    else:
        say(f"{who} ended without a word, or is elsewhere: listening to it for {silence:g} s")
        is_there = _goes_on(path, first, silence)
    if is_there:
        raise IdHeld(
            f"{who} keeps this pipeline on {host!r} already; stop that one, or give this host "
            "another name (--host)"
        )


def _goes_on(path: str, first: HostReport, seconds: float) -> bool:
    """Listen to a watchdog for so long; return whether it says anything."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        time.sleep(min(_LISTEN_EVERY, seconds / 10))
        if (latest := _read(path)) is not None and latest != first:
            return latest.state != "stopped"
    return False


def _read(path: str) -> HostReport | None:
    with suppress(OSError, Alien), open(path, "rb") as file:
        return decode_report(file.read())
    return None
