"""The simulated kernel answers like Linux: the same calls, made to both, have the same answers."""

import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuedriver.disk import filesystem
from tests.simulation.disk import Disk
from tests.simulation.kernel import RENAME_NOREPLACE, Kernel, Libc
from tests.simulation.scene import STUCK
from tests.simulation.stuck import answers

NAMES = st.sampled_from(["a", "b", "c.ready"])
SEEN = st.sampled_from(["a", "b", "c.ready", "."])
# Directories by their descriptors: two that are there, and a file's.
PLACES = st.integers(0, 2)
FLAGS = st.sampled_from(
    [
        filesystem._READ,
        filesystem._NEW,
        filesystem._DIRECTORY,
        filesystem._INSIDE,
        os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC,
        os.O_WRONLY | os.O_CLOEXEC,
        os.O_RDONLY | os.O_CLOEXEC,
    ]
)
# Where symlinks lead: beside them, to the other directory, to a file in it, nowhere, to themselves.
TARGETS = st.sampled_from(["a", "b", "/one", "/two", "/two/a", "/nowhere/a", "c.ready"])
# As a user names them: the directories themselves, and what is in them.
PATHS = st.sampled_from(["/one", "/two", "/one/a", "/one/a/b", "/two/b", "/file", "/file/a"])
TOPS = st.sampled_from(["/one", "/two", "/three"])
CALLS = st.one_of(
    st.tuples(st.just("create"), PLACES, NAMES, st.binary(max_size=5)),
    st.tuples(st.just("open"), PLACES, NAMES, FLAGS),
    st.tuples(st.just("read"), PLACES, SEEN),
    st.tuples(st.just("rename"), PLACES, NAMES, PLACES, NAMES),
    st.tuples(st.just("rename_new"), PLACES, NAMES, PLACES, NAMES),
    st.tuples(st.just("link"), PLACES, NAMES, PLACES, NAMES),
    st.tuples(st.just("unlink"), PLACES, NAMES),
    st.tuples(st.just("mkdir"), PLACES, NAMES),
    st.tuples(st.just("stat"), PLACES, SEEN),
    st.tuples(st.just("list"), PLACES),
    st.tuples(st.just("sync"), PLACES),
    st.tuples(st.just("start_sync"), PLACES),
    st.tuples(st.just("symlink"), PLACES, NAMES, TARGETS),
    st.tuples(st.just("readlink"), PLACES, SEEN),
    st.tuples(st.just("rmdir"), PLACES, NAMES),
    # By paths: a directory that was opened need not be the one that is there.
    st.tuples(st.just("move"), TOPS, TOPS),
    st.tuples(st.just("move"), PATHS, PATHS),
    st.tuples(st.just("make"), TOPS),
    st.tuples(st.just("turn"), TOPS, TOPS),
    st.tuples(st.just("open_path"), PATHS, FLAGS),
    st.tuples(st.just("stat_path"), PATHS),
    st.tuples(st.just("same"), PLACES, TOPS),
)


# Of the C library's sync_file_range: start to write, and wait for nothing.
SYNC_FILE_RANGE_WRITE = 2


