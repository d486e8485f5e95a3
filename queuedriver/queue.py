"""A queue: a directory, its items, and the control files beside them.

What is here is for whoever submits, looks or operates; drivers hand over through `handoff`.
"""

import contextlib
import errno
import math
import os
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import msgspec

from queuedriver import names, settings
from queuedriver.errors import (
    AlreadyThere,
    BadArgument,
    CannotUse,
    NotFound,
    NotPermitted,
    QueueClosed,
    is_trouble,
    trouble,
)
from queuedriver.filesystem import SYNC_ALL_FROM, Directory, copy_all
from queuedriver.liveness import DRIVERS, Registration, host_id, read_registrations
from queuedriver.picking import Listing, look
from queuedriver.plan import DRAINED_AFTER
from queuedriver.records import Report, read_report

INCOMING = "incoming"
FEEDS = "feeds"
JOURNAL = "journal"
# A claim made for an operator's command, not by a driver.
OPERATOR = "operator"
# The year 9999, in seconds since the epoch.
_LAST_DUE = 253_402_300_799.0
# With this many files to submit durably, one sync of the file system serves them all.
_SUBMIT_TOGETHER = 256


class Controls(NamedTuple):
    """Which control files are there."""

    done: bool = False
    paused: bool = False
    quit: bool = False


class Submitted(NamedTuple):
    """One document that is in the queue now."""

    docid: str
    name: str


class Feed(msgspec.Struct, frozen=True):
    """A queue whose outputs come here; its path is relative to this queue."""

    path: str


