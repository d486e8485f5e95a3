"""What is on the simulated disk, and what of it a power cut leaves.

A file system is allowed to be lazy: what was not synced may be lost, in almost any combination.
So the disk keeps two things, what everybody sees and what would be there after a power cut:

    contents    a file's bytes as of its last fsync. Later ones may be there, in part, or not at all
    names       each directory's entries as of its last fsync. Of the changes since, any subset may
                be there, with one limit: of two changes to the same name the later one needs the
                earlier. A rename is one change, be it across directories, as on every file system
                with a journal (and every one that a queue may be on).

An fsync of a directory saves what was changed in it, and what that needs. An fsync of a file does
not save its name.

What a disk does not take is lost with the next power cut, and until then to be seen. A kernel says
so once: to who syncs that file next, and to each who next syncs all by a descriptor of then.

A new file gets the lowest number that is free, as on ext4: what is remembered of a file by its
number is soon told of another. A number is free when its file has no name and nobody has it open;
where a power cut may bring the file back, not before that is impossible.
"""

import errno
import heapq
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

# A stamp that does not move for this long: kernels stamp files with the time of the last tick.
_TICK = 4_000_000
_NUMBER = attrgetter("number")


class Inode:
    """A file; a directory if it has entries, a symlink if it has a target."""

    __slots__ = (
        "data",
        "durable",
        "durable_links",
        "entries",
        "links",
        "lost",
        "mtime",
        "number",
        "opens",
        "past",
        "reserved",
        "stuck",
        "synced",
        "target",
        "untold",
    )

    def __init__(
        self, number: int, entries: "dict[str, Inode] | None" = None, target: str | None = None
    ) -> None:
        self.number = number
        self.entries = entries
        self.target = target
        self.data = b""
        self.mtime = 0
        # How many names it has, and how many descriptors.
        self.links = 0
        self.opens = 0
        # Bytes that it takes of the disk besides those that are in it.
        self.reserved = 0
        # What is said of a rename of it: EBUSY of a mount, EXDEV of a lower layer's directory,
        # EPERM and EACCES of another user's file and directory. 0 of what can be moved.
        self.stuck = 0
        # What a power cut leaves: bytes of a file, names of a directory; how many names.
        self.synced = b""
        self.durable: dict[str, Inode] = {}
        self.durable_links = 0
        # Whether what was written to a file can never be safe, as the disk did not take it; and
        # whether nobody who synced it was told.
        self.lost = self.untold = False
        # Earlier listings of a directory, for whoever is to be shown one.
        self.past: list[Listing] = []


# In which directory, which name, which inode from now on (None: no longer there).
Change = tuple[Inode, str, Inode | None]