class Caller:
    """Makes calls to one of the two, below a root of its own."""

    def __init__(self, system: Any, libc: Any, get_errno: Callable[[], int], root: str) -> None:
        self.os, self.libc, self._errno = system, libc, get_errno
        self.root = root
        for name in ("one", "two"):
            system.mkdir(f"{root}/{name}")
        self.fds = [
            system.open(f"{root}/{name}", os.O_RDONLY | os.O_DIRECTORY) for name in ("one", "two")
        ]
        self.fds.append(system.open(f"{root}/file", os.O_WRONLY | os.O_CREAT, 0o666))

    def answer(self, call: tuple[Any, ...]) -> object:
        """What it says; an error by its number."""
        try:
            return getattr(self, f"_{call[0]}")(*call[1:])
        except OSError as error:
            return type(error).__name__, error.errno

    def close(self) -> None:
        for fd in self.fds:
            self.os.close(fd)

    def _create(self, place: int, name: str, data: bytes) -> int:
        fd = self.os.open(name, filesystem._NEW, 0o666, dir_fd=self.fds[place])
        written = 0
        while written < len(data):
            written += self.os.write(fd, data[written:])
        self.os.fsync(fd)
        size: int = self.os.fstat(fd).st_size
        self.os.close(fd)
        return size

    def _open(self, place: int, name: str, flags: int) -> None:
        self.os.close(self.os.open(name, flags, 0o666, dir_fd=self.fds[place]))

    def _read(self, place: int, name: str) -> bytes:
        fd = self.os.open(name, filesystem._READ, dir_fd=self.fds[place])
        try:
            data: bytes = self.os.read(fd, 3) + self.os.read(fd, 100)
            return data
        finally:
            self.os.close(fd)

    def _rename(self, place: int, old: str, there: int, new: str) -> None:
        self.os.rename(old, new, src_dir_fd=self.fds[place], dst_dir_fd=self.fds[there])

    def _rename_new(self, place: int, old: str, there: int, new: str) -> int:
        fds = self.fds[place], self.fds[there]
        source, target = os.fsencode(old), os.fsencode(new)
        failed = self.libc.renameat2(fds[0], source, fds[1], target, RENAME_NOREPLACE)
        return self._errno() if failed else 0

    def _link(self, place: int, old: str, there: int, new: str) -> None:
        self.os.link(old, new, src_dir_fd=self.fds[place], dst_dir_fd=self.fds[there])

    def _unlink(self, place: int, name: str) -> None:
        self.os.unlink(name, dir_fd=self.fds[place])

    def _mkdir(self, place: int, name: str) -> None:
        self.os.mkdir(name, dir_fd=self.fds[place])

    def _stat(self, place: int, name: str) -> tuple[int, int] | None:
        found = self.os.stat(name, dir_fd=self.fds[place], follow_symlinks=False)
        # The links and the size of a directory are the file system's own business, the size of a
        # symlink is that of a path.
        return (found.st_size, found.st_nlink) if stat.S_ISREG(found.st_mode) else None

    def _list(self, place: int) -> list[tuple[str, bool, bool]]:
        """The names, whether each has the inode that it is said to have, and is a directory."""
        fd = self.os.open(".", filesystem._DIRECTORY, dir_fd=self.fds[place])
        try:
            with self.os.scandir(fd) as entries:
                return sorted(
                    (
                        one.name,
                        one.inode() == self._inode(fd, one.name),
                        one.is_dir(follow_symlinks=False),
                    )
                    for one in entries
                )
        finally:
            self.os.close(fd)

    def _inode(self, fd: int, name: str) -> int:
        number: int = self.os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino
        return number

    def _sync(self, place: int) -> None:
        self.os.fsync(self.fds[place])

    def _start_sync(self, place: int) -> int:
        failed = self.libc.sync_file_range(self.fds[place], 0, 0, SYNC_FILE_RANGE_WRITE)
        return self._errno() if failed else 0

    def _symlink(self, place: int, name: str, target: str) -> None:
        self.os.symlink(self._full(target), name, dir_fd=self.fds[place])

    def _readlink(self, place: int, name: str) -> str:
        target: str = self.os.readlink(name, dir_fd=self.fds[place])
        return target.removeprefix(self.root)

    def _rmdir(self, place: int, name: str) -> None:
        self.os.rmdir(name, dir_fd=self.fds[place])

    def _move(self, old: str, new: str) -> None:
        self.os.rename(self._full(old), self._full(new))

    def _make(self, path: str) -> None:
        self.os.mkdir(self._full(path))

    def _turn(self, path: str, target: str) -> None:
        """As `ln -sfn` does."""
        self.os.symlink(self._full(target), f"{self.root}/new")
        try:
            self.os.rename(f"{self.root}/new", self._full(path))
        except OSError:
            self.os.unlink(f"{self.root}/new")
            raise

    def _open_path(self, path: str, flags: int) -> None:
        self.os.close(self.os.open(self._full(path), flags, 0o666))

    def _stat_path(self, path: str) -> tuple[int, int]:
        found = self.os.stat(self._full(path))
        kind = stat.S_IFMT(found.st_mode)
        return kind, found.st_size if stat.S_ISREG(kind) else 0

    def _same(self, place: int, path: str) -> bool:
        """Whether the directory that was opened is the one that is there."""
        ours, there = self.os.fstat(self.fds[place]), self.os.stat(self._full(path))
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def _full(self, path: str) -> str:
        return self.root + path if path[0] == "/" else path


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A directory in memory, where there is one."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="queuedriver-kernel-", dir=base) as directory:
        yield Path(directory)


@given(calls=st.lists(CALLS, max_size=25))
@settings(max_examples=1000)
def test_it_answers_like_linux(memory: Path, calls: list[tuple[Any, ...]]) -> None:
    root = memory / "root"
    root.mkdir()
    kernel = Kernel(Disk())
    kernel.mkdir("/root")
    libc = Libc(kernel)
    callers = [
        Caller(os, filesystem.libc(), ctypes.get_errno, str(root)),
        Caller(kernel, libc, libc.get_errno, "/root"),
    ]
    try:
        for call in calls:
            real, simulated = (caller.answer(call) for caller in callers)
            assert simulated == real, call
    finally:
        callers[0].close()
        shutil.rmtree(root)


