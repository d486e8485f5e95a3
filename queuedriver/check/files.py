"""One look at a queue: its directories, one walk of its items, and what its drivers and the queues
that feed it say. Nothing is created or changed.

What may be a leftover is listed before what would excuse it (a plan before the claims, a report
before the documents), so that work in progress is not mistaken for one.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from queuedriver.claims.attempts import ATTEMPTS
from queuedriver.claims.handoff import CLAIMS, ORPHANS
from queuedriver.claims.leftovers import SCRAPS, Swept
from queuedriver.claims.liveness import DRIVERS, Observer, Owner, owner_of
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.mounts import mount_points
from queuedriver.disk.neighbours import FEEDS, landmark
from queuedriver.errors import ConfigError, is_trouble, leads_nowhere
from queuedriver.format import names
from queuedriver.format.names import INCOMING, JOURNAL
from queuedriver.format.records import decode
from queuedriver.format.settings import Settings, resolve
from queuedriver.operating.document_view import kind_of
from queuedriver.operating.queue import Queue

# A file as young as this may still be at work for somebody who never registered; in seconds.
SETTLED = 3600.0

_Record = TypeVar("_Record")


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it should be."""

    rule: str
    # The file, as a path in the queue where it is in there.
    subject: str
    message: str
    # What --repair does about it; empty when that is left to people.
    repair: str = ""


# A finding as its rule yields it: the rule, the subject, the message and the repair.
Found = tuple[str, str, str, str]


class File(NamedTuple):
    """A file of the queue, and for how long it was neither written nor touched nor renamed."""

    # From the queue.
    path: str
    age: float

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


class Item(NamedTuple):
    """An item, and for how long its file was not changed."""

    path: str
    item: names.Item
    age: float


