"""How documents enter a queue on the command's behalf, and what is said of those that did not."""

import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Mapping
from typing import Self

from queuedriver.cli import describe, say, say_some
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, journal_path, submitter
from queuedriver.errors import AlreadyThere, NotPermitted
from queuedriver.operating.queue import Queue
from queuedriver.operating.submission import Submission, Submitted, entering_name


class Submitting:
    """Submits to one queue, and remembers what became of each. Sources are paths by the docids that
    they are to have; an empty one is standard input."""

    def __init__(self, queue: Queue, terms: Submission, wanted: int, as_json: bool) -> None:
        host = socket.gethostname()
        self._queue = queue
        self._terms = terms
        # How many were to be submitted.
        self._wanted = wanted
        self._as_json = as_json
        self._journal = Journal(journal_path(queue.path), submitter(host), host)
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

    def copy(self, sources: Mapping[str, str]) -> None:
        """Submit copies."""
        documents = [(docid, path or sys.stdin.buffer) for docid, path in sources.items()]
        try:
            for one in self._terms.many(documents):
                self._note(one, sources[one.docid])
        except AlreadyThere as error:
            self._refused += error.docids

    def move(self, sources: Mapping[str, str]) -> None:
        """Submit the files themselves: with one rename where they are on the queue's file system,
        so that each is always either here or there."""
        device = self._queue.directory.status().st_dev
        ours = {docid: path for docid, path in sources.items() if _can_rename(path, device)}
        others = {docid: path for docid, path in sources.items() if docid not in ours}
        copied = others | self._rename(ours)
        self.copy(copied)
        for path in [copied[one.docid] for one in self._entered if one.docid in copied]:
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

    def _note(self, one: Submitted, path: str) -> None:
        self._entered.append(one)
        origin = os.path.abspath(path) if path else "standard input"
        self._journal.note("submitted", one.docid, message=f"from {origin}")
        self._journal.flush_if_due(time.monotonic())

    def _rename(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Rename files in; return those that take a copy after all."""
        target = self._queue.directory
        rename = target.rename_over if self._terms.replace else target.rename_new
        paths = {docid: os.path.abspath(path) for docid, path in sources.items()}
        if self._terms.durable:
            # Before they have names in the queue.
            target.sync_files(paths.values())
        across = {}
        for docid, path in paths.items():
            final = entering_name(docid, self._terms.due)
            try:
                # One that is not there is nobody's lost reply: anybody may have taken it away.
                rename(path, final)
                self._note(Submitted(docid, final), path)
            except FileExistsError:
                self._refused.append(docid)
            except OSError as error:
                # A bind mount is another file system to a rename, though not by its number.
                if error.errno != errno.EXDEV:
                    raise
                across[docid] = sources[docid]
        if self._terms.durable and sources:
            target.sync()
            for parent in set(map(os.path.dirname, paths.values())):
                with Directory.open(parent) as directory:
                    directory.sync()
        return across


def _can_rename(path: str, device: int) -> bool:
    """Return whether a rename within this file system takes the file and leaves nothing of it."""
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_dev == device
