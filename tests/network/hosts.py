"""Hosts h1, h2, … (10.99.0.1, 2, …) as network namespaces on one bridge, with no way out, whose
cables can be pulled. A process enters one by `setns`; see `tests/network/doors.py`.

Their names have this process's id in them and are noted before they are made, so that those and no
others are removed, whatever becomes of the test.
"""

import contextlib
import os
import shutil
import subprocess
from typing import Self

import pytest

from tests.endpoints import free_port

_NETWORK = "10.99.0"


class Hosts:
    """Some hosts and the switch between them."""

    def __init__(self, count: int = 3) -> None:
        self._count = count
        self._switch = f"qd{os.getpid()}-switch"
        self._at_end = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if os.geteuid() or shutil.which("ip") is None:
            pytest.skip("hosts of a test's own take root and iproute2 (apt install iproute2)")
        try:
            self._connect()
        except subprocess.CalledProcessError as error:
            self._at_end.close()
            pytest.skip(f"no network namespaces can be made here: {error.stderr.strip()}")
        except BaseException:
            self._at_end.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._at_end.close()

    def name(self, number: int) -> str:
        """What its namespace is called."""
        return f"qd{os.getpid()}-h{number}"

    def address(self, number: int) -> str:
        return f"{_NETWORK}.{number}"

    def endpoint(self, number: int) -> str:
        """An address there at which nobody listens."""
        return f"tcp://{self.address(number)}:{free_port()}"

    def cut(self, number: int) -> None:
        """Pull the cable at the switch: neither side is told."""
        _ip("-n", self._switch, "link", "set", f"v{number}", "down")

    def heal(self, number: int) -> None:
        """Plug it in again."""
        _ip("-n", self._switch, "link", "set", f"v{number}", "up")

    def _connect(self) -> None:
        switch = self._switch
        self._make(switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number in range(1, self._count + 1):
            host, port = self.name(number), f"v{number}"
            self._make(host)
            _ip("link", "add", port, "netns", switch, "type", "veth", "peer", "eth0", "netns", host)
            _ip("-n", switch, "link", "set", port, "master", "br0", "up")
            _ip("-n", host, "link", "set", "lo", "up")
            _ip("-n", host, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")

    def _make(self, name: str) -> None:
        self._at_end.callback(_remove, name)
        _ip("netns", "add", name)


def _remove(name: str) -> None:
    """A namespace, and with it the cables that end there."""
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
