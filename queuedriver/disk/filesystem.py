"""What the queue asks of the disk. Few ask `os` themselves: for speed, or to keep a file open.

A `Directory` is opened once and addressed by descriptor, so a queue that is moved or mounted over
does not lead us elsewhere, and no name of an item can lead outside (docids have no `/`).

Which call may replace what: `rename` replaces, so its target carries an N nobody else uses, and
`rename_over` what somebody chose to lose. Every other target gets `rename_new`, which does not;
only where RENAME_NOREPLACE is not known, it may replace what comes right after its look.
"""

import contextlib
import ctypes
import errno
import itertools
import operator
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple, Self

from queuedriver.disk import mounts
from queuedriver.errors import NotRegular, explained, trouble
from queuedriver.format import names

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INSIDE = _DIRECTORY | os.O_NOFOLLOW
NOREPLACE = 1
# What file systems and old kernels say when they do not know RENAME_NOREPLACE.
_NO_NOREPLACE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_COPY_CHUNK = 1 << 20
# From this many files on, one syncfs is cheaper than an fsync of each.
SYNC_ALL_FROM = 4
# Bytes that a disk of any kind has written within a second. A syncfs waits for them all.
_LITTLE_UNWRITTEN = 32 << 20
# How many files are open at once for that.
_SYNC_TOGETHER = 64
_SYNC_FILE_RANGE_WRITE = 2

# Bytes: more than file systems keep inside an inode or promise on credit.
A_LITTLE = 64 * 1024

_NAME = operator.attrgetter("name")
_aside = itertools.count()


class Room(NamedTuple):
    """What is left on a file system."""

    free_bytes: int
    read_only: bool


