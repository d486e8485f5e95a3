"""The calls of a faulty file system that are about what files and directories hold."""

import os
import time

from tests.testbed import fuse_wire as wire
from tests.testbed.fuse_ground import Ground, Options
from tests.testbed.fuse_inodes import Denied
from tests.testbed.fuse_wire import Request


class Contents(Ground):
    """Answers to what the kernel asks about attributes, bytes and listings, and changes of them."""

    def __init__(self, backing: str, options: Options) -> None:
        super().__init__(backing, options)
        # A descriptor for each open directory, and its listing as of the moment it was begun.
        self._listings: dict[int, tuple[int, list[tuple[str, int]]]] = {}
        self._next_listing = 1

    # Attributes

    def _getattr(self, request: Request) -> bytes:
        node = self._inodes[request.node]
        self._lie(self._meet("getattr", self._inodes.path(node.fd)))
        return wire.attributes_reply(os.fstat(node.fd), self._valid)

    def _setattr(self, request: Request) -> bytes:
        valid, _, _, size, _, *rest = wire.SETATTR.unpack_from(request.body)
        atime, mtime, _, atime_rest, mtime_rest, _, mode, _, uid, gid, _ = rest
        node = self._inodes[request.node]
        path = f"/proc/self/fd/{node.fd}"
        self._meet("setattr", self._inodes.path(node.fd))
        if valid & wire.SET_MODE:
            os.chmod(path, mode & 0o7777)
        if valid & (wire.SET_UID | wire.SET_GID):
            owner = uid if valid & wire.SET_UID else -1
            os.chown(path, owner, gid if valid & wire.SET_GID else -1)
        if valid & wire.SET_SIZE:
            os.truncate(path, size)
        if valid & (wire.SET_ATIME | wire.SET_MTIME):
            found, now = os.fstat(node.fd), time.time_ns()
            times = [found.st_atime_ns, found.st_mtime_ns]
            if valid & wire.SET_ATIME:
                given = atime * 1_000_000_000 + atime_rest
                times[0] = now if valid & wire.SET_ATIME_NOW else given
            if valid & wire.SET_MTIME:
                given = mtime * 1_000_000_000 + mtime_rest
                times[1] = now if valid & wire.SET_MTIME_NOW else given
            os.utime(path, ns=(times[0], times[1]))
        return wire.attributes_reply(os.fstat(node.fd), self._valid)

    def _readlink(self, request: Request) -> bytes:
        return os.fsencode(os.readlink("", dir_fd=self._inodes[request.node].fd))

    def _statfs(self, request: Request) -> bytes:
        node = self._inodes[request.node]
        self._lie(self._meet("statfs", self._inodes.path(node.fd)))
        return wire.filesystem(os.statvfs(f"/proc/self/fd/{node.fd}"))

    # Contents

    def _open(self, request: Request) -> bytes:
        flags, _ = wire.OPEN.unpack_from(request.body)
        node = self._inodes[request.node]
        self._lie(self._meet("open", self._inodes.path(node.fd)))
        return wire.opened(_reopen(node.fd, flags))

    def _create(self, request: Request) -> bytes:
        flags, mode, _, _ = wire.CREATE.unpack_from(request.body)
        (name,) = wire.names(request.body[wire.CREATE.size :])
        parent = self._inodes[request.node].fd
        fault = self._meet("create", self._inodes.path(parent, name))
        handle = os.open(name, _plain(flags) | os.O_CREAT, mode, dir_fd=parent)
        if fault.error:
            os.close(handle)
        self._lie(fault)
        # A new file may have the inode of one that is gone.
        found = os.fstat(handle)
        self._failed_syncs.discard((found.st_dev, found.st_ino))
        return self._met(parent, name) + wire.opened(handle)

    def _read(self, request: Request) -> bytes:
        handle, offset, size, *_ = wire.READ.unpack_from(request.body)
        self._lie(self._meet("read", self._inodes.path(handle)))
        return os.pread(handle, size, offset)

    def _write(self, request: Request) -> bytes:
        handle, offset, size, *_ = wire.WRITE.unpack_from(request.body)
        data = request.body[wire.WRITE.size :][:size]
        fault = self._meet("write", self._inodes.path(handle), size)
        if fault.short and size > 1:
            data = data[: size // 2]
        done = os.pwrite(handle, data, offset)
        self._lie(fault)
        return done.to_bytes(4, "little") + bytes(4)

    def _fsync(self, request: Request) -> bytes:
        return self._sync("fsync", *wire.HANDLE.unpack_from(request.body))

    def _sync(self, op: str, handle: int) -> bytes:
        found = os.fstat(handle)
        key = found.st_dev, found.st_ino
        if key in self._failed_syncs:
            self._synced_again += 1
        try:
            fault = self._meet(op, self._inodes.path(handle))
            os.fsync(handle)
            self._lie(fault)
        except Denied:
            if op == "fsync":
                self._failed_syncs.add(key)
            raise
        self._failed_syncs.discard(key)
        return b""

    def _flush(self, request: Request) -> bytes:
        """At each close: where a network file system says what it could not write."""
        (handle,) = wire.HANDLE.unpack_from(request.body)
        self._lie(self._meet("flush", self._inodes.path(handle)))
        return b""

    def _release(self, request: Request) -> bytes:
        os.close(*wire.HANDLE.unpack_from(request.body))
        return b""

    # Directories

    def _opendir(self, request: Request) -> bytes:
        fd = self._inodes[request.node].fd
        self._lie(self._meet("opendir", self._inodes.path(fd)))
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        with self._changed:
            number, self._next_listing = self._next_listing, self._next_listing + 1
            self._listings[number] = handle, []
        return wire.opened(number)

    def _readdir(self, request: Request) -> bytes:
        number, offset, size, *_ = wire.READ.unpack_from(request.body)
        handle, entries = self._listings[number]
        path = self._inodes.path(handle)
        self._lie(self._meet("readdir", path))
        if not offset:
            # One moment's listing, however long its reader takes.
            entries = self._list(handle, path)
            self._listings[number] = handle, entries
        return wire.listed(entries, offset, size)

    def _list(self, handle: int, path: str) -> list[tuple[str, int]]:
        hiding = self._rules.hides("readdir")
        entries = []
        with os.scandir(handle) as found:
            for one in found:
                if hiding:
                    try:
                        status = os.stat(one.name, dir_fd=handle, follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if self._is_hidden("readdir", os.path.join(path, one.name), status):
                        continue
                entries.append((one.name, one.inode()))
        return entries

    def _fsyncdir(self, request: Request) -> bytes:
        handle, _ = self._listings[wire.HANDLE.unpack_from(request.body)[0]]
        return self._sync("fsyncdir", handle)

    def _releasedir(self, request: Request) -> bytes:
        handle, _ = self._listings.pop(wire.HANDLE.unpack_from(request.body)[0])
        os.close(handle)
        return b""


def _plain(flags: int) -> int:
    """As a client of a network file system opens: where to append is what the kernel thinks."""
    return flags & ~(os.O_APPEND | os.O_NOFOLLOW) | os.O_CLOEXEC


def _reopen(fd: int, flags: int) -> int:
    flags = _plain(flags) & ~(os.O_CREAT | os.O_EXCL)
    return os.open(f"/proc/self/fd/{fd}", flags)
