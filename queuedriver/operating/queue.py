"""A queue: a directory, its items, and the control files beside them; and how documents enter it:
written aside, made safe, then renamed in. A crash leaves a file in `.queuedriver/incoming/`, which
was never a document of the queue.

What is here is for whoever submits, looks or operates; drivers hand over through `handoff`.
"""

import contextlib
import errno
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import BinaryIO, NamedTuple, Self, TypeVar

from queuedriver.claims.attempts import ATTEMPTS, Discarded, attempts_of, find_report, places_of
from queuedriver.claims.counts import Counts
from queuedriver.claims.liveness import DRIVERS, Observer, Owner, Roster, any_alive, host_id
from queuedriver.claims.picking import count
from queuedriver.disk.filesystem import Directory, copy_all, sync_written
from queuedriver.disk.neighbours import note_feed, read_feeds
from queuedriver.driving import closing
from queuedriver.driving.closing import Controls, Trip
from queuedriver.errors import (
    AlreadyThere,
    BadArgument,
    NotPermitted,
    QueueClosed,
    explained,
    is_trouble,
    trouble,
)
from queuedriver.format import names, settings
from queuedriver.format.records import Attempt, Report
from queuedriver.format.units import format_count, visible

Content = bytes | str | os.PathLike[str] | BinaryIO

# The year 9999, in seconds since the epoch.
_LAST_DUE = 253_402_300_799.0
# With this many to submit durably, one sync of the file system serves them all.
_TOGETHER = 256

_serials = itertools.count(1)
_Found = TypeVar("_Found")
# A few lines; in bytes.
_LONGEST_NOTICE = 2000


class Submitted(NamedTuple):
    """One document that is in the queue now."""

    docid: str
    name: str


