"""The system calls that a queue makes, over a simulated disk.

A `Kernel` stands where a module of ours says `os`: same names, same arguments, same errors. What
it does not have is an AttributeError, so nothing can reach the real disk unseen.

Every call that another process could notice, or be noticed by, is a *step*. What happens at a step
is not decided here: from the step `stop_at` on, calls go to whoever plays with time (`world.py`).
`test_simulated_kernel.py` makes the same calls here and to Linux, and compares the answers.
"""

import errno
import itertools
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from tests.simulation.disk import Disk, Entry, Inode, Listing

_DEVICE = 0x5117
_WRITES = os.O_WRONLY | os.O_RDWR
_NAME_MAX = 255
_FD_BITS = 20
_MOST_LINKS = 40
_numbers = itertools.count(1)
_new_tuple = tuple.__new__
RENAME_NOREPLACE = 1

_Call = TypeVar("_Call", bound=Callable[..., Any])


class Open:
    """An open file."""

    __slots__ = ("failures", "flags", "inode", "name", "position")

    def __init__(self, inode: Inode, flags: int, name: str = "") -> None:
        self.inode = inode
        # By which it was opened, for whoever tells of it.
        self.name = name
        self.flags = flags
        self.position = 0
        # Of how many failures of the disk who syncs all by it was told, or need not be.
        self.failures = 0


class Stat(NamedTuple):
    """What of a stat_result is used."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_nlink: int
    st_size: int
    st_mtime_ns: int
    st_uid: int

    @property
    def st_ctime_ns(self) -> int:
        """When it was written: that it was renamed is not kept."""
        return self.st_mtime_ns


class Scan:
    """What stands for what `os.scandir` returns."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries

    def __enter__(self) -> "Scan":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Entry]:
        return self._entries

    def close(self) -> None:
        self._entries = iter(())


class StatVfs(NamedTuple):
    f_namemax: int = _NAME_MAX
    f_bavail: int = 1 << 42
    f_frsize: int = 1
    f_flag: int = 0
    f_fsid: int = 1


def step(method: _Call) -> _Call:
    """A call at which something may happen."""

    @wraps(method)
    def call(self: "Kernel", *given: Any, **named: Any) -> Any:
        self.taken += 1
        if self.taken < self.stop_at:
            return method(self, *given, **named)
        return self.at_stop(method, given, named)

    return cast(_Call, call)