class Directory:
    """An open directory; its methods take names in it, or paths as seen from it."""

    __slots__ = ("_inside", "_noreplace", "as_one", "fd", "path")

    def __init__(self, path: str, fd: int, noreplace: bool = True, inside: int = 0) -> None:
        self.path = path
        self.fd = fd
        self._inside = inside
        # Whether RENAME_NOREPLACE is known here, as far as we know.
        self._noreplace = noreplace and hasattr(libc(), "renameat2")
        # See `syncs_as_one`; None: nobody has asked.
        self.as_one: bool | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], create: bool = False, inside: int = 0) -> Self:
        """Open a directory; with `create`, make it and durably enter it into its parent first.

        The last so many parts of the path are ours, `inside` a directory that a user named and
        others may write to. No symlink is followed there: it could lead anywhere. Nor is that
        directory made: where it is missing, it is not mounted, or was moved away.
        """
        if not os.fspath(path):
            # As the system has it. Often a variable was not set; it is not the current directory.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        path = os.path.abspath(path)
        if create and not inside:
            make_directory(path)
        return cls(path, _open_directory(path, create, inside), inside=inside)

    @property
    def refuses_to_replace(self) -> bool:
        """Return whether a rename here can refuse to replace what is there, as far as is known."""
        return self._noreplace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def reopen(self, create: bool = False) -> None:
        """Open it anew after trouble, as the descriptor may be stale while the path is well again;
        with `create`, make what is missing of what is ours inside, and nothing above it."""
        fd = _open_directory(self.path, create, self._inside)
        # In one call and under the same number: the beat thread may be about to use it.
        os.dup2(fd, self.fd, inheritable=False)
        os.close(fd)
        self.as_one = None

    def moved(self) -> bool:
        """Tell whether another directory, or none, is at the path by which this one was opened."""
        try:
            ours, there = os.fstat(self.fd), os.stat(self.path)
        except FileNotFoundError:
            return True
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)

    def subdirectory(self, name: str, create: bool = False) -> "Directory":
        """Return one of ours inside, or with no name this one once more; NotADirectoryError also
        for a symlink to one."""
        parts = list(filter(None, name.split("/")))
        # From the descriptor: at our path there may be another directory by now.
        fd = _descend(self.fd, self.path, parts or ["."], create)
        return type(self)(os.path.join(self.path, *parts), fd, inside=self._inside + len(parts))

    def look_into(self, name: str) -> "Directory | None":
        """Open one of ours inside; None where nobody has made it: to look must change nothing."""
        with explained(self.path):
            try:
                return self.subdirectory(name)
            except FileNotFoundError:
                return None

    # Names

    def rename(self, old: str, new: str) -> None:
        """Rename within the directory; `new` carries an N, so there is nothing to replace."""
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def rename_new(self, old: str, new: str, to: "Directory | None" = None) -> None:
        """Rename to a name others may use: FileExistsError rather than replacing what is there."""
        target = self if to is None else to
        if target._noreplace:
            # renameat2, which Python does not have.
            if not libc().renameat2(self.fd, c_name(old), target.fd, c_name(new), NOREPLACE):
                return
            code = ctypes.get_errno()
            if code not in _NO_NOREPLACE:
                raise OSError(code, os.strerror(code), old, None, new)
            # EINVAL may also be a directory moved into itself; the plain rename below says so.
            target._noreplace = False
        if target.present(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), old, None, new)
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def rename_over(self, old: str, new: str, to: "Directory | None" = None) -> None:
        """Rename to a name that may be taken, because somebody chose that the newer one stays."""
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=(to or self).fd)

    def remove(self, name: str) -> bool:
        """Unlink a file that may be gone already; whether it was there."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def remove_all(self, name: str) -> None:
        """Remove what a program left under a name we gave it, be it a directory."""
        try:
            self.remove(name)
        except IsADirectoryError:
            # With it come archives of five kinds; for what hardly ever happens.
            import shutil

            shutil.rmtree(name, dir_fd=self.fd)

    def names(self) -> Iterator[str]:
        """Yield the listing as a stream: constant memory, however many names wait."""
        with self.scan() as entries:
            yield from map(_NAME, entries)

    def scan(self) -> "AbstractContextManager[Iterator[os.DirEntry[str]]]":
        """Yield the entries, which know their inode numbers; what this returns is to be closed."""
        # A descriptor of its own: one shared with another listing would share its position.
        # It has a copy.
        with open_fd(os.open(".", _DIRECTORY, dir_fd=self.fd)) as fd:
            return os.scandir(fd)

    def present(self, name: str) -> bool:
        """Ask by an open whether a name is there: a bare stat may be answered from a cache."""
        try:
            os.close(os.open(name, _READ, dir_fd=self.fd))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            # A symlink, a socket, a file we may not read: all of them are there.
            if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM):
                raise
        return True

    def status(self, name: str = ".") -> os.stat_result:
        """Return what the system says of the name itself: a symlink is not followed."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def is_regular(self, name: str) -> bool:
        """Return whether a name is that of a regular file."""
        return stat.S_ISREG(self.status(name).st_mode)

    def longest_name(self) -> int:
        """Return how many bytes a name may have here."""
        return os.fstatvfs(self.fd).f_namemax

    # Contents

    def open_read(self, name: str) -> int:
        """Return a descriptor for reading; blocks on nothing and follows nothing."""
        return os.open(name, _READ, dir_fd=self.fd)

    def open_new(self, name: str) -> int:
        """Return a descriptor of a file that was not there; the umask says who may read it. The
        name is one that nobody else uses."""
        try:
            return os.open(name, _NEW, 0o666, dir_fd=self.fd)
        except FileExistsError:
            return _open_anew(self, name)

    def mark(self, name: str, said: bytes = b"") -> None:
        """Make a file whose being there says something, whoever has made it; one that is there is
        not touched. What it has `said` besides is lost on a full disk."""
        with contextlib.suppress(FileExistsError):
            fd = os.open(name, _NEW, 0o666, dir_fd=self.fd)
            with open_fd(fd), contextlib.suppress(OSError):
                os.write(fd, said)

    def read(self, name: str, limit: int = 16 << 20) -> bytes:
        """Read a small file of ours, at most `limit` bytes of it: others may write here too.
        NotRegular for what is no file at all."""
        try:
            fd = os.open(name, _READ, dir_fd=self.fd)
        except OSError as error:
            # To open a socket fails with ENXIO, which otherwise a broken disk says.
            if error.errno in (errno.ELOOP, errno.ENXIO) and not self.is_regular(name):
                raise NotRegular(os.path.join(self.path, name)) from None
            raise
        with open_fd(fd):
            if (size := regular_size(fd)) is None:
                raise NotRegular(os.path.join(self.path, name))
            return read_up_to(fd, min(size, limit))

    def read_regular(self, name: str) -> bytes | None:
        """Read all of a file, however long; None when it is not a regular one."""
        fd = os.open(name, _READ, dir_fd=self.fd)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return None
            # Asking for just its size spares a large empty buffer; the rest is for a signal, and
            # for what is longer than one call reads.
            data = os.read(fd, found.st_size)
            if len(data) != found.st_size:
                data += read_up_to(fd, found.st_size - len(data))
            return data
        finally:
            os.close(fd)

    def write_new(self, name: str, data: bytes) -> None:
        """Create a file with these contents, under a name that nobody else uses; FileExistsError
        when it is taken all the same."""
        try:
            fd = os.open(name, _NEW, 0o666, dir_fd=self.fd)
        except FileExistsError:
            fd = _open_anew(self, name)
        try:
            # One call is enough but for a signal or a full disk.
            if (done := os.write(fd, data)) != len(data):
                write_all(fd, memoryview(data)[done:])
        finally:
            os.close(fd)

    def write_aside(
        self, name: str, data: bytes, durable: bool = False, *, first: bool = False
    ) -> None:
        """Replace a file as a whole: a reader sees the old contents or the new, never a part. Who
        writes `first` replaces nothing: FileExistsError when it is there.

        A crash leaves a hidden `.aside-…` file, which `check` names and removes.
        """
        aside = f".aside-{os.getpid()}-{next(_aside)}-{os.urandom(4).hex()}"
        with contextlib.ExitStack() as undo:
            with open_fd(self.open_new(aside)) as fd:
                undo.callback(self.remove, aside)
                write_all(fd, data)
                if durable:
                    os.fsync(fd)
            try:
                (self.rename_new if first else self.rename_over)(aside, name)
            except IsADirectoryError:
                raise NotRegular(os.path.join(self.path, name)) from None
            except FileNotFoundError:
                # Or a network file system lost the reply: nobody else moves what we wrote aside.
                if self.present(aside) or self.moved():
                    raise
            undo.pop_all()
        if durable:
            self.sync()

    def write_first(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file aside and rename it in unless one is there: then raise FileExistsError."""
        self.write_aside(name, data, durable, first=True)

    # Durability

    def sync(self) -> None:
        """Make the names of this directory survive a power cut."""
        os.fsync(self.fd)

    def sync_files(self, wanted: Iterable[str]) -> list[str]:
        """Make the contents of files survive a power cut; return those that are not there.

        The disk begins to write all of them before any is waited for: together they take a third
        of the time. Not syncfs, which waits for what everybody else has written, too.
        """
        names = iter(wanted)
        missing: list[str] = []
        while some := tuple(itertools.islice(names, _SYNC_TOGETHER)):
            missing += _sync_together(self, some)
        return missing

    def sync_all(self) -> None:
        """Sync everything on this file system at once: cheaper than fsync from a few files on."""
        if libc().syncfs(self.fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), self.path)

    def check_writable(self, size: int = 0) -> None:
        """Write a file of so many bytes, durably unless it is empty, and remove it. An OSError
        names this directory: that is what a person has to mend."""
        name = f".probe-{os.getpid()}"
        try:
            self.write_aside(name, bytes(size), durable=size > 0)
            self.remove(name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error

    def room(self) -> Room:
        """Return what is left for us to write."""
        found = os.fstatvfs(self.fd)
        return Room(found.f_bavail * found.f_frsize, bool(found.f_flag & os.ST_RDONLY))


def syncs_as_one(directory: Directory) -> bool:
    """Tell whether `sync_all` is to be preferred now: its file system says what could not be
    written, and nobody has written much that it would wait for."""
    if directory.as_one is None:
        directory.as_one = mounts.syncs_as_one(directory.status().st_dev)
    return directory.as_one and mounts.unwritten() < _LITTLE_UNWRITTEN


def sync_written(directory: Directory, names: Sequence[str]) -> list[str]:
    """Make the contents of files survive a power cut that this process has written itself; return
    those that were looked for and are not there."""
    if len(names) >= SYNC_ALL_FROM and syncs_as_one(directory):
        directory.sync_all()
        return []
    return directory.sync_files(names)


def is_replaced(path: str, ours: os.stat_result) -> bool:
    """Tell whether another directory of the same file system is at the path by which one was
    opened that looked so: made there, or what a link leads to by now. On another file system it is
    the mount that came or went."""
    try:
        there = os.stat(path)
    except OSError:
        return False
    same_disk = stat.S_ISDIR(there.st_mode) and there.st_dev == ours.st_dev
    return same_disk and there.st_ino != ours.st_ino


def move(
    source: Directory, name: str, to: Directory, final: str, token: str = "", replace: bool = False
) -> str | None:
    """Move a file to a name that others may use, and keep both where that is taken.

    Return the name that it got; None when it was gone. Without a token there is no second name to
    try: FileExistsError.
    """
    try:
        if replace:
            source.rename_over(name, final, to)
            # Of two names of one file, a rename leaves both.
            source.remove(name)
            return final
        for wanted in names.names_to_try(final, token) if token else (final,):
            try:
                source.rename_new(name, wanted, to)
            except FileExistsError:
                continue
            return wanted
    except FileNotFoundError as error:
        if source is not to and source.present(name):
            # What is not there is the directory that it was to go to, removed by somebody.
            raise trouble(error, f"moving {name!r} to {to.path}") from None
        return None
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.path.join(to.path, final))


def _sync_together(directory: Directory, wanted: Iterable[str]) -> Iterator[str]:
    """Sync files that are all open at once; yield those that are not there."""
    fds: list[int] = []
    try:
        for name in wanted:
            try:
                fd = directory.open_read(name)
            except FileNotFoundError:
                yield name
                continue
            fds.append(fd)
            # Only a hint: where it is refused, the fsync does all.
            libc().sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)
        for fd in fds:
            os.fsync(fd)
    finally:
        for fd in fds:
            os.close(fd)


def _open_anew(directory: Directory, name: str) -> int:
    """Open a file that a network file system may have made and lost the reply, so that the kernel
    asked once more: then it is there, and empty."""
    if directory.status(name).st_size:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    os.unlink(name, dir_fd=directory.fd)
    try:
        return os.open(name, _NEW, 0o666, dir_fd=directory.fd)
    except FileExistsError as error:
        raise trouble(error, f"creating {name!r} anew") from None


def _open_directory(path: str, create: bool, inside: int) -> int:
    """Return a descriptor; no symlink is followed in the last parts of the path."""
    base, *ours = path.rsplit("/", inside)
    base = base or "/"
    fd = os.open(base, _DIRECTORY)
    if not ours:
        return fd
    with open_fd(fd):
        return _descend(fd, base, ours, create)


def _descend(base: int, path: str, parts: Iterable[str], create: bool) -> int:
    """Open what is below an open directory, part by part and following no symlink."""
    fd = base
    for part in parts:
        path = os.path.join(path, part)
        try:
            inner = _enter(fd, part, create)
        except OSError as error:
            # Some kernels say of a symlink that it is one, others that it is no directory.
            code = errno.ENOTDIR if error.errno == errno.ELOOP else error.errno
            raise OSError(code, os.strerror(code or 0), path) from None
        finally:
            if fd != base:
                os.close(fd)
        fd = inner
    return fd


def _enter(parent: int, name: str, create: bool) -> int:
    if create:
        try:
            return os.open(name, _INSIDE, dir_fd=parent)
        except FileNotFoundError:
            _make(parent, name)
    return os.open(name, _INSIDE, dir_fd=parent)


def _make(parent: int, name: str) -> None:
    """Make a directory and enter it durably, unless another is faster."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        os.fsync(parent)


def make_directory(path: str) -> None:
    """Make a directory and its parents; what is new is entered durably."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directory(parent)
    with open_fd(os.open(parent, _DIRECTORY)) as fd:
        _make(fd, os.path.basename(path))


@contextlib.contextmanager
def open_fd(fd: int) -> Iterator[int]:
    """Close a descriptor at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def regular_size(fd: int) -> int | None:
    """Return the size of an open regular file; None for anything else."""
    found = os.fstat(fd)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def read_up_to(fd: int, size: int) -> bytes:
    """Return `size` bytes, or what there is."""
    data = os.read(fd, size)
    while len(data) < size and (more := os.read(fd, size - len(data))):
        data += more
    return data


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of it: a single write may be short on a full disk, a signal, or above 2 GB."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def copy_all(source: int, target: int) -> None:
    """Copy from one descriptor to another, in the kernel where it can (and shared where it may)."""
    # What a file system says that cannot do it, or not here; what else it says, reading says again.
    with contextlib.suppress(OSError):
        while os.copy_file_range(source, target, 1 << 30):
            pass
    # Also the rest, where the kernel gave up half-way: both positions have moved on alike.
    while data := os.read(source, _COPY_CHUNK):
        write_all(target, data)


# Returns a name as the C library takes it, and os.rename does: in an old locale that is not UTF-8.
c_name = operator.methodcaller(
    "encode", sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
)


@cache
def libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    # What renameat2 takes is not said: to check it costs half a microsecond of each document. Older
    # C libraries do not have it, whatever their kernel can do: then look, and rename.
    wide = ctypes.c_int64
    library.sync_file_range.argtypes = (ctypes.c_int, wide, wide, ctypes.c_uint)
    return library
