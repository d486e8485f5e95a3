"""One look at a queue: its directories, one walk of its items, and what its drivers and the queues
that feed it say. Nothing is created or changed.

What may be a leftover is listed before what would excuse it (a plan before the claims, a report
before the documents), so that work in progress is not mistaken for one.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from queuedriver.claims.attempts import ATTEMPTS, parse
from queuedriver.claims.handoff import CLAIMS, ORPHANS
from queuedriver.claims.leftovers import SCRAPS, Swept
from queuedriver.claims.liveness import DRIVERS, Observer, Owner, owner_of
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.mounts import mount_points
from queuedriver.disk.upstreams import FEEDS
from queuedriver.errors import ConfigError, is_trouble, leads_nowhere
from queuedriver.format import names
from queuedriver.format.decoding import decode
from queuedriver.format.names import INCOMING, JOURNAL
from queuedriver.format.settings import Settings
from queuedriver.operating.document_view import kind_of
from queuedriver.operating.queue import Queue, resolve

# A file as young as this may still be at work for somebody who never registered; in seconds.
SETTLED = 3600.0

_Record = TypeVar("_Record")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    rule: str
    # The file, as a path in the queue where it is in there.
    subject: str
    message: str
    # What --repair does about it; empty when that is left to people.
    repair: str = ""


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
    """What one look showed."""

    def __init__(self, queue: Queue, observer: Observer, now: float, judge: "Judge") -> None:
        self.queue = queue
        self.now = now
        # Directories of ours that are none, and what they are; and those on another file system.
        self.wrong_types: dict[str, str] = {}
        self.elsewhere: list[str] = []
        self.scraps: list[File] = []
        parts = (CLAIMS, ATTEMPTS, names.DISCARDED, INCOMING, ORPHANS, FEEDS, DRIVERS, JOURNAL, "")
        # By the last part of their paths; `.queuedriver` itself is "".
        self.files = {part: self._list(part) for part in parts}
        self.settings, self.trouble = self._settings()
        self.known: dict[str, Owner] = {}
        if not {names.PRIVATE, _path(DRIVERS)} & self.wrong_types.keys():
            self.known = queue.drivers(observer)
        self.missing: list[str] = []
        self.outputs = list(self._outputs())
        # Claims by their N; outputs that are being written here; the docids of those items of which
        # attempts are remembered; and what is wrong with single items.
        self.claims: dict[str, Item] = {}
        self.writing: list[File] = []
        self.docids: set[str] = set()
        self.findings: list[Finding] = []
        self._walk(judge)

    @cached_property
    def swept(self) -> Swept:
        """What excuses leftovers."""
        return Swept(self.queue.directory, self.queue.directory)

    @cached_property
    def set_aside(self) -> set[str]:
        """The N of what was moved to the orphans of the outputs."""
        found = set()
        for path in self.settings.outputs:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                above = Directory.open(resolve(self.queue.path, path))
                with contextlib.closing(above):
                    orphans = above.subdirectory(os.path.join(names.PRIVATE, ORPHANS))
                with contextlib.closing(orphans):
                    found |= {item.token for _, item in names.walk(orphans) if item is not None}
        return found

    @cached_property
    def mounted(self) -> frozenset[str]:
        """Where something is mounted."""
        return mount_points()

    @cached_property
    def longest_name(self) -> int:
        """How many bytes a name may have here."""
        return self.queue.directory.longest_name()

    @cached_property
    def _device(self) -> int:
        return self.queue.directory.status().device

    @property
    def living(self) -> bool:
        return any(one.alive for one in self.known.values())

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
        """A record of ours; or why it cannot be read."""
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
        """One of the queue's own directories; None where there is none."""
        path = _path(part)
        try:
            directory = self.queue.directory.subdirectory(path)
        except (FileNotFoundError, NotADirectoryError):
            self._see_type(path)
            yield None
            return
        try:
            yield directory
        finally:
            directory.close()

    def _see_type(self, path: str) -> None:
        try:
            mode = self.queue.directory.inspect(path).st_mode
        except OSError as error:
            if is_trouble(error):
                raise
            # Not there; or in something that is no directory, which is named by itself.
            return
        self.wrong_types[path] = f"a {kind_of(mode) or 'file'}"

    def _list(self, part: str) -> list[File]:
        with self.opened(part) as directory:
            if directory is None:
                return []
            if directory.status().device != self._device:
                self.elsewhere.append(_path(part))
            return list(self._files(directory, f"{_path(part)}/"))

    def _files(self, directory: Directory, above: str) -> Iterator[File]:
        for name in directory.names():
            with contextlib.suppress(FileNotFoundError):
                file = File(f"{above}{name}", self.age(directory.inspect(name)))
                if name.startswith(SCRAPS):
                    self.scraps.append(file)
                else:
                    yield file

    def _settings(self) -> tuple[Settings, str]:
        if names.PRIVATE in self.wrong_types:
            return Settings(), ""
        try:
            return self.queue.settings() or Settings(), ""
        except ConfigError as error:
            return Settings(), str(error)

    def _outputs(self) -> Iterator[Item]:
        """What is being written in the outputs; those that lead nowhere are missing."""
        archive = [] if self.settings.archive is None else [self.settings.archive]
        for path in (*self.settings.outputs, *archive):
            try:
                directory = Directory.open(resolve(self.queue.path, path))
            except OSError as error:
                if not leads_nowhere(error):
                    raise
                self.missing.append(path)
                continue
            try:
                for name in directory.names() if path not in archive else ():
                    if name.startswith(SCRAPS):
                        age = self.age(directory.inspect(name))
                        self.scraps.append(File(f"{path}/{name}", age))
                    elif ".writing" in name and (item := names.parse(name)) and item.token:
                        yield Item(f"{path}/{name}", item, 0.0)
            finally:
                directory.close()

    def _walk(self, judge: "Judge") -> None:
        """Look at each name once. Memory is for what is odd, not for the million that are well."""
        noted = {file.docid for one in self.files[ATTEMPTS] if (file := parse(one.name))}
        for name, item in names.walk(self.queue.directory):
            if names.is_reserved(name) and not name.startswith(SCRAPS):
                continue
            with contextlib.suppress(FileNotFoundError):
                found = self.queue.directory.inspect(name)
                if name.startswith(SCRAPS):
                    self.scraps.append(File(name, self.age(found)))
                    continue
                self.findings += judge(self, name, item, found)
                if item is None:
                    continue
                if item.docid in noted:
                    self.docids.add(item.docid)
                if item.claimed:
                    self.claims[item.token] = Item(name, item, self.age(found))
                elif item.state == names.WRITING:
                    self.writing.append(File(name, self.age(found)))


# What is wrong with one name of the queue.
Judge = Callable[[Look, str, names.Item | None, os.stat_result], Iterator[Finding]]


def _path(part: str) -> str:
    return part if part == names.DISCARDED else os.path.join(names.PRIVATE, part).rstrip("/")
