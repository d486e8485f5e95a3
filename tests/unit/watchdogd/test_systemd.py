"""The service manager hears what it asked to hear, and nobody else is bothered."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from watchdogd.systemd import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def notifier_of(address: str) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": address}, os.getpid())


def test_everything_is_said_in_the_words_of_the_protocol(manager: socket.socket) -> None:
    notifier = notifier_of(manager.getsockname())
    notifier.ready()
    notifier.status("12 drivers,\n 3 waiting")
    notifier.beat()
    notifier.reloading(now=12.5)
    notifier.extend(90)
    notifier.stopping()
    assert [manager.recv(1000) for _ in range(6)] == [
        b"READY=1",
        b"STATUS=12 drivers, 3 waiting",
        b"WATCHDOG=1",
        b"RELOADING=1\nMONOTONIC_USEC=12500000",
        b"EXTEND_TIMEOUT_USEC=90000000",
        b"STOPPING=1",
    ]


def test_status_is_said_again_only_when_it_has_changed(manager: socket.socket) -> None:
    notifier = notifier_of(manager.getsockname())
    for words in ("a", "a", "b", "b", "a"):
        notifier.status(words)
    notifier.stopping()
    heard = [manager.recv(1000) for _ in range(4)]
    assert heard == [b"STATUS=a", b"STATUS=b", b"STATUS=a", b"STOPPING=1"]


def test_abstract_address_is_understood() -> None:
    name = f"watchdogd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(60)
        notifier = notifier_of(f"@{name}")
        notifier.ready()
        assert listening.recv(1000) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234", "/nowhere/at/all"])
def test_nobody_who_listens_is_no_trouble(address: str) -> None:
    notifier = notifier_of(address)
    notifier.ready()
    notifier.status("well")
    notifier.beat()


def test_manager_that_does_not_listen_blocks_nobody(manager: socket.socket) -> None:
    notifier = notifier_of(manager.getsockname())
    for number in range(5000):
        notifier.status(f"{number}")


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000"}, 30.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "/n"}, None),
        ({"WATCHDOG_USEC": "30000000"}, None),
        ({}, None),
    ],
)
def test_interval_is_taken_from_the_environment_if_it_is_meant_for_us(
    environ: dict[str, str], interval: float | None
) -> None:
    notifier = Notifier(environ, pid=7)
    assert notifier.interval == interval


def test_children_do_not_inherit_the_right_to_speak() -> None:
    environ = {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "7", "HOME": "/"}
    Notifier(environ, pid=7)
    assert environ == {"HOME": "/"}
