"""A disk whose directories are listed without being copied: each of thousands of drivers has a
listing at hand, of tens of thousands of names.

A directory that was listed once keeps a record of its names in the order in which they came, with
those that have gone meanwhile. A listing is that record as far as it went, and a mark for each name
that was there: a byte, where a copy takes a hundred.
"""

from collections.abc import Iterator
from itertools import compress, starmap

from tests.simulation.disk import Change, Disk, Entry, Inode, Listing

# So many names that have gone are kept at least before a record is begun anew.
_GONE = 1000


class Line(Entry):
    """A line of a listing that thousands read: asked for its number by no call of ours."""

    def __init__(self, *_: object) -> None:
        self.inode = self.number.__int__  # type: ignore[method-assign]


class Record:
    """The names of a directory, in the order in which they came."""

    def __init__(self, directory: Inode) -> None:
        self._entries = [*starmap(Line, Listing(directory).lines())]
        self._there = bytearray(b"\1" * len(self._entries))
        self._places = {entry.name: place for place, entry in enumerate(self._entries)}

    def change(self, name: str, inode: Inode | None) -> None:
        """Take a name away, and put it to the end if it is to be there."""
        before = self._places.pop(name, None)
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
        return Marked(self._entries, bytes(self._there), len(self._places))


class Marked(Listing):
    """A listing that has in common with others what it can."""

    __slots__ = ("_count", "_shared", "_there")

    def __init__(self, shared: list[Line], there: bytes, count: int) -> None:
        self._shared, self._there, self._count = shared, there, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((entry.name, entry.number) for entry in self.lines())

    def lines(self) -> Iterator[Line]:
        return compress(self._shared, self._there)


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
