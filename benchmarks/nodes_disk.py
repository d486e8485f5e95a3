"""A disk whose directories are listed without being copied: each of thousands of drivers has a
listing at hand, of tens of thousands of names.

A directory that was listed once keeps a record of its names in the order in which they came, with
those that have gone meanwhile. A listing is that record as far as it went, and a mark for each name
that was there: a byte, where a copy takes a hundred. What all drivers ask of its lines alike is
known before: functions of the product are stood for by what has the same answer.
"""

from collections.abc import Container, Iterator
from itertools import compress, starmap

from queuedriver.claims import liveness, picking
from queuedriver.disk.filesystem import Directory
from tests.simulation.disk import Change, Disk, Entry, Inode, Listing

# So many names that have gone are kept at least before a record is begun anew.
_GONE = 1000


class Line(Entry):
    """A line of a listing that thousands read: what they ask of it is known before."""

    def __init__(self, *_: object) -> None:
        self.inode = self.number.__int__  # type: ignore[method-assign]
        self.remainder = self.number % picking._MANY[0]
        self.ready = self.name.endswith(".ready")


def split(block: list[Line], dealt: int, mine: Container[int]) -> tuple[list[str], list[Line]]:
    """Stands for `picking._split`."""
    if dealt == picking._MANY[0]:
        waiting = [one.name for one in block if one.remainder in mine and one.ready]
    else:
        waiting = [one.name for one in block if one.number % dealt in mine and one.ready]
    return waiting, [one for one in block if not one.ready]


class Drivers:
    """The ids of who has registered in a directory, once somebody has asked, for whoever does so
    before any name that is not hidden has come or gone."""

    ids: frozenset[str] | None = None


class Lines(compress):  # type: ignore[type-arg]
    """The lines of a listing."""

    drivers: Drivers


def registered_ids(directory: Directory) -> frozenset[str]:
    """Stands for `liveness.registered_ids`."""
    with directory.scan() as entries:
        drivers: Drivers = iter(entries).drivers  # type: ignore[attr-defined]
        if drivers.ids is None:
            listed = map(liveness.registered_id, (entry.name for entry in entries))
            drivers.ids = frozenset(filter(None, listed))
        return drivers.ids


class Record:
    """The names of a directory, in the order in which they came."""

    def __init__(self, directory: Inode) -> None:
        self._entries = [*starmap(Line, Listing(directory).lines())]
        self._there = bytearray(b"\1" * len(self._entries))
        self._places = {entry.name: place for place, entry in enumerate(self._entries)}
        self._drivers = Drivers()

    def change(self, name: str, inode: Inode | None) -> None:
        """Take a name away, and put it to the end if it is to be there."""
        before = self._places.pop(name, None)
        if name[0] != "." and (before is None) is not (inode is None):
            self._drivers = Drivers()
        if before is not None:
            self._there[before] = 0
        if inode is not None:
            self._places[name] = len(self._entries)
            self._entries.append(Line(name, inode.number, inode))
            self._there.append(1)
        if len(self._entries) > 2 * len(self._places) + _GONE:
            # Listings of before go on with what they have.
            self._entries = list(compress(self._entries, self._there))
            self._there = bytearray(b"\1" * len(self._entries))
            self._places = {entry.name: place for place, entry in enumerate(self._entries)}

    def listing(self) -> "Marked":
        return Marked(self._entries, bytes(self._there), len(self._places), self._drivers)


class Marked(Listing):
    """A listing that has in common with others what it can."""

    __slots__ = ("_count", "_drivers", "_shared", "_there")

    def __init__(self, shared: list[Line], there: bytes, count: int, drivers: Drivers) -> None:
        self._shared, self._there, self._count = shared, there, count
        self._drivers = drivers

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((entry.name, entry.number) for entry in self.lines())

    def lines(self) -> Iterator[Line]:
        lines = Lines(self._shared, self._there)
        lines.drivers = self._drivers
        return lines


class RecordedDisk(Disk):
    """A disk that keeps records of the directories that are listed."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[Inode, Record] = {}

    def change(self, *changes: Change) -> None:
        super().change(*changes)
        for directory, name, inode in changes:
            if (record := self._records.get(directory)) is not None:
                record.change(name, inode)

    def listing(self, directory: Inode) -> Listing:
        record = self._records.get(directory)
        if record is None:
            record = self._records[directory] = Record(directory)
        return record.listing()
