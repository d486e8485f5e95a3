"""One input queue as its driver sees it: what to try next, and what to do with a claim."""

import os
import time
from collections.abc import Collection
from typing import NamedTuple

from queuedriver.claims.handoff import Handoff
from queuedriver.claims.liveness import DRIVERS, Observer
from queuedriver.claims.outputs import Target
from queuedriver.claims.picking import Candidate, Order, Picker
from queuedriver.claims.recovery import Recoverer
from queuedriver.claims.setbacks import Setbacks
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal
from queuedriver.disk.output_id import landmark
from queuedriver.errors import FileSystemTrouble
from queuedriver.format import names
from queuedriver.format.names import PRIVATE
from queuedriver.format.settings import FILE, Settings
from queuedriver.operating.queue import JOURNAL, Controls, Queue

# An empty queue is not listed again sooner while a driver has others to work on.
_REST = 0.05
# How often it is looked whether somebody has registered, when races are lost.
_MEET_EVERY = 0.005
# Items of other users that are noted, each once.
_MOST_NOTED = 1000


class Owner(NamedTuple):
    """The driver on whose behalf a lane works."""

    driver: str
    salt: str
    host: str
    held: set[str]


class Lane:
    """An input queue, its hand-off, its order and its recovery."""

    def __init__(
        self,
        queue: Queue,
        targets: tuple[Target, ...],
        settings: Settings,
        owner: Owner,
        observer: Observer,
        order: Order = "fair",
        archive: Directory | None = None,
        await_writing: bool = True,
    ) -> None:
        self.queue = queue
        self.drivers = queue.private.subdirectory(DRIVERS, create=True)
        self.journal = Journal(os.path.join(queue.private.path, JOURNAL), owner.driver, owner.host)
        self.handoff = Handoff(queue.directory, queue.private, targets, settings, archive)
        self.setbacks = Setbacks(self.handoff, queue.name, owner.host, self.journal)
        self.recoverer = Recoverer(
            queue.directory,
            self.drivers,
            self.handoff,
            self.setbacks,
            self.journal,
            observer,
            (owner.driver, owner.salt),
            owner.held,
        )
        found = queue.directory.status()
        self._identity = found.device, found.inode
        # Who is there already, before we register.
        self.recoverer.roster.refresh()
        self.picker = Picker(queue.directory, order, owner.driver, self._alive)
        self.controls = Controls()
        # Who has registered since the registrations were read, and when that was looked at.
        self._met: set[str] = set()
        self._met_at = 0.0
        self._await_writing = await_writing
        self._rest_until = 0.0
        # The directory's mtime before the pass at hand, and since when it is empty and unchanged.
        self._mtime = 0
        self._in_pass = False
        # Items that may not be claimed, and have been noted.
        self._noted: set[str] = set()
        self._empty_mtime: int | None = None
        self._empty_since = 0.0

    def close(self) -> None:
        self.picker.restart()
        self.journal.close()
        self.handoff.close()
        self.drivers.close()
        self.queue.close()

    def reopen(self) -> None:
        """After trouble: every descriptor may be stale."""
        self.picker.restart()
        self._in_pass = False
        directories = (
            self.queue.directory,
            self.queue.private,
            self.drivers,
            *self.handoff.directories(),
        )
        for directory in directories:
            # What is missing inside the queue was removed by hand. Elsewhere it may be a mount that
            # went away, and what is made in its place would be on another file system.
            directory.reopen(create=directory.path.startswith(f"{self.queue.path}/"))
            if directory is self.queue.directory:
                self._recognize()

    def _recognize(self) -> None:
        """Raise while there is another directory at the queue's path: it is not mounted."""
        found = self.queue.directory.status()
        same = (found.device, found.inode) == self._identity
        if not same and not self.queue.directory.present(os.path.join(PRIVATE, FILE)):
            raise FileSystemTrouble(
                f"{self.queue.path} is not the queue that it was; is it mounted?"
            )

    def probe(self) -> None:
        """Raise while the input or an output cannot be written, or is another than it was."""
        self.queue.private.probe()
        for target in self.handoff.targets:
            target.directory.probe()
            if target.landmark and landmark(target.directory) != target.landmark:
                raise FileSystemTrouble(
                    f"{target.directory.path} is not the directory that it was; is it mounted?"
                )

    def next(self, now: float, alone: bool) -> Candidate | None:
        """The next item to try; None after a pass that had none, or while this lane rests."""
        while True:
            if not self._in_pass:
                if now < self._rest_until:
                    return None
                self._mtime = self.queue.directory.status().mtime_ns
                self._in_pass = True
            if given := self.picker.names(1, now):
                if (candidate := self._candidate(given[0])) is not None:
                    return candidate
                continue
            self._in_pass = False
            self._end_of_pass(now)
            # After a pass that gave work there may be more; after one whose every item was somebody
            # else's (or a ghost of a stale listing) only waiting helps.
            if self.picker.counts.got <= 0:
                if not alone:
                    self._rest_until = now + _REST
                return None

    def _candidate(self, name: str) -> Candidate | None:
        docid = names.plain_docid(name)
        if docid is not None:
            return Candidate(name, docid, 0)
        item = names.parse(name)
        if item is None:
            self.picker.foreign(name)
            return None
        return Candidate(name, item.docid, item.attempt)

    def _alive(self, anew: bool) -> Collection[str]:
        """Who lives, as far as is known; asked anew, with whoever has registered meanwhile."""
        now = time.monotonic()
        if anew and now - self._met_at >= _MEET_EVERY:
            self._met_at = now
            listed = {name[:-5] for name in self.drivers.names() if name.endswith(".json")}
            self._met = listed - self.recoverer.roster.owners.keys()
        return self._met.union(one.id for one in self.recoverer.roster.alive)

    def lost(self) -> None:
        """The last item was somebody else's."""
        self.picker.lost()

    def refused(self, candidate: Candidate, error: PermissionError) -> None:
        """The last item may not be renamed by us, as another user's in a sticky directory: it is
        left where it is, and keeps nobody from the others. Raises where the queue is to blame."""
        self.picker.refused()
        if candidate.name in self._noted:
            return
        self.check_writable()
        if len(self._noted) < _MOST_NOTED:
            self._noted.add(candidate.name)
            message = f"it may not be claimed ({error.strerror}): another user's, who must move it"
            self.journal.note("refused", candidate.docid, message=message)

    def check_writable(self) -> None:
        """Raise where we may write no file, be it in the input or in an output."""
        for directory in (self.queue.directory, *(one.directory for one in self.handoff.targets)):
            name = f".probe-{os.getpid()}"
            directory.write_aside(name, b"")
            directory.remove(name)

    @property
    def sharers(self) -> int:
        """How many drivers take from this queue, as of the latest pass."""
        return self.picker.sharers

    def wake(self) -> None:
        self._rest_until = 0.0

    def empty_for(self, now: float) -> float:
        """For how long the queue has been seen empty by whole listings; negative if it is not."""
        return now - self._empty_since if self._empty_mtime is not None else -1.0

    def _end_of_pass(self, now: float) -> None:
        """Two listings prove it drained only when the directory did not change from before the
        first to after the second."""
        if not self._await_writing:
            self.picker.counts.writing = 0
        if self.picker.counts.left:
            # What nobody has tried may be no item at all; the next pass tries everything.
            return
        if self.picker.counts.unfinished:
            self._empty_mtime = None
            return
        after = self.queue.directory.status().mtime_ns
        if self._empty_mtime != after:
            unchanged = self._mtime == after
            self._empty_mtime = after if unchanged else None
            self._empty_since = now
