"""Small machines of one test: Linux kernels of their own, each an ordinary process of the host.

A lab is a network that leads nowhere else, and guests on it (User Mode Linux). A guest sees the
host's root read-only and one directory of the test writable, as `/run/lab`. Two wires go to each:
one for the tests to tell it what to do, and one among the guests, which a test may cut.

Nothing of a lab has a name that another could have, and nothing outlives its test, be that killed:
the network lives as long as a process that waits for our end of a pipe, and each guest is a pid
namespace of its own, which the kernel ends with us.
"""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from tests.testbed.guest import PORT

# Seconds: far more than anything here takes, on a machine that does other things too.
PATIENCE = 90.0
# 0 in the environment: no guests, though they could be had.
SWITCH = "QUEUEDRIVER_TEST_GUESTS"
INSTALL = (
    "apt-get install --no-install-recommends user-mode-linux uml-utilities nfs-kernel-server "
    "nfs-common kmod iproute2 e2fsprogs dmsetup"
)
_COMMANDS = (
    "linux.uml",
    "unshare",
    "nsenter",
    "setpriv",
    "ip",
    "tc",
    "modprobe",
    "mkfs.ext4",
    "dmsetup",
    "rpc.nfsd",
    "mount.nfs4",
)
_ROOT = Path(__file__).resolve().parents[2]
_CLONE_NEWNET = 0x40000000
# What a guest's memory is kept in: a file system in memory, if it is large enough for several.
_SHARED_MEMORY = "/dev/shm"
_MEMORY = "320M"
_MEMORY_NEEDED = 2 << 30


def missing() -> str:
    """What keeps guests from running here; empty if nothing does."""
    if os.environ.get(SWITCH) == "0":
        return f"guests take minutes, and {SWITCH}=0 says not to"
    if os.geteuid():
        return "guests of User Mode Linux need root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    without = [one for one in _COMMANDS if shutil.which(one, path=path) is None]
    if without:
        return f"no {', '.join(without)} here; {INSTALL}"
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun here, so guests cannot be joined by a network"
    return ""


class Errand:
    """Something that a guest does. It goes on when nobody waits for it."""

    def __init__(self, guest: "Guest", connection: socket.socket, what: str) -> None:
        self._guest = guest
        self._what = f"{what} in {guest.name}"
        self._connection = connection
        self._lines = connection.makefile("r")
        # Of the process in the guest.
        self.pid = int(self._read(PATIENCE))

    def result(self, timeout: float = PATIENCE) -> Any:
        """Wait for its end; what it returned."""
        answer = json.loads(self._read(timeout))
        self.forget()
        if "error" in answer:
            said = self._guest.console.read_text(errors="replace")[-4000:]
            raise AssertionError(f"{self._what} failed:\n{answer['error']}\nConsole:\n{said}")
        return answer["result"]

    def forget(self) -> None:
        self._lines.close()
        self._connection.close()

    def _read(self, timeout: float) -> str:
        self._connection.settimeout(timeout)
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise AssertionError(f"{self._what} has not ended after {timeout:g} s") from None
        except OSError:
            line = ""
        if not line:
            raise ConnectionError(f"{self._what} ended without an answer: the guest is gone")
        return line


