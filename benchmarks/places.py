"""Where to measure: a journaled ext4 of our own on a loop device, and tmpfs."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
# A million empty items on tmpfs take about 1 GB of memory.
TMPFS_NEEDS = 2 << 30
EXT4_NEEDS = 4 << 30
PLACES = ("ext4", "tmpfs")


class Place(NamedTuple):
    name: str
    directory: Path

    def settle(self) -> None:
        """Write back what the set-up left dirty, so that the measurement does not pay for it."""
        subprocess.run(["sync", "-f", self.directory], check=True)


class Unavailable(Exception):
    """This machine cannot offer that place; the message says why."""


def free_bytes(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


@contextlib.contextmanager
def ext4() -> Iterator[Place]:
    if os.geteuid() != 0:
        raise Unavailable("ext4 skipped: mounting a loop device needs root")
    base = Path(tempfile.mkdtemp(prefix="queuedriver-benchmarks-"))
    mount = base / "ext4"
    try:
        if free_bytes(base) < EXT4_NEEDS:
            raise Unavailable(f"ext4 skipped: {base} has less than {EXT4_NEEDS >> 30} GB free")
        up: list[str | Path] = [HERE / "ext4.sh", "up", mount]
        made = subprocess.run(up, check=False, stderr=subprocess.PIPE, text=True)
        if made.returncode != 0:
            raise Unavailable(f"ext4 skipped: {made.stderr.strip()}")
        try:
            yield Place("ext4", mount)
        finally:
            subprocess.run([HERE / "ext4.sh", "down", mount], check=True)
    finally:
        base.rmdir()


@contextlib.contextmanager
def tmpfs() -> Iterator[Place]:
    shm = Path("/dev/shm")
    if not shm.is_dir() or free_bytes(shm) < TMPFS_NEEDS:
        raise Unavailable(f"tmpfs skipped: {shm} is missing or has less than 2 GB free")
    base = Path(tempfile.mkdtemp(prefix="queuedriver-benchmarks-", dir=shm))
    try:
        yield Place("tmpfs", base)
    finally:
        shutil.rmtree(base)


def open_place(name: str) -> contextlib.AbstractContextManager[Place]:
    return {"ext4": ext4, "tmpfs": tmpfs}[name]()