class Look:
    """One look at a queue, and all that it showed."""

    def __init__(self, queue: Queue, observer: Observer, now: float, judge: "Judge") -> None:
        self.queue = queue
        self.now = now
        # What excuses leftovers; where something is mounted; how many bytes a name may have here.
        self.swept = Swept(queue.directory, queue.directory)
        self.mounted = mount_points()
        self.longest_name = queue.directory.longest_name()
        # Directories of ours that are none, and what they are; and those on another file system.
        self.wrong_types: dict[str, str] = {}
        self.elsewhere: list[str] = []
        self.scraps: list[File] = []
        parts = (CLAIMS, ATTEMPTS, names.DISCARDED, INCOMING, ORPHANS, FEEDS, DRIVERS, JOURNAL, "")
        # By the last part of their paths; `.queuedriver` itself is "".
        self.files = {part: list(self._list(part)) for part in parts}
        self.settings, self.trouble = self._settings()
        self.known: dict[str, Owner] = {}
        if not {names.PRIVATE, _path(DRIVERS)} & self.wrong_types.keys():
            self.known = queue.drivers(observer)
        self.living = any(one.alive for one in self.known.values())
        self.missing: list[str] = []
        # What each output is now, as a driver that opened it says it in its registration.
        self.opened_as: list[str] = []
        # The N of what was moved aside in the outputs.
        self.orphaned: set[str] = set()
        self.outputs = list(self._outputs())
        # Claims by their N; outputs that are being written here; what is wrong with single items.
        self.claims: dict[str, Item] = {}
        self.writing: list[File] = []
        self.found: list[Found] = []
        self._walk(judge)

    def owner(self, token: str) -> Owner:
        """Return who made a claim."""
        return owner_of(names.parse_token(token), self.known)

    def settled(self, token: str, age: float) -> bool:
        """Tell whether nobody can be at work on what belongs to this N any more."""
        owner = self.owner(token)
        return age > SETTLED if owner.registration is None else not owner.alive

    def beats_ago(self, owner: Owner) -> float:
        """Return how long ago a driver showed life, by the clocks."""
        return self.now - (owner.registration.beat_at if owner.registration else 0.0)

    def age(self, found: os.stat_result) -> float:
        return self.now - max(found.st_mtime, found.st_ctime)

    def read(self, path: str, kind: type[_Record]) -> _Record | str:
        """Return a record of ours; or why it cannot be read."""
        try:
            return decode(self.queue.directory.read(path), kind)
        except msgspec.DecodeError as error:
            return str(error)
        except OSError as error:
            if is_trouble(error):
                raise
            return error.strerror or str(error)

    @contextlib.contextmanager
    def opened(self, part: str) -> Iterator[Directory | None]:
        """Open one of the queue's own directories; None where there is none."""
        path = _path(part)
        try:
            directory = self.queue.directory.subdirectory(path)
        except (FileNotFoundError, NotADirectoryError):
            try:
                mode = self.queue.directory.status(path).st_mode
                self.wrong_types[path] = f"a {kind_of(mode) or 'file'}"
            except OSError as error:
                # Not there; or in something that is no directory, which is named by itself.
                if is_trouble(error):
                    raise
            yield None
            return
        with directory:
            yield directory

    def _list(self, part: str) -> Iterator[File]:
        with self.opened(part) as directory:
            if directory is None:
                return
            apart = directory.status().st_dev != self.queue.directory.status().st_dev
            # A mount of the same file system has its number, and takes no rename either.
            if apart or directory.path in self.mounted:
                self.elsewhere.append(_path(part))
            for name in directory.names():
                path = f"{_path(part)}/{name}"
                if not self._is_scrap(directory, name, path):
                    with contextlib.suppress(FileNotFoundError):
                        yield File(path, self.age(directory.status(name)))

    def _settings(self) -> tuple[Settings, str]:
        if names.PRIVATE in self.wrong_types:
            return Settings(), ""
        try:
            return self.queue.settings() or Settings(), ""
        except ConfigError as error:
            return Settings(), str(error)

    def _outputs(self) -> Iterator[Item]:
        """Find what is being written in the outputs; those that lead nowhere are missing."""
        for path in filter(None, (*self.settings.outputs, self.settings.archive)):
            try:
                directory = Directory.open(resolve(self.queue.path, path))
            except OSError as error:
                if not leads_nowhere(error):
                    raise
                self.missing.append(path)
                continue
            with directory:
                self.opened_as.append(f"{directory.status().st_ino}-{landmark(directory)}")
                orphans = map(names.parse, orphans_of(directory))
                self.orphaned |= {item.token for item in orphans if item is not None}
                for name in directory.names() if path != self.settings.archive else ():
                    if self._is_scrap(directory, name, f"{path}/{name}"):
                        continue
                    if ".writing" in name and (item := names.parse(name)) and item.token:
                        yield Item(f"{path}/{name}", item, 0.0)

    def _walk(self, judge: "Judge") -> None:
        """Look at each name once. Memory is for what is odd, not for the million that are well."""
        for name, item in names.walk(self.queue.directory):
            if self._is_scrap(self.queue.directory, name, name) or names.is_reserved(name):
                continue
            with contextlib.suppress(FileNotFoundError):
                found = self.queue.directory.status(name)
                self.found += judge(self, name, item, found)
                if item is not None and item.claimed:
                    self.claims[item.token] = Item(name, item, self.age(found))
                elif item is not None and item.state == names.WRITING:
                    self.writing.append(File(name, self.age(found)))

    def _is_scrap(self, directory: Directory, name: str, path: str) -> bool:
        """Return whether this is a file that somebody began to write, and note it then."""
        if not name.startswith(SCRAPS):
            return False
        with contextlib.suppress(FileNotFoundError):
            self.scraps.append(File(path, self.age(directory.status(name))))
        return True


# What is wrong with one name of the queue.
Judge = Callable[[Look, str, names.Item | None, os.stat_result], Iterator[Found]]


def orphans_of(queue: Directory) -> list[str]:
    """Return the names of what was moved aside in a queue."""
    with contextlib.suppress(FileNotFoundError), queue.subdirectory(_path(ORPHANS)) as orphans:
        return [*orphans.names()]
    return []


def _path(part: str) -> str:
    return part if part == names.DISCARDED else os.path.join(names.PRIVATE, part).rstrip("/")
