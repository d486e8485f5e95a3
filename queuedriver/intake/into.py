"""The queue that an intake takes into: copies are written beside it, and renamed in.

    QUEUE/.queuedriver/intake/<name>     a copy on its way; its name has the N of whoever makes it
    QUEUE/.queuedriver/orphans/<name>    the same, when nobody seemed to want it any more
    QUEUE/<docid>.ready                  a document

A copy that was committed is published from either of the first two. Where it is in neither,
somebody has published it: copies are moved aside, and never deleted.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from queuedriver.claims.handoff import ORPHANS_INSIDE
from queuedriver.disk.filesystem import Directory, copy_all, move, open_fd
from queuedriver.disk.journal import Journal
from queuedriver.errors import is_trouble
from queuedriver.format import names


@contextmanager
def by_itself() -> Iterator[None]:
    """Let what may not be done to one file, or has been done by another, keep nobody from the
    others; what speaks of the file system is raised."""
    try:
        yield
    except OSError as error:
        if is_trouble(error):
            raise


class Into:
    """One queue, as an intake has it open."""

    def __init__(
        self, queue: Directory, copies: Directory, journal: Journal, *, durable: bool
    ) -> None:
        self.queue = queue
        self.copies = copies
        self.journal = journal
        self.durable = durable

    def copy(self, source: int, aside: str) -> None:
        """Write a copy of an open file, safely if that is wanted. A crash leaves a part of it,
        under a name that nobody has committed."""
        # Of our own last try, whose end we were not told.
        self.copies.remove(aside)
        with open_fd(self.copies.open_new(aside)) as target:
            copy_all(source, target)
            if self.durable:
                os.fsync(target)
        if self.durable:
            self.copies.sync()

    def publish(self, aside: str, docid: str, token: str) -> str | None:
        """Let a copy that was committed into the queue; return its name there, or None when
        somebody else has done so."""
        final = self.enter(self.copies, aside, docid, token)
        if final is None and (orphans := self.queue.look_into(ORPHANS_INSIDE)) is not None:
            with orphans:
                final = self.enter(orphans, aside, docid, token)
        if final is not None and self.durable:
            self.queue.sync()
        return final

    def enter(self, source: Directory, name: str, docid: str, token: str) -> str | None:
        """Rename a file into the queue, under a second docid where its own is taken; return the
        name that it got, or None when it was gone."""
        return move(source, name, self.queue, names.waiting_name(docid, 0), token)

    def set_aside(self, aside: str) -> None:
        """Move a copy that nobody wants aside: to see no claim of it proves nothing."""
        with self.queue.subdirectory(ORPHANS_INSIDE, create=True) as orphans:
            move(self.copies, aside, orphans, aside, "")

    def note(self, event: str, docid: str, message: str, final: str | None = None) -> None:
        """Note what has happened to a document, and under which docid it goes on."""
        entered = names.parse(final) if final else None
        renamed = entered.docid if entered is not None and entered.docid != docid else None
        self.journal.note(event, docid, message=message, renamed=renamed)
        self.journal.flush_if_due(time.monotonic())
