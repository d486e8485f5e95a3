"""The folder: which files are there, and whether anybody writes one.

A directory whose own time has not moved has the names that it had, so 100,000 files cost nothing
while none comes or goes. Files are opened one by one, by whoever has a reason to look at them.

Whether anybody has a file open for writing, the kernel is asked by a lease on it (fcntl(2)). One
for reading is refused with EAGAIN while somebody has. Only whoever owns the file may ask, and few
network file systems answer; some answer always alike. So a file system is tried first, with a file
of ours.
"""

import errno
import fcntl
import os
import signal
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NamedTuple

import msgspec

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import is_trouble
from queuedriver.intake.rules import Writers

# For so many seconds a directory may change again without its time showing it.
_BLUR = 2.0
# Seconds after which names are listed whatever the time of the directory says: it may be a cached
# one.
_ANYWAY = 60.0


class Listing(msgspec.Struct, eq=False):
    """One directory of the folder, as it was listed."""

    # Inodes by name.
    files: dict[str, int] = {}
    directories: list[str] = []
    # What else there is, which is never taken: links, sockets; and directories, looked into or not.
    others: int = 0
    mtime: int = -1
    moved_at: float = 0.0
    listed_at: float = 0.0

    def is_due(self, mtime: int, now: float) -> bool:
        """Return whether there may be other names than were listed."""
        if mtime != self.mtime:
            self.mtime, self.moved_at = mtime, now
            return True
        return self.listed_at < self.moved_at + _BLUR or now > self.listed_at + _ANYWAY

    def read(self, directory: Directory, now: float) -> None:
        """List the directory; what fails half-way changes nothing."""
        files, directories, others = dict[str, int](), list[str](), 0
        with directory.scan() as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files[entry.name] = entry.inode()
                elif not entry.is_dir(follow_symlinks=False):
                    others += 1
                elif entry.name[0] != ".":
                    others += 1
                    directories.append(entry.name)
        self.files, self.directories, self.others, self.listed_at = files, directories, others, now


class Changes(NamedTuple):
    """What one look at the names found: paths below the folder."""

    new: list[str]
    gone: set[str]


class Folder(msgspec.Struct, eq=False):
    """A folder that others drop files into."""

    directory: Directory
    # How many levels of sub-directories are looked into, and which are not, as paths below it.
    depth: int
    without: frozenset[str]
    # By the path below the folder; "" is the folder.
    listings: dict[str, Listing] = {}

    @property
    def others(self) -> int:
        """Count what is there and is no file; sub-directories that are not looked into, too."""
        return sum(one.others for one in self.listings.values()) - max(len(self.listings) - 1, 0)

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of all directories that are looked into."""
        return tuple(os.path.join(self.directory.path, at) for at in self.listings)

    def look(self, now: float) -> Changes:
        """Look for names that came and went."""
        changes, found = Changes([], set()), dict[str, Listing]()
        self._look_into("", found, changes, now)
        for at in self.listings.keys() - found.keys():
            changes.gone.update(os.path.join(at, name) for name in self.listings[at].files)
        self.listings = found
        return changes

    def _look_into(self, at: str, found: dict[str, Listing], changes: Changes, now: float) -> None:
        listing = found[at] = self.listings.get(at) or Listing()
        try:
            with self.opened(at) as directory:
                if listing.is_due(directory.status().st_mtime_ns, now):
                    old = listing.files
                    listing.read(directory, now)
                    for name, inode in listing.files.items():
                        if old.get(name) != inode:
                            changes.new.append(os.path.join(at, name))
                    gone = old.keys() - listing.files.keys()
                    changes.gone.update(os.path.join(at, name) for name in gone)
        except OSError:
            # The folder itself has to be there; of a sub-directory nothing is known now.
            if not at:
                raise
        level = at.count("/") + 1 if at else 0
        for name in listing.directories if level < self.depth else ():
            if (below := os.path.join(at, name)) not in self.without:
                self._look_into(below, found, changes, now)

    def opened(self, at: str) -> AbstractContextManager[Directory]:
        """Open a directory of the folder; no symlink is followed there."""
        return self.directory.subdirectory(at) if at else nullcontext(self.directory)


def writers(fd: int) -> Writers:
    """Return whether anybody has an open file open for writing, as far as that can be known."""
    try:
        # Whoever opens it meanwhile breaks the lease; what the kernel then sends us would end us.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return "some" if error.errno == errno.EAGAIN else "unknown"
    with suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return "none"


def leases_answer(directory: Directory) -> bool:
    """Return whether leases tell of writers in a directory, by a file that is made for that. What
    speaks of the file system is raised: nobody knows then, and would go by less for long."""
    name = f".probe-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with open_fd(directory.open_new(name)), open_fd(directory.open_read(name)) as fd:
            busy = writers(fd)
        with open_fd(directory.open_read(name)) as fd:
            return (busy, writers(fd)) == ("some", "none")
    except OSError as error:
        if is_trouble(error):
            raise
        return False
    finally:
        with suppress(OSError):
            directory.remove(name)
