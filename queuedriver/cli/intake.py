"""How documents enter a queue on the command's behalf, and what is said of those that did not."""

import contextlib
import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from queuedriver.cli import describe, say, say_some
from queuedriver.disk.filesystem import SYNC_ALL_FROM, Directory
from queuedriver.disk.journal import Journal, submitter
from queuedriver.errors import AlreadyThere, BadArgument
from queuedriver.format.names import JOURNAL
from queuedriver.operating.queue import Queue
from queuedriver.operating.submission import Submitted, entering_name

_CANNOT_CREATE = 73
_NOT_PERMITTED = 77


class Source(NamedTuple):
    """What is to be submitted, and the docid it is to have."""

    path: str
    docid: str


class Terms(NamedTuple):
    """How documents are submitted."""

    replace: bool = False
    durable: bool = True
    due: float | None = None


class Intake:
    """Submits to one queue, and remembers what became of each."""

    def __init__(self, queue: Queue, terms: Terms) -> None:
        host = socket.gethostname()
        self._queue = queue
        self._terms = terms
        self._journal = Journal(os.path.join(queue.private.path, JOURNAL), submitter(host), host)
        self._entered: list[Submitted] = []
        # Docids that wait in the queue already.
        self.refused: list[str] = []
        # Files that are in the queue, but where they came from too; in words.
        self._left: list[str] = []

    def read(self, docid: str) -> None:
        """Submit what comes on stdin."""
        if sys.stdin is None:
            raise BadArgument("--stdin: there is no standard input")
        for one in self._submit([(docid, sys.stdin.buffer)]):
            self._note(one, "from standard input")

    def copy(self, sources: Sequence[Source]) -> list[str]:
        """Submit copies; return the files whose copies entered."""
        paths = {source.docid: source.path for source in sources}
        entered = []
        for one in self._submit([(source.docid, source.path) for source in sources]):
            self._note(one, _origin(paths[one.docid]))
            entered.append(paths[one.docid])
        return entered

    def move(self, sources: Sequence[Source]) -> None:
        """Submit the files themselves: with one rename where they are on the queue's file system,
        so that each is always either here or there."""
        ours: list[Source] = []
        others: list[Source] = []
        device = self._queue.directory.status().st_dev
        for source in sources:
            (ours if _can_rename(source.path, device) else others).append(source)
        with contextlib.ExitStack() as at_end:
            parents = {}
            for path, _ in ours:
                where = os.path.dirname(path) or "."
                if where not in parents:
                    parents[where] = Directory.open(where)
                    at_end.callback(parents[where].close)
            others += self._rename(ours, parents)
        for path in self.copy(others):
            try:
                os.unlink(path)
            except OSError as error:
                why = describe(error)
                self._left.append(f"{path!r} is in the queue, but could not be taken away: {why}")

    def close(self) -> None:
        self._journal.close()
        if self._journal.unnoted:
            say(self._journal.unnoted)

    def report_refusals(self) -> int:
        """Say what is not as it was wanted; return the exit code."""
        path = self._queue.path
        where = f"waits in {path} already; use --replace, or another docid"
        say_some([f"{docid!r} {where}" for docid in self.refused], "document")
        say_some(self._left, "file")
        closed = self._queue.controls().done
        if closed:
            say(f"{path} was closed meanwhile; queuedriver reopen {path} goes on with it")
        if self.refused or closed:
            return _CANNOT_CREATE
        return _NOT_PERMITTED if self._left else 0

    def say_how_many(self, wanted: int) -> None:
        if self._entered:
            say(f"{len(self._entered):,} of {wanted:,} documents were submitted")

    def print_json(self) -> None:
        from queuedriver.cli.render import write_json

        submitted = [{"docid": one.docid, "name": one.name} for one in self._entered]
        write_json({"submitted": submitted, "refused": self.refused})

    def _submit(self, documents: Sequence[tuple[str, str | BinaryIO]]) -> Iterator[Submitted]:
        replace, durable, due = self._terms
        try:
            yield from self._queue.submit_many(documents, replace=replace, durable=durable, due=due)
        except AlreadyThere as error:
            self.refused += error.docids

    def _note(self, one: Submitted, message: str) -> None:
        self._entered.append(one)
        self._journal.note("submitted", one.docid, message=message)
        self._journal.flush_if_due(time.monotonic())

    def _rename(self, sources: Sequence[Source], parents: Mapping[str, Directory]) -> list[Source]:
        """Rename files in; return those that take a copy after all."""
        if self._terms.durable:
            self._sync(sources, parents)
        across = []
        target = self._queue.directory
        for source in sources:
            where, name = os.path.split(source.path)
            parent, final = parents[where or "."], entering_name(source.docid, self._terms.due)
            try:
                if self._terms.replace:
                    parent.rename_over(name, final, target)
                else:
                    parent.rename_new(name, final, target)
            except FileExistsError:
                self.refused.append(source.docid)
                continue
            except OSError as error:
                # A bind mount is another file system to a rename, though not by its number.
                if error.errno != errno.EXDEV:
                    raise
                across.append(source)
                continue
            self._note(Submitted(source.docid, final), _origin(source.path))
        if self._terms.durable:
            for directory in (target, *parents.values()):
                directory.sync()
        return across

    def _sync(self, sources: Sequence[Source], parents: Mapping[str, Directory]) -> None:
        """Sync the contents of files before they have names in the queue."""
        if len(sources) >= SYNC_ALL_FROM:
            self._queue.directory.sync_all()
            return
        for path, _ in sources:
            where, name = os.path.split(path)
            parents[where or "."].sync_file(name)


def _can_rename(path: str, device: int) -> bool:
    """Return whether a rename within this file system takes the file and leaves nothing of it."""
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_dev == device


def _origin(path: str) -> str:
    return f"from {os.path.abspath(path)}"
