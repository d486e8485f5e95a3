"""The simulated kernel answers like Linux: the same calls, made to both, have the same answers."""

import ctypes
import os
import shutil
import stat
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

NAMES = st.sampled_from(["a", "b", "c.ready"])
SEEN = st.sampled_from(["a", "b", "c.ready", "."])
# Directories by their descriptors: two that are there, and a file's.
PLACES = st.integers(0, 2)
FLAGS = st.sampled_from(
    [
        filesystem._READ,
        filesystem._NEW,
        filesystem._DIRECTORY,
        os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC,
        os.O_WRONLY | os.O_CLOEXEC,
    ]
)
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
)


class Caller:
    """Makes calls to one of the two, below a root of its own."""

    def __init__(self, system: Any, libc: Any, get_errno: Callable[[], int], root: str) -> None:
        self.os, self.libc, self._errno = system, libc, get_errno
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
        failed = self.libc.renameat2(
            self.fds[place], old.encode(), self.fds[there], new.encode(), RENAME_NOREPLACE
        )
        return self._errno() if failed else 0

    def _link(self, place: int, old: str, there: int, new: str) -> None:
        self.os.link(old, new, src_dir_fd=self.fds[place], dst_dir_fd=self.fds[there])

    def _unlink(self, place: int, name: str) -> None:
        self.os.unlink(name, dir_fd=self.fds[place])

    def _mkdir(self, place: int, name: str) -> None:
        self.os.mkdir(name, dir_fd=self.fds[place])

    def _stat(self, place: int, name: str) -> tuple[int, int] | None:
        found = self.os.stat(name, dir_fd=self.fds[place], follow_symlinks=False)
        # The links and the size of a directory are the file system's own business.
        return (found.st_size, found.st_nlink) if stat.S_ISREG(found.st_mode) else None

    def _list(self, place: int) -> list[str]:
        fd = self.os.open(".", filesystem._DIRECTORY, dir_fd=self.fds[place])
        try:
            with self.os.scandir(fd) as entries:
                return sorted(entry.name for entry in entries)
        finally:
            self.os.close(fd)

    def _sync(self, place: int) -> None:
        self.os.fsync(self.fds[place])


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A directory in memory, where there is one."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="queuedriver-kernel-", dir=base) as directory:
        yield Path(directory)


@given(calls=st.lists(CALLS, max_size=25))
@settings(max_examples=400)
def test_it_answers_like_linux(memory: Path, calls: list[tuple[Any, ...]]) -> None:
    root = memory / "root"
    root.mkdir()
    kernel = Kernel(Disk())
    kernel.mkdir("/root")
    libc = Libc(kernel)
    callers = [
        Caller(os, filesystem._libc(), ctypes.get_errno, str(root)),
        Caller(kernel, libc, libc.get_errno, "/root"),
    ]
    try:
        for call in calls:
            real, simulated = (caller.answer(call) for caller in callers)
            assert simulated == real, call
    finally:
        callers[0].close()
        shutil.rmtree(root)


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
