"""The calls of a faulty file system that are about names."""

import contextlib
import ctypes
import errno
import os

from tests.testbed import fuse_wire as wire
from tests.testbed.fuse_ground import Ground
from tests.testbed.fuse_inodes import Denied
from tests.testbed.fuse_wire import Op, Request

_RENAME_NOREPLACE = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Names(Ground):
    """Answers to what the kernel asks about names, and changes of them."""

    def _lookup(self, request: Request) -> bytes:
        (name,) = wire.names(request.body)
        parent = self._inodes[request.node].fd
        path = self._inodes.path(parent, name)
        fault = self._meet("lookup", path)
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
        except FileNotFoundError:
            return self._missing()
        if self._is_hidden("lookup", path, os.fstat(fd)):
            os.close(fd)
            return self._missing()
        if fault.error:
            os.close(fd)
        self._lie(fault)
        number, found = self._inodes.meet(fd)
        return wire.entry(number, found, self._valid)

    def _missing(self) -> bytes:
        if self._valid.missing:
            return wire.missing(self._valid)
        raise Denied(errno.ENOENT)

    def _forget(self, request: Request) -> None:
        if request.op == Op.FORGET:
            self._inodes.forget(request.node, wire.FORGET.unpack_from(request.body)[0])
            return
        count, _ = wire.BATCH.unpack_from(request.body)
        for index in range(count):
            at = wire.BATCH.size + index * wire.BATCH_ONE.size
            self._inodes.forget(*wire.BATCH_ONE.unpack_from(request.body, at))

    def _mkdir(self, request: Request) -> bytes:
        mode, _ = wire.MKDIR.unpack_from(request.body)
        (name,) = wire.names(request.body[wire.MKDIR.size :])
        parent = self._inodes[request.node].fd
        fault = self._meet("mkdir", self._inodes.path(parent, name))
        os.mkdir(name, mode, dir_fd=parent)
        self._lie(fault)
        return self._met(parent, name)

    def _symlink(self, request: Request) -> bytes:
        name, target = wire.names(request.body)
        parent = self._inodes[request.node].fd
        os.symlink(target, name, dir_fd=parent)
        return self._met(parent, name)

    def _link(self, request: Request) -> bytes:
        (old,) = wire.LINK.unpack_from(request.body)
        (name,) = wire.names(request.body[wire.LINK.size :])
        parent = self._inodes[request.node].fd
        fault = self._meet("link", self._inodes.path(parent, name))
        os.link(f"/proc/self/fd/{self._inodes[old].fd}", name, dst_dir_fd=parent)
        self._lie(fault)
        return self._met(parent, name)

    def _unlink(self, request: Request) -> bytes:
        (name,) = wire.names(request.body)
        parent = self._inodes[request.node].fd
        fault = self._meet("unlink", self._inodes.path(parent, name))
        os.unlink(name, dir_fd=parent)
        self._lie(fault)
        return b""

    def _rmdir(self, request: Request) -> bytes:
        (name,) = wire.names(request.body)
        os.rmdir(name, dir_fd=self._inodes[request.node].fd)
        return b""

    def _rename(self, request: Request) -> bytes:
        shape = wire.RENAME if request.op == Op.RENAME else wire.RENAME2
        to, *flags = shape.unpack_from(request.body)
        old, new = wire.names(request.body[shape.size :])
        source, target = self._inodes[request.node].fd, self._inodes[to].fd
        move = f"{self._inodes.path(source, old)} > {self._inodes.path(target, new)}"
        fault = self._meet("rename", move)
        if flags and flags[0] == _RENAME_NOREPLACE:
            self._rename_new(source, old, target, new)
        elif flags and flags[0]:
            raise Denied(errno.EINVAL)
        else:
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
        with contextlib.suppress(FileNotFoundError):
            # Somebody else may have taken it since.
            fd = os.open(new, os.O_PATH | os.O_NOFOLLOW, dir_fd=target)
            self._make_own(target, new, fd)
            os.close(fd)
        self._lie(fault)
        return b""

    def _rename_new(self, source: int, old: str, target: int, new: str) -> None:
        names = os.fsencode(old), os.fsencode(new)
        if _libc.renameat2(source, names[0], target, names[1], _RENAME_NOREPLACE):
            raise Denied(ctypes.get_errno())
