"""A watchdog tells how it is now and then, and soon after something has changed."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from watchdogd.bulletin import Bulletin
from watchdogd.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as ours:
        ours.bind(str(tmp_path / "notify"))
        yield ours


def heard(manager: socket.socket) -> list[str]:
    said = []
    while True:
        try:
            said.append(manager.recv(4096).decode())
        except BlockingIOError:
            return said


def test_what_stays_the_same_is_published_every_two_seconds() -> None:
    bulletin = Bulletin(Notifier())
    due = [tick for tick in range(100) if bulletin.is_due(["ready"], tick / 10)]
    assert due == [0, 20, 40, 60, 80]


def test_change_is_published_soon_and_many_changes_together() -> None:
    bulletin = Bulletin(Notifier())
    assert bulletin.is_due(["ready"], 0.0)
    assert not bulletin.is_due(["busy"], 0.1)
    assert not bulletin.is_due(["ready", "busy"], 0.15)
    assert bulletin.is_due(["ready", "busy"], 0.2)
    assert not bulletin.is_due(["ready", "busy"], 0.5)


def test_whoever_waits_for_it_hears_at_once() -> None:
    bulletin = Bulletin(Notifier())
    assert bulletin.is_due([], 0.0)
    bulletin.hasten(0.05)
    assert bulletin.due_at <= 0.05
    assert bulletin.is_due([], 0.05)


def test_service_manager_hears_three_times_in_its_interval(
    tmp_path: Path, manager: socket.socket
) -> None:
    notifier = Notifier(str(tmp_path / "notify"), 3.0)
    bulletin = Bulletin(notifier)
    for tick in range(1, 61):
        bulletin.beat("running", tick / 10)
    said = heard(manager)
    assert said.count("WATCHDOG=1") == 6
    # What has not changed is not said again.
    assert said.count("STATUS=running") == 1
    notifier.close()