class Kernel:
    """What stands where a module says `os`."""

    fspath, strerror, environ = staticmethod(os.fspath), staticmethod(os.strerror), os.environ
    fsencode, fsdecode = staticmethod(os.fsencode), staticmethod(os.fsdecode)
    PathLike = os.PathLike
    O_RDONLY, O_NOFOLLOW, O_NONBLOCK, O_CLOEXEC = (
        os.O_RDONLY,
        os.O_NOFOLLOW,
        os.O_NONBLOCK,
        os.O_CLOEXEC,
    )
    O_WRONLY, O_CREAT, O_EXCL, O_DIRECTORY = os.O_WRONLY, os.O_CREAT, os.O_EXCL, os.O_DIRECTORY
    O_APPEND = os.O_APPEND
    ST_RDONLY = os.ST_RDONLY

    def __init__(self, disk: Disk, noreplace: bool = True) -> None:
        self.disk = disk
        # Whether RENAME_NOREPLACE is known; NFS does not know it.
        self.noreplace = noreplace
        # The descriptors, and the pid, of the process that runs.
        self.files: dict[int, Open] = {}
        self.pid = 1
        self.taken: float = 0
        self.stop_at: float = float("inf")
        self.at_stop: Callable[..., Any] = _nobody
        # Told in which directory a file is about to be made.
        self.on_create: Callable[[Inode], None] | None = None
        self.path = Paths(self)
        self.stopped = False
        self._number = next(_numbers)
        self._last_fd = self._number << _FD_BITS
        # Where somebody has looked for a name and found nothing, if that matters: a network file
        # system may go on saying so for a while. What was renamed last, likewise.
        self.missed: set[tuple[int, str]] | None = None
        self.renamed: tuple[int, str] = (0, "")
        self._drawn: dict[int, int] = {}

    # Not steps: nobody else can see them

    def getpid(self) -> int:
        return self.pid

    def geteuid(self) -> int:
        return 0

    def pipe2(self, flags: int) -> tuple[int, int]:
        """For signals, of which there are none."""
        pipe = Inode(0)
        pipe.links = 1
        return self._descriptor(Open(pipe, 0)), self._descriptor(Open(pipe, 0))

    def urandom(self, size: int) -> bytes:
        """Never the same twice, which real ones are with high probability."""
        drawn = self._drawn[self.pid] = self._drawn.get(self.pid, 0) + 1
        return ((self.pid << 8 | drawn) * 0x9E3779B1 % (1 << 8 * size)).to_bytes(size, "big")

    def fstat(self, fd: int) -> Stat:
        return _stat(self._open(fd).inode)

    def fstatvfs(self, fd: int) -> StatVfs:
        self._open(fd)
        return StatVfs(f_bavail=self.disk.room)

    def dup2(self, fd: int, fd2: int, inheritable: bool = True) -> int:
        file, before = self._open(fd), self.files.get(fd2)
        file.inode.opens += 1
        self.files[fd2] = file
        if before is not None:
            self.disk.close(before.inode)
        return fd2

    def close(self, fd: int) -> None:
        file = self.files.pop(fd, None)
        if file is None:
            if self.stopped or fd >> _FD_BITS != self._number:
                # Somebody who was killed is being taken down; or is collected now, of an earlier
                # run.
                return
            _fail(errno.EBADF)
        self.disk.close(file.inode)
        if file.flags & _WRITES:
            # A network file system may say only now that it could not write.
            self.written()

    @step
    def written(self) -> None:
        """The last word on what was written to a file that is being closed."""

    # Looking

    @step
    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and "/" not in path and dir_fd in self.files:
            # Nearly always.
            directory, name = self.files[dir_fd].inode, path
        else:
            directory, name = self._parent(path, dir_fd)
        if directory.entries is None:
            _fail(errno.ENOTDIR, path)
        inode = directory if name == "." else directory.entries.get(name)
        exclusive = flags & os.O_EXCL and flags & os.O_CREAT
        if inode is not None and inode.target is not None and not exclusive:
            if flags & os.O_NOFOLLOW:
                _fail(errno.ENOTDIR if flags & os.O_DIRECTORY else errno.ELOOP, path)
            directory, name = self._follow(directory, name, path)
            inode = self._named(directory, name)
        if inode is None:
            inode = self._create(directory, name, path, flags)
        elif exclusive:
            _fail(errno.EEXIST, path)
        elif inode.entries is not None:
            if flags & (_WRITES | os.O_CREAT):
                _fail(errno.EISDIR, path)
        elif flags & os.O_DIRECTORY:
            _fail(errno.ENOTDIR, path)
        elif flags & os.O_TRUNC:
            self.disk.empty(inode)
        return self._descriptor(Open(inode, flags, path))

    @step
    def walk(self, path: str, inside: int = 0) -> int | None:
        """A descriptor of a directory that is there, found along its path in one step; else None.

        No call of Linux. It stands for one open for each part of the path, between which nothing
        is worth happening: every tenth step would be taken there. In the last so many parts, those
        `inside` a directory that a user named, no symlink is followed.
        """
        directory = self.disk.root
        parts = path[1:].split("/")
        for left, part in zip(range(len(parts), 0, -1), parts, strict=True):
            inner = (directory.entries or {}).get(part)
            if inner is not None and inner.target is not None and left > inside:
                try:
                    inner = self._named(*self._follow(directory, part, path))
                except OSError:
                    return None
            if inner is None or inner.entries is None:
                return None
            if self.missed and (directory.number, part) in self.missed:
                return None
            directory = inner
        return self._descriptor(Open(directory, os.O_DIRECTORY, path))

    @step
    def stat(self, path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Stat:
        return _stat(self._find(path, dir_fd, follow_symlinks))

    @step
    def readlink(self, path: str, *, dir_fd: int | None = None) -> str:
        target = self._find(path, dir_fd, follow=False).target
        if target is None:
            _fail(errno.EINVAL, path)
        return target

    @step
    def listed(self, fd: int) -> Listing:
        inode = self._open(fd).inode
        if inode.entries is None:
            _fail(errno.ENOTDIR)
        return self.disk.listing(inode)

    def scandir(self, fd: int) -> Scan:
        return Scan(self.listed(fd).lines())

    @step
    def read(self, fd: int, size: int) -> bytes:
        file = self._open(fd)
        if file.inode.entries is not None:
            _fail(errno.EISDIR)
        if file.flags & os.O_WRONLY:
            _fail(errno.EBADF)
        data = file.inode.data[file.position : file.position + size]
        file.position += len(data)
        return data

    def fdopen(self, fd: int, mode: str) -> "File":
        assert mode == "rb"
        return File(self, fd)

    # Changing

    @step
    def write(self, fd: int, data: bytes | memoryview) -> int:
        """What goes into an empty file goes in two halves, so that there is a time between."""
        file = self._open(fd)
        if not file.flags & _WRITES:
            _fail(errno.EBADF)
        inode = file.inode
        at = len(inode.data) if file.flags & os.O_APPEND else file.position
        part = bytes(data if inode.data else data[: (len(data) + 1) // 2])
        if grows := max(0, at + len(part) - len(inode.data)):
            if grows > (room := self.disk.room):
                part = part[: len(part) - grows + room]
                if not part:
                    _fail(self.disk.says_full)
                grows = room
            self.disk.used += grows
        inode.data = inode.data[:at] + part + inode.data[at + len(part) :]
        inode.mtime = self.disk.now
        self.disk.changes += 1
        file.position = at + len(part)
        return len(part)

    @step
    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        """Bytes that are taken, and that nobody looks at."""
        inode = self._open(fd).inode
        more = offset + length - len(inode.data) - inode.reserved
        if more > self.disk.room:
            _fail(self.disk.says_full)
        inode.reserved += max(0, more)
        self.disk.used += max(0, more)

    def copy_file_range(self, source: int, target: int, count: int) -> int:
        _fail(errno.EXDEV)

    @step
    def rename(
        self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self._rename(src, dst, src_dir_fd, dst_dir_fd)

    @step
    def rename_noreplace(self, src: str, dst: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        """The C library's renameat2 (`Libc`)."""
        if not self.noreplace:
            _fail(errno.EINVAL, src)
        self._rename(src, dst, src_dir_fd, dst_dir_fd, replace=False)

    def _rename(
        self,
        src: str,
        dst: str,
        src_dir_fd: int | None,
        dst_dir_fd: int | None,
        replace: bool = True,
    ) -> None:
        source, old = self._parent(src, src_dir_fd)
        target, new = self._parent(dst, dst_dir_fd)
        assert source.entries is not None
        assert target.entries is not None
        if old == ".":
            _fail(errno.EBUSY, src, dst)
        inode = source.entries.get(old)
        if inode is None:
            _fail(errno.ENOENT, src, dst)
        _check_name(target, new, src, dst)
        there = target.entries.get(new)
        if there is not None and not replace:
            _fail(errno.EEXIST, src, dst)
        if inode.entries is not None and target in self.disk.inodes(inside=inode):
            _fail(errno.EINVAL, src, dst)
        if there is inode:
            return
        if there is not None:
            if there.entries is not None and source in self.disk.inodes(inside=there):
                _fail(errno.ENOTEMPTY, src, dst)
            _check_replaceable(there, inode, src, dst)
        _check_stuck(inode, src, dst, moved=source is not target)
        self.disk.change((source, old, None), (target, new, inode))
        self.renamed = target.number, new
        if self.missed is not None:
            self.missed.discard(self.renamed)

    @step
    def link(
        self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        inode = self._find(src, src_dir_fd, follow=True)
        target, new = self._parent(dst, dst_dir_fd)
        if new in (target.entries or {}):
            _fail(errno.EEXIST, src, dst)
        _check_name(target, new, src, dst)
        if inode.entries is not None:
            _fail(errno.EPERM, src, dst)
        self.disk.change((target, new, inode))

    @step
    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        directory, name = self._parent(path, dir_fd)
        inode = (directory.entries or {}).get(name)
        if inode is None:
            _fail(errno.ENOENT, path)
        if inode.entries is not None:
            _fail(errno.EISDIR, path)
        _check_stuck(inode, path)
        self.disk.change((directory, name, None))

    @step
    def rmdir(self, path: str, *, dir_fd: int | None = None) -> None:
        directory, name = self._parent(path, dir_fd)
        inode = (directory.entries or {}).get(name)
        if inode is None:
            _fail(errno.ENOENT, path)
        if inode.entries is None:
            _fail(errno.ENOTDIR, path)
        if inode.entries:
            _fail(errno.ENOTEMPTY, path)
        self.disk.change((directory, name, None))

    @step
    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        directory, name = self._parent(path, dir_fd)
        if name in (directory.entries or {}):
            _fail(errno.EEXIST, path)
        _check_name(directory, name, path)
        self.disk.change((directory, name, self._new(path, directory=True)))

    @step
    def symlink(self, src: str, dst: str, *, dir_fd: int | None = None) -> None:
        directory, name = self._parent(dst, dir_fd)
        if name in (directory.entries or {}):
            _fail(errno.EEXIST, src, dst)
        _check_name(directory, name, src, dst)
        self.disk.change((directory, name, self._new(dst, target=src)))

    @step
    def fsync(self, fd: int) -> None:
        inode = self._open(fd).inode
        self.disk.sync(inode)
        if inode.untold:
            inode.untold = False
            _fail(errno.EIO)

    @step
    def syncfs(self, fd: int) -> None:
        file = self._open(fd)
        self.disk.sync_all()
        if file.failures < self.disk.failures:
            file.failures, self.disk.is_told = self.disk.failures, True
            _fail(errno.EIO)

    @step
    def sync_file_range(self, fd: int) -> None:
        """The C library's: write-back is started, which promises nothing."""
        self._open(fd)

    # Finding

    def _open(self, fd: int) -> Open:
        file = self.files.get(fd)
        if file is None:
            _fail(errno.EBADF)
        return file

    def _descriptor(self, file: Open) -> int:
        file.inode.opens += 1
        # One that nobody was told of is told to those who come later, too.
        file.failures = self.disk.failures - (not self.disk.is_told)
        # No number is given twice, not even in another run.
        self._last_fd = fd = self._last_fd + 1
        self.files[fd] = file
        return fd

    def _create(self, directory: Inode, name: str, path: str, flags: int) -> Inode:
        """A file that is not there yet, where that is what was asked for."""
        if not flags & os.O_CREAT:
            if self.missed is not None:
                self.missed.add((directory.number, name))
            _fail(errno.ENOENT, path)
        if self.on_create is not None:
            self.on_create(directory)
        _check_name(directory, name, path)
        inode = self._new(path)
        self.disk.change((directory, name, inode))
        if self.missed is not None:
            self.missed.discard((directory.number, name))
        return inode

    def _new(self, path: str, directory: bool = False, target: str | None = None) -> Inode:
        if not self.disk.takes_files:
            _fail(self.disk.says_full, path)
        return self.disk.new(directory, target)

    def _parent(self, path: str, dir_fd: int | None) -> tuple[Inode, str]:
        """The directory that a path leads to, and the name in it."""
        if dir_fd is not None and "/" not in path:
            directory = self._open(dir_fd).inode
            if directory.entries is None:
                _fail(errno.ENOTDIR, path)
            return directory, path
        parent, _, name = path.rstrip("/").rpartition("/")
        start = self.disk.root
        if path[0] != "/":
            assert dir_fd is not None, f"{path!r}: there is no current directory here"
            start = self._open(dir_fd).inode
        return self._descend(start, parent, path), name or "."

    def _descend(self, directory: Inode, parts: str, path: str, links: int = 0) -> Inode:
        """The directory at the end of these parts, whatever symlinks there are among them."""
        for part in filter(None, parts.split("/")):
            directory, name = self._follow(directory, part, path, links)
            directory = _entry(directory, name, path)
        if directory.entries is None:
            _fail(errno.ENOTDIR, path)
        return directory

    def _follow(self, directory: Inode, name: str, path: str, links: int = 0) -> tuple[Inode, str]:
        """The directory and the name that a name leads to; its own, if that is no symlink."""
        while (inode := self._named(directory, name)) is not None and inode.target is not None:
            links += 1
            if links > _MOST_LINKS:
                _fail(errno.ELOOP, path)
            parent, _, last = inode.target.rstrip("/").rpartition("/")
            start = self.disk.root if inode.target[0] == "/" else directory
            directory, name = self._descend(start, parent, path, links), last or "."
        return directory, name

    def _named(self, directory: Inode, name: str) -> Inode | None:
        return directory if name == "." else (directory.entries or {}).get(name)

    def cannot_see(self, path: str, dir_fd: int | None) -> bool:
        """Whether a name that is there may be said not to be: it was not, when last looked for."""
        directory, name = self._parent(path, dir_fd)
        return (directory.number, name) in (self.missed or ()) and name in (directory.entries or ())

    def _find(self, path: str, dir_fd: int | None, follow: bool) -> Inode:
        directory, name = self._parent(path, dir_fd)
        if follow:
            directory, name = self._follow(directory, name, path)
        return directory if name == "." else _entry(directory, name, path)


class File:
    """What stands for a file object: for reading, and without a buffer."""

    def __init__(self, kernel: Kernel, fd: int) -> None:
        self._kernel, self._fd = kernel, fd

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int) -> bytes:
        return self._kernel.read(self._fd, size)

    def close(self) -> None:
        self._kernel.close(self._fd)


class Paths:
    """What stands for `os.path`: the pure functions, and one that looks."""

    # A run has few paths, and asks for the same ones again and again.
    join, abspath, normpath = (
        staticmethod(lru_cache(4096)(pure))
        for pure in (posixpath.join, posixpath.abspath, posixpath.normpath)
    )
    dirname = staticmethod(posixpath.dirname)
    basename = staticmethod(posixpath.basename)
    relpath = staticmethod(posixpath.relpath)
    split = staticmethod(posixpath.split)
    splitext = staticmethod(posixpath.splitext)
    commonpath = staticmethod(posixpath.commonpath)
    # What is asked for its real path, a queue and what is above an output, is no symlink here.
    realpath = normpath

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def isdir(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(self._kernel.stat(path).st_mode)
        except OSError:
            return False


class Libc:
    """What stands for the C library, and for the `ctypes` that asks it what went wrong."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._errno = 0

    def renameat2(self, src_fd: int, src: bytes, dst_fd: int, dst: bytes, flags: int) -> int:
        assert flags == RENAME_NOREPLACE
        names = os.fsdecode(src), os.fsdecode(dst)
        return self._answer(self._kernel.rename_noreplace, *names, src_fd, dst_fd)

    def syncfs(self, fd: int) -> int:
        return self._answer(self._kernel.syncfs, fd)

    def sync_file_range(self, fd: int, offset: int, length: int, flags: int) -> int:
        return self._answer(self._kernel.sync_file_range, fd)

    def get_errno(self) -> int:
        return self._errno

    def _answer(self, call: Callable[..., None], *given: object) -> int:
        try:
            call(*given)
        except OSError as error:
            self._errno = error.errno or 0
            return -1
        return 0


def _entry(directory: Inode, name: str, path: str) -> Inode:
    if directory.entries is None:
        _fail(errno.ENOTDIR, path)
    inode = directory.entries.get(name)
    if inode is None:
        _fail(errno.ENOENT, path)
    return inode


def _check_name(directory: Inode, name: str, path: str, path2: str | None = None) -> None:
    if not directory.links:
        # It was removed; who has it open may still look.
        _fail(errno.ENOENT, path, path2)
    if len(name) > _NAME_MAX // 4 and len(os.fsencode(name)) > _NAME_MAX:
        _fail(errno.ENAMETOOLONG, path, path2)


def _check_replaceable(there: Inode, inode: Inode, path: str, path2: str) -> None:
    """Whether one may be renamed to the name that another has."""
    if there.entries is not None:
        if inode.entries is None:
            _fail(errno.EISDIR, path, path2)
        if there.entries:
            _fail(errno.ENOTEMPTY, path, path2)
    elif inode.entries is not None:
        _fail(errno.ENOTDIR, path, path2)
    _check_stuck(there, path, path2)


def _check_stuck(
    inode: Inode, path: str, path2: str | None = None, moved: bool | None = None
) -> None:
    """Whether an item may be renamed, to another directory or not; or removed (`moved` is None)."""
    match inode.stuck:
        case 0:
            return
        case errno.EXDEV if moved is None:
            # What is below stays, and is hidden.
            return
        case errno.EACCES if not moved:
            # Only in another directory its own entry for its parent is another.
            return
    _fail(inode.stuck, path, path2)


def _stat(inode: Inode) -> Stat:
    kind = stat.S_IFREG if inode.entries is None else stat.S_IFDIR
    size, owner = len(inode.data), 0
    if inode.target is not None:
        kind, size = stat.S_IFLNK, len(inode.target)
    # Not by its own constructor, which takes twice as long.
    return _new_tuple(Stat, (kind, inode.number, _DEVICE, inode.links, size, inode.mtime, owner))


def _fail(number: int, path: str | None = None, path2: str | None = None) -> NoReturn:
    raise OSError(number, os.strerror(number), path, None, path2)


def _nobody(method: Callable[..., Any], given: Any, named: Any) -> NoReturn:
    raise AssertionError("a stop was set, and nobody to be told")
