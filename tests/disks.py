"""Small file systems that belong to one test, to be filled and remounted; and who may not read."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


class Disk:
    """A small file system in a mount namespace of its own, which ends with its process."""

    def __init__(self, where: Path, options: str) -> None:
        where.mkdir()
        self._mount(where, f"mount -t tmpfs -o {options} none '{where}'")

    def _mount(self, where: Path, command: str) -> None:
        if shutil.which("unshare") is None:
            pytest.skip("without unshare(1) nothing can be mounted for this test alone")
        prefix = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
        self._shell = subprocess.Popen(
            [*prefix, "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self.tell(command):
            self.close()
            pytest.skip("nothing can be mounted here, not even in a namespace of its own")
        # Seen from outside of the namespace.
        self.path = Path(f"/proc/{self._shell.pid}/root{where}")

    def tell(self, command: str) -> int:
        """Run a command in the namespace; its exit code."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(f"{command} >&2; echo $?", file=self._shell.stdin, flush=True)
        return int(self._shell.stdout.readline() or 1)

    def fill(self) -> None:
        """Leave no byte and no name."""
        with contextlib.suppress(OSError):
            for number in range(10_000):
                (self.path / f"filler-{number}").write_bytes(bytes(1 << 16))
        with contextlib.suppress(OSError), open(self.path / "filler-0", "ab", 0) as file:
            while True:
                file.write(bytes(512))

    def empty(self) -> None:
        for filler in self.path.glob("filler-*"):
            filler.unlink()

    def close(self) -> None:
        self._shell.communicate()


class Ext4(Disk):
    """A small disk with a journal, in a file. `inodes` are how many files it has room for."""

    def __init__(self, where: Path, size: str = "16M", inodes: int = 4096) -> None:
        if os.geteuid() or shutil.which("mkfs.ext4") is None:
            pytest.skip(
                "a small disk takes root, loop devices and mkfs.ext4 (apt install e2fsprogs)"
            )
        where.mkdir()
        image = where.with_suffix(".img")
        # No part is kept for root, which the tests are.
        make = f"truncate -s {size} '{image}' && mkfs.ext4 -q -F -m 0 -N {inodes} '{image}'"
        # In the end the kernel lets go of the device by itself.
        self._mount(where, f"{make} && mount -o loop '{image}' '{where}'")


# Answers the kernel's greeting (FUSE_INIT, with a version it knows), and nothing ever after.
_SILENT = """
import ctypes, os, struct, sys
fd = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None).mount(b"silent", sys.argv[1].encode(), b"fuse", 0, options):
    sys.exit(1)
print(flush=True)
while True:
    _, number, unique = struct.unpack_from("<IIQ", os.read(fd, 1 << 20))
    if number == 26:
        welcome = struct.pack("<IIIIHHI", 7, 31, 65536, 0, 0, 0, 65536).ljust(64, b"\\0")
        os.write(fd, struct.pack("<IiQ", 16 + len(welcome), 0, unique) + welcome)
"""


class Silent:
    """A file system that never answers: who looks at it is out of reach even of SIGKILL, until it
    is closed. In a mount namespace of its own."""

    def __init__(self, where: Path) -> None:
        where.mkdir()
        if os.geteuid() or shutil.which("unshare") is None or not os.path.exists("/dev/fuse"):
            pytest.skip("a file system that does not answer takes root, unshare(1) and /dev/fuse")
        self._server = subprocess.Popen(
            ["unshare", "--mount", sys.executable, "-c", _SILENT, str(where)],
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout is not None
        if not self._server.stdout.readline():
            self.close()
            pytest.skip("nothing can be mounted here, not even in a namespace of its own")
        # Seen from outside of the namespace.
        self.path = Path(f"/proc/{self._server.pid}/root{where}")

    def close(self) -> None:
        """Those who wait are told that it is gone."""
        with self._server:
            self._server.kill()


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Without root's right to read everything, where we are root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)
