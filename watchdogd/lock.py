"""One watchdog for each host and pipeline: the second refuses, and names the first."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from filelock import FileLock, Timeout

from queuedriver.errors import IdHeld, NotPermitted
from queuedriver.format.records import decode
from queuedriver.format.units import format_instant
from watchdogd.driver_ids import lock_path


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
