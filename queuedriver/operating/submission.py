"""Placing documents in a queue: written aside, made safe, then renamed in.

A crash leaves a file in `.queuedriver/incoming/`, which was never a document of the queue.
"""

import contextlib
import errno
import itertools
import math
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from queuedriver.claims.liveness import host_id
from queuedriver.disk.filesystem import Directory, copy_all, sync_written
from queuedriver.errors import AlreadyThere, BadArgument
from queuedriver.format import names
from queuedriver.format.units import format_count

Content = bytes | str | os.PathLike[str] | BinaryIO

# The year 9999, in seconds since the epoch.
_LAST_DUE = 253_402_300_799.0
# With this many to submit durably, one sync of the file system serves them all.
_TOGETHER = 256

_serials = itertools.count(1)


class Submitted(NamedTuple):
    """One document that is in the queue now."""

    docid: str
    name: str


class Submission(NamedTuple):
    """The terms on which documents enter a queue; one is a batch of one."""

    queue: Directory
    incoming: Directory
    replace: bool
    durable: bool
    due: float | None

    def many(self, documents: Iterable[tuple[str, Content]]) -> Iterator[Submitted]:
        """Let documents in, made safe together; AlreadyThere is raised when all others are in."""
        # The docid of each that is written aside, and where.
        aside: list[tuple[str, str]] = []
        refused: list[str] = []
        try:
            for docid, content in documents:
                names.check_docid(docid)
                unique = f"{host_id()}-{os.getpid()}-{next(_serials)}-{os.urandom(4).hex()}"
                aside.append((docid, unique))
                self._write(unique, content)
                if len(aside) >= _TOGETHER:
                    yield from self._enter_all(aside, refused)
            yield from self._enter_all(aside, refused)
        finally:
            for _, unique in aside:
                with contextlib.suppress(OSError):
                    self.incoming.remove(unique)
        if refused:
            words = f"{refused[0]!r} waits"
            if len(refused) > 1:
                words = f"{refused[0]!r} and {format_count(len(refused) - 1, 'other')} wait"
            mend = "use --replace, or another --docid"
            raise AlreadyThere(f"{words} in {self.queue.path} already; {mend}", refused)

    def _write(self, aside: str, content: Content) -> None:
        if isinstance(content, bytes):
            self.incoming.write_new(aside, content)
            return
        with os.fdopen(self.incoming.open_new(aside), "wb") as target:
            if isinstance(content, str | os.PathLike):
                with open(content, "rb") as source:
                    copy_all(source.fileno(), target.fileno())
            else:
                while block := content.read(1 << 20):
                    target.write(block)

    def _enter_all(self, aside: list[tuple[str, str]], refused: list[str]) -> Iterator[Submitted]:
        """Let in what was written aside, taking it off that list."""
        if self.durable:
            for unique in sync_written(self.incoming, [unique for _, unique in aside]):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), unique)
        entered = []
        try:
            while aside:
                docid, unique = aside[0]
                name = entering_name(docid, self.due)
                if self._enter(unique, name):
                    entered.append(Submitted(docid, name))
                else:
                    self.incoming.remove(unique)
                    refused.append(docid)
                del aside[0]
        finally:
            if self.durable and entered:
                self.queue.sync()
        yield from entered

    def _enter(self, aside: str, name: str) -> bool:
        """Rename a file in, unless that name is taken."""
        try:
            rename = self.incoming.rename_over if self.replace else self.incoming.rename_new
            rename(aside, name, self.queue)
        except FileExistsError:
            return False
        except OSError:
            # Of a rename that happened a network file system may have lost the reply. Nobody else
            # moves what we have written aside, so where it has gone from there, it is in.
            if self.incoming.present(aside) or self.incoming.moved():
                raise
        return True


def entering_name(docid: str, due: float | None) -> str:
    """Return the name under which a document enters: waiting, or not before an instant."""
    if due is None:
        return names.waiting_name(docid, 0)
    # Beyond these a name would be nobody's: negative, or of more digits than the grammar has.
    if not 0 <= due <= _LAST_DUE:
        raise BadArgument(f"{due!r} is no instant in seconds since the epoch")
    return names.later_name(docid, 0, math.ceil(due))
