"""A FUSE file system that passes everything through to a directory, but for the faults it is told.

    python -m tests.testbed.fuse_server BACKING MOUNTPOINT OPTIONS

Mounts, and serves until it is killed. Each line on stdin is `{"rules": […], "seed": 1}` as JSON, or
`{}` to ask only; each is answered on stdout with what the rules before it have done. Several of
them may serve one directory: each is a host, with caches of its own.
"""

import contextlib
import ctypes
import errno
import os
import resource
import sys
import threading
from collections.abc import Callable

import msgspec

from tests.testbed import fuse_wire as wire
from tests.testbed.fuse_contents import Contents
from tests.testbed.fuse_ground import Options, Told
from tests.testbed.fuse_inodes import Denied
from tests.testbed.fuse_names import Names
from tests.testbed.fuse_wire import Op, Request

# As many calls may be held or delayed at once. The next one is not even taken from the kernel, and
# who made it can be killed.
_THREADS = 24


class Server(Names, Contents):
    """Answers the kernel."""

    def __init__(self, backing: str, device: int, options: Options) -> None:
        super().__init__(backing, options)
        self._device = device
        self._calls: dict[int, Callable[[Request], bytes]] = {
            Op.INIT: lambda _: wire.greeting(),
            Op.LOOKUP: self._lookup,
            Op.GETATTR: self._getattr,
            Op.SETATTR: self._setattr,
            Op.READLINK: self._readlink,
            Op.SYMLINK: self._symlink,
            Op.MKDIR: self._mkdir,
            Op.UNLINK: self._unlink,
            Op.RMDIR: self._rmdir,
            Op.RENAME: self._rename,
            Op.RENAME2: self._rename,
            Op.LINK: self._link,
            Op.OPEN: self._open,
            Op.READ: self._read,
            Op.WRITE: self._write,
            Op.STATFS: self._statfs,
            Op.RELEASE: self._release,
            Op.FSYNC: self._fsync,
            Op.FLUSH: self._flush,
            Op.OPENDIR: self._opendir,
            Op.READDIR: self._readdir,
            Op.RELEASEDIR: self._releasedir,
            Op.FSYNCDIR: self._fsyncdir,
            Op.CREATE: self._create,
        }

    def serve(self) -> None:
        """Until the mount is gone."""
        while True:
            try:
                request = wire.parse(os.read(self._device, wire.BUFFER))
            except OSError as error:
                # Whoever asked was interrupted before we could take the question.
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return
            if request.op in (Op.FORGET, Op.BATCH_FORGET):
                self._forget(request)
            elif request.op not in (Op.INTERRUPT, Op.DESTROY):
                answer = self._answer(request)
                # An interrupted caller may be gone.
                with contextlib.suppress(FileNotFoundError):
                    os.write(self._device, answer)

    def _answer(self, request: Request) -> bytes:
        call = self._calls.get(request.op)
        if call is None or (request.op == Op.RENAME2 and not self._noreplace):
            return wire.reply(request.unique, number=errno.ENOSYS)
        try:
            return wire.reply(request.unique, call(request))
        except Denied as denied:
            return wire.reply(request.unique, number=denied.number)
        except OSError as error:
            return wire.reply(request.unique, number=error.errno or errno.EIO)


def _mount(device: int, where: str) -> None:
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"faulty", os.fsencode(where), b"fuse.faulty", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), where)


def main(backing: str, where: str, options: str) -> None:
    os.umask(0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    server = Server(backing, device, msgspec.json.decode(options, type=Options))
    _mount(device, where)
    for _ in range(_THREADS):
        threading.Thread(target=server.serve, daemon=True).start()
    print("mounted", flush=True)
    for line in sys.stdin:
        done = server.tell(msgspec.json.decode(line, type=Told))
        print(msgspec.json.encode(done).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
