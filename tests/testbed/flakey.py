"""In a guest: a disk whose power can be cut while the guest runs on.

Device mapper's `flakey` target stands between an ext4 file system and the disk. When the power is
cut it takes every further write and drops it; so the disk holds what had reached it at that moment,
and whatever the file system kept in memory is lost. Nobody on top of it is told.
"""

import os
import subprocess
from pathlib import Path

from tests.testbed.guest import mount, run

DISK = "/dev/ubda"
WHERE = "/run/flakey"
_NAME = "flakey"
# As the kernel calls it: there is no udev to make another name. It is the guest's only one.
_DEVICE = "/dev/dm-0"
# e2fsck's exit codes that say no more than: the journal was replayed, a counter was set right.
_SOUND = (0, 1)


class FlakeyDisk:
    """An ext4 file system that loses power."""

    def __init__(self) -> None:
        run("modprobe", "-d", "/run/modules", "dm-flakey")
        sectors = int(Path("/sys/block/ubda/size").read_text())
        # Seconds: always up, or always down.
        self._up = f"0 {sectors} flakey {DISK} 0 86400 0"
        self._down = f"0 {sectors} flakey {DISK} 0 0 86400 1 drop_writes"
        os.makedirs(WHERE, exist_ok=True)

    def switch_on(self, options: str) -> None:
        _dmsetup("create", "--table", self._up)
        mount("ext4", WHERE, _DEVICE, options)

    def prepare_cut(self) -> None:
        """So that the cut itself is one call."""
        _dmsetup("load", "--table", self._down)

    def cut_power(self) -> None:
        """From now on nothing reaches the disk."""
        # The file system may not be frozen for it, and what is on its way not be waited for: both
        # would bring to the disk what a power cut would not have.
        _dmsetup("resume", "--nolockfs", "--noflush")

    def take_down(self) -> None:
        """Once nobody uses it."""
        run("umount", WHERE)
        _dmsetup("remove")


def e2fsck() -> None:
    """What the next boot does: replay the journal. Raises for a file system that is broken."""
    done = subprocess.run(["e2fsck", "-f", "-p", DISK], capture_output=True, text=True, check=False)
    if done.returncode not in _SOUND:
        raise RuntimeError(f"the file system did not survive: {done.stdout}{done.stderr}")


def _dmsetup(command: str, *words: str) -> None:
    run("dmsetup", command, "--noudevsync", "--noudevrules", _NAME, *words)