def test_items_that_cannot_be_moved_say_what_linux_says_of_them(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("without unshare(1) nothing can be mounted for this test alone")
    prefix = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    told = subprocess.run(
        [*prefix, sys.executable, "-m", "tests.simulation.stuck", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if told.returncode:
        pytest.skip(f"nothing can be mounted here: {told.stderr.strip()[-200:]}")
    real = json.loads(told.stdout)
    assert real
    for kind, said in real.items():
        number, directory = STUCK[kind]
        assert _simulated(number, directory) == said, kind


def _simulated(number: int, directory: bool) -> dict[str, str]:
    disk = Disk()
    kernel = Kernel(disk)
    for path in ("/in", "/out", "/in/other-directory"):
        kernel.mkdir(path)
    kernel.close(kernel.open("/in/other", filesystem._NEW))
    item = disk.new(directory)
    item.stuck = number
    disk.change(((disk.root.entries or {})["in"], "item", item))
    return answers(kernel, "", "item", directory)


def test_lowest_number_that_is_free_is_given_again() -> None:
    kernel = Kernel(Disk())
    first, second = (kernel.open(name, filesystem._NEW) for name in ("/a", "/b"))
    numbers = kernel.fstat(first).st_ino, kernel.fstat(second).st_ino
    kernel.unlink("/a")
    # It has no name, and is open.
    assert kernel.fstat(kernel.open("/c", filesystem._NEW)).st_ino not in numbers
    kernel.close(first)
    assert kernel.fstat(kernel.open("/d", filesystem._NEW)).st_ino == numbers[0]


def test_number_of_a_file_that_a_power_cut_may_bring_back_is_not_given() -> None:
    _, kernel, fd = _disk()
    _write(kernel, fd, "a", sync=True)
    kernel.fsync(fd)
    number = kernel.stat("/d/a").st_ino
    kernel.unlink("/d/a")
    _write(kernel, fd, "b", sync=True)
    assert kernel.stat("/d/b").st_ino != number
    kernel.fsync(fd)
    _write(kernel, fd, "c", sync=True)
    assert kernel.stat("/d/c").st_ino == number


def test_nearly_full_disk_takes_what_fits_and_is_well_when_there_is_room() -> None:
    disk, kernel, fd = _disk()
    disk.capacity = disk.used + 3
    file = kernel.open("a", filesystem._NEW, dir_fd=fd)
    assert kernel.fstatvfs(fd).f_bavail == 3
    assert kernel.write(file, b"123456") == 3
    with pytest.raises(OSError, match="No space left"):
        kernel.write(file, b"456")
    kernel.close(file)
    kernel.unlink("/d/a")
    assert disk.used == 0
    disk.takes_files = False
    with pytest.raises(OSError, match="No space left"):
        kernel.open("b", filesystem._NEW, dir_fd=fd)


def _disk() -> tuple[Disk, Kernel, int]:
    disk = Disk()
    kernel = Kernel(disk)
    kernel.mkdir("/d")
    disk.track()
    return disk, kernel, kernel.open("/d", os.O_RDONLY | os.O_DIRECTORY)


def _write(kernel: Kernel, fd: int, name: str, sync: bool) -> None:
    file = kernel.open(name, filesystem._NEW, dir_fd=fd)
    filesystem_write(kernel, file, b"whole")
    if sync:
        kernel.fsync(file)
    kernel.close(file)


def filesystem_write(kernel: Kernel, fd: int, data: bytes) -> None:
    while data:
        data = data[kernel.write(fd, data) :]


def _after_cuts(make: Callable[[Kernel, int], None]) -> set[tuple[tuple[str, bytes], ...]]:
    """Every state that a power cut may leave."""
    found = set()
    for number in range(200):
        disk, kernel, fd = _disk()
        make(kernel, fd)
        bits = number

        def choose(options: int) -> int:
            nonlocal bits
            bits, choice = divmod(bits, options)
            return choice

        disk.cut(choose)
        directory = (disk.root.entries or {})["d"]
        left = ((name, inode.data) for name, inode in (directory.entries or {}).items())
        found.add(tuple(sorted(left)))
    return found


def test_a_power_cut_may_leave_a_name_without_its_bytes_and_bytes_without_their_name() -> None:
    def make(kernel: Kernel, fd: int) -> None:
        _write(kernel, fd, "a", sync=False)

    assert _after_cuts(make) == {(), (("a", b""),), (("a", b"wh"),), (("a", b"whole"),)}


def test_a_rename_is_there_or_not_and_what_was_synced_stays() -> None:
    def make(kernel: Kernel, fd: int) -> None:
        _write(kernel, fd, "a", sync=True)
        kernel.fsync(fd)
        kernel.rename("a", "b", src_dir_fd=fd, dst_dir_fd=fd)

    assert _after_cuts(make) == {(("a", b"whole"),), (("b", b"whole"),)}


def test_of_two_changes_to_one_name_the_later_needs_the_earlier() -> None:
    def make(kernel: Kernel, fd: int) -> None:
        _write(kernel, fd, "a", sync=True)
        kernel.rename("a", "b", src_dir_fd=fd, dst_dir_fd=fd)
        _write(kernel, fd, "c", sync=True)

    states = _after_cuts(make)
    assert (("b", b"whole"),) in states
    assert (("c", b"whole"),) in states
    assert () in states
    assert (("a", b"whole"), ("b", b"whole")) not in states


def test_nothing_is_lost_of_what_was_synced() -> None:
    def make(kernel: Kernel, fd: int) -> None:
        _write(kernel, fd, "a", sync=True)
        kernel.rename("a", "b", src_dir_fd=fd, dst_dir_fd=fd)
        kernel.fsync(fd)

    assert _after_cuts(make) == {(("b", b"whole"),)}