class Queue:
    """One queue directory."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.path = directory.path
        self.name = os.path.basename(directory.path) or directory.path
        self._opened = contextlib.ExitStack()
        self._opened.callback(directory.close)

    @classmethod
    def open(cls, path: str | os.PathLike[str], create: bool = False) -> Self:
        """Open a queue; `create` makes the directory where there is none."""
        settings.check_path(path)
        with explained(os.fspath(path)):
            return cls(Directory.open(path, create))

    @cached_property
    def private(self) -> Directory:
        """Return `.queuedriver/`, made by the first who writes there: a look changes nothing."""
        with explained(self.path):
            return self._keep(self.directory.subdirectory(names.PRIVATE, create=True))

    @cached_property
    def incoming(self) -> Directory:
        """Return the directory in which documents are written that are submitted."""
        return self._keep(self.private.subdirectory(names.INCOMING, create=True))

    def _keep(self, directory: Directory) -> Directory:
        self._opened.callback(directory.close)
        return directory

    def inside(self, name: str = "") -> Directory | None:
        """Open a directory of `.queuedriver/`, or that itself; None where nobody has made it."""
        return self.directory.look_into(os.path.join(names.PRIVATE, name))

    def _read(self, name: str, read: Callable[[Directory], _Found], default: _Found) -> _Found:
        """Read from a directory of `.queuedriver/`; return `default` where nobody has made it."""
        directory = self.inside(name)
        if directory is None:
            return default
        with directory:
            return read(directory)

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Submit

    def submit(
        self,
        docid: str,
        content: Content,
        *,
        replace: bool = False,
        durable: bool = True,
        reopen: bool = False,
        due: float | None = None,
    ) -> Submitted:
        """Place one document in the queue. A path is copied. What a crash leaves in `incoming/`,
        `check --repair` moves aside."""
        (submitted,) = self.submit_many(
            [(docid, content)], replace=replace, durable=durable, reopen=reopen, due=due
        )
        return submitted

    def submit_many(
        self,
        documents: Iterable[tuple[str, Content]],
        *,
        replace: bool = False,
        durable: bool = True,
        reopen: bool = False,
        due: float | None = None,
    ) -> Iterator[Submitted]:
        """Place many, made safe together, which is far cheaper; yield each as it has entered.

        One that waits already does not keep the others out: AlreadyThere is raised at the end.
        """
        self.check_open(reopen)
        yield from Submission(self.directory, self.incoming, replace, durable, due).many(documents)

    def check_open(self, reopen: bool = False) -> None:
        """Raise QueueClosed when nothing more was to be submitted here; or reopen the queue."""
        if self.directory.present(names.DONE):
            if not reopen:
                raise QueueClosed(
                    f"{self.path} is closed: nothing more was to be submitted; use --reopen, or "
                    f"queuedriver reopen {self.path}"
                )
            self.set_control(names.DONE, wanted=False)

    # Look

    def listing(self, now: float) -> Counts:
        """Count the items in each state."""
        return count(self.directory, now)

    def items(self) -> Iterator[tuple[str, names.Item]]:
        """Yield every item, as the directory lists them."""
        return names.items(self.directory)

    def find(self, docid: str) -> list[tuple[str, names.Item]]:
        """Return the items of one docid; several when it was submitted again meanwhile."""
        return [(name, item) for name, item in self.items() if item.docid == docid]

    def discarded(self) -> list[str]:
        """Return the docids that were discarded."""
        return sorted(self.each_discarded())

    def each_discarded(self) -> Iterator[str]:
        """Yield the docids that were discarded."""
        directory = self.directory.look_into(names.DISCARDED)
        if directory is None:
            return
        with directory:
            for name in directory.names():
                if name[0] != "." and not name.endswith(names.REPORT):
                    yield name

    def report(self, docid: str) -> Report | None:
        """Read why a document was discarded, by its name in `discarded/`."""
        with self._reports() as (discarded, attempts):
            if discarded is None or "/" in docid:
                return None
            return find_report(discarded, attempts, docid)

    def reports(self, docid: str = "", places: Iterable[str] | None = None) -> Iterator[Discarded]:
        """Yield the discarded documents, with why they are: all, or those of a docid, the newest
        first, or those that have these names in `discarded/`."""
        with self._reports() as (discarded, attempts):
            if discarded is None:
                return
            if docid:
                places = places_of(discarded, attempts, [docid]).get(docid, [])
            for place in self.each_discarded() if places is None else places:
                yield Discarded(place, find_report(discarded, attempts, place))

    @contextlib.contextmanager
    def _reports(self) -> Iterator[tuple[Directory | None, Directory | None]]:
        """Open where reports are: beside their documents, or still with the attempts."""
        with contextlib.ExitStack() as at_end:
            found = self.directory.look_into(names.DISCARDED), self.inside(ATTEMPTS)
            for directory in filter(None, found):
                at_end.callback(directory.close)
            yield found

    def attempts(self, docid: str) -> tuple[Attempt, ...]:
        """Read what is remembered of the attempts at a document that has not ended."""
        return self._read(ATTEMPTS, lambda attempts: attempts_of(attempts, docid), ())

    def settings(self) -> settings.Settings | None:
        """Read what its drivers agreed on; return None before the first of them."""
        return self._read("", lambda private: settings.load(private, self.path), None)

    def drivers(self, observer: Observer) -> dict[str, Owner]:
        """Return the drivers that registered here by their ids, judged alive or not."""

        def read(drivers: Directory) -> dict[str, Owner]:
            roster = Roster(drivers, observer)
            roster.refresh()
            return roster.owners

        return self._read(DRIVERS, read, {})

    # Control

    def controls(self) -> Controls:
        """Look which control files are there."""
        return closing.read_controls(self.directory)

    def set_control(self, name: str, *, wanted: bool) -> None:
        """Create or remove `done`, `PAUSE` or `QUIT`; drivers see it within a moment."""
        closing.set_control(self.directory, name, wanted=wanted)

    def stopped(self) -> Trip | None:
        """Return why the stage that takes from here has stopped itself; None while it has not."""
        return self._read("", closing.read_trip, None)

    def go_on(self) -> bool:
        """Let a stage go on that has stopped itself; return whether it had."""
        return self._read("", lambda private: private.remove(names.BREAKER), default=False)

    # What is said of its drivers while there are none

    def any_driver(self) -> bool:
        """Return whether a driver is alive."""
        return any_alive(self.directory, Observer())

    def notice(self) -> str:
        """Return what people are to be told while no driver is alive; mostly nothing."""

        def read(private: Directory) -> str:
            with contextlib.suppress(OSError):
                said = private.read(names.NOTICE, _LONGEST_NOTICE).decode(errors="replace")
                return visible(said.strip())
            return ""

        return self._read("", read, "")

    def set_notice(self, words: str) -> None:
        """Say that instead; with no words, nothing."""
        if words:
            self.private.write_aside(names.NOTICE, f"{words}\n".encode())
        elif private := self.inside():
            with private:
                private.remove(names.NOTICE)

    # Feeds: which queues must be done before this one is

    def add_feed(self, source: str) -> None:
        """Note that another queue's outputs come here."""
        note_feed(self.directory, source)

    def feeds(self) -> list[str]:
        """Return the absolute paths of the queues that feed this one."""
        return [path for path in read_feeds(self.directory) if path is not None]


@contextlib.contextmanager
def opened(path: str) -> Iterator[Queue]:
    """Open a queue to change it, with clear words for what is refused meanwhile."""
    with Queue.open(path) as queue:
        try:
            yield queue
        except PermissionError as error:
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            raise NotPermitted(
                f"{queue.path} may not be changed: {reason}; its items and its directories must be "
                "writable for whoever submits, drives or operates"
            ) from error
        except OSError as error:
            if is_trouble(error) and error.errno:
                raise trouble(error, f"changing {queue.path}") from error
            raise


# How documents enter


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