class Queue:
    """One queue directory."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.path = directory.path
        self.name = os.path.basename(directory.path) or directory.path
        self._private: Directory | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], create: bool = False) -> Self:
        """Open a queue; `create` makes the directory where there is none."""
        check_path(path)
        with _explained(os.fspath(path)):
            return cls(Directory.open(path, create))

    @property
    def private(self) -> Directory:
        """`.queuedriver/`, made by the first who writes there: to look must change nothing."""
        if self._private is None:
            with _explained(os.path.join(self.path, names.PRIVATE), part=True):
                self._private = self.directory.subdirectory(names.PRIVATE, create=True)
        return self._private

    def inside(self, name: str = "") -> Directory | None:
        """A directory of `.queuedriver/`, or that itself; None where nobody has made it."""
        return self._open_part(os.path.join(names.PRIVATE, name))

    def _open_part(self, path: str) -> Directory | None:
        with _explained(os.path.join(self.path, path), part=True):
            try:
                return self.directory.subdirectory(path)
            except FileNotFoundError:
                return None

    def close(self) -> None:
        for directory in (self._incoming, self._private, self.directory):
            if directory is not None:
                directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Submit

    def submit(
        self,
        docid: str,
        content: bytes | str | os.PathLike[str] | BinaryIO,
        *,
        replace: bool = False,
        durable: bool = True,
        reopen: bool = False,
        due: float | None = None,
    ) -> Submitted:
        """Place one document in the queue: written aside, made safe, then renamed in.

        A path is copied. A crash leaves a file in `.queuedriver/incoming/`, which `check` removes.
        """
        self.check_open(reopen)
        aside = self._write_aside(docid, content)
        if durable:
            try:
                self.incoming.sync_file(aside)
            except OSError:
                self.incoming.remove(aside)
                raise
        submitted = self._enter(docid, aside, replace, due)
        if durable:
            self.directory.sync()
        return submitted

    def submit_many(
        self,
        documents: Iterable[tuple[str, bytes | str | os.PathLike[str] | BinaryIO]],
        *,
        replace: bool = False,
        durable: bool = True,
        reopen: bool = False,
        due: float | None = None,
    ) -> Iterator[Submitted]:
        """The same for many; made safe together, which is far cheaper. Yields as they enter.

        One that waits already does not keep the others out: AlreadyThere is raised at the end.
        """
        self.check_open(reopen)
        aside: list[tuple[str, str]] = []
        refused: list[str] = []
        try:
            for docid, content in documents:
                aside.append((docid, self._write_aside(docid, content)))
                if len(aside) >= _SUBMIT_TOGETHER:
                    yield from self._enter_all(aside, refused, replace, durable, due)
            yield from self._enter_all(aside, refused, replace, durable, due)
        finally:
            for _, name in aside:
                with contextlib.suppress(OSError):
                    self.incoming.remove(name)
        if refused:
            raise AlreadyThere(
                f"{len(refused)} of the documents wait in {self.path} already, "
                f"{refused[0]!r} among them; use --replace, or other docids",
                refused,
            )

    @property
    def incoming(self) -> Directory:
        if self._incoming is None:
            self._incoming = self.private.subdirectory(INCOMING, create=True)
        return self._incoming

    _incoming: Directory | None = None
    _submitted = 0

    def check_open(self, reopen: bool = False) -> None:
        """QueueClosed when nothing more was to be submitted here."""
        if self.directory.present(names.DONE):
            if not reopen:
                raise QueueClosed(
                    f"{self.path} is done: nothing more was to be submitted; use --reopen to go on"
                )
            self.directory.remove(names.DONE)

    def _write_aside(self, docid: str, content: bytes | str | os.PathLike[str] | BinaryIO) -> str:
        names.check_docid(docid)
        self._submitted += 1
        aside = f"{host_id()}-{os.getpid()}-{self._submitted}-{os.urandom(4).hex()}"
        try:
            if isinstance(content, bytes):
                self.incoming.write_new(aside, content)
                return aside
            with os.fdopen(self.incoming.open_new(aside), "wb") as target:
                if isinstance(content, str | os.PathLike):
                    with open(content, "rb") as source:
                        copy_all(source.fileno(), target.fileno())
                else:
                    shutil.copyfileobj(content, target, 1 << 20)
        except BaseException:
            self.incoming.remove(aside)
            raise
        return aside

    def _enter(self, docid: str, aside: str, replace: bool, due: float | None) -> Submitted:
        try:
            name = names.waiting_name(docid, 0) if due is None else _later_name(docid, due)
            if replace:
                self.incoming.rename_over(aside, name, self.directory)
            else:
                self.incoming.rename_new(aside, name, self.directory)
        except FileExistsError:
            self.incoming.remove(aside)
            raise AlreadyThere(
                f"{docid!r} waits in {self.path} already; use --replace, or another --docid",
                [docid],
            ) from None
        except BaseException:
            self.incoming.remove(aside)
            raise
        return Submitted(docid, name)

    def _enter_all(
        self,
        aside: list[tuple[str, str]],
        refused: list[str],
        replace: bool,
        durable: bool,
        due: float | None,
    ) -> Iterator[Submitted]:
        """Let in what was written aside, taking it off that list."""
        if not aside:
            return
        if durable and len(aside) >= SYNC_ALL_FROM:
            self.incoming.sync_all()
        elif durable:
            for _, name in aside:
                self.incoming.sync_file(name)
        entered = []
        try:
            while aside:
                docid, name = aside.pop(0)
                try:
                    entered.append(self._enter(docid, name, replace, due))
                except AlreadyThere:
                    refused.append(docid)
        finally:
            if durable and entered:
                self.directory.sync()
        yield from entered

    # Look

    def listing(self, now: float) -> Listing:
        """Counts of every state."""
        return look(self.directory, now)

    def items(self) -> Iterator[tuple[str, names.Item]]:
        """Every item, as the directory lists them."""
        for name in self.directory.names():
            if (item := names.parse(name)) is not None:
                yield name, item

    def find(self, docid: str) -> list[tuple[str, names.Item]]:
        """The items of one docid; several when it was submitted again meanwhile."""
        return [(name, item) for name, item in self.items() if item.docid == docid]

    def discarded(self) -> list[str]:
        """The docids that were given up."""
        return sorted(self.each_discarded())

    def each_discarded(self) -> Iterator[str]:
        """The same as a stream."""
        directory = self._open_part(names.DISCARDED)
        if directory is None:
            return
        try:
            for name in directory.names():
                if name[0] != "." and not name.endswith(names.REPORT):
                    yield name
        finally:
            directory.close()

    def report(self, docid: str) -> Report | None:
        """Why a document was given up."""
        directory = None if "/" in docid else self._open_part(names.DISCARDED)
        if directory is None:
            return None
        try:
            return read_report(directory, docid)
        finally:
            directory.close()

    def settings(self) -> settings.Settings | None:
        """What its drivers agreed on; None before the first of them."""
        private = self.inside()
        if private is None:
            return None
        try:
            return settings.load(private, self.path)
        finally:
            private.close()

    def registrations(self) -> list[Registration]:
        """The drivers that registered here, alive or not."""
        directory = self.inside(DRIVERS)
        if directory is None:
            return []
        try:
            return read_registrations(directory)
        finally:
            directory.close()

    # Control

    def controls(self) -> Controls:
        present = self.directory.present
        return Controls(present(names.DONE), present(names.PAUSE), present(names.QUIT))

    def set_control(self, name: str, *, wanted: bool) -> None:
        """Create or remove `done`, `PAUSE` or `QUIT`; drivers see it within a moment."""
        if name not in names.CONTROLS:
            raise BadArgument(f"{name!r} is not a control file")
        if wanted:
            try:
                self.directory.write_new(name, b"")
            except FileExistsError:
                return
        else:
            self.directory.remove(name)
        self.directory.sync()

    # Feeds: which queues must be done before this one is

    def add_feed(self, source: str) -> None:
        """Note that another queue's outputs come here."""
        path = os.path.relpath(source, self.path)
        feeds = self.private.subdirectory(FEEDS, create=True)
        try:
            name = f"{zlib.crc32(os.fsencode(path)):08x}.json"
            if not feeds.present(name):
                feeds.write_aside(name, msgspec.json.encode(Feed(path)), durable=True)
        finally:
            feeds.close()

    def feeds(self) -> list[str]:
        """The absolute paths of the queues that feed this one."""
        return [path for path in self._feeds() if path is not None]

    def _feeds(self) -> list[str | None]:
        """The same, and None for each note that cannot be read."""
        feeds = self.inside(FEEDS)
        if feeds is None:
            return []
        try:
            noted = sorted(name for name in feeds.names() if name.endswith(".json"))
            return [self._feed(feeds, name) for name in noted if name[0] != "."]
        finally:
            feeds.close()

    def _feed(self, feeds: Directory, name: str) -> str | None:
        try:
            feed = msgspec.json.decode(feeds.read(name), type=Feed)
        except OSError as error:
            if is_trouble(error):
                raise
            return None
        except msgspec.DecodeError:
            return None
        return os.path.normpath(os.path.join(self.path, feed.path))

    def drained(self, now: float, pause: Callable[[float], None] = time.sleep) -> bool:
        """Closed, and without any item: by two listings, for one alone may miss what is renamed."""
        if not self.directory.present(names.DONE):
            return False
        before = self.directory.status().mtime_ns
        if self.listing(now).unfinished:
            return False
        pause(DRAINED_AFTER)
        unfinished = self.listing(now).unfinished
        return not unfinished and self.directory.status().mtime_ns == before

    def close_if_fed(self, now: float) -> bool:
        """Create `done` here when every feed is done and drained; whether it is there now."""
        # A feed we cannot see, or not even read of, may still bring something.
        for path in self._feeds():
            if path is None:
                return False
            try:
                feed = Queue.open(path)
            except (NotFound, NotPermitted, CannotUse):
                return False
            with feed:
                if not feed.drained(now):
                    return False
        self.set_control(names.DONE, wanted=True)
        return True


