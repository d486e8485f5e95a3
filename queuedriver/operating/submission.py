"""Placing documents in a queue: written aside, made safe, then renamed in.

A crash leaves a file in `.queuedriver/incoming/`, which was never a document of the queue.
"""

import contextlib
import itertools
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from queuedriver.claims.liveness import host_id
from queuedriver.disk.filesystem import SYNC_ALL_FROM, Directory, copy_all
from queuedriver.errors import AlreadyThere, BadArgument
from queuedriver.format import names

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


class Submission:
    """Documents that enter a queue on the same terms."""

    def __init__(
        self,
        queue: Directory,
        incoming: Directory,
        replace: bool,
        durable: bool,
        due: float | None,
    ) -> None:
        self._queue = queue
        self._incoming = incoming
        self._replace = replace
        self._durable = durable
        self._due = due
        # Docids that wait in the queue already.
        self._refused: list[str] = []

    def one(self, docid: str, content: Content) -> Submitted:
        aside = self._write_aside(docid, content)
        if self._durable:
            try:
                self._incoming.sync_file(aside)
            except OSError:
                self._incoming.remove(aside)
                raise
        submitted = self._enter(docid, aside)
        if self._durable:
            self._queue.sync()
        return submitted

    def many(self, documents: Iterable[tuple[str, Content]]) -> Iterator[Submitted]:
        """Made safe together. AlreadyThere is raised when all others have entered."""
        aside: list[tuple[str, str]] = []
        try:
            for docid, content in documents:
                aside.append((docid, self._write_aside(docid, content)))
                if len(aside) >= _TOGETHER:
                    yield from self._enter_all(aside)
            yield from self._enter_all(aside)
        finally:
            for _, name in aside:
                with contextlib.suppress(OSError):
                    self._incoming.remove(name)
        if self._refused:
            raise AlreadyThere(
                f"{len(self._refused)} of the documents wait in {self._queue.path} already, "
                f"{self._refused[0]!r} among them; use --replace, or other docids",
                self._refused,
            )

    def _write_aside(self, docid: str, content: Content) -> str:
        names.check_docid(docid)
        aside = f"{host_id()}-{os.getpid()}-{next(_serials)}-{os.urandom(4).hex()}"
        try:
            if isinstance(content, bytes):
                self._incoming.write_new(aside, content)
                return aside
            with os.fdopen(self._incoming.open_new(aside), "wb") as target:
                if isinstance(content, str | os.PathLike):
                    with open(content, "rb") as source:
                        copy_all(source.fileno(), target.fileno())
                else:
                    shutil.copyfileobj(content, target, 1 << 20)
        except BaseException:
            self._incoming.remove(aside)
            raise
        return aside

    def _enter(self, docid: str, aside: str) -> Submitted:
        incoming = self._incoming
        try:
            name = entering_name(docid, self._due)
            if self._replace:
                incoming.rename_over(aside, name, self._queue)
            else:
                incoming.rename_new(aside, name, self._queue)
        except FileExistsError:
            incoming.remove(aside)
            raise AlreadyThere(
                f"{docid!r} waits in {self._queue.path} already; use --replace, or another --docid",
                [docid],
            ) from None
        except OSError:
            # Of a rename that happened a network file system may have lost the reply. Nobody else
            # moves what we have written aside, so where it has gone from there, it is in.
            if incoming.present(aside) or incoming.gone():
                incoming.remove(aside)
                raise
        except BaseException:
            incoming.remove(aside)
            raise
        return Submitted(docid, name)

    def _enter_all(self, aside: list[tuple[str, str]]) -> Iterator[Submitted]:
        """Let in what was written aside, taking it off that list."""
        if not aside:
            return
        if self._durable and len(aside) >= SYNC_ALL_FROM:
            self._incoming.sync_all()
        elif self._durable:
            for _, name in aside:
                self._incoming.sync_file(name)
        entered = []
        try:
            while aside:
                docid, name = aside.pop(0)
                try:
                    entered.append(self._enter(docid, name))
                except AlreadyThere:
                    self._refused.append(docid)
        finally:
            if self._durable and entered:
                self._queue.sync()
        yield from entered


def entering_name(docid: str, due: float | None) -> str:
    """Return the name under which a document enters: waiting, or not before an instant."""
    if due is None:
        return names.waiting_name(docid, 0)
    # Beyond these a name would be nobody's: negative, or of more digits than the grammar has.
    if not 0 <= due <= _LAST_DUE:
        raise BadArgument(f"{due!r} is no instant in seconds since the epoch")
    return names.later_name(docid, 0, math.ceil(due))
