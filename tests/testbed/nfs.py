"""A kernel NFS server and its clients, and what may go wrong between them.

The server's disk is an image in the lab's directory. When its power is cut it forgets nothing that
it has acknowledged: it exports `sync`, as servers do unless told otherwise.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.testbed import work
from tests.testbed.guest import LAB, mount, run
from tests.testbed.lab import Lab
from tests.waiting import until

EXPORT = "/run/disk/export"
QUEUES = "/run/queues"
# A call fails rather than wait for the server: after a second or two when its host says that nobody
# serves there, after some 20 when the host says nothing.
SOFT = "vers=4.2,nosharecache,softerr,timeo=10,retrans=1"
# It waits, for as long as it takes.
HARD = "vers=4.2"
# Seconds. The kernel takes no less; while it lasts, a server that came back changes nothing.
GRACE = 10


class Nfs:
    """A lab with an NFS server and clients that have its export mounted at QUEUES."""

    def __init__(self, lab: Lab, clients: int = 2) -> None:
        self.lab = lab
        self.disk = lab.directory / "export.img"
        with open(self.disk, "xb") as image:
            image.truncate(1 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.disk], check=True)
        self.server = lab.guest("server", self.disk)
        self._serves = False
        self.clients = [lab.guest(f"client{number}") for number in range(1, clients + 1)]

    def start(self) -> Self:
        for guest in (self.server, *self.clients):
            guest.boot()
        self.restore_power()
        for client in self.clients:
            client.ready()
        self.mount()
        return self

    def mount(self, where: str = QUEUES, options: str = HARD) -> None:
        """The export, on all clients."""
        address = self.server.address
        mounting = [one.start(mount_export, address, where, options) for one in self.clients]
        for errand in mounting:
            errand.result()

    def boot_server(self) -> None:
        """Its host is up, and does not serve yet."""
        if not self.server.has_power:
            self._serves = False
            self.server.boot()
        self.server.plug()
        self.server.ready()

    def restore_power(self) -> None:
        """The server's."""
        self.boot_server()
        if not self._serves:
            self.server.call(serve)
            self._serves = True

    def heal(self) -> None:
        """Whatever a test that failed has left broken."""
        self.restore_power()
        self.server.call(spoil)
        for guest in (self.server, *self.clients):
            guest.plug()

    @contextlib.contextmanager
    def power_lost_before_it_replies(self) -> Iterator[None]:
        """The server does what the block waits for; before it can say so, its power is gone."""
        self.server.call(spoil, "delay", "3s")
        yield
        self.server.cut_power()
        self.restore_power()

    @contextlib.contextmanager
    def losing_replies(self, percent: int) -> Iterator[None]:
        """While this lasts, so many of the packets that the server sends are lost."""
        self.server.call(spoil, "loss", f"{percent}%")
        try:
            yield
        finally:
            self.server.call(spoil)

    def go_deaf(self, seconds: float) -> None:
        """For so long, nobody hears anything of the server, and it does not hear anybody."""
        self.server.unplug()
        time.sleep(seconds)
        self.server.plug()


class Witness:
    """Sees, on the server's own disk, every name that is moved into a directory, and how often."""

    def __init__(self, net: Nfs, directory: str) -> None:
        self._net, self._directory = net, directory
        self._ledger = net.lab.directory / f"witness-{directory.replace('/', '-')}"
        self._watches = 0
        self.watch()

    def watch(self) -> None:
        """From now on; again after each boot of the server."""
        self._watches += 1
        self._net.server.start(work.witness, self._directory, f"{LAB}/{self._ledger.name}")
        until(lambda: self._notes().count("#") == self._watches, "the server watches its disk")

    def published(self) -> list[str]:
        """In their order."""
        return [name for name in self._notes().split() if name.endswith(".ready")]

    def _notes(self) -> str:
        return self._ledger.read_text() if self._ledger.exists() else ""


# In the guests


def serve() -> None:
    """Mount the disk and export it. What the server must remember of its clients is on it, too."""
    run("modprobe", "-d", "/run/modules", "nfsd")
    mount("nfsd", "/proc/fs/nfsd")
    os.mkdir("/run/disk")
    mount("ext4", "/run/disk", "/dev/ubda")
    for where in (EXPORT, "/run/disk/state/v4recovery"):
        os.makedirs(where, exist_ok=True)
    run("mount", "--bind", "/run/disk/state", "/var/lib/nfs")
    for name in ("etab", "rmtab", "xtab"):
        Path("/var/lib/nfs", name).touch()
    os.makedirs("/run/rpc_pipefs", exist_ok=True)
    run("rpc.nfsd", "-N", "3", "-G", str(GRACE), "-L", str(GRACE), "8")
    run("rpc.mountd", "--no-nfs-version", "3", "-N", "3")
    options = "rw,sync,no_root_squash,no_subtree_check,insecure,fsid=0"
    run("exportfs", "-o", options, f"10.77.0.0/24:{EXPORT}")


def mount_export(server: str, where: str, options: str) -> None:
    os.makedirs(where, exist_ok=True)
    mount("nfs4", where, f"{server}:/", options)


def spoil(*how: str) -> None:
    """What becomes of the packets that leave by the wire: `loss 20%`, or nothing bad any more."""
    run("tc", "qdisc", "del", "dev", "vec1", "root", may_fail=True)
    if how:
        run("tc", "qdisc", "add", "dev", "vec1", "root", "netem", *how)
