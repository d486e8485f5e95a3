"""Which kind of file system a path is on, and whether other hosts may change it unseen.

Only Linux tells (/proc/self/mountinfo); elsewhere, and for whatever is not known to be local, the
answer is "may be a network": polling is right everywhere, a hint that never comes is not.
"""

import math
import os
import re
from typing import NamedTuple

# Every change to these goes through this kernel, so inotify sees it. FUSE is not among them: it
# may be sshfs or GlusterFS as well as a local disk. Nor is what a virtual machine's host shares.
_LOCAL = (
    "bcachefs btrfs exfat ext2 ext3 ext4 f2fs jfs nilfs2 ntfs3 overlay ramfs reiserfs tmpfs vfat "
    "xfs zfs"
)
# Where a rename may be seen half done, or is a copy and a delete: object stores dressed as file
# systems, and the FAT family, which has no journal and no room for our names.
_STORES = (
    "exfat fuse.blobfuse fuse.blobfuse2 fuse.gcsfuse fuse.goofys fuse.mountpoint-s3 fuse.rclone "
    "fuse.s3fs msdos vfat"
)
RENAME_NOT_ATOMIC = frozenset(_STORES.split())
# Where syncfs writes all that there is, waits for it, and says what could not be written. FUSE does
# none of this, and overlayfs says nothing.
_SYNCS_AS_ONE = ("ext3", "ext4", "tmpfs", "xfs")
# Before this version of the kernel nobody heard from syncfs what could not be written.
_SYNCFS_TELLS = (5, 8)
UNKNOWN = "unknown"
_VERSION = re.compile(r"(\d+)\.(\d+)")
_UNWRITTEN = re.compile(rb"^(?:Dirty|Writeback): +(\d+) kB$", re.MULTILINE)
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo: device (major, minor), where, and what."""

    device: tuple[int, int]
    point: str
    fstype: str


def filesystem_type(path: str) -> str:
    """Return the type of the file system that holds `path`, such as "ext4" or "nfs4"; or
    "unknown"."""
    # First the stat: it makes an automounter mount what the table is then asked about.
    try:
        device = os.stat(path).st_dev
    except OSError:
        return UNKNOWN
    return choose(_mounts(), os.path.realpath(path), (os.major(device), os.minor(device)))


def mounted_by_name(path: str) -> str:
    """Return the type of what is mounted where a path leads by its name, for whoever must not wait
    for it: nothing is touched, and no symlink followed."""
    return choose(_mounts(), os.path.abspath(path), (-1, -1))


def mount_points() -> frozenset[str]:
    """Return where something is mounted; nothing where the system does not tell."""
    return frozenset(mount.point for mount in _mounts())


def is_local(device: int) -> bool:
    """Tell whether the file system with this number is certainly one that only our kernel
    changes."""
    wanted = (os.major(device), os.minor(device))
    return any(mount.device == wanted and mount.fstype in _LOCAL.split() for mount in _mounts())


def syncs_as_one(device: int) -> bool:
    """Tell whether one call may make all survive a power cut that is on the file system with this
    number."""
    version = _VERSION.match(os.uname().release)
    if version is None or (int(version[1]), int(version[2])) < _SYNCFS_TELLS:
        return False
    wanted = (os.major(device), os.minor(device))
    return any(one.device == wanted and one.fstype in _SYNCS_AS_ONE for one in _mounts())


def unwritten() -> float:
    """Return how many bytes of all file systems are not on their disks yet; endless where the
    system does not tell."""
    try:
        with open("/proc/meminfo", "rb", buffering=0) as table:
            found = _UNWRITTEN.findall(table.read())
    except OSError:
        found = []
    return 1024 * sum(map(int, found)) if found else math.inf


def is_network(fstype: str) -> bool:
    """Return whether another host may change such a file system without our kernel knowing."""
    return fstype not in _LOCAL.split()


def keeps_inodes(fstype: str) -> bool:
    """Return whether a file has the same inode number for every host, and as long as it is there:
    FUSE and CIFS make numbers up as files are looked at, unless they are told to do otherwise."""
    return not fstype.startswith(("fuse.", "cifs", "smb"))


def _mounts() -> list[Mount]:
    """Return what is mounted; nothing where the system does not tell."""
    try:
        with open("/proc/self/mountinfo", "rb") as table:
            return parse_mounts(os.fsdecode(table.read()))
    except OSError:
        return []


def parse_mounts(text: str) -> list[Mount]:
    """Return the lines of mountinfo, in their order; one that is not understood is left out."""
    mounts = []
    for line in text.split("\n"):
        # `id parent major:minor root point options [optional…] - type source options`
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 6:
            continue
        major, _, minor = fields[2].partition(":")
        if major.isdecimal() and minor.isdecimal():
            point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
            mounts.append(Mount((int(major), int(minor)), point, after.split(" ")[0]))
    return mounts


def choose(mounts: list[Mount], path: str, device: tuple[int, int]) -> str:
    """Return the type of the mount that holds an absolute path without symlinks."""
    above = [one for one in mounts if f"{path}/".startswith(one.point.rstrip("/") + "/")]
    # A subvolume of btrfs has a device number that no line shows; then the path alone decides.
    candidates = [mount for mount in above if mount.device == device] or above
    # The longest; of two mounts on one point the later covers the earlier.
    best = max(enumerate(candidates), key=lambda at: (len(at[1].point), at[0]), default=None)
    return best[1].fstype if best else UNKNOWN