class Guest:
    """One small machine. Its power can be cut at any moment."""

    def __init__(self, lab: "Lab", name: str, number: int, disks: Sequence[Path]) -> None:
        self.lab, self.name = lab, name
        self._disks = disks
        self.control, self.address = f"10.78.0.{number}", f"10.77.0.{number}"
        self._process: subprocess.Popen[bytes] | None = None
        self._errands: list[Errand] = []
        # Once: a tap that went down with its link does not come back.
        self._number = number
        self._taps = (f"c-{name}", f"w-{name}")
        for tap, bridge in zip(self._taps, ("control", "wire"), strict=True):
            lab.ip("tuntap", "add", "dev", tap, "mode", "tap")
            lab.ip("link", "set", tap, "master", bridge, "up")

    def boot(self) -> None:
        """Switch the power on; `ready` waits until it can be used."""
        given = {
            "name": self.name,
            "lab": str(self.lab.directory),
            "root": str(_ROOT),
            "addresses": [self.control, self.address],
        }
        said = json.dumps(given, separators=(",", ":"))
        kernel = [
            *("linux.uml", f"mem={_MEMORY}", "con=null", "con0=null,fd:1", "quiet"),
            *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"),
            *(f"ubd{letter}={disk}" for letter, disk in zip("abcd", self._disks, strict=False)),
            *(self._wire(index) for index in range(len(self._taps))),
            *(f"init={sys.executable}", "--", str(_ROOT / "tests/testbed/guest.py"), said),
        ]
        # The first of these makes the guest end with us; the last makes all of it end at once.
        wrapped = [
            *("setpriv", "--pdeathsig", "KILL"),
            *("nsenter", f"--net=/proc/{self.lab.holder}/ns/net"),
            *("unshare", "--pid", "--fork", "--kill-child=KILL"),
            *kernel,
        ]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.lab.directory)}
        if _room(_SHARED_MEMORY) >= _MEMORY_NEEDED:
            environment["TMPDIR"] = _SHARED_MEMORY
        with open(self.console, "ab") as console:
            self._said = console.tell()
            self._process = subprocess.Popen(
                wrapped,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
                cwd=self.lab.directory,
            )

    def _wire(self, index: int) -> str:
        # Always the same address: the others remember it over a power cut.
        mac = f"02:00:00:00:{index:02x}:{self._number:02x}"
        return f"vec{index}:transport=tap,ifname={self._taps[index]},mac={mac},depth=128,gro=1"

    @property
    def has_power(self) -> bool:
        return self._process is not None

    @property
    def console(self) -> Path:
        return self.lab.directory / f"console-{self.name}"

    def ready(self) -> None:
        """Wait until it can be told what to do."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.lab.connect((self.control, PORT), 1.0).close()
            except OSError:
                said = self.console.read_text(errors="replace")[self._said :]
                panic = "Kernel panic" in said
                if not (self._said or panic) and self._process and self._process.poll() is not None:
                    # Its first boot: before all else it looks whether it may trace processes here.
                    pytest.skip(f"User Mode Linux does not run here: {said[-300:]!r}")
                if panic or time.monotonic() > end:
                    raise AssertionError(f"{self.name} does not come up:\n{said[:3000]}") from None
                time.sleep(0.05)

    def start(self, what: Callable[..., Any], *args: Any, **kw: Any) -> Errand:
        """Let it call a function of a module; the arguments and the result as JSON has them."""
        connection = self.lab.connect((self.control, PORT), PATIENCE)
        name = f"{what.__module__}:{what.__qualname__}"
        connection.sendall(json.dumps({"call": name, "args": args, "kw": kw}).encode() + b"\n")
        errand = Errand(self, connection, name)
        self._errands.append(errand)
        return errand

    def call(self, what: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        """The same, and wait for the result."""
        return self.start(what, *args, **kw).result()

    def cut_power(self) -> None:
        """Gone at once, with all that its kernel had not written; none of it runs afterwards."""
        process, self._process = self._process, None
        if process is None:
            return
        # The child first: unshare waits for it, and the kernel ends it only when all its processes
        # have ended. A disk is not written to any more when the next guest boots from it.
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), 9)
        process.wait()

    def close(self) -> None:
        self.cut_power()
        for errand in self._errands:
            errand.forget()

    def unplug(self) -> None:
        """Cut its wire to the other guests; its own side does not notice."""
        self.lab.ip("link", "set", f"w-{self.name}", "nomaster")

    def plug(self) -> None:
        self.lab.ip("link", "set", f"w-{self.name}", "master", "wire")


class Lab:
    """A network of its own, and the guests on it. Skips the test where that cannot be had."""

    def __init__(self, directory: Path) -> None:
        if reason := missing():
            pytest.skip(reason)
        self.directory = directory.resolve()
        self.directory.mkdir(exist_ok=True)
        self._guests: list[Guest] = []
        # Ends when our end of the pipe does, however that comes about; and with it the network.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.holder = self._holder.pid
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            self.close()
            pytest.skip("no network namespace can be made here, so guests cannot be joined")
        for bridge in ("control", "wire"):
            self.ip("link", "add", bridge, "type", "bridge")
            self.ip("link", "set", bridge, "up")
        self.ip("address", "add", "10.78.0.254/24", "dev", "control")

    def guest(self, name: str, *disks: Path) -> Guest:
        """A further machine with these images for disks, without power yet."""
        guest = Guest(self, name, len(self._guests) + 1, disks)
        self._guests.append(guest)
        return guest

    def ip(self, *words: str) -> None:
        """The network as the host sees it."""
        enter = ["nsenter", f"--net=/proc/{self.holder}/ns/net"]
        subprocess.run([*enter, "ip", *words], check=True, capture_output=True)

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        """A connection into the lab. To be in its network is a matter of one thread."""
        made: list[socket.socket | OSError] = []

        def connect() -> None:
            try:
                with open(f"/proc/{self.holder}/ns/net", "rb") as namespace:
                    if ctypes.CDLL(None).setns(namespace.fileno(), _CLONE_NEWNET):
                        raise OSError("cannot enter the network of the lab")
                made.append(socket.create_connection(address, timeout))
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return made[0]

    def close(self) -> None:
        for guest in self._guests:
            guest.close()
        self._holder.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _room(where: str) -> int:
    try:
        return shutil.disk_usage(where).free
    except OSError:
        return 0