def _later_name(docid: str, due: float) -> str:
    # Beyond these a name would be nobody's: negative, or of more digits than the grammar has.
    if not 0 <= due <= _LAST_DUE:
        raise BadArgument(f"{due!r} is no instant in seconds since the epoch")
    return names.later_name(docid, 0, math.ceil(due))


@contextlib.contextmanager
def _explained(path: str, *, part: bool = False) -> Iterator[None]:
    """What the operating system says of a queue's directory, in words of ours."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"no queue {path!r}; mkdir it, or name another") from None
    except (NotADirectoryError, FileExistsError):
        mend = "queuedriver check --repair moves it aside" if part else "so not a queue"
        raise CannotUse(f"{path!r} is not a directory{'; ' if part else ', '}{mend}") from None
    except PermissionError as error:
        raise NotPermitted(
            f"{error.filename or path!r} may not be used: permission denied; a queue must be "
            "readable for whoever looks at it, and writable for whoever drives it"
        ) from None
    except OSError as error:
        if error.errno == errno.EROFS:
            raise trouble(error, f"cannot use the queue {path!r}") from None
        raise


def check_path(path: str | os.PathLike[str]) -> None:
    """CannotUse for what no settings and no registration, which are JSON, could name."""
    whole = os.path.abspath(path)
    try:
        whole.encode()
    except UnicodeEncodeError:
        raise CannotUse(f"{whole!r} is not valid UTF-8; rename it, or use another") from None


def docid_of_file(path: str | os.PathLike[str]) -> str:
    """The docid a file gets when it is submitted without one."""
    return names.check_docid(Path(path).name)


def check_file(path: str | os.PathLike[str]) -> None:
    """NotFound, NotPermitted or BadArgument for what cannot be submitted."""
    shown = repr(os.fspath(path))
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise BadArgument(f"{shown} is a directory; submit the files in it")
        if not stat.S_ISREG(mode):
            # To open a FIFO is to wait for its writer.
            raise BadArgument(f"{shown} is not a regular file; submit what it gives with --stdin")
        with open(path, "rb"):
            pass
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no file {shown}") from None
    except PermissionError:
        raise NotPermitted(f"{shown} may not be read: permission denied") from None
    except OSError as error:
        if is_trouble(error):
            raise trouble(error, "reading") from None
        raise BadArgument(f"{shown} cannot be read: {error.strerror}") from None
