"""The inodes that the kernel knows of a directory, each by an O_PATH descriptor.

So names are looked up by whoever asks, and never twice; and what is renamed stays what it was.
"""

import errno
import os
import threading
from typing import NamedTuple

from tests.testbed import fuse_wire as wire

_DELETED = " (deleted)"


class Node(NamedTuple):
    """An inode that the kernel knows."""

    fd: int
    key: tuple[int, int]


class Denied(Exception):
    """An answer that is an errno."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode.get(number, str(number)))
        self.number = number


class Inodes:
    """Those that the kernel knows, and how often it was told of each."""

    def __init__(self, backing: str) -> None:
        self._lock = threading.Lock()
        fd = os.open(backing, os.O_PATH | os.O_DIRECTORY)
        found = os.fstat(fd)
        root = Node(fd, (found.st_dev, found.st_ino))
        self._nodes = {wire.ROOT: root}
        self._numbers = {root.key: wire.ROOT}
        self._told = {wire.ROOT: 1}
        self._last = wire.ROOT
        self._root = os.readlink(f"/proc/self/fd/{fd}")

    def __getitem__(self, number: int) -> Node:
        try:
            return self._nodes[number]
        except KeyError:
            raise Denied(errno.ESTALE) from None

    def meet(self, fd: int) -> tuple[int, os.stat_result]:
        """The number of the inode with this descriptor, which is ours from now on."""
        found = os.fstat(fd)
        key = found.st_dev, found.st_ino
        with self._lock:
            number = self._numbers.get(key)
            if number is not None:
                os.close(fd)
            else:
                self._last = number = self._last + 1
                self._nodes[number] = Node(fd, key)
                self._numbers[key] = number
                self._told[number] = 0
            self._told[number] += 1
        return number, found

    def forget(self, number: int, times: int) -> None:
        with self._lock:
            if number == wire.ROOT or number not in self._nodes:
                return
            self._told[number] -= times
            if self._told[number] <= 0:
                node = self._nodes.pop(number)
                del self._numbers[node.key], self._told[number]
                os.close(node.fd)

    def path(self, fd: int, name: str = "") -> str:
        """Where it is, below the mount."""
        path = os.readlink(f"/proc/self/fd/{fd}").removesuffix(_DELETED)
        inside = path[len(self._root) :].lstrip("/")
        return os.path.join(inside, name) if name else inside
