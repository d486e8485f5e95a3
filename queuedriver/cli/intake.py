"""How documents enter a queue on the command's behalf, and what is said of those that did not."""

import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import BinaryIO, NamedTuple, Self

from queuedriver.cli import describe, say, say_some
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, submitter
from queuedriver.errors import AlreadyThere, NotPermitted
from queuedriver.format.names import JOURNAL
from queuedriver.operating.queue import Queue
from queuedriver.operating.submission import Submitted, entering_name


class Source(NamedTuple):
    """A file that is to be submitted, or standard input, and the docid it is to have."""

    docid: str
    # Empty: standard input.
    path: str = ""

    @property
    def content(self) -> str | BinaryIO:
        return self.path or sys.stdin.buffer

    @property
    def origin(self) -> str:
        return f"from {os.path.abspath(self.path)}" if self.path else "from standard input"


class Terms(NamedTuple):
    """The terms on which documents enter a queue."""

    replace: bool = False
    durable: bool = True
    due: float | None = None


class Intake:
    """Submits to one queue, and remembers what became of each."""

    def __init__(self, queue: Queue, terms: Terms, wanted: int, as_json: bool) -> None:
        host = socket.gethostname()
        self._queue = queue
        self._terms = terms
        # How many were to be submitted.
        self._wanted = wanted
        self._as_json = as_json
        self._journal = Journal(os.path.join(queue.private.path, JOURNAL), submitter(host), host)
        self._entered: list[Submitted] = []
        # Docids that wait in the queue already.
        self._refused: list[str] = []
        # Files that are in the queue, but where they came from too; in words.
        self._left: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            self._say_how_many()
        self._journal.close()
        if self._journal.unnoted:
            say(self._journal.unnoted)
        if self._as_json:
            from queuedriver.cli.render import write_json

            submitted = [{"docid": one.docid, "name": one.name} for one in self._entered]
            write_json({"submitted": submitted, "refused": self._refused})

    def copy(self, sources: Sequence[Source]) -> list[str]:
        """Submit copies; return the files whose copies entered."""
        found = {source.docid: source for source in sources}
        entered = []
        documents = [(source.docid, source.content) for source in sources]
        try:
            for one in self._queue.submit_many(documents, **self._terms._asdict()):
                self._note(one, found[one.docid])
                entered.append(found[one.docid].path)
        except AlreadyThere as error:
            self._refused += error.docids
        return entered

    def move(self, sources: Sequence[Source]) -> None:
        """Submit the files themselves: with one rename where they are on the queue's file system,
        so that each is always either here or there."""
        ours: list[Source] = []
        others: list[Source] = []
        device = self._queue.directory.status().st_dev
        for source in sources:
            (ours if _can_rename(source.path, device) else others).append(source)
        for path in self.copy(others + self._rename(ours)):
            try:
                os.unlink(path)
            except OSError as error:
                why = describe(error)
                self._left.append(f"{path!r} is in the queue, but could not be taken away: {why}")

    def report_refusals(self) -> int:
        """Say what is not as it was wanted; return the exit code."""
        path = self._queue.path
        where = f"waits in {path} already; use --replace, or another docid"
        say_some([f"{docid!r} {where}" for docid in self._refused], "document")
        say_some(self._left, "file")
        closed = self._queue.controls().done
        if closed:
            say(f"{path} was closed meanwhile; queuedriver reopen {path} goes on with it")
        if len(self._entered) < self._wanted:
            self._say_how_many()
        if self._refused or closed:
            return AlreadyThere.exit_code
        return NotPermitted.exit_code if self._left else 0

    def _say_how_many(self) -> None:
        if self._entered:
            say(f"{len(self._entered):,} of {self._wanted:,} documents were submitted")

    def _note(self, one: Submitted, source: Source) -> None:
        self._entered.append(one)
        self._journal.note("submitted", one.docid, message=source.origin)
        self._journal.flush_if_due(time.monotonic())

    def _rename(self, sources: Sequence[Source]) -> list[Source]:
        """Rename files in; return those that take a copy after all."""
        target = self._queue.directory
        rename = target.rename_over if self._terms.replace else target.rename_new
        paths = [os.path.abspath(source.path) for source in sources]
        if self._terms.durable:
            # Before they have names in the queue.
            target.sync_files(paths)
        across = []
        for source, path in zip(sources, paths, strict=True):
            final = entering_name(source.docid, self._terms.due)
            try:
                rename(path, final)
            except FileExistsError:
                self._refused.append(source.docid)
            except OSError as error:
                # A bind mount is another file system to a rename, though not by its number.
                if error.errno != errno.EXDEV:
                    raise
                across.append(source)
            else:
                self._note(Submitted(source.docid, final), source)
        if self._terms.durable and sources:
            target.sync()
            for parent in {os.path.dirname(path) for path in paths}:
                with closing(Directory.open(parent)) as directory:
                    directory.sync()
        return across


def _can_rename(path: str, device: int) -> bool:
    """Return whether a rename within this file system takes the file and leaves nothing of it."""
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_dev == device
