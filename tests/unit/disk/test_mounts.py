"""Which file systems only this host can change."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.disk import mounts
from queuedriver.disk.mounts import (
    choose,
    filesystem_type,
    is_local,
    is_network,
    keeps_inodes,
    parse_mounts,
    syncs_as_one,
    unwritten,
)

TABLE = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:40 / /home rw shared:3 master:1 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/us/fast rw - tmpfs tmpfs rw
32 27 0:42 /@data /data rw - btrfs /dev/vdb rw
33 27 0:43 / /mnt/my\040disk\134x rw - fuse.sshfs me@there:/ rw
34 27 0:44 / /srv rw - ext4 /dev/vdc rw
35 34 0:45 / /srv rw - xfs /dev/vdd rw
a line that makes no sense
36 27 0:46 / /short
37 27 x:y / /odd rw - ext4 /dev/vde rw
"""


@pytest.mark.parametrize(
    ("path", "device", "fstype"),
    [
        ("/", (254, 0), "ext4"),
        ("/work/queue", (254, 0), "ext4"),
        ("/home", (0, 40), "nfs4"),
        ("/home/us/queue", (0, 40), "nfs4"),
        ("/home/us/fast/queue", (0, 41), "tmpfs"),
        ("/home/us/faster", (0, 40), "nfs4"),
        ("/mnt/my disk\\x/queue", (0, 43), "fuse.sshfs"),
    ],
)
def test_the_longest_mount_point_above_a_path_decides(
    path: str, device: tuple[int, int], fstype: str
) -> None:
    assert choose(parse_mounts(TABLE), path, device) == fstype


def test_a_subvolume_whose_device_is_in_no_line_is_found_by_its_path() -> None:
    assert choose(parse_mounts(TABLE), "/data/queue", (0, 99)) == "btrfs"


def test_of_two_mounts_on_one_point_the_device_decides_and_else_the_later() -> None:
    assert choose(parse_mounts(TABLE), "/srv/queue", (0, 44)) == "ext4"
    assert choose(parse_mounts(TABLE), "/srv/queue", (0, 45)) == "xfs"
    assert choose(parse_mounts(TABLE), "/srv/queue", (0, 99)) == "xfs"


def test_a_path_above_every_mount_is_of_unknown_type() -> None:
    assert (
        choose(parse_mounts("31 30 0:41 / /home rw - tmpfs tmpfs rw"), "/srv", (0, 41)) == "unknown"
    )
    assert choose([], "/", (0, 0)) == "unknown"


@given(st.text())
def test_any_table_is_read_without_complaint(text: str) -> None:
    for mount in parse_mounts(text):
        choose([mount], "/x", mount.device)


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs", "tmpfs", "zfs", "overlay"])
def test_a_local_file_system_is_no_network(fstype: str) -> None:
    assert not is_network(fstype)


@pytest.mark.parametrize(
    "fstype",
    [
        *("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "ocfs2"),
        *(
            "gfs2",
            "fuse",
            "fuse.sshfs",
            "fuse.glusterfs",
            "virtiofs",
            "vboxsf",
            "unknown",
            "",
            "new",
        ),
    ],
)
def test_a_network_and_whatever_we_do_not_know_counts_as_one(fstype: str) -> None:
    assert is_network(fstype)


def test_this_machine_agrees_with_its_own_stat(tmp_path: Path) -> None:
    assert filesystem_type("/proc/self") == "proc"
    link = tmp_path / "link"
    link.symlink_to("/proc")
    assert filesystem_type(os.fspath(link)) == "proc"
    assert filesystem_type(os.fspath(tmp_path)) != "unknown"
    assert filesystem_type(os.fspath(tmp_path / "nowhere")) == "unknown"


def test_only_what_is_known_to_be_of_this_kernel_is_local() -> None:
    for path in ("/proc", "/sys"):
        assert not is_local(os.stat(path).st_dev)
    # As a mount in another namespace has, or a subvolume.
    assert not is_local(os.makedev(4000, 4000))
    shm = Path("/dev/shm")
    assert is_local(shm.stat().st_dev) is (filesystem_type(str(shm)) == "tmpfs")


@pytest.mark.parametrize(
    ("fstype", "keeps"),
    [
        ("ext4", True),
        ("fuseblk", True),
        ("nfs4", True),
        ("unknown", True),
        ("cifs", False),
        ("smb3", False),
        ("fuse.sshfs", False),
    ],
)
def test_inode_numbers_are_not_relied_on_where_they_are_made_up(fstype: str, keeps: bool) -> None:
    assert keeps_inodes(fstype) is keeps


@pytest.mark.parametrize(
    ("device", "release", "told"),
    [
        ((254, 0), "6.1.0-13-amd64", True),
        ((254, 0), "5.8.0", True),
        # It would not say what it could not write.
        ((254, 0), "5.7.19", False),
        ((254, 0), "4.18.0-553.el8", False),
        ((254, 0), "unknown", False),
        ((0, 41), "6.1.0", True),
        ((0, 40), "6.1.0", False),
        ((0, 42), "6.1.0", False),
        ((0, 43), "6.1.0", False),
        ((0, 99), "6.1.0", False),
    ],
)
def test_all_is_synced_at_once_only_where_that_tells_what_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch, device: tuple[int, int], release: str, told: bool
) -> None:
    monkeypatch.setattr(mounts, "_mounts", lambda: parse_mounts(TABLE))
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert syncs_as_one(os.makedev(*device)) is told


def test_what_is_not_on_the_disks_yet_is_a_number_of_bytes() -> None:
    assert 0 <= unwritten() < 1 << 50
