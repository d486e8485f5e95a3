"""How an idle driver waits: for a hint that something came, for a signal, or for its next look.

A hint comes from inotify, through the watchdog package, and is only ever a hint: it may come for
nothing, and it may not come at all (the kernel's queue of events overflows, the directory was
replaced, another host made the change). So drivers look again after a second while `hinted`, and
after up to five while not. Order matters, or an item that comes in between waits for so long:

    waker.arm()              watch first,
    look                     then look for the last time,
    waker.wait(seconds)      then sleep;
    waker.disarm()           and watch nothing while there is work: a driver's own renames would
                             come back to it as events, at more cost than the work itself

Where inotify cannot help (`--poll`, a file system that other hosts may change, no watches left)
`arm` does nothing, and `wait` sleeps until the time is up.

A process that forks closes its waker first: watchdog's threads do not survive in the child.
"""

import errno
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from queuedriver.disk.mounts import filesystem_type, is_network

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.inotify import InotifyObserver

Woken = Literal["hint", "signal", "other", "timeout"]

# Seconds. After inotify failed once, it is a while until it is worth asking again: watches and
# instances are counted per user, and other drivers hold them.
_RETRY = 60.0
# Milliseconds: the longest poll(2) we ask for; nobody means to sleep for a day.
_LONGEST = 86_400_000
# Made once: it costs more than a watch. What speaks of the thread that it hits ends the process all
# the same.
_SIGNALS = signal.valid_signals()


class Waker:
    """Sleeps over some directories. `interesting` tells which new names are worth waking for; it
    is called in watchdog's thread and must be pure.
    """

    def __init__(
        self,
        paths: Sequence[str],
        poll: bool,
        wake_fd: int,
        interesting: Callable[[str], bool],
        *,
        writes: bool = False,
    ) -> None:
        self.paths = tuple(paths)
        # When it is worth asking for hints again, where there are none; 0 while nothing is known to
        # speak against them.
        self._retry_at = math.inf if poll else 0.0
        self._interesting = interesting
        # Whether the end of a writing is worth a hint, too, and not just a new name.
        self._writes = writes
        self._observer: InotifyObserver | None = None
        self._armed = False
        self._hint_fd = -1
        self._wake_fd = wake_fd
        self._poll = select.poll()
        if wake_fd >= 0:
            self._poll.register(wake_fd, select.POLLIN)

    @property
    def loaded(self) -> bool:
        """Return whether watching costs little: its import is done, its threads are there."""
        return self._retry_at > 0.0 or self._observer is not None

    @property
    def hinted(self) -> bool:
        """Return whether inotify watches all the directories right now."""
        if not self._armed or self._observer is None or not self._observer.is_alive():
            return False
        # A watch ends with its directory.
        return all(emitter.is_alive() for emitter in self._observer.emitters)

    def arm(self) -> None:
        """Start watching, where that is possible. What comes from now on is hinted."""
        if self.hinted:
            return
        if self._armed:
            self.disarm()
        now = time.monotonic()
        if now < self._retry_at:
            return
        try:
            self._watch()
        except (OSError, RuntimeError, ImportError):
            # No watches, descriptors or threads left, a directory that is not there or that other
            # hosts may change, a watchdog that was built for something else: polling needs none.
            self.close()
            self._retry_at = now + _RETRY

    def wait(self, seconds: float) -> Woken:
        """Sleep, in one poll(2), until there is a hint, a signal, or nothing more to wait for."""
        ready = dict(self._poll.poll(min(max(seconds, 0.0) * 1000.0, _LONGEST)))
        if self._wake_fd in ready:
            return "signal"
        if self._hint_fd in ready:
            return "hint"
        return "other" if ready else "timeout"

    def also(self, fd: int) -> None:
        """Wake for this descriptor, too, whatever it is of."""
        self._poll.register(fd, select.POLLIN)

    def disarm(self) -> None:
        """Watch nothing, forget hints that came. The threads stay, asleep, for the next `arm`."""
        self._armed = False
        if self._observer is not None:
            self._observer.unschedule_all()
        self.heed()

    def heed(self) -> None:
        """Forget hints that came, and watch on."""
        if self._hint_fd >= 0:
            with suppress(BlockingIOError):
                os.eventfd_read(self._hint_fd)

    def close(self) -> None:
        """End the threads and give every descriptor back. `arm` may follow."""
        self._armed = False
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            if observer.is_alive():
                observer.join()
        # Only now: no thread is left that might write to a descriptor which by then is another's.
        if self._hint_fd >= 0:
            self._poll.unregister(self._hint_fd)
            os.close(self._hint_fd)
            self._hint_fd = -1

    def dispatch(self, event: "FileSystemEvent") -> None:
        """Hint that a name has appeared; called in watchdog's thread."""
        # A move has a destination; a creation, and a move from elsewhere, only a source.
        if self._interesting(os.path.basename(os.fsdecode(event.dest_path or event.src_path))):
            os.eventfd_write(self._hint_fd, 1)

    def _watch(self) -> None:
        if self._observer is None and any(is_network(filesystem_type(one)) for one in self.paths):
            raise OSError(errno.EOPNOTSUPP, "other hosts may change it unseen")
        # Not at the top: its import is a tenth of a cold start, and most commands never wait.
        from watchdog.events import FileClosedEvent, FileCreatedEvent, FileMovedEvent
        from watchdog.observers.inotify import InotifyObserver

        # Of watchdog's handlers just `dispatch` is called.
        handler: Any = self
        with _as_we_need_it():
            if self._observer is None:
                self._hint_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self._poll.register(self._hint_fd, select.POLLIN)
                self._observer = InotifyObserver()
                self._observer.start()
            wanted = [FileMovedEvent, FileCreatedEvent, *([FileClosedEvent] * self._writes)]
            for path in self.paths:
                self._observer.schedule(handler, path, event_filter=wanted)
        self._armed = True


@contextmanager
def _as_we_need_it() -> Iterator[None]:
    """Make threads that leave signals to the main one, whose calls those are to interrupt; and
    watches that do not wait for the other half of a move.

    A file that is moved out of the directory has no other half, and would block all hints for half
    a second. Watches take the delay over when they are made; it is put back for those of the user.
    """
    import logging

    from watchdog.observers.inotify_move_event_grouper import InotifyMoveEventGrouper

    # Overflows, and watches that end, are expected here, and nothing for a driver's stderr.
    # Somebody who has set up logging still gets them.
    logger = logging.getLogger("watchdog")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    delay, InotifyMoveEventGrouper.delay = InotifyMoveEventGrouper.delay, 0.0
    try:
        yield
    finally:
        InotifyMoveEventGrouper.delay = delay
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
