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
"""

from collections.abc import Callable, Iterator

# A stamp that does not move for this long: kernels stamp files with the time of the last tick.
_TICK = 4_000_000


class Inode:
    """A file, or a directory if it has entries."""

    __slots__ = ("data", "durable", "entries", "links", "mtime", "number", "past", "synced")

    def __init__(self, number: int, entries: "dict[str, Inode] | None" = None) -> None:
        self.number = number
        self.entries = entries
        self.data = b""
        self.mtime = 0
        self.links = 0
        # What a power cut leaves: bytes of a file, names of a directory.
        self.synced = b""
        self.durable: dict[str, Inode] = {}
        # Earlier listings of a directory, for whoever is to be shown one.
        self.past: list[tuple[str, ...]] = []


# In which directory, which name, which inode from now on (None: no longer there).
Change = tuple[Inode, str, Inode | None]


class Disk:
    """A tree of inodes."""

    def __init__(self) -> None:
        self._numbers = 1
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
        self._unsynced: list[tuple[Change, ...]] = []

    def new(self, directory: bool = False) -> Inode:
        self._numbers += 1
        inode = Inode(self._numbers, {} if directory else None)
        inode.mtime = self.now
        return inode

    def change(self, *changes: Change) -> None:
        """Change names, all at once."""
        self.changes += 1
        for directory, name, inode in changes:
            entries = directory.entries
            assert entries is not None
            if self.remembers:
                directory.past.append(tuple(entries))
            before = entries.pop(name, None)
            if before is not None:
                before.links -= 1
            if inode is not None:
                entries[name] = inode
                inode.links += 1
            directory.mtime = self.now - self.now % _TICK
        if self.tracks:
            self._unsynced.append(changes)
        if self.on_change is not None:
            for directory, name, inode in changes:
                if inode is not None:
                    self.on_change(directory, name, inode)

    def sync(self, inode: Inode) -> None:
        """Of a file its bytes, of a directory its names."""
        if inode.entries is None:
            inode.synced = inode.data
        elif self._unsynced:
            self._save(inode)

    def sync_all(self) -> None:
        for inode in self.inodes():
            inode.synced = inode.data
        for changes in self._unsynced:
            _apply(changes)
        self._unsynced.clear()

    def track(self) -> None:
        """From here on, keep apart what a power cut would leave. All that is there is safe."""
        self.tracks = True
        for inode in self.inodes():
            inode.synced = inode.data
            inode.durable = dict(inode.entries or {})

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
                inode.data = inode.synced = kept[choose(3)]

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

    def inodes(self, durable: bool = False) -> Iterator[Inode]:
        """Everything that can be reached."""
        todo = [self.root]
        while todo:
            inode = todo.pop()
            yield inode
            entries = inode.durable if durable else inode.entries
            if inode.entries is not None:
                todo.extend((entries or {}).values())

    def copy(self) -> "Disk":
        """Another disk with the same on it, all of it safe."""
        disk = Disk()
        disk._numbers, disk.now = self._numbers, self.now
        disk.root = _copied(self.root)
        return disk


def _apply(changes: tuple[Change, ...]) -> None:
    for directory, name, inode in changes:
        if inode is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = inode


def _copied(inode: Inode) -> Inode:
    copy = Inode(inode.number)
    copy.data, copy.mtime, copy.links = inode.data, inode.mtime, inode.links
    if inode.entries is not None:
        copy.entries = {name: _copied(entry) for name, entry in inode.entries.items()}
    return copy
