"""The lock of a file (flock): one process at a time holds it, and the kernel lets go of it however
that process ends.

Mostly nobody else holds it. All that is less simple is left to filelock, which waits, and knows
file systems without locks; it is imported only then, for that takes a fifth of a driver's start.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

# Not through a link, and never waiting for whoever has a lease on it; as filelock does.
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MODE = 0o666
# From one try to the next of who waits, in seconds, and how that grows.
_SHORTEST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_LONGER = 1.5


class Held(Exception):
    """Somebody else holds the lock, and has for as long as one was ready to wait."""


@contextmanager
def locked(path: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is missing; Held when somebody else does for all
    these seconds, OSError when it cannot be locked."""
    fd, is_new = _opened(path)
    with ExitStack() as at_end:
        at_end.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A child of ours may have the descriptor, too, and hang.
            at_end.callback(fcntl.flock, fd, fcntl.LOCK_UN)
        except OSError as error:
            if is_new and error.errno == errno.ENOSYS:
                # There the file itself is the lock, and this one is nobody's.
                os.unlink(path)
            at_end.enter_context(_patiently(path, patience))
        yield


def _opened(path: str) -> tuple[int, bool]:
    """Open a file; return its descriptor, and whether it is new."""
    with suppress(FileExistsError):
        return os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, _MODE), True
    return os.open(path, _OPEN), False


def _patiently(path: str, patience: float) -> AbstractContextManager[object]:
    """Wait for a lock, however that is done there; return what lets go of it."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False, is_singleton=False)
    until = time.monotonic() + patience
    for pause in pauses():
        with suppress(Timeout):
            return lock.acquire(blocking=False)
        if time.monotonic() >= until:
            break
        time.sleep(pause)
    raise Held(path)


def pauses() -> Iterator[float]:
    """Yield how long to wait before each further try, in seconds: each is a few requests to the
    server of a network file system, of which hundreds may wait that start together."""
    pause = _SHORTEST_PAUSE
    while True:
        yield pause
        pause = min(_LONGER * pause, _LONGEST_PAUSE)
