"""The folder: which files are there, and what one look at a file says.

A directory whose own time has not moved has the names that it had, so 100,000 files cost nothing
while none comes or goes. Files are opened one by one, by whoever has a reason to look at them.
"""

import errno
import os
import stat
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.intake.rules import Facts

# For so many seconds a directory may change again without its time showing it.
_BLUR = 2.0
# Seconds after which names are listed whatever the time of the directory says: it may be a cached
# one.
_ANYWAY = 60.0
# What a file says that is somebody's for now; that we may not have until somebody lets us; and what
# says that it is none.
BUSY = (errno.EBUSY, errno.ETXTBSY, errno.EAGAIN)
FORBIDDEN = (errno.EACCES, errno.EPERM)
NO_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)


class Listing:
    """One directory of the folder, as it was listed."""

    def __init__(self) -> None:
        # Inodes by name.
        self.files: dict[str, int] = {}
        self.directories: list[str] = []
        # What else there is, which is never taken: links, sockets, directories too deep.
        self.others = 0
        self._mtime = -1
        self._moved_at = self._listed_at = 0.0

    def is_due(self, mtime: int, now: float) -> bool:
        """Return whether there may be other names than were listed."""
        if mtime != self._mtime:
            self._mtime, self._moved_at = mtime, now
            return True
        return self._listed_at < self._moved_at + _BLUR or now > self._listed_at + _ANYWAY

    def read(self, directory: Directory, now: float) -> list[str]:
        """List the directory; return the names of files that were not there, or were others."""
        before, self.files, self.directories, self.others = self.files, {}, [], 0
        self._listed_at = now
        new = []
        with directory.scan() as entries:
            for entry in entries:
                name = entry.name
                if entry.is_file(follow_symlinks=False):
                    self.files[name] = inode = entry.inode()
                    if before.get(name) != inode:
                        new.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    self.directories.append(name)
                else:
                    self.others += 1
        return new


class Changes(NamedTuple):
    """What one look at the names found: paths below the folder."""

    new: list[str]
    gone: set[str]


class Folder:
    """A folder that others drop files into."""

    def __init__(self, directory: Directory, depth: int, without: frozenset[str]) -> None:
        self.directory = directory
        # How many levels of sub-directories are looked into, and which of the first are not.
        self._depth = depth
        self._without = without
        # By the path below the folder; "" is the folder.
        self._listings: dict[str, Listing] = {}

    @property
    def others(self) -> int:
        """Count what is there and is no file; sub-directories that are not looked into, too."""
        passed = sum(
            name[0] != "." and os.path.join(at, name) not in self._listings
            for at, one in self._listings.items()
            for name in one.directories
        )
        return passed + sum(one.others for one in self._listings.values())

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of all directories that are looked into."""
        return tuple(os.path.join(self.directory.path, at) for at in self._listings)

    def look(self, now: float) -> Changes:
        """Look for names that came and went."""
        changes = Changes([], set())
        before, self._listings = self._listings, {}
        self._look_into("", before, changes, now)
        for at, listing in before.items():
            if at not in self._listings:
                changes.gone.update(os.path.join(at, name) for name in listing.files)
        return changes

    def _look_into(self, at: str, before: dict[str, Listing], changes: Changes, now: float) -> None:
        listing = self._listings[at] = before.get(at) or Listing()
        try:
            with self.opened(at) as directory:
                if listing.is_due(directory.status().st_mtime_ns, now):
                    old = listing.files
                    new = listing.read(directory, now)
                    changes.new.extend(os.path.join(at, name) for name in new)
                    gone = old.keys() - listing.files.keys()
                    changes.gone.update(os.path.join(at, name) for name in gone)
        except OSError:
            # The folder itself has to be there; of a sub-directory nothing is known now.
            if not at:
                raise
        level = at.count("/") + 1 if at else 0
        for name in listing.directories if level < self._depth else ():
            if name[0] != "." and (at or name not in self._without):
                self._look_into(os.path.join(at, name), before, changes, now)

    def opened(self, at: str) -> AbstractContextManager[Directory]:
        """Open a directory of the folder; no symlink is followed there."""
        return self.directory.subdirectory(at) if at else nullcontext(self.directory)


def facts_of(found: os.stat_result) -> Facts | None:
    """Return what the system says of a regular file; None of anything else."""
    if not stat.S_ISREG(found.st_mode):
        return None
    return Facts(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_nlink)


def look_at(directory: Directory, name: str) -> Facts | None:
    """Return what a file is right now, by an open: what a server is not asked it may remember
    wrongly. None for what is no regular file; OSError for what cannot be opened."""
    with open_fd(directory.open_read(name)) as fd:
        return facts_of(os.fstat(fd))