class Disk:
    """A tree of inodes."""

    def __init__(self) -> None:
        self._numbers = 1
        self._free: list[int] = []
        # Whose numbers are free as soon as no power cut can bring them back.
        self._doomed: list[Inode] = []
        # How many bytes there are in all files, how many may be (None: more than anybody writes),
        # whether there may be more files, and what is said when there is no room.
        self.used = 0
        self.capacity: int | None = None
        self.takes_files = True
        self.says_full = errno.ENOSPC
        self.root = Inode(1, {})
        self.root.links = 1
        # Nanoseconds; whoever has a clock sets it.
        self.now = 0
        # How many names have changed, and what to tell of each.
        self.changes = 0
        self.on_change: Callable[[Inode, str, Inode], None] | None = None
        # Whether a power cut is to come, and whether old listings will be asked for.
        self.tracks = False
        self.remembers = False
        # How often the disk did not take what was written, and whether anybody who synced all of it
        # was told of the last time.
        self.failures = 0
        self.is_told = True
        self._unsynced: list[tuple[Change, ...]] = []

    def new(self, directory: bool = False, target: str | None = None) -> Inode:
        if self._doomed:
            self._reclaim()
        if self._free:
            number = heapq.heappop(self._free)
        else:
            number = self._numbers = self._numbers + 1
        inode = Inode(number, {} if directory else None, target)
        inode.mtime = self.now
        return inode

    @property
    def free_numbers(self) -> tuple[int, ...]:
        """The numbers that are given again."""
        return tuple(sorted(self._free))

    @property
    def room(self) -> int:
        """How many bytes can still be written."""
        return 1 << 42 if self.capacity is None else max(0, self.capacity - self.used)

    def empty(self, inode: Inode) -> None:
        """Take all bytes out of a file."""
        self.used -= len(inode.data) + inode.reserved
        inode.data, inode.reserved, inode.mtime = b"", 0, self.now

    def close(self, inode: Inode) -> None:
        """A descriptor of it is gone."""
        inode.opens -= 1
        if not inode.opens and not inode.links:
            self._forget(inode)

    def _forget(self, inode: Inode) -> None:
        """It has no name, and nobody has it open."""
        self.used -= len(inode.data) + inode.reserved
        if self.tracks:
            self._doomed.append(inode)
        else:
            heapq.heappush(self._free, inode.number)

    def _reclaim(self) -> None:
        pending = {id(inode) for changes in self._unsynced for _, _, inode in changes}
        kept = []
        for inode in self._doomed:
            if inode.durable_links or id(inode) in pending:
                kept.append(inode)
            else:
                heapq.heappush(self._free, inode.number)
        self._doomed = kept

    def change(self, *changes: Change) -> None:
        """Change names, all at once."""
        self.changes += 1
        nameless: Inode | None = None
        for directory, name, inode in changes:
            entries = directory.entries
            assert entries is not None
            if self.remembers:
                directory.past.append(Listing(directory))
            before = entries.pop(name, None)
            if before is not None:
                before.links -= 1
                if not before.links and not before.opens and before is not changes[-1][2]:
                    nameless = before
            if inode is not None:
                entries[name] = inode
                inode.links += 1
            directory.mtime = self.now - self.now % _TICK
        if self.tracks:
            self._unsynced.append(changes)
        if nameless is not None:
            self._forget(nameless)
        if self.on_change is not None:
            for directory, name, inode in changes:
                if inode is not None:
                    self.on_change(directory, name, inode)

    def listing(self, directory: Inode) -> "Listing":
        """The names in a directory at this moment."""
        return Listing(directory)

    def sync(self, inode: Inode) -> None:
        """Of a file its bytes, of a directory its names."""
        if inode.entries is None:
            if not inode.lost:
                inode.synced = inode.data
        elif self._unsynced:
            self._save(inode)

    def sync_all(self) -> None:
        for inode in self.inodes():
            if not inode.lost:
                inode.synced = inode.data
        for changes in self._unsynced:
            _apply(changes)
        self._unsynced.clear()

    def lose_writes(self) -> None:
        """The disk does not take the bytes that are not safe yet. Everybody goes on to see them,
        who syncs them next is told, and who does so once more, that all is well."""
        lost = [
            inode
            for inode in (self.inodes() if self.tracks else ())
            if inode.entries is None and inode.synced != inode.data
        ]
        for inode in lost:
            inode.lost = inode.untold = True
        if lost:
            self.failures += 1
            self.is_told = False

    def track(self) -> None:
        """From here on, keep apart what a power cut would leave. All that is there is safe."""
        self.tracks = True
        for inode in self.inodes():
            inode.synced = inode.data
            inode.durable = dict(inode.entries or {})
            inode.durable_links = inode.links

    def cut(self, choose: Callable[[int], int]) -> None:
        """The power fails. `choose(n)` picks one of n possibilities, the first being the worst."""
        lost: set[tuple[int, str]] = set()
        for changes in self._unsynced:
            keys = {(directory.number, name) for directory, name, _ in changes}
            if keys & lost or choose(2) == 0:
                lost |= keys
            else:
                _apply(changes)
        self._unsynced.clear()
        for inode in self.inodes(durable=True):
            if inode.entries is not None:
                inode.entries = dict(inode.durable)
                # Whoever has listed it is dead.
                inode.past.clear()
            elif inode.synced != inode.data:
                kept = (inode.synced, inode.data[: len(inode.data) // 2], inode.data)
                inode.data = inode.synced = inode.synced if inode.lost else kept[choose(3)]
            inode.lost = inode.untold = False
        self._count_anew()

    def _count_anew(self) -> None:
        """Nobody has anything open, and what there is has the names that were kept."""
        there = list({id(inode): inode for inode in self.inodes()}.values())
        for inode in there:
            inode.links = int(inode is self.root)
            inode.opens = inode.reserved = 0
        for inode in there:
            for entry in (inode.entries or {}).values():
                entry.links += 1
        self.used = sum(len(inode.data) for inode in there)
        self._doomed = []
        self._free = sorted({*range(2, self._numbers + 1)} - {inode.number for inode in there})

    def _save(self, directory: Inode) -> None:
        needed: set[tuple[int, str]] = set()
        saved = []
        for changes in reversed(self._unsynced):
            keys = {(where.number, name) for where, name, _ in changes}
            if keys & needed or any(where is directory for where, _, _ in changes):
                needed |= keys
                saved.append(changes)
        for changes in reversed(saved):
            _apply(changes)
        if saved:
            self._unsynced = [changes for changes in self._unsynced if changes not in saved]

    def inodes(self, durable: bool = False, inside: Inode | None = None) -> Iterator[Inode]:
        """Everything that can be reached, from the root or another directory."""
        todo = [inside or self.root]
        while todo:
            inode = todo.pop()
            yield inode
            entries = inode.durable if durable else inode.entries
            if inode.entries is not None:
                todo.extend((entries or {}).values())

    def copy(self) -> "Disk":
        """Another disk with the same on it, all of it safe."""
        disk = Disk()
        disk._numbers, disk._free, disk.now = self._numbers, [*self._free], self.now
        disk.used = self.used
        disk.root = _copied(self.root)
        return disk


class Entry(NamedTuple):
    """One line of a listing."""

    name: str
    number: int
    file: Inode

    def inode(self) -> int:
        return self.number

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self.file.entries is not None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self.file.entries is None


class Listing:
    """The names in a directory at one moment, each with the number of its file."""

    __slots__ = ("_entries",)

    def __init__(self, directory: Inode) -> None:
        # A copy is cheap, and many who list a directory read its beginning only.
        self._entries = dict(directory.entries or {})

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return zip(self._entries, map(_NUMBER, self._entries.values()), strict=True)

    def lines(self) -> Iterator[Entry]:
        there = self._entries.values()
        return map(Entry._make, zip(self._entries, map(_NUMBER, there), there, strict=True))


def _apply(changes: tuple[Change, ...]) -> None:
    for directory, name, inode in changes:
        if (before := directory.durable.pop(name, None)) is not None:
            before.durable_links -= 1
        if inode is not None:
            directory.durable[name] = inode
            inode.durable_links += 1


def _copied(inode: Inode) -> Inode:
    copy = Inode(inode.number, target=inode.target)
    copy.data, copy.mtime, copy.links = inode.data, inode.mtime, inode.links
    copy.stuck = inode.stuck
    if inode.entries is not None:
        copy.entries = {name: _copied(entry) for name, entry in inode.entries.items()}
    return copy
